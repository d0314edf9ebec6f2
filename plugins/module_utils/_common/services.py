# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's companion daemons. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping


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
