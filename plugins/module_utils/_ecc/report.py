# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report what was, or would be, changed in the ECC of a host's GPUs. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._change.reset import ResetResult
from .._change.steps import Step
from .._nvidia_smi.gpu import Gpu
from . import plan as ecc_plan

NO_COUNTERS = "ECC is off, so there are no counters to clear"


@dataclass(frozen=True)
class EccJob:
    """One GPU: `before` as found, `after` as last read.

    `skipped` is the reason why it is left unchanged, `missed` what it turned out not to support. `needs_reset`: its
    pending mode is the declared one, and a reset may apply it.
    """

    before: Gpu
    after: Gpu
    desired: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    skipped: str | None = None
    missed: tuple[str, ...] = ()
    reset: ResetResult = field(default_factory=ResetResult)
    needs_reset: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether the mode changes at the next reboot."""
        return ecc_plan.is_pending(self.after)

    @property
    def is_changed(self) -> bool:
        """Whether the GPU differs from how it was found."""
        return _modes(self.before) != _modes(self.after) or self.cleared != 0

    @property
    def cleared(self) -> int:
        """How many counted errors were cleared."""
        if not any(step.setting == ecc_plan.CLEAR_COUNTERS for step in self.steps):
            return 0
        kind = self.desired[ecc_plan.CLEAR_COUNTERS]
        before, after = (ecc_plan.errors(ecc_plan.counters(gpu, kind)) or 0 for gpu in (self.before, self.after))
        return max(0, before - after)


def report(jobs: Sequence[EccJob], changed: bool, commands: Sequence[str], check_mode: bool) -> dict[str, Any]:
    """The module's result, with the same keys in every case; `warnings` is for users."""
    gpus = [_gpu(job, check_mode) for job in jobs]
    return {
        "changed": changed,
        "gpus": gpus,
        "reset_required": any(gpu["reset_required"] for gpu in gpus),
        "reboot_required": any(gpu["reboot_required"] for gpu in gpus),
        "commands": list(commands),
        "warnings": [_warning(job) for job in jobs if _size_changes(job)],
    }


def diff(jobs: Sequence[EccJob]) -> dict[str, str]:
    """The modes and counters before and after, as text."""
    return {
        "before_header": "ECC",
        "after_header": "ECC",
        "before": "".join(_line(job.before, job) for job in jobs),
        "after": "".join(_line(job.after, job) for job in jobs),
    }


def would_change(job: EccJob, check_mode: bool) -> bool:
    """Whether the GPU was changed, or would be: check mode predicts that a reset takes effect."""
    return job.is_changed or (check_mode and job.needs_reset)


def _gpu(job: EccJob, check_mode: bool) -> dict[str, Any]:
    gpu = job.after
    changed = would_change(job, check_mode)
    return {
        "index": gpu.index,
        "uuid": gpu.basics.uuid,
        "pci_bus_id": gpu.basics.pci_bus_id,
        "name": gpu.basics.name,
        "status": _status(job, changed, check_mode),
        "changed": changed,
        "message": _message(job),
        "ecc_mode_current": gpu.basics.ecc_mode_current,
        "ecc_mode_pending": gpu.basics.ecc_mode_pending,
        "errors_volatile": ecc_plan.errors(gpu.ecc.ecc_errors_volatile),
        "errors_aggregate": ecc_plan.errors(gpu.ecc.ecc_errors_aggregate),
        "errors_cleared": job.cleared,
        "reset_required": job.is_pending and not job.reset.is_impossible,
        "reboot_required": job.is_pending,
        "blockers": [
            {"name": blocker.name, "pid": blocker.pid, "device": blocker.device, "stop": blocker.stop}
            for blocker in job.reset.blockers
        ]
        if job.is_pending
        else [],
    }


def _status(job: EccJob, changed: bool, check_mode: bool) -> str:
    if job.skipped is not None:
        return "skipped"
    if job.is_pending and not check_mode:
        return "pending"
    return "changed" if changed else "pending" if job.is_pending else "unchanged"


def _message(job: EccJob) -> str | None:
    """Notes about this GPU for the user."""
    parts = [job.skipped, *job.missed]
    if job.is_pending:
        parts.append(job.reset.note)
    if ecc_plan.CLEAR_COUNTERS in job.desired and job.skipped is None and not ecc_plan.is_on(job.before):
        parts.append(NO_COUNTERS)
    return "; ".join(part for part in parts if part) or None


def _size_changes(job: EccJob) -> bool:
    """Whether this run applied another mode. Undoing a pending change does not count."""
    moved = _modes(job.before) != _modes(job.after)
    return moved and (job.is_pending or job.before.basics.ecc_mode_current != job.after.basics.ecc_mode_current)


def _warning(job: EccJob) -> str:
    when = "after the next reboot" if job.is_pending else "now"
    mode = job.after.basics.ecc_mode_pending
    return f"{job.after.label}: with ECC {mode} memory size and names of MIG profiles can be others {when}"


def _line(gpu: Gpu, job: EccJob) -> str:
    if job.skipped is not None:
        return f"{gpu.label}: skipped\n"
    text = f"{gpu.label}: ECC {gpu.basics.ecc_mode_current}"
    if ecc_plan.is_pending(gpu):
        text += f", {gpu.basics.ecc_mode_pending} after the next reboot"
    kind = job.desired.get(ecc_plan.CLEAR_COUNTERS)
    count = None if kind is None else ecc_plan.errors(ecc_plan.counters(gpu, kind))
    return text + (f", {count} {kind} errors\n" if count is not None else "\n")


def _modes(gpu: Gpu) -> tuple[str | None, str | None]:
    return gpu.basics.ecc_mode_current, gpu.basics.ecc_mode_pending
