# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role nvidia_driver ask for, in the order of a run. Private to this collection. Pure.

`selection` of what a stage is given is what the stage of this name, and then `change`, has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..._planning.contract import Ask, Plan, Read, Reading, RequestError, RolePlanner, Stage, command, unread
from . import change, installation
from .driver_users import removal_refusals
from .host import Host
from .offers import parse_apt, parse_dnf
from .persistence_daemon import UNIT_DIRECTORIES
from .plan import REMOVE, TABLE, before_offers, host_of, plan, select, unmanaged_note
from .request import DKMS, ENROLL, Request
from .selection import Offered

_Known = Mapping[str, Any]
_LONGEST = 200
_Found = Plan | Mapping[str, Any]
_Part = Callable[[Request, Host, _Known, _Known], _Found]
_READ_FIRST = ("is_kept", "kernels", "observed", "needs", "secure_boot", "loaded_before")
"""Of a selection, what stays when the package lists are read again."""
_USERS: Reading = ("gpu.fleet.driver_reload", {})
# systemd sets the cgroups of its units again whenever it is reloaded, as packages with a unit and changed units have
# it. Containers that got their GPUs by a runtime hook lose them then; the module warns of it.
_CONTAINERS: Reading = ("gpu.fleet.systemd_reload", {})


class UnreadError(Exception):
    """A stage needs readings that it has not been given."""

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self.ask = ask


def _need(found: _Known, readings: Mapping[str, Reading | list[Reading]]) -> None:
    if asked := unread(found, readings):
        raise UnreadError(asked)


def _result(found: _Known, name: str, reading: Reading) -> Mapping[str, Any]:
    """What a module of this collection has found, which has to succeed."""
    _need(found, {name: reading})
    result: Mapping[str, Any] = found[name]
    if result.get("failed"):
        raise RequestError(str(result.get("msg")))
    return result


def _plan(variables: _Known, facts: _Known, found: _Known) -> Plan | Ask:
    """The plan, with the removal where it is due and the role `reads` for it."""
    request = Request.read(variables)
    planned = plan(request, host_of(request, facts, {}), variables[TABLE], bool(found.get("check_mode")))
    if planned.refusals or REMOVE not in planned.steps or not found.get("reads"):
        return planned
    try:
        removed = _removal(request, host_of(request, facts, {}), variables, found)
    except UnreadError as unknown:
        return replace(unknown.ask, plan=planned)
    return removed if isinstance(removed, Plan) else replace(planned, tasks={**planned.tasks, "removal": removed})


def _stage(part: _Part) -> Stage:
    """A stage that gets the request, the host, the variables with the role's tables, and what the task gives."""

    def stage(variables: _Known, facts: _Known, found: _Known) -> _Found | Ask:
        request = Request.read(variables)
        observed = (found.get("selection") or {}).get("observed") or {}
        try:
            return part(request, host_of(request, facts, observed), variables, found)
        except UnreadError as unknown:
            return unknown.ask

    return stage


# Before the first change


def _kernels(request: Request, host: Host, found: _Known) -> dict[str, Any]:
    """The kernel that boots next, and those that need modules."""
    files = [str(one["path"]) for one in found.get("boot", {}).get("files") or ()]
    return change.kernels(request, host, str(found.get("grubby", {}).get("stdout") or ""), files)


def _observed(request: Request, host: Host, found: _Known) -> tuple[dict[str, Any], dict[str, Any]]:
    """The kernels, and what later stages know of the host besides facts, see Host.observed."""
    _need(found, change.readings(request, host))
    kernels = _kernels(request, host, found)
    _need(found, change.readings_of_kernels(request, kernels["all"]))
    needed = (found.get(name, {}) for name in ("sources", "removal", "boot", "compilers"))
    failed = next((one for one in needed if one.get("failed")), None)
    if failed:
        why = str(failed.get("stderr") or failed.get("msg")).strip()
        raise RequestError(f"packages and kernels cannot be read: {why[-_LONGEST:]}")
    observed = {name: found.get(name, {}) for name in ("removal", "kernel_options", "gcc", "compilers")}
    sources = found.get("sources", {}).get("stdout_lines") or []
    return kernels, {**observed, "sources": sources, "boot_kernel": kernels["boot"]}


