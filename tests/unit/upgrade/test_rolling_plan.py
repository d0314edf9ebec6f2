# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order and the batches of a rolling upgrade."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import (
    Host,
    Options,
    RollingError,
    plan_lines,
    postponed,
    read_options,
    rolling_plan,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import HostState, advance, begin

DRIVER = ("nvidia_driver",)


def hosts(*names: str, **given: Any) -> list[Host]:
    """Hosts that need a driver."""
    return [Host(name, DRIVER, **given) for name in names]


def fleet(size: int, seed: int = 1) -> list[Host]:
    """Racks of 8 hosts, in the second half of which 4 hosts each are an NVLink domain; a third needs nothing."""
    chance = random.Random(seed)
    return [
        Host(
            f"node{number}",
            DRIVER if chance.random() < 0.67 else (),
            group=f"rack{number // 8}",
            unit=f"domain{number // 4}" if number % 8 >= 4 else "",
        )
        for number in range(size)
    ]


@pytest.mark.parametrize(
    ("found", "options", "batches"),
    [
        ([], Options(), []),
        ([Host("a"), Host("b")], Options(), []),
        (hosts("a", "b", "c"), Options(), [["a"], ["b"], ["c"]]),
        (hosts("a", "b", "c"), Options(canaries=0, batch=2), [["a", "b"], ["c"]]),
        (hosts("a", "b", "c"), Options(canaries=2, batch=9), [["a", "b"], ["c"]]),
        (hosts("a", "b", "c"), Options(canaries=("c",), batch=9), [["c"], ["a", "b"]]),
        (hosts("a", "b", "c"), Options(canaries=("none",), batch=9), [["a", "b", "c"]]),
        ([Host("idle"), *hosts("a")], Options(), [["a"]]),
        # 50% of what is to be changed, rounded down, but at least one.
        (hosts(*"abcde"), Options(canaries=0, batch="50%"), [["a", "b"], ["c", "d"], ["e"]]),
        (hosts(*"ab"), Options(canaries=0, batch="1%"), [["a"], ["b"]]),
        # A rack loses one at a time; the next rack fills the batch.
        (
            [*hosts("a1", "a2", group="a"), *hosts("b1", "b2", group="b")],
            Options(canaries=0, batch=2),
            [["a1", "b1"], ["a2", "b2"]],
        ),
        (
            [*hosts("a1", "a2", group="a"), *hosts("c"), *hosts("b1", group="b")],
            Options(canaries=0, batch=3),
            [["a1", "c", "b1"], ["a2"]],
        ),
        # The percentage is one of all hosts of the group, also of those with nothing to do.
        (
            [*hosts("a1", "a2", "a3", group="a"), Host("a4", group="a")],
            Options(canaries=0, batch=9, max_unavailable="50%"),
            [["a1", "a2"], ["a3"]],
        ),
        # A unit goes together, as a batch of its own where it is larger than one.
        (
            [*hosts("a"), *hosts("u1", unit="u"), *hosts("b"), *hosts("u2", "u3", unit="u")],
            Options(canaries=0, batch=2),
            [["a", "b"], ["u1", "u2", "u3"]],
        ),
        ([*hosts("u1", "u2", unit="u"), *hosts("a")], Options(batch=9), [["u1", "u2"], ["a"]]),
        ([*hosts("u1", unit="u"), Host("u2", unit="u")], Options(), [["u1"]]),
        ([*hosts("a"), Host("gone", DRIVER, is_missing=True)], Options(), [["a"]]),
    ],
)
def test_batches(found: Sequence[Host], options: Options, batches: list[list[str]]) -> None:
    assert [list(batch) for batch in rolling_plan(found, options).batches] == batches


@pytest.mark.parametrize("size", [200, 10_000])
def test_no_batch_breaks_a_limit(size: int) -> None:
    found = fleet(size)
    for options in (Options(batch="5%", max_unavailable=4), Options(3, 7, "50%"), Options(("node9",), 40, 5)):
        plan = rolling_plan(found, options)
        known = {host.name: host for host in found}
        # Each host that needs something is there once, and no other.
        assert Counter(plan.order) == Counter(host.name for host in found if host.needs)
        assert set(plan.unchanged) == set(known) - set(plan.order)
        limit = options.max_unavailable if isinstance(options.max_unavailable, int) else 4
        due = len(plan.order)
        most = options.batch if isinstance(options.batch, int) else due * 5 // 100
        domains: dict[str, int] = {}
        for number, batch in enumerate(plan.batches):
            members = [known[name] for name in batch]
            assert max(Counter(host.group for host in members).values()) <= limit
            assert len(batch) <= max(most, 4)
            for host in members:
                assert domains.setdefault(host.unit or host.name, number) == number, "a unit goes together"
        assert set(plan.canaries) == set(plan.order[: len(plan.canaries)])
        # The same input gives the same plan, also where a run was killed between any two batches.
        assert rolling_plan(found, options) == plan


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_is_continued_keeps_the_order(seed: int) -> None:
    found = fleet(200, seed)
    options = Options(batch=7, max_unavailable=4)
    plan = rolling_plan(found, options)
    done = random.Random(seed).randrange(1, len(plan.batches) - 1)
    finished = [name for batch in plan.batches[:done] for name in batch]
    interrupted = plan.batches[done]
    states = {name: HostState(name, "run", "in_service") for name in finished}
    states.update({name: HostState(name, "run", "drained") for name in interrupted})
    # What was changed needs nothing any more, also the hosts that are still drained.
    after = [replace(host, needs=()) if host.name in {*finished, *interrupted} else host for host in found]
    again = rolling_plan(after, options, states, plan.order)
    assert set(again.batches[0]) == set(interrupted)
    assert again.batches[1:] == plan.batches[done + 1 :]
    assert not again.canaries


