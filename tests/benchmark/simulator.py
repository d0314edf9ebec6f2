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
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "roles" / "gpu_simulator" / "files"
sys.path.insert(0, str(PROGRAM))

from gpu_simulator import store

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


def main() -> None:
    """Print the table. The goals are for CPU time, which other load on the machine does not affect."""
    slowest = 0.0
    with tempfile.TemporaryDirectory() as directory:
        store.initialise(store.DEFAULT_HOSTS["h200x8"], directory, device_nodes=True)
        environment = {**os.environ, "GPU_SIMULATOR_ROOT": directory}
        measure(["-q", "-x"], environment)  # writes the byte code
        print(f"{'simulated, 8 x H200; milliseconds':<60}   best  median  processor")
        for arguments in CALLS:
            timing = measure(arguments, environment)
            slowest = max(slowest, timing.processor)
            reported = " ".join(["nvidia-smi", *arguments])[:58]
            print(f"{reported:<60} {timing.best:>6.1f}  {timing.median:>6.1f}     {timing.processor:>6.1f}")
    print(f"slowest call: {slowest:.1f} ms of processor time, goal under {GOAL_MS:.0f} ms")
    if slowest >= GOAL_MS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
