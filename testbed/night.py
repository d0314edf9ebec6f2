# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the tests that have waited longest since they passed, as many as fit into a night.

A record has the time at which each part passed, the commit, and the duration. A workflow keeps the file from one night
to the next; a part without an entry has waited longest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from testbed.parts import Part
from testbed.progress import CommandError
from testbed.suite import Outcome

# Processors also wait: for hosts that boot, and at the end for the longest part.
_USED = 0.8


@dataclass(frozen=True)
class Passed:
    """When a part passed: UTC as in 2026-11-29T02:17Z, the commit, and its minutes."""

    at: str
    commit: str
    minutes: float


Record = Mapping[str, Passed]


def read(path: Path) -> Record:
    """The record in a file, empty where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    try:
        return {str(name): Passed(**entry) for name, entry in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise CommandError(f"{path} is no record of the parts that passed; remove it") from None


def write(path: Path, record: Record) -> None:
    """Replace the file at once: a run that is stopped leaves what it has recorded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({name: asdict(record[name]) for name in sorted(record)}, indent=2) + "\n", "utf-8")
    new.replace(path)


def with_outcome(record: Record, outcome: Outcome, now: datetime, commit: str) -> Record:
    """The record after a part ended. One that failed, or of which every test was skipped, keeps its entry."""
    if outcome.result != "passed":
        return record
    passed = Passed(now.strftime("%Y-%m-%dT%H:%MZ"), commit, round(outcome.seconds / 60, 1))
    return {**record, outcome.part.name: passed}


def chosen(parts: Sequence[Part], record: Record, hours: float, processors: int) -> tuple[Part, ...]:
    """Parts for a night of so many hours, those that have waited longest first; always at least one."""
    waiting = sorted(parts, key=lambda part: record[part.name].at if part.name in record else "")
    left = hours * 60 * processors * _USED
    begin: list[Part] = []
    for part in waiting:
        minutes = record[part.name].minutes if part.name in record else part.expected
        needed = minutes * part.cores
        if not begin or needed <= left:
            begin.append(part)
            left -= needed
    return tuple(begin)


def table(parts: Sequence[Part], record: Record) -> list[str]:
    """A line for each part, those that have waited longest first."""
    never = Passed("never", "", 0.0)
    rows = sorted(
        ((record.get(part.name, never), part.name) for part in parts), key=lambda row: (row[0] != never, row[0].at)
    )
    lines = [f"{'part':<20}{'last passed':<19}{'minutes':>7}  commit"]
    return lines + [
        f"{name:<20}{passed.at:<19}{passed.minutes or '':>7}  {passed.commit}".rstrip() for passed, name in rows
    ]