def listed_driver(
    request: Request, host: Host, tables: _Known, found: _Known, *, prefix: str = "", is_complete: bool = False
) -> dict[str, Any]:
    """The driver by what apt or dnf prints of packages: `shown` and `listed`; `recommended` is of ubuntu-drivers.

    With a prefix of the readings, of the driver alone: without companions.
    """
    read = {name.removeprefix(prefix): one for name, one in found.items() if name.startswith(prefix)}
    known = {"shown": {}, "listed": {}, "recommended": {}, **read}
    if "listed" not in read:
        # What they are asked follows from the driver as far as it is known without them.
        first = selected(request, host, tables, {}, with_companions=not prefix)
        offers = change.offers(request, first, not prefix)
        _need(found, {f"{prefix}{name}": one for name, one in offers.items()})
        if first["queries"]:
            listing = change.listing(host, first, str(known["shown"].get("stdout") or ""))
            _need(found, {f"{prefix}listed": command(*listing)})
    return selected(request, host, tables, known, with_companions=not prefix, is_complete=is_complete)


def selected(
    request: Request,
    host: Host,
    tables: _Known,
    found: _Known,
    *,
    with_companions: bool = True,
    is_complete: bool = False,
) -> dict[str, Any]:
    """The driver with the package lists that were read."""
    shown, listed, recommended = (
        str((found.get(name) or {}).get("stdout") or "") for name in ("shown", "listed", "recommended")
    )
    url = (host.repository_record(request).get("data") or {}).get("url", "")
    urls = {request.source: str(url)}
    packages = parse_apt(shown, listed, urls, host.pins) if host.uses_apt else parse_dnf(listed)
    offered = Offered(packages, recommended, is_complete)
    driver = select(request, host, tables[TABLE], offered, with_companions)
    return {
        **change.selected(request, host, driver.plan, tables[installation.RUNFILES]),
        "preferences_file": "" if request.uses_runfile else tables[installation.PREFERENCES],
        "refusals": list(driver.refusals),
        "note": unmanaged_note(request, host),
    }


def _select(request: Request, host: Host, tables: _Known, found: _Known) -> _Found:
    """The driver by what the host has, and all that is wrong at once; `directory` has the variables of the firmware."""
    kernels, observed = _observed(request, host, found)
    host = host.observed(request, observed)
    known = {"kernels": kernels, "observed": observed, "loaded_before": host.driver["loaded_version"] or ""}
    if host.is_unmanaged:
        # Where exactly the requested packages are installed it is adopted. Companions may be added to it.
        alone = listed_driver(request, host, tables, found, prefix="alone_")
        if alone["is_refused"]:
            return Plan(tuple(alone["refusals"]))
        if alone["is_kept"]:
            return {**known, **alone, "report": [alone["note"]]}
    _result(found, "fabric", ("gpu.fleet.fabric_facts", {}))
    needs = installation.companions(request, host)
    if needs["refusals"]:
        return Plan(tuple(needs["refusals"]))
    driver = listed_driver(request, host, tables, found)
    _result(found, "containers", _CONTAINERS)
    secure_boot = _secure_boot(request, host, found)
    report = [*needs["notes"]]
    if tables["nvidia_driver_preflight"]:
        _need(found, change.readings_of_preflight(request, host))
        problems = [*change.problems(request, host, driver["reasons"], {**found, "secure_boot": secure_boot})]
        if problems:
            return Plan((f"the driver cannot be installed, and nothing was changed: {'; '.join(problems)}",))
        report += [*driver["unknowns"], *driver["notes"]]
    elif driver["refusals"]:
        return Plan(tuple(driver["refusals"]))
    return {**known, **driver, "needs": needs, "secure_boot": secure_boot, "report": report}


