# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Combinations of MIG profiles that fill a GPU: the filter, and the picture and the table of docs/mig.md."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.mig_combinations import mig_combinations
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import full_layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table

from testbed import mig_picture
from tests.unit.recordings.recording import load

ROOT = Path(__file__).resolve().parents[3]
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html, read 2026-11-25 in a copy of that
# page: the profiles of each product, and for all of them the number of instances and the fraction of memory in eighths.
# (Of the A100's 1g.10gb the page has 1/8, which neither its name nor its four instances fit.)
GUIDE = {
    "A100 40 GB": "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    "A100 80 GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "H100 80 GB": "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "H100 NVL": "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
    "H200": "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    "B200": "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
}
INSTANCES_AND_EIGHTHS = [(7, 1), (4, 2), (3, 2), (2, 4), (1, 4), (1, 8)]


def placed(table: Table, names: tuple[str, ...]) -> bool:
    """Whether there is a place for all, tried one by one: no part of the search of the module."""
    ways = product(*([(table.find(name), start) for start in table.find(name).starts] for name in names))
    return any(
        sum(one.size for one, _start in way) == len({unit for one, at in way for unit in range(at, at + one.size)})
        for way in ways
    )


@pytest.mark.parametrize("gpu", mig_picture.GPUS)
def test_all_gpus_of_the_picture_have_the_places_of_the_guide(gpu: str) -> None:
    table = mig_picture.table_of(mig_picture.GPUS[gpu])
    assert mig_picture.shape(table) == mig_picture.shape(mig_picture.table_of("h200"))
    guide = dict(zip(GUIDE[gpu].split(), INSTANCES_AND_EIGHTHS, strict=True))
    assert {one.name: (one.max_instances, one.size) for one in table.profiles} == guide
    assert table.units == 8


def test_combinations_are_valid_full_and_all() -> None:
    """By trying every place of every set of profiles."""
    table = mig_picture.table_of("a100_40gb")
    found = full_layouts(table)
    assert len(found) == len({tuple(sorted(names)) for names in found}) == 28
    counts = [range(one.max_instances + 1) for one in table.profiles]
    every = []
    for count in product(*counts):
        names = tuple(one.name for one, number in zip(table.profiles, count, strict=True) for _each in range(number))
        # Seven compute slices and eight of memory: a bound that spares most of the tries.
        if sum(table.find(name).size for name in names) <= table.units and placed(table, names):
            every.append(Counter(names))
    full = [one for one in every if not any(one < other for other in every)]
    assert sorted(map(sorted, (one.elements() for one in full))) == sorted(map(sorted, found))


def test_the_filter_on_what_an_h200_printed() -> None:
    recording = load("h200x8-580.159.04")
    gpu, *others = mig_combinations(recording.output("mig -lgip"), recording.output("mig -lgipp"))
    assert [one["combinations"] for one in others] == [gpu["combinations"]] * 7
    without = {tuple(names) for names in gpu["combinations"] if not any("+" in name for name in names)}
    assert without <= set(full_layouts(mig_picture.table_of("h200")))
    assert ["4g.71gb", "1g.18gb", "1g.18gb", "1g.18gb+me"] in gpu["combinations"]


@pytest.mark.parametrize(
    ("profiles", "placements", "message"),
    [
        (1, "", "it takes the output .* but got int and str"),
        ({"index": 0, "mig_capable": True}, None, "but got dict and nothing; facts do not have the profiles"),
        ("nonsense", "", "is not understood"),
    ],
)
def test_what_is_no_list(profiles: object, placements: object, message: str) -> None:
    with pytest.raises(AnsibleFilterError, match=message):
        mig_combinations(profiles, *([] if placements is None else [placements]))


def test_the_picture_and_the_table_are_those_of_the_program() -> None:
    """`python -m testbed.mig_picture` makes both."""
    assert mig_picture.PICTURE.read_text(encoding="utf-8") == mig_picture.picture()
    guide = (ROOT / "docs/mig.md").read_text(encoding="utf-8")
    assert "\n".join(mig_picture.names()) in guide
    assert "](mig-combinations.svg)" in guide
