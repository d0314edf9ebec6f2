# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that detect unhealthy GPUs from their readings. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

from . import values as readings
from .failures import code_of
from .gpu import EccCounters, Gpu
from .pci import PciDevice
from .remedies import with_remedy


@dataclass(frozen=True)
class Problem:
    """One problem: `gpu` is the UUID, the PCI bus id where there is none, or None for the whole host."""

    gpu: str | None
    code: str
    message: str


def uncorrected(counters: EccCounters) -> int | None:
    """Total of uncorrectable errors in either layout; None while no counter is known."""
    sram = counters.sram_uncorrectable
    if sram is None:
        sram = _sum((counters.sram_uncorrectable_parity, counters.sram_uncorrectable_secded))
    newer = _sum((sram, counters.dram_uncorrectable))
    return counters.double_bit_total if newer is None else newer


def corrected(counters: EccCounters) -> int | None:
    """Total of corrected errors in either layout; None while no counter is known."""
    newer = _sum((counters.sram_correctable, counters.dram_correctable))
    return counters.single_bit_total if newer is None else newer


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _pending(current: str | None, pending: str | None) -> bool:
    return current is not None and pending is not None and current != pending


# Chips that do not report thermal or power-brake slowdown separately set hw_slowdown for both.
def _unexplained_slowdown(gpu: Gpu) -> bool:
    return gpu.clocks.slowdown_hw is True and gpu.clocks.slowdown_hw_thermal is None


def _waits_for_a_machine(gpu: Gpu) -> bool:
    """Whether the GPU is for vGPUs: its host connects it to the fabric when it starts a virtual machine on it."""
    return gpu.hardware.virtualization_mode == "host_vgpu"


def _fabric_problems(gpu: Gpu) -> list[str]:
    """The health readings of the fabric that are not good."""
    fabric = gpu.fabric
    problems = [
        (fabric.fabric_health_summary not in (None, "healthy"), f"health is {fabric.fabric_health_summary}"),
        (fabric.fabric_health_bandwidth == "degraded", "bandwidth is degraded"),
        (fabric.fabric_health_route_unhealthy is True, "a route is unhealthy"),
        (
            fabric.fabric_health_incorrect_configuration not in (None, "none", "no", "false"),
            f"its configuration is incorrect: {fabric.fabric_health_incorrect_configuration}",
        ),
    ]
    return [words for holds, words in problems if holds]


# A GPU for which one of these fails does not work. Other readings fail on healthy GPUs: the addressing mode with
# driver 535 on GeForce, the PCIe generation of the host with 550 in virtual machines.
_VITAL = (
    "uuid",
    "name",
    "memory_total_mib",
    "memory_used_mib",
    "memory_free_mib",
    "temperature_gpu_c",
)


def _reading_failures(gpu: Gpu) -> list[str]:
    """The vital readings that nvidia-smi replaces by an error."""
    reasons = dict(gpu.unknown)
    return [name for name in _VITAL if reasons.get(name) == readings.FAILED]


def _has(gpu: Gpu, reason: str) -> bool:
    return any(found == reason for _reading, found in gpu.unknown)


def is_lost(gpu: Gpu) -> bool:
    """Whether the GPU has fallen off the bus, reported in place of its document or of its readings."""
    return _has(gpu, "lost") or _error(gpu) == "gpu_lost"


def _error(gpu: Gpu) -> str | None:
    """The code of the error in place of the GPU."""
    return None if gpu.error is None or _is_broken(gpu) else code_of(gpu.error)


def _is_broken(gpu: Gpu) -> bool:
    """Whether the GPU's part of the document is damaged, which is no evidence about the GPU itself."""
    return gpu.error is not None and _has(gpu, readings.BROKEN)


def _fabric_status(gpu: Gpu) -> str | None:
    """Status of the fabric registration; an NVML error is not a value of the reading, but is reported here."""
    reason = dict(gpu.unknown).get("fabric_status")
    if reason in (readings.FAILED, "not_found", "not_supported"):
        return dict(gpu.other).get("fabric/status", reason.replace("_", " "))
    return gpu.fabric.fabric_status


def _heat(gpu: Gpu) -> str:
    """The hot sensors, as far as known: clocks may be throttled for the GPU or for its memory."""
    heat = gpu.temperature
    gpu_limit = heat.temperature_gpu_max_operating_c or heat.temperature_slowdown_c
    sensors = (
        ("GPU", heat.temperature_gpu_c, gpu_limit, heat.temperature_gpu_tlimit_c),
        ("memory", heat.temperature_memory_c, heat.temperature_memory_max_operating_c, None),
    )
    known = [reading for reading in sensors if reading[1] is not None]
    hot = [
        part
        for part, value, limit, left in known
        if (value is not None and limit is not None and value >= limit) or (left is not None and left <= 0)
    ]
    values = ", ".join(f"{part} {value} C" for part, value, _limit, _left in known) or "which is not known"
    return f"the temperature{f' of the {hot[0]}' if len(hot) == 1 else ''} ({values})"


