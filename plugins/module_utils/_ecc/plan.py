# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a GPU's ECC mode and counters, and the calls that apply it. Private to this collection."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Mapping, Sequence

from .._change.assignment import Declared, UnsupportedError, missing, parse_declared
from .._change.steps import Step
from .._common.errors import ChangeError
from .._nvidia_smi.gpu import EccCounters, Gpu

ENABLED = "enabled"
CLEAR_COUNTERS = "clear_counters"
KINDS = {"volatile": "0", "aggregate": "1"}
"""Kinds of counters (since the driver was loaded; over the GPU's lifetime) with the value that `-p` takes."""

_TOTALS = ("single_bit_total", "double_bit_total")


def parse_modes(options: Mapping[str, Any]) -> Declared:
    """Read the module's options: one declaration, or the list `modes` of several; raises ChangeError."""
    return parse_declared(options, "modes", (ENABLED, CLEAR_COUNTERS), _desired_settings)


def _desired_settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    desired = {name: entry[name] for name in (ENABLED, CLEAR_COUNTERS) if entry.get(name) is not None}
    if not desired:
        raise ChangeError(f"nothing is declared: set {ENABLED} or {CLEAR_COUNTERS}")
    if desired.get(CLEAR_COUNTERS, "volatile") not in KINDS:
        raise ChangeError(f"{CLEAR_COUNTERS} is {' or '.join(KINDS)}, not {desired[CLEAR_COUNTERS]!r}")
    return desired


def check(gpu: Gpu, desired: Mapping[str, Any]) -> None:
    """Refuse what this GPU does not support: UnsupportedError, or ChangeError where that cannot be read."""
    basics = gpu.basics
    if basics.ecc_mode_current is None:
        raise missing(gpu, "ecc_mode_current", "ECC mode")
    if basics.ecc_mode_pending is None and desired.get(ENABLED, is_on(gpu)) != is_on(gpu):
        raise UnsupportedError(f"the ECC mode of {gpu.label} is fixed: it is {basics.ecc_mode_current}")
    kind = desired.get(CLEAR_COUNTERS)
    if kind is not None and is_on(gpu) and errors(counters(gpu, kind)) is None:
        raise UnsupportedError(f"{gpu.label} shows no {kind} ECC counters")


def plan(gpu: Gpu, desired: Mapping[str, Any]) -> tuple[Step, ...]:
    """The required calls: none where the counters are zero and the pending mode is the declared one.

    Counters are cleared first, because they do not exist with ECC off.
    """
    steps = []
    kind = desired.get(CLEAR_COUNTERS)
    if kind is not None and errors(counters(gpu, kind)):
        what = f"clearing the {kind} ECC counters of {gpu.label}"
        steps.append(Step(gpu.identity, CLEAR_COUNTERS, what, ("-i", gpu.identity, "-p", KINDS[kind])))
    enabled = desired.get(ENABLED)
    if enabled is not None and enabled != will_be_on(gpu):
        what = f"{'enabling' if enabled else 'disabling'} ECC of {gpu.label}"
        steps.append(Step(gpu.identity, ENABLED, what, ("-i", gpu.identity, "-e", "1" if enabled else "0")))
    return tuple(steps)


def predicted(gpu: Gpu, steps: Sequence[Step]) -> Gpu:
    """The predicted GPU after the calls, before a reset."""
    for step in steps:
        if step.setting == ENABLED:
            pending = "disabled" if will_be_on(gpu) else "enabled"
            gpu = replace(gpu, basics=replace(gpu.basics, ecc_mode_pending=pending))
        elif step.arguments[-1] == KINDS["volatile"]:
            gpu = replace(gpu, ecc=replace(gpu.ecc, ecc_errors_volatile=_zero(gpu.ecc.ecc_errors_volatile)))
        else:
            gpu = replace(gpu, ecc=replace(gpu.ecc, ecc_errors_aggregate=_zero(gpu.ecc.ecc_errors_aggregate)))
    return gpu


def is_on(gpu: Gpu) -> bool:
    """Whether ECC is on now."""
    return gpu.basics.ecc_mode_current == "enabled"


def will_be_on(gpu: Gpu) -> bool:
    """Whether ECC is on after the next reboot."""
    return (gpu.basics.ecc_mode_pending or gpu.basics.ecc_mode_current) == "enabled"


def is_pending(gpu: Gpu) -> bool:
    """Whether the mode changes at the next reboot."""
    return is_on(gpu) != will_be_on(gpu)


def counters(gpu: Gpu, kind: str) -> EccCounters:
    """The counters of one kind."""
    return gpu.ecc.ecc_errors_volatile if kind == "volatile" else gpu.ecc.ecc_errors_aggregate


def _zero(of: EccCounters) -> EccCounters:
    return replace(of, **{name: 0 for name, count in asdict(of).items() if count is not None})


def errors(of: EccCounters) -> int | None:
    """The number of counted errors; None where the GPU reports no counter.

    Old layouts also have a total, which may include memories that are not listed.
    """
    counted: Mapping[str, int | None] = asdict(of)
    known = {name: count for name, count in counted.items() if count is not None}
    if not known:
        return None
    totals = sum(known.pop(name) for name in _TOTALS if name in known)
    return max(totals, sum(known.values()))
