# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest change from the instances of one GPU to those asked for. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Collection, Iterable, Mapping, Sequence, Union

from .._common.errors import ChangeError
from . import layout as mig_layout
from .layout import ComputeId, ComputeInstance, Instance, Target
from .profiles import Profile, Table
from .request import Item, Wish


@dataclass(frozen=True)
class DestroyCompute:
    """Destroy compute instances; `whole` says that their GPU instances have no others."""

    ids: tuple[ComputeId, ...]
    whole: bool


@dataclass(frozen=True)
class DestroyInstances:
    """Destroy GPU instances that have no compute instances any more."""

    gpu_instance_ids: tuple[int, ...]


@dataclass(frozen=True)
class CreateInstances:
    """Create GPU instances at fixed places, in this order; `whole` makes the default compute instance in each."""

    targets: tuple[Target, ...]
    whole: bool


@dataclass(frozen=True)
class CreateCompute:
    """Create compute instances of these sizes, largest first, in the GPU instance at a place (profile id, start)."""

    place: tuple[int, int]
    sizes: tuple[int, ...]


Step = Union[DestroyCompute, DestroyInstances, CreateInstances, CreateCompute]


@dataclass(frozen=True)
class Plan:
    """What happens to each instance of one GPU.

    `kept` GPU instances stay as they are, but for the compute instances in `compute_destroyed` and `compute_created`.
    """

    kept: tuple[Instance, ...] = ()
    destroyed: tuple[Instance, ...] = ()
    created: tuple[Target, ...] = ()
    compute_destroyed: tuple[tuple[Instance, tuple[ComputeInstance, ...]], ...] = ()
    compute_created: tuple[tuple[Instance, tuple[int, ...]], ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The changes in the only order that works: compute instances go first, then GPU instances; both come last."""
        steps: list[Step] = []
        emptied = _ids((instance, instance.compute) for instance in self.destroyed)
        if emptied:
            steps.append(DestroyCompute(emptied, True))
        for part in self.compute_destroyed:
            steps.append(DestroyCompute(_ids((part,)), len(part[0].compute) == len(part[1])))
        if self.destroyed:
            steps.append(DestroyInstances(tuple(item.gpu_instance_id for item in self.destroyed)))
        for whole in (True, False):
            targets = tuple(target for target in self.created if target.wish.is_whole == whole)
            if targets:
                steps.append(CreateInstances(targets, whole))
        for instance, sizes in self.compute_created:
            steps.append(CreateCompute(instance.place, sizes))
        for target in self.created:
            if target.wish.compute and not target.wish.is_whole:
                steps.append(CreateCompute(target.place, target.wish.compute))
        return tuple(steps)

    @property
    def leaving(self) -> frozenset[ComputeId]:
        """The compute instances that are destroyed."""
        emptied = ((instance, instance.compute) for instance in self.destroyed)
        return frozenset(_ids((*emptied, *self.compute_destroyed)))

    @property
    def touched(self) -> frozenset[tuple[int, int]]:
        """The places, of GPU instances, where anything is destroyed or created."""
        return frozenset(
            (
                *(item.place for item in self.destroyed),
                *(target.place for target in self.created),
                *(item.place for item, _computes in self.compute_destroyed),
                *(item.place for item, _sizes in self.compute_created),
            )
        )

    @property
    def places(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """The GPU instances that are there afterwards, by place, with the sizes of their compute instances."""
        sizes = {target.place: target.wish.compute for target in self.created}
        gone = dict(self.compute_destroyed)
        added = dict(self.compute_created)
        for instance in self.kept:
            left = [item.slices for item in instance.compute if item not in gone.get(instance, ())]
            sizes[instance.place] = tuple(sorted((*left, *added.get(instance, ())), reverse=True))
        return sizes


def _ids(parts: Iterable[tuple[Instance, Sequence[ComputeInstance]]]) -> tuple[ComputeId, ...]:
    return tuple((instance.gpu_instance_id, item.compute_instance_id) for instance, items in parts for item in items)


Divisions = Mapping[int, Table]
"""By GPU instance id: the compute instances that it can hold, as profiles named by their slices."""


def plan(
    table: Table,
    existing: Sequence[Instance],
    ways: Sequence[Sequence[Wish]],
    busy: Collection[ComputeId] = (),
    divisions: Divisions | None = None,
) -> Plan:
    """The smallest change that turns `existing` into one of `ways`; raises ChangeError where none of them fits.

    See layout.place for what counts as smallest. `divisions` tells which compute instances can stay beside new
    ones; without it any that are wanted stay.
    """
    targets = mig_layout.place(table, ways, existing, busy)
    if targets is None:
        raise ChangeError("the layout does not fit on this GPU")
    at = {instance.place: instance for instance in existing}
    kept: list[Instance] = []
    created: list[Target] = []
    compute_destroyed: list[tuple[Instance, tuple[ComputeInstance, ...]]] = []
    compute_created: list[tuple[Instance, tuple[int, ...]]] = []
    for target in targets:
        instance = at.pop(target.place, None)
        if instance is None:
            created.append(target)
            continue
        kept.append(instance)
        staying = _staying(instance, target.wish.compute, busy, (divisions or {}).get(instance.gpu_instance_id))
        leaving = tuple(item for item in instance.compute if item not in staying)
        missing = Counter(target.wish.compute) - Counter(item.slices for item in staying)
        if leaving:
            compute_destroyed.append((instance, leaving))
        if missing:
            compute_created.append((instance, tuple(sorted(missing.elements(), reverse=True))))
    return Plan(
        kept=tuple(kept),
        destroyed=tuple(sorted(at.values(), key=lambda item: item.start)),
        # The largest first: should a driver ever place one elsewhere, the others are the more likely to fit.
        created=tuple(sorted(created, key=lambda target: (-target.profile.size, target.start))),
        compute_destroyed=tuple(compute_destroyed),
        compute_created=tuple(compute_created),
    )


def is_satisfied(items: Sequence[Item], instances: Sequence[Instance]) -> bool:
    """Whether `instances` are what `items` ask for, told by names and places alone."""
    wanted = Counter((item.name.gpu_instance, item.name.compute) for item in items)
    if wanted != Counter((item.profile, size) for item in instances for size in item.compute_sizes or (0,)):
        return False
    placed: dict[tuple[str, int], list[int]] = {}
    for item in items:
        if item.start is not None:
            placed.setdefault((item.name.gpu_instance, item.start), []).append(item.name.compute)
    there = {(instance.profile, instance.start): instance.compute_sizes or (0,) for instance in instances}
    return all(there.get(place) == tuple(sorted(sizes, reverse=True)) for place, sizes in placed.items())


def as_wishes(instances: Sequence[Instance]) -> tuple[Wish, ...]:
    """Wishes for just these instances at just these places."""
    return tuple(Wish(item.profile, item.slices, item.compute_sizes, item.start) for item in instances)


def to_restore(
    before: Sequence[Instance], now: Sequence[Instance], touched: Collection[tuple[int, int]]
) -> tuple[Instance, ...]:
    """What a run that failed has to leave: all of `before`, and what is there `now` that it did not make itself.

    It made, or changed, only what lies at the places `touched`. What is not its own stays even where it lies in the
    way of something of `before`.
    """
    was = {item.place for item in before}
    staying = [item for item in now if item.place not in touched]
    taken = {unit for item in staying for unit in range(item.start, item.start + item.size) if item.place not in was}
    there = {item.place for item in staying}
    missing = [
        item
        for item in before
        if item.place not in there and taken.isdisjoint(range(item.start, item.start + item.size))
    ]
    return (*staying, *missing)


def table_of(instances: Sequence[Instance], table: Table) -> Table:
    """`table` with the profiles of existing instances that it lacks: what is there can be put back where it was."""
    profiles = {profile.name: profile for profile in table.profiles}
    for item in instances:
        known = profiles.get(item.profile)
        if known is None or item.start not in known.starts:
            starts = (*(known.starts if known else ()), item.start)
            profiles[item.profile] = Profile(
                item.profile, item.profile_id, len(instances), starts, item.size, item.slices
            )
    return Table(tuple(profiles.values()))


def _staying(
    instance: Instance, sizes: Sequence[int], busy: Collection[ComputeId], division: Table | None
) -> tuple[ComputeInstance, ...]:
    """The compute instances of a GPU instance that can stay when it is to have `sizes`.

    Inside a GPU instance the question is the same as on a GPU, so the same search answers it.
    """
    if division is None or any(item.start is None for item in instance.compute):
        return mig_layout.keep_compute(instance, sizes, busy)
    offered = {profile.name: profile for profile in division.profiles}
    if any(str(size) not in offered for size in (*sizes, *instance.compute_sizes)):
        return mig_layout.keep_compute(instance, sizes, busy)
    inside = {
        item: Instance(
            item.compute_instance_id,
            str(item.slices),
            offered[str(item.slices)].profile_id,
            1,
            item.start or 0,
            1,
            (ComputeInstance(0, 1),),
        )
        for item in instance.compute
    }
    wishes = tuple(Wish(str(size), 1, (1,)) for size in sizes)
    used = {(compute, 0) for gpu_instance, compute in busy if gpu_instance == instance.gpu_instance_id}
    targets = mig_layout.place(division, (wishes,), tuple(inside.values()), used)
    places = {target.place for target in targets or ()}
    return tuple(item for item, there in inside.items() if there.place in places)
