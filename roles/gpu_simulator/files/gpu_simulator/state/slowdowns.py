# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lowered clocks: the event reasons that are active, and counters that grow as long as they are."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Collection, Mapping

    from .shapes import Gpu, Readings


class Reason:
    """Event reasons that are active together, their bits in NVML's mask, and the counter of their time."""

    def __init__(self, active: Collection[str], mask: int, counter: str) -> None:
        self.active = active
        self.mask = mask
        self.counter = counter


REASONS: Mapping[str, Reason] = {
    "hw_thermal": Reason(("hw_slowdown", "hw_thermal_slowdown"), 0x48, "hw_therm_slowdown"),
    "sw_thermal": Reason(("sw_thermal_slowdown",), 0x20, "sw_therm_slowdown"),
    "hw_power_brake": Reason(("hw_slowdown", "hw_power_brake_slowdown"), 0x88, "hw_power_brake"),
}
"""By their names on the command line of ``gpu-simulator``. The hardware's own reasons imply ``hw_slowdown``."""


def begin(gpu: Gpu, reason: str, seconds_ago: float) -> None:
    """Lower the clocks of a GPU since some seconds."""
    gpu.setdefault("slowdowns", {})[reason] = time.time() - seconds_ago


def restart_counters(gpu: Gpu) -> None:
    """Count from zero again, as a newly loaded driver does."""
    gpu["slowdowns"] = dict.fromkeys(gpu.get("slowdowns", {}), time.time())


def readings(gpu: Gpu, idle: bool) -> Readings:
    """Return the readings that differ from a GPU with its usual clocks."""
    given = gpu.get("slowdowns", {})
    if not given:
        return {}
    found: Readings = {}
    mask = 1 if idle else 0
    for name, since in given.items():
        reason = REASONS[name]
        mask |= reason.mask
        for event in reason.active:
            found["clocks_event_reasons/clocks_event_reason_" + event] = "Active"
        microseconds = max(0, int((time.time() - since) * 1e6))
        found["clocks_event_reasons_counters/clocks_event_reasons_counters_" + reason.counter] = f"{microseconds} us"
    found["csv/clocks_event_reasons.active"] = f"0x{mask:016X}"
    return found
