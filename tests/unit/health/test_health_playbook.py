# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/health.yml and the role gpu_health, run by Ansible on a simulated host."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import fleet_picture
from tests.conftest import ROOT
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.plays import ansible_playbook

pytestmark = pytest.mark.plays

PLAYBOOK = ROOT / "playbooks" / "health.yml"
# They depend on the machine that runs the tests.
OF_THIS_MACHINE = (
    "clock_unsynchronized",
    "cpus_offline",
    "boot_service_failed",
    "boot_service_missed",
    "imex_inactive",
    "imex_unready",
    "mps_inactive",
    "mps_client_fault",
    "cdi_stale",
    "gpu_missing",
    # Of the driver that the simulator was recorded with.
    "driver_vulnerable",
)


# The role as site.yml runs it, without a container.
ROLE = [
    {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"gpu_health_container_image": ""},
        "environment": {"PATH": "{{ path_of_host }}"},
        "tasks": [{"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_health"}}],
    }
]


def of_host(directory: Path, **variables: Any) -> dict[str, Any]:
    """The variables of the simulated host in a directory."""
    (directory / "kernel.log").write_text("Linux version 6.8.0\n")
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "path_of_host": f"{directory}:{os.environ['PATH']}",
        "gpu_health_kernel_log": str(directory / "kernel.log"),
        "gpu_health_history": str(directory / "history"),
        "gpu_health_policy": [{"id": name, "verdict": "ok", "remedy": "none"} for name in OF_THIS_MACHINE],
        **variables,
    }


def play(directory: Path, **variables: Any) -> tuple[int, str]:
    """Run the playbook on the host in this directory; return its exit status and output."""
    return play_all(directory, PLAYBOOK, {"node1": of_host(directory, **variables)})


def play_all(directory: Path, playbook: Path, hosts: dict[str, Any]) -> tuple[int, str]:
    """Run a playbook, with the table at its end."""
    (directory / "ansible.cfg").touch()
    (directory / "inventory.json").write_text(json.dumps({"gpu": {"hosts": hosts}}))
    done = ansible_playbook(
        "-i",
        directory / "inventory.json",
        playbook,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "PATH": f"{directory}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table",
        },
    )
    return done.returncode, done.stdout + done.stderr


def row_of_table(text: str, host: str = "node1") -> list[str]:
    """The cells of a host in the table at the end."""
    _output, _header, table = text.partition("\nhost ")
    (line,) = (line for line in table.splitlines() if line.startswith(f"{host} ") and " NVIDIA " in line)
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Host:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 2}])
    executable(tmp_path)
    return host


def test_a_host_that_is_not_healthy_fails_after_its_reports_are_written(host: Host, tmp_path: Path) -> None:
    host.control("fault", "recovery-action", "reset", "--gpu", "1")
    (tmp_path / "reports").mkdir()
    outputs = {name: str(tmp_path / "reports") for name in ("gpu_health_json", "gpu_health_junit")}
    status, text = play(tmp_path, gpu_health_textfile=str(tmp_path / "gpu.prom"), **outputs)
    assert status == 2, text
    assert "node1: fail, remedy reset_gpu: GPU 1 (00000000:07:00.0): the driver asks for a reset" in text
    assert "changed=0" in text
    data = json.loads((tmp_path / "reports" / "node1.json").read_text())
    assert (data["verdict"], data["remedy"]) == ("fail", "reset_gpu")
    assert "<failure" in (tmp_path / "reports" / "node1.xml").read_text()
    assert 'gpu_fleet_health_verdict{remedy="reset_gpu"} 4' in (tmp_path / "gpu.prom").read_text()
    assert row_of_table(text)[-1] == "unhealthy: reset_gpu"
    assert "node1 is unhealthy: GPU 1 (00000000:07:00.0): the driver asks for a reset" in text


