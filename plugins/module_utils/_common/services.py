# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's companion daemons. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping

from .json_text import parse_json


@dataclass(frozen=True)
class Daemon:
    """A daemon: its program, the arguments that print its version, and the names that its unit has had."""

    name: str
    program: str
    units: tuple[str, ...]
    follows_driver: bool


DAEMONS = (
    Daemon("fabric_manager", "nv-fabricmanager", ("nvidia-fabricmanager.service",), True),
    Daemon("persistenced", "nvidia-persistenced", ("nvidia-persistenced.service",), True),
    Daemon("dcgm", "nv-hostengine", ("nvidia-dcgm.service", "dcgm.service"), False),
    Daemon("imex", "nvidia-imex", ("nvidia-imex.service",), True),
)
"""All print their version with `--version`. DCGM is versioned independently of the driver."""

PROPERTIES = "Id,LoadState,ActiveState,UnitFileState"
_VERSION = re.compile(r"version\s*(?:is)?\s*:?\s*v?(\d+\.\d+(?:\.\d+)*)", re.IGNORECASE)


@dataclass(frozen=True)
class Service:
    """State of one daemon: `state` and `enabled` as systemd reports them, `matches_driver` None if not applicable."""

    name: str
    installed: bool
    version: str | None
    unit: str | None
    state: str | None
    enabled: str | None
    matches_driver: bool | None


def unit_names() -> tuple[str, ...]:
    """The names of all daemons' units."""
    return tuple(unit for daemon in DAEMONS for unit in daemon.units)


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Parse `systemctl show`: the properties of each loaded unit, by id."""
    units: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if properties.get("LoadState") not in (None, "not-found"):
            units[properties.get("Id", "")] = properties
    return units


IMEX_UNIT = "nvidia-imex.service"
IMEX_STATE = ("nvidia-imex-ctl", "-N", "-j")
"""Prints the state of the whole IMEX domain, as the service of one host knows it."""
_MOST_NODES, _LONGEST = 1024, 64


def parse_imex_domain(text: str) -> tuple[str | None, dict[str, str]]:
    """Parse the output of IMEX_STATE: the status of the domain, and by address of each node that is not ready.

    https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/cmdservice.html has its options. Its form is that which
    NVIDIA's validation suite states to have seen on two hosts with driver 580.95.05: `status`, and `nodes` by number
    with `host` and `status`. None where it is another one.
    """
    try:
        found: Any = parse_json(text)
        nodes = list(found["nodes"].values())[:_MOST_NODES]
        waiting = {
            str(node["host"])[:_LONGEST]: str(node["status"])[:_LONGEST] for node in nodes if node["status"] != "READY"
        }
        return str(found["status"])[:_LONGEST], waiting
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, {}


def services(
    units: Mapping[str, Mapping[str, str]], versions: Mapping[str, str | None], driver_version: str | None
) -> tuple[Service, ...]:
    """Combine the state of the daemons; `versions` has the output of each installed daemon's program, by its name."""
    found = []
    for daemon in DAEMONS:
        unit = next((name for name in daemon.units if name in units), None)
        properties = units.get(unit or "", {})
        match = _VERSION.search(versions.get(daemon.name) or "")
        version = match[1] if match else None
        comparable = daemon.follows_driver and version is not None and driver_version is not None
        found.append(
            Service(
                name=daemon.name,
                installed=versions.get(daemon.name) is not None or unit is not None,
                version=version,
                unit=unit,
                state=properties.get("ActiveState"),
                enabled=properties.get("UnitFileState") or None,
                matches_driver=version == driver_version if comparable else None,
            )
        )
    return tuple(found)
