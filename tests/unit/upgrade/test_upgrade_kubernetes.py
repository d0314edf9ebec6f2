# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on nodes of Kubernetes: the modules of kubernetes.core against an API server of the tests."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import PREFIX

from tests.conftest import ROOT
from tests.unit.plays import unreachable
from tests.unit.site.mock_host import SiteRun, run_site
from tests.unit.upgrade.mock_kubernetes import VIOLATION, Cluster, api_server
from tests.unit.upgrade.test_upgrade_playbook import LOST, host, steps

pytestmark = pytest.mark.plays

RUN = "20260504T090000Z"
KEY = "gpu.fleet/upgrade"


@pytest.fixture(name="cluster")
def _cluster() -> Iterator[Cluster]:
    """A cluster whose replies are held to the published schema at the end."""
    with api_server() as cluster:
        yield cluster
    client: Any = importlib.import_module("kubernetes.client")
    with client.ApiClient() as api:
        for schema, body in {json.dumps(reply): reply for reply in cluster.replies}.values():
            # Raises for a field that is missing, and leaves out one that the schema does not have.
            model = api._ApiClient__deserialize(body, schema)
            assert json.loads(json.dumps(api.sanitize_for_serialization(model)).replace("+00:00", "Z")) == body, schema


def upgrade_nodes(
    directory: Path,
    cluster: Cluster,
    nodes: Mapping[str, Mapping[str, Any]],
    *arguments: str,
    env: Mapping[str, str] | None = None,
) -> SiteRun:
    """Run the playbook on hosts that are nodes, each with its variables less their prefix."""
    common = {
        "scheduler": "kubernetes",
        "kubernetes_kubeconfig": str(cluster.kubeconfig(directory / "kubeconfig")),
        "directory": str(directory / "states"),
        **{"canaries": 0, "batch": 20, "max_failures": 20, "idle_interval_s": 1, "idle_timeout_s": 3},
    }
    hosts = {}
    for name, given in nodes.items():
        settings = {f"gpu_fleet_upgrade_{option}": value for option, value in {**common, **given}.items()}
        roles = {"gpu_fleet_roles": ["gpu_state"], "gpu_state_persistence_mode": True}
        hosts[name] = (host(True, LOST if name == "sick" else None), {**roles, **settings})
    run = directory / f"run{len(list(directory.glob('run*')))}"
    run.mkdir()
    return run_site(run, hosts, *arguments, playbook=ROOT / "playbooks" / "upgrade.yml", env=env)


