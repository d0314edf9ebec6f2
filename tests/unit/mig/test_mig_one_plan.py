# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One plan for check mode and the real run: its steps are the calls, and a layout is searched for only once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._mig import layout as mig_layout
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.plan import (
    CreateCompute,
    CreateInstances,
    DestroyCompute,
    DestroyInstances,
    Step,
)
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table
from gpu_simulator.state import catalogue

from tests.unit.mig.mig_host import DRIVERS, Run, SimulatedHost, is_change, mig_models, table_of

COMPUTE_PROFILES = {1: "0", 2: "1", 3: "2", 4: "3", 7: "4"}
"""Ids of compute instance profiles by slices."""

DIVIDED = {
    "a100_40gb": [
        ["3g.20gb", "2g.10gb", "1g.5gb"],
        ["1c.3g.20gb", "2c.3g.20gb", "2g.10gb"],
        ["1c.3g.20gb", "1c.3g.20gb", "1c.2g.10gb", "1g.5gb"],
        ["2c.7g.40gb", "2c.7g.40gb"],
        ["2c.7g.40gb", "2c.7g.40gb", "1c.7g.40gb"],
        ["4g.20gb:0", "0c.3g.20gb:4"],
        ["7g.40gb"],
        [],
    ],
    "h200": [
        ["1g.18gb"] * 7,
        ["1g.18gb+me", "1g.18gb", "1c.4g.71gb", "2c.4g.71gb"],
        ["1c.2g.35gb:0", "1c.2g.35gb:0", "3g.71gb:4"],
        ["1c.3g.71gb", "1c.3g.71gb", "1c.3g.71gb", "1g.18gb"],
        [],
    ],
}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Table]:
    """The tables of GPUs in which a layout was searched, in order."""
    found: list[Table] = []
    original = mig_layout.place

    def place(table: Table, *arguments: Any, **named: Any) -> Any:
        # Compute instances are placed in tables of their own, whose profiles are named by slices alone.
        if all("g." in profile.name for profile in table.profiles):
            found.append(table)
        return original(table, *arguments, **named)

    monkeypatch.setattr(mig_layout, "place", place)
    return found


def _steps(run: Run) -> list[tuple[str, Step]]:
    return [(job.before.identity, step) for job in run.jobs if job.plan is not None for step in job.plan.steps]


def _spell(host: SimulatedHost, identity: str, step: Step) -> list[str]:
    """The call for a step. Ids of GPU instances that the run created are those that exist now."""
    call = ["mig", "-i", identity]
    if isinstance(step, DestroyInstances):
        return [*call, "-dgi", "-gi", ",".join(map(str, step.gpu_instance_ids))]
    if isinstance(step, DestroyCompute):
        instances = ",".join(map(str, sorted({instance for instance, _compute in step.ids})))
        some = [] if step.whole else ["-ci", ",".join(str(compute) for _instance, compute in step.ids)]
        return [*call, "-dci", "-gi", instances, *some]
    if isinstance(step, CreateInstances):
        places = ",".join(f"{target.profile.profile_id}:{target.start}" for target in step.targets)
        return [*call, "-cgi", places, *(["-C"] if step.whole else [])]
    assert isinstance(step, CreateCompute)
    (gpu,) = (item for item in host.state["gpus"] if item["uuid"] == identity)
    (instance,) = (item for item in gpu["gpu_instances"] if (item["profile_id"], item["start"]) == step.place)
    (slices,) = (
        item["slices"]
        for item in catalogue.load(gpu["model"])["mig"]["profiles"]
        if item["id"] == instance["profile_id"]
    )
    whole = step.sizes == (slices,)
    sizes = [] if whole else [",".join(COMPUTE_PROFILES[size] for size in step.sizes)]
    return [*call, "-gi", str(instance["id"]), "-cci", *sizes]


def _changes(model: str, table: Table) -> Iterator[list[str]]:
    chance = random.Random(f"{model} 7")
    valid = [list(counts.elements()) for counts in layouts(table)]
    yield from (chance.choice(valid) for _number in range(12))
    yield from DIVIDED.get(model, ())


