# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the driver and the PCI bus reported in the kernel log. Private to this collection.

The driver prints `NVRM: Xid (PCI:dddd:bb:dd[.f][ GPU-I:nn[ GPU-CI:nn]]): code, [pid=P, name=N, ]text`. Older drivers
print no `PCI:`, some lines end at the code, and anything may precede it: times of dmesg, journal and syslog, a host, a
facility, a thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Callable, Iterator, Match, Sequence

FALLEN_OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154

# Domain (missing in a few messages), bus and device; the function is read and ignored.
_ADDRESS = r"(?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"

_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?(?:{_ADDRESS}|[^\s)]*)(?: GPU-I:(?P<gi>\d+))?(?: GPU-CI:(?P<ci>\d+))?\): "
    r"(?P<code>\d+)(?P<rest>.*)"
)
_PID = re.compile(r"\s*pid=(?:'?<unknown>'?|(?P<pid>\d+))(?:,\s*|$)")
_NAME = re.compile(r"\s*name=(?:<unknown>|(?P<name>.*?))(?:,\s|$)")
_NEW_ACTION = re.compile(r".*\bto (?P<number>0x[0-9a-fA-F]+) \((?P<text>[^)]*)\)")
_CAUSE = re.compile(r"caused by previous Xid (?P<cause>\d+)")
_FATAL = re.compile(r"\b(?:(?P<fatal>Fatal)|Non-?fatal)\b", re.IGNORECASE)

_SXID = re.compile(rf"SXid \(PCI:{_ADDRESS}\): (?P<code>\d+), (?P<rest>.*)")
_SXID_DETAIL = re.compile(r"(?:Severity \d|Data \{)")

# The driver prints it over three lines, with only the first naming the GPU.
_GPU_NOT_RESPONDING = re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}")
_CONTINUATION_LINES = 3

_AER = re.compile(rf"\b[\w-]+ {_ADDRESS}: (?:AER: |PCIe Bus Error: )(?P<rest>.*)")
_AER_SOURCE = re.compile(rf"received(?::| from) {_ADDRESS}")
_AER_SEVERITIES = (
    ("fatal", re.compile(r"Uncorrect(?:ed|able) \(Fatal\)")),
    ("nonfatal", re.compile(r"Uncorrect(?:ed|able) \(Non-Fatal\)")),
    ("corrected", re.compile(r"\bCorrect(?:ed|able)\b")),
)