def test_nodes_are_drained_and_only_our_cordons_are_undone(tmp_path: Path, cluster: Cluster) -> None:
    # As a controller leaves it that was killed before it has recorded the cordon, whose annotation has its run.
    cluster.add_node("guarded", cordoned=True, note=f"{RUN}: upgrade")
    states = tmp_path / "states" / "hosts"
    states.mkdir(parents=True)
    history = [{"step": step, "time": "2026-05-04T09:00:00Z", "reason": ""} for step in ("planned", "draining")]
    state = {"host": "guarded", "run": RUN, "step": "draining", "reason": "", "history": history}
    (states / "guarded.json").write_text(json.dumps(state))
    (states.parent / "plan.json").write_text(json.dumps({"run": RUN, "order": ["guarded"], "failed": {}}))
    for name in ("protected", "sick", "denied", "held"):
        cluster.add_node(name)
    cluster.add_node("operators", cordoned=True)
    for name, refused in (("guarded", 2), ("protected", 1000), ("operators", 1000)):
        cluster.add_pod(name, f"train-{name}")
        cluster.budgets[f"default/train-{name}"] = refused
    # A pod of a DaemonSet stays where it is, and so does one that the selector leaves to its end.
    cluster.add_pod("sick", "exporter", "DaemonSet", local=True, gpus=0)
    cluster.add_pod("guarded", "kept", "Job", local=True, gpus=0)
    cluster.add_pod("held", "burn", "DaemonSet")
    cluster.denied = {"patch nodes/denied"}

    nodes: dict[str, dict[str, Any]] = {
        "guarded": {"kubernetes_pod_selectors": ["app!=kept"], "idle_timeout_s": 20},
        "protected": {"on_busy": "skip"},
        "operators": {"on_busy": "force"},
        "sick": {},
        "denied": {},
        "held": {"idle_timeout_s": 1},
    }
    done = upgrade_nodes(tmp_path, cluster, nodes)
    assert done.rc != 0
    reached = {"guarded": "in_service", "operators": "in_service", "protected": "planned"}
    assert steps(tmp_path) == {**reached, "sick": "failed", "held": "failed"}, done.output
    assert set(cluster.pods) == {"default/burn", "default/exporter", "default/kept", "default/train-protected"}

    cordoned = {name for name, node in cluster.nodes.items() if node["spec"].get("unschedulable")}
    assert cordoned == {"operators", "sick", "held"}
    notes = {name: node["metadata"].get("annotations", {}).get(KEY, "") for name, node in cluster.nodes.items()}
    sick, held = notes.pop("sick"), notes.pop("held")
    assert set(notes.values()) == {""}
    assert sick.startswith(f"gpu.fleet {RUN}: Refuse a host that is not healthy: fail, remedy reboot: GPU 0 is lost")
    assert held.startswith(
        f"gpu.fleet {RUN}: Refuse a busy host: not idle after 1 s (gpu_fleet_upgrade_idle_timeout_s): "
    )
    assert "pods with GPUs are still on it: default/burn; a pod of a DaemonSet is not evicted" in held

    state = json.loads((states / "operators.json").read_text())
    assert state["reason"] == "it stays out of service in Kubernetes: no upgrade has cordoned it"
    assert json.loads((states / "protected.json").read_text())["reason"].startswith(
        "not idle after 3 s (gpu_fleet_upgrade_idle_timeout_s): node protected of Kubernetes: Failed to delete pod "
        f"default/train-protected due to: {VIOLATION}; give its application another replica"
    )
    assert done.failure("denied") == (
        "node denied of Kubernetes: the account may not patch nodes; give it the rights to get and patch nodes, list "
        "and get pods, create pods/eviction, and delete pods for gpu_fleet_upgrade_on_busy: force"
    )
    # The pod of a budget is only deleted by leave, and nothing of a node that was refused is changed.
    requests = cluster.changes()
    assert ("DELETE", "/api/v1/namespaces/default/pods/train-operators") in requests
    assert [path for method, path in requests if method == "DELETE"] == [
        "/api/v1/namespaces/default/pods/train-operators"
    ]
    assert requests.count(("POST", "/api/v1/namespaces/default/pods/train-guarded/eviction")) >= 3
    patched = [path.rpartition("/")[2] for method, path in requests if method == "PATCH"]
    assert sorted(patched) == ["guarded", "held", "held", "protected", "protected", "sick", "sick"]


def test_a_prediction_reads_and_names_what_is_wrong_before_a_change(tmp_path: Path, cluster: Cluster) -> None:
    for name in ("fine", "shm", "local", "bare"):
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}", "" if name == "bare" else "Job", local=name in ("local", "shm"))
    cluster.denied = {"get nodes/secret"}
    nodes: dict[str, dict[str, Any]] = {
        "fine": {},
        # As `-e NAME=VALUE` gives them.
        "shm": {"kubernetes_delete_emptydir_data": "true"},
        "local": {"kubernetes_delete_emptydir_data": "false"},
        "bare": {},
        "unknown": {},
        "secret": {},
        "nowhere": {"kubernetes_kubeconfig": str(cluster.kubeconfig(tmp_path / "nowhere", "http://127.0.0.1:9"))},
        "context": {"kubernetes_context": "prod"},
    }
    done = upgrade_nodes(tmp_path, cluster, nodes, "--check")
    reasons = {name: done.failure(name) for name in nodes}
    reasons = {name: reason.removeprefix(f"node {name} of Kubernetes: ") for name, reason in reasons.items()}
    assert reasons["secret"].startswith(
        'nodes is forbidden: User "upgrade" cannot get resource "nodes"; give the account'
    )
    assert reasons.pop("fine") == reasons.pop("shm") == ""
    for name, cause, advice in (
        ("local", "their data is lost: default/train-local", "set gpu_fleet_upgrade_kubernetes_delete_emptydir_data"),
        ("bare", "creates them again: default/train-bare", "set gpu_fleet_upgrade_kubernetes_delete_unmanaged_pods"),
        ("unknown", "the cluster has no such node", "set gpu_fleet_upgrade_kubernetes_node of the host"),
        ("nowhere", "Max retries exceeded", "see whether `kubectl get nodes` reaches the cluster"),
        ("context", "Invalid kube-config file", "set gpu_fleet_upgrade_kubernetes_kubeconfig to a file"),
    ):
        assert cause in reasons[name] and f"; {advice}" in reasons[name], reasons[name]
    assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [["fine", "shm"]]
    assert {method for method, _path in cluster.requests} == {"GET"}


