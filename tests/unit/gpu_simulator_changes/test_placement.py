# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Possible MIG layouts: every layout of every GPU model, compared with an independent search."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from gpu_simulator.mig import instances as mig_instances
from gpu_simulator.mig import placement
from gpu_simulator.mig import profiles as mig_profiles
from gpu_simulator.state import catalogue, nvml

from .reference import reference

Layout = tuple[int, ...]
Places = frozenset[tuple[int, int]]

NEWEST = (610, 0)
MIG_MODELS = [name for name in catalogue.names() if catalogue.load(name).get("mig")]

# fmt: off
A100_LAYOUTS = {
    "7",
    "1", "2", "3", "4",
    "11", "12", "13", "14", "22", "23", "24", "33", "34",
    "111", "112", "113", "114", "122", "123", "124", "222", "223",
    "1111", "1112", "1113", "1114", "1122", "1123", "1222",
    "11111", "11112", "11113", "11122",
    "111111", "111112",
    "1111111",
}
# fmt: on
"""All layouts of an A100 40GB made of its 1g.5gb, 2g.10gb, 3g.20gb, 4g.20gb and 7g.40gb, by slices."""


def gpu_of(model: str) -> Any:
    """The fields of a GPU that the functions under test read."""
    return {"model": model, "processes": [], "gpu_instances": []}


@cache
def profiles_of(model: str) -> list[dict[str, Any]]:
    return mig_profiles.gpu_profiles(catalogue.load(model), NEWEST)


def is_allowed(names: list[str], maxima: dict[str, int]) -> bool:
    """The rules that do not depend on placement, for the profile names of all instances of a layout."""
    counts = Counter(names)
    if any(count > maxima[name] for name, count in counts.items()):
        return False
    if sum(name.endswith("+me") for name in names) > 1:
        return False
    greedy = [name for name in names if name.endswith("+me.all")]
    return not greedy or (len(greedy) == 1 and all(name.endswith("-me") for name in names if name not in greedy))


@cache
def valid_layouts(model: str) -> set[Layout]:
    """All sets of placements that do not overlap, by search; each as its sorted profile IDs."""
    profiles = profiles_of(model)
    maxima = {profile["name"]: profile["max"] for profile in profiles}
    places = [(profile, start) for profile in profiles for start in profile["starts"]]
    found: set[Layout] = set()

    def search(first: int, units: int, chosen: list[dict[str, Any]]) -> None:
        if not is_allowed([profile["name"] for profile in chosen], maxima):
            return
        found.add(tuple(sorted(profile["id"] for profile in chosen)))
        for number in range(first, len(places)):
            profile, start = places[number]
            mask = (2 ** profile["size"] - 1) << start
            if not units & mask:
                search(number + 1, units | mask, [*chosen, profile])

    search(0, 0, [])
    return found


@cache
def reachable(model: str, explicit: bool) -> set[Layout]:
    """All layouts that result from creating instances in every order, with explicit starts or the driver's choice."""
    profiles = profiles_of(model)
    seen: set[Places] = {frozenset()}
    todo: list[Places] = [frozenset()]
    while todo:
        places = todo.pop()
        for profile in profiles:
            starts: list[int | None] = list(profile["starts"]) if explicit else [None]
            for start in starts:
                after = create(model, places, profile, start)
                if after is not None and after not in seen:
                    seen.add(after)
                    todo.append(after)
    return {tuple(sorted(profile_id for profile_id, _unused in places)) for places in seen}


def create(model: str, places: Places, profile: dict[str, Any], start: int | None) -> Places | None:
    """Create one more instance next to those at the given placements; None if it is refused."""
    sizes = {candidate["id"]: candidate["size"] for candidate in profiles_of(model)}
    gpu = gpu_of(model)
    gpu["gpu_instances"] = [
        {"id": -1, "profile_id": profile_id, "start": at, "size": sizes[profile_id], "compute_instances": []}
        for profile_id, at in sorted(places)
    ]
    try:
        made = mig_instances.create_gpu_instance(gpu, NEWEST, profile, start)
    except nvml.NvmlError as error:
        assert error.code == nvml.INSUFFICIENT_RESOURCES
        return None
    return places | {(made["profile_id"], made["start"])}


@pytest.mark.parametrize("model", MIG_MODELS)
def test_every_valid_layout_can_be_made_at_its_places_and_no_other(model: str) -> None:
    assert reachable(model, explicit=True) == valid_layouts(model)


@pytest.mark.parametrize("model", MIG_MODELS)
def test_every_valid_layout_can_be_made_in_some_order_where_the_driver_chooses(model: str) -> None:
    assert reachable(model, explicit=False) == valid_layouts(model)


def by_slices(model: str, layouts: set[Layout]) -> set[str]:
    """Layouts of plain profiles as strings of their slice counts, such as ``1123``."""
    plain = {
        profile["id"]: str(profile["slices"])
        for profile in profiles_of(model)
        if profile["name"] in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
    }
    return {
        "".join(sorted(plain[profile_id] for profile_id in layout))
        for layout in layouts
        if layout and set(layout) <= set(plain)
    }


