# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a GPU: ECC, persistence, compute mode, power limit, clocks, accounting."""

from __future__ import annotations

from ..command_line import options
from . import catalogue, nvml, store
from .modification import (
    SWITCH,
    RefusedError,
    UnsupportedError,
    choice,
    driver_call,
    integers,
    on_each_gpu,
    persistence_warning,
    word,
    wrong_value,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.verbs import Call
    from .shapes import Gpu, Model, Reply

COMPUTE_MODES = {
    "0": "DEFAULT",
    # Long deprecated; drivers treat it as the mode by process.
    "1": "EXCLUSIVE_PROCESS",
    "EXCLUSIVE_THREAD": "EXCLUSIVE_PROCESS",
    "2": "PROHIBITED",
    "3": "EXCLUSIVE_PROCESS",
}
NO_CLOCK_PERMISSION = "The current user does not have permission to change clocks for GPU {}."
APPLICATIONS_CLOCKS_GONE_SINCE = 590
POWER_SCOPE_SINCE = 580
PER_PAGE_ARCHITECTURES = ("Pascal", "Volta", "Turing")
"""GPUs older than Ampere: their memory clock cannot be locked, their aggregate ECC counters can be cleared."""


def set_ecc_mode(call: Call) -> Reply:
    """Handle ``-e 0|1``: pending until the next reboot."""
    changed = []

    def change(index: int, gpu: Gpu) -> str:
        on = choice("ecc-config", call.value or "", SWITCH, "Invalid ECC configuration code")
        bus_id, mode = gpu["bus_id"], gpu["ecc_mode"]
        if mode is None:
            raise UnsupportedError(f"ECC features not supported for GPU {bus_id}.")
        if mode["pending"] == on:
            return f"ECC support is already {word(on)} for GPU {bus_id}.\n"
        driver_call(call, "set_ecc_mode", index, f"Unable to set ECC config for GPU {bus_id}: {{}}")
        mode["pending"] = on
        changed.append(index)
        return f"{word(on)} ECC support for GPU {bus_id}.\n"

    text, status = on_each_gpu(call, change)
    return text + ("Reboot required.\n" if changed and not status else ""), status


def reset_ecc_errors(call: Call) -> Reply:
    """Handle ``-p 0|1``: the volatile or the aggregate counters to zero."""

    def change(index: int, gpu: Gpu) -> str:
        aggregate = choice(
            "reset-ecc-errors",
            call.value or "",
            {"0": False, "VOLATILE": False, "1": True, "AGGREGATE": True},
            "Invalid ECC error counter type",
        )
        bus_id = gpu["bus_id"]
        if gpu["ecc_mode"] is None or (aggregate and _architecture(gpu) not in PER_PAGE_ARCHITECTURES):
            raise UnsupportedError(f"Clearing ECC errors is not supported for GPU {bus_id}.")
        driver_call(call, "clear_ecc_errors", index, f"Unable to reset ECC errors for GPU {bus_id}: {{}}")
        if _in_mig_mode(gpu):
            raise UnsupportedError("Clearing ECC errors is not supported on a MIG-enabled device.")
        if aggregate:
            gpu["ecc_errors"]["aggregate"] = store.no_errors()
        else:
            gpu["ecc_errors"]["volatile"] = store.no_errors()
        return "Reset {} ECC errors to zero for GPU {}.\n".format("aggregate" if aggregate else "volatile", bus_id)

    return on_each_gpu(call, change)


def set_persistence_mode(call: Call) -> Reply:
    """Handle ``-pm 0|1``."""

    def change(index: int, gpu: Gpu) -> str:
        on = choice("persistence-mode", call.value or "", SWITCH, "Invalid persistence mode")
        bus_id = gpu["bus_id"]
        if gpu["persistence_mode"] == on:
            return f"Persistence mode is already {word(on)} for GPU {bus_id}.\n"
        driver_call(call, "set_persistence_mode", index, f"Unable to set persistence mode for GPU {bus_id}: {{}}")
        gpu["persistence_mode"] = on
        return f"{word(on)} persistence mode for GPU {bus_id}.\n"

    return on_each_gpu(call, change)


def set_compute_mode(call: Call) -> Reply:
    """Handle ``-c MODE``, by number or name."""

    def change(index: int, gpu: Gpu) -> str:
        desired = (call.value or "").upper()
        mode = COMPUTE_MODES.get(desired, desired)
        bus_id = gpu["bus_id"]
        if mode not in COMPUTE_MODES.values():
            raise wrong_value("compute-mode", call.value or "", "Invalid compute mode")
        if gpu["compute_mode"].upper() == mode:
            return f"Compute mode is already set to {mode} for GPU {bus_id}.\n"
        driver_call(call, "set_compute_mode", index, f"Unable to set the compute mode for GPU {bus_id}: {{}}")
        if _in_mig_mode(gpu):
            raise UnsupportedError("Setting compute mode is not supported on a MIG-enabled device.")
        gpu["compute_mode"] = "_".join(part.capitalize() for part in mode.split("_"))
        return f"Set compute mode to {mode} for GPU {bus_id}.\n"

    return on_each_gpu(call, change)


def set_power_limit(call: Call) -> Reply:
    """Handle ``-pl WATTS``."""

    def change(index: int, gpu: Gpu) -> str:
        bus_id, before = gpu["bus_id"], gpu["power_limit_w"]
        limits = _model(gpu)["power"]
        try:
            watts = float(call.value or "")
        except ValueError:
            raise options.invalid_value("power-limit", call.value or "") from None
        if before is None or limits.get("fixed", False):
            scope = " in current scope" if call.version[0] >= POWER_SCOPE_SINCE else ""
            raise UnsupportedError(f"Changing power management limit is not supported{scope} for GPU: {bus_id}.")
        if not limits["min_w"] <= watts <= limits["max_w"]:
            raise RefusedError(
                f"Provided power limit {watts:.2f} W is not a valid power limit which should be between "
                f"{limits['min_w']:.2f} W and {limits['max_w']:.2f} W for GPU {bus_id}",
                nvml.INVALID_ARGUMENT,
            )
        driver_call(call, "set_power_limit", index, f"Failed to set power management limit for GPU {bus_id}: {{}}")
        gpu["power_limit_w"] = watts
        warning = persistence_warning(gpu)
        return f"Power limit for GPU {bus_id} was set to {watts:.2f} W from {before:.2f} W.\n{warning}"

    return on_each_gpu(call, change)


def lock_gpu_clocks(call: Call) -> Reply:
    """Handle ``-lgc MIN,MAX`` or ``-lgc CLOCK``, in MHz."""

    def change(index: int, gpu: Gpu) -> str:
        low, high = _range("lock-gpu-clocks", call)
        if _architecture(gpu) == "Pascal":
            raise UnsupportedError("Setting locked GPU clocks is not supported for GPU {}.".format(gpu["bus_id"]))
        _clock_call(call, "set_gpu_clocks", index, gpu)
        gpu["locked_gpu_clocks"] = [low, high]
        set_to = f'"(gpuClkMin {low}, gpuClkMax {high})"'
        return "GPU clocks set to {} for GPU {}\n{}".format(set_to, gpu["bus_id"], persistence_warning(gpu))

    return on_each_gpu(call, change)


def reset_gpu_clocks(call: Call) -> Reply:
    """Handle ``-rgc``, which only reports success."""

    def change(index: int, gpu: Gpu) -> str:
        _clock_call(call, "reset_gpu_clocks", index, gpu)
        gpu["locked_gpu_clocks"] = None
        return ""

    return on_each_gpu(call, change)


def lock_memory_clocks(call: Call) -> Reply:
    """Handle ``-lmc MIN,MAX`` or ``-lmc CLOCK``, in MHz."""

    def change(index: int, gpu: Gpu) -> str:
        low, high = _range("lock-memory-clocks", call)
        if _architecture(gpu) in PER_PAGE_ARCHITECTURES:
            raise UnsupportedError("Setting locked Memory clocks is not supported for GPU {}.".format(gpu["bus_id"]))
        _clock_call(call, "set_memory_clocks", index, gpu)
        gpu["locked_memory_clocks"] = [low, high]
        set_to = f'"(memClkMin {low}, memClkMax {high})"'
        return "Memory clocks set to {} for GPU {}\n{}".format(set_to, gpu["bus_id"], persistence_warning(gpu))

    return on_each_gpu(call, change)


def reset_memory_clocks(call: Call) -> Reply:
    """Handle ``-rmc``."""

    def change(index: int, gpu: Gpu) -> str:
        _clock_call(call, "reset_memory_clocks", index, gpu)
        gpu["locked_memory_clocks"] = None
        return ""

    return on_each_gpu(call, change)


def lock_memory_clocks_deferred(call: Call) -> Reply:
    """Handle ``-lmcd CLOCK``, in MHz: for the next load of the module. Hopper only."""

    def change(index: int, gpu: Gpu) -> str:
        clock, bus_id = integers("lock-memory-clocks-deferred", call.value or "")[0], gpu["bus_id"]
        if _architecture(gpu) != "Hopper":
            raise UnsupportedError(f"Setting deferred locked Memory clocks is not supported for GPU {bus_id}.")
        _clock_call(call, "set_memory_clocks", index, gpu)
        gpu["deferred_memory_clock"] = clock
        return f'Deferred Memory clocks set to "{clock}" for GPU {bus_id}\n'

    return on_each_gpu(call, change)


def reset_memory_clocks_deferred(call: Call) -> Reply:
    """Handle ``-rmcd``."""

    def change(index: int, gpu: Gpu) -> str:
        _clock_call(call, "reset_memory_clocks", index, gpu)
        gpu["deferred_memory_clock"] = None
        return ""

    return on_each_gpu(call, change)


def set_applications_clocks(call: Call) -> Reply:
    """Handle ``-ac MEMORY,GRAPHICS``, in MHz: only pairs of ``-q -d SUPPORTED_CLOCKS``."""
    if call.version[0] >= APPLICATIONS_CLOCKS_GONE_SINCE:
        return "The requested functionality has been deprecated.\n", 0

    def change(index: int, gpu: Gpu) -> str:
        pair, bus_id = integers("applications-clocks", call.value or ""), gpu["bus_id"]
        if len(pair) != 2:
            raise options.invalid_value("applications-clocks", call.value or "")
        memory, graphics = pair
        model = _model(gpu)
        asked = f'"(MEM {memory}, SM {graphics})"'
        if model["clocks"]["applications"] is None:
            raise UnsupportedError(f"Setting applications clocks is not supported for GPU {bus_id}.")
        if not _is_supported(model, memory, graphics):
            raise UnsupportedError(
                f"Specified clock combination {asked} is not supported for GPU {bus_id}. Run 'nvidia-smi -q -d "
                "SUPPORTED_CLOCKS' to see list of supported clock combinations"
            )
        _clock_call(call, "set_applications_clocks", index, gpu)
        gpu["applications_clocks"] = pair
        return f"Applications clocks set to {asked} for GPU {bus_id}\n{persistence_warning(gpu)}"

    return on_each_gpu(call, change)


def reset_applications_clocks(call: Call) -> Reply:
    """Handle ``-rac``."""
    if call.version[0] >= APPLICATIONS_CLOCKS_GONE_SINCE:
        return "The requested functionality has been deprecated.\n", 0

    def change(index: int, gpu: Gpu) -> str:
        if _model(gpu)["clocks"]["applications"] is None:
            raise UnsupportedError("Resetting applications clocks is not supported for GPU {}.".format(gpu["bus_id"]))
        _clock_call(call, "reset_applications_clocks", index, gpu)
        gpu["applications_clocks"] = None
        return ""

    return on_each_gpu(call, change)


def set_accounting_mode(call: Call) -> Reply:
    """Handle ``-am 0|1``; a GPU in MIG mode does no accounting."""

    def change(index: int, gpu: Gpu) -> str:
        on = choice("accounting-mode", call.value or "", SWITCH, "Invalid accounting mode")
        bus_id = gpu["bus_id"]
        if gpu["accounting_mode"] == on:
            return f"Accounting Mode is already {word(on)} for GPU {bus_id}.\n"
        driver_call(call, "set_accounting_mode", index, f"Unable to set Accounting Mode for GPU {bus_id}: {{}}")
        if _in_mig_mode(gpu):
            raise UnsupportedError("Setting accounting mode is not supported on a MIG-enabled device.")
        gpu["accounting_mode"] = on
        return f"{word(on)} Accounting Mode for GPU {bus_id}.\n{persistence_warning(gpu)}"

    return on_each_gpu(call, change)


def clear_accounted_apps(call: Call) -> Reply:
    """Handle ``-caa``; no process is ever accounted."""

    def change(index: int, gpu: Gpu) -> str:
        bus_id = gpu["bus_id"]
        driver_call(call, "set_accounting_mode", index, f"Unable to clear accounted PIDs for GPU {bus_id}: {{}}")
        return f"Cleared Accounted PIDs for GPU {bus_id}.\n"

    return on_each_gpu(call, change)


def set_operation_mode(call: Call) -> Reply:
    """Handle ``--gom``, which no GPU newer than Kepler has."""

    def change(_unused: int, gpu: Gpu) -> str:
        raise UnsupportedError("Changing GPU operation mode is not supported for GPU {}.".format(gpu["bus_id"]))

    return on_each_gpu(call, change)


def _range(option: str, call: Call) -> list[int]:
    """Parse ``MIN,MAX`` or one clock for both; raises UsageError."""
    clocks = integers(option, call.value or "")
    if len(clocks) == 1:
        clocks *= 2
    if len(clocks) != 2 or not 0 <= clocks[0] <= clocks[1]:
        raise options.invalid_value(option, call.value or "")
    return clocks


def _clock_call(call: Call, operation: str, index: int, gpu: Gpu) -> None:
    """Begin an operation on clocks, for which nvidia-smi has its own message about a missing permission."""
    bus_id = gpu["bus_id"]
    if not call.root_user:
        raise RefusedError(NO_CLOCK_PERMISSION.format(bus_id), nvml.NO_PERMISSION)
    driver_call(call, operation, index, f"Unable to change clocks for GPU {bus_id}: {{}}")


def _is_supported(model: Model, memory: int, graphics: int) -> bool:
    return any(
        step["memory"] == memory and graphics in range(step["to"], step["from"] + 1, step["step"] or 1)
        for step in model["supported_clocks"]
    )


def _in_mig_mode(gpu: Gpu) -> bool:
    return bool(gpu["mig_mode"] and gpu["mig_mode"]["current"])


def _model(gpu: Gpu) -> Model:
    return catalogue.load(gpu["model"])


def _architecture(gpu: Gpu) -> str:
    return str(_model(gpu)["architecture"])


def get_hostname(call: Call) -> Reply:
    """Handle ``--get-hostname``, which no GPU of the models supports."""
    lines = [
        "Hostname not supported for GPU {}.\nTreating as warning and moving on.\n".format(gpu["bus_id"])
        for _index, gpu in call.gpus
    ]
    return "".join(lines) + "All done.\n", 0


def not_simulated(call: Call) -> Reply:
    """Reject a modification that the simulator lacks; raises NotSimulatedError."""
    raise options.NotSimulatedError("--" + next(name for name in call.options if name in options.MODIFICATIONS))
