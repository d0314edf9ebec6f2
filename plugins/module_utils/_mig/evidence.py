# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cross-check nvidia-smi's lists of the instances of a GPU. Private to this collection.

A list may be truncated: an empty one counts only with nvidia-smi's explicit message, and where a second call confirms
it.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Sequence

from .._common.bounds import shown
from .._nvidia_smi.gpu import Gpu
from .._nvidia_smi.listing import ComputeInstance, GpuInstance, ListedGpu, Listing
from . import state as mig_state
from .layout import ComputeId
from .state import Compute, GpuState


def judge(
    gpu: Gpu,
    rows: Listing[GpuInstance],
    computes: Listing[ComputeInstance] | None,
    listed: ListedGpu | None,
) -> GpuState | None:
    """The GPU of the document with its instances, or with the doubt about them.

    `rows` is `mig -lgi`, `computes` is `mig -lci` or None while it is not read, `listed` is the GPU in `-L` or None
    where it is not known. Gives None where `mig -lci` is needed to decide.
    """
    if gpu.error is not None:
        return GpuState(gpu)
    mine = rows_of(rows, gpu)
    unread = rows.unread.get(_index(gpu)) or (computes.unread.get(_index(gpu)) if computes is not None else None)
    doubt = f"nvidia-smi lists an instance that is not understood: {unread}" if unread else None
    doubt = doubt or _doubt_of_rows(gpu, rows, mine, listed)
    if doubt is not None:
        return GpuState(gpu, doubt=doubt)
    if not mine:
        return GpuState(gpu)
    if computes is None:
        found = None if listed is None else mig_state.compute_from_document(gpu, mine, listed)
        if found is None:
            return None
    else:
        found = mig_state.compute_from_rows(row for row in computes.rows if row.gpu == gpu.index)
        doubt = _doubt_of_computes(gpu, mine, found, listed)
        if doubt is not None:
            return GpuState(gpu, doubt=doubt)
    instances = mig_state.join(mine, found, mig_state.uuids_by_index(gpu, mine, found, listed))
    return GpuState(gpu, instances, mig_state.busy_instances(gpu, instances))


def judge_after(
    before: GpuState, made: Mapping[int, int], rows: Listing[GpuInstance], listed: ListedGpu | None
) -> GpuState | None:
    """The GPU after a change, from `mig -lgi` and `-L` alone; None where these do not prove its state.

    `made` has, by GPU instance id, the compute instance id that nvidia-smi reported as created.
    """
    if before.doubt is not None or before.gpu.error is not None:
        return before
    if listed is None or listed.uuid != before.gpu.basics.uuid or _index(before.gpu) in rows.unread:
        return None
    mine = rows_of(rows, before.gpu)
    known = {item.gpu_instance_id: item.compute[0].compute_instance_id for item in before.instances if item.compute}
    computes = mig_state.compute_of_whole(mine, listed, {**known, **made})
    uuids = None if computes is None else mig_state.uuids_after(before.instances, mine, computes, listed)
    if computes is None or uuids is None:
        return None
    instances = mig_state.join(mine, computes, uuids)
    return GpuState(before.gpu, instances, mig_state.busy_instances(before.gpu, instances))


def rows_of(rows: Listing[GpuInstance], gpu: Gpu) -> tuple[GpuInstance, ...]:
    """The GPU instances of one GPU."""
    return tuple(row for row in rows.rows if row.gpu == gpu.index)


def is_confirmed_by_document(gpu: Gpu) -> bool:
    """Whether the document alone confirms `mig -lgi`; early drivers list no MIG devices in it."""
    return mig_state.is_listed(gpu) or gpu.basics.mig_mode_current != "enabled" or gpu.error is not None


def _doubt_of_rows(
    gpu: Gpu, rows: Listing[GpuInstance], mine: Sequence[GpuInstance], listed: ListedGpu | None
) -> str | None:
    """What contradicts the list of GPU instances."""
    message = f"nvidia-smi mig -lgi {_spell(mine, rows)}"
    mode = gpu.basics.mig_mode_current
    lacking = {instance for instance, _compute in mig_state.device_ids(gpu)} - {row.gpu_instance_id for row in mine}
    if lacking:
        return _contradiction(f"nvidia-smi -q -x shows MIG devices in GPU instances {_list(lacking)}", message)
    if mode == "disabled" and mine:
        return _contradiction("nvidia-smi -q -x reports that MIG mode is disabled", message)
    if mode == "enabled" and rows.none is not None and "MIG-" in rows.none:
        return _contradiction("nvidia-smi -q -x reports that MIG mode is enabled", message)
    if listed is not None and listed.uuid != gpu.basics.uuid:
        return _contradiction(f"nvidia-smi -q -x has {gpu.basics.uuid} at index {gpu.index}", f"-L has {listed.uuid}")
    if not mine and not is_confirmed_by_document(gpu) and (listed is None or listed.mig_devices):
        devices = len(listed.mig_devices) if listed is not None else "does not list the GPU, so no"
        return _contradiction(f"nvidia-smi -L shows {devices} MIG devices", message)
    return None


def _doubt_of_computes(
    gpu: Gpu, mine: Sequence[GpuInstance], found: Sequence[Compute], listed: ListedGpu | None
) -> str | None:
    """What contradicts the list of compute instances."""
    there = {(item.gpu_instance_id, item.compute_instance_id) for item in found}
    message = f"nvidia-smi mig -lci lists compute instances {_ids(there)}"
    outside = {instance for instance, _compute in there} - {row.gpu_instance_id for row in mine}
    if outside:
        return _contradiction(message, f"nvidia-smi mig -lgi lists no GPU instance {_list(outside)}")
    if mig_state.is_listed(gpu):
        seen = mig_state.device_ids(gpu)
        return _contradiction(f"nvidia-smi -q -x shows MIG devices {_ids(seen)}", message) if seen != there else None
    if listed is None or len(listed.mig_devices) != len(there):
        devices = 0 if listed is None else len(listed.mig_devices)
        return _contradiction(f"nvidia-smi -L shows {devices} MIG devices", message)
    return None


def _contradiction(one: str, other: str) -> str:
    return f"the state is not known: {one}, but {other}; look at the GPU and run again"


def _spell(mine: Sequence[GpuInstance], rows: Listing[GpuInstance]) -> str:
    if mine:
        return f"lists GPU instances {_list(row.gpu_instance_id for row in mine)}"
    return f"prints {shown(rows.none)}" if rows.none is not None else "lists none of this GPU"


def _index(gpu: Gpu) -> int:
    return -1 if gpu.index is None else gpu.index


def _ids(items: Iterable[ComputeId]) -> str:
    """GPU instance id and compute instance id of each."""
    return ", ".join(f"{instance}/{compute}" for instance, compute in sorted(items)) or "none"


def _list(items: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(items)))
