# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the driver and the PCI bus reported in the kernel log. Private to this collection.

The driver prints `NVRM: Xid (PCI:dddd:bb:dd[.f][ GPU-I:nn[ GPU-CI:nn]]): code, [pid=P, name=N, ]text`. Older drivers
print no `PCI:`, some lines end at the code, and before it may be what dmesg, the journal and syslog add: a time, a
host, a facility, a thread. Nothing else may be before it: names of processes, of control groups and of USB devices are
in the middle of other messages, and users choose them.
"""

from __future__ import annotations

import re
from calendar import timegm
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, Match, Sequence

from .._nvidia_smi.pci import PASSTHROUGH
from .kernel_reports import BEGINNINGS as _REPORTS
from .kernel_reports import Reports

FALLEN_OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154

# The kernel cuts its own lines at 1024 characters; what is longer is not a line of the driver.
LONGEST_LINE = 4096

# What dmesg, journalctl and syslog write before a message, in the order in which they write it.
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?UTC|Z|[+-]\d\d:?\d\d)?"
# A month or a day of the week in any language, such as `Sept.` and `11月`.
_WORD = r"(?:\d{1,2})?[^\W\d_]{1,12}\.?"
# What a program has logged has its facility in place of the host where a syslog writes no host.
_OTHER_FACILITY = re.compile(
    r"(?:auth|authpriv|cron|daemon|ftp|lpr|mail|news|syslog|user|uucp|local[0-7])"
    r"\.(?:emerg|alert|crit|err|error|warn|warning|notice|info|debug) "
)
# RFC 5424: the number of the process, the id of the message, structured data, and of UTF-8 a mark of its byte order.
_RFC_5424 = r" (?:-|\d{1,9}) [!-~]{1,32} (?:-|(?:\[(?:[^\]\\]|\\.){1,512}\]){1,8})(?: +\ufeff?|$)"
_PREFIX = re.compile(
    r"(?:\d{1,3}(?:\.\d{1,3}){3}: )?"  # the address of the host that talosctl asked
    r"(?P<level><[0-7]>(?P<version>1 )?)?"  # a higher number is of a program
    r"(?P<kmsg>[0-7],\d{1,19},(?P<micros>\d{1,19}),[^;\s]{1,64};)?"  # /dev/kmsg
    r"(?P<facility>kern *: *\w{1,8} *: *)?"
    r"(?:(?P<epoch>\d{9,20}\.\d{1,9}) +|"
    rf"(?:{_WORD} (?=\d{{4}}-))?(?P<iso>{_ISO}):? +(?:[A-Z]{{3,5}} (?=\S+ +kernel))?|"
    r"(?:[A-Z][a-z]{2} (?=[A-Z]))?"
    rf"{_WORD} {{1,2}}\d{{1,2}} (?:\d{{4}} )?\d\d:\d\d:\d\d(?:\.\d{{1,9}})? +(?:\d{{4}} )?|"
    r"\d\d:\d\d:\d\d +)?"
    r"(?P<brackets>(?:\[[^\[\]]{1,64}\]:? *){0,3})"
    r"(?P<tag>(?:[^\s:]{1,255} +(?:kern\.\w{1,8} +)?)?kernel(?:\[\d{1,9}\])?"
    rf"(?:: *| - - -(?: +\ufeff?|$)|(?(version){_RFC_5424}|(?!))))?"
    r"(?P<more>(?:\[[^\[\]]{1,64}\]:? *){0,3})"
)
# What `dmesg --color=always` adds.
_COLORS = re.compile(r"\x1b\[[0-9;]{0,16}m")
# In brackets: the seconds since the boot, a thread or processor, a date.
_SINCE_BOOT = re.compile(r"\[ *(\d{1,20}\.\d{1,9})(?: *| <[ \d.]{1,24}\*? ?>)\]")
_BRACKET = re.compile(
    r"\[(?: *\+?\d{1,20}[.,]\d{1,9}(?: *| <[ \d.]{1,24}\*? ?>)|<[ \d.]{1,24}\*? ?>"
    r"| *[TC]\d{1,10}(?:@[TC]?\d{1,10})?|[^\d\W]{1,5}[^\[\]]{0,30}\d\d:\d\d[^\[\]]{0,30}"
    r"|(?P<iso>" + _ISO + r"))\]:? *"
)
_ISO_PARTS = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?:( ?UTC|Z)|([+-])(\d\d):?(\d\d))?"
)

# Domain (missing in a few messages), bus and device; the function is read and ignored.
_ADDRESS = r"(?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_DMAR_ADDRESS = _ADDRESS.replace(":[", ":(?:0x)?[")
_DEVICE = rf"[\w-]{{1,32}} {_ADDRESS}: "

_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?:{_ADDRESS}|[^\s)]{{1,64}})"
    r"(?: GPU-I:(?P<gi>\d{1,4}))?(?: GPU-CI:(?P<ci>\d{1,4}))?\): "
    r"(?P<code>\d{1,7})(?=[\s,.]|$)(?P<rest>.*)",
    re.DOTALL,
)
_PID = re.compile(r"[,\s]*pid=(?:'?<unknown>'?|(?P<pid>\d{1,10}))(?:,\s*|$)")
_NAME = re.compile(r"\s*name=(?:<unknown>|(?P<name>.{0,64}?))(?:,\s|,?$)")
_NEW_ACTION = re.compile(r"\bto (?P<number>0x[0-9a-fA-F]{1,8}) \((?P<text>[^()]{0,80})\)")
_CAUSE = re.compile(r"caused by previous Xid (?P<cause>\d{1,7})\b")
_FATAL = re.compile(r"\b(?:(?P<fatal>[Ff]atal)|[Nn]on-?[Ff]atal)\b")

_SXID = re.compile(rf"[\w-]{{1,32}}: SXid \(PCI:{_ADDRESS}\): (?P<code>\d{{1,7}}), (?P<rest>.*)", re.DOTALL)
_SXID_DETAIL = re.compile(r"(?:Severity \d|Data \{)")

# The driver prints it over several lines, with only the first naming the GPU.
_GPU_BLOCK = re.compile(rf"NVRM: The NVIDIA (?:GPU {_ADDRESS}|.{{1,64}}GPU installed)")
_BLOCK_LINES = 5
_LOST = "fallen off the bus"
_UNSUPPORTED = ("not supported by", "driver will ignore this GPU", "requires use of the NVIDIA open")

_AER = re.compile(rf"{_DEVICE}(?P<rest>(?:AER: |PCIe Bus Error: ).*)", re.DOTALL)
_AER_SOURCE = re.compile(rf"received(?::| from) {_ADDRESS}")
_AER_SEVERITIES = (
    ("fatal", re.compile(r"Uncorrect(?:ed|able) \(Fatal\)")),
    ("nonfatal", re.compile(r"Uncorrect(?:ed|able)\b")),
    ("corrected", re.compile(r"\bCorrect(?:ed|able)\b")),
)
_NOT_RECOVERED = ("can't recover", "evice recovery failed")
# From the firmware, over several lines: ACPI's generic hardware errors.
_GHES = re.compile(r"(?:\{\d{1,10}\})?\[Hardware Error\]: +(?P<rest>.*)", re.DOTALL)
_GHES_TYPE = re.compile(r"Error \d{1,4}, type: (?P<type>\w{1,16})")
_GHES_DEVICE = re.compile(rf"device_id: {_ADDRESS}$")
_GHES_OF_THE_HOST = re.compile(r"section_type: (?:memory error|(?:general|IA32/X64|ARM) processor error)")
_GHES_SEVERITIES = {"fatal": "fatal", "recoverable": "nonfatal", "corrected": "corrected", "info": "corrected"}

_LINK_DOWN = re.compile(
    rf"(?:pcieport|pciehp|pci) {_ADDRESS}(?::pcie\w{{1,8}})?: (?:"
    r"(?P<dpc>DPC: containment event\b)|(?:pciehp: )?[Ss]lot\([^)]{0,64}\): Link Down(?! ?/))"
)


@dataclass(frozen=True)
class Event:
    """One event, or several that mean the same. `line` counts from 0, `time` is in seconds since 1970 where known.

    `pci` is domain, bus and device as printed, in lower case, None where the line names none. `detail` depends on
    `kind`: a UUID, the codes of a failed initialization, a severity. `pid` and `process` are None where the driver does
    not know them. `action` is the number and text of the recovery action that an Xid 154 reports, `cause` the Xid that
    led to this one. `is_fatal` is what the line states, None where it states nothing. `reason` is its cause by
    other lines, `uuid` the GPU that the driver had last named at this address. `line` and all that is not the same
    are from the last of `count` events; `times` are of the newest, in whole seconds.
    """

    kind: str
    line: int
    text: str
    pci: str | None = None
    code: int | None = None
    time: float | None = None
    pid: int | None = None
    process: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    action: tuple[int, str] | None = None
    cause: int | None = None
    is_fatal: bool | None = None
    detail: str | None = None
    reason: str = ""
    uuid: str | None = None
    count: int = 1
    first_time: float | None = None
    times: tuple[float, ...] = ()


def _event(**fields: Any) -> Event:
    """An event, at a third of the cost of the constructor of a frozen dataclass: a log may have a million."""
    event = object.__new__(Event)
    event.__dict__.update(_DEFAULTS)
    event.__dict__.update(fields)
    return event


def _with(event: Event, **fields: Any) -> Event:
    """The event with other fields, likewise."""
    return _event(**{**event.__dict__, **fields})


_DEFAULTS = dict(Event("", 0, "").__dict__)

BOOT = "boot"
"""The kind of the event that begins a boot: what is before it is of an earlier one."""


def parse(lines: Sequence[str], boot_time: float | None = None) -> tuple[Event, ...]:
    """The events in `lines` since the last boot, in order. With `boot_time`, in seconds since 1970, times since the
    boot are converted."""
    found: list[Event] = []
    reader = Reader(boot_time)
    for line in lines:
        for event in reader.read(line):
            if event.kind == BOOT:
                found.clear()
            else:
                found.append(event)
    return tuple(sorted(found, key=lambda event: event.line))


class Reader:
    """Reads the lines of one log, one after the other."""

    def __init__(self, boot_time: float | None = None) -> None:
        self.boot_time = boot_time
        self.first_time: float | None = None
        # Whether a line is in a form that only the kernel's log has, so that it is one.
        self.is_kernel_log = False
        self._line = -1
        self._begin()

    def _begin(self) -> None:
        """Drop what lines of an earlier boot have reported."""
        self._reports = Reports()
        self._uuids: dict[str, str] = {}
        # Lines that state why the driver does not initialize a GPU.
        self._hints: dict[str, int] = {}
        # A message over several lines: its event, what has been read of it, its last line.
        self._block: tuple[Event, str, int] | None = None
        self._severity: str | None = None
        self._has_begun_to_load = False

    def read(self, line: str) -> Iterator[Event]:
        """The events that are complete with this line."""
        self._line += 1
        line = line[:LONGEST_LINE].rstrip("\r\n")
        if "\x1b" in line:
            line = _COLORS.sub("", line)
        prefix = _PREFIX.match(line)
        # Every part of the pattern is optional, so that it always matches.
        if prefix is None:
            return
        start = _end_of_prefix(line, prefix)
        if self.first_time is None:
            self.first_time = _time(prefix, self.boot_time)
        if line.startswith("Linux version ", start):
            self._begin()
            self.is_kernel_log = True
            yield Event(BOOT, self._line, "")
            return
        if not self.is_kernel_log:
            self.is_kernel_log = _is_of_the_kernel(line, prefix)
        # syslog writes a line break within a message like this.
        text = line[start:]
        if "#012" in text:
            text = text.replace("#012", " ")
        if text[:1] in (" ", "\t"):
            # A further line of a message. An Xid is always a message of its own.
            text = text.lstrip()
            if text.startswith("NVRM: Xid"):
                return
        if self._block is not None:
            yield from self._block_events(text)
        if self._reports.kind:
            reported = self._reports.read_further(text)
            if reported is not None:
                yield _event(line=self._line, time=_time(prefix, self.boot_time), **reported)
                return
        begins = text[:2] in _STARTS and text.startswith(_BEGINNINGS)
        if not begins and not any(map(text[:64].__contains__, _WORDS)):
            return
        if _is_of_a_program(prefix):
            return
        for event in self._events(text, prefix):
            self.is_kernel_log = True
            yield event

    def _events(self, text: str, prefix: Match[str]) -> Iterator[Event]:
        number = self._line
        if text.startswith(_FIRMWARE_FIRST):
            yield from self._ghes(text, prefix)
            return
        readers = _READERS_BY_BEGINNING.get(text[:4], _READERS)
        if readers is _READERS and text.startswith(_REPORTS):
            self._reports.begin(text)
            return
        for read in readers:
            fields = read(text)
            if fields is None:
                continue
            pci = fields.get("pci")
            fields.setdefault("text", text.strip())
            event = _event(
                line=number,
                time=_time(prefix, self.boot_time),
                uuid=self._uuids.get(pci) if pci else None,
                **fields,
            )
            if event.kind == "uuid" and event.pci and event.detail:
                self._uuids[event.pci] = event.detail
                event = _with(event, uuid=event.detail)
            elif event.kind in _HINTS:
                self._hints[event.kind] = number
            elif event.kind == "init_failed":
                event = _with(event, reason=self._reason(event))
            elif event.kind == "driver_loaded":
                # The driver probes the GPUs first, and then prints that it has been loaded.
                has_begun, self._has_begun_to_load = self._has_begun_to_load, not text.startswith("NVRM")
                if has_begun and text.startswith("NVRM"):
                    return
            elif event.kind == "conflict" and self._has_hint("passed_through", number):
                # Passed to a virtual machine on purpose.
                return
            if event.kind == "block":
                self._block = (event, text, number + _BLOCK_LINES)
                yield from self._block_events("")
                return
            if event.kind not in ("not_ready", "passed_through"):
                yield event
            return

    def _has_hint(self, kind: str, number: int) -> bool:
        line = self._hints.get(kind)
        return line is not None and number - line <= _HINTS[kind]

    def _reason(self, event: Event) -> str:
        """Why the driver could not initialize a GPU, as far as the lines just before it state it."""
        for hint in ("firmware_missing", "not_ready"):
            if self._has_hint(hint, event.line):
                return hint
        # The open module refuses a GPU that it is not released for.
        return "not_ready" if (event.detail or "").startswith("0x63:0x0:") else ""

    def _block_events(self, text: str) -> Iterator[Event]:
        """The event of a message over several lines, once it is known what it is about."""
        if self._block is None:
            return
        event, read, last = self._block
        if text.startswith("NVRM: The NVIDIA GPU") or (text and not text.startswith("NVRM:")) or self._line > last:
            self._block = None
            return
        read += " " + text.replace("NVRM:", " ")
        self._block = (event, read, last)
        words = " ".join(read.replace("NVRM:", " ").split())
        if _LOST in words:
            about = _with(event, kind="lost", text=f"the GPU has {_LOST} and does not respond", code=79)
        elif any(part in words for part in _UNSUPPORTED):
            about = _with(event, kind="unsupported", text=words)
        else:
            return
        self._block = None
        yield about

    def _ghes(self, text: str, prefix: Match[str]) -> Iterator[Event]:
        report = _GHES.match(text)
        if report is None:
            return
        is_of_this_boot, text = text.startswith("{"), report["rest"]
        found = _GHES_TYPE.match(text)
        if found is not None:
            self._severity = _GHES_SEVERITIES.get(found["type"], "nonfatal")
        elif text.startswith("section_type:") and not text.startswith("section_type: PCIe error"):
            # At the boot the firmware also reports, without a number, what ended the boot before.
            if is_of_this_boot and self._severity in ("fatal", "nonfatal") and _GHES_OF_THE_HOST.match(text):
                time = _time(prefix, self.boot_time)
                yield Event("host_error", self._line, text, detail=self._severity, time=time)
            self._severity = None
        elif self._severity is not None:
            device = _GHES_DEVICE.match(text)
            if device is not None:
                time = _time(prefix, self.boot_time)
                yield Event("aer", self._line, text, _address(device), detail=self._severity, time=time)


# Messages that mean something only with one of the next lines, and how many lines those are.
_HINTS = {"firmware_missing": 5, "not_ready": 5, "passed_through": 64}


def _end_of_prefix(line: str, prefix: Match[str]) -> int:
    """Where the message begins: a bracket that holds no time is part of it."""
    for name in ("brackets", "more"):
        place, end = prefix.start(name), prefix.end(name)
        while place < end:
            bracket = _BRACKET.match(line, place, end)
            if bracket is None:
                return place
            place = bracket.end()
    return prefix.end()


def _is_of_a_program(prefix: Match[str]) -> bool:
    """Whether syslog has noted another facility than the kernel's."""
    tag = prefix["tag"]
    return tag is not None and "." in tag[:16] and _OTHER_FACILITY.match(tag) is not None


