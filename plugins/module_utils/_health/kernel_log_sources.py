# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the kernel log since the boot: from the journal, from dmesg, from both, or from a file. Private to this
collection."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Callable, Sequence

from .._common.host_files import HostFiles
from .._common.regular_file import open_regular
from .._common.runner import CHUNK_BYTES, CommandResult, find_executable, run, stream
from . import xids
from .journal_entries import Export, Feed, Json, Verbose, feed_for, why_unreadable
from .kernel_log import LONGEST_LINE, Collapse, Event, Reader, collapsed, message_of

AUTO, JOURNAL, DMESG, NONE = "auto", "journal", "dmesg", "none"
BOTH = f"{JOURNAL} and {DMESG}"

# Short-unix has the complete time, and one line for each line of a message.
_COMMANDS = {
    JOURNAL: ("journalctl", "--dmesg", "--boot", "--output=short-unix", "--no-pager", "--quiet"),
    DMESG: ("dmesg",),
}
_SIGNS_OF_A_CONTAINER = (
    "/.dockerenv",
    "/run/.containerenv",
    "/run/systemd/container",
    "/run/secrets/kubernetes.io",
    "/var/run/secrets/kubernetes.io",
)
# Runtimes such as containerd leave no file. The kernel gives the first namespace of processes always this number.
_PROCESSES = "/proc/self/ns/pid"
_FIRST_NAMESPACE = "pid:[4026531836]"
_CONTAINER_PATHS = re.compile(
    r"/(?:kubepods(?:\.slice)?|docker|containerd|crio|libpod|lxc|lxc\.payload[^/\n]*|buildkit)/"
    r"|/(?:docker|cri-containerd|crio|libpod)-[0-9a-f]+\.scope"
)
_ROOT_OF_A_CONTAINER = re.compile(
    r"(?m)^\d+ \d+ \S+ / / .*(?:io\.containerd\.|/docker/overlay|containers/storage|/kubelet/|/crio/)"
)
_BEGINS_WITH_THE_BOOT_SECONDS = 120.0
_KEPT_LINES = 20000
_KEPT_CHARACTERS = 32 << 20
# How many lines the kernel may log between the end of one program and the end of the next.
_MOST_NEWER_LINES = 1000

Run = Callable[[Sequence[str], float], CommandResult]


@dataclass(frozen=True)
class KernelLog:
    """The log since the boot. `source` is None where it cannot be read, with the `reason`.

    `boot_time` and `since`, the time of the first line, are in seconds since 1970. `is_complete` is False where older
    lines have been dropped, so that no event is no proof. `lines` are the newest of `line_count`, as they were read.
    Events that mean the same are one.
    """

    source: str | None
    events: tuple[Event, ...] = ()
    reason: str | None = None
    boot_time: float | None = None
    since: float | None = None
    lines: Sequence[str] = field(default=(), compare=False, repr=False)
    line_count: int = field(default=0, compare=False, repr=False)

    @property
    def is_complete(self) -> bool:
        """Whether the log reaches back to the boot, as far as known."""
        if self.boot_time is None or self.since is None:
            return True
        return self.since - self.boot_time < _BEGINS_WITH_THE_BOOT_SECONDS


def read_kernel_log(source: str, timeout: float, files: HostFiles, run_program: Run = run) -> KernelLog:
    """Read from `source`: `auto`, `journal`, `dmesg`, `none`, or the absolute path of a file."""
    boot_time = _boot_time(files)
    if source == NONE:
        return KernelLog(None, reason="it is not read (kernel_log: none)", boot_time=boot_time)
    if source.startswith("/"):
        read = _Lines(boot_time)
        reason = _read_file(files.real(source), read)
        if reason is not None:
            return KernelLog(None, reason=f"{source} cannot be read{reason}", boot_time=boot_time)
        # A file may begin with its first event, long after the boot.
        return read.log(source, None)
    reasons = []
    log: KernelLog | None = None
    for name in (JOURNAL, DMESG) if source == AUTO else (source,):
        if log is not None and log.is_complete:
            break
        if source == AUTO and name == DMESG and is_container(files):
            reasons.append("dmesg shows the log of another host in a container")
            continue
        read = _Lines(boot_time, keeps_all=log is not None)
        reason = _read_program(name, timeout, read, run_program)
        if reason is not None:
            reasons.append(reason)
        elif log is None:
            log = read.log(name, read.since)
        else:
            log = _joined(log, read.log(name, read.since))
    return log or KernelLog(None, reason="; ".join(reasons), boot_time=boot_time)


def _joined(journal: KernelLog, dmesg: KernelLog) -> KernelLog:
    """The journal, with what dmesg has of the time before it. It is complete where either is.

    The times of both differ: the journal has the time at which it got a message, and a clock that was set later was
    another one then. So the lines are compared, without their times.
    """
    since = min((time for time in (journal.since, dmesg.since) if time is not None), default=None)
    both = replace(journal, source=BOTH, since=since)
    older = _older(tuple(map(message_of, dmesg.lines)), tuple(map(message_of, journal.lines)), journal.line_count)
    if not older:
        return both
    read = _Lines(journal.boot_time)
    for number in older:
        read.add(dmesg.lines[number])
    before = read.log(BOTH, since)
    uuids = {event.pci: event.uuid for event in before.events if event.kind == "uuid"}
    after = (
        replace(event, line=event.line + len(older), uuid=event.uuid or uuids.get(event.pci))
        for event in journal.events
    )
    return replace(
        both,
        events=collapsed(chain(before.events, after), xids.meaning),
        lines=(*before.lines, *journal.lines)[-_KEPT_LINES:],
        line_count=before.line_count + journal.line_count,
    )


