# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tasks of kubernetes_node: files and their removal; tests/kubernetes applies them to a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.containers.test_gpu_containers import RECORD
from tests.unit.kubernetes_node.test_kubernetes_manifests import H200, plan, smi, split
from tests.unit.mock_modules import mock_modules
from tests.unit.plays import run_play
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, SiteRun, run_site

pytestmark = pytest.mark.plays

ROLE = ROOT / "roles" / "kubernetes_node"
TAINT = "nvidia.com/gpu=present:NoSchedule"


REQUEST, PLAN = (
    task for task in yaml.safe_load((ROLE / "tasks" / "main.yml").read_text()) if "gpu.fleet.role_plan" in task
)


def including(name: str) -> list[dict[str, Any]]:
    """The tasks of the role by which it includes a file."""
    included = {"ansible.builtin.include_tasks": str(ROLE / "tasks" / name)}
    if name != "remove.yml":
        return [REQUEST, included]
    before = {"ansible.builtin.include_tasks": str(ROLE / "tasks" / "unlabel.yml")}
    return [REQUEST, {**before, "when": "'unlabel' in __kubernetes_node_request.steps"}, PLAN, included]


def play(directory: Path, *tasks: str | Mapping[str, Any], **variables: Any) -> dict[str, Any]:
    """A play of tasks, and of task files of the role, each of which may fail: its message is printed."""
    # Variables of a task, because those of a play give way to its files.
    given = {
        "ansible_python_interpreter": sys.executable,
        "kubernetes_node_name": "gpu1",
        "kubernetes_node_directory": str(directory / "manifests"),
        "kubernetes_node_directory_host": "localhost",
        "kubernetes_node_kubeconfig": "/etc/cluster.conf",
        "kubernetes_node_taint": TAINT,
        "kubernetes_node_apply": True,
        **variables,
    }
    return {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults" / "main.yml")],
        "tasks": [
            name
            if isinstance(name, Mapping)
            else {
                "block": including(name),
                "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}],
                "vars": {"kubernetes_node_state": "absent" if name == "remove.yml" else "present", **given},
            }
            for name in tasks
        ],
    }


SMI = 'result["ansible_facts"] = {"nvidia_smi": json.loads((directory / "smi.json").read_text())}'
HOST = RECORD["gpu.fleet.managed_facts"] + 'result["gpu_operator"] = {}'


def test_of_the_directory_on_a_node_only_what_was_recorded_is_removed(tmp_path: Path) -> None:
    # A directory that is given by a variable may be one of others.
    here, there = tmp_path / "manifests", tmp_path / "before"
    there.mkdir()
    (there / "of-another.yaml").touch()
    env = mock_modules(tmp_path, {**RECORD, "gpu.fleet.nvidia_smi_facts": SMI, "gpu.fleet.host_facts": HOST})
    (tmp_path / "facts.json").write_text("{}")
    # As `-e kubernetes_node_apply=false` gives it.
    own = {"kubernetes_node_directory_host": "", "kubernetes_node_apply": "false"}
    mixed = plan(smi(split("3g.71gb")), node="gpu1")

    def written(directory: Path, profile: str) -> dict[str, Any]:
        (block,) = play(tmp_path, "files.yml", **own, kubernetes_node_directory=str(directory))["tasks"]
        block["block"].insert(1, PLAN)
        content = json.dumps(smi(split(profile)))
        return {"block": [{"ansible.builtin.copy": {"content": content, "dest": f"{tmp_path}/smi.json"}}, block]}

    kept = {"ansible.builtin.command": {"argv": ["cp", f"{tmp_path}/record.json", f"{tmp_path}/recorded.json"]}}
    tasks = (written(there, "1g.18gb"), written(here, "3g.71gb"), kept, "remove.yml")
    output = run_play(tmp_path, play(tmp_path, *tasks, **own, kubernetes_node_directory=str(there)), env=env)
    assert "rescued=0 " in output
    recorded = json.loads((tmp_path / "recorded.json").read_text())["kubernetes_node"]
    manifests = [str(here / manifest["file"]) for manifest in mixed["manifests"]]
    assert recorded["files"] == manifests
    assert set(manifests) < set(recorded["data"]["files"])
    assert not here.exists(), "made by the role, and empty"
    assert [path.name for path in there.iterdir()] == ["of-another.yaml"]
    assert json.loads((tmp_path / "record.json").read_text()) == {}


