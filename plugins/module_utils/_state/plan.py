# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State to restore at each boot: for every GPU, by UUID, its settings and its MIG layout with places.

Saved as JSON. Instances at the same places get the same UUIDs again. Private to this collection.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, TypeVar

from .._common.bounds import TIMEOUT, WHOLE_WAIT, listed, shown
from .._common.errors import ChangeError
from .._common.json_text import parse_json
from .._mig.request import parse_layout
from .._settings.request import NAMES, parse_settings

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
    """Parse the output of `render`; raises ChangeError for anything that it cannot have written, as a whole."""
    try:
        fields = _typed(parse_json(text), dict, "the plan")
        if fields["version"] != VERSION:
            raise ValueError(f"it has version {shown(fields['version'])}, this program reads {VERSION}")
        gpus = tuple(map(_gpu, _typed(fields["gpus"], list, "gpus")))
        uuids = [gpu.uuid for gpu in gpus]
        twice = sorted({uuid for uuid in uuids if uuids.count(uuid) > 1})
        if twice:
            raise ValueError(f"it has more than one entry for {listed(twice)}")
        return StatePlan(
            executable=_typed(fields["executable"], str, "executable"),
            timeout=TIMEOUT(fields["timeout"]),
            reset=_typed(fields["reset"], bool, "reset"),
            boot_timeout=WHOLE_WAIT(fields["boot_timeout"]),
            clients=_strings(fields["clients"], "clients"),
            gpus=gpus,
        )
    except KeyError as error:
        raise ChangeError(f"the plan cannot be read: {error} is missing; run gpu_state again") from error
    except (ValueError, TypeError, ChangeError) as error:
        raise ChangeError(f"the plan cannot be read: {error}; run gpu_state again") from error


def _gpu(entry: object) -> PlannedGpu:
    fields = _typed(entry, dict, "an entry of gpus")
    uuid = _typed(fields["uuid"], str, "uuid")
    settings = _typed(fields["settings"], dict, f"settings of {uuid}")
    unknown = [name for name in settings if name not in NAMES]
    if unknown:
        raise ValueError(f"settings of {shown(uuid)}: there is no {listed(unknown)}")
    if settings:
        parse_settings(settings)
    mig = fields["mig"]
    return PlannedGpu(
        uuid=uuid,
        pci_bus_id=_text_or_none(fields["pci_bus_id"], "pci_bus_id"),
        name=_text_or_none(fields["name"], "name"),
        ecc=None if fields["ecc"] is None else _typed(fields["ecc"], bool, "ecc"),
        settings=settings,
        mig=None if mig is None else _mig(_typed(mig, dict, "mig")),
    )


def _mig(fields: Mapping[str, Any]) -> PlannedMig:
    enabled = _typed(fields["enabled"], bool, "enabled")
    profiles = None if fields["profiles"] is None else _strings(fields["profiles"], "profiles")
    if profiles and not enabled:
        raise ValueError("profiles without MIG mode")
    parse_layout(profiles or ())
    devices = [_typed(device, dict, "an entry of devices") for device in _typed(fields["devices"], list, "devices")]
    return PlannedMig(
        enabled,
        profiles,
        tuple(
            PlannedDevice(_typed(device["place"], str, "place"), _text_or_none(device["uuid"], "uuid"))
            for device in devices
        ),
    )


Value = TypeVar("Value")
_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}


def _typed(value: object, kind: type[Value], what: str) -> Value:
    if not isinstance(value, kind):
        raise ValueError(f"{shown(what)[1:-1]} is {_KINDS[kind]}, not {shown(value)}")
    return value


def _text_or_none(value: object, what: str) -> str | None:
    return None if value is None else _typed(value, str, what)


def _strings(value: object, what: str) -> tuple[str, ...]:
    return tuple(_typed(item, str, f"an entry of {what}") for item in _typed(value, list, what))
