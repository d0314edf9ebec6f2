# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Apply MIG layouts to the GPUs of a host. Private to this collection.

All GPUs are planned before any is changed, and impossible requests are refused then. Afterwards all are read back, and
a GPU on which a change failed is rolled back.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Mapping, Sequence

from .._change.assignment import NOT_THERE
from .._change.reset import FindBlockers
from .._common.errors import ChangeError
from .._nvidia_smi.client import Smi
from .._nvidia_smi.remedies import unresponsive
from . import apply as mig_apply
from . import explain as mig_explain
from . import plan as mig_plan
from .layout import Instance
from .mode import ModeChanger, ModeResult
from .observe import Observer, can_place
from .plan import MigPlan
from .profiles import Table
from .rules import DesiredMig, Rules
from .state import GpuState, Host

# A second round repairs concurrent changes by others; a third would hide that they continue.
ROUNDS = 2


@dataclass(frozen=True)
class MigOptions:
    """How to apply the layouts. See the module's documentation."""

    check_mode: bool = False
    force: bool = False
    may_reset: bool = False
    skip_unsupported: bool = False


@dataclass(frozen=True)
class MigJob:
    """One GPU: `before` as found, `after` as last read.

    `plan` None: the profiles can be read only once MIG mode is on. `is_skipped`: it has no MIG. `resets`: its pending
    mode is the desired one, and a reset may apply it.
    """

    before: GpuState
    after: GpuState
    desired: DesiredMig
    plan: MigPlan | None
    table: Table = field(default_factory=lambda: Table(()))
    mode: ModeResult = field(default_factory=ModeResult)
    is_skipped: bool = False
    resets: bool = False

    @property
    def moves_mode(self) -> bool:
        """Whether the pending mode has to be changed."""
        return not self.is_skipped and self.before.will_be_enabled != self.desired.enabled

    @property
    def has_steps(self) -> bool:
        """Whether instances have to be changed, as far as is known."""
        return self.plan is not None and bool(self.plan.steps)

    @property
    def is_changed(self) -> bool:
        """Whether a successful run changed the GPU, also where it has the same instances again."""
        return self.differs or (self.plan is not None and bool(self.plan.leaving or self.plan.destroyed))

    @property
    def differs(self) -> bool:
        """Whether the GPU differs from how it was found. A failed reset or request changes nothing."""
        (was, there) = (
            (gpu.is_enabled, gpu.will_be_enabled, {(item.place, item.compute_sizes) for item in gpu.instances})
            for gpu in (self.before, self.after)
        )
        return was != there

    @property
    def needs_change(self) -> bool:
        """Whether any change is required."""
        return self.moves_mode or self.resets or self.has_steps


@dataclass(frozen=True)
class Outcome:
    """All selected GPUs. `changed`: something was, or in check mode would be, changed."""

    jobs: tuple[MigJob, ...]
    changed: bool
    failed: bool = False


