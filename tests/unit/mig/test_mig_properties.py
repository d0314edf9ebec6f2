# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Properties of plans, checked on an independent model of a GPU and on the simulated nvidia-smi."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._mig import plan as mig_plan
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import choose_places, layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.layout import ComputeId, ComputeInstance, Instance, place
from ansible_collections.gpu.fleet.plugins.module_utils._mig.plan import (
    CreateInstances,
    DestroyCompute,
    DestroyInstances,
    MigPlan,
)
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import DesiredInstance, parse_layout

from tests.conftest import EFFORT
from tests.unit.mig.mig_host import SimulatedHost, mig_models, names, reported, table_of

Place = tuple[str, int]
SAMPLE = 100 if EFFORT == "quick" else 1_000


class ModelGpu:
    """A model of a GPU: instances by placement; refuses what a driver would refuse."""

    def __init__(self, table: Table, instances: Sequence[Instance] = ()) -> None:
        self.table = table
        self.instances = {item.gpu_instance_id: item for item in instances}
        self.touched: set[int] = set()

    def apply(self, plan: MigPlan) -> None:
        """Carry out the steps of a plan."""
        for step in plan.steps:
            if isinstance(step, DestroyCompute):
                for instance, compute in step.ids:
                    item = self.instances[instance]
                    left = tuple(other for other in item.compute if other.compute_instance_id != compute)
                    assert len(left) == len(item.compute) - 1
                    self.instances[instance] = replace(item, compute=left)
                    self.touched.add(instance)
            elif isinstance(step, DestroyInstances):
                for instance in step.gpu_instance_ids:
                    assert not self.instances[instance].compute, "in use by another client"
                    del self.instances[instance]
                    self.touched.add(instance)
            else:
                assert isinstance(step, CreateInstances)
                for target in step.targets:
                    profile = target.profile
                    taken = {
                        slot for item in self.instances.values() for slot in range(item.start, item.start + item.size)
                    }
                    desired = set(range(target.start, target.start + profile.size))
                    assert target.start in profile.starts and not taken & desired, "insufficient resources"
                    same = sum(item.profile_id == profile.profile_id for item in self.instances.values())
                    assert same < profile.max_instances, "insufficient resources"
                    number = max((*self.instances, 100)) + 1
                    made = (ComputeInstance(0, profile.slices),) if step.whole else ()
                    self.instances[number] = Instance(
                        number, profile.name, profile.profile_id, profile.slices, target.start, profile.size, made
                    )

    @property
    def counts(self) -> Counter[str]:
        """Number of instances by profile."""
        return Counter(item.profile for item in self.instances.values() if item.compute_sizes == (item.slices,))


def _desired_settings(table: Table, counts: Counter[str]) -> tuple[DesiredInstance, ...]:
    return tuple(
        DesiredInstance(name, table.find(name).slices, (table.find(name).slices,)) for name in counts.elements()
    )


@cache
def _arrangements_of(table: Table, counts: frozenset[tuple[str, int]]) -> tuple[frozenset[Place], ...]:
    kinds = [(table.find(name), count) for name, count in sorted(counts)]
    found = []
    for starts in itertools.product(*(itertools.combinations(profile.starts, count) for profile, count in kinds)):
        chosen = [(profile, start) for (profile, _count), some in zip(kinds, starts, strict=True) for start in some]
        slots = [start + offset for profile, start in chosen for offset in range(profile.size)]
        if len(slots) == len(set(slots)):
            found.append(frozenset((profile.name, start) for profile, start in chosen))
    return tuple(found)


def _arrangements(table: Table, counts: Counter[str]) -> tuple[frozenset[Place], ...]:
    """Every placement of `counts`, by brute force over all choices of starts."""
    return _arrangements_of(table, frozenset(counts.items()))


def _instances(table: Table, places: Sequence[Place]) -> tuple[Instance, ...]:
    found = []
    for number, (name, start) in enumerate(sorted(places)):
        profile = table.find(name)
        compute = (ComputeInstance(0, profile.slices),)
        found.append(Instance(number, name, profile.profile_id, profile.slices, start, profile.size, compute))
    return tuple(found)


def _plan(
    table: Table, existing: Sequence[Instance], desired: Counter[str], busy: Collection[ComputeId] = ()
) -> MigPlan:
    targets = mig_plan.choose_places(table, existing, _desired_settings(table, desired), busy)
    return mig_plan.plan(targets, existing, busy)


def _check(table: Table, existing: Sequence[Instance], desired: Counter[str], busy: frozenset[int]) -> MigPlan:
    """Plan a change, apply it to the model, and check the plan's properties."""
    plan = _plan(table, existing, desired, {(number, 0) for number in busy})
    gpu = ModelGpu(table, existing)
    gpu.apply(plan)
    assert gpu.counts == desired and len(gpu.instances) == desired.total()
    assert not {item.gpu_instance_id for item in plan.kept} & gpu.touched
    there = frozenset((item.profile, item.start) for item in existing)
    of_busy = frozenset((item.profile, item.start) for item in existing if item.gpu_instance_id in busy)
    best = max((len(of_busy & places), len(there & places)) for places in _arrangements(table, desired))
    kept = frozenset((item.profile, item.start) for item in plan.kept)
    assert (len(of_busy & kept), len(kept)) == best
    assert {item.gpu_instance_id for item in plan.kept} == set(ModelGpu(table, existing).instances) - gpu.touched
    again = _plan(table, tuple(gpu.instances.values()), desired)
    assert again.steps == () and len(again.kept) == desired.total()
    return plan


