# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line per phase with its duration; command output goes to a log, whose end is shown when a command fails."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed import settings

_START = time.monotonic()
_SHOWN_AFTER = 1.0


class CommandError(Exception):
    """A command of the testbed failed; the message has the command and the end of its output."""


def report(text: str) -> None:
    """Print one line at once, also into a pipe."""
    print(text, flush=True)


@contextmanager
def phase(title: str) -> Iterator[None]:
    """Print a phase's title and, when it has ended, its duration. Only the main thread's is printed before the end."""
    began = time.monotonic()
    if sys.stdout.isatty() and threading.current_thread() is threading.main_thread():
        print(f"  {title} …", end="\r", flush=True)
    try:
        yield
    except BaseException:
        report(f"  {title:<58} FAILED after {time.monotonic() - began:.1f} s")
        raise
    report(f"  {title:<58}{time.monotonic() - began:7.1f} s   (total {time.monotonic() - _START:.0f} s)")


def run(argv: Sequence[object], *, log: str, cwd: Path = settings.ROOT, env: dict[str, str] | None = None) -> str:
    """Run a command quietly, its arguments converted by str(). Its output goes to .cache/log/LOG.log and is returned.

    Raises CommandError with the end of the output when the command fails.
    """
    settings.LOGS.mkdir(parents=True, exist_ok=True)
    completed = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=env or settings.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    path = settings.LOGS / f"{log}.log"
    with path.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(str(word) for word in argv)}\n{completed.stdout}\n")
    if completed.returncode:
        end = "\n".join(completed.stdout.splitlines()[-25:])
        command = " ".join(str(word) for word in argv[:2])
        raise CommandError(f"{command}: exit status {completed.returncode}\n{end}\n(all of it: {path})")
    return completed.stdout


def run_playbook(argv: Sequence[str | Path], *, log: str) -> str:
    """Run ansible-playbook, showing the name of each task that takes longer than a second. Returns the whole output."""
    settings.LOGS.mkdir(parents=True, exist_ok=True)
    path = settings.LOGS / f"{log}.log"
    lines: list[str] = []
    problems: deque[str] = deque(maxlen=20)
    with (
        path.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            [str(word) for word in argv],
            cwd=settings.ROOT,
            # Where skipped tasks are not displayed, the name of a task comes with its first result.
            env=settings.environment() | {"ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        began = time.monotonic()
        announced = threading.Timer(0, lambda: None)
        for line in process.stdout or ():
            file.write(line)
            lines.append(line)
            if task := re.match(r"(?:TASK|RUNNING HANDLER|PLAY) (?:\[(.+)\]|RECAP) \*", line):
                announced.cancel()
                announced = threading.Timer(
                    _SHOWN_AFTER, report, [f"    {time.monotonic() - began:6.1f} s  {task[1] or 'Recap'}"]
                )
                announced.daemon = True
                announced.start()
            if re.match(r"(fatal|failed|\[ERROR\]|ERROR)", line):
                problems.append(line.rstrip())
        announced.cancel()
    if process.returncode:
        shown = "\n".join(problems) or "".join(lines[-20:])
        raise CommandError(f"{argv[0]}: exit status {process.returncode}\n{shown}\n(all of it: {path})")
    return "".join(lines)
