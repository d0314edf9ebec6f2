# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Report what was, or would be, changed in a host's MIG layout. Private to this collection."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .converge import MigJob, Outcome
from .export import PresentGpu, PresentInstance, export_layouts, export_mig_parted
from .layout import ComputeInstance, Instance
from .plan import MigPlan
from .profiles import compute_name
from .state import GpuState

Row = Mapping[str, Any]


def report(outcome: Outcome, commands: Sequence[str], check_mode: bool, with_diff: bool) -> dict[str, Any]:
    """The module's result, with the same keys in every case."""
    gpus = [_gpu(job, check_mode, outcome.failed) for job in outcome.jobs]
    present = [_present(job.after) for job in outcome.jobs]
    result: dict[str, Any] = {
        "changed": outcome.changed,
        "gpus": gpus,
        "reset_required": any(gpu["reset_required"] for gpu in gpus),
        "reboot_required": any(gpu["reboot_required"] for gpu in gpus),
        "layouts": export_layouts(present),
        "mig_parted": export_mig_parted(present),
        "commands": list(commands),
    }
    if with_diff:
        result["diff"] = diff(outcome.jobs, check_mode)
    return result


def diff(jobs: Sequence[MigJob], check_mode: bool) -> dict[str, str]:
    """The layouts before and after, as text."""
    before = "".join(_layout(job.before, _places(job.before.instances)) for job in jobs)
    after = "".join(
        _layout(job.after, _places(job.after.instances)) if not check_mode else _planned_layout(job) for job in jobs
    )
    return {"before_header": "MIG layout", "after_header": "MIG layout", "before": before, "after": after}


def _gpu(job: MigJob, check_mode: bool, failed: bool) -> dict[str, Any]:
    before, after = rows(job.before.instances), rows(job.after.instances)
    if failed:
        # Which steps took effect is not known, only the states before and after.
        gone, created = _without(before, after), _without(after, before)
        # A GPU instance that got its first compute instance was not destroyed.
        there = {(row["gpu_instance_id"], row["gpu_instance_profile"], row["placement_start"]) for row in after}
        kept = _without(before, gone)
        destroyed = [
            row
            for row in gone
            if row["compute_instance_id"] is not None
            or (row["gpu_instance_id"], row["gpu_instance_profile"], row["placement_start"]) not in there
        ]
    else:
        kept, destroyed, created = _kept(job), _destroyed(job), _planned(job) if check_mode else _made(job)
    pending = job.after.is_pending and not job.is_skipped
    return {
        "index": job.after.gpu.index,
        "uuid": job.after.gpu.basics.uuid,
        "pci_bus_id": job.after.gpu.basics.pci_bus_id,
        "name": job.after.gpu.basics.name,
        "status": _status(job, check_mode),
        "message": job.mode.note if pending else None,
        "mig_mode_current": job.after.gpu.basics.mig_mode_current,
        "mig_mode_pending": job.after.gpu.basics.mig_mode_pending,
        "instances": after,
        "profiles": _present(job.after).profiles if job.after.is_capable else None,
        "kept": kept,
        "destroyed": destroyed,
        "created": created,
        "reset_required": pending,
        "reboot_required": pending and job.mode.needs_reboot,
        "blockers": [
            {"name": blocker.name, "pid": blocker.pid, "device": blocker.device, "stop": blocker.stop}
            for blocker in job.mode.blockers
        ]
        if pending
        else [],
    }


def _present(gpu: GpuState) -> PresentGpu:
    enabled = gpu.will_be_enabled or bool(gpu.instances) if gpu.is_capable else None
    instances = (PresentInstance(item.profile, item.slices, item.start, item.compute_sizes) for item in gpu.instances)
    return PresentGpu(gpu.identity, gpu.index, enabled, tuple(instances))


def _status(job: MigJob, check_mode: bool) -> str:
    if job.is_skipped:
        return "skipped"
    if job.after.is_pending and not (check_mode and job.needs_change):
        return "pending"
    if check_mode:
        return "changed" if job.needs_change else "unchanged"
    return "changed" if job.is_changed else "unchanged"


def rows(instances: Sequence[Instance]) -> list[Row]:
    """One row for each compute instance, and one for a GPU instance that has none."""
    return [_row(instance, compute) for instance in instances for compute in (instance.compute or (None,))]


def _row(instance: Instance, compute: ComputeInstance | None) -> Row:
    slices = instance.slices if compute is None else compute.slices
    return _fields(
        profile=compute_name(instance.profile, instance.slices, slices),
        gpu_instance_profile=instance.profile,
        gpu_instance_id=instance.gpu_instance_id,
        compute_instance_id=None if compute is None else compute.compute_instance_id,
        start=instance.start,
        size=instance.size,
        uuid=None if compute is None else compute.uuid,
    )


