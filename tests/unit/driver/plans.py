# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of hosts, and what the stages of the role's planner return for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import read_gpus
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver import selection
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.offers import parse_apt, parse_dnf
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.plan import host_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.request import Request
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.stages import (
    PLANNER,
    UnreadError,
    listed_driver,
    selected,
)

from tests.conftest import ROOT

OPTIONS = yaml.safe_load((ROOT / "roles/nvidia_driver/meta/argument_specs.yml").read_text(encoding="utf-8"))[
    "argument_specs"
]["main"]["options"]
DEBIAN: dict[str, Any] = {
    "distribution": "Debian",
    "distribution_version": "13",
    "distribution_major_version": "13",
    "distribution_release": "trixie",
    "os_family": "Debian",
    "architecture": "x86_64",
    "kernel": "6.12.48+deb13-amd64",
}
UBUNTU: dict[str, Any] = {
    **DEBIAN,
    "distribution": "Ubuntu",
    "distribution_version": "24.04",
    "distribution_major_version": "24",
    "distribution_release": "noble",
    "kernel": "6.8.0-151-generic",
}
EL: dict[str, Any] = {
    **DEBIAN,
    "distribution": "Rocky",
    "distribution_version": "9.6",
    "distribution_major_version": "9",
    "os_family": "RedHat",
    "kernel": "5.14.0-570.el9.x86_64",
}
AMAZON: dict[str, Any] = {
    **EL,
    "distribution": "Amazon",
    "distribution_version": "2023",
    "distribution_major_version": "2023",
    "kernel": "6.12.37-61.105.amzn2023.x86_64",
}
NO_DRIVER: dict[str, Any] = dict.fromkeys(
    ("library_version", "module_version", "loaded_version", "module_kind", "loaded_kind")
) | {"loaded": False, "reboot_required": False}

CONFIGURED: dict[str, Any] = {
    "installation": {"version": "580.95.05", "held": [], "kernel_held": [], "pinned": []},
    "selection": {
        "kernels": {"boot": "6.12"},
        "packages": {"others": []},
        "kernel_modules": "open",
        "stream": "",
        "adds_epel": False,
        **{name: [] for name in ("pins", "gpudirect", "unmanaged")},
    },
    "components_enabled": False,
}
"""What earlier stages returned, for the stage `configured`."""


def facts(system: dict[str, Any], driver: str = "", **others: Any) -> dict[str, Any]:
    """Facts of a host with two H200, and with a driver of this version, which is loaded."""
    own = dict.fromkeys(("library_version", "module_version", "loaded_version"), driver)
    kinds = dict.fromkeys(("module_kind", "loaded_kind"), "open")
    smi = {"available": bool(driver), "reason": None if driver else "no_nvidia_smi"}
    return {
        **system,
        "packages": {},
        "nvidia_smi": {**smi, "pci_gpus": [{"device_id": "0x2335"}] * 2},
        "cuda": {"driver": {**NO_DRIVER, **({**own, **kinds, "loaded": True} if driver else {})}, "services": {}},
        "gpu_fleet_managed": {},
        **others,
    }


def with_defaults(**variables: Any) -> dict[str, Any]:
    """The variables of the role, with defaults for the others, and its tables."""
    files = RoleData.read()
    tables = {table: files.role_values["nvidia_driver"][table] for table in PLANNER.tables}
    return {**files.defaults(["nvidia_driver", "nvidia_repository"]), **variables, **tables}


def asked(name: str, host: dict[str, Any], found: dict[str, Any] | None = None, **variables: Any) -> Any:
    """What a stage returns for these variables, with defaults for the others, or what it asks for."""
    return PLANNER.stages[name](with_defaults(**variables), host, found or {})


def removed(host: dict[str, Any], found: dict[str, Any], **variables: Any) -> Any:
    """The removal in the plan of a host, or what the plan asks for."""
    absent = {"nvidia_driver_state": "absent", **variables}
    result = asked("plan", host, {**found, "reads": True}, **absent)
    return result.tasks["removal"] if isinstance(result, Plan) else result


def chosen(host: dict[str, Any], with_companions: bool = False, **variables: Any) -> dict[str, Any]:
    """The driver for a host whose package lists have nothing, and are not complete."""
    values = with_defaults(**variables)
    request = Request.read(values)
    return selected(request, host_of(request, host, {}), values, {}, with_companions=with_companions)


def listed(host: dict[str, Any], observed: dict[str, Any], found: dict[str, Any], **variables: Any) -> Any:
    """The driver by complete package lists, or what they are asked."""
    values = with_defaults(**variables)
    request = Request.read(values)
    try:
        return listed_driver(request, host_of(request, host, observed), values, found, is_complete=True)
    except UnreadError as unknown:
        return unknown.ask


def stage(name: str, host: dict[str, Any], found: dict[str, Any] | None = None, **variables: Any) -> dict[str, Any]:
    """What a stage returns that knows all."""
    result = asked(name, host, found, **variables)
    return result.as_dict() if isinstance(result, Plan) else dict(result)


def driver(host: dict[str, Any], check_mode: bool = False, **variables: Any) -> dict[str, Any]:
    """What the role has to do."""
    return stage("plan", host, {"check_mode": check_mode}, **variables)


def driver_plan(
    request: Mapping[str, Any], host: Mapping[str, Any], offered: Mapping[str, Any], table: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The plan of a driver for variables of the role; `offered` has what the package manager printed."""
    asked = {f"nvidia_driver_{name}": value for name, value in request.items() if name != "companions"}
    read = Request.read({**RoleData.read().defaults(["nvidia_driver"]), **asked})
    lists = {name: tuple(host.get(name) or ()) for name in ("family", "unmanaged")}
    lists["companions"] = tuple(request.get("companions") or ())
    values = {name: str(host.get(name) or "") for name in ("today", "driver", "driver_kind", "recorded_source")}
    known = selection.Situation(**{**host, **lists, **values, "gpus": read_gpus(host.get("gpus") or ())})
    shown, listed = (str(offered.get(name) or "") for name in ("shown", "listed"))
    pins = offered.get("pins")
    packages = parse_apt(shown, listed, known.repositories, pins) if known.uses_apt else parse_dnf(listed)
    found = selection.Offered(packages, str(offered.get("recommended") or ""), bool(offered.get("is_complete")))
    return selection.driver_plan(read, known, found, table).as_dict()
