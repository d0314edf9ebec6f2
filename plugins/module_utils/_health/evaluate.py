# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what was read with the policy. Pure functions, private to this collection."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import AbstractSet, Any, Iterator, Mapping, Sequence

from .._nvidia_smi.values import bus_id
from . import xids as catalogue
from .active_tests import Diagnostics
from .ends import Ends, Proofs
from .history import History, XidRecord, merged
from .kernel_log import FALLEN_OFF_THE_BUS, RECOVERY_ACTION_CHANGED, Event, collapsed
from .kernel_log_sources import KernelLog
from .policy import ENDS, FAIL, INFO, REMEDIES, WARN, Row, remedy_of, worst
from .readings import Declared, Facts, gpu_readings, has_fabric_manager, host_readings, message_of, problems
from .table import CAUSES, CONSEQUENCES

# Xids of one failure come in a burst.
BURST_GAP_SECONDS = 180.0


@dataclass(frozen=True)
class Finding:
    """A row that holds. `gpu` is the UUID, the PCI bus id where there is none, or None for the whole host."""

    row: str
    gpu: str | None
    verdict: str
    remedy: str
    message: str
    source: str


@dataclass(frozen=True)
class XidCount:
    """All Xids of one code of one GPU. `is_over`: what ends them has happened since. Times since 1970."""

    gpu: str | None
    pci_bus_id: str | None
    code: int
    name: str
    count: int
    row: str
    verdict: str
    is_over: bool
    text: str
    pid: int | None = None
    process: str | None = None
    gpu_instances: tuple[int, ...] = ()
    first_time: float | None = None
    last_time: float | None = None


@dataclass(frozen=True)
class Observed:
    """All that was read. `ports` maps the PCI bus id of a port to the ids of GPUs below it, `slot_lanes` the id of a
    GPU to the PCIe lanes that its slot can have. `fabric_manager` is when its service was started, 0 if unknown."""

    facts: Facts
    declared: Declared = field(default_factory=Declared)
    log: KernelLog = field(default_factory=lambda: KernelLog(None))
    history: History = field(default_factory=History)
    host: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slot_lanes: Mapping[str, int] = field(default_factory=dict)
    resets: Mapping[str, float] = field(default_factory=dict)
    fabric_manager: float = 0.0
    boot: str = ""
    now: float = 0.0
    tested: Diagnostics = field(default_factory=Diagnostics)

    @property
    def repaired(self) -> float:
        """When a person has repaired the host; a time to come, by a clock that was set back, proves nothing."""
        return self.history.repaired if self.history.repaired <= self.now else 0.0