def test_the_picture_of_the_readme_has_the_verdict_as_it_is_printed(tmp_path: Path) -> None:
    host = Host(tmp_path, branch=550, gpus=[{"model": "a100_40gb", "count": 2}])
    executable(tmp_path)
    host.control(*fleet_picture.FAULT.partition("'gpu-simulator ")[2].rstrip("'").split())
    log = str(tmp_path / "run/gpu-simulator/kernel.log")
    variables = {**of_host(tmp_path), "gpu_health_kernel_log": log}
    status, text = play_all(tmp_path, PLAYBOOK, {"dual-a100": variables})
    assert status == 2
    assert fleet_picture.VERDICT in text


def counting_python(directory: Path) -> Path:
    """A Python that logs each start in `module-runs`: Ansible starts it once for each module."""
    path = directory / "python3"
    path.write_text(f'#!/bin/sh\necho run >> {directory}/module-runs\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("fail_on", "status"), [("fail", 0), ("warn", 2)])
def test_a_warning_fails_where_that_is_requested(fail_on: str, status: int, host: Host, tmp_path: Path) -> None:
    host.control("set", "remapped_rows.pending", "true")
    accepted = [{"id": name, "verdict": "ok", "remedy": "none"} for name in (*OF_THIS_MACHINE, "recovery_reset")]
    python = str(counting_python(tmp_path))
    result, text = play(
        tmp_path, gpu_health_fail_on=fail_on, gpu_health_policy=accepted, ansible_python_interpreter=python
    )
    assert result == status, text
    assert (tmp_path / "module-runs").read_text() == "run\n", "one module run for each host"
    assert "memory rows wait for a reset to be remapped" in text


# Commands of the simulator, variables, the cell of the table, and the line after the table.
ROLE_RUNS: dict[str, tuple[list[str], dict[str, Any], str, str]] = {
    "healthy": ([], {}, "ok", ""),
    "fail": (
        ["fault recovery-action reboot"],
        {},
        "unhealthy: reboot",
        "is unhealthy: GPU 0 (00000000:06:00.0): the dr",
    ),
    "never": (["fault recovery-action reboot"], {"gpu_health_fail_on": "never"}, "fail: reboot", ""),
    "warn": (["fault xid 999 --text new"], {}, "warn", "needs attention: GPU 0"),
    "strict": (["fault xid 999 --text new"], {"gpu_health_fail_on": "warn"}, "unhealthy", "is unhealthy: GPU 0"),
    "ignored": (["set remapped_rows.failure true"], {"gpu_health_ignore": ["row_remap_failure"]}, "ok", ""),
    "declared": (
        [],
        {"gpu_fleet_expected_gpus": 8},
        "unhealthy: reboot",
        "is unhealthy: 2 GPUs respond, and 8 are decl",
    ),
    "driver": ([], {"nvidia_driver_version": "575"}, "warn: configure", "needs attention: driver 580.159.04 is loaded"),
    "newest": ([], {"nvidia_driver_version": "newest"}, "ok", ""),
    "overridden": (
        [],
        {"nvidia_driver_version": "575", "gpu_health_expected": {"driver_version": "580"}},
        "ok",
        "",
    ),
}


def test_the_role_ends_with_the_verdict(tmp_path: Path) -> None:
    hosts = {}
    for name, (commands, variables, _cell, _line) in ROLE_RUNS.items():
        directory = tmp_path / name
        directory.mkdir()
        host = Host(directory, gpus=[{"model": "h200", "count": 2}])
        executable(directory)
        for command in commands:
            host.control(*command.split())
        hosts[name] = of_host(directory, **variables)
        with (directory / "kernel.log").open("a") as log:
            log.writelines(f"{line['text']}\n" for line in host.state.get("kernel_log", []))
    (tmp_path / "role.json").write_text(json.dumps(ROLE))
    _status, text = play_all(tmp_path, tmp_path / "role.json", hosts)
    for name, (_commands, _variables, cell, line) in ROLE_RUNS.items():
        row = row_of_table(text, name)
        assert row[1:3] == ["2 x NVIDIA H200", "580.159.04"]
        assert row[-1] == cell, text
        assert f"\n{name} {line}" in text
        assert (f"fatal: [{name}]" in text) == cell.startswith("unhealthy"), text
    # Ansible prints what was found after a green ok.
    assert '"fail, remedy reboot:",' in text and '"warn, remedy configure:",' in text