def _secure_boot(request: Request, host: Host, found: _Known) -> dict[str, Any]:
    _need(found, {"variable": ("slurp", {"src": f"{found.get('directory')}/{change.SECURE_BOOT}"})})
    variable = found["variable"]
    # A host without UEFI has no such file, and no Secure Boot.
    if variable.get("failed") and "not found" not in str(variable.get("msg")):
        raise RequestError(f"the firmware's variable SecureBoot cannot be read: {variable.get('msg')}")
    results = found.get("keys", {}).get("results") or ()
    state = change.secure_boot(request, host, str(variable.get("content") or ""), results)
    if state["is_on"]:
        _need(found, {"keys": [command("mokutil", "--test-key", path) for path in state["certificates"]]})
    return state


def _change(request: Request, host: Host, tables: _Known, found: _Known) -> _Found:
    """What the change would do, before any package is changed, and what has to be there for it.

    The repositories of the source are configured, except in check mode: what they do not have does not exist.
    """
    given, is_checked = found["selection"], bool(found["check_mode"])
    driver = given if is_checked else listed_driver(request, host, tables, found, is_complete=True)
    if driver["refusals"]:
        return Plan(tuple(driver["refusals"]))
    preview_of = change.preview(request, host, driver, tables)
    _need(found, {"preview": ("gpu.fleet.package_transaction", preview_of)})
    preview = found["preview"]
    if preview.get("refused"):
        hint = (
            "; to change the driver without a rollback, set nvidia_driver_rollback to if_possible"
            if preview.get("unavailable")
            else ""
        )
        return Plan((f"the driver was not changed: {preview.get('msg', '')}{hint}",))
    planned = change.change(request, host, driver, preview)
    refusal, deferral = _in_the_way(request, host, found, planned["replaced"])
    if refusal:
        return Plan((refusal,))
    is_due = not is_checked and not deferral
    return {
        **driver,
        **{name: given[name] for name in _READ_FIRST},
        **planned,
        "deferral": deferral,
        "is_made": is_due,
        **(_prepared(request, host, found, tables, given) if is_due else {}),
        "begun": installation.begun(request, host, driver),
    }


def _in_the_way(request: Request, host: Host, found: _Known, replaced: Sequence[str]) -> tuple[str, str]:
    """Why the driver must not change while GPUs are in use, or why the change is deferred."""
    looks = change.looks_for_users(request, host, replaced)
    users = (_result(found, "in_use", _USERS).get("users") or ()) if looks else ()
    decided = change.decision(request, replaced, users)
    in_use = "; ".join(decided["users"])
    gone = f"would be replaced or removed: {', '.join(replaced)}"
    if decided["action"] == "fail":
        return (
            f"GPUs are in use, and the driver was not changed: {in_use}; {gone}. Stop what uses the GPUs, or set "
            "nvidia_driver_when_busy to defer, so that a later run makes the change, or to proceed"
        ), ""
    deferral = f"GPUs are in use, and the change of the driver is deferred to a later run: {in_use}; {gone}"
    return "", deferral if decided["is_deferred"] else ""


def _prepared(request: Request, host: Host, found: _Known, tables: _Known, given: _Known) -> dict[str, Any]:
    """Headers and tools that the build of modules needs, and modules that are signed again with another key."""
    builds, secure_boot, kernels = request.module_build == DKMS, given["secure_boot"], given["kernels"]["all"]
    if builds:
        paths = [f"/lib/modules/{kernel}/build/Makefile" for kernel in kernels]
        _need(found, {"headers": [("stat", {"path": path, "get_checksum": False}) for path in paths]})
    there = zip(kernels, found["headers"]["results"] if builds else (), strict=False)
    signs = secure_boot["checks_key"] and secure_boot["configures_signing"] and secure_boot["has_dkms"]
    offered = _result(found, "dkms_offered", ("dnf", {"list": "dkms"})) if builds and not host.uses_apt else None
    return {
        "headers": change.headers(host, [kernel for kernel, one in there if not one["stat"]["exists"]])
        if builds
        else {"kernels": [], "packages": []},
        "builds": installation.dkms(_lines(found, "status", "dkms", "status"), "", ())["builds"] if signs else [],
        "build_tools": installation.build_tools(host),
        "adds_epel": offered is not None and installation.adds_epel(host, offered.get("results") or (), tables),
    }


