# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on mock hosts: what is drained, what stays drained, and how a run continues."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.plays import unreachable
from tests.unit.site.converged import CUDA, NVIDIA_SMI, PACKAGES, STATE
from tests.unit.site.mock_host import MockHost, SiteRun, run_site
from tests.unit.slurm.mock_slurm import edit, mock_slurm

pytestmark = pytest.mark.plays

OBSERVATION = ["host_facts"]
HEALTHY: Mapping[str, Any] = {"changed": False, "verdict": "ok", "remedy": "none", "findings": [], "gpus": []}
LOST: Mapping[str, Any] = {
    **HEALTHY,
    "verdict": "fail",
    "remedy": "reboot",
    "findings": [{"verdict": "fail", "message": "GPU 0 is lost; reboot the host"}],
}


def host(changes: bool, health: Mapping[str, Any] | None = None) -> MockHost:
    """A host whose GPU state is to be changed, or not."""
    state = {**STATE, "changed": changes, "gpus_changed": changes}
    facts = {"changed": False, "ansible_facts": {"nvidia_smi": NVIDIA_SMI}}
    results = {"gpu_state": state, "gpu_health": health or HEALTHY, "nvidia_smi_facts": facts}
    return MockHost(nvidia_smi=NVIDIA_SMI, cuda=CUDA, packages=PACKAGES, results=results)


