# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks on mock hosts with the ansible-core releases that have the templating before 2.19."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.checks.controllers import Controller, controllers
from tests.checks.tools import ROOT
from tests.unit.site import mock_host
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, SiteRun
from tests.unit.upgrade.test_upgrade_playbook import host as upgraded

OLDER = [each for each in controllers() if each.settings]
CALLBACKS = "gpu.fleet.fleet_table,gpu.fleet.progress,gpu.fleet.run_result"
Run = Callable[..., SiteRun]


@pytest.fixture(params=OLDER, ids=lambda controller: f"core-{controller.core}")
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a playbook on mock hosts with an older ansible-core."""
    controller: Controller = request.param
    program = controller.ensure() / "ansible-playbook"

    def ansible_playbook(*arguments: str | Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], env=env, capture_output=True, text=True, check=False)

    monkeypatch.setattr(mock_host, "ansible_playbook", ansible_playbook)

    def run_site(hosts: Mapping[str, tuple[MockHost, Mapping[str, Any]]], *arguments: str, **options: Any) -> SiteRun:
        env = {"ANSIBLE_CALLBACKS_ENABLED": CALLBACKS, **controller.settings, **options.pop("env", {})}
        return mock_host.run_site(tmp_path, hosts, *arguments, env=env, **options)

    return run_site


def test_the_site_has_work_or_none(run: Run, tmp_path: Path) -> None:
    host = converged(WITHOUT_CONTAINER)
    changed = {"gpu_state": {**host.results["gpu_state"], "changed": True}, "nvidia_smi_facts": {"changed": False}}
    drift = [{"kind": "file", "name": "/etc/example", "message": "/etc/example was changed"}]
    records = {**host.records, "nvidia_driver": {**host.records["nvidia_driver"], "drift": drift}}
    given = {**WITHOUT_CONTAINER, "gpu_fleet_result_file": str(tmp_path / "run.json")}
    hosts = {
        "done": (host, given),
        "due": (replace(host, results={**host.results, **changed}), {**given, "gpu_fleet_roles": ["gpu_state"]}),
        "driver": (replace(host, records=records), {**given, "gpu_fleet_roles": ["nvidia_driver"]}),
        "late": (MockHost(), {**given, "docker_version": "latest"}),
    }
    done = run(hosts)
    assert done.modules["done"] == ["host_facts", "gpu_health"], done.output
    assert "gpu_state" in done.modules["due"] and "failed=0" in done.recap("due"), done.output
    # Its first module with work has no result on this host.
    assert "the mock host has no result of" in done.failure("driver"), done.output
    assert done.failure("late").startswith("late: docker_version is latest; it has to be a version such as 28.5.1")
    result = json.loads((tmp_path / "run.json").read_text())["hosts"]
    assert {name: one["status"] for name, one in result.items()} == {
        "done": "ok",
        "due": "ok",
        "driver": "failed",
        "late": "failed",
    }
    assert "\ndone    2 x NVIDIA H200" in done.output


@pytest.mark.parametrize("playbook", ["health", "upgrade"])
def test_other_playbooks_run(run: Run, tmp_path: Path, playbook: str) -> None:
    given = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
    }
    hosts = {"due": (upgraded(True), given), "done": (upgraded(False), given)}
    done = run(hosts, "--check", playbook=ROOT / "playbooks" / f"{playbook}.yml")
    assert done.rc == 0, done.output
    if playbook == "upgrade":
        assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [["due"]]
    else:
        assert done.modules["done"].count("gpu_health") == 1


def test_values_keep_their_types(run: Run, tmp_path: Path) -> None:
    """With jinja2_native, an old core would make a number of a version."""
    names = ["docker_version", "gpu_state_ecc", "gpu_state_power_limit", "docker_users"]
    facts = {"gpu.fleet.host_facts": {"roles": [], "variables": names}, "register": "found"}
    copy = {name: f"{{{{ found.variables.{name} }}}}" for name in names}
    that = [
        "copy.docker_version == '28.10'",
        "copy.gpu_state_ecc is none",
        "copy.gpu_state_power_limit == 65",
        "copy.docker_users == ['1.10']",
    ]
    tasks = [facts, {"ansible.builtin.assert": {"that": that}, "vars": {"copy": copy}}]
    playbook = tmp_path / "playbook.json"
    playbook.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    given = {
        "site_version": "28.10",
        "site_users": ["1.10"],
        "docker_version": "{{ site_version }}",
        "docker_users": "{{ site_users }}",
        "gpu_state_ecc": "{{ none }}",
        "gpu_state_power_limit": "{{ 60 + 5 }}",
    }
    done = run({"node1": (MockHost(), given)}, playbook=playbook)
    assert done.rc == 0, done.output


def test_without_the_setting_nothing_is_begun(run: Run) -> None:
    host = converged(WITHOUT_CONTAINER)
    done = run({"node1": (host, WITHOUT_CONTAINER)}, env={"ANSIBLE_JINJA2_NATIVE": "false"})
    assert done.modules == {"node1": []}
    assert "set jinja2_native = true in the section [defaults] of ansible.cfg, or ANSIBLE_JINJA2_NATIVE" in done.output