@dataclass(frozen=True)
class Report:
    """The findings, the worst first, what the kernel log has, and the Xids of each GPU for the history."""

    findings: tuple[Finding, ...]
    xids: tuple[XidCount, ...] = ()
    records: Mapping[str, tuple[XidRecord, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Of a lost GPU, which nvidia-smi lists by its index alone: its name in the findings."""

    def verdict(self, gpu: str | None = None) -> str:
        """The worst verdict of one GPU; of the host with all its GPUs for None."""
        return worst(finding.verdict for finding in self._of(gpu))

    def remedy(self, gpu: str | None = None) -> str:
        """The remedy of one GPU, or of the host with all its GPUs for None."""
        return remedy_of((finding.verdict, finding.remedy) for finding in self._of(gpu))

    def rows(self, gpu: str) -> tuple[str, ...]:
        """The rows that hold for one GPU."""
        return tuple(sorted({finding.row for finding in self._of(gpu)}))

    def _of(self, gpu: str | None) -> list[Finding]:
        return [finding for finding in self.findings if gpu in (None, finding.gpu)]


def evaluate(rows: Sequence[Row], observed: Observed) -> Report:
    """Everything that the rows find."""
    log = _LogReader(rows, observed)
    logged = list(log.findings())
    # The driver itself states why it does not use a display card.
    explained = {finding.gpu for finding in logged if finding.row == "display_unsupported"}
    found = [
        *(
            finding
            for finding in _gpu_findings(rows, observed)
            if finding.row != "gpu_unused" or not explained & {None, finding.gpu}
        ),
        *_host_findings(rows, observed),
        *logged,
    ]
    names = _names_of_lost(observed, found, list(log.counts()))
    found = [replace(finding, gpu=names.get(finding.gpu or "", finding.gpu)) for finding in found]
    found = _with_causes(found, log.causes(), observed.facts)
    records = log.records()
    found += _repetitions(rows, observed, records)
    order = {name: place for place, name in enumerate((FAIL, WARN, "unknown", INFO, "ok"))}
    return Report(
        tuple(sorted(found, key=lambda finding: order[finding.verdict])),
        tuple(log.counts()),
        records,
        names,
    )


def _with_causes(found: Sequence[Finding], causes: Mapping[str | None, str], facts: Facts) -> list[Finding]:
    """The findings, with the remedy of the cause where the log reports why the driver does not use a GPU: it would not
    use it after a reboot either."""
    lost = {problem["gpu"] for problem in facts["unhealthy"] if problem["code"] == "gpu_missing"}
    # Of a GPU that is too old the driver names the model and no address.
    any_gpu = causes.get(None)
    of_host = next(iter(causes.values()), None) if any_gpu or lost <= causes.keys() else None
    return [_with_remedy(each, causes.get(each.gpu, any_gpu) if each.gpu else of_host) for each in found]


def _with_remedy(finding: Finding, remedy: str | None) -> Finding:
    if remedy is None or finding.row not in CONSEQUENCES or finding.remedy == "none":
        return finding
    message = finding.message.rpartition(f"; {REMEDIES[finding.remedy]}")[0] or finding.message
    return replace(finding, remedy=remedy, message=f"{message}; {REMEDIES[remedy]}")


def _gpu_findings(rows: Sequence[Row], observed: Observed) -> Iterator[Finding]:
    facts = observed.facts
    listed = set()
    for gpu in facts["gpus"]:
        listed_as = gpu["uuid"] or gpu["pci_bus_id"]
        listed.add(listed_as)
        earlier = observed.history.earlier(gpu["uuid"], observed.now)
        lanes = observed.slot_lanes.get(gpu["pci_bus_id"] or "")
        readings = {
            **gpu_readings(gpu, facts, observed.declared, earlier, lanes),
            **observed.tested.readings(gpu["index"]),
        }
        name = identity(gpu, facts, observed.history)
        yield from _compared(rows, readings, facts, _Subject(name, _label(gpu), listed_as, gpu["name"]))
    for place in dict.fromkeys(problem["gpu"] for problem in facts["unhealthy"]):
        if place is not None and place not in listed:
            name = observed.history.uuid_at(place) or place
            yield from _compared(
                rows, {"problems": problems(facts, place)}, facts, _Subject(name, f"GPU {place}", place)
            )


def _host_findings(rows: Sequence[Row], observed: Observed) -> Iterator[Finding]:
    recorded, places = observed.history.models, {gpu.pci_bus_id for gpu in observed.history.gpus.values()}
    readings = {
        **host_readings(observed.facts, observed.declared, recorded, observed.host, places),
        **observed.tested.readings(None),
    }
    models = {gpu["name"] for gpu in observed.facts["gpus"]}
    # Thresholds of a model count where all GPUs are of that model.
    yield from _compared(rows, readings, observed.facts, _Subject(model=models.pop() if len(models) == 1 else None))


@dataclass(frozen=True)
class _Subject:
    """A GPU, or the host without a name. `listed_as` is the name of its problems, where that is another."""

    name: str | None = None
    label: str = ""
    listed_as: str | None = None
    model: str | None = None


def _compared(rows: Sequence[Row], readings: Mapping[str, Any], facts: Facts, subject: _Subject) -> Iterator[Finding]:
    scope = "host" if subject.name is None else "gpu"
    for row in rows:
        if row.reading and row.scope == scope and row.holds(readings.get(row.reading), subject.model):
            text = _text(row, readings[row.reading], facts, subject.listed_as)
            yield _finding(_for_model(row, subject.model), subject.name, subject.label, text)


def _for_model(row: Row, model: str | None) -> Row:
    """The row, without a Fabric Manager that the hosts of a model do not have: for GB200 and GB300 it runs on the
    switches."""
    if row.remedy == "restart_fabric_manager" and not has_fabric_manager(model):
        return replace(row, remedy="reset_gpu")
    return row


def _text(row: Row, reading: Any, facts: Facts, name: str | None) -> str:
    """What was read, for people."""
    if row.reading == "problems":
        return message_of(facts, name, row.value) or row.symptom
    if row.reading == "unavailable":
        return f"{row.symptom}: {facts['message']}"
    if row.value == "" and row.operator == "is_not":
        return str(reading)
    if reading is True:
        return row.symptom
    return f"{row.symptom} ({row.reading}: {reading})"


def _finding(row: Row, gpu: str | None, label: str, text: str) -> Finding:
    message = f"{label}: {text}" if label else text
    # The reason of a problem has a remedy of its own, which may be the same.
    if row.remedy != "none" and REMEDIES[row.remedy] not in message:
        message += f"; {REMEDIES[row.remedy]}"
    return Finding(row.id, gpu, row.verdict, row.remedy, message, row.source)


def _label(gpu: Facts) -> str:
    return f"GPU {gpu['index']} ({gpu['pci_bus_id']})" if gpu["pci_bus_id"] else f"GPU {gpu['index']}"


def identity(gpu: Facts, facts: Facts, history: History) -> str:
    """The UUID of a GPU, else the UUID last seen at its PCI bus id, else this id. A lost GPU may have
    neither: it is the one of an earlier check that is missing now, or is named by its index."""
    if gpu["uuid"] or gpu["pci_bus_id"]:
        return str(gpu["uuid"] or history.uuid_at(gpu["pci_bus_id"]) or gpu["pci_bus_id"])
    unnamed = [other for other in facts["gpus"] if not (other["uuid"] or other["pci_bus_id"])]
    missing = set(history.gpus) - {other["uuid"] for other in facts["gpus"]}
    return missing.pop() if len(unnamed) == len(missing) == 1 else f"index {gpu['index']}"


def _names_of_lost(observed: Observed, found: Sequence[Finding], counts: Sequence[XidCount]) -> dict[str, str]:
    """The GPU of which the kernel log has events, where it can only be the one that nvidia-smi lists without a name."""
    facts = observed.facts
    listed = {identity(gpu, facts, observed.history): gpu["pci_bus_id"] for gpu in facts["gpus"]}
    unnamed = [name for name in listed if name.startswith("index ")]
    others = {finding.gpu for finding in found} - {None, *listed}
    places = {count.pci_bus_id for count in counts if count.gpu in others} - {*listed.values()}
    on_bus = {gpu["pci_bus_id"] for gpu in facts["pci_gpus"]}
    is_certain = len(unnamed) == len(others) == len(places) == 1 and len(on_bus) in (0, len(listed))
    return {unnamed[0]: str(others.pop())} if is_certain and (not on_bus or places <= on_bus) else {}


@dataclass(frozen=True)
class _Read:
    """An event with the row that decides it. `place` is the PCI bus id of the device, `end` a key of ENDS, empty while
    the event lasts."""

    event: Event
    place: str | None
    row: Row
    end: str

    @property
    def is_over(self) -> bool:
        """Whether the event is only of interest."""
        return self.end != ""


class _LogReader:
    """The events of the kernel log, with their GPUs and rows."""

    def __init__(self, rows: Sequence[Row], observed: Observed) -> None:
        self._rows = [row for row in rows if not row.is_repetition and (row.xids or row.sxids or row.events)]
        self._observed = observed
        self._gpus: dict[str, Facts] = {
            str(gpu["pci_bus_id"]): gpu for gpu in observed.facts["gpus"] if gpu["pci_bus_id"] is not None
        }
        self._events = tuple(_without_repeats(collapsed(observed.log.events, catalogue.meaning)))
        self._logged = {_place(event): event.detail for event in self._events if event.kind == "uuid"}
        facts, history = observed.facts, observed.history
        proofs = Proofs(
            gpus=self._gpus,
            resets={place: history.reset_time(gpu, observed.resets) for place, gpu in self._gpus.items()},
            all_respond=not any(problem["code"] in ("gpu_missing", "gpu_lost") for problem in facts["unhealthy"]),
            repaired=observed.repaired,
            fabric_manager=observed.fabric_manager,
            now=observed.now,
        )
        self._ends = Ends(self._events, proofs, _place)
        self._read = tuple(self._classified())

    def causes(self) -> dict[str | None, str]:
        """The remedies of GPUs of which the driver reports why it does not use them, by name and by PCI bus id."""
        found: dict[str | None, str] = {}
        for read in self._read:
            if read.row.id in CAUSES and read.row.verdict == FAIL and not read.is_over:
                found.update(dict.fromkeys((read.place, self._subject(read)[0]), read.row.remedy))
        return found

    def findings(self) -> Iterator[Finding]:
        """One finding for each row, device and code."""
        for group in self._groups():
            first = group[0]
            row = replace(first.row, verdict=INFO, remedy="none") if first.is_over else first.row
            name, label = self._subject(first)
            yield _finding(row, name, label, self._description(group))

    def counts(self) -> Iterator[XidCount]:
        """The Xids by GPU and code."""
        for group in self._groups():
            last = group[-1].event
            if last.kind not in ("xid", "lost") or last.code is None:
                continue
            times = [read.event.time for read in group if read.event.time is not None]
            firsts = [_first_time(read.event) for read in group]
            yield XidCount(
                gpu=self._subject(group[0])[0],
                pci_bus_id=group[0].place,
                code=last.code,
                name=catalogue.NAMES.get(last.code, "unknown"),
                count=sum(read.event.count for read in group),
                row=group[0].row.id,
                verdict=INFO if group[0].is_over else group[0].row.verdict,
                is_over=group[0].is_over,
                text=last.text,
                pid=last.pid,
                process=last.process,
                gpu_instances=tuple(
                    sorted({read.event.gpu_instance for read in group if read.event.gpu_instance is not None})
                ),
                first_time=min((time for time in firsts if time is not None), default=None),
                last_time=max(times, default=None),
            )

    def records(self) -> dict[str, tuple[XidRecord, ...]]:
        """The Xids of each GPU for the history."""
        found: dict[str, list[XidRecord]] = {}
        for read in self._read:
            name = self._subject(read)[0]
            if read.event.kind in ("xid", "lost") and read.event.code not in (None, RECOVERY_ACTION_CHANGED) and name:
                for time in read.event.times or (read.event.time,):
                    record = XidRecord(
                        code=read.event.code or 0,
                        boot=self._observed.boot,
                        time=time,
                        unit=catalogue.unit_of(read.event),
                        fatal=read.row.verdict == FAIL,
                    )
                    found.setdefault(name, []).append(record)
        return {name: tuple(records) for name, records in found.items()}

    def _classified(self) -> Iterator[_Read]:
        causes = _Causes(self._events)
        loaded = self._ends.driver_loaded
        unsupported = any(event.kind == "unsupported" and event.line > loaded for event in self._events)
        for event in self._events:
            place = _place(event)
            if not self._concerns_a_gpu(event, place):
                continue
            qualifiers = self._qualifiers(event, place, causes, unsupported)
            row = next((row for row in self._rows if _fits(row, event, qualifiers)), None)
            if row is not None:
                gpu = self._gpus.get(place or "")
                row = _for_model(row, gpu["name"] if gpu else None)
                yield _Read(event, place, row, self._ends.of(event, place, row.ends))

    def _is_unused(self, place: str | None) -> bool:
        """Whether it is a display card next to GPUs at work; of one that is too old the driver names no address."""
        problems = self._observed.facts["unhealthy"]
        unused = {problem["gpu"] for problem in problems if problem["code"] == "gpu_unused"}
        return place in unused or (
            place is None and bool(unused) and all(problem["code"] != "gpu_missing" for problem in problems)
        )

    def _concerns_a_gpu(self, event: Event, place: str | None) -> bool:
        """Other devices have PCIe and IOMMU errors as well."""
        if event.kind not in ("aer", "iommu", "link_down", "inaccessible"):
            return True
        if place in self._gpus or bool(self._observed.ports.get(place or "")):
            return True
        listed = {gpu["pci_bus_id"] for gpu in self._observed.facts["pci_gpus"]}
        return place is not None and (place in listed or self._observed.history.is_above(place))

    def _qualifiers(self, event: Event, place: str | None, causes: _Causes, unsupported: bool) -> AbstractSet[str]:
        if event.kind in ("aer", "link_down", "init_failed", "assertion", "nvlink_init"):
            return frozenset((event.reason, event.detail or "") if event.kind == "aer" else (event.reason,))
        if event.kind == "probe_failed":
            return frozenset(("unsupported",) if unsupported else ())
        if event.kind == "unsupported":
            return frozenset(("unused",) if self._is_unused(place) else ())
        gpu = self._gpus.get(place or "", {})
        return catalogue.qualifiers(
            event,
            catalogue.Surroundings(
                is_caused=causes.has(event),
                rows_are_known=gpu.get("remapped_rows_pending") is not None,
                has_fabric_manager=has_fabric_manager(gpu.get("name"), gpu, len(self._gpus)),
                architecture=gpu.get("architecture"),
                driver_version=self._observed.facts["driver_version"],
            ),
        )

    def _groups(self) -> list[list[_Read]]:
        groups: dict[tuple[Any, ...], list[_Read]] = {}
        for read in self._read:
            subject = self._subject(read)
            key = (subject, read.event.code, read.row.id, read.is_over, read.event.kind.partition("_detail")[0])
            groups.setdefault(key, []).append(read)
        return list(groups.values())

    def _subject(self, read: _Read) -> tuple[str | None, str]:
        """The GPU of an event, and its label; an NVSwitch is part of the host."""
        place = read.place
        if place is None:
            return None, ""
        if read.event.kind.startswith("sxid"):
            return None, f"NVSwitch {place}"
        if read.event.kind == "nic_failed":
            return None, f"network adapter {place}"
        if self._ends.is_of_another_gpu(read.event, place):
            return read.event.uuid, f"GPU {read.event.uuid}, which was at {place}"
        gpu = self._gpus.get(place)
        if gpu is not None:
            return gpu["uuid"] or place, _label(gpu)
        if place in self._observed.ports or self._observed.history.is_above(place):
            return None, f"PCIe port {place}"
        return self._uuid_at(place) or place, f"GPU {place}"

    def _uuid_at(self, place: str) -> str | None:
        """The UUID of a GPU that does not respond: an earlier check knew it, or the driver has logged it."""
        return self._observed.history.uuid_at(place) or self._logged.get(place)

    def _description(self, group: Sequence[_Read]) -> str:
        last = group[-1]
        event = last.event
        if event.kind in ("xid", "lost"):
            what = catalogue.name_of(event.code or 0)
        elif event.code is not None:
            what = f"SXid {event.code}"
        else:
            what = event.kind.replace("_", " ")
        count = sum(read.event.count for read in group)
        times = f", {count} times" if count > 1 else ""
        instance = "" if event.gpu_instance is None else f" in GPU instance {event.gpu_instance}"
        by = "" if event.pid is None else f", last by {event.process or 'a process'} (PID {event.pid})"
        action = f" ({event.action[1]})" if event.action else ""
        over = f", over ({ENDS[last.end]})" if last.is_over else ""
        return f"{what}{instance}{times}{by}{over}: {last.row.symptom}{action}"


_CLEANUP = 45
# Removing the channels of a killed process takes a while.
_CAUSE_SECONDS = 60.0
# Where the log has no times.
_CAUSE_LINES = 200


class _Causes:
    """What makes the driver remove channels: another Xid, or the kernel that ends a process for want of memory.

    One GPU has the error, and all GPUs of the job have the cleanup.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        reasons = [
            event
            for event in events
            if event.kind in ("lost", "oom_kill") or (event.kind, event.code != _CLEANUP) == ("xid", True)
        ]
        self._places = {_place(event) for event in reasons if event.kind != "oom_kill"}
        self._pids = {event.pid for event in reasons} - {None}
        self._times = sorted(time for event in reasons for time in (*event.times, event.time) if time is not None)
        self._lines = [event.line for event in reasons]

    def has(self, event: Event) -> bool:
        """Whether the events that are joined in this one all have a cause."""
        if _place(event) in self._places or event.pid in self._pids:
            return True
        times = event.times or ((event.time,) if event.time is not None else ())
        if not times or not self._times:
            return any(abs(event.line - line) <= _CAUSE_LINES for line in self._lines)
        return all(self._is_close(time) for time in times)

    def _is_close(self, time: float) -> bool:
        place = bisect_left(self._times, time - _CAUSE_SECONDS)
        return place < len(self._times) and self._times[place] <= time + _CAUSE_SECONDS


def _first_time(event: Event) -> float | None:
    return event.time if event.first_time is None else event.first_time


@lru_cache(maxsize=4096)
def _normal(pci: str) -> str:
    return bus_id(pci + ".0")


def _place(event: Event) -> str | None:
    """The PCI bus id of an event's device, as nvidia-smi prints it."""
    return None if event.pci is None else _normal(event.pci)


def _fits(row: Row, event: Event, qualifiers: AbstractSet[str]) -> bool:
    kind = "xid" if event.kind == "lost" else event.kind
    if row.when and row.when not in qualifiers:
        return False
    if kind in row.events:
        return True
    return event.code in (row.xids if kind == "xid" else row.sxids if kind.startswith("sxid") else ())


def _without_repeats(events: Sequence[Event]) -> Iterator[Event]:
    """Without lines that repeat another: details of an SXid, a fall off the bus that was also an Xid."""
    printed = {(event.kind, event.pci, event.code) for event in events}
    for event in events:
        repeats = {"sxid_detail": "sxid", "lost": "xid"}.get(event.kind)
        code = FALLEN_OFF_THE_BUS if event.kind == "lost" else event.code
        if repeats is None or (repeats, event.pci, code) not in printed:
            yield event


def _repetitions(
    rows: Sequence[Row], observed: Observed, records: Mapping[str, Sequence[XidRecord]]
) -> Iterator[Finding]:
    """The rows about the same Xid again and again, over reboots."""
    known = {
        name: merged(observed.history.gpu(name).xids, records.get(name, ()), observed.now)
        for name in (*observed.history.gpus, *(name for name in records if name not in observed.history.gpus))
    }
    facts = observed.facts
    labels = {identity(gpu, facts, observed.history): _label(gpu) for gpu in facts["gpus"]}
    for row in (row for row in rows if row.is_repetition):
        since = max(observed.now - row.hours * 3600.0, observed.repaired)
        young = {
            name: [record for record in found if record.time is None or record.time >= since]
            for name, found in known.items()
        }
        gpus_of: dict[int, set[str]] = {}
        for name, found in young.items():
            for record in found:
                gpus_of.setdefault(record.code, set()).add(name)
        for name, found in young.items():
            # A GPU that is no longer here had its verdict when it was.
            if name not in labels and name not in records:
                continue
            for code, unit in sorted({(record.code, record.unit) for record in found if _is_meant(row, record)}):
                same = [record for record in found if (record.code, record.unit) == (code, unit)]
                elsewhere = gpus_of[code] != {name}
                if _is_repeated(row, same) and not (row.when == "one_gpu" and elsewhere):
                    of = f" of {unit}" if unit else ""
                    text = f"{catalogue.name_of(code)}{of}: {row.symptom}"
                    yield _finding(row, name, labels.get(name, f"GPU {name}"), text)


def _is_meant(row: Row, record: XidRecord) -> bool:
    return record.code in row.xids if row.xids else record.fatal


def _is_repeated(row: Row, records: Sequence[XidRecord]) -> bool:
    times = [record.time for record in records if record.time is not None]
    if row.bursts and catalogue.bursts(times, BURST_GAP_SECONDS) >= row.bursts:
        return True
    return bool(row.boots) and len({record.boot for record in records}) >= row.boots
