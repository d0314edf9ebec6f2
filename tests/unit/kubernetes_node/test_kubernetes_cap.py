# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many nodes get the taint of their verdict in one run of the role. The API server is a mock."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_cap import Cap
from ansible_collections.gpu.fleet.plugins.module_utils._health import announcement
from ansible_collections.gpu.fleet.plugins.plugin_utils._kubernetes_cap import Heard, held_taints
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_monitoring import PROGRAM

from tests.unit.kubernetes_node.test_kubernetes_tasks import ROLE
from tests.unit.mock_modules import calls, mock_modules
from tests.unit.plays import run_play

CAP = Cap("10%", "the_cap")
FAULT = "FAIL: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot"
OWN = {"key": "gpu.fleet/unhealthy", "value": "reboot", "effect": "NoSchedule"}
OF_OPERATOR = {**OWN, "value": "ann"}
HELD = announcement.held_file(announcement.KUBERNETES)
GPU = MappingProxyType({"nvidia.com/gpu.present": "true"})


def node(name: str, *taints: Mapping[str, str], labels: Mapping[str, str] = GPU) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": dict(labels)}, "spec": {"taints": list(taints)} if taints else {}}


def nodes(total: int, *tainted: str, labels: Mapping[str, str] = GPU) -> list[dict[str, Any]]:
    names = [f"gpu{number:03}" for number in range(total)]
    return [node(name, *([OWN] if name in tainted else []), labels=labels) for name in names]


def heard(*names: str, line: str = FAULT, cluster: Any = "one") -> list[Heard]:
    return [Heard(f"host-of-{name}", name, line, cluster) for name in names]


def held(listed: Sequence[Mapping[str, Any]], hosts: Sequence[Heard], cap: Cap = CAP) -> list[str]:
    """The nodes that get no taint."""
    found = held_taints(cap, {"resources": listed}, hosts, hosts[0].host)
    return [name.removeprefix("host-of-") for name in found]


def test_of_a_play_so_many_nodes_get_the_taint_that_the_cap_is_reached() -> None:
    everywhere = [f"gpu{number:03}" for number in range(30)]
    assert held(nodes(30), heard(*everywhere)) == everywhere[3:]
    assert held(nodes(30, "gpu020"), heard(*everywhere)) == [name for name in everywhere[2:] if name != "gpu020"]
    assert held(nodes(30, "gpu020", "gpu021", "gpu022", "gpu023"), heard("gpu001", "gpu020")) == ["gpu001"]
    assert held(nodes(30), heard(*everywhere), Cap("100%", "x")) == []
    assert held(nodes(30), heard("gpu001"), Cap("0", "x")) == ["gpu001"]


@pytest.mark.parametrize("line", ["OK: nothing found", "WARN: hot", "UNKNOWN: no verdict", "", "FAIL"])
def test_what_is_no_fault_is_not_held_and_takes_no_place(line: str) -> None:
    others = heard("gpu000", "gpu001", "gpu002", line=line)
    assert held(nodes(30), [*others, *heard("gpu003", "gpu004", "gpu005")]) == []
    assert held_taints(CAP, {"msg": "no reply"}, others, "host-of-gpu000") == {}


def test_the_taint_of_an_operator_is_none_of_ours() -> None:
    listed = [node("a", OF_OPERATOR), node("b", OF_OPERATOR), node("c", OF_OPERATOR), node("d")]
    assert held(listed, heard("a", "d")) == []


def test_of_a_cluster_with_other_nodes_those_with_gpus_count() -> None:
    """Ten percent of a hundred nodes without GPUs would be all of those with them."""
    cpus = [node(f"cpu{number}", labels={"nvidia.com/gpu.present": "false"}) for number in range(100)]
    names = [f"gpu{number:03}" for number in range(8)]
    assert held([*cpus, *nodes(8)], heard(*names)) == names[2:]
    # Without the label there is nothing to distinguish them by.
    assert held([*cpus, *nodes(8, labels={})], heard(*names)) == []


