# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a host in a rolling upgrade, also where the controller is killed at any point."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import PREFIX, gate, plan_run, read_variables
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import (
    STEPS,
    HostState,
    StateError,
    advance,
    begin,
    read_state,
    remaining,
)

from tests.conftest import ROOT

NOW, LATER = "2026-05-04T09:00:00Z", "2026-05-04T10:00:00Z"
ALL = ["planned", "draining", *STEPS, "failed"]


@pytest.mark.parametrize(
    ("step", "following"),
    [
        ("planned", ["draining", "failed"]),
        ("draining", ["draining", "drained", "planned", "failed"]),
        ("drained", ["draining", "changed", "failed"]),
        ("changed", ["healthy", "failed"]),
        ("healthy", ["in_service", "failed"]),
        ("in_service", []),
        ("failed", []),
    ],
)
def test_which_step_follows_which(step: str, following: list[str]) -> None:
    state = HostState("node", "run", step)
    for name in ALL:
        if name in following:
            after = advance(state, name, NOW, "because")
            assert (after.step, after.reason, after.run) == (name, "because", "run")
            assert after.history[-1].time == NOW
        else:
            with pytest.raises(StateError, match=f"node is {step}, which {name} cannot follow"):
                advance(state, name, NOW)


@pytest.mark.parametrize(
    ("killed_at", "steps"),
    [
        (None, STEPS),
        ("planned", STEPS),
        ("draining", STEPS),
        # Whether the change had begun is not known: it is made again, on a host that is verified to be idle.
        ("drained", STEPS),
        ("changed", ("healthy", "in_service")),
        ("healthy", ("in_service",)),
        ("in_service", STEPS),
        ("failed", STEPS),
    ],
)
def test_a_killed_run_continues(killed_at: str | None, steps: tuple[str, ...]) -> None:
    previous = HostState("node", "old", killed_at) if killed_at else None
    state = begin("node", "new", NOW, previous, needs_change=False)
    assert remaining(state) == steps
    # A drain is undone by the run that made it.
    assert state.run == ("old" if previous and previous.is_out_of_service else "new")
    for step in steps:
        state = advance(state, "draining", LATER) if step == "drained" else state
        state = advance(state, step, LATER)
    assert state.is_finished and not state.is_out_of_service
    assert read_state(json.loads(json.dumps(state.as_dict()))) == state


@pytest.mark.parametrize("step", ["changed", "healthy"])
def test_a_host_that_needs_another_change_by_now_is_changed_again(step: str) -> None:
    assert remaining(begin("node", "new", NOW, HostState("node", "old", step), needs_change=True)) == STEPS


@pytest.mark.parametrize("document", [{}, [], "", {"host": "a"}, {"host": "a", "run": "r", "step": "x", "history": []}])
def test_another_document_is_refused(document: Any) -> None:
    with pytest.raises(StateError):
        read_state(document)


ENTRIES: dict[str, dict[str, Any]] = {
    name: {"needs": ["nvidia_driver"], "group": "", "unit": ""} for name in ("a", "b", "c")
}


def states_at(plan: dict[str, Any], **steps: str) -> list[dict[str, Any]]:
    """The states of hosts of a plan after some steps."""
    return [
        {**state, "step": step, "history": [*state["history"], {"step": step, "time": NOW}]}
        for state, step in ((plan["states"][name], step) for name, step in steps.items())
    ]


def test_a_run_is_continued_by_its_id_and_in_its_order() -> None:
    first = plan_run(ENTRIES, {"gpu_fleet_upgrade_canaries": ["c"]}, [], {}, NOW)
    assert first["run"] == "20260504T090000Z"
    assert first["batches"] == [["c"], ["a"], ["b"]]
    converged: dict[str, dict[str, Any]] = {**ENTRIES, "c": {"needs": []}, "a": {"needs": []}}
    second = plan_run(converged, {}, states_at(first, c="in_service", a="changed"), first, LATER)
    assert second["run"] == first["run"]
    assert second["batches"] == [["a"], ["b"]]
    assert second["steps"]["a"] == ["healthy", "in_service"]
    assert second["reasons"]["a"] == ["an earlier run was interrupted"]


def test_a_run_with_nothing_left_does_nothing_and_the_next_is_a_new_one() -> None:
    first = plan_run(ENTRIES, {}, [], {}, NOW)
    done = states_at(first, a="in_service", b="in_service", c="in_service")
    assert plan_run({name: {"needs": []} for name in ENTRIES}, {}, done, first, LATER)["batches"] == []
    third = plan_run(ENTRIES, {}, done, first, LATER)
    assert (third["run"], third["batches"]) == ("20260504T100000Z", [["a"], ["b"], ["c"]])
    assert third["canaries"] == ["a"], "a new run has its canaries"