_RECOVERY = {
    "reset": "reset the GPU",
    "gpu_reset": "reset the GPU",
    "reboot": "reboot the host",
    "node_reboot": "reboot the host",
    "drain_p2p": "end the jobs that use peer-to-peer access to this GPU",
    "drain_and_reset": "end all jobs of this GPU, then reset it",
    "recover_imex_domain": "restart IMEX on all hosts of its domain",
    "bus_reset": "reset the GPU through its PCI bus",
    "system_reboot": "reboot the host",
}


def _recovery(gpu: Gpu) -> str:
    action = gpu.hardware.recovery_action or ""
    remedy = _RECOVERY.get(action, "one that is new to this collection, see the documentation of the driver")
    return f"the driver asks for a recovery action: {action} ({remedy})"


_Test = Callable[[Gpu], bool]

_RULES: tuple[tuple[str, _Test, Callable[[Gpu], str]], ...] = (
    (
        "ecc_uncorrectable",
        lambda gpu: bool(uncorrected(gpu.ecc.ecc_errors_volatile)),
        lambda gpu: f"{uncorrected(gpu.ecc.ecc_errors_volatile)} uncorrectable memory errors since the last reset",
    ),
    (
        "ecc_sram_threshold_exceeded",
        lambda gpu: gpu.ecc.ecc_sram_threshold_exceeded is True,
        lambda gpu: "more uncorrectable SRAM errors than the threshold for replacement",
    ),
    (
        "ecc_repair_pending",
        lambda gpu: gpu.ecc.ecc_channel_repair_pending is True or gpu.ecc.ecc_tpc_repair_pending is True,
        lambda gpu: "a memory channel or TPC repair waits for a reset",
    ),
    (
        "ecc_unrepairable_memory",
        lambda gpu: gpu.ecc.ecc_unrepairable_memory is True,
        lambda gpu: "memory that cannot be repaired",
    ),
    (
        "page_retirement_pending",
        lambda gpu: gpu.ecc.retired_pages_pending is True,
        lambda gpu: "memory pages wait for a reboot to be retired",
    ),
    (
        "row_remap_pending",
        lambda gpu: gpu.ecc.remapped_rows_pending is True,
        lambda gpu: "memory rows wait for a reset to be remapped",
    ),
    (
        "row_remap_failure",
        lambda gpu: gpu.ecc.remapped_rows_failure is True,
        lambda gpu: "a memory row could not be remapped",
    ),
    (
        "row_remapper_exhausted",
        lambda gpu: bool(gpu.ecc.remapped_rows_banks_none),
        lambda gpu: f"{gpu.ecc.remapped_rows_banks_none} memory banks have no spare rows left",
    ),
    (
        "fabric_not_completed",
        lambda gpu: (
            gpu.fabric.fabric_state not in (None, "completed", "none", "not_supported")
            and not _waits_for_a_machine(gpu)
        ),
        lambda gpu: f"fabric state is {gpu.fabric.fabric_state}",
    ),
    (
        "fabric_failed",
        lambda gpu: gpu.fabric.fabric_state == "completed" and _fabric_status(gpu) not in (None, "success"),
        lambda gpu: f"fabric registration ended with {_fabric_status(gpu)}",
    ),
    (
        "fabric_unhealthy",
        lambda gpu: bool(_fabric_problems(gpu)),
        lambda gpu: "NVLink fabric: " + ", ".join(_fabric_problems(gpu)),
    ),
    (
        "ecc_mode_pending",
        lambda gpu: _pending(gpu.basics.ecc_mode_current, gpu.basics.ecc_mode_pending),
        lambda gpu: (
            f"ECC mode is {gpu.basics.ecc_mode_current} and becomes {gpu.basics.ecc_mode_pending} at the next reboot"
        ),
    ),
    (
        "mig_mode_pending",
        lambda gpu: _pending(gpu.basics.mig_mode_current, gpu.basics.mig_mode_pending),
        lambda gpu: (
            f"MIG mode is {gpu.basics.mig_mode_current} and becomes {gpu.basics.mig_mode_pending} at the next reset"
        ),
    ),
    (
        "operation_mode_pending",
        lambda gpu: _pending(gpu.hardware.operation_mode_current, gpu.hardware.operation_mode_pending),
        lambda gpu: f"GPU operation mode becomes {gpu.hardware.operation_mode_pending} at the next reboot",
    ),
    (
        "dram_encryption_pending",
        lambda gpu: _pending(gpu.memory.dram_encryption_mode_current, gpu.memory.dram_encryption_mode_pending),
        lambda gpu: f"DRAM encryption becomes {gpu.memory.dram_encryption_mode_pending} at the next reset",
    ),
    (
        "thermal_slowdown",
        lambda gpu: gpu.clocks.slowdown_hw_thermal is True or gpu.clocks.slowdown_sw_thermal is True,
        lambda gpu: f"clocks are lowered because of {_heat(gpu)}",
    ),
    (
        "power_brake_slowdown",
        lambda gpu: gpu.clocks.slowdown_hw_power_brake is True,
        lambda gpu: "clocks are lowered by the power brake of the system",
    ),
    (
        "hardware_slowdown",
        _unexplained_slowdown,
        lambda gpu: "clocks are lowered by the hardware, because of temperature or power",
    ),
    (
        "recovery_required",
        lambda gpu: gpu.hardware.recovery_action not in (None, "none"),
        _recovery,
    ),
    (
        "reset_required",
        lambda gpu: (
            gpu.hardware.reset_required is True
            or gpu.hardware.drain_and_reset_recommended is True
            or _has(gpu, "reset_required")
            or _error(gpu) == "reset_required"
        ),
        lambda gpu: "the GPU asks for a reset",
    ),
    (
        "inforom_corrupted",
        lambda gpu: _has(gpu, "inforom_corrupted") or _error(gpu) == "inforom_corrupted",
        lambda gpu: "the infoROM is corrupted",
    ),
    ("gpu_lost", is_lost, lambda gpu: gpu.error or "the GPU is lost"),
    ("insufficient_power", lambda gpu: _error(gpu) == "insufficient_power", lambda gpu: gpu.error or ""),
    ("permission_denied", lambda gpu: _error(gpu) == "permission_denied", lambda gpu: gpu.error or ""),
    ("broken_xml", _is_broken, lambda gpu: f"its part of the document is damaged: {gpu.error}"),
    (
        "gpu_not_responding",
        lambda gpu: _error(gpu) == "gpu_not_responding" and not is_lost(gpu),
        lambda gpu: gpu.error or "",
    ),
    (
        "gpu_not_responding",
        lambda gpu: gpu.error is None and bool(_reading_failures(gpu)),
        lambda gpu: f"nvidia-smi prints an error instead of {', '.join(_reading_failures(gpu))}",
    ),
)


