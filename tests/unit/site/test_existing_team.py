# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""existing_team/, the repository of a team before it takes this collection, with Ansible's own settings.

Facts become variables there, and its roles read them by their old names. One of its roles has variables with the names
of ours. It then runs our playbooks and roles, in one run with its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._injected_facts import WARNING

from tests.checks.controllers import Controller, controllers
from tests.conftest import ROOT
from tests.unit.site.converged import STATE, converged
from tests.unit.site.mock_host import MockHost, SiteRun, mock_variables

pytestmark = pytest.mark.plays
TEAM = Path(__file__).with_name("existing_team")
GIVEN = yaml.safe_load((TEAM / "group_vars" / "all.yml").read_text())
# What set_fact of the team's role gives: it precedes the inventory.
USERS = ["ops", GIVEN["site"]]
# The environment's ansible-core, and the oldest and the newest that a Python of this machine runs.
CONTROLLERS = controllers()


def host(**state: Any) -> MockHost:
    """A host on which all is as declared, but for the state of the GPUs."""
    found = converged({**GIVEN, "docker_users": USERS})
    done = {"changed": False, "rc": 0, "stdout": "", "stderr": "", "stat": {"exists": False}}
    getent = {"changed": False, "ansible_facts": {"getent_group": {"docker": ["x", "999", ",".join(USERS)]}}}
    others = {
        **dict.fromkeys(("apt", "copy", "file", "stat", "user", "service", "systemd", "nvidia_smi_facts"), done),
        "getent": getent,
        "gpu_state": {**STATE, **state},
        "gpu_state in check mode": {**STATE, **state},
        "managed_facts": {"ansible_facts": {"gpu_fleet_managed": found.records}},
        "nvidia_smi_facts": {"changed": False, "ansible_facts": {"nvidia_smi": found.nvidia_smi}},
        "managed_record": done,
    }
    system = {**found.system, "ansible_pkg_mgr": "apt", "ansible_service_mgr": "systemd"}
    return replace(found, system=system, results={**found.results, **others})


def run(
    directory: Path, controller: Controller, playbook: str, hosts: Mapping[str, MockHost], *arguments: str
) -> SiteRun:
    """Run a playbook of a copy of the repository, with no setting but the one that an old ansible-core needs."""
    shutil.copytree(TEAM, directory)
    (directory / "mocks").mkdir()
    mocks = {name: mock_variables(directory / "mocks" / name, one) for name, one in hosts.items()}
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": mocks}}))
    done = subprocess.run(
        [controller.ensure() / "ansible-playbook", "-i", "hosts.json", f"{playbook}.yml", *arguments],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory / "home"),
            "ANSIBLE_LOCAL_TEMP": str(directory / "home" / "tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "true",
            **controller.settings,
        },
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    logs = {name: directory / "mocks" / name / "modules" for name in hosts}
    modules = {name: log.read_text().split() if log.exists() else [] for name, log in logs.items()}
    return SiteRun(done.returncode, done.stdout + done.stderr, modules)


@pytest.fixture(params=CONTROLLERS, ids=lambda controller: f"core-{controller.core}", name="controller")
def _controller(request: pytest.FixtureRequest) -> Controller:
    each: Controller = request.param
    return each


def test_its_run_brings_hosts_to_containers_and_then_changes_nothing(controller: Controller, tmp_path: Path) -> None:
    first = run(tmp_path / "first", controller, "site", {"node": host(changed=True, gpus_changed=True)})
    assert first.rc == 0, first.output[-5000:]
    assert "gpu_state" in first.modules["node"] and "changed=0" not in first.recap("node")
    second = run(tmp_path / "second", controller, "site", {"node": host()})
    assert second.rc == 0, second.output[-5000:]
    assert "changed=0" in second.recap("node") and "gpu_state" not in second.modules["node"], second.output[-5000:]
    assert second.output.count(WARNING[:60]) == 1


def test_the_upgrade_asks_for_consent(controller: Controller, tmp_path: Path) -> None:
    hosts = {"node": host(changed=True, gpus_changed=True)}
    refused = run(tmp_path / "refused", controller, "upgrade", hosts, "--check")
    assert "this playbook runs commands of the site on the controller" in refused.failure("node")
    arguments = ("--check", "-e", "gpu_fleet_accept_injected_facts=true")
    accepted = run(tmp_path / "accepted", controller, "upgrade", hosts, *arguments)
    assert accepted.rc == 0, accepted.output[-5000:]
    assert "failed=0" in accepted.recap("node") and "gpu_state" not in accepted.modules["node"]


def test_set_fact_of_another_role_is_no_lie_unless_it_is_kept_with_the_facts(
    controller: Controller, tmp_path: Path
) -> None:
    """The runs above have it without `cacheable`, with which Ansible takes it for a fact of the host."""
    done = run(tmp_path / "run", controller, "site", {"node": host()}, "-e", '{"baseline_caches": true}')
    assert "facts of this host are named docker_users, as variables of gpu.fleet are called" in done.failure("node")
