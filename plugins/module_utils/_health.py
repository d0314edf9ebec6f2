# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a GPU unfit for work, as rules over its readings. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

from ._gpu import EccCounters, Gpu
from ._pci import PciDevice

# Drivers that take a GPU away from the NVIDIA driver on purpose, to hand it to a virtual machine.
_PASSTHROUGH_DRIVERS = frozenset(("vfio-pci", "pci-stub", "xen-pciback"))


@dataclass(frozen=True)
class Problem:
    """One reason: `gpu` is the UUID, the PCI bus id where there is none, or None for the whole host."""

    gpu: str | None
    code: str
    message: str


def uncorrected(counters: EccCounters) -> int | None:
    """Uncorrectable errors of all memories in either layout; None while none of the counters is known."""
    sram = counters.sram_uncorrectable
    if sram is None:
        sram = _sum((counters.sram_uncorrectable_parity, counters.sram_uncorrectable_secded))
    newer = _sum((sram, counters.dram_uncorrectable))
    return counters.double_bit_total if newer is None else newer


def corrected(counters: EccCounters) -> int | None:
    """Corrected errors of all memories in either layout; None while none of the counters is known."""
    newer = _sum((counters.sram_correctable, counters.dram_correctable))
    return counters.single_bit_total if newer is None else newer


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _pending(current: str | None, pending: str | None) -> bool:
    return current is not None and pending is not None and current != pending


# Only a thermal or power-brake bit says which it is; chips without those bits have hw_slowdown for both.
def _unexplained_slowdown(gpu: Gpu) -> bool:
    return gpu.clocks.slowdown_hw is True and gpu.clocks.slowdown_hw_thermal is None


def _fabric_complaints(gpu: Gpu) -> list[str]:
    """What the health of the fabric says that is not good."""
    fabric = gpu.fabric
    complaints = [
        (fabric.fabric_health_summary not in (None, "healthy"), f"health is {fabric.fabric_health_summary}"),
        (fabric.fabric_health_bandwidth == "degraded", "bandwidth is degraded"),
        (fabric.fabric_health_route_unhealthy is True, "a route is unhealthy"),
    ]
    return [words for holds, words in complaints if holds]


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
        lambda gpu: gpu.fabric.fabric_state not in (None, "completed", "none", "not_supported"),
        lambda gpu: f"fabric state is {gpu.fabric.fabric_state}; is the Fabric Manager running?",
    ),
    (
        "fabric_failed",
        lambda gpu: gpu.fabric.fabric_state == "completed" and gpu.fabric.fabric_status not in (None, "success"),
        lambda gpu: f"fabric registration ended with {gpu.fabric.fabric_status}",
    ),
    (
        "fabric_unhealthy",
        lambda gpu: bool(_fabric_complaints(gpu)),
        lambda gpu: "NVLink fabric: " + ", ".join(_fabric_complaints(gpu)),
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
        lambda gpu: f"clocks are lowered because of the temperature ({gpu.temperature.temperature_gpu_c} C)",
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
        lambda gpu: f"the driver asks for a recovery action: {gpu.hardware.recovery_action}",
    ),
    (
        "reset_required",
        lambda gpu: (
            gpu.hardware.reset_required is True
            or gpu.hardware.drain_and_reset_recommended is True
            or any(reason == "reset_required" for _reading, reason in gpu.unknown)
        ),
        lambda gpu: "the GPU asks for a reset",
    ),
    (
        "gpu_lost",
        lambda gpu: any(reason == "lost" for _reading, reason in gpu.unknown) or "lost" in (gpu.error or "").lower(),
        lambda gpu: gpu.error or "the GPU is lost",
    ),
    (
        "gpu_not_answering",
        lambda gpu: gpu.error is not None and "lost" not in gpu.error.lower(),
        lambda gpu: gpu.error or "",
    ),
)


def name_of(gpu: Gpu) -> str | None:
    """What a GPU is called in a problem."""
    return gpu.basics.uuid or gpu.basics.pci_bus_id


def gpu_problems(gpus: Sequence[Gpu]) -> tuple[Problem, ...]:
    """What the readings of each GPU tell."""
    return tuple(
        Problem(name_of(gpu), code, f"GPU {gpu.index} ({gpu.basics.pci_bus_id}): {message(gpu)}")
        for gpu in gpus
        for code, broken, message in _RULES
        if broken(gpu)
    )


def missing_gpus(gpus: Sequence[Gpu], pci: Sequence[PciDevice]) -> tuple[Problem, ...]:
    """GPUs on the PCI bus that nvidia-smi does not list, those given to virtual machines left out."""
    listed = {gpu.basics.pci_bus_id for gpu in gpus}
    return tuple(
        Problem(device.pci_bus_id, "gpu_missing", f"GPU {device.pci_bus_id} is on the PCI bus, but not in nvidia-smi")
        for device in pci
        if device.pci_bus_id not in listed and device.driver not in _PASSTHROUGH_DRIVERS
    )


def inforom_problems(bus_ids: Iterable[str], gpus: Sequence[Gpu]) -> tuple[Problem, ...]:
    """GPUs whose infoROM nvidia-smi calls corrupted."""
    by_bus_id = {gpu.basics.pci_bus_id: name_of(gpu) for gpu in gpus}
    return tuple(
        Problem(by_bus_id.get(bus_id, bus_id), "inforom_corrupted", f"GPU {bus_id}: the infoROM is corrupted")
        for bus_id in bus_ids
    )