def name_of(gpu: Gpu) -> str | None:
    """Identifier of a GPU in a problem."""
    return gpu.basics.uuid or gpu.basics.pci_bus_id


def gpu_problems(gpus: Sequence[Gpu]) -> tuple[Problem, ...]:
    """The problems of each GPU according to its readings, with what to do."""
    return tuple(
        Problem(
            name_of(gpu),
            code,
            with_remedy(code, f"GPU {gpu.index} ({gpu.basics.pci_bus_id}): {message(gpu)}", gpu.basics.name),
        )
        for gpu in gpus
        for code, broken, message in _RULES
        if broken(gpu)
    )


def missing_gpus(gpus: Sequence[Gpu], pci: Sequence[PciDevice]) -> tuple[Problem, ...]:
    """GPUs on the PCI bus that nvidia-smi does not list, except those withheld from it on purpose.

    Next to GPUs at work, a display card of another model that no driver has is one for the console, mostly too old.
    """
    listed = {gpu.basics.pci_bus_id for gpu in gpus}
    working = {gpu.basics.pci_bus_id for gpu in gpus if gpu.error is None and not is_lost(gpu)}
    models = {device.device_id for device in pci if device.pci_bus_id in working}
    missing = [device for device in pci if device.pci_bus_id not in listed and not device.is_withheld]
    return tuple(
        _unused(device)
        if models and device.device_id not in models and device.is_display_card and device.driver is None
        else Problem(
            device.pci_bus_id,
            "gpu_missing",
            with_remedy("gpu_missing", f"GPU {device.pci_bus_id} is on the PCI bus, but not in nvidia-smi"),
        )
        for device in missing
    )


def _unused(device: PciDevice) -> Problem:
    what = f"display card {device.pci_bus_id} (PCI device {device.device_id}) is of another model than the GPUs at work"
    return Problem(device.pci_bus_id, "gpu_unused", with_remedy("gpu_unused", f"{what}, and has no driver"))


def count_problems(disagreement: str | None) -> tuple[Problem, ...]:
    """The problem of a host whose document contradicts itself about the number of GPUs; see Observation."""
    if disagreement is None:
        return ()
    return (Problem(None, "broken_xml", with_remedy("broken_xml", f"nvidia-smi -q -x: {disagreement}")),)


def inforom_problems(bus_ids: Iterable[str], gpus: Sequence[Gpu]) -> tuple[Problem, ...]:
    """GPUs whose infoROM nvidia-smi reports as corrupted."""
    by_bus_id = {gpu.basics.pci_bus_id: name_of(gpu) for gpu in gpus}
    return tuple(
        Problem(
            by_bus_id.get(bus_id, bus_id),
            "inforom_corrupted",
            with_remedy("inforom_corrupted", f"GPU {bus_id}: the infoROM is corrupted"),
        )
        for bus_id in bus_ids
    )