def test_failed_hosts_stay_and_count_for_their_group() -> None:
    found = [*hosts("a1", "a2", "a3", group="a"), *hosts("b")]
    states = {"a1": HostState("a1", "run", "failed", "no GPU")}
    options = Options(canaries=0, batch=9, max_unavailable=2)
    plan = rolling_plan(found, options, states)
    assert plan.batches == (("a2", "b"), ("a3",))
    assert plan.failed == {"a1": "no GPU"}
    assert "a1 has failed and stays drained: no GPU" in plan_lines(plan)
    retried = rolling_plan(found, replace(options, retry_failed=True), states)
    assert retried.batches == (("a1", "a2", "b"), ("a3",))


def test_a_unit_without_one_of_its_hosts_is_left_as_it_is() -> None:
    gone = Host("u3", unit="u", is_missing=True)
    found = [*hosts("u1", "u2", unit="u"), gone, *hosts("a")]
    plan = rolling_plan(found, Options())
    assert plan.batches == (("a",),) and plan.missing == ("u3",) and plan.unchanged == ()
    assert plan.waiting.keys() == {"u1", "u2"}
    lines = plan_lines(plan)
    assert any(line.startswith("u1, u2 wait: the hosts of u are changed together, and u3 could not") for line in lines)
    # Out of the way by the user, or for a remedy of single hosts.
    assert rolling_plan([one for one in found if one is not gone], Options()).waiting == {}
    assert rolling_plan(found, Options(), whole_units=False).waiting == {}
    # What has begun goes on, so that the unit is one again.
    begun = {"u1": HostState("u1", "run", "drained")}
    assert rolling_plan(found, Options(), begun).batches[0] == ("u1", "u2")
    at_target = [replace(found[0], needs=()), *found[1:]]
    assert rolling_plan(at_target, Options()).waiting == {}
    assert rolling_plan([gone, *hosts("a")], Options()).waiting == {}


def test_hosts_wait_while_too_many_of_their_group_are_out_of_service() -> None:
    known = {host.name: host for host in (*hosts("a1", "a2", "a3", group="a"), *hosts("b", group="b"))}
    options = Options(max_unavailable=2)
    assert postponed(["a2", "b"], known, [], options) == {}
    assert postponed(["a2", "a3", "b"], known, ["a1"], options).keys() == {"a3"}
    # A host that an interrupted run has drained goes on.
    assert postponed(["a1", "a2"], known, ["a1", "a3"], options).keys() == {"a2"}
    assert postponed(["a2"], {**known, "a1": replace(known["a1"], is_missing=True)}, ["a3"], options).keys() == {"a2"}


def test_a_unit_that_its_group_cannot_lose_waits_and_the_others_are_changed() -> None:
    unit = hosts("a", "b", "c", group="a", unit="u")
    plan = rolling_plan([*unit, *hosts("d", group="a")], Options(max_unavailable=2))
    assert plan.order == ("d",) and plan.waiting.keys() == {"a", "b", "c"}
    assert "unit u has 3 hosts of group a to change together, " in plan.waiting["a"]
    assert "allows 2 of it" in plan.waiting["a"]


def test_what_is_held_takes_its_unit_with_it_and_counts_where_it_is_out_of_service() -> None:
    found = [*hosts("a", "b", group="g", unit="u"), *hosts("c", "d", group="g")]
    plan = rolling_plan(found, Options(canaries=0, batch=2, max_unavailable=2), held={"a": "why"})
    assert plan.waiting == {"a": "why", "b": "why"} and plan.batches == (("c", "d"),)
    drained = {"a": advance(begin("a", "run", "t", None, True), "draining", "t")}
    plan = rolling_plan(found, Options(canaries=0, batch=2, max_unavailable=2), drained, held={"a": "why"})
    assert plan.batches == (("c",), ("d",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("batch", -1),
        ("batch", True),
        ("batch", "0%"),
        ("batch", "101%"),
        ("batch", "ten"),
        ("batch", "0"),
        ("batch", 1.5),
        ("batch", None),
        ("max_unavailable", 0),
        ("max_unavailable", "all"),
        ("max_unavailable", []),
        ("canaries", -1),
        ("canaries", "node1"),
        ("canaries", [1]),
        ("canaries", None),
        ("max_failures", -1),
        ("max_failures", "one"),
        ("idle_timeout_s", -1),
        ("idle_interval_s", 0),
        ("on_busy", "wait"),
        ("scheduler", "pbs"),
        ("retry_failed", "maybe"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(name: str, value: object) -> None:
    with pytest.raises(RollingError, match=f"^gpu_fleet_upgrade_{name} is .*; it takes "):
        read_options({name: value})


def test_options_have_defaults_that_change_one_host_at_a_time() -> None:
    assert read_options({}) == Options(canaries=1, batch=1, max_unavailable=1, max_failures=0, on_busy="fail")
    assert read_options({"canaries": ["a"], "batch": "10%"}) == Options(canaries=("a",), batch="10%")


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("batch", "10", 10),
        ("batch", "10%", "10%"),
        ("canaries", "0", 0),
        ("idle_timeout_s", "0", 0),
        ("max_failures", " 2 ", 2),
        ("max_unavailable", "3", 3),
        ("retry_failed", "true", True),
        ("retry_failed", "Yes", True),
        ("retry_failed", "1", True),
        ("retry_failed", 1, True),
        ("retry_failed", "off", False),
    ],
)
def test_a_value_on_the_command_line_is_a_text(name: str, value: object, read: object) -> None:
    """`-e NAME=VALUE` makes a text of every value."""
    found = getattr(read_options({name: value}), name)
    assert (found, type(found)) == (read, type(read))
