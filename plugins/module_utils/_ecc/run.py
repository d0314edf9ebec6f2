# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module ecc_mode, from its options to its result. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Mapping

from .._change import engine
from .._change.assignment import UnsupportedError
from .._change.context import Access, access
from .._change.engine import Change, Planned, Run
from .._change.reset import IN_USE, NOT_NAMED, NOT_RESET, ResetResult, Resetter
from .._change.steps import Step
from .._common.errors import ChangeError
from .._nvidia_smi import listing
from .._nvidia_smi.gpu import Gpu
from . import plan as ecc_plan
from .report import EccJob, diff, report, would_change

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
INSTANCES_ADVICE = "; destroy them with mig_profile, or reboot the host, which destroys them too"
_NO_INSTANCES = re.compile("no gpu instances found", re.IGNORECASE)
IN_VAIN = "the ECC mode is not in effect after a reset; reboot the host"


def run(params: Mapping[str, Any], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """Apply the module's options `params`, with defaults for those left out. Raises RunError.

    Returns the module's result, with `warnings` for users in addition.
    """
    options = {**DEFAULTS, **params}
    return converge(options, access(options, CACHE_FILE, check_mode), check_mode, with_diff)


def converge(options: Mapping[str, Any], host: Access, check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """The run on a given host; see `run`."""
    change = Change(
        parse=ecc_plan.parse_modes,
        plan=_plan,
        steps=lambda job: () if job.skipped is not None else ecc_plan.plan(job.after, job.desired),
        is_settled=lambda job: not (job.steps or job.skipped or job.is_pending),
        predict=lambda job: replace(job, after=ecc_plan.predicted(job.before, job.steps)),
        update=lambda job, gpu: replace(job, after=gpu),
        omit=_omit,
        identity=lambda job: job.before.identity,
        is_changed=lambda job: would_change(job, check_mode),
        report=lambda jobs, changed, commands: report(jobs, changed, commands, check_mode),
        diff=diff,
        follow_up=lambda run: _Resets(run, options["reset"] == "if_required").apply(),
    )
    return engine.converge(change, options, host, check_mode, with_diff)


def _plan(gpu: Gpu, desired: Mapping[str, Any]) -> Planned[EccJob]:
    try:
        ecc_plan.check(gpu, desired)
    except UnsupportedError as error:
        return EccJob(gpu, gpu, desired, skipped=str(error)), (error,)
    except ChangeError as error:
        return EccJob(gpu, gpu, desired), (error,)
    return EccJob(gpu, gpu, desired, ecc_plan.plan(gpu, desired)), ()


def _omit(job: EccJob, omitted: Mapping[Step, str]) -> EccJob:
    return replace(job, missed=tuple(f"{step}: {omitted[step]}" for step in job.steps if step in omitted))


class _Resets:
    """The resets that follow a change of mode."""

    def __init__(self, run: Run[EccJob], may_reset: bool) -> None:
        self._run = run
        self._may_reset = may_reset
        self._smi = run.host.smi
        self._host = run.host

    def apply(self) -> None:
        """Find the GPUs that wait for a reset, and their blockers; outside of check mode, reset them if allowed."""
        self._run.jobs = [self._with_prospect(job) if job.is_pending else job for job in self._run.jobs]
        if not self._run.check_mode:
            self._reset()

    def _with_prospect(self, job: EccJob) -> EccJob:
        gpu = job.after
        blockers = tuple(self._host.find_blockers(gpu))
        if self._host.cache.get((gpu.identity,), gpu.basics.ecc_mode_pending) is not None:
            return replace(job, reset=ResetResult(blockers, is_impossible=True, note=IN_VAIN))
        is_declared = job.skipped is None and job.desired.get(ecc_plan.ENABLED) == ecc_plan.will_be_on(gpu)
        if not self._may_reset or not is_declared:
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
            seen = f"the document has {len(gpu.mig_devices)}" if gpu.mig_devices else "does not confirm it"
            return f"{MAY_HOLD_INSTANCES}nvidia-smi mig -lgi lists none, and {seen}; run this again"
        return None

    def _reset(self) -> None:
        """Reset the GPUs that wait for it, and check whether the mode was applied."""
        waiting = [job.after for job in self._run.jobs if job.needs_reset]
        if not waiting:
            return
        resetter = Resetter(self._smi, self._host.find_blockers, lambda: self._smi.document().gpus, self._why_not)
        results = resetter.reset(waiting)
        self._run.jobs = [replace(job, reset=results.get(job.after.identity, job.reset)) for job in self._run.jobs]
        self._run.read_again()
        for place, job in enumerate(self._run.jobs):
            if job.needs_reset and job.is_pending and job.reset.note is None:
                self._host.cache.put((job.after.identity,), job.after.basics.ecc_mode_pending, (IN_VAIN,))
                self._run.jobs[place] = replace(job, reset=ResetResult(is_impossible=True, note=IN_VAIN))

    def _why_not(self, gpu: Gpu) -> str | None:
        """Why a GPU may not be reset in a group with one that waits for it."""
        for job in self._run.jobs:
            if job.after.identity == gpu.identity:
                if job.needs_reset:
                    return None
                return (job.reset.note or "its ECC mode does not wait for a reset").replace(NOT_RESET, "")
        return NOT_NAMED
