# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Concurrent and killed callers: the state stays consistent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .hosts import Host
from .reference import ROOT

SIMULATOR = ROOT / "roles" / "gpu_simulator" / "files"
ONE_CALL = "import sys; from gpu_simulator import cli; sys.exit(cli.main(sys.argv[1:], root_user=True))"
ENDLESS_CALLS = """
from gpu_simulator import cli
while True:
    for command in ("mig -cgi 19,19,14 -C", "mig -dci", "mig -dgi", "-pl 300", "-pl 310"):
        cli.reply(command.split(), root_user=True)
"""


def start(host: Host, program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={"GPU_SIMULATOR_ROOT": host.root, "PYTHONPATH": str(SIMULATOR)},
    )


def assert_consistent(gpu: Any) -> None:
    """No two GPU instances of a GPU overlap or have the same ID."""
    taken = Counter(
        unit
        for instance in gpu["gpu_instances"]
        for unit in range(instance["start"], instance["start"] + instance["size"])
    )
    assert set(taken.values()) <= {1}
    ids = [instance["id"] for instance in gpu["gpu_instances"]]
    assert len(set(ids)) == len(ids)


def test_sixteen_create_at_the_same_time(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 1}])
    host.smi("-mig 1")
    callers = [start(host, ONE_CALL, "mig", "-cgi", "19", "-C") for _unused in range(16)]
    outputs = [caller.communicate(timeout=600)[0] for caller in callers]
    assert Counter(caller.returncode for caller in callers) == {0: 7, 23: 9}
    gpu = host.gpu()
    assert_consistent(gpu)
    assert [instance["id"] for instance in gpu["gpu_instances"]] == list(range(7, 14))
    assert all(len(instance["compute_instances"]) == 1 for instance in gpu["gpu_instances"])
    # No two callers report the same instance as created.
    created = [line for output in outputs for line in output.splitlines() if "created GPU instance" in line]
    assert len(set(created)) == 7


def test_a_caller_killed_at_any_moment_leaves_a_readable_state(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 2}])
    host.smi("-mig 1")
    state = Path(host.root, "var/lib/gpu-simulator/state.json")
    seen = {state.read_text(encoding="utf-8")}
    for number in range(24):
        caller = start(host, ENDLESS_CALLS)
        # The first one surely after a change, however long a busy machine takes for it.
        while number == 0 and state.read_text(encoding="utf-8") in seen:
            time.sleep(0.01)
        time.sleep(0.1 + number * 0.0037)
        caller.kill()
        caller.communicate()
        assert caller.returncode == -signal.SIGKILL
        text = state.read_text(encoding="utf-8")
        seen.add(text)
        for gpu in json.loads(text)["gpus"]:
            assert_consistent(gpu)
    assert len(seen) > 1
    assert host.smi("-i 0 -pl 320")[1] == 0