def test_what_cannot_be_counted_gets_no_taint() -> None:
    for listed, why in (
        ({"msg": 'nodes is forbidden: User "x" cannot list resource "nodes"'}, "list nodes"),
        ({"msg": "the API server has not replied"}, "has not replied"),
        ({}, "no message"),
        ({"resources": []}, "the API server lists 0 nodes, and this is none of them"),
        ({"resources": nodes(5)}, "the API server lists 5 nodes, and this is none of them"),
    ):
        found = held_taints(CAP, listed, heard("gpu9"), "host-of-gpu9")
        assert found["host-of-gpu9"].startswith("node gpu9 of Kubernetes: no taint, though its verdict is fail: ")
        assert "cannot be counted: " in found["host-of-gpu9"] and why in found["host-of-gpu9"]
    here, there = heard("gpu000"), heard("gpu001", cluster="two")
    found = held_taints(CAP, {"resources": nodes(5)}, [*here, *there], "host-of-gpu000")
    assert list(found) == ["host-of-gpu001"] and "several clusters" in found["host-of-gpu001"]


INFO = """
nodes = json.loads((directory / "nodes.json").read_text())
if arguments.get("name"):
    result["resources"] = [one for one in nodes if one["metadata"]["name"] == arguments["name"]]
elif (directory / "denied").exists():
    result.update(failed=True, msg='nodes is forbidden: User "tainter" cannot list resource "nodes" in API group ""')
else:
    result["resources"] = nodes
"""
PATCH = """
import fcntl
with (directory / "lock").open("w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    nodes = json.loads((directory / "nodes.json").read_text())
    (node,) = [one for one in nodes if one["metadata"]["name"] == arguments["name"]]
    test, add = arguments["patch"]
    assert test["value"] == (node["spec"].get("taints") or None)
    node["spec"]["taints"] = add["value"]
    if not check_mode:
        (directory / "nodes.json").write_text(json.dumps(nodes))
    result["changed"] = True
"""


class Site:
    """Hosts whose health check prints a line, and a cluster with their nodes."""

    def __init__(self, directory: Path, cluster: Sequence[Mapping[str, Any]]) -> None:
        self.directory = directory
        (directory / "nodes.json").write_text(json.dumps(cluster))
        self.env = mock_modules(directory, {"kubernetes.core.k8s_info": INFO, "kubernetes.core.k8s_json_patch": PATCH})

    def play(self, lines: Mapping[str, str], *arguments: str, **variables: Any) -> str:
        """A run for these hosts; what it has printed."""
        tasks = self.directory / "tasks"
        tasks.mkdir(exist_ok=True)
        for path in (ROLE / "tasks").glob("*taint.yml"):
            text = path.read_text().replace(f"[{PROGRAM}/status]", '["{{ status }}"]')
            assert path.name != "taint.yml" or ("{{ status }}" in text and HELD in text)
            (tasks / path.name).write_text(text.replace(HELD, '"{{ run }}/held-kubernetes.json"'))
        hosts = {}
        for name, line in lines.items():
            run = self.directory / name
            run.mkdir(exist_ok=True)
            (run / "status").write_text(f"#!/bin/sh\necho '{line}'\nexit 2\n")
            (run / "status").chmod(0o700)
            hosts[name] = {"run": str(run), "status": str(run / "status"), "ansible_connection": "local"}
        inventory = self.directory / "inventory.json"
        inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
        block = {
            "block": [{"ansible.builtin.include_tasks": str(tasks / "taint.yml")}],
            "rescue": [{"ansible.builtin.debug": {"var": "ansible_failed_result.msg"}}],
            "vars": {"kubernetes_node_apply": True, "ansible_python_interpreter": sys.executable, **variables},
        }
        play = {
            "hosts": "all",
            "gather_facts": False,
            "vars_files": [str(ROLE / "defaults" / "main.yml")],
            "tasks": [block],
        }
        return run_play(self.directory, play, *arguments, inventory=inventory, env=self.env)

    def tainted(self) -> list[str]:
        found = json.loads((self.directory / "nodes.json").read_text())
        return [one["metadata"]["name"] for one in found if OWN in one["spec"].get("taints", ())]

    def held(self) -> list[str]:
        return sorted(path.parent.name for path in self.directory.glob("*/held-kubernetes.json"))


