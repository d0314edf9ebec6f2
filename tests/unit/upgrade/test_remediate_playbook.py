# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/remediate.yml on mock hosts: what is done for which verdict, what returns, and what is never done twice."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.unit.site.converged import CUDA, NVIDIA_SMI, PACKAGES, STATE
from tests.unit.site.mock_host import MockHost, SiteRun, run_site
from tests.unit.slurm.mock_slurm import mock_slurm
from tests.unit.upgrade.test_upgrade_fleet import KILL

pytestmark = pytest.mark.plays

HEALTHY: Mapping[str, Any] = {"changed": False, "verdict": "ok", "remedy": "none", "findings": [], "gpus": []}


def sick(remedy: str, row: str = "xid", gpu: str | None = "GPU-1", verdict: str = "fail") -> dict[str, Any]:
    """A result of gpu_health with one finding."""
    finding = {"row": row, "gpu": gpu, "verdict": verdict, "remedy": remedy, "message": f"GPU 1: {row}"}
    gpus = [{"uuid": gpu, "serial": "1650", "pci_bus_id": "00000000:18:00.0", "index": 1, "name": "H200"}]
    return {**HEALTHY, "verdict": verdict, "remedy": remedy, "findings": [finding], "gpus": gpus}


def host(*healths: Mapping[str, Any], **results: Any) -> MockHost:
    """A host with the results of gpu_health one after the other; evidence is one of the calls."""
    state = {**STATE, "changed": False, "gpus_changed": False}
    defaults: dict[str, Any] = {
        "gpu_health": list(healths),
        "gpu_state": state,
        "nvidia_smi_facts": {"changed": False, "ansible_facts": {"nvidia_smi": NVIDIA_SMI}},
        "gpu_reset": {"changed": True},
        "systemd_service": {"changed": True},
    }
    return MockHost(nvidia_smi=NVIDIA_SMI, cuda=CUDA, packages=PACKAGES, results={**defaults, **results})


class Site:
    """A controller with its directory, and a scheduler that writes a log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.runs = 0

    def run(self, hosts: Mapping[str, MockHost], *arguments: str, **given: Any) -> SiteRun:
        """Run the playbook."""
        actions = ("drain", "wait", "return", "fail")
        variables = {
            "gpu_fleet_roles": ["gpu_state"],
            "gpu_fleet_remediate_directory": str(self.directory / "states"),
            "gpu_fleet_remediate_stop_at": "100%",
            "gpu_fleet_upgrade_max_unavailable": "100%",
            "gpu_fleet_upgrade_scheduler": "commands",
            "gpu_fleet_upgrade_commands": {
                action: ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {action} >> {self.log}"] for action in actions
            },
            "gpu_fleet_evidence": "never",
            "__upgrade_connection_timeout": 1,
            "__remediate_power_delay": 0,
            **given,
        }
        run = self.directory / f"run{self.runs}"
        run.mkdir()
        self.runs += 1
        return run_site(
            run,
            {name: (found, variables) for name, found in hosts.items()},
            *arguments,
            playbook=ROOT / "playbooks" / "remediate.yml",
            env={
                "PATH": f"{self.directory}:{os.environ['PATH']}",
                "GPU_FLEET_MOCK_LOG": "/dev/null" if len(hosts) > 1 else str(run / "calls"),
            },
        )

    def file(self, place: str, name: str) -> Any:
        """A document of the directory."""
        return json.loads((self.directory / "states" / place / f"{name}.json").read_text())

    def step(self, name: str) -> str:
        """The recorded step of a host."""
        return str(self.file("hosts", name)["step"])

    def calls(self, module: str) -> list[dict[str, Any]]:
        """The arguments of a module in the last run."""
        lines = (self.directory / f"run{self.runs - 1}" / "calls").read_text().splitlines()
        return [json.loads(line.split("\t")[1]) for line in lines if line.startswith(f"{module}\t")]

    def actions(self) -> list[str]:
        """What the scheduler was asked for."""
        return [line.split()[1] for line in self.log.read_text().splitlines()] if self.log.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A controller."""
    return Site(tmp_path)