@dataclass(frozen=True)
class Event:
    """One event. `line` counts from 0, `time` is in seconds since 1970 where the line has one.

    `pci` is domain, bus and device as printed, in lower case, None where the line names none. `detail` depends on
    `kind`: a UUID, the codes of a failed initialization, a severity. `pid` and `process` are None where the driver does
    not know them. `action` is the number and text of the recovery action that an Xid 154 reports, `cause` the Xid that
    led to this one. `is_fatal` is what the line states, None where it states nothing.
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


def parse(lines: Sequence[str], boot_time: float | None = None) -> tuple[Event, ...]:
    """The events in `lines`, in order. With `boot_time`, in seconds since 1970, times since the boot are converted."""
    return tuple(_events(lines, boot_time))


def _events(lines: Sequence[str], boot_time: float | None) -> Iterator[Event]:
    for number, line in enumerate(lines):
        # syslog writes a line break within a message like this.
        text = line.replace("#012", " ")
        if not any(word in text for word in _WORDS):
            continue
        following = " ".join(lines[number + 1 : number + 1 + _CONTINUATION_LINES])
        for read in _READERS:
            event = read(number, text, following)
            if event is not None:
                yield _with_time(event, line, boot_time)
                break


def _address(found: Match[str]) -> str | None:
    return found["pci"].lower() if found["pci"] else None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _stated_severity(text: str) -> bool | None:
    found = _FATAL.search(text)
    return None if found is None else found["fatal"] is not None


def _xid(number: int, text: str, _following: str) -> Event | None:
    found = _XID.search(text)
    if found is None:
        return None
    message = found["rest"].lstrip(", \t")
    pid, name = _PID.match(message), None
    if pid is not None:
        message = message[pid.end() :]
        name = _NAME.match(message)
        message = message if name is None else message[name.end() :]
    code = int(found["code"])
    action = _NEW_ACTION.match(message) if code == RECOVERY_ACTION_CHANGED else None
    cause = _CAUSE.search(message)
    return Event(
        "xid",
        number,
        message.strip(),
        _address(found),
        code,
        pid=_number(pid["pid"]) if pid else None,
        process=name["name"] if name else None,
        gpu_instance=_number(found["gi"]),
        compute_instance=_number(found["ci"]),
        action=(int(action["number"], 16), action["text"]) if action else None,
        cause=_number(cause["cause"]) if cause else None,
        is_fatal=_stated_severity(message),
    )


def _sxid(number: int, text: str, _following: str) -> Event | None:
    found = _SXID.search(text)
    if found is None:
        return None
    message = found["rest"].strip()
    # NVSwitch reports one error in up to three lines.
    kind = "sxid_detail" if _SXID_DETAIL.match(message) else "sxid"
    severity = None if kind == "sxid_detail" else _stated_severity(message)
    return Event(kind, number, message, _address(found), int(found["code"]), is_fatal=severity)


def _not_responding(number: int, text: str, following: str) -> Event | None:
    found = _GPU_NOT_RESPONDING.search(text)
    if found is None:
        return None
    whole = text[found.end() :] + " " + following.partition("NVRM: The NVIDIA GPU ")[0]
    if "fallen off the bus" not in " ".join(whole.replace("NVRM:", " ").split()):
        return None
    return Event(
        "lost", number, "the GPU has fallen off the bus and does not respond", _address(found), FALLEN_OFF_THE_BUS
    )


def _aer(number: int, text: str, _following: str) -> Event | None:
    found = _AER.search(text)
    if found is None:
        return None
    # A port reports for the devices below it.
    source = _AER_SOURCE.search(found["rest"]) or found
    severity = next((name for name, pattern in _AER_SEVERITIES if pattern.search(text)), None)
    return Event("aer", number, found["rest"].strip(), _address(source), detail=severity)


def _pattern(kind: str, pattern: str, code: int | None = None) -> Callable[[int, str, str], Event | None]:
    """A reader of lines that match `pattern`, with optional groups `pci` and `detail`."""
    compiled = re.compile(pattern)
    groups = compiled.groupindex

    def read(number: int, text: str, _following: str) -> Event | None:
        found = compiled.search(text)
        if found is None:
            return None
        return Event(
            kind,
            number,
            text[found.start() :].strip(),
            _address(found) if "pci" in groups else None,
            code,
            detail=found["detail"] if "detail" in groups else None,
        )

    return read


_READERS = (
    _xid,
    _sxid,
    _not_responding,
    _pattern("lost", rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? (?:GPU )?has fallen off the bus", FALLEN_OFF_THE_BUS),
    _pattern("uuid", rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: (?P<detail>GPU-[0-9a-fA-F-]+)"),
    _pattern("init_failed", rf"NVRM: (?:GPU {_ADDRESS}: )?RmInitAdapter failed! \((?P<detail>[^)]*)\)"),
    _pattern("probe_failed", r"NVRM: The NVIDIA probe routine failed|NVRM: None of the NVIDIA .*initialized"),
    _pattern("rate_limited", rf"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{_ADDRESS}"),
    _pattern("assertion", r"NVRM: .*nv(?:Assert|Check)\w*: (?:Assertion|Check) failed: (?P<detail>.*)"),
    _pattern("api_mismatch", r"NVRM: API mismatch"),
    _pattern("firmware_missing", r"NVRM: RmFetchGspRmImages: No firmware image found"),
    _pattern("nvlink_init", r"NVRM: knvlink\w+: .*[Ff]ailed"),
    _pattern("driver_loaded", r"NVRM: loading NVIDIA UNIX .*Kernel Module"),
    _aer,
    _pattern("iommu", rf"DMAR: .*Request device \[{_ADDRESS}\].*fault"),
    _pattern("iommu", r"DMAR: .*\bfault\b"),
    _pattern("iommu", rf"AMD-Vi: Event logged \[IO_PAGE_FAULT device={_ADDRESS}"),
    _pattern("iommu", r"AMD-Vi: Event logged \["),
)

# A line without any of these is no event: most of a log is ruled out at once.
_WORDS = ("NVRM: ", "SXid (", "AER: ", "PCIe Bus Error: ", "DMAR: ", "AMD-Vi: ")


_EPOCH = re.compile(r"(\d{9,}\.\d+) ")
_SINCE_BOOT = re.compile(r"(?:^|kernel: )\[\s*(\d+\.\d+)\s*\] ")
_ISO = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d{1,6})\d*)?(Z|[+-]\d\d:?\d\d)")


def time_of(line: str, boot_time: float | None = None) -> float | None:
    """The time of a line in seconds since 1970; None where its form has no complete one."""
    found = _EPOCH.match(line)
    if found:
        return float(found[1])
    found = _ISO.search(line)
    if found:
        zone = "+0000" if found[3] == "Z" else found[3].replace(":", "")
        seconds = datetime.strptime(found[1] + zone, "%Y-%m-%dT%H:%M:%S%z").timestamp()
        return seconds + float("0." + (found[2] or "0"))
    found = _SINCE_BOOT.search(line)
    return boot_time + float(found[1]) if found and boot_time is not None else None


def _with_time(event: Event, line: str, boot_time: float | None) -> Event:
    try:
        time = time_of(line, boot_time)
    except (ValueError, OverflowError):
        # The text of a message may look like a time.
        return event
    return event if time is None else replace(event, time=time)
