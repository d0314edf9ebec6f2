# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The daemons that go with the driver. Private to this collection."""

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
"""All print their version with `--version`. DCGM has versions of its own."""

PROPERTIES = "Id,LoadState,ActiveState,UnitFileState"
_VERSION = re.compile(r"version\s*(?:is)?\s*:?\s*v?(\d+\.\d+(?:\.\d+)*)", re.IGNORECASE)


@dataclass(frozen=True)
class Service:
    """State of one daemon: `state` and `enabled` in systemd's words, `matches_driver` None where none is needed."""

    name: str
    installed: bool
    version: str | None
    unit: str | None
    state: str | None
    enabled: str | None
    matches_driver: bool | None


def unit_names() -> tuple[str, ...]:
    """The units to ask systemd about."""
    return tuple(unit for daemon in DAEMONS for unit in daemon.units)


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Read `systemctl show`: the properties of each unit that is there, by its id."""
    units: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if properties.get("LoadState") not in (None, "not-found"):
            units[properties.get("Id", "")] = properties
    return units


def services(
    units: Mapping[str, Mapping[str, str]], versions: Mapping[str, str | None], driver_version: str | None
) -> tuple[Service, ...]:
    """Put the daemons together; `versions` has what each installed daemon's program printed, by its name."""
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
