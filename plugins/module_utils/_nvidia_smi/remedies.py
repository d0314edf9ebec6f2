# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about each problem of a GPU and each reason why nvidia-smi fails. Private to this collection."""

from __future__ import annotations

from .failures import code_of

_REPLACE = "have the board replaced; until then, take the GPU out of use"
_RESET = "end its jobs and reset the GPU (nvidia-smi --gpu-reset), or reboot the host"
_COOLING = "check fans, air flow and the temperature of the room"
_FABRIC = "run the role gpu.fleet.nvidia_driver, and see journalctl -u nvidia-fabricmanager.service"

SWITCHED_ELSEWHERE = ("GB200", "GB300", "GH200")
"""Models whose hosts have no Fabric Manager: it runs on the NVLink switches of the rack."""
_OF_THE_RACK = "see nvidia-smi nvlink --status, and the subnet manager and NMX controller on the NVLink switch trays"
_OF_FABRICS = ("fabric_failed", "fabric_not_completed", "fabric_unhealthy")

REMEDIES = {
    "broken_xml": "read it again; if it stays, run nvidia-smi -q -x on the host and report its output as an issue",
    "dram_encryption_pending": _RESET,
    "driver_library_mismatch": "reboot the host, or run the role gpu.fleet.nvidia_driver to load the installed driver",
    "ecc_mode_pending": "reboot the host, or run the role gpu.fleet.gpu_state with gpu_state_reboot: if_required",
    "ecc_repair_pending": _RESET,
    "ecc_sram_threshold_exceeded": _REPLACE,
    "ecc_uncorrectable": f"{_RESET}; if they come again, have the board replaced",
    "ecc_unrepairable_memory": _REPLACE,
    "fabric_failed": _FABRIC,
    "fabric_not_completed": _FABRIC,
    "fabric_unhealthy": "see nvidia-smi nvlink --status and the log of the Fabric Manager or of the NVLink switches",
    "failed": "run nvidia-smi on the host, and look for lines of NVRM and Xid in its kernel log (dmesg)",
    "gpu_lost": "reboot the host; if it is lost again, check its power, its seat and the kernel log (Xid 79)",
    "gpu_missing": "check the kernel log (dmesg) for lines of NVRM, and check that the driver supports this GPU",
    "gpu_not_responding": f"look for Xid errors in the kernel log (dmesg); {_RESET}",
    "gpu_unused": "to use it, check that the driver supports it; otherwise have gpu_health ignore gpu_unused",
    "hardware_slowdown": f"{_COOLING}, and the power supply",
    "inforom_corrupted": "have the infoROM or the board repaired by the vendor; the GPU works meanwhile",
    "insufficient_power": "check that the power cables of all GPUs are connected, and the power supplies",
    "library_missing": "install the driver's libraries of the same version: run the role gpu.fleet.nvidia_driver",
    "mig_mode_pending": _RESET,
    "no_driver": "run the role gpu.fleet.nvidia_driver",
    "no_gpu": "check that the host has an NVIDIA GPU (lspci -d 10de:), or take it out of the play",
    "no_nvidia_smi": "install the driver's utilities of the same version: run the role gpu.fleet.nvidia_driver",
    "not_loaded": "run the role gpu.fleet.nvidia_driver, or see why modprobe nvidia fails (dmesg)",
    "operation_mode_pending": "reboot the host",
    "page_retirement_pending": "reboot the host",
    "permission_denied": "this needs root (become: true), and in a container the GPU's device files",
    "power_brake_slowdown": "check the power supply and the power limits of the chassis",
    "recovery_required": "do that, then run again",
    "reset_required": _RESET,
    "row_remap_failure": _REPLACE,
    "row_remap_pending": _RESET,
    "row_remapper_exhausted": _REPLACE,
    "thermal_slowdown": _COOLING,
    "timeout": "look for Xid errors and hung tasks in the kernel log (dmesg); a reboot ends a driver that hangs",
    "too_large": "run nvidia-smi -q -x on the host: another program of this name may be first in PATH",
    "version_mismatch": "reboot the host, or run the role gpu.fleet.nvidia_driver to load the installed driver",
}
"""By code of `unhealthy` and by `reason`, both of nvidia_smi_facts."""


def unresponsive(label: str, error: str) -> str:
    """The message about a GPU that has an error in place of its readings."""
    return with_remedy(code_of(error), f"{label} does not respond: {error}")


def with_remedy(code: str, message: str, model: str | None = None) -> str:
    """The message of a problem, and what to do about it; a host without a Fabric Manager is sent to none."""
    is_of_the_rack = code in _OF_FABRICS and any(board in (model or "") for board in SWITCHED_ELSEWHERE)
    remedy = _OF_THE_RACK if is_of_the_rack else REMEDIES[code]
    return message if message.endswith(remedy) else f"{message.rstrip('.')}; {remedy}"
