# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG state of a host, joined from nvidia-smi's lists. Private to this collection."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable, Mapping, Sequence

from .._common.errors import ChangeError
from .._nvidia_smi.gpu import Gpu, MigDevice
from .._nvidia_smi.listing import ComputeInstance as ComputeRow
from .._nvidia_smi.listing import GpuInstance as InstanceRow
from .._nvidia_smi.listing import ListedGpu, sizes_of
from .layout import ComputeId, ComputeInstance, Instance

_ATTRIBUTES = re.compile(r"[+-].*")


@dataclass(frozen=True)
class GpuState:
    """One GPU: its readings, its instances, and by compute instance the processes that use it.

    `doubt` is why its instances are not known: rows that cannot be parsed, or readings that contradict each other.
    """

    gpu: Gpu
    instances: tuple[Instance, ...] = ()
    busy: Mapping[ComputeId, tuple[str, ...]] = field(default_factory=dict)
    doubt: str | None = None

    @property
    def index(self) -> int:
        """nvidia-smi's index, as used in its tables; it can change with a reboot."""
        return self.gpu.index if self.gpu.index is not None else -1

    @property
    def identity(self) -> str:
        """The argument for `-i`, stable across reboots."""
        return self.gpu.identity

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.gpu.label

    @property
    def is_capable(self) -> bool:
        """Whether it has a MIG mode."""
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
    """A compute instance as listed by nvidia-smi, in its GPU instance."""

    gpu_instance_id: int
    compute_instance_id: int
    slices: int
    start: int | None = None


def base_name(name: str) -> str:
    """A profile's name as in `-L` and `-lci`: without suffixes such as `+me`."""
    return _ATTRIBUTES.sub("", name)


def is_listed(gpu: Gpu) -> bool:
    """Whether the document lists the MIG devices of the GPU, with their ids; early drivers do not."""
    return "mig_devices" not in dict(gpu.unknown) and None not in _ids(gpu)


def device_ids(gpu: Gpu) -> frozenset[ComputeId]:
    """GPU instance id and compute instance id of each MIG device in the document."""
    return frozenset(item for item in _ids(gpu) if item is not None)


def _ids(gpu: Gpu) -> list[ComputeId | None]:
    return [_id(device) for device in gpu.mig_devices]


def _id(device: MigDevice) -> ComputeId | None:
    if device.gpu_instance_id is None or device.compute_instance_id is None:
        return None
    return device.gpu_instance_id, device.compute_instance_id


def compute_from_document(gpu: Gpu, rows: Sequence[InstanceRow], listed: ListedGpu) -> tuple[Compute, ...] | None:
    """Join the devices of `-q -x`, which have ids, with the devices of `-L`, which have names; None where they differ.

    Also None where a GPU instance of `rows` has no device: only `-lci` can show whether it is empty.
    """
    names = {device.index: device.name for device in listed.mig_devices}
    instances = {row.gpu_instance_id: sizes_of(row.name) for row in rows}
    ids = device_ids(gpu)
    if len(ids) != len(gpu.mig_devices) or len(ids) != len(listed.mig_devices):
        return None
    if {gpu_instance for gpu_instance, _compute in ids} != set(instances):
        return None
    found = []
    for device in gpu.mig_devices:
        key = _id(device)
        sizes = sizes_of(names.get(-1 if device.index is None else device.index, ""))
        if key is None or sizes is None or sizes[1] != (instances[key[0]] or sizes)[1]:
            return None
        found.append(Compute(*key, slices=sizes[0]))
    return tuple(found)


def compute_from_rows(rows: Iterable[ComputeRow]) -> tuple[Compute, ...]:
    """Convert the rows of `-lci`."""
    sized = ((row, sizes_of(row.name)) for row in rows)
    return tuple(
        Compute(row.gpu_instance_id, row.compute_instance_id, sizes[0], row.start)
        for row, sizes in sized
        if sizes is not None
    )


def compute_of_whole(
    rows: Sequence[InstanceRow], listed: ListedGpu, ids: Mapping[int, int]
) -> tuple[Compute, ...] | None:
    """Compute instances as far as `-L` alone proves them: one whole device for each GPU instance, with equal names.

    `ids` has, by GPU instance id, the compute instance id that nvidia-smi reported as created. None where there are
    divided or empty GPU instances, or ones without an id.
    """
    devices = Counter(base_name(device.name) for device in listed.mig_devices)
    if devices != Counter(base_name(row.name) for row in rows) or any(row.gpu_instance_id not in ids for row in rows):
        return None
    return tuple(
        Compute(row.gpu_instance_id, ids[row.gpu_instance_id], sizes[1])
        for row in rows
        for sizes in [sizes_of(row.name)]
        if sizes is not None
    )


