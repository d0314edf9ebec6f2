# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a running unit was started before its configuration was written. Private to this collection.

A role that is interrupted after it wrote a configuration and before it restarted the unit leaves right files and a
process that has not read them. The next run finds this by comparing the time at which systemd started the process with
the times of modification of the files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Iterable, Mapping

STARTED = "ExecMainStartTimestampMonotonic"
"""The property with the start of the main process in microseconds of CLOCK_MONOTONIC.

The property without Monotonic is rounded to seconds, in a format of the local time zone, and wrong where the clock was
set after boot.
"""

# How far the clock may be corrected between two readings of one start.
_CLOCK_SECONDS = 2.0
_RUNNING = ("active", "activating", "reloading")


@dataclass(frozen=True)
class Unit:
    """A unit's state as systemd reports it; `active` is None where systemd does not run, as during an image build.

    `started` is when its running main process was started, in seconds since 1970; None without one.
    """

    name: str
    enabled: str
    active: str | None
    started: float | None = None


def epoch_of_monotonic() -> float:
    """The time in seconds since 1970 at which CLOCK_MONOTONIC was 0, by the present clock."""
    return time.time() - time.monotonic()


def started_at(microseconds: str, active: str) -> float | None:
    """The start of a running unit's main process in seconds since 1970; None where there is none."""
    if active not in _RUNNING or not microseconds.isdigit() or microseconds == "0":
        return None
    return epoch_of_monotonic() + int(microseconds) / 1e6


def stale_start(unit: Unit, started_after: Iterable[str], modified: Mapping[str, Mapping[str, float]]) -> str:
    """The message where a running unit has not read the present files, otherwise empty.

    A file with a time in the future is ignored: no restart would be late enough for it.
    """
    if unit.started is None:
        return ""
    now = time.time()
    newer = [
        path
        for wildcard in started_after
        for path, changed in sorted(modified.get(wildcard, {}).items())
        if unit.started < changed <= now
    ]
    if not newer:
        return ""
    return f"{unit.name} was started before the last change of {', '.join(dict.fromkeys(newer))}"


def other_start(name: str, recorded: float | None, found: float | None) -> str:
    """The message where a unit's process is not known to be the one of the record, otherwise empty."""
    if found is None:
        return f"{name} does not run, or it is not known since when"
    if recorded is None or abs(found - recorded) > _CLOCK_SECONDS:
        return f"{name} was started again"
    return ""
