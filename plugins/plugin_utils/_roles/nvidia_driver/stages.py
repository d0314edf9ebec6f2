# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role nvidia_driver ask for, in the order of a run. Private to this collection. Pure.

`observed` of what a stage is given is what the stage of this name has read, see Host.observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._planning.contract import Ask, Plan, Read, RequestError, RolePlanner, Stage, command, unread
from . import change, installation
from .driver_users import removal_refusals
from .host import Host
from .offers import parse_apt, parse_dnf
from .plan import TABLE, before_offers, host_of, plan, select, unmanaged_note
from .request import Request
from .selection import Offered

_Known = Mapping[str, Any]
_LONGEST = 200
_Part = Callable[[Request, Host, _Known, _Known], Mapping[str, Any] | Ask]


def _plan(variables: _Known, facts: _Known, found: _Known) -> Plan:
    request = Request.read(variables)
    return plan(request, host_of(request, facts, {}), variables[TABLE], bool(found.get("check_mode")))


def _stage(part: _Part) -> Stage:
    """A stage that gets the request, the host, the tables of the role and what the task gives."""

    def stage(variables: _Known, facts: _Known, found: _Known) -> Mapping[str, Any] | Ask:
        request = Request.read(variables)
        return part(request, host_of(request, facts, found.get("observed") or {}), variables, found)

    return stage


