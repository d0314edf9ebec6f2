# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State to restore at each boot: for every GPU, by UUID, its settings and its MIG layout with places.

Saved as JSON. Instances at the same places get the same UUIDs again. Private to this collection.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping

from .._common.bounds import TIMEOUT
from .._common.errors import ChangeError

VERSION = 1
BOOT_TIMEOUT = 1800
"""Seconds to wait for the driver at boot: its kernel module may first have to be built for a new kernel."""


@dataclass(frozen=True)
class PlannedDevice:
    """A MIG device at the time the plan was saved: `place` is its profile and start, in mig_profile's format."""

    place: str
    uuid: str | None


@dataclass(frozen=True)
class PlannedMig:
    """MIG of one GPU. `profiles` None leaves the instances unchanged; `devices` are those that `profiles` gave."""

    enabled: bool
    profiles: tuple[str, ...] | None = None
    devices: tuple[PlannedDevice, ...] = ()


@dataclass(frozen=True)
class PlannedGpu:
    """One GPU: `settings` are options of gpu_settings; `ecc` or `mig` None leaves it unchanged."""

    uuid: str
    pci_bus_id: str | None = None
    name: str | None = None
    ecc: bool | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mig: PlannedMig | None = None

    @property
    def label(self) -> str:
        """Its name in messages, also when it is missing."""
        return f"{self.uuid} ({self.name}, {self.pci_bus_id})"


@dataclass(frozen=True)
class StatePlan:
    """All GPUs of a host, ordered by PCI bus id. `reset`: whether GPUs may be reset at boot.

    `timeout` and `boot_timeout` are the seconds for a call of nvidia-smi and for the driver to load. `clients` are
    additional units that may have to be stopped.
    """

    executable: str = "nvidia-smi"
    timeout: float = 60.0
    reset: bool = False
    boot_timeout: int = BOOT_TIMEOUT
    clients: tuple[str, ...] = ()
    gpus: tuple[PlannedGpu, ...] = ()


def place_of(instance: Mapping[str, Any]) -> str:
    """Profile and start of an instance in mig_profile's result, in the format of its options."""
    return f"{instance['profile']}:{instance['placement_start']}"


def render(plan: StatePlan) -> str:
    """The plan as text; equal plans give equal strings."""
    return json.dumps({"version": VERSION, **asdict(plan)}, indent=1, sort_keys=True) + "\n"


def parse(text: str) -> StatePlan:
    """Parse the output of `render`; raises ChangeError."""
    try:
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise ChangeError(f"the plan has version {fields['version']!r}, this program reads {VERSION}")
        return StatePlan(
            executable=str(fields["executable"]),
            timeout=TIMEOUT(fields["timeout"]),
            reset=bool(fields["reset"]),
            # Absent in plans saved by earlier versions.
            boot_timeout=int(fields.get("boot_timeout", BOOT_TIMEOUT)),
            clients=tuple(map(str, fields.get("clients", ()))),
            gpus=tuple(_gpu(entry) for entry in fields["gpus"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangeError(f"the plan cannot be read: {type(error).__name__}: {error}") from error


def _gpu(entry: Mapping[str, Any]) -> PlannedGpu:
    mig = entry["mig"]
    return PlannedGpu(
        uuid=str(entry["uuid"]),
        pci_bus_id=entry["pci_bus_id"],
        name=entry["name"],
        ecc=entry["ecc"],
        settings=dict(entry["settings"]),
        mig=None if mig is None else _mig(mig),
    )


def _mig(entry: Mapping[str, Any]) -> PlannedMig:
    profiles = entry["profiles"]
    return PlannedMig(
        enabled=bool(entry["enabled"]),
        profiles=None if profiles is None else tuple(map(str, profiles)),
        devices=tuple(PlannedDevice(str(device["place"]), device["uuid"]) for device in entry["devices"]),
    )
