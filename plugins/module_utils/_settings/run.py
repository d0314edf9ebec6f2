# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module gpu_settings, from its options to its result. Private to this collection."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any, Mapping

from .._change import locked_clocks
from .._change.assignment import ADVICE, Assignment, Declared, UnsupportedError, assign, find
from .._change.context import Access, access
from .._change.locked_clocks import LockedClocks
from .._change.quick_check import quick_check
from .._change.steps import Step, carry_out, is_confirmed, is_unsupported
from .._common.errors import ChangeError, RunError
from .._common.runner import CommandResult
from . import plan as settings_plan
from . import request as settings_request
from .plan import Target
from .report import VOLATILE, Job, diff, report

DEFAULTS: Mapping[str, Any] = {
    "gpus": ("all",),
    **dict.fromkeys(settings_request.NAMES),
    "settings": None,
    "on_unsupported": "fail",
    "executable": "nvidia-smi",
    "timeout": 60.0,
    "lock_timeout": 300.0,
}
"""The module's options with their defaults."""


def run(params: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's options `params`, with defaults for those left out. Raises RunError.

    Returns the module's result, with `warnings` for users in addition.
    """
    options = {**DEFAULTS, **params}
    return converge(options, access(options, locked_clocks.CACHE_FILE, check_mode), check_mode, with_diff)


def converge(options: Mapping[str, Any], host: Access, check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """The run on a given host; see `run`."""
    convergence = _Convergence(options, host)
    failure: ChangeError | None = None
    try:
        with host.lock:
            convergence.run(check_mode)
    except ChangeError as error:
        failure = error
    unread = convergence.is_unread and bool(host.smi.commands)
    changed = unread or any(job.changed for job in convergence.jobs)
    result = report(convergence.jobs, changed, host.smi.commands)
    result["warnings"][:0] = convergence.warnings
    if with_diff:
        result["diff"] = diff(convergence.jobs)
    if failure is not None:
        raise RunError(str(failure), result) from failure
    return result


class _Convergence:
    """The work. `warnings` are about the options; `is_unread`: the state after changes could not be read."""

    def __init__(self, options: Mapping[str, Any], host: Access) -> None:
        self.jobs: list[Job] = []
        self.warnings: tuple[str, ...] = ()
        self.is_unread = False
        self._options = options
        self._smi = host.smi
        self._clocks = LockedClocks(host.cache)
        self._skips = options["on_unsupported"] == "skip"

    def run(self, check_mode: bool) -> None:
        """Plan for all GPUs before changing any, apply the changes, and read all GPUs back."""
        declared = settings_request.parse_settings(self._options)
        if self._is_settled(declared):
            return
        self._plan(assign(self._smi.document().gpus, declared))
        if check_mode:
            self.jobs = [
                replace(job, after={**job.before, **{target.setting: target.value for target in job.targets}})
                for job in self.jobs
            ]
            return
        steps = self._steps()
        if not steps:
            return
        try:
            message = carry_out(self._smi, steps, self._call, self._read_again, self._skips)
        except ChangeError as error:
            self.is_unread = True
            with contextlib.suppress(ChangeError):
                self._read_again()
                self.is_unread = False
            raise ChangeError("; ".join((str(error), *self._hints()))) from error
        self.jobs = [_without(job, message) for job in self.jobs]

    def _is_settled(self, declared: Declared) -> bool:
        """Whether a quick check proves that there is nothing to change, refuse or report."""
        gpus = quick_check(self._smi)
        if gpus is not None:
            with contextlib.suppress(ChangeError):
                self._plan(assign(gpus, declared))
                if not self._steps() and not any(job.skipped for job in self.jobs):
                    return True
        self.jobs = []
        return False

    def _steps(self) -> list[Step]:
        """The required calls."""
        return [step for job in self.jobs for step in settings_plan.plan(job.targets, job.after)]

    def _plan(self, assignment: Assignment) -> None:
        """Plan every GPU; all impossible requests are reported in one error."""
        refused: list[str] = []
        self.warnings = assignment.warnings
        for gpu, desired_instances in assignment.gpus:
            targets: list[Target] = []
            skipped: dict[str, str] = {}
            for setting in (name for name in settings_request.NAMES if name in desired_instances):
                try:
                    targets.append(settings_plan.resolve(gpu, setting, desired_instances[setting]))
                except UnsupportedError as error:
                    skipped[setting] = str(error)
                    if not self._skips:
                        refused.append(f"{error}; {ADVICE}")
                except ChangeError as error:
                    refused.append(str(error))
            values = settings_plan.read(gpu, self._clocks)
            self.jobs.append(Job(gpu, values, values, tuple(targets), skipped))
        if refused:
            raise ChangeError("nothing was changed: " + "; ".join(refused))

    def _call(self, step: Step) -> CommandResult:
        """Make a call; locked clocks are cached only if nvidia-smi confirmed them."""
        if step.setting not in locked_clocks.SETTINGS:
            return self._smi.change(*step.arguments)
        (job,) = (job for job in self.jobs if job.gpu.identity == step.identity)
        (target,) = (target for target in job.targets if target.step == step)
        # Invalidated before the call: this run may be killed after it.
        self._clocks.invalidate(step.identity, step.setting)
        result = self._smi.change(*step.arguments)
        known = job.before[step.setting] if is_unsupported(result) else target.value if is_confirmed(result) else None
        if known is not None:
            self._clocks.confirm(step.identity, step.setting, known)
        return result

    def _read_again(self) -> list[Step]:
        """Read all GPUs again; gives the steps that are still missing."""
        gpus = self._smi.document().gpus
        jobs = []
        for job in self.jobs:
            gpu = find(gpus, job.gpu.identity)
            jobs.append(replace(job, gpu=gpu, after=settings_plan.read(gpu, self._clocks)))
        self.jobs = jobs
        return self._steps()

    def _hints(self) -> list[str]:
        """Common causes of settings that do not take effect."""
        missing = {
            (target.setting, job.after["persistence_mode"] == "disabled")
            for job in self.jobs
            for target in job.targets
            if job.after[target.setting] != target.value
        }
        hints = []
        if "persistence_mode" in dict(missing) and os.path.exists(locked_clocks.PERSISTENCED):
            hints.append("nvidia-persistenced runs and sets persistence mode for nvidia-smi: its journal may tell more")
        if any((setting, True) in missing for setting in VOLATILE):
            hints.append(
                "persistence mode is off, and then the driver forgets such settings as soon as nothing uses the GPU: "
                "set persistence_mode to true"
            )
        return hints


def _without(job: Job, message: Mapping[Step, str]) -> Job:
    """The job without the settings that its GPU turned out not to support."""
    refused = {
        target.setting: f"{target.step}: {message[target.step]}" for target in job.targets if target.step in message
    }
    targets = tuple(target for target in job.targets if target.setting not in refused)
    return replace(job, targets=targets, skipped={**job.skipped, **refused})
