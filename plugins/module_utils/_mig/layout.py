# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place instances so that as many existing ones as possible stay unchanged. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Collection, Mapping, Sequence, Tuple

from .profiles import Profile, Table, compute_name
from .request import DesiredInstance

ComputeId = Tuple[int, int]
"""GPU instance id and compute instance id."""


@dataclass(frozen=True)
class ComputeInstance:
    """An existing compute instance. `start` is in compute slices of its GPU instance; None where unknown."""

    compute_instance_id: int
    slices: int
    start: int | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class Instance:
    """An existing GPU instance, `size` memory slices from `start`, with its compute instances."""

    gpu_instance_id: int
    profile: str
    profile_id: int
    slices: int
    start: int
    size: int
    compute: tuple[ComputeInstance, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """What identifies the instance when it is destroyed and created again."""
        return (self.profile_id, self.start)

    @property
    def compute_sizes(self) -> tuple[int, ...]:
        """The slices of its compute instances, largest first."""
        return tuple(sorted((item.slices for item in self.compute), reverse=True))

    def __str__(self) -> str:
        names = "+".join(compute_name(self.profile, self.slices, size) for size in self.compute_sizes)
        return f"{names or self.profile + ' without compute instance'}:{self.start}"


@dataclass(frozen=True)
class Placement:
    """A desired instance with the place chosen for it."""

    desired: DesiredInstance
    profile: Profile
    start: int

    @property
    def place(self) -> tuple[int, int]:
        """See Instance.place."""
        return (self.profile.profile_id, self.start)

    def __str__(self) -> str:
        names = "+".join(compute_name(self.desired.profile, self.desired.slices, size) for size in self.desired.compute)
        return f"{names or self.desired.profile + ' without compute instance'}:{self.start}"


def conflict(table: Table, counts: Mapping[str, int]) -> str | None:
    """Why these counts of profiles cannot coexist at any places; None where that is not excluded.

    All instances together have at most the media engines of the whole GPU: `+me` can exist only once, and `+me.all`
    only together with `-me`.
    """
    taken: Counter[str] = Counter()
    units = 0
    for name, count in counts.items():
        profile = table.find(name)
        if count > profile.max_instances:
            return f"{count} x {name} are more than the maximum of {profile.max_instances}"
        units += count * profile.size
        for engine, each in profile.engines.items():
            taken[engine] += each * count
    for engine, total in table.engines.items():
        if taken[engine] > total:
            return f"they need {taken[engine]} {engine} media engines and the GPU has {total}"
    if units > table.units:
        return f"they need {units} memory slices and the GPU has {table.units}"
    return None


def place(
    table: Table,
    ways: Sequence[Sequence[DesiredInstance]],
    existing: Sequence[Instance] = (),
    busy: Collection[ComputeId] = (),
) -> tuple[Placement, ...] | None:
    """Choose places for one of `ways` that keep most existing instances; None where none of the ways fits.

    `busy` has the compute instances in use. Kept instances are ranked: busy compute instances, GPU instances that have
    compute instances, compute instances, GPU instances that have none. Ties go to the fewest GPU instances, then to
    most places left for later instances. The search is exhaustive. `table` must have every profile of `ways`.
    """
    best: tuple[tuple[int, ...], tuple[Placement, ...]] | None = None
    for way in ways:
        if conflict(table, Counter(desired.profile for desired in way)) is None:
            found = _Search(table, way, existing, busy).run()
            if found is not None and (best is None or found[0] > best[0]):
                best = found
    return best[1] if best is not None else None


# Kept: busy compute instances, GPU instances in use, compute instances, GPU instances without any.
_Gain = Tuple[int, int, int, int]
# The total of the gains, places left free; and the chosen starts, innermost first.
_Score = Tuple[int, int, int, int, int]
_Found = Tuple[_Score, Tuple[Tuple[int, int], ...]]


class _Search:
    """One exhaustive search. Equal desired instances get ascending starts, so that no arrangement is tried twice."""

    def __init__(
        self,
        table: Table,
        desired_instances: Sequence[DesiredInstance],
        existing: Sequence[Instance],
        busy: Collection[ComputeId],
    ) -> None:
        kinds = [(desired, table.find(desired.profile), count) for desired, count in Counter(desired_instances).items()]
        # Most constrained first, to prune early.
        kinds.sort(key=lambda kind: (kind[0].start is None, len(kind[1].starts), -kind[1].size, str(kind[0])))
        self.kinds = kinds
        self.starts = [
            tuple(start for start in profile.starts if desired.start in (None, start))
            for desired, profile, _count in kinds
        ]
        at = {item.place: item for item in existing}
        self.gains = [
            [_gain(desired, at.get((profile.profile_id, start)), busy) for start in starts]
            for (desired, profile, _count), starts in zip(kinds, self.starts)
        ]
        self.open = [profile.mask(start) for profile in table.profiles for start in profile.starts]
        self.known: dict[tuple[int, int, int, int], _Found | None] = {}

    def run(self) -> tuple[tuple[int, ...], tuple[Placement, ...]] | None:
        """The best score and its targets in the order of their starts."""
        found = self._kind(0, 0)
        if found is None:
            return None
        (*gain, places), taken = found
        targets = [Placement(self.kinds[kind][0], self.kinds[kind][1], start) for kind, start in taken]
        score = (*gain, -len(targets), places)
        return score, tuple(sorted(targets, key=lambda target: target.start))

    def _kind(self, kind: int, taken: int) -> _Found | None:
        """The best for the kinds from `kind` on, with the memory slices in the bit mask `taken` occupied."""
        if kind == len(self.kinds):
            return (0, 0, 0, 0, sum(not taken & mask for mask in self.open)), ()
        return self._starts(kind, 0, self.kinds[kind][2], taken)

    def _starts(self, kind: int, position: int, left: int, taken: int) -> _Found | None:
        """The best for `left` more instances of one kind at its starts from `position` on, and for all later kinds."""
        if left == 0:
            return self._kind(kind + 1, taken)
        if len(self.starts[kind]) - position < left:
            return None
        key = (kind, position, left, taken)
        if key not in self.known:
            start = self.starts[kind][position]
            mask = self.kinds[kind][1].mask(start)
            best = None
            if not taken & mask:
                rest = self._starts(kind, position + 1, left - 1, taken | mask)
                if rest is not None:
                    busy, used, compute, empty = self.gains[kind][position]
                    score = (
                        rest[0][0] + busy,
                        rest[0][1] + used,
                        rest[0][2] + compute,
                        rest[0][3] + empty,
                        rest[0][4],
                    )
                    best = (score, (*rest[1], (kind, start)))
            other = self._starts(kind, position + 1, left, taken)
            self.known[key] = other if best is None or (other is not None and other[0] > best[0]) else best
        return self.known[key]


def _gain(desired: DesiredInstance, existing: Instance | None, busy: Collection[ComputeId]) -> _Gain:
    """What is kept when `desired` takes the place of `existing`."""
    if existing is None:
        return (0, 0, 0, 0)
    kept = keep_compute(existing, desired.compute, busy)
    used = sum((existing.gpu_instance_id, item.compute_instance_id) in busy for item in kept)
    return (used, 1, len(kept), 0) if existing.compute else (used, 0, 0, 1)


def keep_compute(existing: Instance, sizes: Sequence[int], busy: Collection[ComputeId]) -> tuple[ComputeInstance, ...]:
    """The compute instances of `existing` that can be kept when the desired ones are `sizes`, busy ones first."""
    requested = Counter(sizes)
    kept = []
    for item in sorted(
        existing.compute, key=lambda item: (existing.gpu_instance_id, item.compute_instance_id) not in busy
    ):
        if requested[item.slices] > 0:
            requested[item.slices] -= 1
            kept.append(item)
    return tuple(kept)