@pytest.mark.plays
def test_a_verdict_that_is_false_on_all_nodes_taints_as_many_as_the_cap_allows(tmp_path: Path) -> None:
    site = Site(tmp_path, [*nodes(3), node("busy", OWN)])
    lines = dict.fromkeys(["gpu000", "gpu001", "gpu002", "busy"], FAULT)
    output = site.play(lines, "--check")
    assert site.tainted() == ["busy"] and site.held() == []
    output = site.play(lines)
    assert site.tainted() == ["gpu000", "busy"] and site.held() == ["gpu001", "gpu002"]
    warning = " ".join(output.split())
    assert "node gpu001 of Kubernetes: no taint, though its verdict is fail: verdicts have 2 of 4 nodes" in warning
    assert "kubernetes_node_taint_unhealthy_max (10%) allows 2" in warning and "(and 1 more)" in warning
    why = json.loads((tmp_path / "gpu002" / "held-kubernetes.json").read_text())["held"]
    assert why.startswith("node gpu002 of Kubernetes: no taint")
    # A return is not counted, and makes room.
    before = len([name for name, given in calls(tmp_path) if name == "k8s_info" and not given.get("name")])
    site.play({"gpu000": "OK: nothing found"})
    assert site.tainted() == ["busy"]
    assert before == len([name for name, given in calls(tmp_path) if name == "k8s_info" and not given.get("name")])
    site.play({**lines, "gpu000": "OK: nothing found"})
    assert site.tainted() == ["gpu001", "busy"] and site.held() == ["gpu002"]
    site.play({"gpu002": FAULT}, kubernetes_node_taint_unhealthy_max="100%")
    assert site.tainted() == ["gpu001", "gpu002", "busy"] and site.held() == []


@pytest.mark.plays
def test_a_cluster_is_counted_once_in_a_run(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes(6))
    site.play({f"gpu{number:03}": FAULT for number in range(6)})
    lists = [given for name, given in calls(tmp_path) if name == "k8s_info" and not given.get("name")]
    assert len(lists) == 1 and len(site.tainted()) == 2
    assert set(lists[0]["hidden_fields"]) == {"status", "metadata.managedFields", "metadata.annotations"}


@pytest.mark.plays
def test_without_the_right_to_list_nodes_none_gets_the_taint_and_one_can_lose_it(tmp_path: Path) -> None:
    site = Site(tmp_path, [*nodes(3, "gpu002"), node("gpu003")])
    (tmp_path / "denied").touch()
    output = site.play({"gpu000": FAULT, "gpu001": "WARN: hot", "gpu002": "OK: nothing found"})
    assert site.tainted() == [] and site.held() == ["gpu000"]
    assert re.search(r"cannot be counted:.*list nodes", " ".join(output.split()))
    assert "failed=1" not in output
    # A host that the cluster does not have is none that could get the taint.
    (tmp_path / "denied").unlink()
    output = site.play({"gpu000": FAULT, "gpu9": FAULT})
    assert site.tainted() == ["gpu000"] and site.held() == []
    assert "the cluster has no node gpu9; join it first" in output


@pytest.mark.plays
def test_a_cap_that_is_none_is_refused(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes(3))
    output = site.play({"gpu000": FAULT}, kubernetes_node_taint_unhealthy_max="a few")
    assert "kubernetes_node_taint_unhealthy_max is 'a few'; it takes a number of nodes" in output
    assert site.tainted() == []
