# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/accept.yml with the real PyTorch and Gloo: processes of four hosts on one, of which one is made to fail."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import ROOT

pytestmark = pytest.mark.plays

TORCH = Path("/usr/bin/python3")
HOSTS = ("n1", "n2", "n3", "n4")
# What is done to the program of one host before it runs.
FAULTS = {
    "wrong": "source = source.replace('all_reduce(tensor)', 'all_reduce(tensor); tensor[-1] += 1')",
    "slow": "source = source.replace('distributed.all_reduce(', 'time.sleep(0.5); distributed.all_reduce(')",
    "hanging": "source = source.replace('distributed.barrier()', 'time.sleep(600)')",
    # As one that no signal reaches.
    "stuck": "import time; time.sleep(600)",
}


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    found = subprocess.run([TORCH, "-c", "import torch.distributed"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip(f"{TORCH} has no PyTorch; Debian's is the package python3-torch")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def command(directory: Path, fault: str = "", *arguments: str, **variables: Any) -> list[str | Path]:
    """The command line of a run, in which the host n2 has a fault."""
    hosts: dict[str, dict[str, Any]] = {name: {"gpu_fleet_accept_port": free_port()} for name in HOSTS}
    if fault:
        wrapper = directory / "python"
        code = f"import sys; source = sys.stdin.read(); {FAULTS[fault]}; exec(compile(source, 'all_reduce.py', 'exec'))"
        wrapper.write_text(f'#!/bin/sh\nshift\nexec {TORCH} -c "{code}" "$@"\n')
        wrapper.chmod(0o755)
        hosts["n2"]["gpu_fleet_accept_python"] = str(wrapper)
    given = {
        "ansible_connection": "local",
        "ansible_host": "127.0.0.1",
        "ansible_python_interpreter": sys.executable,
        "gpu_fleet_accept_backend": "gloo",
        "gpu_fleet_accept_python": str(TORCH),
        "gpu_fleet_accept_interface": "lo",
        "gpu_fleet_accept_size_mib": 1,
        "gpu_fleet_accept_iterations": 3,
        "gpu_fleet_accept_timeout_s": 60,
        "gpu_fleet_accept_slow_below": 0.2,
        "gpu_fleet_accept_dir": str(directory / "report"),
        **variables,
    }
    (directory / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": given}}))
    program = Path(sys.executable).parent / "ansible-playbook"
    return [program, "-i", directory / "inventory.json", ROOT / "playbooks" / "accept.yml", *arguments]


def environment(directory: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
        "ANSIBLE_HOME": str(directory / "home"),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_NOCOLOR": "1",
        # Fewer than the hosts: each part has to be started all the same.
        "ANSIBLE_FORKS": "2",
    }


def run(directory: Path, fault: str = "", *arguments: str, **variables: Any) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and the report of a run."""
    done = subprocess.run(
        command(directory, fault, *arguments, **variables),
        env=environment(directory),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    report = directory / "report" / "accept.json"
    return done.returncode, done.stdout + done.stderr, json.loads(report.read_text()) if report.exists() else {}


def programs(directory: Path) -> list[str]:
    """Processes of the parts of this run's hosts, by their ports."""
    hosts = json.loads((directory / "inventory.json").read_text())["all"]["hosts"]
    ports = [f"--port={of['gpu_fleet_accept_port']}" for of in hosts.values()]
    lines = subprocess.run(["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if any(port in line for port in ports)]


def test_sound_hosts_are_accepted_and_nothing_stays_on_them(tmp_path: Path) -> None:
    status, output, report = run(tmp_path)
    assert status == 0, output
    assert report["accepted"] is True
    assert [len(one["hosts"]) for one in report["runs"]] == [2, 2, 2, 2, 4]
    assert all(one["gb_s"] > 0 for one in report["runs"])
    assert "changed=0" in output and "changed=1" not in output
    assert (tmp_path / "report" / "accept.svg").read_text().startswith("<svg")
    assert programs(tmp_path) == []
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file() and "all_reduce" in path.name] == []


@pytest.mark.parametrize(
    ("fault", "words", "options"),
    [
        ("wrong", "n2: its sums were wrong", {}),
        ("slow", "its best pair has", {}),
        ("hanging", "n2: it did not end within 30 s", {"gpu_fleet_accept_timeout_s": 30}),
        ("stuck", "n2: it did not end within 30 s", {"gpu_fleet_accept_timeout_s": 30}),
    ],
)
def test_the_host_with_the_fault_is_named_alone(
    fault: str, words: str, options: dict[str, Any], tmp_path: Path
) -> None:
    status, output, report = run(tmp_path, fault, **options)
    assert status != 0
    assert [*report["problems"]] == ["n2"], report
    assert words in " ".join(output.split())
    recap = {name: "failed=1" in line for line in output.splitlines() for name in HOSTS if line.startswith(f"{name} ")}
    assert recap == {name: name == "n2" for name in HOSTS}
    assert programs(tmp_path) == []


def test_check_mode_prints_the_pairs_and_runs_none(tmp_path: Path) -> None:
    status, output, report = run(tmp_path, "hanging", "--check")
    assert (status, report) == (0, {})
    assert "pairs 1: n1 + n4, n2 + n3" in output and "all: n1 + n2 + n3 + n4" in output


def test_a_wrong_value_is_refused_with_its_host(tmp_path: Path) -> None:
    status, output, report = run(tmp_path, gpu_fleet_accept_backend="mpi")
    assert (status, report) == (2, {})
    assert "n1: gpu_fleet_accept_backend is 'mpi'; it takes nccl or gloo" in output


def test_a_killed_run_leaves_no_process(tmp_path: Path) -> None:
    limit = 30
    argv = command(tmp_path, "stuck", gpu_fleet_accept_timeout_s=limit)
    with subprocess.Popen(
        argv, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    ) as play:
        end = time.monotonic() + 120
        while len(programs(tmp_path)) < len(HOSTS):
            assert time.monotonic() < end, "the parts did not start"
            time.sleep(0.2)
        os.killpg(play.pid, signal.SIGKILL)
    end = time.monotonic() + limit + 40
    while programs(tmp_path):
        assert time.monotonic() < end, programs(tmp_path)
        time.sleep(0.5)
