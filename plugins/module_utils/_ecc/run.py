# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module ecc_mode, from its options to its result. Private to this collection."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import Any, Mapping

from .._change.assignment import ADVICE, Assignment, Declared, UnsupportedError, assign, find
from .._change.context import Access, access
from .._change.quick_check import quick_check
from .._change.reset import IN_USE, NOT_NAMED, NOT_RESET, ResetResult, Resetter
from .._change.steps import Step, carry_out
from .._common.errors import ChangeError, RunError
from .._common.runner import CommandResult
from .._nvidia_smi import listing
from .._nvidia_smi.gpu import Gpu
from . import plan as ecc_plan
from .report import Job, diff, report

DEFAULTS: Mapping[str, Any] = {
    "gpus": ("all",),
    "enabled": None,
    "clear_counters": None,
    "modes": None,
    "reset": "never",
    "on_unsupported": "fail",
    "executable": "nvidia-smi",
    "timeout": 60.0,
    "lock_timeout": 300.0,
}
"""The module's options with their defaults."""

CACHE_FILE = "/run/gpu-fleet/ecc.json"

HOLDS_INSTANCES = NOT_RESET + "it has MIG instances, which a reset destroys: "
MAY_HOLD_INSTANCES = NOT_RESET + "whether it has MIG instances, which a reset destroys, is not certain: "
INSTANCES_ADVICE = "; destroy them with mig_profile, or reboot the host, after which they are gone as well"
_NO_INSTANCES = re.compile("no gpu instances found", re.IGNORECASE)
IN_VAIN = "a reset did not bring the ECC mode into effect; reboot the host"


