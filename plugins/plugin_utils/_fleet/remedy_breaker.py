# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The circuit breaker of the remedies: too many new failures have a common cause. Private to this collection.

Pure: what fails in this run and what the directory of the remedies has recorded of all hosts in, the reason to touch
none of them out. A run for one host counts the fleet by these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low

TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Failure:
    """A host that fails, or that a run took out of service at `time`; without a time it counts whatever the clock is.

    Hosts of one `place` are one. `rows` of the health policy are empty where they are not known any more.
    """

    place: str
    rows: tuple[str, ...] = ()
    time: str = ""


@dataclass(frozen=True)
class Fleet:
    """What the directory of the remedies knows of all hosts, also from other runs: their places and failures."""

    places: frozenset[str] = frozenset()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Breaker:
    """More hosts than `stop_at`, a number or a percentage, and `minimum` at least, within `window_hours`."""

    stop_at: int | str
    minimum: int
    window_hours: int

    def limit(self, total: int) -> int:
        """How many of `total` hosts may fail."""
        return self.stop_at if isinstance(self.stop_at, int) else total * int(self.stop_at.rstrip("%")) // 100

    def trips(self, number: int, total: int) -> bool:
        """Whether so many new failures have a common cause."""
        return number >= self.minimum and number > self.limit(total)


def common_cause(failing: Sequence[Failure], places: Iterable[str], fleet: Fleet, breaker: Breaker, now: str) -> str:
    """Why no host is touched; empty where the new failures, of this run and of the window, are few enough.

    failing: the hosts that this run would treat; without any nothing is stopped. places: of all hosts of this run.
    """
    window = timedelta(hours=breaker.window_hours)
    recent = [one for one in fleet.failures if is_within(one.time, now, window)]
    failed = {one.place for one in (*failing, *recent)}
    total = len({*places, *fleet.places, *failed})
    if not failing or not breaker.trips(len(failed), total):
        return ""
    rows: dict[str, set[str]] = {}
    for one in (*failing, *recent):
        for row in one.rows:
            rows.setdefault(row, set()).add(one.place)
    often = sorted(rows, key=lambda row: (-len(rows[row]), row))[:5]
    found = ", ".join(f"{row} on {len(rows[row])}" for row in often)
    share = f"{breaker.stop_at} = " if isinstance(breaker.stop_at, str) else ""
    return (
        f"{len(failed)} of {total} hosts (NVLink domains count as one) fail now or were taken out of service in the "
        f"last {breaker.window_hours} hours ({found}); gpu_fleet_remediate_stop_at is {share}{breaker.limit(total)} "
        f"hosts, and gpu_fleet_remediate_stop_minimum is {breaker.minimum}: the cause is common, such as a driver, a "
        "fabric or the check itself, so no host is touched. Find it; to treat the hosts anyway, raise "
        "gpu_fleet_remediate_stop_at for a run"
    )


def is_within(time: str, now: str, span: timedelta) -> bool:
    """Whether a recorded time is within the span before now. One in the future is, and one that is no time."""
    try:
        return datetime.strptime(now, TIME) - datetime.strptime(time, TIME) <= span
    except ValueError:
        return True


def earlier(now: str, reported: Iterable[str]) -> str:
    """The time of the controller, or of the hosts where that is earlier: a clock that jumps ahead ends no limit.

    The median of the hosts, so that no host alone moves it.
    """
    times = [time for time in reported if _is_time(time)]
    return min(now, median_low(times)) if times else now


def _is_time(text: str) -> bool:
    try:
        datetime.strptime(text, TIME)
    except ValueError:
        return False
    return True