def _is_of_the_kernel(line: str, prefix: Match[str]) -> bool:
    """Whether a prefix is none that another program's log has as well: a date, or a date in brackets."""
    if _is_of_a_program(prefix):
        return False
    if any(prefix[name] for name in ("level", "kmsg", "facility", "tag")):
        return True
    bracket = _BRACKET.match(line, prefix.start("brackets"), prefix.end("brackets"))
    # The comma is dmesg's.
    return "," in (prefix["iso"] or "") or (bracket is not None and not bracket["iso"])


_END_OF_TIME = 253402300800.0
"""The year 10000: no clock of a host, and more than a date can be."""
_LONGEST_BOOT = 100 * 366 * 86400.0
"""No host runs for so long: what a counter that has overflowed prints."""


def _time(prefix: Match[str], boot_time: float | None) -> float | None:
    """The time of a line in seconds since 1970; None where its form has no complete one."""
    time = _printed_time(prefix, boot_time)
    return time if time is not None and time < _END_OF_TIME else None


def _printed_time(prefix: Match[str], boot_time: float | None) -> float | None:
    if prefix["epoch"]:
        return float(prefix["epoch"])
    if prefix["iso"]:
        time = _seconds(prefix["iso"])
        if time is not None:
            return time
    for name in ("brackets", "more"):
        if prefix[name]:
            since = _SINCE_BOOT.match(prefix[name])
            if since:
                return _after_boot(float(since[1]), boot_time)
            bracket = _BRACKET.match(prefix[name])
            if bracket and bracket["iso"]:
                return _seconds(bracket["iso"])
    return _after_boot(int(prefix["micros"]) / 1e6, boot_time) if prefix["micros"] else None


