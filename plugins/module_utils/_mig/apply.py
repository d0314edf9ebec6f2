# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply a plan to one GPU, step by step, with retries where the driver refuses. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice, permutations
from typing import Iterable, Sequence

from .._common.errors import ChangeError
from .._common.runner import CommandResult
from .._nvidia_smi.client import IN_USE, NO_ROOM, Smi, explain, status
from . import plan as mig_plan
from .layout import Instance, Placement
from .observe import Observer
from .plan import CreateCompute, CreateInstances, DestroyCompute, DestroyInstances, MigPlan, Step
from .profiles import Table
from .request import DesiredInstance
from .state import GpuState

_DONE = re.compile(r"Successfully (?:created|destroyed) (GPU|compute) instance\b")
_MADE = re.compile(r"Successfully created compute instance ID\s+(\d+) (?:on|from) GPU\s+\d+ GPU instance ID\s+(\d+)")
_MOST_ORDERS = 5040


class StepError(ChangeError):
    """A step that failed after all attempts."""


class Worker:
    """Changes one GPU. `made` has, by GPU instance id, the compute instance id that nvidia-smi reported as created.

    `has_changed`: nvidia-smi reported that it created or destroyed something.
    """

    def __init__(self, smi: Smi, observer: Observer, gpu: GpuState, table: Table) -> None:
        self.made: dict[int, int] = {}
        self.has_changed = False
        self._smi = smi
        self._observer = observer
        self._gpu = gpu
        self._table = table

    def carry_out(self, plan: MigPlan, now: Sequence[Instance]) -> None:
        """Make the steps of `plan`, as they are, on a GPU with the instances `now`. Raises StepError.

        The plan is made again, for the same places, only where it is not for `now`, and where nvidia-smi's output does
        not confirm a step: then the GPU is read, which also covers partial success and false reports of success.
        """
        goal = pinned(plan)
        if not _is_same(plan.existing, now):
            plan = plan_change(self._observer, self._gpu, now, self._places(goal, now))
        pauses = self._smi.retry_policy.pauses()
        for attempt in range(len(pauses) + 1):
            refusal = self._try(plan.steps, attempt)
            if refusal is None:
                return
            step, result = refusal
            now = self._observer.instances(self._gpu)
            targets = self._places(goal, now)
            if not mig_plan.plan(targets, now).steps:
                return
            if attempt == len(pauses) or not _is_transient(step, result):
                raise StepError(f"{_describe(step)} failed: {_why(result)}", is_hang=result.timed_out)
            self._smi.sleep(pauses[attempt])
            plan = plan_change(self._observer, self._gpu, now, targets)

    def restore(self, instances: Sequence[Instance], now: Sequence[Instance]) -> None:
        """Turn `now` into `instances`, at the same places; see carry_out."""
        targets = self._places(mig_plan.as_desired(instances), now)
        self.carry_out(plan_change(self._observer, self._gpu, now, targets), now)

    def _places(self, goal: Sequence[DesiredInstance], now: Sequence[Instance]) -> tuple[Placement, ...]:
        return mig_plan.choose_places(self._table, now, goal, self._gpu.busy)

    def _try(self, steps: Sequence[Step], attempt: int) -> tuple[Step, CommandResult] | None:
        """Run the steps in order; gives the first that nvidia-smi did not confirm."""
        for step in steps:
            result = self._smi.change(*self._arguments(step, attempt))
            for compute, instance in _MADE.findall(result.text):
                self.made[int(instance)] = int(compute)
            done = len(_DONE.findall(result.text))
            self.has_changed |= done > 0
            if result.rc != 0 or done < _expected(step):
                return step, result
        return None

    def _arguments(self, step: Step, attempt: int) -> tuple[str, ...]:
        """The call for a step. It names a single GPU, and each instance by its id or its place."""
        gpu = ("mig", "-i", self._gpu.identity)
        if isinstance(step, DestroyCompute):
            instances = _list(sorted({instance for instance, _compute in step.ids}))
            if step.whole:
                return (*gpu, "-dci", "-gi", instances)
            return (*gpu, "-dci", "-gi", instances, "-ci", _list(compute for _instance, compute in step.ids))
        if isinstance(step, DestroyInstances):
            return (*gpu, "-dgi", "-gi", _list(step.gpu_instance_ids))
        if isinstance(step, CreateInstances):
            places = _list(f"{target.profile.profile_id}:{target.start}" for target in step.targets)
            return (*gpu, "-cgi", places, *(("-C",) if step.whole else ()))
        return self._create_compute(step, attempt)

    def _create_compute(self, step: CreateCompute, attempt: int) -> tuple[str, ...]:
        """The call to create compute instances, whose GPU instance id and profiles are known only once that exists.

        The driver alone places compute instances, so whether they fit can depend on their order: each attempt uses
        another one.
        """
        for instance in self._observer.instances(self._gpu):
            if instance.place == step.place:
                break
        else:
            raise StepError(f"{_describe(step)} failed: there is no such GPU instance")
        target = ("-gi", str(instance.gpu_instance_id))
        if step.sizes == (instance.slices,):
            # Without a profile id nvidia-smi uses the default, the whole GPU instance.
            return ("mig", "-i", self._gpu.identity, *target, "-cci")
        offered = self._observer.compute_profiles(self._gpu, instance.gpu_instance_id)
        missing = sorted(set(step.sizes) - set(offered))
        if missing:
            raise StepError(
                f"{_describe(step)} failed: {instance.profile} has no compute instances of {missing} slices"
            )
        return (
            "mig",
            "-i",
            self._gpu.identity,
            *target,
            "-cci",
            _list(offered[size] for size in _order(step.sizes, attempt)),
        )


