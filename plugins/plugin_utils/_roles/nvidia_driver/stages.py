# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role nvidia_driver ask for, in the order of a run. Private to this collection. Pure.

`observed` of what a stage is given is what tasks have read of the host so far, see Host.observed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..._planning.contract import Plan, Read, RolePlanner, Stage
from . import change, installation
from .driver_users import removal_refusals
from .host import Host
from .offers import parse_apt, parse_dnf
from .plan import TABLE, before_offers, host_of, plan, select, unmanaged_note
from .request import Request
from .selection import Offered

_Known = Mapping[str, Any]
_Part = Callable[[Request, Host, _Known, _Known], Mapping[str, Any]]


def _plan(variables: _Known, facts: _Known, found: _Known) -> Plan:
    request = Request.read(variables)
    return plan(request, host_of(request, facts, {}), variables[TABLE], bool(found.get("check_mode")))


def _stage(part: _Part) -> Stage:
    """A stage that gets the request, the host, the tables of the role and what the task gives."""

    def stage(variables: _Known, facts: _Known, found: _Known) -> Mapping[str, Any]:
        request = Request.read(variables)
        return part(request, host_of(request, facts, found.get("observed") or {}), variables, found)

    return stage


def _kernels(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    files = [str(one["path"]) for one in found["boot"].get("files") or ()]
    return change.kernels(request, host, str(found["grubby"].get("stdout") or ""), files)


def _select(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    """The driver by what is printed: `shown` and `listed` of apt or dnf, `recommended` of ubuntu-drivers."""
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


def _listing(_request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return {"command": change.listing(host, found)}


def _secure_boot(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return change.secure_boot(
        request, host, str(found["variable"].get("content") or ""), found["keys"].get("results") or ()
    )


def _preflight(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    """All that is wrong at once, and what is not known; `selection` is what the stage `select` returned."""
    name = host.platform["name"]
    untried = [f"{name} is known from documents only, and untried"] if host.platform["untried"] else []
    driver = found["selection"]
    return {
        "problems": list(change.problems(request, host, driver["reasons"], found)),
        "notes": [*driver["unknowns"], *driver["notes"], *untried],
    }


def _download(request: Request, host: Host, _tables: _Known, _found: _Known) -> dict[str, Any]:
    """What is downloaded; a URL may have a password."""
    source = request.download(host.architecture)
    return {"source": source, "url": source if "://" in source else f"file://{source}"}


def _change(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return change.change(request, host, found["selection"], found["preview"])


def _busy(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    replaced, users = found["replaced"], found["in_use"].get("users") or ()
    looks = change.looks_for_users(request, host, replaced)
    return {"looks": looks, **change.decision(request, replaced, users)}


def _in_use(_variables: _Known, _facts: _Known, found: _Known) -> Plan:
    return Plan(removal_refusals(found["users"], found["containers"]))


def _headers(_request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return change.headers(host, [str(one["item"]) for one in found["headers"]["results"] if not one["stat"]["exists"]])


def _epel(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.epel(request, host, found["offered"], tables)


def _begin(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return {"data": installation.begun(request, host, found["selection"])}


def _installed(request: Request, host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.installed(request, host, found["selection"], found["kernels"])


def _dkms(_request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    lines = found["status"].get("stdout_lines") or ()
    return installation.dkms(lines, str(found.get("version", "")), found.get("kernels") or ())


def _signatures(_request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    problems = installation.signatures(found["modules"]["results"], found["serials"].get("results") or ())
    return {"problems": problems}


def _daemon(request: Request, host: Host, tables: _Known, found: _Known) -> dict[str, Any]:
    return installation.daemon(request, host, found["units"]["results"], tables)


def _options(request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    return {"unknown": installation.unknown_options(request, found["known"].get("stdout_lines") or ())}


def _upgrade(_request: Request, _host: Host, _tables: _Known, found: _Known) -> dict[str, Any]:
    lines = found["simulation"].get("stdout_lines") or ()
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
    return {**change.removal(request, host), "files": installation.own_files(host, tables)}


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
        "kernels": _stage(_kernels),
        "select": _stage(_select),
        "companions": _stage(_companions),
        "listing": _stage(_listing),
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
        "nvidia_driver_boot_kernel",
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
        "nvidia_driver_ubuntu_series",
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