def test_check_mode_shows_the_plan_and_touches_nothing(site: Site) -> None:
    hosts = {
        "sick": host(sick("reset_gpu")),
        "broken": host(sick("service")),
        "well": host(HEALTHY),
        "unread": host({**HEALTHY, "verdict": "unknown"}),
    }
    # The log of calls is not read: a host has one result.
    hosts = {
        name: MockHost(results={**one.results, "gpu_health": one.results["gpu_health"][0]})
        for name, one in hosts.items()
    }
    done = site.run(hosts, "--check")
    assert done.rc == 0, done.output
    assert "sick: reset_gpu: GPU 1: xid" in done.output and "broken: for a person: service: GPU 1: xid" in done.output
    assert "unread is not touched: its verdict is unknown, which is never remedied" in done.output
    assert {module for modules in done.modules.values() for module in modules} == {"gpu_health"}
    assert site.actions() == [] and not list((site.directory / "states" / "hosts").iterdir())


@pytest.mark.parametrize(
    ("remedy", "module", "arguments"),
    [
        ("reset_gpu", "gpu_reset", {"gpus": ["GPU-1"], "fabric": False}),
        ("reset_fabric", "gpu_reset", {"fabric": True}),
        ("restart_fabric_manager", "systemd_service", {"name": "nvidia-fabricmanager.service", "state": "restarted"}),
        ("restart_imex", "systemd_service", {"name": "nvidia-imex.service", "state": "restarted"}),
        ("configure", "gpu_state", {}),
        ("update_software", "gpu_state", {}),
    ],
)
def test_a_remedy_that_helps_returns_the_host(site: Site, remedy: str, module: str, arguments: dict[str, Any]) -> None:
    found = sick(remedy)
    changed = {**STATE, "changed": True, "gpus_changed": True}
    done = site.run(
        {"node": host(found, found, HEALTHY, gpu_state=changed)},
        gpu_state_persistence_mode=True,
        gpu_fleet_remediate_tests=["dcgm_1"],
        nvidia_driver_version="580.95.05",
    )
    assert done.rc == 0, done.output
    assert site.step("node") == "in_service"
    (attempt,) = site.file("remedies", "node")["attempts"]
    assert (attempt["remedy"], attempt["outcome"], attempt["gpus"]) == (remedy, "helped", ["GPU-1"])
    assert any(arguments.items() <= call.items() for call in site.calls(module))
    # Else the verdict of before would have the scheduler drain it again.
    assert site.calls("systemd_service")[-1]["name"] == "gpu-fleet-health.service"
    assert [call["tests"] for call in site.calls("gpu_health")] == [[], [], ["dcgm_1"]]
    assert site.actions() == ["drain", "wait", "wait", "return"]


def test_a_remedy_that_does_not_help_is_followed_by_a_stronger_one_and_then_by_a_person(site: Site) -> None:
    found = sick("reset_gpu")
    commands = {
        "power_cycle": ["touch", str(site.directory / "cycled")],
        "ticket": ["cp", "{{ remediate_case }}", str(site.directory)],
    }
    reset = {"node": host(found, found, found)}
    done = site.run(reset, gpu_fleet_remediate_commands=commands)
    assert done.rc != 0 and site.step("node") == "failed", done.output
    assert "node has failed and stays drained: Refuse a host that is not known to be healthy: GPU 1: xid" in done.output
    # The next one: the verdict is worse by now. The boot is another one.
    found = sick("power_cycle")
    boots = [{"content": "MQ==", "encoding": "base64"}, {"content": "Mg==", "encoding": "base64"}]
    done = site.run({"node": host(found, found, found, slurp=boots)}, gpu_fleet_remediate_commands=commands)
    assert done.rc != 0 and site.step("node") == "failed", done.output
    assert [one["remedy"] for one in site.file("remedies", "node")["attempts"]] == ["reset_gpu", "power_cycle"]
    assert (site.directory / "cycled").exists() and not (site.directory / "node.json").exists()
    # Then a person, once.
    done = site.run({"node": host(found, found)}, gpu_fleet_remediate_commands=commands)
    assert done.rc != 0, done.output
    case = json.loads((site.directory / "node.json").read_text())
    assert (case["remedy"], case["gpus"][0]["serial"]) == ("inspect", "1650")
    assert len(case["attempts"]) == 2 and "did not keep it healthy" in case["reason"]
    (site.directory / "node.json").unlink()
    before = site.actions()
    done = site.run({"node": host(found)}, gpu_fleet_remediate_commands=commands)
    assert done.rc != 0 and not (site.directory / "node.json").exists() and site.actions() == before
    # The GPU was replaced, and the site wants the host back.
    done = site.run({"node": host(HEALTHY, HEALTHY)}, gpu_fleet_remediate_retry_failed=True)
    assert done.rc == 0 and site.step("node") == "in_service", done.output
    assert site.actions()[-1] == "return"