def test_two_runs_of_one_second_have_two_ids() -> None:
    runs = {plan_run(ENTRIES, {}, [], {}, NOW, token=token)["run"] for token in ("a1", "b2")}
    assert runs == {"20260504T090000Z_a1", "20260504T090000Z_b2"}


def test_a_host_that_another_run_has_drained_is_refused_until_it_is_taken_over() -> None:
    """As from another controller, or after the directory of the states was lost; `c` needs nothing any more."""
    other = "20260101T000000Z_c0ffee"
    entries = {name: {**entry, "drain": f"gpu.fleet {other}: upgrade"} for name, entry in ENTRIES.items()}
    entries["b"]["drain"] = "fan 3 is loud"
    entries["c"]["needs"] = []
    plan = plan_run(entries, {}, [], {}, NOW)
    assert (plan["order"], set(plan["held"])) == (["b"], {"a", "c"})
    assert plan["held"]["a"] == (
        f"the run {other} of gpu.fleet has drained it (upgrade), perhaps from another controller or with another "
        "gpu_fleet_upgrade_directory: wait for that run to end, or continue it there. Where nobody continues it, "
        "take its "
        f"nodes over with gpu_fleet_upgrade_take_over: {other}"
    )
    assert f"a is refused: {plan['held']['a']}" in plan["lines"]
    # It is out of service for its group.
    rack = {name: {**entry, "group": "r"} for name, entry in entries.items()}
    assert set(gate(plan_run(rack, {}, [], {}, NOW), {}, [], ["b"]).postponed) == {"b"}
    taken = plan_run(entries, {"gpu_fleet_upgrade_take_over": other}, [], {}, NOW)
    assert (taken["held"], taken["order"], taken["steps"]["c"]) == ({}, ["a", "c", "b"], list(STEPS))
    # What this run has drained itself is none of another one.
    own = plan_run(ENTRIES, {}, [], {}, NOW)
    drained = {**entries, "a": {**ENTRIES["a"], "drain": f"gpu.fleet {own['run']}: upgrade"}}
    assert "a" not in plan_run(drained, {}, states_at(own, a="drained"), own, LATER)["held"]


def test_a_canary_that_was_left_is_a_failure_and_another_host_is_none() -> None:
    plan = plan_run(ENTRIES, {}, [], {}, NOW)
    states = states_at(plan, a="planned")
    states[0]["reason"] = "not idle after 5 s, jobs 7"
    after = gate(plan, {}, states, [])
    assert after.unchanged_canaries == {
        "a": "the canary a was not changed: not idle after 5 s, jobs 7; so these are left as they were: a, b, c. Run "
        "this again when it is idle, or name other hosts in gpu_fleet_upgrade_canaries"
    }
    assert gate(plan, {}, states_at(plan, a="in_service", b="planned"), []).unchanged_canaries == {}


def test_a_reason_is_recorded_as_one_line_that_can_be_seen() -> None:
    state = advance(
        HostState("node", "run", "planned"), "failed", NOW, "a\x1b[31mb\x9bc\n\u2028d\u202ee\ud800 " + "x" * 2000
    )
    assert state.reason.startswith("a [31mb c de xxx") and len(state.reason) == 1000
    assert state.history[-1].reason == state.reason


def test_a_host_is_judged_that_has_gpus_or_had_them_when_its_run_began() -> None:
    entries = {name: {**entry, "gpus": gpus} for (name, entry), gpus in zip(ENTRIES.items(), (8, 0, 8), strict=True)}
    first = plan_run(entries, {}, [], {}, NOW)
    assert first["judged"] == ["a", "c"]
    lost = {name: {**entry, "gpus": 0} for name, entry in entries.items()}
    states = states_at(first, a="changed")
    assert plan_run(lost, {}, states, first, LATER)["judged"] == ["a", "c"]


def test_a_new_run_has_its_own_order() -> None:
    """Otherwise its canaries would be the hosts that the last run of only some hosts had."""
    some = {name: {"needs": ["gpu_state"] if name in "bc" else []} for name in ENTRIES}
    first = plan_run(some, {}, [], {}, NOW)
    assert first["order"] == ["b", "c"]
    second = plan_run(ENTRIES, {}, states_at(first, b="in_service", c="in_service"), first, LATER)
    assert (second["order"], second["canaries"]) == (list(ENTRIES), ["a"])


