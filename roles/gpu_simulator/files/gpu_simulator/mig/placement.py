# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placement of MIG instances: pure arithmetic over profiles and existing instances.

A GPU has memory units (8 on an A100, 4 on an A30, 12 on an RTX PRO 6000). A profile lists its allowed starts and
its size in units. Instances must not overlap, each profile has a maximum, and each media engine is assigned once.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from ..state.shapes import ComputeInstance, GpuInstance
    from .profiles import Profile

MEDIA = "+me"
ALL_MEDIA = "+me.all"
NO_MEDIA = "-me"
NVML_PROFILES = {
    "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4},
    MEDIA: {1: 7, 2: 8},
    "+gfx": {1: 10, 2: 11, 4: 12},
    NO_MEDIA: {1: 13, 2: 14},
    ALL_MEDIA: {1: 15, 2: 16},
}
"""Attribute -> slices -> number of the profile in nvml.h, by which the driver orders its lists of instances."""
DOUBLE_MEMORY = 9


def attribute(profile: Profile) -> str:
    """Return the suffix after the size in a profile's name: ``+me``, ``+gfx``, ``+me.all``, ``-me`` or nothing."""
    name: str = profile["name"]
    for mark in ("+", "-"):
        if mark in name:
            return name[name.index(mark) :]
    return ""


def nvml_order(profile: Profile, profiles: Sequence[Profile]) -> int:
    """Return the number of a profile in nvml.h; one slice with the memory of two has its own."""
    kind = attribute(profile)
    if not kind and any(
        other["slices"] == profile["slices"] and not attribute(other) and other["size"] < profile["size"]
        for other in profiles
    ):
        return DOUBLE_MEMORY
    return NVML_PROFILES[kind][profile["slices"]]


def instance_id(units: int, start: int, size: int) -> int:
    """Number an instance by its node in the binary tree over the units: 0 is all, 1-2 the halves, 3-6 the quarters.

    ``units`` is the number of units of the whole GPU.
    """
    parts = units // size
    return parts - 1 + start // size


def free_starts(profile: Profile, profiles: Sequence[Profile], instances: Sequence[GpuInstance]) -> list[int]:
    """List the starts at which one more instance of a profile would be valid, lowest first."""
    if not _allowed(profile, profiles, instances):
        return []
    return [start for start in profile["starts"] if not _taken(start, profile["size"], instances)]


def choose(profile: Profile, profiles: Sequence[Profile], instances: Sequence[GpuInstance]) -> int | None:
    """Choose the start as the driver does by default; None where nothing is free.

    It takes the start that excludes the fewest placements of all profiles, and of those the lowest. On an A100 that
    gives 6, 4, 5, 0, 1, 2, 3 for one slice, 4, 0, 2 for two and 4, 0 for three, as observed on a real one.
    """
    starts = free_starts(profile, profiles, instances)
    if not starts:
        return None
    return min(starts, key=lambda start: (_cost(start, profile["size"], profiles), start))


def free_count(profile: Profile, profiles: Sequence[Profile], instances: Sequence[GpuInstance]) -> int:
    """Count how many more instances of a profile fit next to each other: the column Free of ``mig -lgip``."""
    count, end = 0, 0
    for start in free_starts(profile, profiles, instances):
        if start >= end:
            count, end = count + 1, start + profile["size"]
    held = sum(instance["profile_id"] == profile["id"] for instance in instances)
    left: int = profile["max"] - held
    return min(count, left)


def compute_starts(slices: int, size: int) -> list[int]:
    """List the starts of compute instances of ``size`` in ``slices`` slices: multiples of the next power of two."""
    step = 1
    while step < size:
        step *= 2
    return [start for start in range(0, slices, step) if start + size <= slices]


def free_compute_starts(slices: int, size: int, taken: Sequence[ComputeInstance]) -> list[int]:
    """List the free starts for a compute instance of ``size`` slices, lowest first."""
    return [
        start
        for start in compute_starts(slices, size)
        if all(start + size <= other["start"] or other["start"] + other["size"] <= start for other in taken)
    ]


def _allowed(profile: Profile, profiles: Sequence[Profile], instances: Sequence[GpuInstance]) -> bool:
    by_id = {other["id"]: other for other in profiles}
    held = [instance["profile_id"] for instance in instances]
    if held.count(profile["id"]) >= profile["max"]:
        return False
    kinds = {attribute(by_id[profile_id]) for profile_id in held}
    kind = attribute(profile)
    if kind == ALL_MEDIA:
        return kinds <= {NO_MEDIA}
    if kind == MEDIA and MEDIA in kinds:
        return False
    return kind == NO_MEDIA or ALL_MEDIA not in kinds


def _taken(start: int, size: int, instances: Sequence[GpuInstance]) -> bool:
    return any(start < other["start"] + other["size"] and other["start"] < start + size for other in instances)


def _cost(start: int, size: int, profiles: Sequence[Profile]) -> int:
    return sum(
        start < other_start + other["size"] and other_start < start + size
        for other in profiles
        for other_start in other["starts"]
    )