def run(params: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's options `params`, with defaults for those left out. Raises RunError.

    Returns the module's result, with `warnings` for users in addition.
    """
    options = {**DEFAULTS, **params}
    return converge(options, access(options, CACHE_FILE, check_mode), check_mode, with_diff)


def converge(options: Mapping[str, Any], host: Access, check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """The run on a given host; see `run`."""
    convergence = _Convergence(options, host, check_mode)
    failure: ChangeError | None = None
    try:
        with host.lock:
            convergence.run()
    except ChangeError as error:
        failure = error
    changed = convergence.is_changed or (convergence.is_unread and bool(host.smi.commands))
    result = report(convergence.jobs, changed, host.smi.commands, check_mode)
    result["warnings"][:0] = convergence.warnings
    if with_diff:
        result["diff"] = diff(convergence.jobs)
    if failure is not None:
        raise RunError(str(failure), result) from failure
    return result


class _Convergence:
    """The work. `warnings` are about the options; `is_unread`: the state after changes could not be read."""

    def __init__(self, options: Mapping[str, Any], host: Access, check_mode: bool) -> None:
        self.jobs: list[Job] = []
        self.warnings: tuple[str, ...] = ()
        self.is_unread = False
        self._options = options
        self._smi = host.smi
        self._host = host
        self._check_mode = check_mode
        self._skips = options["on_unsupported"] == "skip"

    @property
    def is_changed(self) -> bool:
        """Whether something was, or in check mode would be, changed."""
        if self._check_mode:
            return any(job.steps or job.needs_reset for job in self.jobs)
        return any(job.is_changed for job in self.jobs)

    def run(self) -> None:
        """Plan for all GPUs before changing any, apply the changes, and read all GPUs back."""
        declared = ecc_plan.parse_modes(self._options)
        if self._is_settled(declared):
            return
        self._plan(assign(self._smi.document().gpus, declared))
        if self._check_mode:
            self.jobs = [replace(job, after=ecc_plan.predicted(job.before, job.steps)) for job in self.jobs]
            self._note_resets()
            return
        try:
            self._change()
            self._note_resets()
            self._reset()
        except ChangeError:
            self.is_unread = True
            with contextlib.suppress(ChangeError):
                self._read_again()
                self.is_unread = False
            raise

    def _is_settled(self, declared: Declared) -> bool:
        """Whether a quick check proves that there is nothing to change, refuse or report."""
        gpus = quick_check(self._smi)
        if gpus is not None:
            with contextlib.suppress(ChangeError):
                self._plan(assign(gpus, declared))
                if not any(job.steps or job.skipped or job.is_pending for job in self.jobs):
                    return True
        self.jobs = []
        return False

    def _plan(self, assignment: Assignment) -> None:
        """Plan every GPU; all impossible requests are reported in one error."""
        refused = []
        self.warnings = assignment.warnings
        for gpu, desired_instances in assignment.gpus:
            try:
                ecc_plan.check(gpu, desired_instances)
                job = Job(gpu, gpu, desired_instances, ecc_plan.plan(gpu, desired_instances))
            except UnsupportedError as error:
                job = Job(gpu, gpu, desired_instances, skipped=str(error))
                if not self._skips:
                    refused.append(f"{error}; {ADVICE}")
            except ChangeError as error:
                job = Job(gpu, gpu, desired_instances)
                refused.append(str(error))
            self.jobs.append(job)
        if refused:
            self.jobs = [replace(job, steps=()) for job in self.jobs]
            raise ChangeError("nothing was changed: " + "; ".join(refused))

    def _change(self) -> None:
        steps = [step for job in self.jobs for step in job.steps]
        if steps:
            message = carry_out(self._smi, steps, self._call, self._read_again, self._skips)
            self.jobs = [
                replace(job, missed=tuple(f"{step}: {message[step]}" for step in job.steps if step in message))
                for job in self.jobs
            ]

    def _call(self, step: Step) -> CommandResult:
        return self._smi.change(*step.arguments)

    def _read_again(self) -> tuple[Step, ...]:
        """Read all GPUs again; gives the steps that are still missing."""
        gpus = self._smi.document().gpus
        self.jobs = [replace(job, after=find(gpus, job.before.identity)) for job in self.jobs]
        return tuple(
            step for job in self.jobs if job.skipped is None for step in ecc_plan.plan(job.after, job.desired_instances)
        )

    def _note_resets(self) -> None:
        """Find the GPUs that wait for a reset, and their blockers."""
        self.jobs = [self._with_prospect(job) if job.is_pending else job for job in self.jobs]

    def _with_prospect(self, job: Job) -> Job:
        gpu = job.after
        blockers = tuple(self._host.find_blockers(gpu))
        if self._host.cache.get((gpu.identity,), gpu.basics.ecc_mode_pending) is not None:
            return replace(job, reset=ResetResult(blockers, is_impossible=True, note=IN_VAIN))
        is_declared = job.skipped is None and job.desired_instances.get(ecc_plan.ENABLED) == ecc_plan.will_be_on(gpu)
        if self._options["reset"] != "if_required" or not is_declared:
            return replace(job, reset=ResetResult(blockers))
        note = self._instances_note(gpu)
        if note is None and any(blocker.pid is not None for blocker in blockers):
            note = IN_USE
        return replace(job, reset=ResetResult(blockers, note=note), needs_reset=note is None)

    def _instances_note(self, gpu: Gpu) -> str | None:
        """Why MIG instances block a reset of the GPU; None where it certainly has none.

        Instances without compute instances are not in the document. An empty list is accepted only with nvidia-smi's
        explicit message, and where the document agrees.
        """
        if gpu.basics.mig_mode_current != "enabled" and not gpu.mig_devices:
            return None
        try:
            (text,) = self._smi.read(("mig", "-i", gpu.identity, "-lgi"))
            found = listing.list_gpu_instances(text)
        except ChangeError as error:
            return f"{MAY_HOLD_INSTANCES}{error}"
        except listing.ListingError as error:
            return f"{MAY_HOLD_INSTANCES}nvidia-smi's list is not understood: {error}"
        if found.rows:
            return HOLDS_INSTANCES + ", ".join(f"{item.name}:{item.start}" for item in found.rows) + INSTANCES_ADVICE
        if gpu.mig_devices or found.unread or not _NO_INSTANCES.search(text):
            seen = f"the document has {len(gpu.mig_devices)}" if gpu.mig_devices else "does not say so"
            return f"{MAY_HOLD_INSTANCES}nvidia-smi mig -lgi lists none, and {seen}; run this again"
        return None

    def _reset(self) -> None:
        """Reset the GPUs that wait for it, and check whether the mode was applied."""
        waiting = [job.after for job in self.jobs if job.needs_reset]
        if not waiting:
            return
        resetter = Resetter(self._smi, self._host.find_blockers, lambda: self._smi.document().gpus, self._why_not)
        results = resetter.reset(waiting)
        self.jobs = [replace(job, reset=results.get(job.after.identity, job.reset)) for job in self.jobs]
        self._read_again()
        for place, job in enumerate(self.jobs):
            if job.needs_reset and job.is_pending and job.reset.note is None:
                self._host.cache.put((job.after.identity,), job.after.basics.ecc_mode_pending, (IN_VAIN,))
                self.jobs[place] = replace(job, reset=ResetResult(is_impossible=True, note=IN_VAIN))

    def _why_not(self, gpu: Gpu) -> str | None:
        """Why a GPU may not be reset in a group with one that waits for it."""
        for job in self.jobs:
            if job.after.identity == gpu.identity:
                if job.needs_reset:
                    return None
                return (job.reset.note or "its ECC mode does not wait for a reset").replace(NOT_RESET, "")
        return NOT_NAMED
