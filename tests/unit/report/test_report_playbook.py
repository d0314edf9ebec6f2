# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/report.yml, run by Ansible: a simulated host, one that cannot be reached, one that cannot be read."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.plays import ansible_playbook, unreachable

pytestmark = pytest.mark.plays

PLAYBOOK = ROOT / "playbooks" / "report.yml"


def play(directory: Path, **variables: Any) -> tuple[int, str]:
    """Run the playbook; return its exit status and output."""
    (directory / "kernel.log").write_text("Linux version 6.8.0\n")
    (directory / "ansible.cfg").touch()
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {
        # The first of the play, where the report is made.
        "lost": unreachable(directory, "connect: Connection refused"),
        "broken": {**local, "ansible_python_interpreter": "/missing/python"},
        "node1": {**local, "gpu_fleet_rack": "{{ 'rack' ~ 7 }}", **variables},
    }
    every = {
        "gpu_fleet_report_dir": str(directory / "report"),
        "gpu_health_kernel_log": str(directory / "kernel.log"),
        "gpu_health_history": str(directory / "history"),
    }
    (directory / "inventory.json").write_text(json.dumps({"gpu": {"hosts": hosts, "vars": every}}))
    done = ansible_playbook(
        "-i",
        directory / "inventory.json",
        PLAYBOOK,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "PATH": f"{directory}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_NOCOLOR": "1",
        },
    )
    return done.returncode, done.stdout + done.stderr


def test_the_fleet_is_reported_with_hosts_that_were_not_read_and_nothing_is_changed(tmp_path: Path) -> None:
    Host(tmp_path, gpus=[{"model": "h200", "count": 2}]).smi("-e 0")
    executable(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    pulls = {
        "gpu_fleet_pull_repository": "https://git.example.com/fleet.git",
        "gpu_fleet_pull_directory": str(tmp_path),
    }
    status, text = play(
        tmp_path, gpu_fleet_rack_power_budget_kw="much", gpu_health_ignore=["ecc_mode_pending"], **pulls
    )
    assert status == 0, text
    data = json.loads((tmp_path / "report" / "report.json").read_text())
    states = {each["name"]: each["state"] for each in data["hosts"]}
    assert states == {"broken": "not_read", "lost": "unreachable", "node1": "read"}
    reasons = {each["name"]: each["reason"] for each in data["hosts"]}
    assert "Connection refused" in reasons["lost"]
    assert "/missing/python" in reasons["broken"]
    node = data["hosts"][2]
    assert (node["rack"], node["facts"]["driver_version"]) == ("rack7", "580.159.04")
    assert [gpu["name"] for gpu in node["facts"]["gpus"]] == ["NVIDIA H200"] * 2
    found = {each["verdict"] for each in node["health"]["findings"] if each["row"] == "ecc_mode_pending"}
    assert found == {"ok"}
    assert f"{tmp_path}/report/report.html: 3 hosts, 2 GPUs" in text
    assert not (tmp_path / "history").exists()
    assert "changed=0" in text
    assert 'node1: gpu_fleet_rack_power_budget_kw is "much"' in text
    assert (tmp_path / "report" / "report.csv").read_text().count("\n") == 5
    assert [path.name for path in (tmp_path / "report" / "runs").iterdir()] == ["node1.json"]
