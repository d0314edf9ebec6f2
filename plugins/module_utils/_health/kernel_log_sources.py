# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the kernel log since the boot: from the journal, from dmesg, or from a file. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable, Sequence

from .._common.host_files import HostFiles
from .._common.runner import CommandResult, find_executable, run
from .kernel_log import Event, parse, time_of

AUTO, JOURNAL, DMESG, NONE = "auto", "journal", "dmesg", "none"

# Short-unix has the complete time, and one line for each line of a message.
_COMMANDS = {
    JOURNAL: ("journalctl", "--dmesg", "--boot", "--output=short-unix", "--no-pager", "--quiet"),
    DMESG: ("dmesg",),
}
_SIGNS_OF_A_CONTAINER = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_BEGINS_WITH_THE_BOOT_SECONDS = 120.0
_KEPT_LINES = 20000

Run = Callable[[Sequence[str], float], CommandResult]


@dataclass(frozen=True)
class KernelLog:
    """The log since the boot. `source` is None where it cannot be read, with the `reason`.

    `boot_time` and `since`, the time of the first line, are in seconds since 1970. `is_complete` is False where older
    lines have been dropped, so that no event is no proof. `lines` are the newest ones, as they were read.
    """

    source: str | None
    events: tuple[Event, ...] = ()
    reason: str | None = None
    boot_time: float | None = None
    since: float | None = None
    lines: Sequence[str] = field(default=(), compare=False, repr=False)

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
        text = files.read(source)
        if text is None:
            return KernelLog(None, reason=f"{source} cannot be read", boot_time=boot_time)
        # A file may begin with its first event, long after the boot.
        lines = text.splitlines()
        return KernelLog(source, parse(lines, boot_time), boot_time=boot_time, lines=lines[-_KEPT_LINES:])
    reasons = []
    for name in (JOURNAL, DMESG) if source == AUTO else (source,):
        if source == AUTO and name == DMESG and any(files.exists(path) for path in _SIGNS_OF_A_CONTAINER):
            reasons.append("dmesg shows the log of another host in a container")
            continue
        lines, reason = _lines(name, timeout, run_program)
        if reason is None:
            since = next((time for time in (time_of(line, boot_time) for line in lines) if time is not None), None)
            events = parse(lines, boot_time)
            return KernelLog(name, events, boot_time=boot_time, since=since, lines=lines[-_KEPT_LINES:])
        reasons.append(reason)
    return KernelLog(None, reason="; ".join(reasons), boot_time=boot_time)


def _lines(name: str, timeout: float, run_program: Run) -> tuple[list[str], str | None]:
    """The lines that a program prints, or why there are none: each kernel has logged something since its boot."""
    program, *arguments = _COMMANDS[name]
    result = run_program((find_executable(program), *arguments), timeout)
    if result.start_error is not None:
        return [], f"there is no {program}"
    if result.timed_out or result.too_large:
        return [], f"{program} {'takes too long' if result.timed_out else 'prints too much'}"
    if result.rc != 0:
        return [], f"{program} failed: {' '.join(result.error_text.split()) or f'exit status {result.rc}'}"
    lines = [line for line in result.text.splitlines() if line.strip() and not line.startswith("-- ")]
    return lines, None if lines else f"{program} has no line of the kernel"


def _boot_time(files: HostFiles) -> float | None:
    found = re.search(r"(?m)^btime (\d+)$", files.read("/proc/stat") or "")
    return float(found[1]) if found else None