def uuids_by_index(
    gpu: Gpu, rows: Sequence[InstanceRow], computes: Sequence[Compute], listed: ListedGpu | None
) -> dict[ComputeId, str]:
    """UUIDs of `-L`, by the ids in the UUID itself or, by index, the ids of the device in the document.

    Devices that cannot be joined, or whose name does not match the size, are left out: no UUID is better than a
    wrong one.
    """
    devices = listed.mig_devices if listed is not None else ()
    by_index = {device.index: _id(device) for device in gpu.mig_devices}
    slices = {row.gpu_instance_id: (sizes_of(row.name) or (0, 0))[1] for row in rows}
    sizes = {
        (item.gpu_instance_id, item.compute_instance_id): (item.slices, slices.get(item.gpu_instance_id))
        for item in computes
    }
    found: dict[ComputeId, str] = {}
    for device in devices:
        held = device.gpu_instance_id, device.compute_instance_id
        key = by_index.get(device.index) if held[0] is None or held[1] is None else (held[0], held[1])
        if key is not None and sizes.get(key) == sizes_of(device.name):
            found[key] = device.uuid
    return found if len(by_index) in (0, len(devices)) else {}


def uuids_after(
    before: Sequence[Instance], rows: Sequence[InstanceRow], computes: Sequence[Compute], listed: ListedGpu
) -> dict[ComputeId, str] | None:
    """UUIDs after a change, without a document: kept instances keep theirs; None where they are ambiguous.

    `computes` are whole, one in each GPU instance. A new one is identified by its name if that is unique among them.
    """
    known = {
        (item.gpu_instance_id, compute.compute_instance_id): (item.place, compute.uuid)
        for item in before
        for compute in item.compute
    }
    places = {row.gpu_instance_id: ((row.profile_id, row.start), base_name(row.name)) for row in rows}
    left = {device.uuid: base_name(device.name) for device in listed.mig_devices}
    found: dict[ComputeId, str] = {}
    new: dict[str, list[ComputeId]] = {}
    for item in computes:
        key = (item.gpu_instance_id, item.compute_instance_id)
        place, name = places[item.gpu_instance_id]
        stayed, uuid = known.get(key, (None, None))
        if stayed == place and uuid in left:
            found[key] = str(uuid)
            del left[str(uuid)]
        else:
            new.setdefault(name, []).append(key)
    for uuid, name in left.items():
        keys = new.pop(name, [])
        if len(keys) != 1:
            return None
        found[keys[0]] = uuid
    return None if new else found


def join(
    rows: Sequence[InstanceRow], computes: Sequence[Compute], uuids: Mapping[ComputeId, str]
) -> tuple[Instance, ...]:
    """Combine the instances of one GPU, ordered by place.

    `computes` belong to GPU instances of `rows`, whose names can all be parsed; unknown UUIDs are left out.
    """
    slices = {row.gpu_instance_id: (sizes_of(row.name) or (0, 0))[1] for row in rows}
    inside: dict[int, list[ComputeInstance]] = {}
    for item in sorted(computes, key=lambda item: (item.gpu_instance_id, item.compute_instance_id)):
        # A compute instance that takes the whole GPU instance starts at 0.
        start = 0 if item.slices == slices[item.gpu_instance_id] else item.start
        uuid = uuids.get((item.gpu_instance_id, item.compute_instance_id))
        inside.setdefault(item.gpu_instance_id, []).append(
            ComputeInstance(item.compute_instance_id, item.slices, start, uuid)
        )
    return tuple(
        Instance(
            gpu_instance_id=row.gpu_instance_id,
            profile=row.name,
            profile_id=row.profile_id,
            slices=slices[row.gpu_instance_id],
            start=row.start,
            size=row.size,
            compute=tuple(inside.get(row.gpu_instance_id, ())),
        )
        for row in sorted(rows, key=lambda row: row.start)
    )


def busy_instances(gpu: Gpu, instances: Sequence[Instance]) -> dict[ComputeId, tuple[str, ...]]:
    """The processes in each compute instance. A process without instance ids may be in any, so counts for all."""
    busy: dict[ComputeId, tuple[str, ...]] = {}
    for process in gpu.processes or ():
        message = f"{process.name or 'a process'} (PID {process.pid})"
        for instance in instances:
            for compute in instance.compute:
                if process.gpu_instance_id in (None, instance.gpu_instance_id) and process.compute_instance_id in (
                    None,
                    compute.compute_instance_id,
                ):
                    key = (instance.gpu_instance_id, compute.compute_instance_id)
                    busy[key] = (*busy.get(key, ()), message)
    return busy
