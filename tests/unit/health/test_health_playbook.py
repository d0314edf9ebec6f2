# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/health.yml, run by Ansible on a simulated host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable

PLAYBOOK = ROOT / "playbooks" / "health.yml"
# They depend on the machine that runs the tests.
OF_THIS_MACHINE = ("clock_unsynchronized", "boot_service_failed", "boot_service_missed", "cdi_stale", "gpu_missing")


def play(directory: Path, **variables: Any) -> tuple[int, str]:
    """Run the playbook; return its exit status and output."""
    (directory / "kernel.log").touch()
    (directory / "ansible.cfg").touch()
    every = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "gpu_health_kernel_log": str(directory / "kernel.log"),
        "gpu_health_history": str(directory / "history"),
        "gpu_health_policy": [{"id": name, "verdict": "ok"} for name in OF_THIS_MACHINE],
        **variables,
    }
    (directory / "inventory.json").write_text(json.dumps({"gpu": {"hosts": {"node1": every}}}))
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", directory / "inventory.json", PLAYBOOK],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "PATH": f"{directory}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


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


@pytest.mark.parametrize(("fail_on", "status"), [("fail", 0), ("warn", 2)])
def test_a_warning_fails_where_that_is_requested(fail_on: str, status: int, host: Host, tmp_path: Path) -> None:
    host.control("set", "remapped_rows.pending", "true")
    accepted = [{"id": name, "verdict": "ok"} for name in (*OF_THIS_MACHINE, "recovery_reset")]
    result, text = play(tmp_path, gpu_health_fail_on=fail_on, gpu_health_policy=accepted)
    assert result == status, text
    assert "memory rows wait for a reset to be remapped" in text
