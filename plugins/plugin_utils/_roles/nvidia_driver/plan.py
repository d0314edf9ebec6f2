# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver has to do, and which driver the host is to have. Private to this collection. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from ....module_utils._common.masking import masked
from ..._compatibility import CompatibilityError
from ..._machines import about_driver, against_driver
from ..._planning.contract import Plan, RequestError, inputs_of
from .change import preferences
from .host import Host
from .packages import DriverRequestError
from .request import Request, against_variables
from .selection import DriverPlan, Offered, driver_plan
from .sources import DISTRIBUTION, source_named

INSTALL, ACTIVATE, REMOVE = "install", "activate", "remove"
"""Steps."""
TABLE = "__nvidia_driver_package_table"
"""The packages of drivers by source and branch."""

Tables = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Driver:
    """The driver that the host is to have, and what is wrong with it."""

    plan: DriverPlan
    refusals: tuple[str, ...]


def plan(request: Request, host: Host, table: Tables, check_mode: bool = False) -> Plan:
    """Plan the role from variables and facts: a driver is installed, loaded or removed, or there is nothing to do."""
    wrong = tuple(against_variables(request, host.platform, host.architecture))
    if wrong:
        return Plan(wrong)
    if not request.is_present:
        return Plan(steps=(REMOVE,), tasks=_tasks(request, host, (REMOVE,)))
    inputs, drift = inputs_on(request, host), host.drift(request)
    is_converged = (
        not request.upgrade
        and host.record.get("inputs") == inputs
        and not drift
        and (not request.repository or bool(host.repository_record(request)))
    )
    leaves = leaves_unmanaged(request, host, table)
    file = request.download(host.architecture) if request.uses_runfile else ""
    against = "" if leaves else against_driver(host.machine, request.source, request.source == DISTRIBUTION, file)
    if against:
        return Plan((against,))
    due = {
        INSTALL: not is_converged,
        ACTIVATE: not check_mode and needs_activation(request, host),
    }
    steps = () if leaves else tuple(step for step, is_due in due.items() if is_due)
    return Plan(
        steps=steps,
        reasons=tuple(drift),
        inputs=inputs,
        notes=(
            *host.limits,
            *([unmanaged_note(request, host)] if leaves else []),
            *_unfinished_notes(host),
            *filter(None, [about_driver(host.machine) if INSTALL in steps else ""]),
        ),
        tasks=_tasks(request, host, steps),
    )


def inputs_on(request: Request, host: Host) -> str:
    """The hash of what decides the state of the host."""
    platform = [host.platform["name"], host.architecture, host.kernel]
    gpus, nodes = sorted({*host.devices}), list(request.imex_nodes) or list(host.companions(request).imex_nodes)
    return inputs_of(request, platform=platform, gpus=gpus, imex_nodes=nodes)


def needs_activation(request: Request, host: Host, has_new_options: bool = False) -> bool:
    """Whether the driver on disk has to be loaded: only where there is a GPU, and never in an image."""
    own = host.driver
    is_loaded = own["loaded"] and not own["reboot_required"] and not has_new_options
    return not request.image_build and bool(host.gpus) and not is_loaded


def leaves_unmanaged(request: Request, host: Host, table: Tables) -> bool:
    """Whether a driver that this role has not installed stays, as far as that is known before the host is read.

    Where the role might adopt the driver, or the driver does not respond, it has work.
    """
    if not host.is_unmanaged or request.version == "recommended" or not host.smi.get("available"):
        return False
    return select(request, host, table, Offered(), with_companions=False).plan.existing == "kept"


_OF_DRIVER = re.compile(r"(?:lib)?nvidia-|libcuda1|xserver-xorg-video-nvidia|linux-(?:modules|objects)-nvidia-")


def _unfinished_notes(host: Host) -> list[str]:
    """Packages of a driver that are half configured next to one that works, as where no module could be built."""
    names = [name for name in host.unfinished if _OF_DRIVER.match(name)]
    if not names or not host.smi.get("available"):
        return []
    verb = "is" if len(names) == 1 else "are"
    note = (
        f"driver {host.version} works, and {', '.join(names)} {verb} only half configured, so another kernel may "
        "have no module: run `dpkg --configure -a` on the host, and fix what it reports"
    )
    return [note]