def test_a_node_whose_host_is_lost_has_the_reason(tmp_path: Path, cluster: Cluster) -> None:
    for name in ("sick", "worker7"):
        cluster.add_node(name)
    cluster.add_node("operators", cordoned=True)
    gone = unreachable(tmp_path, "connect: No route to host")
    lose = {"name": "Lose the host", "ansible.builtin.set_fact": gone, "when": "inventory_hostname != 'sick'"}
    (tmp_path / "lose.yml").write_text(json.dumps([lose]))
    hooks = {"hooks": {"after_change": [str(tmp_path / "lose.yml")]}}
    nodes: dict[str, dict[str, Any]] = {
        "sick": hooks,
        "dying": {**hooks, "kubernetes_node": "worker7"},
        "operators": hooks,
    }
    done = upgrade_nodes(tmp_path, cluster, nodes)
    assert done.rc != 0
    assert steps(tmp_path) == dict.fromkeys(nodes, "failed"), done.output
    run = json.loads((tmp_path / "states" / "plan.json").read_text())["run"]
    # Given by `sick`, which has a state and a reason of its own.
    notes = {name: node["metadata"].get("annotations", {}).get(KEY, "") for name, node in cluster.nodes.items()}
    assert notes.pop("sick").startswith(f"gpu.fleet {run}: Refuse a host that is not healthy: fail")
    assert notes == {"worker7": f"gpu.fleet {run}: the host could not be reached after it was changed", "operators": ""}
    assert {name for name, node in cluster.nodes.items() if node["spec"].get("unschedulable")} == set(cluster.nodes)


def test_the_guide_is_run_as_written(tmp_path: Path, cluster: Cluster) -> None:
    """Its variables and its hook, with the kubeconfig of the test."""
    page = (ROOT / "docs" / "upgrade-fleet.md").read_text().partition("### Kubernetes\n")[2]
    page = page.replace("/etc/gpu-fleet/kubeconfig", str(tmp_path / "kubeconfig")).replace("production", "mock")
    found = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    variables: dict[str, Any] = yaml.safe_load(found[0])
    for name, word in (("stop", "false"), ("start", "true")):
        (tmp_path / f"{name}.yml").write_text(found[1].replace('"false"', f'"{word}"'))
    hooks = {
        f"{when}_change": [str(tmp_path / f"{name}.yml")] for when, name in (("before", "stop"), ("after", "start"))
    }
    cluster.add_node("gpu1")
    cluster.add_pod("gpu1", "train", "Job", local=True)
    given = {name.removeprefix(PREFIX): value for name, value in variables.items() if name.startswith(PREFIX)}
    assert given["scheduler"] == "kubernetes" and given["on_busy"] == "skip"
    done = upgrade_nodes(tmp_path, cluster, {"gpu1": {**given, "hooks": hooks}}, "-e", "rack=r1")
    assert done.rc == 0, done.output
    assert steps(tmp_path) == {"gpu1": "in_service"} and cluster.pods == {}
    node = cluster.nodes["gpu1"]
    assert node["metadata"]["labels"] == {"nvidia.com/gpu.deploy.device-plugin": "true"}
    assert node["spec"] == {} and KEY not in node["metadata"].get("annotations", {})
    # The cordon, the label off and on, the return.
    assert [path for method, path in cluster.changes() if method == "PATCH"] == ["/api/v1/nodes/gpu1"] * 4


def test_a_missing_collection_is_refused_by_name(tmp_path: Path, cluster: Cluster) -> None:
    collections = tmp_path / "ansible_collections"
    collections.mkdir()
    for name in ("ansible", "community", "gpu"):
        (collections / name).symlink_to(ROOT / ".cache" / "collections" / "ansible_collections" / name)
    done = upgrade_nodes(tmp_path, cluster, {"gpu1": {}}, "--check", env={"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)})
    assert done.failure("gpu1") == (
        "gpu_fleet_upgrade_scheduler is kubernetes, which needs the collection kubernetes.core on the controller; "
        "ansible-galaxy collection install kubernetes.core"
    )
    assert cluster.requests == []