def plan_change(
    observer: Observer,
    gpu: GpuState,
    existing: Sequence[Instance],
    targets: Sequence[Placement],
) -> MigPlan:
    """Plan; where new compute instances join existing ones, the existing ones' places are read first."""
    plan = mig_plan.plan(targets, existing, gpu.busy)
    leaving = dict(plan.compute_destroyed)
    if all(len(instance.compute) == len(leaving.get(instance, ())) for instance, _sizes in plan.compute_created):
        return plan
    starts = {
        (instance.gpu_instance_id, item.compute_instance_id): item.start
        for instance in observer.instances(gpu)
        for item in instance.compute
    }
    # Only the starts are new; keep the known UUIDs of existing instances.
    placed = [
        replace(
            instance,
            compute=tuple(
                replace(item, start=starts.get((instance.gpu_instance_id, item.compute_instance_id)))
                for item in instance.compute
            ),
        )
        for instance in existing
    ]
    return mig_plan.plan(targets, placed, gpu.busy, observer.divisions(gpu))


def pinned(plan: MigPlan) -> tuple[DesiredInstance, ...]:
    """The final state of a plan as desired instances with places."""
    kept = {instance.place: instance for instance in plan.kept}
    created = {target.place: target.desired for target in plan.created}
    return tuple(
        replace(created[place], start=place[1])
        if place in created
        else DesiredInstance(kept[place].profile, kept[place].slices, sizes, place[1])
        for place, sizes in plan.places.items()
    )


def _order(sizes: Sequence[int], attempt: int) -> tuple[int, ...]:
    """The order for an attempt: largest first, then smallest first, then other permutations."""
    first = tuple(sorted(sizes, reverse=True))
    # A GPU instance holds at most seven compute instances, and then all are of one size.
    orders = dict.fromkeys((first, first[::-1], *islice(permutations(first), _MOST_ORDERS)))
    return list(orders)[attempt % len(orders)]


def _is_same(some: Sequence[Instance], others: Sequence[Instance]) -> bool:
    """Whether the instances are the same ones; UUIDs and places of compute instances may be unknown."""
    return _ids(some) == _ids(others)


def _ids(instances: Sequence[Instance]) -> set[tuple[object, ...]]:
    return {
        (item.gpu_instance_id, item.place, frozenset((part.compute_instance_id, part.slices) for part in item.compute))
        for item in instances
    }


def _is_transient(step: Step, result: CommandResult) -> bool:
    """Whether the failure may be transient: no effect, something in use, or an order that does not fit."""
    unlucky = isinstance(step, CreateCompute) and status(result) == NO_ROOM
    return result.rc == 0 or status(result) == IN_USE or unlucky


def _expected(step: Step) -> int:
    """How many created or destroyed instances nvidia-smi reports on success."""
    if isinstance(step, DestroyCompute):
        return len(step.ids)
    if isinstance(step, DestroyInstances):
        return len(step.gpu_instance_ids)
    if isinstance(step, CreateInstances):
        return len(step.targets) * (2 if step.whole else 1)
    return len(step.sizes)


def _describe(step: Step) -> str:
    if isinstance(step, DestroyCompute):
        return "destroying the compute instances of GPU instances " + _list(sorted({item for item, _ci in step.ids}))
    if isinstance(step, DestroyInstances):
        return "destroying the GPU instances " + _list(step.gpu_instance_ids)
    if isinstance(step, CreateInstances):
        return "creating " + ", ".join(map(str, step.targets))
    return f"creating compute instances of {_list(step.sizes)} slices in the GPU instance at {step.place[1]}"


def _why(result: CommandResult) -> str:
    return explain(result) + ("; it reported success but nothing changed" if result.rc == 0 else "")


def _list(items: Iterable[object]) -> str:
    return ",".join(map(str, items))
