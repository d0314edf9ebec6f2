# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated daemon of MPS, asked in the words of gpu_state's unit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._state import mps
from ansible_collections.gpu.fleet.plugins.module_utils._state.request import Mps
from gpu_simulator.control import command as control
from gpu_simulator.state import store

from tests.checks.tools import ROOT

SIMULATOR = ROOT / "roles" / "gpu_simulator"
RUN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from gpu_simulator.control import mps; "
    "sys.exit(mps.main(sys.argv[3:], sys.argv[2]))"
)


class Host:
    """A host with the program and its directory of sockets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pipes").mkdir()
        self.environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(root / "pipes")}

    def uuids(self) -> list[str]:
        state = store.read(str(self.root))
        return [gpu["uuid"] for gpu in state["gpus"]] if state else []

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-c", RUN, str(SIMULATOR / "files"), str(self.root), *words]

    def ask(self, line: str, *words: str) -> tuple[str, int]:
        """The output and the status of a call with this line as its input."""
        run = subprocess.run(
            self.argv(*words), input=line, env=self.environment, text=True, capture_output=True, check=False
        )
        return run.stdout, run.returncode

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """The daemon, once it responds."""
        daemon = subprocess.Popen(
            self.argv(*words), env={**self.environment, **environment}, stdout=subprocess.PIPE, text=True
        )
        while self.ask("get_server_list\n")[1] != 0:
            assert daemon.poll() is None
            time.sleep(0.05)
        return daemon


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    store.initialise({"driver_version": "580.159.04", "gpus": [{"model": "h200", "count": 2}]}, str(tmp_path))
    yield Host(tmp_path)


def test_without_a_daemon(host: Host) -> None:
    assert host.ask("ps\n") == ("Cannot find MPS control daemon process\n", 1)
    assert host.ask("", "-d")[1] == 69


def test_a_daemon_takes_limits_lists_its_clients_and_quits(host: Host) -> None:
    uuids = host.uuids()
    daemon = host.start("-f", CUDA_VISIBLE_DEVICES=uuids[1])
    assert host.ask("", "-f") == ("An instance of this daemon is already running\n", 1)
    assert host.ask("get_default_active_thread_percentage\n") == ("100.0\n", 0)
    assert host.ask("set_default_active_thread_percentage 25\n") == ("25.0\n", 0)
    assert host.ask("set_default_active_thread_percentage 300\n") == ("25.0\n", 0), "refused in the log alone"
    assert host.ask(f"set_default_device_pinned_mem_limit {uuids[1]} 8G\n") == ("", 0)
    assert host.ask(f"get_default_device_pinned_mem_limit {uuids[1]}\n") == ("8G\n", 0)
    assert host.ask("nonsense\n") == ('Unknown command "nonsense"\n', 0)
    assert gpu_clients.parse_mps_clients(host.ask("ps\n")[0]) == []
    for index in ("0", "1"):
        words = ["busy", "--gpu", index, "--pid", f"59{index}", "--name", "/usr/bin/python3"]
        assert control.main(words, str(host.root)) == 0
    assert gpu_clients.parse_mps_clients(host.ask("ps\n")[0]) == ["python3 (PID 591)"]
    assert host.ask("quit\n") == ("", 0)
    assert daemon.wait(10) == 0


def test_the_unit_starts_sets_limits_and_stops_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    program = host.root / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(host.argv())} "$@"\n')
    program.chmod(0o755)
    declared = Mps(pinned_memory_limit="8G", active_thread_percentage=25.0, multi_user=True)
    unit = mps.unit_text(declared, host.uuids(), str(program))
    lines = [line.partition("=")[::2] for line in unit.splitlines() if line.startswith("Exec")]
    (start,) = [shlex.split(value) for key, value in lines if key == "ExecStart"]
    assert start == [str(program), "-f", "-M"]
    daemon = subprocess.Popen(start, env=host.environment, stdout=subprocess.DEVNULL)
    for value in (value for key, value in lines if key == "ExecStartPost"):
        subprocess.run(shlex.split(value), env=host.environment, check=True)

    def run(command: Sequence[str]) -> CommandResult:
        done = subprocess.run(command, env=host.environment, capture_output=True, check=False)
        return CommandResult(tuple(command), done.returncode, done.stdout, done.stderr, 0.0)

    monkeypatch.setattr(gpu_clients, "MPS_PIPES", str(host.root / "pipes"))
    mps.verify(declared, run, str(program))
    with pytest.raises(ChangeError, match="declared 100"):
        mps.verify(Mps(), run, str(program))
    for uuid in host.uuids():
        assert host.ask(f"get_default_device_pinned_mem_limit {uuid}\n") == ("8G\n", 0)
    (stop,) = [shlex.split(value.lstrip("-")) for key, value in lines if key == "ExecStop"]
    subprocess.run(stop, env=host.environment, check=True)
    assert daemon.wait(10) == 0
    with pytest.raises(ChangeError, match="does not respond"):
        mps.verify(declared, run, str(program))


def test_each_program_is_the_simulator_under_its_name() -> None:
    variables = yaml.safe_load((SIMULATOR / "vars" / "main.yml").read_text())
    lines = re.sub("^.*/(.*)$", variables["__gpu_simulator_program"], "/usr/bin/nvidia-smi").splitlines()
    assert lines[0] == "#!/bin/sh"
    assert lines[-1] == 'exec python3 -IS /usr/lib/gpu-simulator nvidia-smi "$@"'
