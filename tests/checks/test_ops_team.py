# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""examples/ops-team, run as its README states: from the built and installed archive, with simulated hosts.

Its molecule scenario runs in tests/system/test_ops_team.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import (
    check_forms,
    requested_roles,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import variables_of

from tests import ops_team
from tests.checks.tools import ROOT, VENV, check, environment
from tests.ops_team import EXAMPLE
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.site.converged import converged
from tests.unit.site.known import check as before_change
from tests.unit.site.known import known
from tests.unit.site.mock_host import NO_GPU, MockHost, mock_variables

FILES = RoleData.read()
# A policy about this machine, on which the simulated hosts are.
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


class Project(NamedTuple):
    """A copy of the example with the installed archive."""

    directory: Path
    vault: Path

    def run(self, *argv: str | Path, **more: str) -> str:
        """Run one of Ansible's commands in it; its ansible.cfg names inventory and collections."""
        kept = {name: value for name, value in environment().items() if name != "ANSIBLE_COLLECTIONS_PATH"}
        env = {**kept, "ANSIBLE_VAULT_PASSWORD_FILE": str(self.vault), **more}
        return check([VENV / "bin" / argv[0], *argv[1:]], cwd=self.directory, env=env)

    def inventory(self, variables: Mapping[str, Mapping[str, Any]]) -> Path:
        """A further inventory with variables of hosts."""
        path = self.directory / "simulated.json"
        path.write_text(json.dumps({"all": {"hosts": variables}}))
        return path

    def result(self) -> dict[str, Any]:
        """The hosts in the result of the last run."""
        hosts: dict[str, Any] = json.loads((self.directory / "reports" / "run.json").read_text())["hosts"]
        return hosts


@pytest.fixture(scope="module", name="project")
def _project(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    directory = tmp_path_factory.mktemp("team") / "ops-team"
    ops_team.install(archive, directory)
    vault = directory.parent / "vault-password"
    (password,) = re.findall(r"example's vault is `(.+)`", (EXAMPLE / "README.md").read_text())
    vault.write_text(password)
    return Project(directory, vault)


@pytest.fixture(scope="module", name="variables")
def _variables(project: Project) -> Mapping[str, Mapping[str, Any]]:
    """Of each host, decrypted."""
    listed = project.run("ansible-inventory", "--list", "--export")
    groups = json.loads(listed)
    hosts = groups["_meta"]["hostvars"]
    of_all = {**groups["gpu"]["vars"]}
    return {
        name: {**of_all, **groups[group]["vars"], **hosts[name]}
        for group in ("dgx", "slurm", "kubernetes")
        for name in groups[group]["hosts"]
    }


def _converged(given: Mapping[str, Any], **more: Any) -> MockHost:
    """A host after a run with these variables, whose registry password has not changed either."""
    host = replace(converged(given), **more)
    managed = {"ansible_facts": {"gpu_fleet_managed": host.records}}
    return replace(host, results={**host.results, "managed_facts": managed})


def test_no_variable_of_any_host_is_refused(variables: Mapping[str, Mapping[str, Any]]) -> None:
    for name, given in variables.items():
        roles, refusal = requested_roles(given["gpu_fleet_roles"])
        gpus = given.get("gpu_fleet_expected_gpus", 0 if name == "login1" else 2)
        host = known(packages={"containerd": [{"version": "2.0"}]}, gpu_count=gpus)
        values = {**FILES.defaults(variables_of(roles)), **given}
        refusals = (*check_forms(roles, given, FILES.tables), *before_change(roles, values, host).refusals)
        assert (name, refusal, refusals) == (name, "", ())


def test_site_in_check_mode_on_hosts_with_nothing_to_do(
    project: Project, variables: Mapping[str, Mapping[str, Any]], tmp_path: Path
) -> None:
    # The mock hosts have two GPUs and no container.
    here = {"gpu_fleet_expected_gpus": 2, "gpu_health_container_image": ""}
    dgx, slurm = (_converged({**variables[name], **here}) for name in ("dgx1", "l40s-1"))
    without_gpu = {name: record for name, record in slurm.records.items() if name in ("cuda", "docker")}
    repository = {
        "nvidia_repository.cuda": {**slurm.records["nvidia_repository.cuda"], "data": {"needed_by": ["cuda"]}}
    }
    login = replace(slurm, nvidia_smi=NO_GPU, records={**without_gpu, **repository})
    hosts = {
        "dgx1": (dgx, here),
        "l40s-1": (slurm, here),
        "login1": (login, {**here, "gpu_fleet_expected_gpus": 0}),
    }
    mocks = {name: {**mock_variables(tmp_path / name, host), **given} for name, (host, given) in hosts.items()}
    limit = f"--limit={','.join(hosts)}"
    project.run("ansible-playbook", "site.yml", "--check", limit, "-i", "inventory", "-i", project.inventory(mocks))
    assert {name: (host["status"], host["changed"]) for name, host in project.result().items()} == dict.fromkeys(
        hosts, ("ok", False)
    )


def test_single_roles_in_check_mode(
    project: Project, variables: Mapping[str, Mapping[str, Any]], tmp_path: Path
) -> None:
    mocks = {"dgx1": mock_variables(tmp_path / "dgx1", _converged(variables["dgx1"]))}
    inventory = project.inventory(mocks)
    project.run("ansible-playbook", "engines.yml", "--check", "--limit=dgx1", "-i", "inventory", "-i", inventory)
    assert project.result()["dgx1"]["status"] == "ok"


def test_modules_against_the_simulated_nvidia_smi(project: Project, tmp_path: Path) -> None:
    Host(tmp_path, gpus=[{"model": "h200", "count": 8}])
    executable(tmp_path)
    (tmp_path / "kernel.log").write_text("Linux version 6.8.0\n")
    local = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
        "gpu_health_kernel_log": str(tmp_path / "kernel.log"),
        "gpu_health_history": str(tmp_path / "history"),
        "gpu_health_policy": [{"id": name, "verdict": "ok"} for name in OF_THIS_MACHINE],
    }
    inventory = project.inventory({"dgx1": local})
    path = f"{tmp_path}:{environment()['PATH']}"
    project.run(
        "ansible-playbook", "power.yml", "--check", "--limit", "dgx1", "-i", "inventory", "-i", inventory, PATH=path
    )
    host = project.result()["dgx1"]
    assert [change["module"] for change in host["changes"]] == ["gpu.fleet.gpu_settings"]
    assert (host["status"], host["health"]["verdict"]) == ("ok", "ok")


def test_ansible_lint_is_clean(project: Project) -> None:
    project.run("ansible-lint", "--nocolor", "-q", ANSIBLE_COLLECTIONS_PATH=str(project.directory / "collections"))


def test_the_archive_in_requirements_is_that_of_this_version() -> None:
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    names = [entry["name"] for entry in yaml.safe_load((EXAMPLE / "requirements.yml").read_text())["collections"]]
    assert f"archives/gpu-fleet-{version}.tar.gz" in names


def test_the_page_of_fleets_has_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "fleets.md").read_text()
    shown = dict(re.findall(r"^`group_vars/(\w+)\.yml`\n\n```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    files = {path.stem: path.read_text() for path in (EXAMPLE / "inventory" / "group_vars").glob("*.yml")}
    assert shown == {name: text.removeprefix("---\n") for name, text in files.items()}
