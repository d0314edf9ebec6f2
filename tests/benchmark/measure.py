# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command costs."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """Of a command with all its child processes: elapsed and CPU seconds; MiB of its largest process at its peak."""

    seconds: float
    cpu_seconds: float
    peak_mib: int


def run(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Cost:
    """Run a command; raises CalledProcessError, with the end of its output, when it fails."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            list(map(str, argv)), env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        elapsed = time.monotonic() - began
        if process.returncode:
            output.seek(0)
            raise subprocess.CalledProcessError(process.returncode, str(argv[0]), output.read()[-3000:])
    return Cost(elapsed, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)


def best_of(rounds: int, action: Callable[[], Cost]) -> Cost:
    """The cost with the least CPU time: other load on the machine only adds to it."""
    return min((action() for _round in range(rounds)), key=lambda cost: cost.cpu_seconds)