def _sources(request: Request, host: Host, tables: _Known, _found: _Known) -> dict[str, Any]:
    """EPEL, and what is downloaded; a URL may have a password."""
    source = request.download(host.architecture)
    return {
        "epel": installation.epel(request, host, tables),
        "url": source if "://" in source else f"file://{source}",
    }


# After it


def _lines(found: _Known, name: str, *argv: str) -> Sequence[str]:
    """What a program has printed that has to succeed."""
    _need(found, {name: command(*argv)})
    return _printed(found[name], " ".join(argv))


def _printed(result: _Known, program: str, *also: int) -> Sequence[str]:
    if (result.get("failed") and result.get("rc") not in also) or result.get("rc", 0) not in (0, *also):
        why = str(result.get("stderr") or result.get("msg")).strip()
        raise RequestError(f"`{program}` fails: {why[-_LONGEST:]}")
    lines: Sequence[str] = result.get("stdout_lines") or ()
    return lines


def _installed(request: Request, host: Host, _tables: _Known, found: _Known) -> _Found:
    """What the packages on the host are, and what is wrong with them; `is_built`: DKMS was asked for what is missing.

    The role rolls back what is refused here.
    """
    chosen = found["selection"]
    now = installation.installed(request, host, chosen, chosen["kernels"]["all"])
    version = now["version"]
    if request.uses_runfile:
        now["refusals"] = [*installation.against_runfile(host, chosen)]
    if now["refusals"]:
        return Plan(tuple(now["refusals"]))
    if request.module_build == DKMS or request.uses_runfile:
        built = installation.dkms(_lines(found, "status", "dkms", "status"), version, chosen["kernels"]["all"])
        if built["missing"] and not found["is_built"]:
            return {**now, "missing": built["missing"]}
        refusals = [*installation.against_build(built, version)]
        if not refusals and chosen["secure_boot"]["is_on"]:
            refusals += _signature_problems(found, chosen)
        if refusals:
            return Plan(tuple(refusals))
    if not request.uses_runfile:
        read = _result(found, "driver", ("gpu.fleet.cuda_facts", {}))["ansible_facts"]["cuda"]["driver"]
        refusals = [*installation.against_libraries(read, version)]
        if refusals:
            return Plan(tuple(refusals))
    return {**now, "missing": []}


def _signature_problems(found: _Known, chosen: _Known) -> Sequence[str]:
    """Why the kernel would not load the modules that were built: that a key is configured does not prove its use."""
    kernels, trusted = chosen["kernels"]["all"], chosen["secure_boot"]["trusted"]
    serials = [command("openssl", "x509", "-inform", "DER", "-in", path, "-noout", "-serial") for path in trusted]
    modules = [command("modinfo", "--set-version", kernel, "nvidia") for kernel in kernels]
    _need(found, {"modules": modules, "serials": serials})
    for one in found["modules"]["results"]:
        _printed(one, "modinfo nvidia")
    return [*installation.against_signatures(kernels, found["modules"], found["serials"], trusted)]


