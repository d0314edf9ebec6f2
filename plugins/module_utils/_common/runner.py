# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs side by side, bounded in time and memory. Private to this collection."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Mapping, Sequence

MAX_OUTPUT_BYTES = 100 * 1024 * 1024
"""More than this on one stream is refused: the document of a 16-GPU host is below 1 MiB."""

# A process in uninterruptible sleep survives SIGKILL; waiting for it longer would hang the caller as well.
GRACE_SECONDS = 1.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class CommandResult:
    """What one program did.

    `rc` is the exit status, negative for a signal, and None when the program could not be started or was given up.
    `start_error` is the errno of a failed start. `seconds` is wall-clock time.
    """

    argv: tuple[str, ...]
    rc: int | None
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    too_large: bool = False
    start_error: int | None = None

    @property
    def text(self) -> str:
        """Standard output as text."""
        return decode(self.stdout)

    @property
    def error_text(self) -> str:
        """Standard error as text."""
        return decode(self.stderr)


def decode(data: bytes) -> str:
    """Turn output into text: UTF-8, or UTF-16 with or without a byte order mark; undecodable bytes become U+FFFD."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if data[1:2] == b"\0":
        return data.decode("utf-16-le", "replace")
    if data[:1] == b"\0":
        return data.decode("utf-16-be", "replace")
    return data.decode("utf-8-sig", "replace")


def find_executable(
    name: str, fallback_directories: Sequence[str] = ("/usr/bin", "/usr/local/bin", "/usr/sbin")
) -> str:
    """Resolve a program's name like a shell, also where become left a short PATH; an unknown name comes back."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *fallback_directories))
    return shutil.which(name, path=path) or name


class _Running:
    """One started program and what it has said so far."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.argv = tuple(argv)
        self.started = time.monotonic()
        self.seconds = 0.0
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.timed_out = False
        self.too_large = False
        self.start_error: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        try:
            # A process group of its own, so that a timeout ends the program's children as well.
            # run_command has no timeout, and no process group of its own that could be ended with all its children.
            self.process = subprocess.Popen(  # pylint: disable=ansible-bad-function # see above
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            self.start_error = error.errno or errno.ENOENT
        except ValueError:
            # A NUL, or a character that cannot be encoded, which no program's name and no argument has.
            self.start_error = errno.EINVAL

    def end(self) -> None:
        """Kill the whole process group and collect the leader if it lets itself be collected."""
        if self.process is None:
            return
        # The group may be gone already, or belong to somebody else since it started a setuid program.
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_SECONDS)

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr) if self.process else ():
            if stream is not None:
                stream.close()

    def result(self) -> CommandResult:
        gave_up = self.timed_out or self.too_large
        return CommandResult(
            argv=self.argv,
            rc=None if self.process is None or gave_up else self.process.returncode,
            stdout=bytes(self.stdout),
            stderr=bytes(self.stderr),
            seconds=self.seconds,
            timed_out=self.timed_out,
            too_large=self.too_large,
            start_error=self.start_error,
        )


def run_all(
    commands: Sequence[Sequence[str]], timeout: float, max_output_bytes: int = MAX_OUTPUT_BYTES
) -> tuple[CommandResult, ...]:
    """Run `commands` side by side and answer in the same order.

    `timeout` in seconds holds for all of them together. Never raises for what a program does: a failed start, a
    timeout and too much output are in the results.
    """
    # LANGUAGE beats LC_ALL for programs that use gettext.
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    deadline = time.monotonic() + timeout
    running = [_Running(argv, environment) for argv in commands]
    try:
        with selectors.DefaultSelector() as selector:
            for item in running:
                if item.process is not None:
                    for stream, sink in ((item.process.stdout, item.stdout), (item.process.stderr, item.stderr)):
                        if stream is not None:
                            os.set_blocking(stream.fileno(), False)
                            selector.register(stream, selectors.EVENT_READ, (item, sink))
            _read_until(selector, deadline, max_output_bytes)
        for item in running:
            _wait_for(item, deadline)
    finally:
        for item in running:
            if item.process is not None and item.process.returncode is None:
                item.end()
            item.close()
    return tuple(item.result() for item in running)


def run(argv: Sequence[str], timeout: float) -> CommandResult:
    """Run one program; see run_all."""
    return run_all((argv,), timeout)[0]


def _read_until(selector: selectors.BaseSelector, deadline: float, max_output_bytes: int) -> None:
    """Fill each program's buffers until all have closed their streams or the time is up."""
    while selector.get_map():
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            for key in list(selector.get_map().values()):
                key.data[0].timed_out = True
            return
        for key, _events in selector.select(remaining):
            item, sink = key.data
            try:
                chunk = os.read(key.fd, CHUNK_BYTES)
            except BlockingIOError:
                continue
            sink += chunk
            if len(sink) > max_output_bytes:
                item.too_large = True
                del sink[:]
                item.end()
            if not chunk or item.too_large:
                selector.unregister(key.fileobj)
                item.seconds = time.monotonic() - item.started


def _wait_for(item: _Running, deadline: float) -> None:
    """Collect a program's exit status; one that closed its streams and lingers counts as hanging."""
    if item.process is not None and not item.timed_out:
        try:
            item.process.wait(max(0.0, deadline - time.monotonic()) + 0.01)
        except subprocess.TimeoutExpired:
            item.timed_out = True
    item.seconds = item.seconds or time.monotonic() - item.started
