# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs in parallel, bounded in time and memory. Private to this collection."""

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
from typing import Any, Callable, Mapping, Sequence

MAX_OUTPUT_BYTES = 100 * 1024 * 1024
"""Limit on each output stream: the document of a 16-GPU host is below 1 MiB."""

# A process in uninterruptible sleep survives SIGKILL; waiting longer would hang the caller as well.
GRACE_SECONDS = 1.0
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class CommandResult:
    """Result of one program.

    `rc` is the exit status, negative for a signal, None when the program could not be started or was killed for a
    limit. `start_error` is the errno of a failed start. `seconds` is wall-clock time.
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

    @property
    def ending(self) -> str:
        """How it ended, for an error message about a program that printed nothing."""
        if self.timed_out:
            return f"it did not end within {self.seconds:.0f} s"
        if self.rc is None:
            return os.strerror(self.start_error) if self.start_error else "it was killed"
        return f"signal {-self.rc}" if self.rc < 0 else f"exit status {self.rc}"


def decode(data: bytes) -> str:
    """Decode output: UTF-8, or UTF-16 with or without a byte order mark; undecodable bytes become U+FFFD."""
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
    """Resolve a program's name on PATH, then in directories that become may omit; an unknown name is returned as is."""
    path = os.pathsep.join((os.environ.get("PATH", ""), *fallback_directories))
    return shutil.which(name, path=path) or name


class _Running:
    """One started program and its output so far."""

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
            # run_command has no timeout and no process group of its own, with which a timeout ends child processes too.
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
            # An argument with a NUL or an unencodable character.
            self.start_error = errno.EINVAL

    def end(self) -> None:
        """Kill the process group and reap its leader, waiting at most GRACE_SECONDS."""
        if self.process is None:
            return
        # The group may have ended, or run under another user after starting a setuid program.
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
    """Run `commands` in parallel; results are in the same order.

    `timeout` in seconds is for all of them together. Does not raise for failures of a program: a failed start, a
    timeout and too much output are in the results.
    """
    # LANGUAGE overrides LC_ALL for programs that use gettext.
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    deadline = time.monotonic() + timeout
    return _finish([_Running(argv, environment) for argv in commands], deadline, max_output_bytes)


def _finish(running: Sequence[_Running], deadline: float, max_output_bytes: int) -> tuple[CommandResult, ...]:
    """Read the output of programs until they end or the deadline has passed."""
    try:
        with selectors.DefaultSelector() as selector:
            for item in running:
                if item.process is not None:
                    for output, sink in ((item.process.stdout, item.stdout), (item.process.stderr, item.stderr)):
                        if output is not None:
                            os.set_blocking(output.fileno(), False)
                            selector.register(output, selectors.EVENT_READ, (item, sink))
            _read_until(selector, deadline, max_output_bytes)
        for item in running:
            _wait_for(item, deadline)
    finally:
        for item in running:
            if item.process is not None and item.process.returncode is None:
                item.end()
            item.close()
    return tuple(item.result() for item in running)


class _Fed(bytearray):
    """Output that is passed on instead of being kept."""

    def __init__(self, feed: Callable[[bytes], None]) -> None:
        super().__init__()
        self._feed = feed

    def __iadd__(self, part: Any) -> _Fed:  # type: ignore[misc] # what is passed on cannot be added to
        self._feed(bytes(part))
        return self


def stream(argv: Sequence[str], timeout: float, feed: Callable[[bytes], None]) -> CommandResult:
    """Run one program and give each part of its output to `feed`; the result has none, and no limit on it."""
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C"}
    item = _Running(argv, environment)
    item.stdout = _Fed(feed)
    return _finish((item,), time.monotonic() + timeout, MAX_OUTPUT_BYTES)[0]


def run(argv: Sequence[str], timeout: float) -> CommandResult:
    """Run one program; see run_all."""
    return run_all((argv,), timeout)[0]


def _read_until(selector: selectors.BaseSelector, deadline: float, max_output_bytes: int) -> None:
    """Read each program's output until all streams are closed or the deadline has passed."""
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
    """Reap a program; one that closed its streams but does not exit counts as timed out."""
    if item.process is not None and not item.timed_out:
        try:
            item.process.wait(max(0.0, deadline - time.monotonic()) + 0.01)
        except subprocess.TimeoutExpired:
            item.timed_out = True
    item.seconds = item.seconds or time.monotonic() - item.started
