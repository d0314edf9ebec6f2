# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Explain why a layout is impossible, and suggest similar ones. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from typing import Collection, Iterator, Mapping, Sequence

from .._common.errors import ChangeError
from . import layout as mig_layout
from .layout import ComputeId, Instance, Placement
from .profiles import Table
from .request import DesiredInstance, Item, group

SUGGESTIONS = 3


def choose_places(
    table: Table, items: Sequence[Item], existing: Sequence[Instance] = (), busy: Collection[ComputeId] = ()
) -> tuple[Placement, ...]:
    """Choose places for `items` on a GPU with `table`; see layout.place.

    Raises ChangeError with the reason and similar layouts where they do not fit.
    """
    for item in items:
        profile = table.find(item.name.gpu_instance)
        if item.start is not None and item.start not in profile.starts:
            raise ChangeError(
                f"{profile.name} cannot start at {item.start}: it starts at {', '.join(map(str, profile.starts))}"
            )
    ways = group(items, {profile.name: profile.max_instances for profile in table.profiles})
    targets = mig_layout.place(table, ways, existing, busy)
    if targets is None:
        raise ChangeError(_reason(table, ways[0]) + _near(table, ways[0]))
    return targets


def layouts(table: Table) -> Iterator[Counter[str]]:
    """Every layout that fits on a GPU with `table`, as counts of profiles; includes the empty one."""

    def extend(position: int, counts: Counter[str]) -> Iterator[Counter[str]]:
        if position == len(table.profiles):
            yield Counter(counts)
            return
        profile = table.profiles[position]
        for count in range(profile.max_instances + 1):
            more = counts + Counter({profile.name: count})
            if not _fits(table, more):
                break
            yield from extend(position + 1, more)

    return extend(0, Counter())


def full_layouts(table: Table) -> list[tuple[str, ...]]:
    """The layouts that take no further instance, wherever their instances are placed; every other is a part of one.

    Each with its profiles, largest first; sorted in the same way, and by name.
    """
    sizes = {profile.name: (profile.slices, profile.size) for profile in table.profiles}
    every = {frozenset(counts.items()) for counts in layouts(table)}
    full = (
        dict(items)
        for items in every
        if not any(frozenset((Counter(dict(items)) + Counter([name])).items()) in every for name in sizes)
    )

    def key(name: str) -> tuple[int, int, str]:
        slices, size = sizes[name]
        return -slices, -size, name

    found = (tuple(sorted(Counter(counts).elements(), key=key)) for counts in full)
    return sorted(found, key=lambda names: [key(name) for name in names])


def _reason(table: Table, desired_instances: Sequence[DesiredInstance]) -> str:
    """Why `desired_instances` do not fit together."""
    why = mig_layout.conflict(table, Counter(desired.profile for desired in desired_instances)) or _overlap(
        table, desired_instances
    )
    return f"the layout {_spell(Counter(map(str, desired_instances)))} is impossible: {why}"


def _overlap(table: Table, desired_instances: Sequence[DesiredInstance]) -> str:
    """The places that collide."""
    fixed = [
        (desired, table.find(desired.profile).mask(desired.start))
        for desired in desired_instances
        if desired.start is not None
    ]
    for (one, mask), (other, other_mask) in combinations(fixed, 2):
        if mask & other_mask:
            return f"{one} overlaps {other}"
    starts = "; ".join(
        f"{profile.name} takes {profile.size} from {', '.join(map(str, profile.starts))}"
        for profile in table.profiles
        if any(desired.profile == profile.name for desired in desired_instances)
    )
    return f"wherever they start they overlap ({starts}, of {table.units} memory slices)"


def _near(table: Table, desired_instances: Sequence[DesiredInstance]) -> str:
    """The possible layouts that differ least from `desired_instances`, in memory slices and then in instances."""
    moved = mig_layout.place(table, ([replace(desired, start=None) for desired in desired_instances],))
    if moved is not None:
        return f"; with other starts it fits: [{', '.join(map(str, moved))}]"
    requested = Counter(desired.profile for desired in desired_instances)

    def distance(layout: Counter[str]) -> tuple[int, int, str]:
        differing = (requested - layout) + (layout - requested)
        slices = sum(count * table.find(name).size for name, count in differing.items())
        return slices, sum(differing.values()), _spell(layout)

    nearest = sorted(filter(None, layouts(table)), key=distance)[:SUGGESTIONS]
    return f"; near it these fit: {' or '.join(map(_spell, nearest))}"


def _fits(table: Table, counts: Counter[str]) -> bool:
    desired_instances = tuple(DesiredInstance(name, table.find(name).slices, ()) for name in counts.elements())
    return mig_layout.place(table, (desired_instances,)) is not None


def _spell(counts: Mapping[str, int]) -> str:
    return "[" + ", ".join(f"{count} x {name}" for name, count in sorted(counts.items(), reverse=True)) + "]"