def _fields(
    *,
    profile: str,
    gpu_instance_profile: str,
    start: int | None,
    size: int | None,
    gpu_instance_id: int | None = None,
    compute_instance_id: int | None = None,
    uuid: str | None = None,
) -> Row:
    return {
        "profile": profile,
        "gpu_instance_profile": gpu_instance_profile,
        "gpu_instance_id": gpu_instance_id,
        "compute_instance_id": compute_instance_id,
        "placement_start": start,
        "placement_size": size,
        "uuid": uuid,
    }


def _kept(job: MigJob) -> list[Row]:
    """The rows that stay unchanged: with the created ones, all rows afterwards.

    A GPU instance without compute instances has a row only as long as none is created in it.
    """
    plan = job.plan or MigPlan()
    leaving, created = dict(plan.compute_destroyed), dict(plan.compute_created)
    found = []
    for instance in plan.kept:
        staying = [item for item in instance.compute if item not in leaving.get(instance, ())]
        found += [_row(instance, item) for item in staying]
        if not staying and not created.get(instance):
            found.append(_row(instance, None))
    return found


def _destroyed(job: MigJob) -> list[Row]:
    plan = job.plan or MigPlan()
    parts = [_row(instance, item) for instance, items in plan.compute_destroyed for item in items]
    return rows(plan.destroyed) + parts


def _planned(job: MigJob) -> list[Row]:
    """The rows that would be created; without places where those are known only once MIG mode is on."""
    if job.plan is None:
        return [
            _fields(
                profile=str(item.name) if item.name.compute else item.name.gpu_instance,
                gpu_instance_profile=item.name.gpu_instance,
                start=item.start,
                size=None,
            )
            for item in job.desired.items or ()
        ]
    created = [
        _fields(
            profile=compute_name(target.desired.profile, target.desired.slices, size),
            gpu_instance_profile=target.desired.profile,
            start=target.start,
            size=target.profile.size,
        )
        for target in sorted(job.plan.created, key=lambda target: target.start)
        for size in target.desired.compute or (target.desired.slices,)
    ]
    parts = [
        _fields(
            profile=compute_name(instance.profile, instance.slices, size),
            gpu_instance_profile=instance.profile,
            gpu_instance_id=instance.gpu_instance_id,
            start=instance.start,
            size=instance.size,
        )
        for instance, sizes in job.plan.compute_created
        for size in sizes
    ]
    return created + parts


def _made(job: MigJob) -> list[Row]:
    """The present rows that were not kept."""
    return _without(rows(job.after.instances), _kept(job))


def _without(some: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The rows of `some` that are not in `others`; an unknown UUID matches any."""
    known = [{**row, "uuid": None} for row in others]
    return [row for row in some if {**row, "uuid": None} not in known]


def _places(instances: Sequence[Instance]) -> list[tuple[int, int, str, int, tuple[int, ...]]]:
    return [(item.start, item.size, item.profile, item.slices, item.compute_sizes) for item in instances]


def _planned_layout(job: MigJob) -> str:
    """The final layout of a plan."""
    if not job.needs_change:
        return _layout(job.after, _places(job.after.instances))
    mode = "enabled" if job.desired.enabled else "disabled"
    if job.plan is None:
        declared = "".join(f"  {item.name}, placed when MIG mode is on\n" for item in job.desired.items or ())
        return f"{job.before.label}: MIG {mode}\n{declared}"
    sizes = job.plan.places
    known = {item.place: (item.start, item.size, item.profile, item.slices) for item in job.plan.kept}
    known.update(
        (target.place, (target.start, target.profile.size, target.desired.profile, target.desired.slices))
        for target in job.plan.created
    )
    return _layout(job.before, [(*known[place], compute) for place, compute in sizes.items()], mode)


def _layout(
    gpu: GpuState, places: Sequence[tuple[int, int, str, int, tuple[int, ...]]], mode: str | None = None
) -> str:
    """One GPU: its mode after the next reset, and a line for each GPU instance with its memory slices."""
    if not gpu.is_capable:
        return f"{gpu.label}: no MIG\n"
    lines = [f"{gpu.label}: MIG {mode or ('enabled' if gpu.will_be_enabled else 'disabled')}"]
    for start, size, profile, slices, compute in sorted(places):
        names = " + ".join(compute_name(profile, slices, item) for item in compute)
        lines.append(f"  slices {start}-{start + size - 1}: {names or profile + ' without compute instance'}")
    return "\n".join(lines) + "\n"