def upgrade(directory: Path, hosts: Mapping[str, MockHost], *arguments: str, **given: Any) -> SiteRun:
    """Run the playbook with commands that write a log, in a directory of its own. Programs are looked for there."""
    log = directory / "log"
    actions = ("drain", "wait", "return", "fail")
    hook = {"ansible.builtin.command": {"argv": ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {{word}} >> {log}"]}}
    for word in ("stop-dcgm", "start-dcgm"):
        task = {
            "name": "Log the hook",
            "delegate_to": "localhost",
            **json.loads(json.dumps(hook).replace("{word}", word)),
        }
        (directory / f"{word}.yml").write_text(json.dumps([task]))
    # Before the change, or in the middle of it, the host is not there any more.
    gone = unreachable(directory, "connect: No route to host")
    for file, name in (("lose", "dead"), ("lose_later", "dying")):
        task = {"name": "Lose the host", "ansible.builtin.set_fact": gone, "when": f"inventory_hostname == '{name}'"}
        (directory / f"{file}.yml").write_text(json.dumps([task]))
    fail = {"ansible.builtin.fail": {"msg": "no disk"}, "when": "inventory_hostname == 'broken'"}
    (directory / "break.yml").write_text(json.dumps([{"name": "Break the change", **fail}]))
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(directory / "states"),
        "gpu_fleet_upgrade_scheduler": "commands",
        "gpu_fleet_upgrade_commands": {
            action: ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {action} >> {log}"] for action in actions
        },
        "gpu_fleet_upgrade_hooks": {
            "before_change": [str(directory / f"{name}.yml") for name in ("stop-dcgm", "lose", "break")],
            "after_change": [str(directory / "start-dcgm.yml")],
        },
        "gpu_state_hooks_before": [str(directory / "lose_later.yml")],
        "__upgrade_connection_timeout": 1,
        **given,
    }
    run = directory / f"run{len(list(directory.glob('run*')))}"
    run.mkdir()
    return run_site(
        run,
        {name: (found, variables) for name, found in hosts.items()},
        *arguments,
        playbook=ROOT / "playbooks" / "upgrade.yml",
        env={"PATH": f"{directory}:{os.environ['PATH']}"},
    )


def steps(directory: Path) -> dict[str, str]:
    """The recorded step of each host."""
    return {
        path.stem: json.loads(path.read_text())["step"] for path in sorted((directory / "states" / "hosts").iterdir())
    }


def test_the_prediction_drains_nothing(tmp_path: Path) -> None:
    done = upgrade(tmp_path, {"idle": host(False), "due": host(True)}, "--check")
    assert done.rc == 0, done.output
    assert done.modules == {"idle": OBSERVATION, "due": OBSERVATION}
    assert "batch 1 (canaries), 1 host:" in done.output and "nothing to do on 1: idle" in done.output
    assert not (tmp_path / "log").exists() and not list((tmp_path / "states" / "hosts").iterdir())
    written = tmp_path / "states" / "check.json"
    assert json.loads(written.read_text())["batches"] == [["due"]]
    assert written.stat().st_mode & 0o777 == 0o600


def test_a_failure_stops_the_run_which_continues_after_the_repair(tmp_path: Path) -> None:
    hosts = {name: host(name != "idle") for name in ("canary", "idle", "broken", "dead", "dying", "last")}
    done = upgrade(tmp_path, hosts, gpu_fleet_upgrade_batch=3)
    assert done.rc != 0
    assert done.modules["idle"] == OBSERVATION == done.modules["last"], done.output
    assert steps(tmp_path) == {"canary": "in_service", **dict.fromkeys(("broken", "dead", "dying"), "failed")}
    log = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    actions = {name: [action for host_name, action in log if host_name == name] for name in hosts}
    assert actions == {
        "canary": ["drain", "wait", "stop-dcgm", "start-dcgm", "return"],
        # What was stopped is started again also where the change has failed.
        "broken": ["drain", "wait", "stop-dcgm", "start-dcgm", "fail"],
        "dead": ["drain", "wait", "stop-dcgm", "start-dcgm", "fail"],
        "dying": ["drain", "wait", "stop-dcgm", "fail"],
        "idle": [],
        "last": [],
    }
    assert "broken has failed and stays drained: Break the change: no disk" in done.output
    assert "dying is failed: the host could not be reached after it was drained" in done.output
    assert "dead is failed: Wait until the host can be reached: timed out waiting for ping" in done.output
    assert "3 failed, and gpu_fleet_upgrade_max_failures is 0; repair them" in done.output
    run = json.loads((tmp_path / "states" / "plan.json").read_text())["run"]

    hosts["canary"] = host(False)
    done = upgrade(tmp_path, hosts, gpu_fleet_upgrade_batch=4, gpu_fleet_upgrade_retry_failed=True, **NOBODY_DIES)
    assert done.rc == 0, done.output
    assert steps(tmp_path) == dict.fromkeys(("canary", "broken", "dead", "dying", "last"), "in_service")
    plan = json.loads((tmp_path / "states" / "plan.json").read_text())
    assert (plan["run"], plan["batches"]) == (run, [["broken", "dead", "dying", "last"]])
    assert done.modules["canary"] == OBSERVATION


NOBODY_DIES: Mapping[str, Any] = {"gpu_fleet_upgrade_hooks": {}, "gpu_state_hooks_before": []}


def test_a_busy_host_is_returned_to_service_and_left_for_another_run(tmp_path: Path) -> None:
    commands = {"drain": ["true"], "wait": ["false"], "return": ["touch", str(tmp_path / "returned")]}
    done = upgrade(
        tmp_path,
        {"node": host(True)},
        gpu_fleet_upgrade_on_busy="skip",
        gpu_fleet_upgrade_idle_timeout_s=0,
        **{**NOBODY_DIES, "gpu_fleet_upgrade_commands": commands},
    )
    assert done.rc == 0, done.output
    assert steps(tmp_path) == {"node": "planned"}
    assert "node is planned: not idle after 0 s (gpu_fleet_upgrade_idle_timeout_s)" in done.output
    assert (tmp_path / "returned").exists() and done.modules["node"] == OBSERVATION


def test_a_node_of_slurm_stays_drained_by_its_reason_until_it_is_healthy(tmp_path: Path) -> None:
    slurm = mock_slurm(tmp_path)
    edit(slurm, jobs="4711|RUNNING|ann|train\n")
    settings = {
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_idle_timeout_s": 0,
        **NOBODY_DIES,
    }
    done = upgrade(tmp_path, {"gpu1": host(True, LOST)}, gpu_fleet_upgrade_on_busy="force", **settings)
    # The verdict before the change, and the evidence of the fault that it finds.
    assert done.modules["gpu1"][len(OBSERVATION) :][:3] == ["ping", "gpu_health", "gpu_health"]
    assert "scancel 4711" in (tmp_path / "log").read_text()
    run = json.loads((tmp_path / "states" / "plan.json").read_text())["run"]
    node = json.loads(slurm.read_text())
    assert node["state"] == "IDLE+DRAIN"
    assert node["reason"].startswith(f"gpu.fleet {run}: Refuse a host that is not healthy: fail, remedy reboot: GPU 0")
    done = upgrade(tmp_path, {"gpu1": host(True)}, gpu_fleet_upgrade_retry_failed=True, **settings)
    assert done.rc == 0, done.output
    assert json.loads(slurm.read_text())["state"] == "IDLE"
