# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG profiles: parsing of names, and the profiles that a GPU offers. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

from .._common.bounds import shown
from .._common.errors import ChangeError
from .._nvidia_smi import listing

# ASCII digits only, and no more of them than any GPU will need.
_NAME = re.compile(
    r"(?:(?P<compute>[0-9]{1,2})c\.)?(?P<slices>[0-9]{1,2})g\.(?P<gigabytes>[0-9]{1,5})gb"
    r"(?P<attributes>(?:[+-][A-Za-z][A-Za-z0-9.]*(?:,[A-Za-z][A-Za-z0-9.]*)*)*)"
)

_LONGEST_NAME = 64

COMPUTE_DIVISIONS: Mapping[int, tuple[int, ...]] = {
    1: (1,),
    2: (1, 2),
    3: (1, 2, 3),
    4: (1, 2, 4),
    7: (1, 2, 3, 4, 7),
}
"""Sizes of compute instances by slices of the GPU instance, from NVIDIA's MIG User Guide, "Supported MIG Profiles".

Only an early check for sizes that no driver offers: nvidia-smi lists the actual ones once an instance exists.
"""


@dataclass(frozen=True)
class ProfileName:
    """`1c.3g.71gb+me` parsed: a compute instance of `compute` slices in a GPU instance of `slices` slices.

    `compute` 0, as in `0c.3g.71gb`, is this collection's name for a GPU instance without compute instances.
    """

    compute: int
    slices: int
    gigabytes: int
    attributes: str

    @property
    def gpu_instance(self) -> str:
        """The name of the GPU instance profile, as listed by `-lgip`."""
        return f"{self.slices}g.{self.gigabytes}gb{self.attributes}"

    def __str__(self) -> str:
        return compute_name(self.gpu_instance, self.slices, self.compute)


def compute_name(gpu_instance: str, slices: int, compute: int) -> str:
    """Name of a compute instance; one that takes the whole GPU instance has that one's name."""
    return gpu_instance if compute == slices else f"{compute}c.{gpu_instance}"


def parse_name(text: str) -> ProfileName:
    """Parse a profile name from user input; raises ChangeError. A name without `Nc.` means the whole GPU instance.

    For names that nvidia-smi lists, see listing.sizes_of.
    """
    match = _NAME.fullmatch(text) if len(text) <= _LONGEST_NAME else None
    if match is None:
        near = text.strip().lower()
        hint = f"; did you mean {near!r}?" if len(near) <= _LONGEST_NAME and _NAME.fullmatch(near) else ""
        raise ChangeError(f"{shown(text)} is not a MIG profile name like 3g.71gb, 1g.18gb+me or 1c.3g.71gb{hint}")
    slices = int(match["slices"])
    compute = slices if match["compute"] is None else int(match["compute"])
    name = ProfileName(compute, slices, int(match["gigabytes"]), match["attributes"])
    sizes = COMPUTE_DIVISIONS.get(slices, range(1, slices + 1))
    if compute not in (0, *sizes):
        offered = ", ".join(compute_name(name.gpu_instance, slices, size) for size in sizes)
        raise ChangeError(f"{text!r} is not a compute instance of {name.gpu_instance}; that can hold {offered}")
    return name


@dataclass(frozen=True)
class Profile:
    """A GPU instance profile as one GPU offers it. `engines` counts media engines by name, None where unknown."""

    name: str
    profile_id: int
    max_instances: int
    starts: tuple[int, ...]
    size: int
    slices: int
    multiprocessors: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpegs: int | None = None
    ofas: int | None = None

    @property
    def engines(self) -> dict[str, int]:
        """The media engines assigned to an instance."""
        counts = {"DEC": self.decoders, "ENC": self.encoders, "JPEG": self.jpegs, "OFA": self.ofas}
        return {name: count for name, count in counts.items() if count is not None}

    def mask(self, start: int) -> int:
        """The memory slices of an instance at `start`, as a bit mask."""
        return ((1 << self.size) - 1) << start


@dataclass(frozen=True)
class Table:
    """The profiles of one GPU."""

    profiles: tuple[Profile, ...]

    @property
    def units(self) -> int:
        """The number of memory slices of the GPU."""
        return max((start + profile.size for profile in self.profiles for start in profile.starts), default=0)

    @property
    def engines(self) -> dict[str, int]:
        """The media engines of the whole GPU, which its largest profile has."""
        totals: dict[str, int] = {}
        for profile in self.profiles:
            for engine, count in profile.engines.items():
                totals[engine] = max(totals.get(engine, 0), count)
        return totals

    def find(self, name: str) -> Profile:
        """The profile of this name; raises ChangeError with a similar name of this driver."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise ChangeError(
            f"profile {name!r} is not offered{_suggestion(name, self.profiles)}"
            f"; it offers {', '.join(profile.name for profile in self.profiles) or 'none'}"
        )

    def by_id(self, profile_id: int) -> Profile | None:
        """The profile with this id."""
        return next((profile for profile in self.profiles if profile.profile_id == profile_id), None)


def tables(
    profiles: Iterable[listing.GpuInstanceProfile], placements: Iterable[listing.Placements]
) -> dict[int, Table]:
    """Join `-lgip` and `-lgipp` to one table for each GPU index."""
    places = {(item.gpu, item.profile_id): item for item in placements}
    found: dict[int, list[Profile]] = {}
    for row in profiles:
        place = places.get((row.gpu, row.profile_id))
        sizes = listing.sizes_of(row.name)
        found.setdefault(row.gpu, []).append(
            Profile(
                name=row.name,
                profile_id=row.profile_id,
                max_instances=row.total,
                starts=place.starts if place else (),
                size=place.size if place else 0,
                # Profiles with names that cannot be parsed can exist, but cannot be requested.
                slices=0 if sizes is None else sizes[1],
                multiprocessors=row.multiprocessors,
                copy_engines=row.copy_engines,
                decoders=row.decoders,
                encoders=row.encoders,
                jpegs=row.jpegs,
                ofas=row.ofas,
            )
        )
    return {gpu: Table(tuple(rows)) for gpu, rows in found.items()}


def _suggestion(name: str, profiles: Sequence[Profile]) -> str:
    """The nearest name of the same shape: drivers round gigabytes differently (1g.24gb became 1g.23gb)."""
    desired = parse_name(name)
    alike = [
        ProfileName(int(match["slices"]), int(match["slices"]), int(match["gigabytes"]), match["attributes"])
        for match in (_NAME.fullmatch(profile.name) for profile in profiles)
        if match is not None and int(match["slices"]) == desired.slices and match["attributes"] == desired.attributes
    ]
    if not alike:
        return ""
    nearest = min(alike, key=lambda offered: abs(offered.gigabytes - desired.gigabytes))
    return f"; did you mean {nearest.gpu_instance!r}? Names differ between drivers and GPUs"
