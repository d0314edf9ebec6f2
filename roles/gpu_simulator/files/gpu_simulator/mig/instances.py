# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG instances as the driver keeps them: create and destroy, on one GPU's state, or raise NvmlError."""

from __future__ import annotations

from ..state import catalogue, nvml
from . import placement
from . import profiles as mig_profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..state.shapes import ComputeInstance, Gpu, GpuInstance, Version
    from .profiles import Profile


def profiles_of(gpu: Gpu, version: Version) -> list[Profile]:
    """List the GPU instance profiles that a GPU has under a driver."""
    return mig_profiles.gpu_profiles(catalogue.load(gpu["model"]), version)


def compute_profiles_of(gpu: Gpu, instance: GpuInstance) -> list[Profile]:
    """List the compute instance profiles of a GPU instance."""
    model = catalogue.load(gpu["model"])
    return mig_profiles.compute_profiles(model, mig_profiles.gpu_profile(model, instance["profile_id"]))


def listed(gpu: Gpu, version: Version) -> list[tuple[Profile, GpuInstance]]:
    """List the GPU instances with their profiles in the driver's order: by profile, not by placement."""
    profiles = profiles_of(gpu, version)
    by_id = {profile["id"]: profile for profile in profiles}
    pairs = [(by_id[instance["profile_id"]], instance) for instance in gpu["gpu_instances"]]
    return sorted(pairs, key=lambda pair: placement.nvml_order(pair[0], profiles))


def in_mig_mode(gpu: Gpu) -> bool:
    """Return whether a GPU is currently in MIG mode."""
    return bool(gpu["mig_mode"] and gpu["mig_mode"]["current"])


def create_gpu_instance(gpu: Gpu, version: Version, profile: Profile, start: int | None) -> GpuInstance:
    """Create a GPU instance at a start, or where the driver chooses; raises NvmlError."""
    profiles = profiles_of(gpu, version)
    held = gpu["gpu_instances"]
    if any(process["gpu_instance_id"] is None for process in gpu["processes"]):
        raise nvml.NvmlError(nvml.IN_USE)
    if start is None:
        start = placement.choose(profile, profiles, held)
    elif start not in profile["starts"]:
        raise nvml.NvmlError(nvml.INVALID_ARGUMENT)
    elif start not in placement.free_starts(profile, profiles, held):
        start = None
    if start is None:
        raise nvml.NvmlError(nvml.INSUFFICIENT_RESOURCES)
    instance: GpuInstance = {
        "id": placement.instance_id(catalogue.load(gpu["model"])["mig"]["units"], start, profile["size"]),
        "profile_id": profile["id"],
        "start": start,
        "size": profile["size"],
        "compute_instances": [],
    }
    held.append(instance)
    held.sort(key=lambda other: other["id"])
    return instance


def create_compute_instance(instance: GpuInstance, profile: Profile, slices: int) -> ComputeInstance:
    """Create a compute instance in a GPU instance of ``slices`` compute slices; raises NvmlError."""
    held = instance["compute_instances"]
    starts = placement.free_compute_starts(slices, profile["slices"], held)
    if not starts:
        raise nvml.NvmlError(nvml.INSUFFICIENT_RESOURCES)
    taken = {other["id"] for other in held}
    compute: ComputeInstance = {
        "id": next(number for number in range(slices) if number not in taken),
        "profile_id": profile["id"],
        "start": starts[0],
        "size": profile["slices"],
    }
    held.append(compute)
    held.sort(key=lambda other: other["id"])
    return compute


def destroy_gpu_instance(gpu: Gpu, instance: GpuInstance) -> None:
    """Destroy a GPU instance that has no compute instance and no process; raises NvmlError."""
    used = any(process["gpu_instance_id"] == instance["id"] for process in gpu["processes"])
    if used or instance["compute_instances"]:
        raise nvml.NvmlError(nvml.IN_USE)
    _remove(gpu["gpu_instances"], instance)


def destroy_compute_instance(gpu: Gpu, instance: GpuInstance, compute: ComputeInstance) -> None:
    """Destroy a compute instance that no process uses; raises NvmlError."""
    place = (instance["id"], compute["id"])
    if any((process["gpu_instance_id"], process["compute_instance_id"]) == place for process in gpu["processes"]):
        raise nvml.NvmlError(nvml.IN_USE)
    _remove(instance["compute_instances"], compute)


def _remove(held: list[Any], gone: GpuInstance | ComputeInstance) -> None:
    """Remove one as the driver's array does: the last one moves into the gap, which later lists show."""
    place = held.index(gone)
    held[place] = held[-1]
    held.pop()
