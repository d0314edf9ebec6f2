# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on nodes of Kubernetes: an API server that refuses or hangs in the middle of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.kubernetes.control_plane import ENDS_AFTER, ControlPlane, RefusedError
from tests.kubernetes.nodes import meanwhile, note, state_of, upgrade_nodes
from tests.unit.kubernetes_node.test_kubernetes_manifests import H200, plan, smi
from tests.unit.kubernetes_node.test_kubernetes_tasks import TAINT, play
from tests.unit.plays import run_play
from tests.unit.upgrade.test_upgrade_playbook import steps

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class Refusal:
    """A policy of admission that refuses requests about one object, until it is deleted."""

    def __init__(self, cluster: ControlPlane, resource: str, operation: str, expression: str) -> None:
        self._cluster = cluster
        self.name = f"refuse-{resource.replace('/', '-')}-{len(cluster.get(POLICIES)['items'])}"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"!({expression})", "message": "not now"}],
        }
        cluster.create(POLICIES, {"metadata": {"name": self.name}, "spec": spec})
        binding = {"policyName": self.name, "validationActions": ["Deny"]}
        cluster.create(BINDINGS, {"metadata": {"name": self.name}, "spec": binding})

    def count(self) -> int:
        """How many requests it has refused."""
        metrics = self._cluster.get("/metrics", text=True)
        pattern = rf'^apiserver_validating_admission_policy_check_total{{[^}}]*"deny"[^}}]*"{self.name}"[^}}]*}} (\d+)'
        return sum(int(found) for found in re.findall(pattern, metrics, re.MULTILINE))

    def end(self) -> None:
        """Delete it."""
        self._cluster.delete(f"{BINDINGS}/{self.name}")
        self._cluster.delete(f"{POLICIES}/{self.name}")


def test_a_change_that_is_refused_once_is_tried_again(tmp_path: Path, cluster: ControlPlane, token: str) -> None:
    """The cordon, one of a node that is deleted after it was read, and an eviction."""
    names = ("late", "vanishing", "guarded")
    for name in names:
        cluster.add_node(name)
        cluster.add_pod(name, f"train-{name}")
    cordon = "request.name == '{}' && has(object.spec.unschedulable) && object.spec.unschedulable"
    late, vanishing = (Refusal(cluster, "nodes", "UPDATE", cordon.format(name)) for name in names[:2])
    guarded = Refusal(cluster, "pods/eviction", "CREATE", "request.name == 'train-guarded'")

    def is_refused(name: str) -> bool:
        try:
            cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        except RefusedError:
            return True
        cluster.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
        return False

    # A policy takes a moment until it counts.
    for name in names[:2]:
        cluster.wait_for(lambda name=name: is_refused(name))
    before = {one: one.count() for one in (late, vanishing)}

    def work() -> None:
        cluster.wait_for(lambda: late.count() > before[late])
        late.end()
        cluster.wait_for(lambda: vanishing.count() > before[vanishing])
        cluster.delete("/api/v1/nodes/vanishing")
        cluster.wait_for(lambda: guarded.count() > 0)
        guarded.end()

    with meanwhile(work):
        done = upgrade_nodes(tmp_path, cluster, token, {name: {"idle_timeout_s": 120} for name in names})
    vanishing.end()
    assert steps(tmp_path) == {"late": "in_service", "guarded": "in_service", "vanishing": "failed"}, done.output
    gone = "node vanishing of Kubernetes: it has been deleted from the cluster meanwhile, so it is left alone"
    assert gone in state_of(tmp_path, "vanishing")["reason"]
    assert cluster.cordoned("late", "guarded") == set() and note(cluster, "late") == ""


def test_a_hanging_api_server_does_not_extend_the_limit_for_ever(
    tmp_path: Path, cluster: ControlPlane, token: str
) -> None:
    """Nothing fails and nothing replies: the requests of the wait end by themselves."""
    cluster.add_node("gpu1")
    cluster.add_pod("gpu1", "train", annotations={ENDS_AFTER: "3600"})

    def is_failed() -> bool:
        path = tmp_path / "states" / "hosts" / "gpu1.json"
        return path.exists() and state_of(tmp_path, "gpu1")["step"] == "failed"

    def work() -> None:
        cluster.wait_for(lambda: "deletionTimestamp" in (cluster.pod("train") or {"metadata": {}})["metadata"])
        with cluster.hanging():
            cluster.wait_for(is_failed)

    given: dict[str, Any] = {"idle_timeout_s": 5}
    with meanwhile(work):
        done = upgrade_nodes(tmp_path, cluster, token, {"gpu1": given})
    reason = state_of(tmp_path, "gpu1")["reason"]
    assert "not idle after 5 s (gpu_fleet_upgrade_idle_timeout_s)" in reason, done.output
    assert (
        "the API server has not replied" in reason and "check whether `kubectl get nodes` reaches the cluster" in reason
    )
    # The reason is given to the node once the server replies again.
    assert cluster.cordoned("gpu1") == {"gpu1"} and "not idle after 5 s" in note(cluster, "gpu1")


def test_a_hanging_api_server_ends_a_role_that_applies(tmp_path: Path, cluster: ControlPlane) -> None:
    """Before a file is written."""
    cluster.add_node("gpu1")
    config = str(cluster.kubeconfig(tmp_path / "config"))
    found = plan(smi(H200), node="gpu1", taint=TAINT)
    given = {"__kubernetes_node_plan": found, "kubernetes_node_kubeconfig": config}
    with cluster.hanging():
        output = run_play(tmp_path, play(tmp_path, "check.yml", **given))
    assert "rescued=2 " in output and "imed out after 60 second" in output, output
    assert "check whether `kubectl get nodes` reaches the cluster" in output
    assert "check kubernetes_node_kubeconfig and kubernetes_node_context" in output
