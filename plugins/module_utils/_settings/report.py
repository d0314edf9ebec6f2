# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report what was, or would be, changed in the settings of GPUs. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from .._change.locked_clocks import GPU_CLOCKS, MEMORY_CLOCKS, SETTINGS
from .._nvidia_smi.gpu import Gpu
from .plan import Target, Values
from .request import NAMES

# Settings that a driver without persistence mode drops as soon as nothing uses the GPU.
VOLATILE = ("power_limit_w", GPU_CLOCKS, MEMORY_CLOCKS, "accounting_mode")


@dataclass(frozen=True)
class SettingsJob:
    """One GPU: its settings `before` and `after`, and the desired ones. `skipped` is why some are left unchanged.

    `in_doubt` are locked clocks that a failed call may have set: nvidia-smi does not report them.
    """

    gpu: Gpu
    before: Values
    after: Values
    targets: tuple[Target, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    in_doubt: frozenset[str] = frozenset()

    @property
    def changed(self) -> tuple[str, ...]:
        """The declared settings that differ from how they were found, or may."""
        declared = {target.setting for target in self.targets}
        return tuple(name for name in NAMES if name in declared and self._differs(name))

    def _differs(self, name: str) -> bool:
        return self.before[name] != self.after[name] or (name in self.in_doubt and self.after[name] is None)


def report(jobs: Sequence[SettingsJob], changed: bool, commands: Sequence[str]) -> dict[str, Any]:
    """The module's result, with the same keys in every case; `warnings` is for users."""
    return {
        "changed": changed,
        "gpus": [_gpu(job) for job in jobs],
        "commands": list(commands),
        "warnings": [_warning(job) for job in jobs if _is_invalid(job)],
    }


def diff(jobs: Sequence[SettingsJob]) -> dict[str, str]:
    """The declared settings before and after, as text."""
    return {
        "before_header": "GPU settings",
        "after_header": "GPU settings",
        "before": "".join(_text(job, job.before) for job in jobs),
        "after": "".join(_text(job, job.after) for job in jobs),
    }


def _gpu(job: SettingsJob) -> dict[str, Any]:
    basics, power = job.gpu.basics, job.gpu.power
    limit = job.after["power_limit_w"]
    return {
        "index": job.gpu.index,
        "uuid": basics.uuid,
        "pci_bus_id": basics.pci_bus_id,
        "name": basics.name,
        "status": "changed" if job.changed else "unchanged" if job.targets else "skipped",
        **job.after,
        "power_limit_w": None if limit is None else float(limit),
        "power_limit_default_w": power.power_limit_default_w,
        "power_limit_min_w": power.power_limit_min_w,
        "power_limit_max_w": power.power_limit_max_w,
        "changed_settings": list(job.changed),
        "confirmed_only": [target.setting for target in job.targets if target.setting in SETTINGS],
        "skipped": [{"setting": setting, "reason": reason} for setting, reason in job.skipped.items()],
    }


def _is_invalid(job: SettingsJob) -> bool:
    declared = {target.setting for target in job.targets}
    return job.after["persistence_mode"] == "disabled" and not declared.isdisjoint(VOLATILE)


def _warning(job: SettingsJob) -> str:
    settings = ", ".join(target.setting for target in job.targets if target.setting in VOLATILE)
    return (
        f"{job.gpu.label}: persistence mode is off, so the driver resets {settings} as soon as nothing uses the GPU; "
        "set persistence_mode to true"
    )


def _text(job: SettingsJob, values: Values) -> str:
    lines = [job.gpu.label + ":"]
    lines += [f"  {target.setting}: {values[target.setting] or 'not known'}" for target in job.targets]
    lines += [f"  {setting}: skipped" for setting in job.skipped]
    return "\n".join(lines) + "\n"