def _configured(request: Request, host: Host, tables: _Known, found: _Known) -> _Found:
    """Files and record of the driver, with the pins in place: no upgrade may change what has to stay.

    `installation` is what `installed` returned, `components_enabled` of the role's file with Debian's components.
    """
    chosen, now = found["selection"], found["installation"]
    refusals = [*_moved(host, found, now), *_unknown_options(request, found, chosen, now)]
    if refusals:
        return Plan(tuple(refusals))
    daemon: dict[str, Any] = {"files": [], "has_unit": False, "removes_unit": False}
    if request.persistence_daemon:
        names = [f"{directory}/nvidia-persistenced.service" for directory in UNIT_DIRECTORIES]
        _need(found, {"units": [("slurp", {"src": name}) for name in names]})
        units = found["units"]["results"]
        unreadable = [one for one in units if one.get("failed") and "not found" not in str(one.get("msg"))]
        if unreadable:
            raise RequestError(f"the units of the persistence daemon cannot be read: {unreadable[0].get('msg')}")
        daemon = installation.daemon(host, units, tables)
    known = {"installation": now, "has_unit": daemon["has_unit"], "epel_added": chosen["adds_epel"]}
    known["components_enabled"] = found["components_enabled"]
    return {"daemon": daemon, "record": installation.record(request, host, chosen, known, tables)}


def _moved(host: Host, found: _Known, now: _Known) -> Sequence[str]:
    """That an upgrade of all packages would change the driver or the kernel, although they have to stay."""
    held, kernel = now["held"], now["kernel_held"] if host.uses_apt else []
    if not held and not kernel:
        return []
    if host.uses_apt:
        lines = _lines(found, "upgrade", "apt-get", "--simulate", "dist-upgrade")
        return [*installation.against_upgrade(lines, held, kernel)]
    _need(found, {"upgrade": command("dnf", "--quiet", "check-update", *held)})
    # 100: there are updates.
    lines = _printed(found["upgrade"], "dnf check-update", 100)
    return [*installation.against_locks(lines)] if found["upgrade"].get("rc") == 100 else []


def _unknown_options(request: Request, found: _Known, chosen: _Known, now: _Known) -> Sequence[str]:
    """Options that the module for the kernel that boots next does not have: the kernel takes them without an error."""
    if not request.options.parameters:
        return []
    _need(found, {"known": command("modinfo", "-k", str(chosen["kernels"]["boot"]), "-F", "parm", "nvidia")})
    lines = found["known"].get("stdout_lines") or ()
    return [*installation.against_options(request, lines, now["version"])]


