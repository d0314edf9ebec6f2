# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What MIG looks like on a host, joined from nvidia-smi's lists. Private to this collection."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

from ._errors import ChangeError
from ._gpu import Gpu
from ._mig_layout import ComputeId, ComputeInstance, Instance
from ._mig_listing import ComputeInstance as ComputeRow
from ._mig_listing import GpuInstance as InstanceRow
from ._mig_listing import ListedGpu
from ._mig_profiles import parse_name

_ATTRIBUTES = re.compile(r"[+-].*")


@dataclass(frozen=True)
class GpuState:
    """One GPU: its readings, its instances, and by compute instance the processes that use it."""

    gpu: Gpu
    instances: tuple[Instance, ...] = ()
    busy: Mapping[ComputeId, tuple[str, ...]] = field(default_factory=dict)

    @property
    def index(self) -> int:
        """nvidia-smi's number of it, which its tables use; it can be another one after a reboot."""
        return self.gpu.index if self.gpu.index is not None else -1

    @property
    def identity(self) -> str:
        """What `-i` takes and what stays the same over reboots."""
        return self.gpu.identity

    @property
    def label(self) -> str:
        """How messages name it."""
        return self.gpu.label

    @property
    def is_capable(self) -> bool:
        """Whether it has a MIG mode at all."""
        return self.gpu.basics.mig_mode_current is not None

    @property
    def is_enabled(self) -> bool:
        """Whether MIG mode is on now."""
        return self.gpu.basics.mig_mode_current == "enabled"

    @property
    def will_be_enabled(self) -> bool:
        """Whether MIG mode is on after the next reset."""
        return (self.gpu.basics.mig_mode_pending or self.gpu.basics.mig_mode_current) == "enabled"

    @property
    def is_pending(self) -> bool:
        """Whether the mode changes at the next reset."""
        return self.is_enabled != self.will_be_enabled


@dataclass(frozen=True)
class Host:
    """All GPUs of a host in the order of their indexes."""

    driver_version: str | None
    gpus: tuple[GpuState, ...]

    def find(self, identity: str) -> GpuState:
        """The GPU with this identity; raises ChangeError when it is gone."""
        for gpu in self.gpus:
            if gpu.identity == identity:
                return gpu
        raise ChangeError(f"GPU {identity} is not there any more")


@dataclass(frozen=True)
class Compute:
    """A compute instance as one of the lists shows it, in its GPU instance."""

    gpu_instance_id: int
    compute_instance_id: int
    slices: int
    start: int | None = None


def base_name(name: str) -> str:
    """A profile's name as `-L` and `-lci` have it: without `+me` and the like."""
    return _ATTRIBUTES.sub("", name)


def compute_from_document(gpu: Gpu, listed: ListedGpu) -> tuple[Compute, ...] | None:
    """Join the devices of `-q -x`, which have ids, with those of `-L`, which have names; None where they differ."""
    names = {device.index: device.name for device in listed.mig_devices}
    if len(gpu.mig_devices) != len(names):
        return None
    found = []
    for device in gpu.mig_devices:
        if device.gpu_instance_id is None or device.compute_instance_id is None or device.index not in names:
            return None
        slices = parse_name(names[device.index]).compute
        found.append(Compute(device.gpu_instance_id, device.compute_instance_id, slices))
    return tuple(found)


def compute_from_rows(rows: Iterable[ComputeRow]) -> tuple[Compute, ...]:
    """The rows of `-lci`."""
    return tuple(
        Compute(row.gpu_instance_id, row.compute_instance_id, parse_name(row.name).compute, row.start) for row in rows
    )


def compute_of_whole(
    rows: Sequence[InstanceRow], listed: ListedGpu, ids: Mapping[int, int]
) -> tuple[Compute, ...] | None:
    """What `-L` alone proves: as many whole devices as GPU instances, of the same names, so each has just one.

    `ids` has the compute instance id by GPU instance id, as nvidia-smi told it when it made them. None where there are
    divided or empty GPU instances, or ones without an id.
    """
    devices = Counter(base_name(device.name) for device in listed.mig_devices)
    if devices != Counter(base_name(row.name) for row in rows) or any(row.gpu_instance_id not in ids for row in rows):
        return None
    return tuple(Compute(row.gpu_instance_id, ids[row.gpu_instance_id], parse_name(row.name).slices) for row in rows)


def join(rows: Sequence[InstanceRow], computes: Sequence[Compute], listed: ListedGpu | None) -> tuple[Instance, ...]:
    """Put together the instances of one GPU, in the order of their places.

    The devices of `-L` are numbered in the order of their ids; where the names do not agree with that, UUIDs are left
    out rather than guessed.
    """
    slices = {row.gpu_instance_id: parse_name(row.name) for row in rows}
    ordered = sorted(computes, key=lambda item: (item.gpu_instance_id, item.compute_instance_id))
    devices = listed.mig_devices if listed is not None else ()
    agree = len(devices) == len(ordered) and all(
        item.gpu_instance_id in slices
        and parse_name(device.name).compute == item.slices
        and parse_name(device.name).slices == slices[item.gpu_instance_id].slices
        for item, device in zip(ordered, devices)
    )
    uuids = [device.uuid for device in devices] if agree else [None] * len(ordered)
    inside: dict[int, list[ComputeInstance]] = {}
    for item, uuid in zip(ordered, uuids):
        if item.gpu_instance_id not in slices:
            raise ChangeError(f"compute instance {item.compute_instance_id} lies in no listed GPU instance")
        # What takes the whole of its GPU instance starts at its beginning.
        start = 0 if item.slices == slices[item.gpu_instance_id].slices else item.start
        inside.setdefault(item.gpu_instance_id, []).append(
            ComputeInstance(item.compute_instance_id, item.slices, start, uuid)
        )
    return tuple(
        Instance(
            gpu_instance_id=row.gpu_instance_id,
            profile=row.name,
            profile_id=row.profile_id,
            slices=slices[row.gpu_instance_id].slices,
            start=row.start,
            size=row.size,
            compute=tuple(inside.get(row.gpu_instance_id, ())),
        )
        for row in sorted(rows, key=lambda row: row.start)
    )


def busy_instances(gpu: Gpu, instances: Sequence[Instance]) -> dict[ComputeId, tuple[str, ...]]:
    """The processes in each compute instance. One that tells no instance may be in any, so it counts for all."""
    busy: dict[ComputeId, tuple[str, ...]] = {}
    for process in gpu.processes or ():
        said = f"{process.name or 'a process'} (PID {process.pid})"
        for instance in instances:
            for compute in instance.compute:
                if process.gpu_instance_id in (None, instance.gpu_instance_id) and process.compute_instance_id in (
                    None,
                    compute.compute_instance_id,
                ):
                    key = (instance.gpu_instance_id, compute.compute_instance_id)
                    busy[key] = (*busy.get(key, ()), said)
    return busy
