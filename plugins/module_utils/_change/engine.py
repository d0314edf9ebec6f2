# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The course of a change: observe, plan, refuse or show, apply, read back, report. Private to this collection."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Callable, Generic, Mapping, Sequence, Tuple, TypeVar

from .._common.errors import ChangeError, RunError, is_hang_of_host
from .._common.runner import CommandResult
from .._nvidia_smi.gpu import Gpu
from .assignment import ADVICE, Declared, UnsupportedError, assign, find
from .context import Access
from .quick_check import quick_check
from .steps import Step, carry_out

Job = TypeVar("Job")
"""One GPU in a run: as found, as last read, and what is declared for it."""

Planned = Tuple[Job, Sequence[ChangeError]]
"""A job, and why parts of what is declared are impossible on this GPU."""


@dataclass(frozen=True)
class Change(Generic[Job]):
    """The parts of a run that differ between modules. All but `call` and `follow_up` only compute."""

    parse: Callable[[Mapping[str, Any]], Declared]
    plan: Callable[[Gpu, Mapping[str, Any]], Planned[Job]]
    steps: Callable[[Job], Sequence[Step]]
    """The calls that are missing, according to the last reading."""
    is_settled: Callable[[Job], bool]
    """Whether there is nothing to change, skip or report."""
    predict: Callable[[Job], Job]
    """The job after its steps, for check mode."""
    update: Callable[[Job, Gpu], Job]
    """The job with a new reading of its GPU."""
    omit: Callable[[Job, Mapping[Step, str]], Job]
    """The job without steps that the GPU turned out not to support, given with nvidia-smi's output."""
    identity: Callable[[Job], str]
    is_changed: Callable[[Job], bool]
    """Whether the GPU was, or in check mode would be, changed."""
    report: Callable[[Sequence[Job], bool, Sequence[str]], dict[str, Any]]
    """The module's result, from the jobs, `changed` and the commands; its `warnings` are for users."""
    diff: Callable[[Sequence[Job]], dict[str, str]]
    call: Callable[[Run[Job], Step], CommandResult] | None = None
    """Makes the call of a step, where more than the call is needed."""
    follow_up: Callable[[Run[Job]], None] | None = None
    """What follows the steps, also in check mode."""
    hints: Callable[[Sequence[Job]], Sequence[str]] | None = None
    """Likely causes of steps without effect."""


class Run(Generic[Job]):
    """One run of a change. `jobs` has the selected GPUs."""

    def __init__(self, change: Change[Job], options: Mapping[str, Any], host: Access, check_mode: bool) -> None:
        self.jobs: list[Job] = []
        self.host = host
        self.check_mode = check_mode
        self._change = change
        self._options = options
        self._skips = options["on_unsupported"] == "skip"
        self._warnings: tuple[str, ...] = ()
        # The state after changes could not be read.
        self._is_unread = False

    def work(self) -> None:
        """Plan for all GPUs before changing any, apply the changes, and read all GPUs back. Raises ChangeError."""
        declared = self._change.parse(self._options)
        if self._is_settled(declared):
            return
        self._plan(self.host.smi.document().gpus, declared)
        try:
            if self.check_mode:
                self.jobs = [self._change.predict(job) for job in self.jobs]
            else:
                self._apply()
            if self._change.follow_up is not None:
                self._change.follow_up(self)
        except ChangeError as error:
            self._is_unread = True
            # A read that hangs has taken its time already.
            if not is_hang_of_host(error):
                with contextlib.suppress(ChangeError):
                    self.read_again()
                    self._is_unread = False
            hints = self._change.hints(self.jobs) if self._change.hints is not None else ()
            raise ChangeError("; ".join((str(error), *hints))) from error

    def result(self, with_diff: bool) -> dict[str, Any]:
        """The module's result, with the same keys in every case."""
        commands = self.host.smi.commands
        changed = any(map(self._change.is_changed, self.jobs)) or (self._is_unread and bool(commands))
        result = self._change.report(self.jobs, changed, commands)
        result["warnings"][:0] = self._warnings
        if with_diff:
            result["diff"] = self._change.diff(self.jobs)
        return result

    def read_again(self) -> list[Step]:
        """Read all GPUs again; gives the steps that are still missing."""
        gpus = self.host.smi.document().gpus
        self.jobs = [self._change.update(job, find(gpus, self._change.identity(job))) for job in self.jobs]
        return self._steps()

    def _steps(self) -> list[Step]:
        return [step for job in self.jobs for step in self._change.steps(job)]

    def _is_settled(self, declared: Declared) -> bool:
        """Whether a quick check proves that there is nothing to change, refuse or report."""
        gpus = quick_check(self.host.smi)
        if gpus is not None:
            with contextlib.suppress(ChangeError):
                self._plan(gpus, declared)
                if all(map(self._change.is_settled, self.jobs)):
                    return True
        return False

    def _plan(self, gpus: Sequence[Gpu], declared: Declared) -> None:
        """Plan every GPU; all impossible requests are reported in one error."""
        self.jobs = []
        assignment = assign(gpus, declared)
        self._warnings = assignment.warnings
        refused: list[str] = []
        for gpu, desired in assignment.gpus:
            job, errors = self._change.plan(gpu, desired)
            self.jobs.append(job)
            for error in errors:
                if not isinstance(error, UnsupportedError):
                    refused.append(str(error))
                elif not self._skips:
                    refused.append(f"{error}; {ADVICE}")
        if refused:
            raise ChangeError("nothing was changed: " + "; ".join(refused))

    def _apply(self) -> None:
        steps = self._steps()
        if steps:
            omitted = carry_out(self.host.smi, steps, self._call, self.read_again, self._skips)
            self.jobs = [self._change.omit(job, omitted) for job in self.jobs]

    def _call(self, step: Step) -> CommandResult:
        if self._change.call is not None:
            return self._change.call(self, step)
        return self.host.smi.change(*step.arguments)


def converge(
    change: Change[Job], options: Mapping[str, Any], host: Access, check_mode: bool, with_diff: bool
) -> dict[str, Any]:
    """Run a module on a host: its result, with `warnings` for users. Raises RunError."""
    run = Run(change, options, host, check_mode)
    return locked(host, run.work, lambda: run.result(with_diff))


def locked(host: Access, work: Callable[[], None], result: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do `work` under the lock of the host and give `result`; raises RunError, which has it, where the work failed."""
    failure: ChangeError | None = None
    try:
        with host.lock:
            work()
    except ChangeError as error:
        failure = error
    if failure is not None:
        raise RunError(str(failure), result()) from failure
    return result()