def test_a_host_for_a_person_is_drained_and_not_waited_for(site: Site) -> None:
    done = site.run({"node": host(sick("service"))})
    assert done.rc != 0 and site.step("node") == "failed", done.output
    assert site.actions() == ["drain", "fail"]
    assert site.file("cases", "node")["findings"][0]["row"] == "xid"
    assert (site.directory / "states" / "cases" / "node.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("version", ["", "latest"])
def test_software_is_not_updated_where_no_version_is_declared(site: Site, version: str) -> None:
    found = sick("update_software")
    done = site.run({"node": host(found)}, gpu_state_persistence_mode=True, nvidia_driver_version=version)
    assert done.rc != 0 and site.step("node") == "failed" and site.actions() == ["drain", "fail"], done.output
    assert "update_software: nvidia_driver_version declares no version" in site.file("hosts", "node")["reason"]
    assert site.calls("gpu_state") == []


def test_a_reboot_that_fails_leaves_the_host_drained_and_is_not_repeated(site: Site) -> None:
    """Ansible reboots nothing over the connection of these hosts; tests/system/test_remediate.py has real reboots."""
    found = sick("reboot")
    done = site.run({"node": host(found, found)})
    assert done.rc != 0 and site.step("node") == "failed", done.output
    reason = site.file("hosts", "node")["reason"]
    assert "Reboot the host" in reason and "local connection" in reason
    assert [(one["remedy"], one["outcome"]) for one in site.file("remedies", "node")["attempts"]] == [
        ("reboot", "failed")
    ]
    done = site.run({"node": host(found)})
    assert done.rc != 0 and "power_cycle" in site.file("hosts", "node")["reason"], done.output
    assert len(site.file("remedies", "node")["attempts"]) == 1 and site.actions().count("return") == 0


def test_a_host_that_pulls_states_that_its_remedy_waits_for_a_controller(site: Site) -> None:
    done = site.run({"node": host(sick("reset_gpu"))}, "--extra-vars=__pull_is_run=true")
    assert done.rc == 0 and "node is not touched: it waits for a controller" in done.output, done.output
    assert site.actions() == [] and site.calls("gpu_reset") == []


def test_a_gpu_in_use_is_not_reset_and_the_host_stays_drained(site: Site) -> None:
    found = sick("reset_gpu")
    reset = {"failed": True, "msg": "not reset, since it is in use: GPU 1: python3 (PID 4711) holds /dev/nvidia1"}
    done = site.run({"node": host(found, found, gpu_reset=reset)})
    assert done.rc != 0 and site.step("node") == "failed", done.output
    assert "python3 (PID 4711) holds /dev/nvidia1" in site.file("hosts", "node")["reason"]
    assert site.file("remedies", "node")["attempts"][0]["outcome"] == "failed"


@pytest.mark.parametrize(("later", "step"), [(HEALTHY, "in_service"), ({**HEALTHY, "verdict": "unknown"}, "failed")])
def test_a_verdict_that_has_changed_while_jobs_ended_is_not_remedied(site: Site, later: Any, step: str) -> None:
    site.run({"node": host(sick("reset_gpu"), later, later)})
    assert site.step("node") == step and site.calls("gpu_reset") == []


@pytest.mark.parametrize("verdict", ["fail", "warn"])
def test_a_busy_host_with_a_failure_is_not_returned(site: Site, verdict: str) -> None:
    commands = {"drain": ["true"], "wait": ["false"], "return": ["touch", str(site.directory / "returned")]}
    site.run(
        {"node": host(sick("drain_and_reset", verdict=verdict))},
        gpu_fleet_upgrade_commands=commands,
        gpu_fleet_upgrade_on_busy="skip",
        gpu_fleet_upgrade_idle_timeout_s=0,
        gpu_fleet_remediate_on=["fail", "warn"],
    )
    assert (site.directory / "returned").exists() == (verdict == "warn")
    assert site.step("node") == ("failed" if verdict == "fail" else "planned")


def test_a_common_cause_touches_nothing(site: Site) -> None:
    one = sick("reboot", "driver_version")
    hosts = {f"n{i}": MockHost(results={"gpu_health": one}) for i in range(3)}
    done = site.run(hosts, gpu_fleet_remediate_stop_at="5%")
    assert done.rc != 0 and "3 of 3 hosts" in done.output and "the cause is common" in done.output
    assert site.actions() == []


def kill(site: Site, where: str) -> dict[str, Any]:
    """Variables with which the controller is killed once, in a hook."""
    (site.directory / "kill.py").write_text(KILL)
    program = [sys.executable, str(site.directory / "kill.py"), str(site.directory / "killed")]
    task = {"name": "Kill", "ansible.builtin.command": {"argv": program}, "delegate_to": "localhost"}
    (site.directory / "kill.yml").write_text(json.dumps([task]))
    return {"gpu_fleet_upgrade_hooks": {where: [str(site.directory / "kill.yml")]}}


@pytest.mark.parametrize(
    ("where", "resets"),
    [("before_drain", 1), ("before_change", 1), ("after_change", 0), ("before_health", 0), ("before_return", 0)],
)
def test_a_killed_run_goes_on_and_repeats_no_remedy(site: Site, where: str, resets: int) -> None:
    given = kill(site, where)
    found = sick("reset_gpu")
    done = site.run({"node": host(found, found, HEALTHY)}, **given)
    assert done.rc != 0 and (site.directory / "killed").exists(), done.output
    run = json.loads((site.directory / "states" / "plan.json").read_text())["run"]
    after = [found, found, HEALTHY] if resets else [HEALTHY if where == "before_return" else found, HEALTHY]
    done = site.run({"node": host(*after)}, **given)
    assert done.rc == 0 and site.step("node") == "in_service", done.output
    assert len(site.calls("gpu_reset")) == resets
    assert json.loads((site.directory / "states" / "plan.json").read_text())["run"] == run
    assert [one["outcome"] for one in site.file("remedies", "node")["attempts"]] == ["helped"]


@pytest.mark.parametrize(("where", "resets"), [("before_change", 0), ("before_return", 1)])
def test_a_lost_slurmctld_leaves_the_host_drained_and_a_second_run_goes_on(site: Site, where: str, resets: int) -> None:
    """From a hook on slurmctld does not reply, before the remedy or after it."""
    slurm = mock_slurm(site.directory)
    lost = "slurm_load_node error: Unable to contact slurm controller (connect failure)"
    (site.directory / "down").write_text(f"#!/bin/sh\necho '{lost}' >&2\nexit 1\n")
    (site.directory / "down").chmod(0o755)
    script = f"cd {site.directory} && for name in scontrol squeue; do mv $name $name.up && cp down $name; done"
    task = {"name": "Lose", "ansible.builtin.command": {"argv": ["sh", "-c", script]}, "delegate_to": "localhost"}
    (site.directory / "lose.yml").write_text(json.dumps([task]))
    given = {
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_slurm_node": "gpu1",
        "__upgrade_slurm_delay": 0,
    }
    hooks = {"gpu_fleet_upgrade_hooks": {where: [str(site.directory / "lose.yml")]}}
    found = sick("reset_gpu")
    done = site.run({"gpu1": host(found, found, HEALTHY)}, **given, **hooks)
    assert done.rc != 0 and site.step("gpu1") == "failed" and len(site.calls("gpu_reset")) == resets, done.output
    assert lost in site.file("hosts", "gpu1")["reason"]
    assert f"gpu1: the scheduler was not given the reason: gpu1: scontrol show: {lost}" in done.output
    state = json.loads(slurm.read_text())
    assert state["state"] == "IDLE+DRAIN" and state["reason"].startswith("gpu.fleet.remedy "), state

    for name in ("scontrol", "squeue"):
        (site.directory / f"{name}.up").rename(site.directory / name)
    if resets:
        done = site.run({"gpu1": host(HEALTHY)}, **given)
        assert "it stays drained until gpu_fleet_remediate_retry_failed returns it" in done.output
        now = json.loads(slurm.read_text())
        assert (now["state"], now["reason"]) == (state["state"], state["reason"])
        given["gpu_fleet_remediate_retry_failed"] = True
    done = site.run({"gpu1": host(*([HEALTHY, HEALTHY] if resets else [found, found, HEALTHY]))}, **given)
    assert done.rc == 0 and site.step("gpu1") == "in_service", done.output
    assert len(site.calls("gpu_reset")) == 1 - resets and json.loads(slurm.read_text())["state"] == "IDLE"