class ConvergeError(ChangeError):
    """A failed change; `outcome` is the state after it, as far as it could be read."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


@dataclass
class Convergence:
    """One run. Call `run` once; `warnings` are for users."""

    rules: Rules
    smi: Smi
    observer: Observer
    find_blockers: FindBlockers
    options: MigOptions
    jobs: list[MigJob] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    # Places by GPU identity where this run destroyed or created anything: a rollback may change only those.
    touched: dict[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    # Whether nvidia-smi confirmed that it destroyed or created an instance, also one that a rollback made again.
    has_changed_instances: bool = False
    # The same of modes, which are restored as well.
    has_changed_modes: bool = False
    has_enabled_modes: bool = False

    def run(self) -> Outcome:
        """Plan for all GPUs before changing any, then apply the plans. Raises ChangeError."""
        host = self._plan_all()
        needed = any(job.needs_change for job in self.jobs)
        if self.options.check_mode:
            return Outcome(tuple(self.jobs), needed)
        if needed:
            self._change(host)
        return Outcome(tuple(self.jobs), any(job.is_changed for job in self.jobs))

    def _plan_all(self) -> Host:
        """Plan; what cached lists make impossible is planned again from fresh ones before it is refused."""
        host = self.observer.observe()
        try:
            self.jobs = self._plan(host)
        except ChangeError:
            if not self.observer.used_cache:
                raise
            host = self.observer.observe_again()
            self.jobs = self._plan(host)
        return host

    def _plan(self, host: Host) -> list[MigJob]:
        assigned = self.rules.assign(host)
        self.warnings = assigned.warnings
        jobs = [MigJob(gpu, gpu, desired, MigPlan(kept=gpu.instances)) for gpu, desired in assigned.gpus]
        jobs = [self._note_pending(self._skip_or_refuse(job)) for job in jobs]
        placements_needed = [job.before for job in jobs if self._needs_placements(job)]
        tables = self.observer.tables(placements_needed) if placements_needed else {}
        if placements_needed and not can_place(host.driver_version):
            raise ChangeError(
                f"driver {host.driver_version} cannot place MIG instances; that takes driver 460 or newer"
            )
        jobs = [self._plan_one(job, tables) for job in jobs]
        if not self.options.force:
            _refuse_busy(jobs)
        return jobs

    def _skip_or_refuse(self, job: MigJob) -> MigJob:
        gpu = job.before
        if gpu.gpu.error is not None:
            raise ChangeError(unresponsive(gpu.label, gpu.gpu.error))
        if gpu.is_capable:
            if gpu.doubt is not None:
                raise ChangeError(f"nothing was changed on {gpu.label}: {gpu.doubt}")
            return job
        reason = dict(gpu.gpu.unknown).get("mig_mode_current", "not available")
        has_none = reason.replace(" ", "_") in NOT_THERE
        if self.options.skip_unsupported or (job.desired.optional and (has_none or job.desired.enabled)):
            return replace(job, is_skipped=True)
        raise ChangeError(
            f"{gpu.label} has no MIG mode ({reason.replace('_', ' ')}); "
            "name other GPUs in gpus, or set on_unsupported to skip"
        )

    def _note_pending(self, job: MigJob) -> MigJob:
        """Note that a desired mode is pending, and what blocks the reset that it requires."""
        gpu = job.before
        if job.is_skipped or not gpu.is_pending or job.moves_mode:
            return job
        blockers = tuple(self.find_blockers(gpu.gpu))
        free = all(blocker.pid is None for blocker in blockers)
        return replace(job, mode=ModeResult(blockers), resets=self.options.may_reset and free)

    def _needs_placements(self, job: MigJob) -> bool:
        """Whether instances have to be created on a GPU that is, or will be, in MIG mode."""
        items = job.desired.items
        gpu = job.before
        if job.is_skipped or not items or mig_plan.is_satisfied(items, gpu.instances):
            return False
        return gpu.is_enabled or job.moves_mode or job.resets

    def _plan_one(self, job: MigJob, tables: Mapping[str, Table]) -> MigJob:
        """Plan the instances of one GPU."""
        items = job.desired.items
        gpu = job.before
        if items == () and gpu.instances:
            return replace(job, plan=mig_plan.plan((), gpu.instances))
        if not items or not self._needs_placements(job):
            return job
        table = tables.get(gpu.identity)
        if table is None:
            if gpu.is_enabled:
                raise ChangeError(f"{gpu.label}: nvidia-smi lists no MIG profiles of it")
            return replace(job, plan=None)
        try:
            targets = mig_explain.choose_places(table, items, gpu.instances, gpu.busy)
        except ChangeError as error:
            raise ChangeError(f"{gpu.label}: {error}") from error
        return replace(job, plan=mig_apply.plan_change(self.observer, gpu, gpu.instances, targets), table=table)

    def _change(self, host: Host) -> None:
        """Enable MIG modes, then change instances, then disable MIG modes.

        Where GPUs can be reset only as a group, GPUs to be enabled may have to wait for GPUs to be disabled.
        """
        declared = {job.before.identity: job.desired.enabled for job in self.jobs if not job.is_skipped}
        modes = ModeChanger(self.smi, self.observer, self.find_blockers, self.options.may_reset, declared)
        try:
            host = self._set_modes(modes, host, True)
            self.has_enabled_modes = True
            self._plan_deferred()
            host = self._change_instances(host)
            waiting = [job.before.identity for job in self.jobs if job.desired.enabled and job.after.is_pending]
            host = self._set_modes(modes, host, False)
            if any(host.find(identity).is_enabled for identity in waiting):
                self._plan_deferred()
                self._change_instances(host)
        except ChangeError as error:
            restored = self._restore_modes(modes)
            self.has_changed_modes = modes.has_changed
            raise ConvergeError("; ".join((str(error), *restored)), self._truth()) from error

    def _set_modes(self, modes: ModeChanger, host: Host, enable: bool) -> Host:
        """Set the mode of the GPUs whose desired mode is `enable`, and read all GPUs again."""
        requested = {
            job.before.identity: enable
            for job in self.jobs
            if job.desired.enabled == enable and (job.moves_mode or job.resets)
        }
        if not requested:
            return host
        try:
            host, results = modes.set(host, requested)
        except ChangeError as error:
            meant = [job for job in self.jobs if job.before.identity in requested]
            emptied = [job for job in meant if job.has_steps and not enable]
            raise ChangeError("; ".join((str(error), *self._restore_all(emptied)))) from error
        self._update(host)
        self.jobs = [replace(job, mode=results.get(job.before.identity, job.mode)) for job in self.jobs]
        return host

    def _restore_modes(self, modes: ModeChanger) -> list[str]:
        """Disable MIG mode again where this run enabled it in vain: a GPU in MIG mode without instances is unusable.

        The present state is read first: a GPU that got instances keeps its mode. Describes the result.
        """
        vain = [
            job
            for job in self.jobs
            if job.moves_mode and job.desired.enabled and (job.desired.items or not self.has_enabled_modes)
        ]
        if not vain:
            return []
        self.smi.allow_restoring()
        left, messages = vain, []
        try:
            host = self.observer.observe_again()
            found = {job.before.identity: host.find(job.before.identity) for job in vain}
            left = [job for job in vain if _is_unusable(found[job.before.identity])]
            switched = {job.before.identity: False for job in left if _is_known(found[job.before.identity])}
            if switched:
                host, _results = modes.set(host, switched)
            left = [job for job in left if _is_unusable(host.find(job.before.identity))]
            back = [job for job in vain if job.before.identity in switched and job not in left]
            later = any(host.find(job.before.identity).is_pending for job in back)
            if back:
                when = ", which takes effect at the next reset" if later else ""
                messages.append(f"MIG mode of {_labels(back)} was disabled again{when}")
        except ChangeError as error:
            messages.append(f"disabling MIG mode again failed: {error}")
            with contextlib.suppress(ChangeError):
                host = self.observer.observe_again()
                left = [job for job in left if _is_unusable(host.find(job.before.identity))]
        if left:
            calls = ", ".join(f"nvidia-smi -i {job.before.identity} -mig 0" for job in left)
            messages.append(
                f"MIG mode, which this run enabled, may still be on, and nothing can use a GPU in MIG mode without "
                f"instances: {_labels(left)}; run again, or disable it ({calls})"
            )
        return messages

    def _plan_deferred(self) -> None:
        """Plan for GPUs whose profiles could not be read before."""
        fresh = [job for job in self.jobs if job.plan is None and job.after.is_enabled]
        tables = self.observer.tables([job.after for job in fresh]) if fresh else {}
        for place, job in enumerate(self.jobs):
            if job in fresh:
                planned = self._plan_one(replace(job, before=job.after), tables)
                self.jobs[place] = replace(job, plan=planned.plan, table=planned.table)

    def _change_instances(self, host: Host) -> Host:
        """Apply the plans of all GPUs, then read all of them back once."""
        for attempt in range(ROUNDS):
            made: dict[str, dict[int, int]] = {}
            for job in self.jobs:
                if job.has_steps and job.after.is_enabled:
                    made[job.before.identity] = self._carry_out(job)
            if not made:
                return host
            try:
                host = self.observer.read_again(host, made)
            except ChangeError as error:
                raise ChangeError(f"the changes were made, but the current state cannot be read: {error}") from error
            self._update(host)
            wrong = {job.before.identity for job in self.jobs if job.before.identity in made and not _is_reached(job)}
            if not wrong:
                self.observer.put(host, {job.before.identity: job.table for job in self.jobs})
                return host
            host = self.observer.observe_again()
            self._update(host)
            failed = [job for job in self.jobs if job.before.identity in wrong]
            if attempt == ROUNDS - 1:
                break
            tables = {job.before.identity: job.table for job in failed}
            for place, job in enumerate(self.jobs):
                if job in failed:
                    # Planned from the current state; `before` is kept for a rollback.
                    again = self._plan_one(replace(job, before=job.after), tables)
                    self.jobs[place] = replace(job, plan=again.plan)
        reported = f"{_labels(failed)}: nvidia-smi reported success, but the instances differ from the requested ones"
        raise ChangeError("; ".join((reported, *self._restore_all(failed))))

    def _carry_out(self, job: MigJob) -> dict[int, int]:
        """Change one GPU, or roll it back; gives the ids of the created compute instances by GPU instance id."""
        table = mig_plan.table_of(job.before.instances, job.table)
        worker = mig_apply.Worker(self.smi, self.observer, job.before, table)
        plan = job.plan or MigPlan()
        self.touched[job.before.identity] = self.touched.get(job.before.identity, frozenset()) | plan.touched
        try:
            worker.carry_out(plan, job.after.instances)
        except ChangeError as error:
            raise ChangeError(f"{job.before.label}: {error}; {self._restore(job)}{self._others(job)}") from error
        finally:
            self.has_changed_instances |= worker.has_changed
        return worker.made

    def _restore_all(self, jobs: Sequence[MigJob]) -> list[str]:
        return [f"{job.before.label}: {self._restore(job)}" for job in jobs]

    def _restore(self, job: MigJob) -> str:
        """Restore the former instances of one GPU at their former places, and describe the result."""
        self.smi.allow_restoring()
        before = job.before.instances
        touched = self.touched.get(job.before.identity, frozenset())
        trouble = ""
        try:
            now = self.observer.instances(job.before)
            table = mig_plan.table_of((*before, *now), job.table)
            worker = mig_apply.Worker(self.smi, self.observer, job.before, table)
            try:
                worker.restore(mig_plan.to_restore(before, now, touched), now)
            finally:
                self.has_changed_instances |= worker.has_changed
        except ChangeError as error:
            trouble = str(error)
        try:
            now = self.observer.instances(job.before)
        except ChangeError as error:
            return f"the current state cannot be read: {error}"
        restored, lost, added = _compare(before, now)
        others = [item for item in added if item.place not in touched]
        made = [item for item in added if item.place in touched]
        left = f"; not created by this run, and left: {_names(others)}" if others else ""
        if not lost and not made:
            return f"its former instances are back at their places: {_names(restored) or 'none'}{left}"
        parts = [f"restoring its former instances failed ({trouble or 'nvidia-smi reported success'})"]
        parts.append(f"there or restored: {_names(restored) or 'none'}")
        parts.append(f"not restored: {_names(lost) or 'none'}")
        parts.append(f"there but not before: {_names(made) or 'none'}{left}")
        return "; ".join(parts)

    def _others(self, failed: MigJob) -> str:
        """The state of the other GPUs, for the error message."""
        position = [job.before.identity for job in self.jobs].index(failed.before.identity)
        done = [job for job in self.jobs[:position] if job.has_steps]
        left = [job for job in self.jobs[position + 1 :] if job.has_steps]
        messages = f"; {_labels(done)} already changed and stay so" if done else ""
        return messages + (f"; {_labels(left)} were not touched" if left else "")

    def _update(self, host: Host) -> None:
        """Store what was read; a GPU in doubt keeps its last known state. Raises ChangeError for those."""
        read = {job.before.identity: host.find(job.before.identity) for job in self.jobs}
        unknown = {identity for identity, gpu in read.items() if gpu.doubt is not None}
        unknown -= {job.before.identity for job in self.jobs if job.is_skipped}
        self.jobs = [
            job if job.before.identity in unknown else replace(job, after=read[job.before.identity])
            for job in self.jobs
        ]
        if unknown:
            raise ChangeError("; ".join(f"{read[item].label}: {read[item].doubt}" for item in sorted(unknown)))

    def _truth(self) -> Outcome:
        """The state after a failure. Where it cannot be read, the last known one, which every call may have changed."""
        changed = bool(self.smi.commands)
        with contextlib.suppress(ChangeError):
            self._update(self.observer.observe_again())
            changed = self.has_changed_instances or self.has_changed_modes or any(job.differs for job in self.jobs)
        return Outcome(tuple(self.jobs), changed, failed=True)


def _refuse_busy(jobs: Sequence[MigJob]) -> None:
    """Refuse before the first change when instances that are in use would be destroyed."""
    used = [
        f"{job.before.label}: {instance} (GPU instance {instance.gpu_instance_id}, compute instance "
        f"{compute.compute_instance_id}) is used by {', '.join(job.before.busy[key])}"
        for job in jobs
        if job.plan is not None
        for instance in job.before.instances
        for compute in instance.compute
        for key in [(instance.gpu_instance_id, compute.compute_instance_id)]
        if key in job.plan.leaving and key in job.before.busy
    ]
    if used:
        raise ChangeError(
            "nothing was changed, since instances that are in use would be destroyed (force: true tries it): "
            + "; ".join(used)
        )


def _is_known(gpu: GpuState) -> bool:
    return gpu.doubt is None and gpu.gpu.error is None


def _is_unusable(gpu: GpuState) -> bool:
    """Whether a GPU is, or may be, in MIG mode without instances, now or after the next reset."""
    return gpu.gpu.error is not None or (gpu.will_be_enabled and not gpu.instances)


def _is_reached(job: MigJob) -> bool:
    return (
        job.plan is None
        or {instance.place: instance.compute_sizes for instance in job.after.instances} == job.plan.places
    )


def _compare(
    requested: Sequence[Instance], there: Sequence[Instance]
) -> tuple[list[Instance], list[Instance], list[Instance]]:
    """The instances of `requested` that exist, those that are missing, and additional ones; compute instances count."""
    now = {(item.place, item.compute_sizes) for item in there}
    before = {(item.place, item.compute_sizes) for item in requested}
    restored = [item for item in requested if (item.place, item.compute_sizes) in now]
    lost = [item for item in requested if (item.place, item.compute_sizes) not in now]
    added = [item for item in there if (item.place, item.compute_sizes) not in before]
    return restored, lost, added


def _names(instances: Sequence[Instance]) -> str:
    return ", ".join(map(str, instances))


def _labels(jobs: Sequence[MigJob]) -> str:
    return ", ".join(job.before.label for job in jobs)
