# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of the module gpu_settings, from its options to its result. Private to this collection."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Mapping, Sequence

from .._change import engine, locked_clocks
from .._change.assignment import UnsupportedError
from .._change.context import Access, access
from .._change.engine import Change, Planned, Run
from .._change.locked_clocks import LockedClocks
from .._change.steps import Step, is_confirmed, is_refused, is_unsupported
from .._common.errors import ChangeError
from .._common.runner import CommandResult
from .._nvidia_smi.gpu import Gpu
from . import plan as settings_plan
from . import request as settings_request
from .plan import Target, Values
from .report import VOLATILE, SettingsJob, diff, report

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
    clocks = LockedClocks(host.cache)

    def plan(gpu: Gpu, desired: Mapping[str, Any]) -> Planned[SettingsJob]:
        return _plan(gpu, desired, settings_plan.read(gpu, clocks))

    change = Change(
        parse=settings_request.parse_settings,
        plan=plan,
        steps=_steps,
        is_settled=lambda job: not _steps(job) and not job.skipped,
        predict=_predict,
        update=lambda job, gpu: replace(job, gpu=gpu, after=settings_plan.read(gpu, clocks)),
        omit=_omit,
        identity=lambda job: job.gpu.identity,
        is_changed=lambda job: bool(job.changed),
        report=report,
        diff=diff,
        call=lambda run, step: _call(run, step, clocks),
        hints=_hints,
    )
    return engine.converge(change, options, host, check_mode, with_diff)


def _plan(gpu: Gpu, desired: Mapping[str, Any], values: Values) -> Planned[SettingsJob]:
    targets: list[Target] = []
    skipped: dict[str, str] = {}
    errors: list[ChangeError] = []
    for setting in (name for name in settings_request.NAMES if name in desired):
        try:
            targets.append(settings_plan.resolve(gpu, setting, desired[setting]))
        except ChangeError as error:
            errors.append(error)
            if isinstance(error, UnsupportedError):
                skipped[setting] = str(error)
    return SettingsJob(gpu, values, values, tuple(targets), skipped), errors


def _steps(job: SettingsJob) -> tuple[Step, ...]:
    return settings_plan.plan(job.targets, job.after)


def _predict(job: SettingsJob) -> SettingsJob:
    return replace(job, after={**job.before, **{target.setting: target.value for target in job.targets}})


def _call(run: Run[SettingsJob], step: Step, clocks: LockedClocks) -> CommandResult:
    """Make a call; locked clocks are cached only if nvidia-smi confirmed them."""
    if step.setting not in locked_clocks.SETTINGS:
        return run.host.smi.change(*step.arguments)
    (job,) = (job for job in run.jobs if job.gpu.identity == step.identity)
    (target,) = (target for target in job.targets if target.step == step)
    # Invalidated before the call: this run may be killed after it.
    clocks.invalidate(step.identity, step.setting)
    result = run.host.smi.change(*step.arguments)
    known = job.before[step.setting] if is_unsupported(result) else target.value if is_confirmed(result) else None
    if known is not None:
        clocks.confirm(step.identity, step.setting, known)
    elif not is_refused(result):
        doubted = replace(job, in_doubt=job.in_doubt | {step.setting})
        run.jobs = [doubted if other is job else other for other in run.jobs]
    return result


def _hints(jobs: Sequence[SettingsJob]) -> list[str]:
    """Common causes of settings that do not take effect."""
    missing = {
        (target.setting, job.after["persistence_mode"] == "disabled")
        for job in jobs
        for target in job.targets
        if job.after[target.setting] != target.value
    }
    hints = []
    if "persistence_mode" in dict(missing) and os.path.exists(locked_clocks.PERSISTENCED):
        hints.append("nvidia-persistenced runs and sets persistence mode for nvidia-smi; see its journal")
    if any((setting, True) in missing for setting in VOLATILE):
        hints.append(
            "persistence mode is off, and then the driver drops such settings as soon as nothing uses the GPU: "
            "set persistence_mode to true"
        )
    return hints


def _omit(job: SettingsJob, omitted: Mapping[Step, str]) -> SettingsJob:
    """The job without the settings that its GPU turned out not to support."""
    refused = {
        target.setting: f"{target.step}: {omitted[target.step]}" for target in job.targets if target.step in omitted
    }
    targets = tuple(target for target in job.targets if target.setting not in refused)
    return replace(job, targets=targets, skipped={**job.skipped, **refused})