def test_what_a_node_has_recorded_is_removed_on_the_node_alone() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "remove.yml").read_text())
    by_record = [task for task in tasks if "__kubernetes_node_plan." in json.dumps(task)]
    assert len(by_record) == 2
    assert not any("delegate_to" in task for task in by_record)


def node_host() -> MockHost:
    """A host with a GPU on which the role has its facts."""
    results: Mapping[str, Any] = {
        "nvidia_smi_facts": {"ansible_facts": {"nvidia_smi": smi(H200)}},
        "managed_facts": {"ansible_facts": {"gpu_fleet_managed": {}}},
        "file": {"changed": False},
        "stat": {"stat": {"exists": False}},
        "copy": {"changed": True},
        "managed_record": {"changed": False},
    }
    host = converged(WITHOUT_CONTAINER)
    return replace(host, results={**host.results, **results})


def test_the_role_runs_in_site(tmp_path: Path) -> None:
    given: Mapping[str, Any] = {**WITHOUT_CONTAINER, "gpu_fleet_roles": ["kubernetes_node"]}
    host = node_host()
    done = run_site(
        tmp_path,
        {
            "gpu1": (host, given),
            "gpu2": (host, {**given, "kubernetes_node_taint": "nvidia.com/gpu", "kubernetes_node_namespace": "A"}),
            "gpu3": (host, {**given, "kubernetes_node_name": "gpu_3"}),
            "gpu_4": (host, given),
        },
    )
    assert done.failure("gpu1") == "", done.output
    assert done.modules["gpu1"][1:3] == ["nvidia_smi_facts", "host_facts"]
    assert done.modules["gpu1"].count("copy") == 3
    # Before anything else is changed on the host, and the name in the inventory by the role, which reads nothing then.
    for name in ("gpu2", "gpu3"):
        assert done.modules[name] == ["host_facts"]
    assert "gpu_4: kubernetes_node_name is 'gpu_4'" in done.failure("gpu_4")
    assert "nvidia_smi_facts" not in done.modules["gpu_4"]
    assert "kubernetes_node_namespace is 'A'" in done.failure("gpu2")
    assert "kubernetes_node_taint is 'nvidia.com/gpu'" in done.failure("gpu2")
    assert "gpu3: kubernetes_node_name is 'gpu_3'" in done.failure("gpu3")


def test_the_role_alone_refuses_variables_before_it_does_anything(tmp_path: Path) -> None:
    alone = tmp_path / "alone.yml"
    role = {"name": "Run the role", "ansible.builtin.include_role": {"name": "gpu.fleet.kubernetes_node"}}
    alone.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [role]}]))
    given = {
        **WITHOUT_CONTAINER,
        "kubernetes_node_namespace": "A",
        # Its taint comes first otherwise.
        "kubernetes_node_apply": True,
        "kubernetes_node_taint_unhealthy": True,
    }
    done = run_site(tmp_path, {"gpu1": (node_host(), given)}, playbook=alone)
    assert "gpu1: kubernetes_node_namespace is 'A'" in done.failure("gpu1"), done.output
    assert done.modules.get("gpu1", []) == []


def test_whether_to_apply_may_be_given_as_text(tmp_path: Path) -> None:
    """By `-e NAME=VALUE`: site.yml and the role alone take it as Ansible's type bool does."""
    given = {**WITHOUT_CONTAINER, "gpu_fleet_roles": ["kubernetes_node"]}
    alone = tmp_path / "alone.yml"
    role = {"name": "Run the role", "ansible.builtin.include_role": {"name": "gpu.fleet.kubernetes_node"}}
    alone.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [role]}]))

    def run(playbook: Path, word: str, state: str) -> SiteRun:
        directory = tmp_path / f"{playbook.stem}-{state}-{word}"
        directory.mkdir()
        arguments = ("-e", f"kubernetes_node_apply={word}", "-e", f"kubernetes_node_state={state}")
        return run_site(directory, {"gpu1": (node_host(), given)}, *arguments, playbook=playbook)

    site = ROOT / "playbooks" / "site.yml"
    refused = run(site, "maybe", "present")
    assert 'kubernetes_node_apply is "maybe"; it takes true or false' in refused.failure("gpu1")
    assert refused.modules["gpu1"] == ["host_facts"]
    for playbook, state, last in ((alone, "present", "copy"), (alone, "absent", "file"), (site, "present", "copy")):
        done = run(playbook, "no" if playbook == site else "false", state)
        assert done.rc == 0 and last in done.modules["gpu1"], done.output