def _after_boot(seconds: float, boot_time: float | None) -> float | None:
    return None if boot_time is None or seconds > _LONGEST_BOOT else boot_time + seconds


def _seconds(iso: str) -> float | None:
    parts = _ISO_PARTS.match(iso)
    if parts is None or not (parts[8] or parts[9]):
        return None
    year, month, day, hour, minute, second = (int(part) for part in parts.groups()[:6])
    if not (1970 <= year < 10000 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    offset = 0 if parts[8] else (int(parts[10]) * 3600 + int(parts[11]) * 60) * (-1 if parts[9] == "-" else 1)
    return timegm((year, month, day, hour, minute, second)) - offset + float("0." + (parts[7] or "0"))


def message_of(line: str) -> str:
    """What the kernel has logged, without what a program has written before it."""
    prefix = _PREFIX.match(line)
    return (line if prefix is None else line[_end_of_prefix(line, prefix) :]).strip()


def time_of(line: str, boot_time: float | None = None) -> float | None:
    """The time of a line in seconds since 1970; None where its form has no complete one."""
    prefix = _PREFIX.match(line[:LONGEST_LINE])
    return None if prefix is None else _time(prefix, boot_time)


Fields = Dict[str, Any]
"""What a line reports about its event, by the names of fields of Event."""


def _address(found: Match[str]) -> str | None:
    return found["pci"].lower().replace("0x", "") if found["pci"] else None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _stated_severity(text: str) -> bool | None:
    """The last one: a process may have such a name, and the driver prints names before its own text."""
    if "atal" not in text:
        return None
    stated = [found["fatal"] is not None for found in _FATAL.finditer(text[:512])]
    return stated[-1] if stated else None


def _xid(text: str) -> Fields | None:
    found = _XID.match(text)
    if found is None:
        return None
    message = found["rest"].lstrip(", \t")
    pid, name = _PID.match(message), None
    if pid is not None:
        message = message[pid.end() :]
        name = _NAME.match(message)
        message = message if name is None else message[name.end() :]
    code = int(found["code"])
    actions = list(_NEW_ACTION.finditer(message[:512])) if code == RECOVERY_ACTION_CHANGED else []
    cause = _CAUSE.search(message) if "caused by" in message else None
    return {
        "kind": "xid",
        "text": message.strip(),
        "pci": _address(found),
        "code": code,
        "pid": _number(pid["pid"]) if pid else None,
        "process": name["name"] if name else None,
        "gpu_instance": _number(found["gi"]),
        "compute_instance": _number(found["ci"]),
        "action": (int(actions[-1]["number"], 16), actions[-1]["text"]) if actions else None,
        "cause": _number(cause["cause"]) if cause else None,
        "is_fatal": _stated_severity(message),
    }


def _sxid(text: str) -> Fields | None:
    found = _SXID.match(text)
    if found is None:
        return None
    message = found["rest"].strip()
    # NVSwitch reports one error in up to three lines.
    kind = "sxid_detail" if _SXID_DETAIL.match(message) else "sxid"
    severity = None if kind == "sxid_detail" else _stated_severity(message)
    return {"kind": kind, "text": message, "pci": _address(found), "code": int(found["code"]), "is_fatal": severity}


def _block(text: str) -> Fields | None:
    found = _GPU_BLOCK.match(text)
    return None if found is None else {"kind": "block", "pci": _address(found)}


def _aer(text: str) -> Fields | None:
    found = _AER.match(text)
    if found is None:
        return None
    rest = found["rest"]
    reason = "unrecovered" if any(words in rest for words in _NOT_RECOVERED) else ""
    severity = next((name for name, pattern in _AER_SEVERITIES if pattern.search(rest)), None)
    # Other lines are details, or about the port itself: `AER: enabled with IRQ 34`.
    if severity is None and not reason:
        return None
    # A port reports for the devices below it.
    source = _AER_SOURCE.search(rest) or found
    return {"kind": "aer", "text": rest.strip(), "pci": _address(source), "detail": severity, "reason": reason}


def _link_down(text: str) -> Fields | None:
    found = _LINK_DOWN.match(text)
    if found is None:
        return None
    source = _AER_SOURCE.search(text) if found["dpc"] else None
    return {"kind": "link_down", "pci": _address(source or found), "detail": "dpc" if found["dpc"] else "hotplug"}


_KILLED = re.compile(r"(?:Out of memory: |Memory cgroup out of memory: )?Kill(?:ed)? process (?P<pid>\d{1,10})\b")


def _killed(text: str) -> Fields | None:
    found = _KILLED.match(text)
    return None if found is None else {"kind": "oom_kill", "pid": int(found["pid"])}


def _crashed(text: str) -> Fields | None:
    if not text.startswith("NVRM") or "GSP-CrashCat Report" not in text:
        return None
    return {"kind": "gsp_crash"}


# The driver has renamed the function that prints it, and newer ones end a call where the heartbeat is missing.
_SILENT = re.compile(r"NVRM:? (?:GPU\d{1,4} )?_kgsp\w{1,64}: (?:\*{2,80} GSP Timeout \*|GSP RM heartbeat timed out)")


def _silent(text: str) -> Fields | None:
    return {"kind": "gsp_silent"} if _SILENT.match(text) else None


def _pattern(kind: str, pattern: str, code: int | None = None) -> Callable[[str], Fields | None]:
    """A reader of messages that begin with `pattern`, with optional groups `pci` and `detail`."""
    compiled = re.compile(pattern, re.DOTALL)
    groups = compiled.groupindex

    def read(text: str) -> Fields | None:
        found = compiled.match(text)
        if found is None:
            return None
        return {
            "kind": kind,
            "pci": _address(found) if "pci" in groups else None,
            "code": code,
            "detail": found["detail"] if "detail" in groups else None,
        }

    return read


_ASSERTION = re.compile(
    r"NVRM:? (?:GPU\d{1,4} )?nv(?:Assert|Check)\w{0,64}: (?:Assertion|Check) failed: (?P<detail>.*)"
)


def _assertion(text: str) -> Fields | None:
    found = _ASSERTION.match(text)
    if found is None:
        return None
    reason = "reset_required" if "NV_ERR_RESET_REQUIRED" in text else ""
    return {"kind": "assertion", "detail": found["detail"], "reason": reason}


_NVLINK_INIT = re.compile(r"NVRM:? (?:GPU\d{1,4} )?knvlink\w{1,128}: .{0,512}?[Ff]ailed")
_RX_DETECT = ("postRxDetLinkMask failed", "PostRxDetectLinkMask_IMPL: Failed to update")


def _nvlink_init(text: str) -> Fields | None:
    if not _NVLINK_INIT.match(text):
        return None
    return {"kind": "nvlink_init", "reason": "rx_detect" if any(part in text for part in _RX_DETECT) else ""}


_READERS_OF_THE_DRIVER = (
    _xid,
    _block,
    _pattern("lost", rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus", FALLEN_OFF_THE_BUS),
    _pattern("uuid", rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: (?P<detail>GPU-[0-9a-fA-F-]{{1,64}})"),
    _pattern("init_failed", rf"NVRM: (?:GPU {_ADDRESS}: )?RmInitAdapter failed! \((?P<detail>[^)]{{0,64}})\)"),
    _pattern(
        "probe_failed",
        r"NVRM: (?:The NVIDIA probe routine failed|None of the NVIDIA .{0,64}initialized|No NVIDIA (?:GPU|graphics))",
    ),
    _pattern("rate_limited", rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{_ADDRESS}"),
    _assertion,
    _crashed,
    _silent,
    _pattern(
        "bar_invalid",
        rf"NVRM: (?:This PCI I/O region .{{0,80}}NVRM: )?BAR\d is \d{{1,9}}M @ 0x\w{{1,16}} \((?:PCI:)?{_ADDRESS}\)",
    ),
    _pattern("bar_invalid", r"NVRM: This is a 64-bit BAR mapped above 4GB by the system"),
    _pattern("power_cables", rf"NVRM: GPU {_ADDRESS}: GPU does not have the necessary power cables"),
    _pattern("passed_through", rf"NVRM: GPU {_ADDRESS} is already bound to {PASSTHROUGH}(?![\w-])"),
    _pattern("conflict", rf"NVRM: GPU {_ADDRESS} is already bound to (?P<detail>[\w-]{{1,64}})"),
    _pattern("conflict", r"NVRM: (?:The NVIDIA probe routine was not called|request_mem_region failed)"),
    _pattern("api_mismatch", r"NVRM: API mismatch"),
    _pattern("firmware_missing", r"NVRM:? (?:GPU\d{1,4} )?RmFetchGspRmImages: No firmware image found"),
    _pattern("not_ready", r"NVRM: Open nvidia\.ko is only ready for use on"),
    _nvlink_init,
    # Printed by open-gpu-kernel-modules: src/nvidia/src/kernel/rmapi/nv_gpu_ops.c and gpu/rc/kernel_rc_watchdog.c.
    _pattern(
        "uvm_fatal",
        r"NVRM:? (?:GPU\d{1,4} )?(?:nvGpuOps\w{1,64}: )?"
        r"uvm encountered global fatal error (?P<detail>0x[0-9a-fA-F]{1,8}), requiring os reboot",
    ),
    _pattern("watchdog", r"NVRM:? (?:GPU\d{1,4} )?(?:krcWatchdog\w{0,64}: )?RC watchdog: GPU is probably locked"),
    _pattern("driver_loaded", r"NVRM: loading NVIDIA UNIX .{0,512}?Kernel Module"),
)
_READERS = (
    _sxid,
    _pattern("driver_loaded", r"nvidia-nvlink: Nvlink Core is being initialized"),
    _link_down,
    _pattern(
        "link_up",
        rf"(?:pcieport|pciehp|pci) {_ADDRESS}(?::pcie\w{{1,8}})?: (?:"
        r"(?:pciehp: )?[Ss]lot\([^)]{0,64}\): Link Up|AER: [Dd]evice recovery successful)",
    ),
    _killed,
    _aer,
    _pattern(
        "iommu",
        r"(?:\(XEN\) )?(?:\[VT-D\])?(?:(?:DMAR|dmar): ?){1,2}\[[^\[\]]{1,64}\] ?"
        rf"Request device \[(?:0x)?{_DMAR_ADDRESS}\]",
    ),
    _pattern("iommu", r"(?:(?:DMAR|dmar|DRHD): ?){1,2}.{0,512}?\bfault\b"),
    # First the IOMMU itself, or nothing, and then the device.
    _pattern(
        "iommu",
        rf"(?:[\w-]{{1,32}} [\w:.-]{{1,32}}: )?(?:AMD-Vi: Event logged \[)?\s*[A-Z_]{{4,64}} device={_ADDRESS}",
    ),
    _pattern("iommu", rf"{_DEVICE}AMD-Vi: Event logged \["),
    _pattern("iommu", r"AMD-Vi: Event logged \["),
    _pattern("inaccessible", rf"{_DEVICE}[Uu]nable to change power state .{{0,32}}, device inaccessible"),
    # Of older kernels: all bits of a device that does not respond are set, which reads as D3.
    _pattern("inaccessible", rf"{_DEVICE}Refused to change power state, currently in D3"),
    _pattern("inaccessible", rf"{_DEVICE}can't change power state .{{0,32}} \(config space inaccessible\)"),
    _pattern("iommu", rf"arm-smmu-v3 [^\s:]{{1,64}}: event: [A-Z_]{{1,64}} client: {_ADDRESS}"),
)
_READERS_OF_ADAPTERS = (
    # mlx5_core names the device, and mostly its function and a process: `poll_health:694:(pid 0): `.
    _pattern(
        "nic_failed",
        rf"mlx5_core {_ADDRESS}: (?:\w{{1,64}}:\d{{1,6}}:(?:\(pid \d{{1,10}}\):)? )?(?:Fatal error \d{{1,4}} detected"
        r"|device's health compromised|health recovery failed|synd 0x[0-9a-f]{1,4}: unrecoverable hardware error"
        r"|[^(]{1,64}\(0x[0-9a-f]{1,8}\) (?:Async, )?timeout\. Will cause a leak)",
    ),
    # Of a device that works again, or whose driver has begun again.
    _pattern(
        "nic_recovered",
        rf"mlx5_core {_ADDRESS}: (?:\w{{1,64}}:\d{{1,6}}:(?:\(pid \d{{1,10}}\):)? )?"
        r"(?:health recovery succeeded|firmware version: )",
    ),
)
_READERS_OF_THE_HOST = (
    _pattern("host_error", r"EDAC MC\d{1,4}: \d{1,9} UE "),
    _pattern("host_error", r"mce: \[Hardware Error\]: CPU \d{1,5}: Machine Check Exception: "),
    _pattern("host_error", r"mce: Uncorrected hardware memory error in user-access "),
)

_READERS_BY_BEGINNING = {
    "NVRM": _READERS_OF_THE_DRIVER,
    "mlx5": _READERS_OF_ADAPTERS,
    "EDAC": _READERS_OF_THE_HOST,
    "mce:": _READERS_OF_THE_HOST,
}

# A message that neither begins like this nor has one of the words close to its beginning is no event: most of a log is
# ruled out at once.
_BEGINNINGS = (
    "NVRM",
    "nvidia-nvlink: Nvlink Core is being",
    "DMAR",
    "dmar:",
    "DRHD: ",
    "AMD-Vi: ",
    "pciehp ",
    "arm-smmu-v3 ",
    *(f"{{{digit}" for digit in range(10)),
    "[Hardware Error]",
    "[VT-D]",
    "iommu ",
    "Out of memory: Kill",
    "Memory cgroup out of memory: Kill",
    "Killed process ",
    "mlx5_core ",
    "EDAC MC",
    "mce: ",
    *_REPORTS,
)
_STARTS = frozenset(beginning[:2] for beginning in _BEGINNINGS)
_FIRMWARE_FIRST = ("{", "[Hardware Error]")
_WORDS = (
    "SXid (",
    "AER: ",
    "PCIe Bus Error: ",
    "DPC: ",
    "pciehp: ",
    "AMD-Vi: ",
    "_FAULT device=",
    "_REQUEST device=",
    "change power state",
)


# A storm of equal messages is one event; so many of its times are kept as the history keeps of one GPU.
_MOST_TIMES = 200
_MOST_GROUPS = 2_000
_MOST_PLACES = 500

_ENDED, _ASKED, _OPEN = range(3)


class _Group:
    """Events that mean the same."""

    __slots__ = ("count", "first_time", "last", "times")

    def __init__(self, event: Event) -> None:
        self.last = event
        self.count = 0
        self.first_time: float | None = None
        self.times: list[float] = []

    def add(self, event: Event) -> None:
        self.count += event.count
        if event.time is not None:
            if self.first_time is None:
                self.first_time = event.time if event.first_time is None else event.first_time
            for time in event.times or (event.time,):
                if not self.times or int(self.times[-1]) != int(time):
                    self.times.append(time)
            if len(self.times) > 2 * _MOST_TIMES:
                del self.times[:-_MOST_TIMES]
        if event.pid is None and self.last.pid is not None:
            event = _with(event, pid=self.last.pid, process=self.last.process)
        self.last = event

    def join(self, other: _Group) -> None:
        """Add a group of later events."""
        self.count += other.count
        if self.first_time is None:
            self.first_time = other.first_time
        self.times = (self.times + other.times)[-_MOST_TIMES:]
        self.last = other.last

    def event(self) -> Event:
        return _with(self.last, count=self.count, first_time=self.first_time, times=tuple(self.times[-_MOST_TIMES:]))


class Collapse:
    """Joins events of a log that mean the same, so that a storm of them costs neither memory nor time.

    Events stay apart where one between them may end what they are about: the start of the driver, a recovery action,
    the driver's first error about a GPU that it has initialized again.
    """

    def __init__(self, meaning: Callable[[Event], object]) -> None:
        self._meaning = meaning
        self._before_load: dict[object, _Group] = {}
        self._phases: dict[str | None, list[dict[object, _Group]]] = {}
        self._groups = 0
        self._seen: set[str] = set()

    def add(self, event: Event) -> None:
        """Add the next event of the log."""
        if event.kind == BOOT:
            self._before_load.clear()
            self._phases.clear()
            self._groups = 0
            self._seen.clear()
            return
        if event.kind == "driver_loaded":
            self._end_all(event)
            return
        phases = self._phases.get(event.pci)
        if phases is None:
            # No host has so many devices.
            place = event.pci if len(self._phases) < _MOST_PLACES else ""
            phases = self._phases.setdefault(place, [{}, {}, {}])
        if event.kind == "uuid" and event.pci:
            if event.pci in self._seen:
                _move(phases[_OPEN], phases[_ASKED])
            elif len(self._seen) < _MOST_GROUPS:
                self._seen.add(event.pci)
        self._put(phases[_OPEN], event)
        if event.action is not None:
            _move(phases[_OPEN], phases[_ASKED])
            if event.action[0] == 0:
                _move(phases[_ASKED], phases[_ENDED])

    def _put(self, groups: dict[object, _Group], event: Event) -> None:
        key: object = (
            event.kind,
            event.pci,
            event.code,
            event.gpu_instance,
            event.action,
            event.cause is None,
            event.is_fatal,
            event.reason,
            event.uuid,
            self._meaning(event),
        )
        group = groups.get(key)
        if group is None:
            if self._groups >= _MOST_GROUPS:
                # No hardware has so many devices and errors.
                key = (event.kind, None)
                group = groups.get(key)
            if group is None:
                self._groups += 1
                group = groups[key] = _Group(event)
        group.add(event)

    def _end_all(self, event: Event) -> None:
        for phases in self._phases.values():
            for groups in phases:
                _move(groups, self._before_load)
        self._phases.clear()
        self._seen.clear()
        self._put(self._before_load, event)

    def events(self) -> tuple[Event, ...]:
        """The events, in the order of the last line of each."""
        found = [group.event() for group in self._before_load.values()]
        for phases in self._phases.values():
            found += [group.event() for groups in phases for group in groups.values()]
        return tuple(sorted(found, key=lambda event: event.line))


def _move(source: dict[object, _Group], target: dict[object, _Group]) -> None:
    for key, group in source.items():
        known = target.get(key)
        if known is None:
            target[key] = group
        else:
            known.join(group)
    source.clear()


def collapsed(events: Iterable[Event], meaning: Callable[[Event], object]) -> tuple[Event, ...]:
    """The events with those joined that have the same `meaning` of their text."""
    joined = Collapse(meaning)
    for event in events:
        joined.add(event)
    return joined.events()
