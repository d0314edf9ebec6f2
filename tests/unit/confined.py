# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sandbox for code under test: no writes outside of one directory, no programs, no network, bounded time and memory.

Fuzzed modules get any path and any program as an option, and the tests run as root. Python raises an audit event before
each operation that changes something; outside of the directory it fails as on a host with a read-only file system.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

CPU_SECONDS = 10.0
"""CPU time of this process: other load on the machine does not count."""

REAL_SECONDS = 120.0
"""Elapsed time, for code that waits."""

MEMORY_BYTES = 256 << 20
"""Memory on top of what the process has at the start."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Positions of the paths among an audit event's arguments, each with that of its dir_fd argument, if it has one.
_PATHS: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
}
# Events whose operations follow a symbolic link at the end of the path.
_FOLLOWING = frozenset(("open", "os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"))
_NETWORK = frozenset(("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind"))
_PROGRAMS = frozenset(("os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty", "os.spawn", "pty.spawn"))
_SIGNALS = frozenset(("os.kill", "os.killpg"))


class TooMuchWorkError(BaseException):
    """The code under test exceeded its time limit."""


class _Confinement:
    """The directory that may be changed; None if unrestricted. `refused` lists the attempts outside of it."""

    root: str | None = None
    is_installed = False
    refused: tuple[str, ...] = ()


def _is_inside(root: str, path: Any, directory: Any, follows: bool) -> bool:
    if isinstance(path, int):
        return True  # a file descriptor, whose open was checked
    try:
        text = os.fsdecode(path)
        os.fsencode(text)
        if "\0" in text:
            return True  # the call itself refuses it
        base = (
            Path(f"/proc/self/fd/{directory}").readlink()
            if isinstance(directory, int) and directory >= 0
            else Path.cwd()
        )
        parent, _slash, name = f"{base}/{text}".rstrip("/").rpartition("/")
        if text.startswith("/"):
            parent, _slash, name = text.rstrip("/").rpartition("/")
        whole = f"{parent}/{name}"
        real = os.path.realpath(whole if follows or name in ("", ".", "..") else parent or "/")
        real = real if follows or name in ("", ".", "..") else f"{real}/{name}"
    except (OSError, ValueError):
        return False
    return real.startswith(root + "/") or real == "/dev/null"


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    root = _Confinement.root
    if root is None:
        return
    if event == "open":
        path, _mode, flags = arguments
        if flags & _WRITING and not _is_inside(root, path, None, True):
            _refuse(event, path, errno.EROFS)
    elif event in _PATHS:
        for place, directory in _PATHS[event]:
            descriptor = None if directory is None else arguments[directory]
            if not _is_inside(root, arguments[place], descriptor, event in _FOLLOWING):
                _refuse(event, arguments[place], errno.EROFS)
    elif event == "subprocess.Popen":
        # A name with a NUL counts as inside: the call itself refuses to run it.
        if not _is_inside(root, arguments[0], None, True):
            _refuse(event, arguments[0], errno.EACCES)
    elif event in _PROGRAMS:
        _refuse(event, arguments[0] if arguments else "", errno.EACCES)
    elif event in _SIGNALS:
        _refuse(event, arguments[0], errno.EPERM)
    elif event in _NETWORK:
        _refuse(event, arguments[0], errno.ENETUNREACH)


def _refuse(event: str, what: Any, number: int) -> None:
    _Confinement.refused = (*_Confinement.refused[-99:], f"{event} {what!r}")
    raise OSError(number, os.strerror(number), what if isinstance(what, (str, bytes)) else None)


@contextlib.contextmanager
def confined(root: Path) -> Iterator[None]:
    """Restrict this process to changes below `root` and to programs from there."""
    if not _Confinement.is_installed:
        sys.addaudithook(_watch)
        _Confinement.is_installed = True
    before = _Confinement.root
    _Confinement.root, _Confinement.refused = os.path.realpath(root), ()
    try:
        yield
    finally:
        _Confinement.root = before


def refused() -> tuple[str, ...]:
    """Operations refused since the last `confined` began."""
    return _Confinement.refused


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Raise TooMuchWorkError after CPU_SECONDS or REAL_SECONDS, and MemoryError above MEMORY_BYTES."""

    def end(number: int, _frame: FrameType | None) -> None:
        what = f"{CPU_SECONDS} s of CPU time" if number == signal.SIGVTALRM else f"{REAL_SECONDS} s"
        raise TooMuchWorkError(f"not done after {what}")

    handlers = {number: signal.signal(number, end) for number in (signal.SIGVTALRM, signal.SIGALRM)}
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, REAL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)
