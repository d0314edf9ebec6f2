# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What earlier checks of a host found, kept in one bounded file. Private to this collection."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .._common.atomic_write import atomic_write
from .._common.json_text import parse_json
from .._common.regular_file import text_of
from . import growth
from .network import PortHistory
from .network import parsed as parsed_ports
from .readings import KEPT_COUNTERS, Earlier, Facts, began_again, counters_of

DIRECTORY = "/var/lib/gpu-fleet/health"
FILE = "history.json"
VERSION = 1

# Of each GPU, the newest.
MOST_CHANGES = 100
MOST_XIDS = 200
MOST_ERROR_COUNTS = 100
MOST_GPUS = 64
# Older entries are of no use to any row.
_KEPT_SECONDS = 90 * 24 * 3600.0
_DAY = 24 * 3600.0


@dataclass(frozen=True)
class XidRecord:
    """One Xid: `time` in seconds since 1970, None where the log has none; `unit` is the part of the GPU, if named."""

    code: int
    boot: str
    time: float | None = None
    unit: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Change:
    """A verdict that differs from the one before: `rows` are the ids of the policy rows that led to it."""

    time: float
    verdict: str
    remedy: str
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErrorCounts:
    """Memory errors over the life of a board that differ from the ones before, by name as in ERROR_COUNTS."""

    time: float
    counts: Mapping[str, int]


ERROR_COUNTS = ("ecc_corrected", "ecc_uncorrected", "remapped_rows_correctable", "remapped_rows_uncorrectable")


@dataclass(frozen=True)
class ErrorEvent:
    """Errors of one GPU: the Xids of one code and day, or by how many one of ERROR_COUNTS rose from check to check.

    `kind` is xid or one of ERROR_COUNTS, `xid` is the code of an Xid, `time` when the last one or the check was.
    """

    gpu: str
    serial: str | None
    time: float
    kind: str
    xid: int | None
    count: int


@dataclass(frozen=True)
class GpuHistory:
    """One GPU, by UUID. `checked` is the time of the last check, the counters are of that time. `hours`: what grew in
    the last ones. `reset`: the GPU was reset after this time, as its counters have shown. `above` are the PCI bus ids
    of the ports above it."""

    serial: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    checked: float = 0.0
    counters: Mapping[str, int | None] = field(default_factory=dict)
    hours: tuple[growth.Hour, ...] = ()
    reset: float = 0.0
    above: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    xids: tuple[XidRecord, ...] = ()
    errors: tuple[ErrorCounts, ...] = ()

    def earlier(self, now: float) -> Earlier:
        """What a check at the time `now` compares with."""
        return Earlier(now, self.checked, self.pci_bus_id, self.counters, self.hours)


@dataclass(frozen=True)
class History:
    """All GPUs that have been here. `models` are those that responded at the last check that found all, `ports` those
    of the GPUs' network that have had a link. A person has repaired the host at the time `repaired`, 0 where none has:
    what is older does not count."""

    models: tuple[str, ...] = ()
    gpus: Mapping[str, GpuHistory] = field(default_factory=dict)
    ports: Mapping[str, PortHistory] = field(default_factory=dict)
    repaired: float = 0.0

    def gpu(self, name: str | None) -> GpuHistory:
        """One GPU; empty for a new one."""
        return self.gpus.get(name or "", GpuHistory())

    def uuid_at(self, pci_bus_id: str) -> str | None:
        """The GPU that was last seen at an address, for one that does not respond any more."""
        there = [name for name, gpu in self.gpus.items() if gpu.pci_bus_id == pci_bus_id]
        return max(there, key=lambda name: self.gpus[name].checked, default=None)

    def is_above(self, pci_bus_id: str) -> bool:
        """Whether a port was above a GPU: below one whose link is down there is no device any more."""
        return any(pci_bus_id in gpu.above for gpu in self.gpus.values())

    def reset_time(self, gpu: Facts, resets: Mapping[str, float]) -> float | None:
        """The time before which all errors of a GPU are over, by this collection's own `resets` and by counters that
        only a reset and a start of the driver set to zero; None where no reset is known."""
        known = self.gpu(gpu["uuid"])
        times = [known.reset, resets.get(gpu["uuid"] or "", 0.0)]
        if gpu["error"] is None and began_again(known.counters, counters_of(gpu, Earlier())):
            times.append(known.checked)
        return max(times) or None

    def repaired_at(self, time: float) -> History:
        """The history of a host that a person has repaired: no GPU, link or port is missed that was there before."""
        gpus = {name: replace(gpu, counters={}, hours=()) for name, gpu in self.gpus.items()}
        return History(gpus=gpus, repaired=time)

    def earlier(self, name: str | None, now: float) -> Earlier:
        """What a check of one GPU compares with."""
        return self.gpu(name).earlier(now)