def _failure(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    """What has failed, and what a rollback has to restore, see installation.failure."""
    output = ""
    if request.module_build == DKMS:
        # Read before the rollback, which removes the log with the sources.
        where = {"paths": ["/var/lib/dkms"], "patterns": ["make.log"], "recurse": True, "depth": 5}
        _need(found, {"logs": ("find", where)})
        logs = sorted(found["logs"].get("files") or (), key=lambda one: float(one["mtime"]))
        if logs:
            path = str(logs[-1]["path"])
            # Compilers run in parallel: the error that stopped the build may be far before the end.
            errors = command("grep", "--max-count=5", "--regexp", "[ :]error: ", path)
            _need(found, {"errors": errors, "end": command("tail", "--lines=15", path)})
            output = installation.build_output(found["errors"], found["end"])
    version = installation.installed(request, host, found["selection"], found["selection"]["kernels"]["all"])["version"]
    return {**installation.failure(found, version), "output": output}


# The loaded driver


def _activation(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    planned = installation.activation(request, host, found)
    # A key waits for its enrollment at the console: until then the kernel loads no module, and a reboot does not help.
    waits = request.secure_boot == ENROLL and _secure_boot(request, host, found)["awaits_enrollment"]
    return {**planned, "awaits_enrollment": waits, "services": installation.services(request, host, found)}


def _reboot(request: Request, host: Host, tables: _Known, found: _Known) -> Plan:
    """Why a reboot would not load the driver; `why` it is needed."""
    _need(found, {"previous": ("slurp", {"src": tables[installation.REBOOT]})})
    previous = found["previous"]
    # No file: no reboot has failed to help.
    if previous.get("failed") and "not found" not in str(previous.get("msg")):
        raise RequestError(f"the reason for the previous reboot cannot be read: {previous.get('msg')}")
    refusals = [*installation.against_second_reboot(host, found["why"], previous, tables)]
    if not refusals:
        _need(found, change.readings_of_boot(request, host))
        boot = _kernels(request, host, found)["boot"]
        _need(found, {"module": command("modinfo", "-k", boot, "-F", "version", "nvidia")})
        refusals += installation.against_boot(host, boot, found["module"])
    return Plan(tuple(refusals))


def _persistence(request: Request, _host: Host, _tables: _Known, found: _Known) -> Plan:
    """A daemon that runs proves nothing: started with --no-persistence-mode, as in Ubuntu's packages, it keeps nothing
    initialised. `started` are results of systemd_service.
    """
    started = found["started"].get("results") or ()
    if not installation.verifies_persistence(request, started, bool(found["was_exchanged"])):
        return Plan()
    query = command("nvidia-smi", "--query-gpu=index,persistence_mode", "--format=csv,noheader")
    _need(found, {"mode": query})
    return Plan(tuple(installation.against_persistence(found["mode"])))


# The removal


def _removal(request: Request, host: Host, tables: _Known, found: _Known) -> _Found:
    _kernel, observed = _observed(request, host, found)
    host = host.observed(request, observed)
    planned = change.removal(request, host)
    refusal, deferral = _in_the_way(request, host, found, planned["replaced"])
    if refusal:
        return Plan((refusal,))
    is_removed = planned["is_removed"] and not deferral
    if is_removed:
        _result(found, "containers", _CONTAINERS)
    files = installation.own_files(host, tables)
    return {**planned, "is_removed": is_removed, "deferral": deferral, "files": files}


def _in_use(_variables: _Known, _facts: _Known, found: _Known) -> Plan | Ask:
    """Why nothing on the host may be removed now."""
    try:
        users = _result(found, "processes", _USERS)["users"]
        return Plan(removal_refusals(users, _result(found, "containers", _CONTAINERS)["containers"]))
    except UnreadError as unknown:
        return unknown.ask


def _listed(variables: _Known, facts: _Known, _read: Read, _to_come: Mapping[str, str]) -> tuple[str, list[str]]:
    return before_offers(variables, facts, variables[TABLE])


def _repository(variables: _Known, facts: _Known) -> str:
    """An unmanaged driver is kept or refused, and needs no repository, unless it is to be replaced."""
    request = Request.read(variables)
    is_kept = host_of(request, facts, {}).is_unmanaged and not request.replace_unmanaged
    return "" if is_kept else request.repository


PLANNER = RolePlanner(
    "nvidia_driver",
    {
        "plan": _plan,
        "select": _stage(_select),
        "change": _stage(_change),
        "sources": _stage(_sources),
        "installed": _stage(_installed),
        "configured": _stage(_configured),
        "failure": _stage(_failure),
        "activation": _stage(_activation),
        "reboot": _stage(_reboot),
        "persistence": _stage(_persistence),
        "in_use": _in_use,
    },
    tables=(TABLE, *installation.TABLES),
    secret=("sources",),
    reads=(
        "nvidia_driver_debian_mirror",
        "nvidia_driver_image_build",
        "nvidia_driver_lock_timeout",
        "nvidia_driver_mok_certificate",
        "nvidia_driver_mok_key",
        "nvidia_driver_persistence_daemon",
        "nvidia_driver_pin",
        "nvidia_driver_reboot",
        "nvidia_driver_reboot_timeout",
        "nvidia_driver_rollback",
        "nvidia_driver_runfile_sha256",
        "nvidia_driver_upgrade",
        "nvidia_driver_version",
    ),
    repository=_repository,
    listed=_listed,
    runs_by_default=True,
    has_plan=True,
    is_disruptive=True,
    collections=("community.general",),
)
