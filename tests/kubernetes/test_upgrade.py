# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on nodes of Kubernetes: mock hosts, and a real control plane."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.kubernetes.control_plane import ENDS_AFTER, ControlPlane
from tests.kubernetes.nodes import KEY, RULES, meanwhile, note, state_of, upgrade_nodes
from tests.unit.upgrade.test_upgrade_playbook import steps

RUN = "20260504T090000Z"
VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


def test_nodes_are_drained_and_only_our_cordons_are_undone(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    # As a controller leaves it that was killed before it has recorded the cordon, whose annotation has its run.
    cluster.add_node("guarded", cordoned=True, annotations={KEY: f"gpu.fleet {RUN}: upgrade"})
    states = tmp_path / "states" / "hosts"
    states.mkdir(parents=True)
    history = [{"step": step, "time": "2026-05-04T09:00:00Z", "reason": ""} for step in ("planned", "draining")]
    state = {"host": "guarded", "run": RUN, "step": "draining", "reason": "", "history": history}
    (states / "guarded.json").write_text(json.dumps(state))
    (states.parent / "plan.json").write_text(json.dumps({"run": RUN, "order": ["guarded"], "failed": {}}))
    for name in ("protected", "sick", "denied", "held", "left", "terminating"):
        cluster.add_node(name)
    cluster.add_node("operators", cordoned=True)
    for name in ("guarded", "protected", "operators"):
        # A pod that is deleted by force has time to end, whatever the limit is.
        cluster.add_pod(name, f"train-{name}", annotations={ENDS_AFTER: "6"} if name == "operators" else {})
        cluster.add_budget(f"train-{name}")
    # Behind a refused pod: it is evicted all the same.
    cluster.add_pod("protected", "x-behind")
    # A pod of a DaemonSet stays where it is, and so does one that the selector leaves to its end, or that has ended.
    cluster.add_pod("sick", "exporter", "DaemonSet", gpus=0, volumes=[{"name": "shm", "emptyDir": {}}])
    cluster.add_pod("guarded", "kept", gpus=0, volumes=[{"name": "shm", "emptyDir": {}}])
    cluster.add_pod("sick", "ended", "")
    cluster.patch("/api/v1/namespaces/default/pods/ended/status", {"status": {"phase": "Succeeded"}})
    cluster.add_pod("held", "burn", "DaemonSet")
    cluster.add_pod("left", "notebook")
    # One of a namespace that is being deleted, whose end a finalizer delays.
    cluster.create("/api/v1/namespaces", {"metadata": {"name": "old"}})
    cluster.wait_for(lambda: cluster.exists("/api/v1/namespaces/old/serviceaccounts/default"))
    cluster.add_pod("terminating", "late", namespace="old", annotations={ENDS_AFTER: "3"})
    cluster.add_pod("terminating", "other")
    cluster.delete("/api/v1/namespaces/old")

    limited = cluster.account("limited", [{**RULES[0], "verbs": ["get"]}, *RULES[1:]])
    denied = str(cluster.kubeconfig(tmp_path / "limited", token=limited))
    nodes: dict[str, dict[str, Any]] = {
        "guarded": {"kubernetes_pod_selectors": ["app!=kept"], "idle_timeout_s": 600},
        "protected": {"on_busy": "skip"},
        "operators": {"on_busy": "force", "idle_timeout_s": 1},
        "sick": {},
        "denied": {"kubernetes_kubeconfig": denied},
        "held": {"idle_timeout_s": 1},
        "left": {"idle_timeout_s": 1, "kubernetes_pod_selectors": ["app!=notebook"]},
        "terminating": {"idle_timeout_s": 600},
    }

    def grant() -> None:
        cluster.wait_for(lambda: cluster.pod("x-behind") is None)
        cluster.delete("/apis/policy/v1/namespaces/default/poddisruptionbudgets/train-guarded")

    with meanwhile(grant):
        done = upgrade_nodes(tmp_path, cluster, token, nodes)
    assert done.rc != 0
    reached = {"guarded": "in_service", "operators": "in_service", "protected": "planned", "terminating": "in_service"}
    assert steps(tmp_path) == {**reached, **dict.fromkeys(("sick", "held", "left"), "failed")}, done.output
    pods = {name for node in nodes for name in cluster.pods(node)}
    assert pods == {"burn", "ended", "exporter", "kept", "notebook", "train-protected"}

    assert cluster.cordoned(*nodes) == {"operators", "sick", "held", "left"}
    notes = {name: note(cluster, name) for name in nodes}
    sick, held, left = (notes.pop(name) for name in ("sick", "held", "left"))
    assert set(notes.values()) == {""}
    assert sick.startswith(f"gpu.fleet {RUN}: Refuse a host that is not healthy: fail, remedy reboot: GPU 0 is lost")
    assert held.startswith(
        f"gpu.fleet {RUN}: Refuse a busy host: not idle after 1 s (gpu_fleet_upgrade_idle_timeout_s): "
    )
    assert "pods with GPUs are still on it: default/burn; pods of a DaemonSet are not evicted" in held
    assert "gpu_fleet_upgrade_kubernetes_pod_selectors leaves have not ended yet: default/notebook" in left
    assert "DaemonSet" not in left
    assert (
        state_of(tmp_path, "operators")["reason"] == "it stays out of service in Kubernetes: no upgrade has cordoned it"
    )
    assert state_of(tmp_path, "protected")["reason"].startswith(
        "not idle after 3 s (gpu_fleet_upgrade_idle_timeout_s): node protected of Kubernetes: default/train-protected "
        f"was not evicted: 429 {VIOLATION[:-1]}; give its application another replica"
    )
    assert done.failure("denied") == (
        "node denied of Kubernetes: the account may not patch nodes; give it the rights to get and patch nodes, list "
        "pods, create pods/eviction, get resourceclaims (resource.k8s.io) where pods claim devices, and delete pods "
        "for gpu_fleet_upgrade_on_busy: force"
    )
    assert "Unknown error" not in done.output


def test_a_prediction_reads_and_names_what_is_wrong_before_a_change(
    tmp_path: Path, cluster: ControlPlane, token: str
) -> None:
    local: dict[str, Any] = {"volumes": [{"name": "shm", "emptyDir": {}}]}
    for name in ("fine", "shm", "local", "bare", "secret"):
        cluster.add_node(name)
        cluster.add_pod(
            name, f"train-{name}", "" if name == "bare" else "Job", **(local if name in ("local", "shm") else {})
        )
    before = {name: cluster.node(name)["metadata"]["resourceVersion"] for name in ("fine", "shm")}
    powerless = cluster.account("powerless", [])
    configs = {
        "secret": cluster.kubeconfig(tmp_path / "secret", token=powerless),
        "revoked": cluster.kubeconfig(tmp_path / "revoked", token="revoked"),
        "nowhere": cluster.kubeconfig(tmp_path / "nowhere", "https://127.0.0.1:9"),
        "untrusted": cluster.kubeconfig(tmp_path / "untrusted", trusted=False),
        "missing": tmp_path / "no-such-file",
    }
    nodes: dict[str, dict[str, Any]] = {
        "fine": {},
        # As `-e NAME=VALUE` gives them.
        "shm": {"kubernetes_delete_emptydir_data": "true"},
        "local": {"kubernetes_delete_emptydir_data": "false"},
        "bare": {},
        "unknown": {},
        "context": {"kubernetes_context": "prod"},
        **{name: {"kubernetes_kubeconfig": str(path)} for name, path in configs.items()},
    }
    done = upgrade_nodes(tmp_path, cluster, token, nodes, "--check")
    reasons = {name: done.failure(name) for name in nodes}
    reasons = {name: reason.removeprefix(f"node {name} of Kubernetes: ") for name, reason in reasons.items()}
    assert reasons.pop("fine") == reasons.pop("shm") == ""
    for name, cause, advice in (
        ("secret", 'cannot get resource "nodes"', "give the account the rights to get and patch nodes"),
        ("local", "their data is lost: default/train-local", "set gpu_fleet_upgrade_kubernetes_delete_emptydir_data"),
        ("bare", "creates them again: default/train-bare", "set gpu_fleet_upgrade_kubernetes_delete_unmanaged_pods"),
        ("unknown", "the cluster has no such node", "set gpu_fleet_upgrade_kubernetes_node of the host"),
        ("revoked", "Unauthorized", "renew the credentials in the file of gpu_fleet_upgrade_kubernetes_kubeconfig"),
        ("nowhere", "Max retries exceeded", "check whether `kubectl get nodes` reaches the cluster"),
        ("untrusted", "certificate verify failed", "set certificate-authority of the cluster in the file of gpu_fleet"),
        ("missing", "Could not find or access", "set gpu_fleet_upgrade_kubernetes_kubeconfig to a file"),
        ("context", "Invalid kube-config file", "set gpu_fleet_upgrade_kubernetes_kubeconfig to a file"),
    ):
        assert cause in reasons[name] and f"; {advice}" in reasons[name], (name, reasons[name])
    assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [["fine", "shm"]]
    assert {name: cluster.node(name)["metadata"]["resourceVersion"] for name in before} == before


def test_a_missing_collection_is_refused_by_name(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    collections = tmp_path / "ansible_collections"
    collections.mkdir()
    for name in ("ansible", "community", "gpu"):
        (collections / name).symlink_to(ROOT / ".cache" / "collections" / "ansible_collections" / name)
    done = upgrade_nodes(
        tmp_path, cluster, token, {"gpu1": {}}, "--check", env={"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    )
    assert done.failure("gpu1") == (
        "gpu_fleet_upgrade_scheduler is kubernetes, which needs the collection kubernetes.core on the controller; "
        "ansible-galaxy collection install kubernetes.core"
    )
