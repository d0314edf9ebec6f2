# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the declared settings of GPUs. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

from .._change.assignment import Declared, parse_declared
from .._common.bounds import CLOCK, Number, shown
from .._common.errors import ChangeError

DEFAULT = "default"
COMPUTE_MODES = {"default": "0", "prohibited": "2", "exclusive_process": "3"}
"""Compute modes with the value that `-c` takes."""

# The GPU's own range is narrower: no board in our recordings takes more than 117 percent of its default.
_WATTS, _PERCENT = Number("float", 1, 100_000, "watts"), Number("float", 1, 150, "percent")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_PERCENTAGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_RANGE = re.compile(r"([0-9]+)\s*-\s*([0-9]+)")


@dataclass(frozen=True)
class PowerLimit:
    """A limit in watts, or as a percentage of the default; with neither, the default itself."""

    watts: float | None = None
    percent: float | None = None


@dataclass(frozen=True)
class Clocks:
    """A range in MHz, with equal ends for a single clock; without ends the clocks are not locked."""

    low: int | None = None
    high: int | None = None

    def __str__(self) -> str:
        if self.low is None:
            return DEFAULT
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def parse_settings(options: Mapping[str, Any]) -> Declared:
    """Parse the module's options: one declaration, or the list `settings` of several; raises ChangeError."""
    return parse_declared(options, "settings", NAMES, _desired_settings)


def _desired_settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    desired = {name: parse(name, entry[name]) for name, parse in _PARSERS.items() if entry.get(name) is not None}
    if not desired:
        raise ChangeError(f"nothing is declared: set one of {', '.join(_PARSERS)}")
    return desired


def _parse_mode(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ChangeError(f"{name} is true or false, not {shown(value)}")
    return value


def _parse_compute_mode(name: str, value: object) -> str:
    if value == "exclusive_thread":
        raise ChangeError(f"{name}: exclusive_thread is deprecated; use exclusive_process")
    if value not in COMPUTE_MODES:
        raise ChangeError(f"{name} is one of {', '.join(COMPUTE_MODES)}, not {shown(value)}")
    return str(value)


def _parse_power_limit(name: str, value: object) -> PowerLimit:
    text = "" if isinstance(value, bool) else str(value).strip()
    percentage = _PERCENTAGE.fullmatch(text)
    if text == DEFAULT:
        return PowerLimit()
    try:
        if percentage is not None:
            return PowerLimit(percent=_PERCENT(percentage[1]))
        if _NUMBER.fullmatch(text):
            return PowerLimit(watts=_WATTS(text))
    except TypeError as error:
        raise ChangeError(f"{name}: {error}") from error
    raise ChangeError(f"{name} is a number of watts, a percentage like 80%, or {DEFAULT}, not {shown(value)}")


def _parse_clocks(name: str, value: object) -> Clocks:
    if value == DEFAULT:
        return Clocks()
    try:
        ends = _ends(value)
    except TypeError as error:
        raise ChangeError(f"{name}: {error}") from error
    if ends is None:
        raise ChangeError(
            f"{name} is a clock in MHz, a range like 1000-1500 or [1000, 1500], or {DEFAULT}, not {shown(value)}"
        )
    low, high = ends
    if low > high:
        raise ChangeError(f"{name}: the range {low}-{high} ends before it begins")
    return Clocks(low, high)


def _ends(value: object) -> tuple[int, int] | None:
    """The ends of a range in any of its forms, None for other values; raises TypeError for impossible ends."""
    if isinstance(value, str):
        found = _RANGE.fullmatch(value.strip())
        parts: Sequence[object] = found.groups() if found is not None else [value]
    else:
        parts = value if isinstance(value, (list, tuple)) else [value]
    if len(parts) not in (1, 2) or not all(map(_is_whole, parts)):
        return None
    return CLOCK(parts[0]), CLOCK(parts[-1])


def _is_whole(part: object) -> bool:
    if isinstance(part, str):
        return part.isascii() and part.strip().isdigit()
    return isinstance(part, int) and not isinstance(part, bool)


# In the order of application: settings that depend on persistence mode come after it.
_PARSERS: Mapping[str, Callable[[str, object], Any]] = {
    "persistence_mode": _parse_mode,
    "compute_mode": _parse_compute_mode,
    "power_limit_w": _parse_power_limit,
    "gpu_clocks_mhz": _parse_clocks,
    "memory_clocks_mhz": _parse_clocks,
    "accounting_mode": _parse_mode,
}
NAMES = tuple(_PARSERS)
"""The settings, in the order in which they are set."""
