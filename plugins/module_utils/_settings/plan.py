# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Present and desired settings of a GPU, and the calls that apply them. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from .._change.assignment import missing
from .._change.locked_clocks import GPU_CLOCKS, MEMORY_CLOCKS, LockedClocks
from .._change.steps import Step
from .._common.errors import ChangeError
from .._nvidia_smi.gpu import Gpu
from .request import COMPUTE_MODES, DEFAULT, Clocks, PowerLimit

Values = Mapping[str, "str | None"]
"""The settings of one GPU by name, in the format of Target; None where unknown."""


@dataclass(frozen=True)
class Target:
    """Desired value of one setting of one GPU, and the arguments of the call that sets it."""

    setting: str
    value: str
    step: Step


def read(gpu: Gpu, clocks: LockedClocks) -> dict[str, str | None]:
    """The present settings of a GPU."""
    limit = gpu.basics.power_limit_w
    return {
        "persistence_mode": gpu.basics.persistence_mode,
        "compute_mode": gpu.basics.compute_mode,
        "power_limit_w": None if limit is None else _watts(limit),
        GPU_CLOCKS: clocks.known(gpu, GPU_CLOCKS),
        MEMORY_CLOCKS: clocks.known(gpu, MEMORY_CLOCKS),
        "accounting_mode": gpu.hardware.accounting_mode,
    }


def resolve(gpu: Gpu, setting: str, desired: Any) -> Target:
    """Resolve a desired value for this GPU.

    Raises UnsupportedError for a GPU that lacks the setting, ChangeError for a value that it cannot have.
    """
    value, what, arguments = _RESOLVERS[setting](gpu, desired)
    return Target(
        setting, value, Step(gpu.identity, setting, f"{what} of {gpu.label}", ("-i", gpu.identity, *arguments))
    )


def plan(targets: Sequence[Target], values: Values) -> tuple[Step, ...]:
    """The required calls: none where everything is as desired."""
    return tuple(target.step for target in targets if values[target.setting] != target.value)


def _persistence_mode(gpu: Gpu, desired: bool) -> tuple[str, str, tuple[str, ...]]:
    if gpu.basics.persistence_mode is None:
        raise missing(gpu, "persistence_mode", "persistence mode")
    return _word(desired), f"persistence mode {_word(desired)}", ("-pm", _number(desired))


def _compute_mode(gpu: Gpu, desired: str) -> tuple[str, str, tuple[str, ...]]:
    if desired != DEFAULT and _has_mig(gpu):
        raise ChangeError(
            f"compute_mode {desired} and MIG exclude each other on {gpu.label}: in MIG mode it is always {DEFAULT}; "
            "turn MIG off there, or leave compute_mode out"
        )
    if gpu.basics.compute_mode is None:
        raise missing(gpu, "compute_mode", "compute mode")
    return desired, f"compute mode {desired}", ("-c", COMPUTE_MODES[desired])


def _power_limit(gpu: Gpu, desired: PowerLimit) -> tuple[str, str, tuple[str, ...]]:
    power = gpu.power
    low, high = power.power_limit_min_w, power.power_limit_max_w
    if gpu.basics.power_limit_w is None:
        raise missing(gpu, "power_limit_w", "power limit")
    if low is None or high is None:
        raise missing(gpu, "power_limit_max_w", "range of power limits")
    if desired.watts is not None:
        watts = desired.watts
    elif power.power_limit_default_w is None:
        raise missing(gpu, "power_limit_default_w", "default power limit")
    elif desired.percent is not None:
        watts = float(round(power.power_limit_default_w * desired.percent / 100))
    else:
        watts = power.power_limit_default_w
    if not low <= watts <= high:
        raise ChangeError(
            f"power_limit_w: {watts:g} W is not possible on {gpu.label}, which takes {low:g} to {high:g} W"
        )
    return _watts(watts), f"power limit {watts:g} W", ("-pl", f"{watts:g}")


def _gpu_clocks(gpu: Gpu, desired: Clocks) -> tuple[str, str, tuple[str, ...]]:
    supported = [clock for item in gpu.supported_clocks or () for clock in item.graphics_mhz]
    _check_clocks(gpu, desired, GPU_CLOCKS, supported, gpu.clocks.clock_max_graphics_mhz)
    arguments = ("-rgc",) if desired.low is None else ("-lgc", f"{desired.low},{desired.high}")
    return str(desired), f"GPU clocks {desired}", arguments


def _memory_clocks(gpu: Gpu, desired: Clocks) -> tuple[str, str, tuple[str, ...]]:
    supported = [item.memory_mhz for item in gpu.supported_clocks or ()]
    _check_clocks(gpu, desired, MEMORY_CLOCKS, supported, gpu.clocks.clock_max_memory_mhz)
    arguments = ("-rmc",) if desired.low is None else ("-lmc", f"{desired.low},{desired.high}")
    return str(desired), f"memory clocks {desired}", arguments


def _accounting_mode(gpu: Gpu, desired: bool) -> tuple[str, str, tuple[str, ...]]:
    if desired and _has_mig(gpu):
        raise ChangeError(
            f"accounting_mode and MIG exclude each other on {gpu.label}: a GPU in MIG mode keeps no accounts; "
            "turn MIG off there, or leave accounting_mode out"
        )
    if gpu.hardware.accounting_mode is None:
        raise missing(gpu, "accounting_mode", "accounting mode")
    return _word(desired), f"accounting mode {_word(desired)}", ("-am", _number(desired))


_RESOLVERS: Mapping[str, Callable[[Gpu, Any], tuple[str, str, tuple[str, ...]]]] = {
    "persistence_mode": _persistence_mode,
    "compute_mode": _compute_mode,
    "power_limit_w": _power_limit,
    GPU_CLOCKS: _gpu_clocks,
    MEMORY_CLOCKS: _memory_clocks,
    "accounting_mode": _accounting_mode,
}


def _check_clocks(gpu: Gpu, desired: Clocks, setting: str, supported: Sequence[int], highest: int | None) -> None:
    """Check against the clocks that the GPU reports; the driver accepts any value between them."""
    known = [*supported, *([] if highest is None else [highest])]
    if not known:
        reading = "clock_max_graphics_mhz" if setting == GPU_CLOCKS else "clock_max_memory_mhz"
        raise missing(gpu, reading, "range of clocks")
    # Without the list of supported clocks only the maximum is known.
    low = min(supported) if supported else 0
    if desired.low is not None and desired.high is not None and not (low <= desired.low and desired.high <= max(known)):
        within = f"{low} to {max(known)} MHz" if supported else f"at most {max(known)} MHz"
        raise ChangeError(f"{setting}: {desired} is not possible on {gpu.label}, which takes {within}")


def _has_mig(gpu: Gpu) -> bool:
    return "enabled" in (gpu.basics.mig_mode_current, gpu.basics.mig_mode_pending)


def _watts(limit: float) -> str:
    """Watts in nvidia-smi's format."""
    return f"{limit:.2f}"


def _word(mode: bool) -> str:
    return "enabled" if mode else "disabled"


def _number(mode: bool) -> str:
    return "1" if mode else "0"
