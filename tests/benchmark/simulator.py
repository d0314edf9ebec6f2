# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time per call of the simulated nvidia-smi on a host with eight H200, including the start of Python."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from gpu_simulator.state import store

from tests.benchmark.report import Table
from tests.conftest import ROOT

PROGRAM = ROOT / "roles" / "gpu_simulator" / "files"

CALLS: tuple[list[str], ...] = (
    ["-L"],
    [],
    ["-q"],
    ["-q", "-x"],
    ["-q", "-d", "ECC"],
    ["--query-gpu=index,uuid,mig.mode.current,ecc.mode.current", "--format=csv,noheader"],
    ["topo", "-m"],
    ["mig", "-lgip"],
    ["mig", "-lgi"],
    ["-pm", "0"],
)
ROUNDS = 15
GOAL_MS = 60.0
START = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from gpu_simulator import cli
sys.exit(cli.main(sys.argv[1:]))
"""


class Timing(NamedTuple):
    """Shortest and median duration and least CPU time, in milliseconds."""

    best: float
    median: float
    processor: float


def processor_seconds() -> float:
    """CPU time of all child processes so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(arguments: list[str], environment: dict[str, str]) -> Timing:
    """Run one call several times."""
    command = [sys.executable, "-IS", "-c", START, str(PROGRAM), *arguments]
    durations, processor = [], []
    for _unused in range(ROUNDS):
        used, begin = processor_seconds(), time.perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
        durations.append((time.perf_counter() - begin) * 1000)
        processor.append((processor_seconds() - used) * 1000)
    return Timing(min(durations), statistics.median(durations), min(processor))


def tables(_arguments: object = None) -> Iterator[Table]:
    """One table. The goal is for CPU time, which other load on the machine does not affect."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        store.initialise(store.DEFAULT_HOSTS["h200x8"], directory, device_nodes=True)
        environment = {**os.environ, "GPU_SIMULATOR_ROOT": directory}
        measure(["-q", "-x"], environment)  # writes the byte code
        for arguments in CALLS:
            timing = measure(arguments, environment)
            rows.append((" ".join(["nvidia-smi", *arguments])[:58], timing.best, timing.median, timing.processor))
    slow = tuple(
        f"{row[0]}: {row[3]:.1f} ms of CPU time, the goal is {GOAL_MS:.0f}" for row in rows if row[3] >= GOAL_MS
    )
    yield Table("Simulated nvidia-smi, 8 x H200; milliseconds", ("call", "best", "median", "CPU"), tuple(rows), slow)