def unmanaged_note(request: Request, host: Host) -> str:
    """That an unmanaged driver stays, and how it would be replaced.

    Without its version, which a table of hosts has next to it: hosts with several versions have the same note.
    """
    return (
        f"the driver was installed by {host.origin}, not by this role; it fits nvidia_driver_version "
        f"{request.version} and is left as it is, without pins. Set nvidia_driver_replace_unmanaged to true to have it "
        f"replaced by nvidia_driver_source {request.source}"
    )


def select(request: Request, host: Host, table: Tables, offered: Offered, with_companions: bool = True) -> Driver:
    """Choose version, packages, removals and pins by what the repositories offer."""
    companions = host.companions(request).parts if with_companions else ()
    try:
        found = driver_plan(request, host.facts(request, companions), offered, table)
    except (DriverRequestError, CompatibilityError) as error:
        raise RequestError(str(error)) from None
    if found.existing == "refused":
        lacks = host.lacks(request)
        repair = "repair it (a kernel module by `dkms autoinstall`, two versions by a reboot), " if lacks else ""
        instead = (
            f"{'; '.join(found.unknowns)}: correct nvidia_driver_version"
            if found.unknowns
            else f"{repair}set nvidia_driver_replace_unmanaged to true to have it replaced, or leave the role "
            "gpu.fleet.nvidia_driver out for this host"
        )
        wrong = (
            f"is broken: it lacks {', '.join(lacks)}"
            if lacks
            else f"does not fit: version {request.version} with {request.kernel_modules} kernel modules is requested"
        )
        refusal = f"driver {host.version} was installed by {host.origin}, not by this role, and {wrong}; {instead}"
    else:
        refusal = (
            f"driver {request.version} of {request.source} cannot be installed on {host.platform['name']}, and no "
            f"package was changed: {'; '.join(found.reasons)}"
        )
    return Driver(found, (refusal,) if found.reasons or found.existing == "refused" else ())


def before_offers(variables: Mapping[str, Any], facts: Mapping[str, Any], table: Tables) -> tuple[str, list[str]]:
    """The driver that comes as far as that is known before packages are listed, empty where it is not; and refusals."""
    request = Request.read(variables)
    host = host_of(request, facts, {})
    if not request.is_present:
        return "", []
    # Of a driver that is only loaded, the role looks whether it was removed.
    host = replace(host, removed=True)
    found = select(request, host, table, Offered(), with_companions=False)
    refusals = list(found.refusals)
    if found.plan.existing not in ("kept", "refused"):
        # What drives NVSwitches and NVLink domains has to be there before jobs have to leave the host for its change.
        refusals += host.companions(request).refusals
        if not refusals:
            found = select(request, host, table, Offered())
            refusals += found.refusals
    return "" if refusals else found.plan.version or found.plan.branch, refusals


def _tasks(request: Request, host: Host, steps: Sequence[str]) -> dict[str, Any]:
    """What the tasks read."""
    options, recorded = request.options, host.recorded
    source = str(recorded.get("source", ""))
    download = request.download(host.architecture)
    return {
        "loads": REMOVE not in steps and bool(steps),
        "manager": "apt" if host.uses_apt else "dnf",
        "uses_apt": host.uses_apt,
        "uses_runfile": request.uses_runfile,
        "builder": "runfile" if request.uses_runfile else "packages",
        "source_repository": request.repository,
        "adds_repository": request.repository != "",
        "needs_components": request.source == DISTRIBUTION and host.distribution == "Debian",
        "is_recorded": bool(host.record),
        "was_interrupted": host.was_interrupted,
        "marker": host.marker,
        "parameters": options.parameters,
        "options": options.content,
        "source_file": masked(download),
        # What the last run has left, for a rollback and for what is no longer needed.
        "former": {
            "preferences": preferences(host, recorded.get("pins", [])),
            "repository": source_named(source).repository,
            "changes_source": source != request.source,
            "held": list(recorded.get("held", [])),
            "pinned": list(recorded.get("pinned", [])),
            "units": list(recorded.get("units", [])),
        },
    }


def host_of(request: Request, facts: Mapping[str, Any], observed: Mapping[str, Any]) -> Host:
    """The host with what tasks have read."""
    return Host.of(facts, datetime.now(timezone.utc).strftime("%Y-%m-%d")).observed(request, observed)