def test_the_layouts_of_an_a100_40gb_are_the_known_ones() -> None:
    made = by_slices("a100_40gb", reachable("a100_40gb", explicit=False))
    assert made == A100_LAYOUTS
    assert len(made) == 37


def test_the_layouts_of_an_a100_40gb_are_those_of_the_reference() -> None:
    known = json.loads(reference("mig/layouts-a100-40gb.json", otherwise="{}"))
    layouts = known.get("all_valid_layouts", [[f"{slices}g" for slices in layout] for layout in A100_LAYOUTS])
    expected = {"".join(sorted(name[0] for name in layout)) for layout in layouts if layout}
    assert by_slices("a100_40gb", reachable("a100_40gb", explicit=True)) == expected


def automatic_starts(model: str, names: list[str]) -> list[tuple[int, int]]:
    """Create instances by name without placement; return (start, ID) of each."""
    gpu = gpu_of(model)
    by_name = {profile["name"]: profile for profile in profiles_of(model)}
    made = [mig_instances.create_gpu_instance(gpu, NEWEST, by_name[name], None) for name in names]
    return [(instance["start"], instance["id"]) for instance in made]


@pytest.mark.parametrize(
    ("model", "names", "expected"),
    [
        # Observed on an A100: seven of one slice get the IDs 13, 11, 12, 7, 8, 9, 10 in this order.
        ("a100_40gb", ["1g.5gb"] * 7, [(6, 13), (4, 11), (5, 12), (0, 7), (1, 8), (2, 9), (3, 10)]),
        ("a100_40gb", ["2g.10gb"] * 3, [(4, 5), (0, 3), (2, 4)]),
        ("a100_40gb", ["3g.20gb"] * 2, [(4, 2), (0, 1)]),
        ("a100_40gb", ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"], [(4, 2), (0, 3), (2, 9), (3, 10)]),
        ("a100_40gb", ["7g.40gb"], [(0, 0)]),
        # Observed on an H100: two of one slice are 11 and 13.
        ("h100_80gb", ["1g.10gb"] * 2, [(6, 13), (4, 11)]),
        # Observed on an A30: two of one slice, then one of two.
        ("a30", ["1g.6gb", "1g.6gb", "2g.12gb"], [(0, 3), (1, 4), (2, 2)]),
        # Observed on an RTX PRO 6000.
        ("rtx_pro_6000_blackwell", ["1g.24gb"] * 4, [(0, 3), (3, 4), (6, 5), (9, 6)]),
    ],
)
def test_the_driver_chooses_the_places_it_was_seen_to_choose(
    model: str, names: list[str], expected: list[tuple[int, int]]
) -> None:
    assert automatic_starts(model, names) == expected


def placements_of(model: str) -> Iterator[tuple[str, tuple[int, ...], int]]:
    for profile in profiles_of(model):
        yield profile["name"], tuple(profile["starts"]), profile["size"]


@pytest.mark.parametrize("model", MIG_MODELS)
def test_no_two_instances_of_a_gpu_have_the_same_id(model: str) -> None:
    units = catalogue.load(model)["mig"]["units"]
    ids: dict[tuple[int, int], int] = {}
    for _unused, starts, size in placements_of(model):
        for start in starts:
            ids[(start, size)] = placement.instance_id(units, start, size)
    for (one, one_id), (other, other_id) in itertools.combinations(ids.items(), 2):
        overlap = one[0] < other[0] + other[1] and other[0] < one[0] + one[1]
        assert overlap or one_id != other_id


def test_free_counts_are_those_of_an_h100_with_two_instances() -> None:
    # Captured, driver 580.173.02: 1g.10gb at 4 and at 6.
    gpu = gpu_of("h100_80gb")
    profiles = profiles_of("h100_80gb")
    for start in (4, 6):
        mig_instances.create_gpu_instance(gpu, NEWEST, profiles[0], start)
    free = {profile["name"]: placement.free_count(profile, profiles, gpu["gpu_instances"]) for profile in profiles}
    assert free == {
        "1g.10gb": 5,
        "1g.10gb+me": 1,
        "1g.20gb": 2,
        "2g.20gb": 2,
        "3g.40gb": 1,
        "4g.40gb": 1,
        "7g.80gb": 0,
    }


@pytest.mark.parametrize(
    ("slices", "size", "expected"),
    [
        (7, 1, [0, 1, 2, 3, 4, 5, 6]),
        (7, 2, [0, 2, 4]),
        (7, 3, [0, 4]),
        (7, 4, [0]),
        (7, 7, [0]),
        (4, 2, [0, 2]),
        (3, 2, [0]),
        (3, 3, [0]),
    ],
)
def test_compute_instances_have_as_many_places_as_their_profile_allows(
    slices: int, size: int, expected: list[int]
) -> None:
    assert placement.compute_starts(slices, size) == expected
