# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the smallest change from the instances of one GPU to the desired ones. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Collection, Iterable, Mapping, Sequence, Union

from .._common.errors import ChangeError
from . import layout as mig_layout
from .layout import ComputeId, ComputeInstance, Instance, Placement
from .profiles import Profile, Table
from .request import DesiredInstance, Item


@dataclass(frozen=True)
class DestroyCompute:
    """Destroy compute instances; `whole`: all of those in their GPU instances."""

    ids: tuple[ComputeId, ...]
    whole: bool


@dataclass(frozen=True)
class DestroyInstances:
    """Destroy GPU instances, whose compute instances are already destroyed."""

    gpu_instance_ids: tuple[int, ...]


@dataclass(frozen=True)
class CreateInstances:
    """Create GPU instances at fixed places, in this order; `whole` creates the default compute instance in each."""

    targets: tuple[Placement, ...]
    whole: bool


@dataclass(frozen=True)
class CreateCompute:
    """Create compute instances of these sizes, largest first, in the GPU instance at a place (profile id, start)."""

    place: tuple[int, int]
    sizes: tuple[int, ...]


Step = Union[DestroyCompute, DestroyInstances, CreateInstances, CreateCompute]


@dataclass(frozen=True)
class MigPlan:
    """The change to each instance of one GPU.

    `kept` GPU instances stay, apart from changes in `compute_destroyed` and `compute_created`.
    """

    kept: tuple[Instance, ...] = ()
    destroyed: tuple[Instance, ...] = ()
    created: tuple[Placement, ...] = ()
    compute_destroyed: tuple[tuple[Instance, tuple[ComputeInstance, ...]], ...] = ()
    compute_created: tuple[tuple[Instance, tuple[int, ...]], ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps in the required order: destroy compute instances, then GPU instances; create in reverse order."""
        steps: list[Step] = []
        emptied = _ids((instance, instance.compute) for instance in self.destroyed)
        if emptied:
            steps.append(DestroyCompute(emptied, True))
        for part in self.compute_destroyed:
            steps.append(DestroyCompute(_ids((part,)), len(part[0].compute) == len(part[1])))
        if self.destroyed:
            steps.append(DestroyInstances(tuple(item.gpu_instance_id for item in self.destroyed)))
        for whole in (True, False):
            targets = tuple(target for target in self.created if target.desired.is_whole == whole)
            if targets:
                steps.append(CreateInstances(targets, whole))
        for instance, sizes in self.compute_created:
            steps.append(CreateCompute(instance.place, sizes))
        for target in self.created:
            if target.desired.compute and not target.desired.is_whole:
                steps.append(CreateCompute(target.place, target.desired.compute))
        return tuple(steps)

    @property
    def existing(self) -> tuple[Instance, ...]:
        """The instances that the plan was made for."""
        return (*self.kept, *self.destroyed)

    @property
    def leaving(self) -> frozenset[ComputeId]:
        """The compute instances that will be destroyed."""
        emptied = ((instance, instance.compute) for instance in self.destroyed)
        return frozenset(_ids((*emptied, *self.compute_destroyed)))

    @property
    def touched(self) -> frozenset[tuple[int, int]]:
        """The places of GPU instances where anything is destroyed or created."""
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
        """The resulting GPU instances by place, with the sizes of their compute instances."""
        sizes = {target.place: target.desired.compute for target in self.created}
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


def choose_places(
    table: Table,
    existing: Sequence[Instance],
    desired: Sequence[DesiredInstance],
    busy: Collection[ComputeId] = (),
) -> tuple[Placement, ...]:
    """Choose places that keep most of `existing`; see layout.place. Raises ChangeError where `desired` does not fit."""
    targets = mig_layout.place(table, (desired,), existing, busy)
    if targets is None:
        raise ChangeError("the layout does not fit on this GPU")
    return targets


def plan(
    targets: Sequence[Placement],
    existing: Sequence[Instance],
    busy: Collection[ComputeId] = (),
    divisions: Divisions | None = None,
) -> MigPlan:
    """The change that turns `existing` into `targets`.

    `divisions` limits which compute instances can be kept next to new ones; without it any desired one is kept.
    """
    at = {instance.place: instance for instance in existing}
    kept: list[Instance] = []
    created: list[Placement] = []
    compute_destroyed: list[tuple[Instance, tuple[ComputeInstance, ...]]] = []
    compute_created: list[tuple[Instance, tuple[int, ...]]] = []
    for target in targets:
        instance = at.pop(target.place, None)
        if instance is None:
            created.append(target)
            continue
        kept.append(instance)
        staying = _staying(instance, target.desired.compute, busy, (divisions or {}).get(instance.gpu_instance_id))
        leaving = tuple(item for item in instance.compute if item not in staying)
        missing = Counter(target.desired.compute) - Counter(item.slices for item in staying)
        if leaving:
            compute_destroyed.append((instance, leaving))
        if missing:
            compute_created.append((instance, tuple(sorted(missing.elements(), reverse=True))))
    return MigPlan(
        kept=tuple(kept),
        destroyed=tuple(sorted(at.values(), key=lambda item: item.start)),
        # Largest first: if a driver places one elsewhere, the smaller ones are more likely to fit.
        created=tuple(sorted(created, key=lambda target: (-target.profile.size, target.start))),
        compute_destroyed=tuple(compute_destroyed),
        compute_created=tuple(compute_created),
    )


def is_satisfied(items: Sequence[Item], instances: Sequence[Instance]) -> bool:
    """Whether `instances` match `items`, by names and places alone."""
    desired = Counter((item.name.gpu_instance, item.name.compute) for item in items)
    if desired != Counter((item.profile, size) for item in instances for size in item.compute_sizes or (0,)):
        return False
    placed: dict[tuple[str, int], list[int]] = {}
    for item in items:
        if item.start is not None:
            placed.setdefault((item.name.gpu_instance, item.start), []).append(item.name.compute)
    there = {(instance.profile, instance.start): instance.compute_sizes or (0,) for instance in instances}
    return all(there.get(place) == tuple(sorted(sizes, reverse=True)) for place, sizes in placed.items())


def as_desired(instances: Sequence[Instance]) -> tuple[DesiredInstance, ...]:
    """Desired instances for exactly these, at their placements."""
    return tuple(DesiredInstance(item.profile, item.slices, item.compute_sizes, item.start) for item in instances)


def to_restore(
    before: Sequence[Instance], now: Sequence[Instance], touched: Collection[tuple[int, int]]
) -> tuple[Instance, ...]:
    """The target of a rollback: all of `before`, and the instances of `now` that this run did not create.

    This run changed only the places in `touched`. Instances elsewhere stay, even where they overlap with an instance of
    `before`.
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
    """`table`, extended by profiles that only existing instances have, so that these can be restored."""
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
    """The compute instances of a GPU instance that can be kept when the desired ones are `sizes`.

    This is the same placement problem as on a GPU, so it uses the same search.
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
    desired_instances = tuple(DesiredInstance(str(size), 1, (1,)) for size in sizes)
    used = {(compute, 0) for gpu_instance, compute in busy if gpu_instance == instance.gpu_instance_id}
    targets = mig_layout.place(division, (desired_instances,), tuple(inside.values()), used)
    places = {target.place for target in targets or ()}
    return tuple(item for item, there in inside.items() if there.place in places)
