# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loss of a GPU's volatile state: ``--gpu-reset`` of an idle GPU, and a boot of the host."""

from __future__ import annotations

from .. import lazy
from ..mig import mode as mig_mode
from . import catalogue, health, nvml, recovery, reset_group, slowdowns, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.verbs import Call
    from .shapes import Gpu, Reply, State

IN_USE_ADVICE = (
    "\n{} currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
    "application such as an X server, or a monitoring application such as another instance of nvidia-smi). Please "
    "first kill all processes using {} and all compute applications running in the system.\n"
)
TOGETHER = (
    "GPU Reset couldn't progress because the specified devices do not meet the reset criterion (e.g. NVLink connected "
    "GPUs must be reset together). Please append the following device indexes to the command line and retry.\n"
)
ECC_BY_REBOOT_ONLY = ("Pascal", "Volta", "Turing")


def reset_gpus(call: Call) -> Reply:
    """Handle ``-r`` / ``--gpu-reset``; GPUs that cannot be reset are listed after those that were."""
    lost = health.lost(call.gpus)
    if lost:
        return lost
    named = {index for index, _gpu in call.gpus}
    missing = sorted({peer for index in named for peer in reset_group.members(call.state, index)} - named)
    if missing:
        return TOGETHER + "".join(f"{index}\n" for index in missing), 255
    done, failed, code = "", "", 0
    in_use = 0
    for index, gpu in call.gpus:
        bus_id = gpu["bus_id"]
        if mig_mode.keeps_mode(gpu) and call.state["host"]["virtualization"] != "None":
            return f"{done}Resetting GPU {bus_id} is not supported.\n", nvml.NOT_SUPPORTED
        try:
            nvml.begin(call.state, call.root_user, "reset_gpu", index)
            if gpu["processes"]:
                raise nvml.NvmlError(nvml.IN_USE)
        except nvml.NvmlError as error:
            failed += f"  GPU {bus_id}: {error}\n"
            in_use += error.code == nvml.IN_USE
            code = error.code
            continue
        reset(gpu)
        done += f"GPU {bus_id} was successfully reset.\n"
    if not failed:
        return done + "All done.\n", 0
    text = f"{done}The following GPUs could not be reset:\n{failed}"
    if in_use == 1:
        text += IN_USE_ADVICE.format("1 device is", "this device")
    elif in_use:
        text += IN_USE_ADVICE.format(f"{in_use} devices are", "these devices")
    return text, nvml.NO_PERMISSION if code == nvml.NO_PERMISSION else 255


def reset(gpu: Gpu) -> None:
    """Bring a GPU to the state after a reset: volatile settings and instances gone, pending modes applied.

    Persistence mode and accounting belong to the loaded driver and stay.
    """
    _reset_state(gpu)
    recovery.after_reset(gpu)
    ecc = gpu["ecc_mode"]
    if ecc and catalogue.load(gpu["model"])["architecture"] not in ECC_BY_REBOOT_ONLY:
        ecc["current"] = ecc["pending"]


def boot(state: State) -> None:
    """Bring the GPUs to the state after a reboot of the host: only what the InfoROM keeps is left.

    That is ECC, the MIG mode of Ampere, aggregate error counters, remapped rows and retired pages. A GPU that was lost
    or missing works again; what lowers the clocks goes on.
    """
    state["kernel_log"] = []
    if state.get("nics"):
        lazy.load("host.nics").boot(state["nics"])
    for gpu in state["gpus"]:
        _reset_state(gpu)
        gpu["processes"] = []
        gpu["accounting_mode"] = False
        gpu["persistence_mode"] = False
        gpu["recovery_action"] = recovery.NONE
        if gpu["ecc_mode"]:
            gpu["ecc_mode"]["current"] = gpu["ecc_mode"]["pending"]
        slowdowns.restart_counters(gpu)
        if gpu["health"] in ("lost", "missing"):
            gpu["health"] = "ok"


def _reset_state(gpu: Gpu) -> None:
    """Clear the state that neither a reset nor a reboot preserves."""
    gpu["gpu_instances"] = []
    gpu["compute_mode"] = "Default"
    gpu["power_limit_w"] = catalogue.load(gpu["model"])["power"]["default_w"]
    gpu["locked_gpu_clocks"] = None
    gpu["locked_memory_clocks"] = None
    gpu["applications_clocks"] = None
    gpu["ecc_errors"]["volatile"] = store.no_errors()
    gpu["remapped_rows"]["pending"] = False
    gpu["inactive_nvlinks"] = []
    gpu["slow_nvlinks"] = {}
    gpu["nvlink_errors"] = {}
    mode = gpu["mig_mode"]
    if mode:
        mode["current"] = mode["pending"] = mode["pending"] and mig_mode.keeps_mode(gpu)