def parse(text: str | None) -> History:
    """Parse the output of `render`; a file that is missing, damaged or of another version is an empty history."""
    try:
        document = parse_json(text or "")
        if document["version"] != VERSION:
            return History()
        gpus = {str(name): _gpu(entry) for name, entry in document["gpus"].items()}
        ports = parsed_ports(document["ports"])
        return History(tuple(map(str, document["models"])), gpus, ports, float(document["repaired"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return History()


def _gpu(entry: Mapping[str, Any]) -> GpuHistory:
    return GpuHistory(
        serial=entry["serial"],
        name=entry["name"],
        pci_bus_id=entry["pci_bus_id"],
        checked=float(entry["checked"]),
        counters={name: entry["counters"].get(name) for name in KEPT_COUNTERS},
        hours=growth.parsed(entry["hours"]),
        reset=float(entry["reset"]),
        above=tuple(map(str, entry["above"])),
        changes=tuple(
            Change(
                float(change["time"]), str(change["verdict"]), str(change["remedy"]), tuple(map(str, change["rows"]))
            )
            for change in entry["changes"]
        ),
        xids=tuple(
            XidRecord(int(xid["code"]), str(xid["boot"]), xid["time"], str(xid["unit"]), bool(xid["fatal"]))
            for xid in entry["xids"]
        ),
        errors=tuple(
            ErrorCounts(float(each["time"]), {str(name): int(count) for name, count in each["counts"].items()})
            for each in entry["errors"]
        ),
    )


def render(history: History) -> str:
    """The history as text."""
    return json.dumps({"version": VERSION, **asdict(history)}, indent=1, sort_keys=True) + "\n"


def read(directory: str) -> History:
    """The history in `directory`; empty where none can be read."""
    try:
        return parse(text_of(os.path.join(directory, FILE)))
    except (OSError, ValueError):
        return History()


def write(directory: str, history: History) -> None:
    """Replace the file as a whole, readable by root only; raises OSError."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    atomic_write(os.path.join(directory, FILE), render(history).encode(), 0o600)


def merged(known: Sequence[XidRecord], found: Iterable[XidRecord], now: float) -> tuple[XidRecord, ...]:
    """Records without duplicates, the newest last: each check reads the log of this boot again."""
    # Times of one line differ by rounding between dmesg and journal.
    unique = {(record.boot, record.code, record.unit, _rounded(record.time)): record for record in (*known, *found)}
    ordered = sorted(unique.values(), key=lambda record: record.time or 0.0)
    young = [record for record in ordered if record.time is None or now - record.time <= _KEPT_SECONDS]
    return tuple(young[-MOST_XIDS:])


def _rounded(time: float | None) -> int | None:
    return None if time is None else int(time)


@dataclass(frozen=True)
class Check:
    """One check: its time, and by GPU the verdicts and the Xids. With `count_is_declared` fewer GPUs are no loss.
    `above` are the PCI ports above a GPU, by its PCI bus id; `ports` the ports of the network."""

    time: float
    facts: Facts
    verdicts: Mapping[str, Change] = field(default_factory=dict)
    xids: Mapping[str, Sequence[XidRecord]] = field(default_factory=dict)
    count_is_declared: bool = False
    above: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ports: Mapping[str, PortHistory] = field(default_factory=dict)


def updated(history: History, check: Check) -> History:
    """The history after a check. Verdicts are only added where they changed."""
    facts, verdicts = check.facts, check.verdicts
    by_name = {str(gpu["uuid"]): gpu for gpu in facts["gpus"] if gpu["uuid"]}
    gpus = dict(history.gpus)
    for name in dict.fromkeys((*by_name, *(name for name in verdicts if name.startswith("GPU-")))):
        gpus[name] = _checked(history.gpu(name), by_name.get(name), name, check)
    newest = sorted(gpus, key=lambda name: gpus[name].checked)[-MOST_GPUS:]
    found = tuple(str(gpu["name"]) for gpu in facts["gpus"] if gpu["error"] is None)
    models = found if check.count_is_declared or len(found) >= len(history.models) else history.models
    return History(models, {name: gpus[name] for name in newest}, check.ports, history.repaired)


def _checked(known: GpuHistory, gpu: Facts | None, name: str, check: Check) -> GpuHistory:
    if gpu is not None and gpu["error"] is None:
        counters = counters_of(gpu, known.earlier(check.time))
        known = replace(
            known,
            serial=gpu["serial"] or known.serial,
            name=gpu["name"],
            pci_bus_id=gpu["pci_bus_id"],
            counters=counters,
            reset=known.checked if began_again(known.counters, counters) else known.reset,
            above=check.above.get(gpu["pci_bus_id"] or "", known.above),
            hours=growth.after(known.hours, known.counters, counters, known.checked, check.time),
            errors=_with_errors(known.errors, ErrorCounts(check.time, _error_counts(gpu)), check.time),
        )
    changes, verdict = known.changes, check.verdicts.get(name)
    if verdict is not None and (not changes or _without_time(changes[-1]) != _without_time(verdict)):
        changes = (*changes, verdict)[-MOST_CHANGES:]
    xids = merged(known.xids, check.xids.get(name, ()), check.time)
    return replace(known, checked=check.time, changes=changes, xids=xids)


def _error_counts(gpu: Facts) -> dict[str, int]:
    aggregate = gpu["ecc_errors_aggregate"]
    readings = (
        aggregate["corrected_total"],
        aggregate["uncorrected_total"],
        gpu["remapped_rows_correctable"],
        gpu["remapped_rows_uncorrectable"],
    )
    return {name: count for name, count in zip(ERROR_COUNTS, readings) if count is not None}


def _with_errors(known: Sequence[ErrorCounts], found: ErrorCounts, now: float) -> tuple[ErrorCounts, ...]:
    """The counts with the counts of this check. Old ones are left out but for the last, to which the next compares."""
    if found.counts and (not known or known[-1].counts != found.counts):
        known = (*known, found)
    young = [each for each in known[:-1] if now - each.time <= _KEPT_SECONDS]
    return (*young, *known[-1:])[-MOST_ERROR_COUNTS:]


def error_events(history: History) -> list[ErrorEvent]:
    """Xids and memory errors of all GPUs, the newest first; without errors from before the first check."""
    events = [event for name, gpu in history.gpus.items() for event in (*_xid_events(name, gpu), *_rises(name, gpu))]
    return sorted(events, key=lambda event: event.time, reverse=True)


def _xid_events(name: str, gpu: GpuHistory) -> Iterator[ErrorEvent]:
    by_day: dict[tuple[int, int], list[float]] = {}
    for record in gpu.xids:
        if record.time is not None:
            by_day.setdefault((record.code, int(record.time // _DAY)), []).append(record.time)
    for (code, _day), times in by_day.items():
        yield ErrorEvent(name, gpu.serial, max(times), "xid", code, len(times))


def _rises(name: str, gpu: GpuHistory) -> Iterator[ErrorEvent]:
    for before, after in zip(gpu.errors, gpu.errors[1:]):
        for kind in ERROR_COUNTS:
            rise = after.counts.get(kind, 0) - before.counts.get(kind, 0)
            # A count is lower where it was cleared.
            if kind in before.counts and rise > 0:
                yield ErrorEvent(name, gpu.serial, after.time, kind, None, rise)


def _without_time(change: Change) -> Change:
    return replace(change, time=0.0)
