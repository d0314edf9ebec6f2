# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-mig``: MIG mode, immediately where possible, pending where the required reset is not possible."""

from __future__ import annotations

from ..state import catalogue, nvml, reset_group
from ..state.modification import (
    SWITCH,
    RefusedError,
    UnsupportedError,
    choice,
    driver_call,
    on_each_gpu,
    persistence_warning,
    word,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.verbs import Call
    from ..state.shapes import Gpu, Reply

IN_USE_ADVICE = (
    "{} is currently being used by one or more other processes (e.g. CUDA application or a monitoring application "
    "such as another instance of nvidia-smi). Please first kill all processes using the device and retry the command "
    "or reboot the system to make MIG mode effective.\n"
)
REBOOT_ADVICE = "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {}\n"


def set_mig_mode(call: Call) -> Reply:
    """Handle ``-mig 0|1``."""

    def change(index: int, gpu: Gpu) -> str:
        on = choice("multi-instance-gpu", call.value or "", SWITCH, "Invalid MIG Mode")
        verb = "enable" if on else "disable"
        failure = "Unable to {} MIG Mode for GPU {}: {{}}".format(verb, gpu["bus_id"])
        if gpu["mig_mode"] is None:
            raise UnsupportedError(failure.format(nvml.MESSAGES[nvml.NOT_SUPPORTED]))
        driver_call(call, "set_mig_mode", index, failure)
        return _switch(call, index, gpu, on, failure)

    return on_each_gpu(call, change)


def _switch(call: Call, index: int, gpu: Gpu, on: bool, failure: str) -> str:
    mode = gpu["mig_mode"]
    if mode is None:
        return ""
    needs_reset = keeps_mode(gpu)
    in_use = bool(gpu["processes"] or gpu["gpu_instances"])
    if mode["current"] != on:
        if needs_reset:
            mode["pending"] = on
            virtual = call.state["host"]["virtualization"] != "None"
            if virtual and not in_use:
                return _pending(gpu, on, nvml.MESSAGES[nvml.NOT_SUPPORTED])
            if in_use or len(reset_group.members(call.state, index)) > 1:
                return _pending(gpu, on, nvml.MESSAGES[nvml.IN_USE])
        elif in_use:
            raise RefusedError(failure.format(nvml.MESSAGES[nvml.IN_USE]), nvml.IN_USE)
    mode["current"] = mode["pending"] = on
    if on:
        gpu["accounting_mode"] = False
        gpu["compute_mode"] = "Default"
    return "{} MIG Mode for GPU {}\n{}".format(word(on), gpu["bus_id"], persistence_warning(gpu))


def _pending(gpu: Gpu, on: bool, reason: str) -> str:
    bus_id = gpu["bus_id"]
    advice = IN_USE_ADVICE if reason == nvml.MESSAGES[nvml.IN_USE] else REBOOT_ADVICE
    verb = "enable" if on else "disable"
    return f"Warning: MIG mode is in pending {verb} state for GPU {bus_id}:{reason}\n{advice.format(bus_id)}"


def keeps_mode(gpu: Gpu) -> bool:
    """Return whether a GPU keeps MIG mode in its InfoROM: it survives a reboot and changes by a reset only (Ampere)."""
    mig = catalogue.load(gpu["model"]).get("mig")
    return bool(mig and mig["mode_survives_reboot"])
