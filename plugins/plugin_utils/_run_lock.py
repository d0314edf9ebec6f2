# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time in a directory of the controller. Private to this collection.

A lock of the kernel would end with the process of a task, long before the run. So the file names the process of the
run, and counts while that process lives: a run that was killed leaves nothing to clean up.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from ..module_utils._common.json_text import parse_json

_LONGEST = 4096
# States of a process: a zombie, and one that is dead.
_ENDED = ("Z", "X", "x")


@dataclass(frozen=True)
class Process:
    """A process. `started` are the clock ticks since the boot `boot`; both are empty where there is no /proc."""

    host: str
    pid: int
    boot: str = ""
    started: str = ""


def process_of(pid: int) -> Process:
    """The process of this machine with this number. One that has ended and that nobody reaped has not started."""
    boot = _text("/proc/sys/kernel/random/boot_id").strip()
    # Behind the name of the program, which may have spaces and parentheses; fields 3 and 22 of proc(5).
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    runs = len(fields) > 19 and fields[0] not in _ENDED
    return Process(socket.gethostname(), pid, boot, fields[19] if runs else "")


def acquire(path: str, mine: Process) -> Process | None:
    """Write `mine` to the file; the one in it where that may still run. Raises OSError."""
    with open(path, "a+", encoding="utf-8", opener=_private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = _read(file.read(_LONGEST))
        if found is not None and found != mine and _may_run(found, mine):
            return found
        file.truncate(0)
        json.dump(asdict(mine), file)
    return None


def release(path: str, mine: Process) -> bool:
    """Empty the file where `mine` holds it; whether it did. Raises OSError."""
    if not os.path.exists(path):
        return False
    with open(path, "a+", encoding="utf-8", opener=_private) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        is_mine = _read(file.read(_LONGEST)) == mine
        if is_mine:
            file.truncate(0)
    return is_mine


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _read(text: str) -> Process | None:
    try:
        return Process(**parse_json(text))
    except (ValueError, TypeError):
        return None


def _may_run(found: Process, mine: Process) -> bool:
    """Whether the process may still run: of another machine that is not known."""
    if found.host != mine.host:
        return True
    if found.boot:
        return found.boot == mine.boot and process_of(found.pid) == found
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
