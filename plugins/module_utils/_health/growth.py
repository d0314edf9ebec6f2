# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By how much counters of a GPU grew in each hour of the clock. Private to this collection.

Checks come every few minutes, before each job, or once a day. What grew between two of them is spread over the hours
in between, so that the sum of an hour does not depend on how often the host is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

HOUR = 3600.0
# The hour of the check, and the three whole ones before it.
MOST_HOURS = 4
# A slowdown that two checks see lasted in between, where the driver has no counter of it, as before 575.
_SAME_SLOWDOWN_SECONDS = 900.0

REASONS = ("sw_thermal", "hw_thermal", "hw_power_brake")
"""Why heat and the power brake lower the clocks: `slowdown_` and one of these is a flag, with `_us` its counter."""
FLAGS = tuple(f"slowdown_{reason}" for reason in REASONS)
COUNTS = ("pci_replay_count", "nvlink_errors", "nvlink_crc_errors")


@dataclass(frozen=True)
class Hour:
    """What grew in the hour `number` since 1970: seconds of slowdowns, and counts; without what did not."""

    number: int
    grown: Mapping[str, float] = field(default_factory=dict)


def parsed(entries: Sequence[Mapping[str, Any]]) -> tuple[Hour, ...]:
    """The hours of a history; raises as it does where it is damaged."""
    return tuple(
        Hour(int(entry["number"]), {str(name): float(value) for name, value in entry["grown"].items()})
        for entry in entries
    )


def after(
    known: Sequence[Hour], before: Mapping[str, Any], now: Mapping[str, Any], since: float, time: float
) -> tuple[Hour, ...]:
    """The hours with what grew since the check at `since`, by the readings at both checks."""
    last = int(time // HOUR)
    since = min(since, time)
    hours = {hour.number: dict(hour.grown) for hour in known if last - MOST_HOURS < hour.number <= last}
    for name, amount in _grown(before, now, time - since).items():
        for number in range(last - MOST_HOURS + 1, last + 1):
            inside = min(time, (number + 1) * HOUR) - max(since, number * HOUR)
            share = inside / (time - since) if time > since else float(number == last)
            if share > 0:
                grown = hours.setdefault(number, {})
                grown[name] = round(grown.get(name, 0.0) + amount * share, 3)
    return tuple(Hour(number, hours[number]) for number in sorted(hours))


def _grown(before: Mapping[str, Any], now: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """What grew between two checks. A counter that is lower began again, and is compared at the next check."""
    found = {}
    for name in FLAGS:
        if now.get(f"{name}_us") is not None:
            found[name] = min(seconds, _rise(before, now, f"{name}_us") / 1e6)
        elif before.get(name) and now.get(name) and seconds <= _SAME_SLOWDOWN_SECONDS:
            found[name] = seconds
    found.update({name: _rise(before, now, name) for name in COUNTS})
    return {name: amount for name, amount in found.items() if amount > 0}


def _rise(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> float:
    old, new = before.get(name), now.get(name)
    return 0.0 if old is None or new is None else float(max(0, new - old))


def most(hours: Sequence[Hour], time: float, *names: str) -> float:
    """The most of one of some readings in the hour of the check or in the whole one before it."""
    recent = [hour.grown for hour in hours if time // HOUR - hour.number <= 1]
    return max((grown.get(name, 0.0) for grown in recent for name in names), default=0.0)


def in_a_row(hours: Sequence[Hour], time: float, name: str, least: float) -> int:
    """How many whole hours in a row, up to the one before the check, have at least this of a reading."""
    grown = {hour.number: hour.grown.get(name, 0.0) for hour in hours}
    number = int(time // HOUR) - 1
    count = 0
    while grown.get(number - count, 0.0) >= least:
        count += 1
    return count