def test_all_pairs_of_a100_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of("a100_40gb", tmp_path)
    valid = [counts for counts in layouts(table) if counts]
    assert len(valid) == 127
    placed = [place(table, (_desired_settings(table, counts),)) for counts in valid]
    existing = [_instances(table, [(item.desired.profile, item.start) for item in targets or ()]) for targets in placed]
    pairs = 0
    for number, before in enumerate(existing):
        for desired in valid[number % 4 :: 4] if EFFORT == "quick" else valid:
            _check(table, before, desired, frozenset())
            pairs += 1
    with capsys.disabled():
        print(f"\n{pairs} ordered pairs of A100 layouts, kept as many as brute force finds")


@pytest.mark.parametrize("model", mig_models())
def test_random_changes_under_load(tmp_path: Path, model: str) -> None:
    table = table_of(model, tmp_path)
    valid = list(layouts(table))
    chance = random.Random(f"{model} 1")
    for _number in range(SAMPLE):
        places = chance.choice(list(_arrangements(table, chance.choice(valid))))
        existing = _instances(table, list(places))
        busy = frozenset(item.gpu_instance_id for item in existing if chance.random() < 0.3)
        _check(table, existing, chance.choice(valid), busy)


@pytest.mark.parametrize("model", mig_models())
def test_what_is_called_impossible_is_refused_by_the_driver_too(tmp_path: Path, model: str) -> None:
    """Valid layouts plus one instance: accepted exactly if the driver can create them."""
    table = table_of(model, tmp_path)
    host = SimulatedHost.make(tmp_path / "host", model)
    empty = host.snapshot()
    found = list(layouts(table))
    valid = {frozenset(counts.items()) for counts in found}
    chance = random.Random(3)
    candidates = [counts + Counter([profile.name]) for counts in found for profile in table.profiles]
    for counts in chance.sample(candidates, min(60, len(candidates))):
        possible = False
        for places in itertools.islice(_arrangements(table, counts), 40):
            host.restore(empty)
            desired = ",".join(f"{table.find(name).profile_id}:{start}" for name, start in sorted(places))
            possible |= host.call("mig", "-i", "0", "-cgi", desired, "-C")[1] == 0
            if possible:
                break
        assert possible == (frozenset(counts.items()) in valid), counts


def _walk(valid: Sequence[Counter[str]], steps: int | None) -> Iterator[Counter[str]]:
    """A random walk over the layouts; with steps None, one through every ordered pair."""
    chance = random.Random(11)
    if steps is not None:
        for _number in range(steps):
            yield chance.choice(valid)
        return
    for number, one in enumerate(valid):
        for other in valid[number + 1 :]:
            yield one
            yield other
        yield one


@pytest.mark.parametrize("model", mig_models())
def test_changes_of_a_simulated_gpu(tmp_path: Path, model: str) -> None:
    """With GPU_FLEET_MIG_PAIRS=all, every ordered pair of the A100's layouts, which takes minutes."""
    every = os.environ.get("GPU_FLEET_MIG_PAIRS") == "all" and model == "a100_40gb"
    table = table_of(model, tmp_path)
    host = SimulatedHost.make(tmp_path / "host", model)
    for desired in _walk(list(layouts(table)), None if every else 40):
        before = host.layout()
        profiles = list(desired.elements())
        planned = _plan(table, _instances(table, [(name, start) for name, start, _sizes in before]), desired)
        run = host.run(profiles=profiles)
        assert run.error is None and names(host.layout()) == desired
        gpu = run.result["gpus"][0]
        assert len(gpu["kept"]) == len(planned.kept)
        assert reported(gpu) == host.layout()
        assert run.result["changed"] is bool(run.changes) is (bool(planned.steps))


def test_divided_gpus_are_planned_by_the_same_rules(tmp_path: Path) -> None:
    """Random compute layouts on a simulated H100: applied, and unchanged by the next run."""
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    chance = random.Random(5)
    choices = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
    bases = [[("7g.80gb", 7)], [("3g.40gb", 3), ("4g.40gb", 4)], [("3g.40gb", 3), ("2g.20gb", 2), ("1g.10gb", 1)]]
    for _number in range(60):
        profiles = []
        for name, slices in chance.choice(bases):
            room = slices
            while room:
                size = chance.choice([item for item in choices[slices] if item <= room])
                profiles.append(name if size == slices else f"{size}c.{name}")
                room -= size
                if room and chance.random() < 0.2:
                    break
        run = host.run(profiles=profiles)
        assert run.error is None, (profiles, run.error)
        shown = [row["profile"] for row in run.result["gpus"][0]["instances"]]
        assert sorted(shown) == sorted(profiles)
        assert host.run(profiles=profiles).changes == []


def test_fixed_starts_are_kept_to(tmp_path: Path) -> None:
    table = table_of("h200", tmp_path)

    for start in (0, 4):
        targets = choose_places(table, parse_layout([f"3g.71gb:{start}", "1g.18gb"]))
        assert [item.start for item in targets if item.desired.profile == "3g.71gb"] == [start]