@pytest.mark.parametrize("model", mig_models())
def test_the_calls_are_the_steps_of_check_mode(tmp_path: Path, searches: list[Table], model: str) -> None:
    host = SimulatedHost.make(tmp_path / "host", model, driver=DRIVERS[2])
    changing = 0
    for profiles in _changes(model, table_of(model, tmp_path)):
        preview = host.run(profiles=profiles, check=True)
        assert preview.error is None and preview.changes == []
        del searches[:]
        run = host.run(profiles=profiles)
        assert run.error is None, (profiles, run.error)
        assert len(searches) == bool(run.changes and profiles), profiles
        assert run.changes == [_spell(host, identity, step) for identity, step in _steps(preview)], profiles
        changing += bool(run.changes)
    assert changing > 5


def test_enabling_mig_and_creating_is_one_search_for_each_gpu(tmp_path: Path, searches: list[Table]) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200", mig=False)
    preview = host.run(profiles=["3g.71gb", "1g.18gb"], check=True)
    del searches[:]
    run = host.run(profiles=["3g.71gb", "1g.18gb"])
    assert run.error is None and len(searches) == 2
    calls = [call for call in run.changes if "-mig" not in call]
    assert calls == [_spell(host, identity, step) for identity, step in _steps(preview)] != []


def test_a_converged_gpu_needs_no_search(tmp_path: Path, searches: list[Table]) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["3g.71gb"])
    del searches[:]
    assert host.run(profiles=["3g.71gb"]).changes == [] and searches == []


def _refuse(word: str) -> Callable[[Sequence[str], Callable[[], CommandResult]], CommandResult]:
    """Refuse the first call with this word because the GPU is in use."""
    refused: list[Sequence[str]] = []

    def intercept(call: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        if word in call and not refused:
            refused.append(call)
            return CommandResult(("nvidia-smi", *call), 19, b"In use by another client\n", b"", 0.01)
        return reply()

    return intercept


@pytest.mark.parametrize("word", ["-dci", "-dgi", "-cgi"])
def test_after_a_refusal_the_rest_is_planned_again(tmp_path: Path, searches: list[Table], word: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["3g.71gb", "3g.71gb"])
    undisturbed = host.run(profiles=["2g.35gb", "3g.71gb"], check=True)
    del searches[:]
    run = host.run(_refuse(word), profiles=["2g.35gb", "3g.71gb"])
    assert run.error is None and len(searches) == 2
    # The refused call is made again, and what was done before it is not.
    expected = [_spell(host, identity, step) for identity, step in _steps(undisturbed)]
    (refused,) = (number for number, call in enumerate(expected) if word in call)
    assert run.changes == [*expected[: refused + 1], *expected[refused:]]


def test_a_gpu_that_changed_meanwhile_is_planned_again(tmp_path: Path, searches: list[Table]) -> None:
    """While the first GPU gets its MIG mode, another program destroys an instance of the second."""
    host = SimulatedHost.make(tmp_path, "h200", "h200")
    host.run(gpus=["1"], profiles=["3g.71gb", "1g.18gb"])
    host.run(gpus=["0"], enabled=False)

    def intercept(call: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        if "-mig" in call:
            host.call("mig", "-i", "1", "-dci")
            host.call("mig", "-i", "1", "-dgi")
        return reply()

    del searches[:]
    run = host.run(intercept, profiles=["3g.71gb", "2g.35gb"])
    assert run.error is None and len(searches) == 3
    second = host.state["gpus"][1]["uuid"]
    calls = [call for call in run.changes if second in call]
    assert [word for call in calls for word in call if word in ("-dci", "-dgi", "-cgi", "-cci")] == ["-cgi"]
    assert sorted(name for name, _start, _sizes in host.layout(1)) == ["2g.35gb", "3g.71gb"]


def test_an_impossible_layout_is_refused_before_any_change(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["1g.18gb"])
    run = host.run(profiles=["4g.71gb", "4g.71gb"])
    assert run.error is not None and "is impossible" in run.error and "near it these fit" in run.error
    assert not any(is_change(call) for call in run.calls)
