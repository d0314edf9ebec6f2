# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many nodes verdicts may have out of service, and which of them yield where too many drain at once."""

from __future__ import annotations

import random

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_cap import Cap, OutOfService
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError

TEN_PERCENT = Cap("10%", "the_cap")


@pytest.mark.parametrize(
    ("text", "nodes", "allowed"),
    [
        *(("10%", 1, 2), ("10%", 3, 2), ("10%", 29, 2), ("10%", 30, 3), ("10%", 39, 3), ("10%", 5000, 500)),
        *(("1%", 5000, 50), ("100%", 40, 40), ("100%", 1, 2), ("0%", 5000, 0), ("0", 5000, 0), ("1", 5000, 1)),
        ("7", 3, 7),
    ],
)
def test_a_percentage_is_rounded_down_and_allows_two(text: str, nodes: int, allowed: int) -> None:
    assert Cap(text, "the_cap").allowed(nodes) == allowed


@pytest.mark.parametrize("text", ["", "ten", "-1", "1.5", "110%", "10 %", "10%\n", "٣", "9" * 5000, "None"])
def test_what_is_no_cap_is_refused_by_the_name_of_the_variable_and_drains_nothing(text: str) -> None:
    cap = Cap(text, "the_cap")
    assert cap.refusal.startswith("the_cap is ") and len(cap.refusal) < 200
    with pytest.raises(ChangeError, match="the_cap is "):
        cap.refuses_another(100, [])


def out(*names: str, since: str = "2026-05-04T09:00:00", by_remedy: bool = False) -> list[OutOfService]:
    return [OutOfService(name, since, by_remedy) for name in names]


def test_no_further_node_is_drained_where_the_cap_is_reached() -> None:
    assert TEN_PERCENT.refuses_another(30, out("a", "b")) == ""
    refusal = TEN_PERCENT.refuses_another(30, [*out("a", "b"), *out("c", by_remedy=True)])
    assert refusal.startswith("verdicts have 3 of 30 nodes out of service, and the_cap (10%) allows 3: ")
    assert Cap("0", "the_cap").refuses_another(30, []) != ""


def test_a_node_that_drained_itself_late_yields() -> None:
    earlier, now = out("x", "y", since="2026-05-04T09:00:00"), "2026-05-04T09:05:00"
    together = [*earlier, *out("a", "b", since=now), *out("c", since="2026-05-04T09:05:01")]
    refused = [one.node for one in together if TEN_PERCENT.refuses(one.node, 30, together, is_new=True)]
    assert refused == ["b", "c"]
    # Another user took it out of service first.
    assert TEN_PERCENT.refuses("z", 30, together, is_new=True) == ""


def test_a_drain_that_stands_does_not_yield_to_remedies() -> None:
    found = [*out("a"), *out("b", "c", "d", by_remedy=True, since="2026-05-04T08:00:00")]
    assert TEN_PERCENT.refuses("a", 30, found, is_new=False) == ""
    assert TEN_PERCENT.refuses("a", 30, found, is_new=True) != ""


@pytest.mark.parametrize("seed", range(40))
def test_of_nodes_that_drain_themselves_at_once_no_more_than_the_cap_stay_drained(seed: int) -> None:
    """Each counts, drains itself, waits until no other can get the time of its drain, and counts again."""
    rng = random.Random(seed)
    nodes = [f"gpu{number}" for number in range(60)]
    steps = []
    for name in nodes:
        # In ticks, of which ten are a second of the controller.
        counted = rng.randrange(20)
        drained = counted + rng.randrange(1, 15)
        steps += [(counted, name, "count"), (drained, name, "drain"), (drained + rng.randrange(11, 40), name, "again")]
    passed: set[str] = set()
    drained_at: dict[str, OutOfService] = {}
    for tick, name, step in sorted(steps):
        found = list(drained_at.values())
        if step == "count" and not TEN_PERCENT.refuses_another(len(nodes), found):
            passed.add(name)
        elif step == "drain" and name in passed:
            drained_at[name] = OutOfService(name, f"2026-05-04T09:00:{tick // 10:02}")
        elif step == "again" and name in passed and TEN_PERCENT.refuses(name, len(nodes), found, is_new=True):
            del drained_at[name]
    assert len(passed) > TEN_PERCENT.allowed(len(nodes)), "the race is one"
    assert len(drained_at) == TEN_PERCENT.allowed(len(nodes))
