# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse `nvidia-smi vgpu -q`: the vGPUs in use by virtual machines on this host. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping

from . import gpu as gpu_schema
from . import values as kind

NONE = "No supported devices in vGPU mode"
_GPU = re.compile(r"GPU ([0-9A-Fa-f:]+\.[0-7])\s*")
_LINE = re.compile(r"( +)(\S.*?)(?:\s+:\s?(.*))?")
_FIRST = "vGPU ID"


@dataclass(frozen=True)
class VGpu:
    """One vGPU in use; paths are nvidia-smi's labels."""

    vgpu_id: int | None = gpu_schema.reading(kind.number, _FIRST)
    uuid: str | None = gpu_schema.reading(kind.plain, "vGPU UUID")
    name: str | None = gpu_schema.reading(kind.plain, "vGPU Name")
    type_id: int | None = gpu_schema.reading(kind.number, "vGPU Type")
    vm_uuid: str | None = gpu_schema.reading(kind.plain, "VM UUID", "VM ID")
    vm_name: str | None = gpu_schema.reading(kind.plain, "VM Name")
    mdev_uuid: str | None = gpu_schema.reading(kind.plain, "MDEV UUID")
    guest_driver_version: str | None = gpu_schema.reading(kind.plain, "Guest Driver Version")
    license_status: str | None = gpu_schema.reading(kind.plain, "License Status")
    gpu_instance_id: int | None = gpu_schema.reading(kind.small, "GPU Instance ID")
    placement_id: int | None = gpu_schema.reading(kind.small, "Placement ID")
    ecc_mode: str | None = gpu_schema.reading(kind.enum, "ECC Mode")
    memory_total_mib: int | None = gpu_schema.reading(kind.mib, "FB Memory Usage/Total")
    memory_used_mib: int | None = gpu_schema.reading(kind.mib, "FB Memory Usage/Used")
    memory_free_mib: int | None = gpu_schema.reading(kind.mib, "FB Memory Usage/Free")
    utilization_gpu_percent: float | None = gpu_schema.reading(kind.percent, "Utilization/GPU", "Utilization/Gpu")
    utilization_memory_percent: float | None = gpu_schema.reading(kind.percent, "Utilization/Memory")


@dataclass(frozen=True)
class VGpus:
    """The vGPUs of one GPU, and why some of their readings are unknown, by name starting with `vgpus.`.

    `other` has the strings that could not be converted, by their path.
    """

    vgpus: tuple[VGpu, ...]
    unknown: tuple[tuple[str, str], ...]
    other: tuple[tuple[str, str], ...] = ()


def parse_vgpus(text: str) -> Mapping[str, VGpus] | None:
    """vGPUs by the PCI bus id of their GPU, in normal form; None where the text is not such a list."""
    gpus: dict[str, list[dict[str, str]]] = {}
    found: list[dict[str, str]] | None = None
    headings: list[tuple[int, str]] = []
    for line in text.splitlines():
        gpu = _GPU.fullmatch(line)
        entry = _LINE.fullmatch(line)
        if gpu is not None:
            bus_id, _reason = kind.interpret(gpu[1], kind.bus_id)
            found = None if bus_id is None else gpus.setdefault(bus_id, [])
        elif entry is not None and found is not None:
            indent, label, value = len(entry[1]), entry[2], entry[3]
            headings = [heading for heading in headings if heading[0] < indent]
            if label == _FIRST:
                found.append({})
                headings = [(indent, "")]
            if value is None:
                headings.append((indent, label + "/"))
            elif found:
                found[-1]["".join(name for _indent, name in headings) + label] = value
    if not gpus:
        return {} if NONE in text else None
    return {bus_id: _read(strings) for bus_id, strings in gpus.items()}


def _read(strings: list[dict[str, str]]) -> VGpus:
    gaps = gpu_schema.Gaps()
    vgpus = tuple(gpu_schema.build(VGpu, vgpu, gaps, name=f"vgpus.{place}.") for place, vgpu in enumerate(strings))
    return VGpus(vgpus, tuple(gaps.reasons.items()), tuple(gaps.strings.items()))