def _older(dmesg: Sequence[str], journal: Sequence[str], count: int) -> Sequence[int]:
    """The numbers of the lines of dmesg that the journal does not have any more. `journal` are the newest of its
    `count` lines."""
    if count >= len(dmesg):
        return ()
    # Both end now, so that the journal is the end of dmesg, but for what was logged since.
    for newer in range(min(_MOST_NEWER_LINES, len(dmesg) - count) + 1):
        end = len(dmesg) - newer
        if dmesg[end - len(journal) : end] == journal:
            return range(end - count)
    # The journal has lost messages, or writes some in another way.
    known = set(journal)
    return [number for number, message in enumerate(dmesg) if message not in known]


def is_container(files: HostFiles) -> bool:
    """Whether this is a container, which runs on the kernel of another host."""
    if any(files.exists(path) for path in _SIGNS_OF_A_CONTAINER):
        return True
    try:
        if os.readlink(files.real(_PROCESSES)) != _FIRST_NAMESPACE:
            return True
    except OSError:
        pass
    groups = (files.read("/proc/1/cgroup") or "") + (files.read("/proc/self/cgroup") or "")
    environment = files.read("/proc/1/environ") or ""
    mounts = files.read("/proc/self/mountinfo") or files.read("/proc/1/mountinfo") or ""
    return bool(
        _CONTAINER_PATHS.search(groups)
        or any(name.startswith(("container=", "KUBERNETES_SERVICE_HOST=")) for name in environment.split("\0"))
        or _ROOT_OF_A_CONTAINER.search(mounts)
    )


class _Lines:
    """Takes a log in parts of any size. Lines end with a line feed and nothing else: whoever chooses a name that is
    logged can put any other separator into it."""

    def __init__(self, boot_time: float | None, keeps_all: bool = False) -> None:
        self._boot_time = boot_time
        self._reader = Reader(boot_time)
        self._joined = Collapse(xids.meaning)
        self._rest = b""
        self._kept: deque[str] = deque(maxlen=None if keeps_all else _KEPT_LINES)
        self._characters = 0
        self._count = 0

    @property
    def is_kernel_log(self) -> bool:
        """Whether a line is in a form that only the kernel's log has."""
        return self._reader.is_kernel_log

    @property
    def since(self) -> float | None:
        """The time of the first line that has one."""
        return self._reader.first_time

    @property
    def is_empty(self) -> bool:
        """Whether there was no line."""
        return self._count == 0

    def feed(self, part: bytes) -> None:
        """Take the next part."""
        lines = (self._rest + part).split(b"\n")
        self._rest = lines.pop()[: 4 * LONGEST_LINE]
        for line in lines:
            self.add(line[: 4 * LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")[:LONGEST_LINE])

    def add(self, line: str) -> None:
        """Take the next line."""
        if not line.strip() or line.startswith("-- "):
            return
        self._count += 1
        if len(self._kept) == self._kept.maxlen:
            self._characters -= len(self._kept[0])
        self._kept.append(line)
        self._characters += len(line)
        while self._characters > _KEPT_CHARACTERS:
            self._characters -= len(self._kept.popleft())
        for event in self._reader.read(line):
            self._joined.add(event)

    def log(self, source: str, since: float | None) -> KernelLog:
        """All that was read."""
        self.feed(b"\n")
        lines = tuple(self._kept)
        return KernelLog(source, self._joined.events(), None, self._boot_time, since, lines, self._count)


def _read_file(path: str, read: _Lines) -> str | None:
    """Read a file; the end of the reason where that is not possible."""
    feed: Feed | None = None
    try:
        with open_regular(path) as opened:
            for part in iter(lambda: opened.read(CHUNK_BYTES), b""):
                if feed is None:
                    reason = why_unreadable(part)
                    if reason is not None:
                        return f": {reason}"
                    feed = feed_for(part, read.feed)
                feed(part)
            if isinstance(feed, (Export, Json, Verbose)):
                feed(b"\n\n")
                return ": it has no entry of the kernel" if read.is_empty else None
            read.feed(b"\n")
            return None if read.is_kernel_log else ": it has no line of the kernel"
    # ValueError: a path with a character that no path has.
    except (OSError, ValueError):
        return ""


def _read_program(name: str, timeout: float, read: _Lines, run_program: Run) -> str | None:
    """Read what a program prints; why there is nothing, where it prints none: each kernel has logged since its boot."""
    program, *arguments = _COMMANDS[name]
    argv = (find_executable(program), *arguments)
    if run_program is run:
        # A journal may be larger than any output that is kept.
        result = stream(argv, timeout, read.feed)
    else:
        result = run_program(argv, timeout)
        read.feed(result.stdout)
    read.feed(b"\n")
    if result.start_error is not None:
        return f"there is no {program}"
    if result.timed_out or result.too_large:
        return f"{program} {'takes too long' if result.timed_out else 'prints too much'}"
    if result.rc != 0:
        return f"{program} failed: {' '.join(result.error_text.split()) or f'exit status {result.rc}'}"
    return f"{program} has no line of the kernel" if read.is_empty else None


def _boot_time(files: HostFiles) -> float | None:
    found = re.search(r"(?m)^btime (\d+)$", files.read("/proc/stat") or "")
    return float(found[1]) if found else None
