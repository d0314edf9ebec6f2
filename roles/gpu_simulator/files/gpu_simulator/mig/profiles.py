# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG profiles of a model under a driver: GPU instances from its data file, compute instances by slices."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from ..state.shapes import Model, Version

    Profile = Dict[str, Any]

COMPUTE_SLICES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
"""Sizes of compute instances that fit into a GPU instance, by its number of slices."""

COMPUTE_PROFILE_IDS = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
WIDE_SLICE_ID = 7
"""The profile of one compute slice with the multiprocessors of a GPU instance of double memory."""


def gpu_profiles(model: Model, version: Version) -> list[Profile]:
    """List the GPU instance profiles in the driver's order; none for a GPU without MIG."""
    mig = model.get("mig") or {"profiles": []}
    return [profile for profile in mig["profiles"] if version[0] >= profile.get("since", 0)]


def gpu_profile(model: Model, profile_id: int) -> Profile:
    """Find a GPU instance profile by its id; raises KeyError."""
    for profile in model["mig"]["profiles"]:
        if profile["id"] == profile_id:
            found: Profile = profile
            return found
    raise KeyError(profile_id)


def base_name(profile: Profile) -> str:
    """Return the name without its attributes (``1g.10gb+me`` -> ``1g.10gb``), as -L and compute instances use it."""
    name: str = profile["name"]
    for mark in ("+", "-"):
        name = name.split(mark, maxsplit=1)[0]
    return name


def compute_profiles(model: Model, profile: Profile) -> list[Profile]:
    """List the compute instance profiles of a GPU instance profile: id, name, slices, sm, max, default.

    ``sm`` counts the multiprocessors of one instance; the engines belong to the GPU instance and are shared.
    """
    slices = profile["slices"]
    one_slice = model["mig"]["sm_per_slice"]
    found = []
    for size in COMPUTE_SLICES[slices]:
        whole = size == slices
        found.append(
            {
                "id": COMPUTE_PROFILE_IDS[size],
                "name": base_name(profile) if whole else f"{size}c.{base_name(profile)}",
                "slices": size,
                "sm": profile["sm"] if whole else one_slice * size,
                "max": slices // size,
                "default": whole,
            }
        )
    if slices == 1 and profile["sm"] > one_slice:
        found[0]["id"] = WIDE_SLICE_ID
    return found


def compute_profile(model: Model, profile: Profile, profile_id: int) -> Profile:
    """Find a compute instance profile of a GPU instance profile by its id; raises KeyError."""
    for candidate in compute_profiles(model, profile):
        if candidate["id"] == profile_id:
            return candidate
    raise KeyError(profile_id)