def test_a_run_stops_after_too_many_failures() -> None:
    plan = plan_run(ENTRIES, {}, [], {}, NOW)
    states = states_at(plan, a="failed")
    states[0]["reason"] = "GPU 0 is lost"
    stopped = gate(plan, {}, states, ["b"])
    assert stopped.stop.startswith("1 failed, and gpu_fleet_upgrade_max_failures is 0; ")
    assert stopped.stop.endswith(": a: GPU 0 is lost")
    assert stopped.lines == ["planned: b, c", "a is failed: GPU 0 is lost"]
    # A canary that fails stops the run whatever may fail later.
    patient = {"gpu_fleet_upgrade_max_failures": 1}
    assert gate(plan, patient, states, ["b"]).stop == ("not all canaries are in service: a is failed; a: GPU 0 is lost")
    other = states_at(plan, a="in_service", b="failed")
    assert gate(plan, patient, other, ["c"]).stop == ""
    assert gate(plan, {}, other, ["c"]).stop
    assert gate(plan, {}, states_at(plan, a="drained"), ["a"]).stop == ""
    # The next run stops as well, until it is requested to try the host again.
    again = plan_run(ENTRIES, {}, states, plan, LATER)
    assert again["failed"] == {"a": "GPU 0 is lost"}
    assert gate(again, {}, states, ["b"]).stop
    retry = {"gpu_fleet_upgrade_retry_failed": True}
    retried = plan_run(ENTRIES, retry, states, plan, LATER)
    assert retried["order"] == ["a", "b", "c"]
    assert retried["states"]["a"]["step"] == "draining"
    # Its file has the failure until it has its turn.
    assert gate(retried, retry, states, ["a"]).stop == ""
    assert retried["canaries"] == ["a"]
    failed_again = {**retried["states"]["a"], "step": "failed"}
    failed_again["history"] = [*failed_again["history"], {"step": "failed", "time": LATER}]
    assert gate(retried, retry, [failed_again], ["b"]).stop


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"batches": 2}, "gpu_fleet_upgrade_batches is not a variable of the upgrade; there are "),
        ({"hooks": {"before_reboot": []}}, "gpu_fleet_upgrade_hooks has before_reboot; it can have before_drain, "),
        ({"hooks": ["stop.yml"]}, "gpu_fleet_upgrade_hooks has "),
        (
            {"hooks": {"before_drain": "stop.yml"}},
            "gpu_fleet_upgrade_hooks.before_drain is 'stop.yml'; it takes a list",
        ),
        ({"commands": {"drain": "drain"}}, "gpu_fleet_upgrade_commands.drain is 'drain'; it takes a list of the progr"),
        ({"scheduler": "commands"}, "gpu_fleet_upgrade_scheduler is commands, which needs gpu_fleet_upgrade_commands"),
        ({"scheduler": "slurm"}, "gpu_fleet_upgrade_scheduler is slurm, which needs gpu_fleet_upgrade_slurm_host"),
        (
            {"reboot_by": "slurm"},
            "gpu_fleet_upgrade_reboot_by is slurm, which needs gpu_fleet_upgrade_scheduler: slurm",
        ),
        *[
            (
                {"slurm_directory": value},
                f"gpu_fleet_upgrade_slurm_directory is {value!r}; it takes an absolute path of ",
            )
            for value in ("opt/slurm", "/opt/slurm 24", "/opt/$(id)", 1)
        ],
        ({"kubernetes_kubeconfig": 1}, "gpu_fleet_upgrade_kubernetes_kubeconfig is 1; it takes a text"),
        (
            {"kubernetes_pod_selectors": "a=b"},
            "gpu_fleet_upgrade_kubernetes_pod_selectors is 'a=b'; it takes a list of l",
        ),
        (
            {"kubernetes_delete_emptydir_data": "maybe"},
            "gpu_fleet_upgrade_kubernetes_delete_emptydir_data is 'maybe'; it t",
        ),
        (
            {"kubernetes_delete_unmanaged_pods": []},
            "gpu_fleet_upgrade_kubernetes_delete_unmanaged_pods is []; it takes true or false",
        ),
        ({"reboot_by": "hand"}, "gpu_fleet_upgrade_reboot_by is 'hand'; it takes one of ansible, slurm"),
    ],
)
def test_wrong_variables_are_refused(variables: dict[str, Any], message: str) -> None:
    with pytest.raises(RollingError) as caught:
        read_variables({f"gpu_fleet_upgrade_{name}": value for name, value in variables.items()})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "name", ["retry_failed", "kubernetes_delete_emptydir_data", "kubernetes_delete_unmanaged_pods"]
)
@pytest.mark.parametrize("value", ["true", "False", "yes", "off", " 1 ", 0, True])
def test_truth_values_may_be_strings(name: str, value: object) -> None:
    """As `-e NAME=true` makes them."""
    read_variables({f"gpu_fleet_upgrade_{name}": value})


@pytest.mark.parametrize("page", ["many-hosts.md", "upgrade-fleet.md"])
def test_the_variables_of_the_guides_are_accepted(page: str) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)
    given = [block for block in map(yaml.safe_load, blocks) if isinstance(block, dict)]
    found = [{name: value for name, value in block.items() if name.startswith(PREFIX)} for block in given]
    assert any(found)
    for variables in found:
        read_variables(variables)