def _observed(request: Request, host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """The kernels that need modules, and what later stages know of the host besides facts."""
    asked = unread(found, change.readings(request, host))
    if asked:
        return asked
    files = [str(one["path"]) for one in found.get("boot", {}).get("files") or ()]
    kernels = change.kernels(request, host, str(found.get("grubby", {}).get("stdout") or ""), files)
    asked = unread(found, change.readings_of_kernels(request, kernels["all"]))
    if asked:
        return asked
    needed = (found.get(name, {}) for name in ("sources", "removal", "boot", "compilers"))
    failed = next((one for one in needed if one.get("failed")), None)
    if failed:
        why = str(failed.get("stderr") or failed.get("msg")).strip()
        raise RequestError(f"packages and kernels cannot be read: {why[-_LONGEST:]}")
    observed = {name: found.get(name, {}) for name in ("removal", "kernel_options", "gcc", "compilers")}
    sources = found.get("sources", {}).get("stdout_lines") or []
    return {**kernels, "observed": {**observed, "sources": sources, "boot_kernel": kernels["boot"]}}


def _select(request: Request, host: Host, tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """The driver by what apt or dnf prints of packages: `shown` and `listed`; `recommended` is of ubuntu-drivers."""
    known = {"shown": {}, "listed": {}, "recommended": {}, **found}
    if "listed" not in found:
        # What they are asked follows from the driver as far as it is known without them.
        nothing = {"shown": {}, "listed": {}, "recommended": {}, "is_complete": False}
        first = _selected(request, host, tables, {**found, **nothing})
        asked = unread(found, change.offers(request, first, bool(found["with_companions"])))
        if asked:
            return asked
        if first["queries"]:
            return Ask({"listed": command(*change.listing(host, first, str(known["shown"].get("stdout") or "")))})
    return _selected(request, host, tables, known)


def _selected(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    shown, listed = (str(found[name].get("stdout") or "") for name in ("shown", "listed"))
    url = (host.repository_record(request).get("data") or {}).get("url", "")
    urls = {request.source: str(url)}
    packages = parse_apt(shown, listed, urls, host.pins) if host.uses_apt else parse_dnf(listed)
    offered = Offered(packages, str(found["recommended"].get("stdout") or ""), bool(found["is_complete"]))
    driver = select(request, host, tables[TABLE], offered, bool(found["with_companions"]))
    return {
        **change.selected(request, host, driver.plan, tables[installation.RUNFILES]),
        "preferences_file": "" if request.uses_runfile else tables[installation.PREFERENCES],
        "refusals": list(driver.refusals),
        "note": unmanaged_note(request, host),
    }


def _companions(request: Request, host: Host, _tables: _Known, _found: _Known) -> dict[str, Any]:
    return installation.companions(request, host)


def _secure_boot(request: Request, host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """`directory` has the variables of the firmware."""
    asked = unread(found, {"variable": ("slurp", {"src": f"{found.get('directory')}/{change.SECURE_BOOT}"})})
    if asked:
        return asked
    variable = found["variable"]
    # A host without UEFI has no such file, and no Secure Boot.
    if variable.get("failed") and "not found" not in str(variable.get("msg")):
        raise RequestError(f"the firmware's variable SecureBoot cannot be read: {variable.get('msg')}")
    results = found.get("keys", {}).get("results") or ()
    state = change.secure_boot(request, host, str(variable.get("content") or ""), results)
    if state["is_on"] and "keys" not in found:
        return Ask({"keys": [command("mokutil", "--test-key", path) for path in state["certificates"]]})
    return state


def _preflight(request: Request, host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """All that is wrong at once, and what is not known; `selection` is what the stage `select` returned."""
    asked = unread(found, change.readings_of_preflight(request, host))
    if asked:
        return asked
    driver = found["selection"]
    return {
        "problems": list(change.problems(request, host, driver["reasons"], found)),
        "notes": [*driver["unknowns"], *driver["notes"]],
    }


def _download(request: Request, host: Host, _tables: _Known, _found: _Known) -> dict[str, Any]:
    """What is downloaded; a URL may have a password."""
    source = request.download(host.architecture)
    return {"source": source, "url": source if "://" in source else f"file://{source}"}


def _change(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    planned = change.change(request, host, found["selection"], found["preview"])
    return {**planned, "looks": change.looks_for_users(request, host, planned["replaced"])}


def _busy(request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return change.decision(request, found["replaced"], found["in_use"].get("users") or ())


def _in_use(_variables: _Known, _facts: _Known, found: _Known) -> Plan:
    return Plan(removal_refusals(found["users"], found["containers"]))


def _lines(program: str, result: _Known) -> Sequence[str]:
    """What a program has printed that has to succeed."""
    if result.get("failed") or result.get("rc"):
        why = str(result.get("stderr") or result.get("msg")).strip()
        raise RequestError(f"`{program}` fails: {why[-_LONGEST:]}")
    lines: Sequence[str] = result.get("stdout_lines") or ()
    return lines


def _headers(_request: Request, host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """The packages of headers that `kernels` lack."""
    kernels = found["kernels"]
    paths = [f"/lib/modules/{kernel}/build/Makefile" for kernel in kernels]
    asked = unread(found, {"headers": [("stat", {"path": path, "get_checksum": False}) for path in paths]})
    if asked:
        return asked
    there = zip(kernels, found["headers"]["results"], strict=True)
    return change.headers(host, [kernel for kernel, one in there if not one["stat"]["exists"]])


def _epel(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.epel(request, host, found["offered"], tables)


def _begin(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return {"data": installation.begun(request, host, found["selection"])}


def _installed(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.installed(request, host, found["selection"], found["kernels"])


def _dkms(_request: Request, _host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    asked = unread(found, {"status": command("dkms", "status")})
    if asked:
        return asked
    lines = _lines("dkms status", found["status"])
    return installation.dkms(lines, str(found.get("version", "")), found.get("kernels") or ())


def _signatures(_request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    problems = installation.signatures(found["modules"]["results"], found["serials"].get("results") or ())
    return {"problems": problems}


def _daemon(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.daemon(request, host, found["units"]["results"], tables)


def _options(request: Request, _host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """Options that the module for the kernel `boot` does not have."""
    if not request.options.parameters:
        return {"unknown": []}
    asked = unread(found, {"known": command("modinfo", "-k", str(found.get("boot")), "-F", "parm", "nvidia")})
    return asked or {"unknown": installation.unknown_options(request, found["known"].get("stdout_lines") or ())}


def _upgrade(_request: Request, _host: Host, _tables: _Known, found: _Known) -> Mapping[str, Any] | Ask:
    """Which of the packages `names`, which have to stay, an upgrade of all packages would change."""
    simulation = {"simulation": command("apt-get", "--simulate", "dist-upgrade")} if found["names"] else {}
    asked = unread(found, simulation)
    if asked:
        return asked
    lines = _lines("apt-get --simulate dist-upgrade", found.get("simulation", {}))
    return {"changed_packages": installation.upgradable(lines, found["names"])}


def _record(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.record(request, host, found["selection"], found, tables)


def _activation(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.activation(request, host, found)


def _services(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return {"services": installation.services(request, host, found)}


def _persistence(request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    """Whether persistence mode is to be verified, and what is wrong with it; `read` is the result of nvidia-smi."""
    started, read = found["started"].get("results") or (), found["read"]
    return {
        "is_due": installation.verifies_persistence(request, started, bool(found["was_exchanged"])),
        "refusals": list(installation.against_persistence(read)) if "rc" in read else [],
    }


def _removal(request: Request, host: Host, tables: _Known, _found: _Known) -> dict[str, Any]:
    planned = change.removal(request, host)
    looks = change.looks_for_users(request, host, planned["replaced"])
    return {**planned, "looks": looks, "files": installation.own_files(host, tables)}


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
        "observed": _stage(_observed),
        "select": _stage(_select),
        "companions": _stage(_companions),
        "secure_boot": _stage(_secure_boot),
        "preflight": _stage(_preflight),
        "download": _stage(_download),
        "change": _stage(_change),
        "busy": _stage(_busy),
        "in_use": _in_use,
        "headers": _stage(_headers),
        "epel": _stage(_epel),
        "begin": _stage(_begin),
        "installed": _stage(_installed),
        "dkms": _stage(_dkms),
        "signatures": _stage(_signatures),
        "daemon": _stage(_daemon),
        "options": _stage(_options),
        "upgrade": _stage(_upgrade),
        "record": _stage(_record),
        "activation": _stage(_activation),
        "services": _stage(_services),
        "persistence": _stage(_persistence),
        "removal": _stage(_removal),
    },
    tables=(TABLE, *installation.TABLES),
    secret=("download", "epel"),
    reads=(
        "nvidia_driver_debian_mirror",
        "nvidia_driver_image_build",
        "nvidia_driver_lock_timeout",
        "nvidia_driver_module_build",
        "nvidia_driver_mok_certificate",
        "nvidia_driver_mok_key",
        "nvidia_driver_persistence_daemon",
        "nvidia_driver_pin",
        "nvidia_driver_preflight",
        "nvidia_driver_reboot",
        "nvidia_driver_reboot_timeout",
        "nvidia_driver_rollback",
        "nvidia_driver_runfile_sha256",
        "nvidia_driver_secure_boot",
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
