# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes: whose cordon it is, what is done with it, which pods keep it busy, and what errors mean."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.module_utils.basic import missing_required_lib
from ansible_collections.gpu.fleet.plugins.plugin_utils._kubernetes_drain import (
    ANNOTATION,
    TAINT,
    NodePlan,
    explain_failure,
    plan_node,
    taint_patch,
)

RUN = "20260504T090000Z"
OWN = f"gpu.fleet {RUN}: upgrade"


def node(*, cordoned: bool = False, note: str = "", ready: str = "True") -> dict[str, Any]:
    """A node as the API server returns it."""
    metadata = {"name": "gpu1", **({"annotations": {ANNOTATION: note}} if note else {})}
    status = {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]}
    return {"kind": "Node", "metadata": metadata, "spec": {"unschedulable": True} if cordoned else {}, "status": status}


def pod(name: str = "train", owner: str = "Job", phase: str = "Running", **given: Any) -> dict[str, Any]:
    """A pod; `given` is the rest of its spec."""
    owners = {"ownerReferences": [{"kind": owner}]} if owner else {}
    spec = {"containers": [{"name": "main"}], **given}
    return {"metadata": {"name": name, "namespace": "ml", **owners}, "spec": spec, "status": {"phase": phase}}


def planned(action: str, *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = (), **given: Any) -> NodePlan:
    """The plan in the run RUN."""
    options = {"name": "gpu1", "run": RUN, "reason": "upgrade", "on_busy": "fail"}
    leave = {"delete_emptydir_data": False, "delete_unmanaged_pods": False}
    return plan_node(action, nodes, pods, {**options, **leave, **given})


@pytest.mark.parametrize(
    ("action", "found", "cordon", "note"),
    [
        ("drain", node(), True, OWN),
        # An operator has uncordoned it by hand.
        ("drain", node(note=OWN), True, OWN),
        ("drain", node(cordoned=True, note=f"gpu.fleet {RUN}: GPU 0 is lost"), True, OWN),
        ("drain", node(cordoned=True, note=OWN), None, None),
        ("drain", node(cordoned=True), None, None),
        ("drain", node(cordoned=True, note="gpu.fleet 20250101T000000Z: upgrade"), None, None),
        ("return", node(cordoned=True, note=OWN), False, None),
        ("return", node(cordoned=True), None, None),
        ("return", node(cordoned=True, note=f"gpu.fleet {RUN}0: upgrade"), None, None),
        ("return", node(note=OWN), None, None),
        ("check", node(), None, None),
    ],
)
def test_only_our_own_cordon_is_changed(
    action: str, found: dict[str, Any], cordon: bool | None, note: str | None
) -> None:
    patch = planned(action, found).patch
    if cordon is None:
        assert patch == {}
    else:
        assert patch["spec"] == {"unschedulable": cordon} and patch["metadata"]["name"] == "gpu1"
        assert patch["metadata"]["annotations"] == {ANNOTATION: note}


def test_a_failure_replaces_our_reason_and_cordons_what_is_not() -> None:
    for found in (node(), node(cordoned=True, note=OWN)):
        patch = planned("fail", found, reason="GPU 0 is lost").patch
        assert patch["metadata"]["annotations"] == {ANNOTATION: f"gpu.fleet {RUN}: GPU 0 is lost"}
    assert planned("fail", node(cordoned=True), reason="GPU 0 is lost").patch == {}


def test_a_cordon_of_another_run_is_refused_and_can_be_taken_over() -> None:
    for note in ("gpu.fleet 20250101T000000Z_abcdef: upgrade", "gpu.fleet 20250101T000000Z: upgrade"):
        found = node(cordoned=True, note=note)
        run = note.partition(":")[0].split()[-1]
        for action in ("drain", "confirm"):
            refused = planned(action, found).refusal
            assert refused.startswith(f"the run {run} of gpu.fleet has drained it (upgrade)")
            assert refused.endswith(f"gpu_fleet_upgrade_take_over: {run}")
            assert planned(action, found, take_over=run).refusal == ""
        assert planned("drain", found, take_over=run).patch["metadata"]["annotations"] == {ANNOTATION: OWN}
        assert planned("return", found, take_over="20250101T000000Z0").patch == {}
    assert planned("confirm", node(cordoned=True)).refusal == ""
    assert planned("drain", node(note="gpu.fleet 20250101T000000Z: upgrade")).refusal == ""


OTHERS = {"key": "example.com/rack", "value": "b", "effect": "NoExecute"}
BY_HAND = {"key": TAINT, "value": "ann", "effect": "NoSchedule"}


def tainted(*values: str) -> list[dict[str, str]]:
    """The taints of the health check with these remedies."""
    return [{"key": TAINT, "value": value, "effect": "NoSchedule"} for value in values]


@pytest.mark.parametrize(
    ("line", "before", "after"),
    [
        ("FAIL: GPU 1: Xid 79; remedy reboot", None, tainted("reboot")),
        ("FAIL: GPU 1: Xid 79; remedy reboot\n", [OTHERS], [OTHERS, *tainted("reboot")]),
        ("FAIL: GPU 1: Xid 119; remedy reset_gpu", [*tainted("reboot"), OTHERS], [OTHERS, *tainted("reset_gpu")]),
        ("FAIL: GPU 1: Xid 79; remedy reboot", [*tainted("reboot"), OTHERS], None),
        ("FAIL: nothing found", None, tainted("none")),
        # What was found may quote the name of a process.
        ("FAIL: PID 7 (a; remedy service) holds it; remedy reboot", None, tainted("reboot")),
        ("FAIL: PID 7 (a; remedy x=y:NoExecute)", None, tainted("none")),
        ("FAIL: PID 7 (a); remedy surgery", None, tainted("none")),
        # An operator's, with the same key and effect.
        ("FAIL: GPU 1: Xid 79; remedy reboot", [BY_HAND], None),
        ("OK: nothing found", [*tainted("reboot"), OTHERS], [OTHERS]),
        ("INFO: an error that was corrected", tainted("reboot"), []),
        ("OK: nothing found", [OTHERS, BY_HAND], None),
        ("OK: nothing found", None, None),
        *(
            (line, found, None)
            for line in ("WARN: hot", "UNKNOWN: no verdict", "", "FAIL")
            for found in (None, tainted("reboot"))
        ),
    ],
)
def test_the_taint_of_the_health_check_alone_is_set_and_removed(line: str, before: Any, after: Any) -> None:
    found = node()
    found["spec"] = {"taints": before} if before else {}
    test = {"op": "test", "path": "/spec/taints", "value": before}
    expected = () if after is None else (test, {"op": "add", "path": "/spec/taints", "value": after})
    assert taint_patch([found], line) == expected
    assert taint_patch([], line) == ()


def test_a_tainted_node_is_drained_by_the_health_check_and_returned_by_a_remedy() -> None:
    found = node()
    found["spec"] = {"taints": [OTHERS, *tainted("reboot")]}
    reason = planned("check", found).reason
    assert reason == f"gpu.fleet.health check: the taint {TAINT}=reboot"
    note = "gpu.fleet.remedy 20260504T090000Z: reboot"
    found = {**node(cordoned=True, note=note), "spec": {"unschedulable": True, **found["spec"]}}
    assert planned("check", found).reason == note
    plan = planned("return", found, who="gpu.fleet.remedy")
    assert plan.loses_taint and plan.patch["spec"] == {"unschedulable": False}
    # An upgrade has not been asked for it, nor has another run.
    assert not planned("return", found).loses_taint
    assert not planned("return", found, who="gpu.fleet.remedy", run="20250101T000000Z").loses_taint
    # Nothing is left to remove.
    found["spec"]["taints"] = [OTHERS]
    assert not planned("return", found, who="gpu.fleet.remedy").loses_taint


def test_a_node_is_ready_by_its_own_condition() -> None:
    assert planned("return", node()).ready
    assert not planned("return", node(ready="Unknown")).ready


def test_what_would_be_lost_is_refused_without_leave() -> None:
    local, bare = pod("local", volumes=[{"emptyDir": {}}]), pod("bare", owner="")
    kept = (
        pod(volumes=[{"configMap": {}}]),
        pod("exporter", "DaemonSet", volumes=[{"emptyDir": {}}]),
        pod("done", "", "Succeeded", volumes=[{"emptyDir": {}}]),
        {**pod("static", ""), "metadata": {"name": "static", "annotations": {"kubernetes.io/config.mirror": "1"}}},
    )
    assert planned("check", node(), pods=kept).refusal == ""
    refusal = planned("check", node(), pods=(local, bare, *kept)).refusal
    assert "their data is lost: ml/local; set gpu_fleet_upgrade_kubernetes_delete_emptydir_data: true" in refusal
    assert "creates them again: ml/bare; set gpu_fleet_upgrade_kubernetes_delete_unmanaged_pods: true" in refusal
    leave = {"delete_emptydir_data": True, "delete_unmanaged_pods": True}
    assert planned("check", node(), pods=(local, bare), **leave).refusal == ""
    assert "set gpu_fleet_upgrade_kubernetes_node of the host" in planned("check").refusal


def test_the_right_to_delete_pods_is_only_needed_for_force() -> None:
    def asked(on_busy: str) -> list[dict[str, str]]:
        return [review["spec"]["resourceAttributes"] for review in planned("check", node(), on_busy=on_busy).reviews]

    assert {"verb": "create", "resource": "pods", "subresource": "eviction"} in asked("fail")
    assert {"verb": "delete", "resource": "pods"} not in asked("fail")
    assert {"verb": "delete", "resource": "pods"} in asked("force")


def test_the_right_to_read_claims_is_asked_for_where_pods_have_some() -> None:
    right = {"verb": "get", "group": "resource.k8s.io", "resource": "resourceclaims"}
    for found, is_asked in ((pod(), False), (pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "a"}]), True)):
        reviews = planned("check", node(), pods=(found,)).reviews
        assert (right in [review["spec"]["resourceAttributes"] for review in reviews]) == is_asked


@pytest.mark.parametrize(
    ("reported", "advice"),
    [
        (missing_required_lib("kubernetes"), "pip install kubernetes"),
        ("Could not create API client: Invalid kube-config file. Expected object with name prod", "kubernetes_context"),
        (
            "HTTPConnectionPool(host='10.0.0.1', port=6443): Max retries exceeded with url: /version",
            "kubectl get nodes",
        ),
        (
            (
                "Value of unknown type: <class 'urllib3.exceptions.ProtocolError'>, ('Connection aborted.', "
                "RemoteDisconnected('Remote end closed connection without response'))"
            ),
            "kubectl get nodes",
        ),
        ('Failed to retrieve: {"message":"nodes is forbidden","code":403}', "give the account the rights"),
        ("Failed to retrieve node 'gpu1' due to: Unauthorized", "renew the credentials"),
        ("Cannot evict pod as it would violate the pod's disruption budget.", "gpu_fleet_upgrade_on_busy: force"),
    ],
)
def test_an_error_names_the_node_and_what_to_do(reported: str, advice: str) -> None:
    message = explain_failure({"msg": reported}, "gpu1")
    assert message.startswith("node gpu1 of Kubernetes: ") and advice in message.partition("; ")[2], message
    assert "unknown type" not in message


def test_the_message_of_the_api_server_is_found_in_what_the_client_reports() -> None:
    reported = (
        "Exception '403 Reason: Forbidden HTTP response headers: HTTPHeaderDict({'Audit-Id': '1'}) HTTP response body: "
    )
    reported += (
        r"""b'{"kind":"Status","message":"nodes \\"gpu1\\" is forbidden: no","code":403}' Original traceback: File"""
    )
    assert explain_failure({"msg": reported}, "gpu1").startswith(
        'node gpu1 of Kubernetes: nodes "gpu1" is forbidden: no; give the account the rights'
    )


def test_a_busy_node_is_explained_by_its_pods() -> None:
    def explained(reason: str, message: str = "", count: int = 1) -> str:
        pods = [{"pod": f"ml/train{number}", "reason": reason, "message": message} for number in range(count)]
        return explain_failure({"remaining": pods}, "gpu1").removeprefix("node gpu1 of Kubernetes: ")

    assert explained("daemon_set").startswith("pods with GPUs are still on it: ml/train0; pods of a DaemonSet")
    assert "gpu_fleet_upgrade_kubernetes_pod_selectors leaves" in explained("selector")
    assert "DaemonSet" not in explained("selector")
    assert "static pods" in explained("static")
    assert "delete_emptydir_data: true" in explained("emptydir")
    assert "delete_unmanaged_pods: true" in explained("unmanaged")
    assert "a namespace that is being deleted" in explained("terminating_namespace", "403 being terminated")
    assert "evicted pods have not ended yet: ml/train0, ml/train1; see" in explained("ending", count=2)
    assert "ml/train9 and 90 more;" in explained("evicted", count=100)
    webhook = explained("refused", '403 admission webhook "guard" denied the request: no.')
    assert webhook.startswith(
        'ml/train0 was not evicted: 403 admission webhook "guard" denied the request: no; ask whoever'
    )
    assert "rights" not in webhook
    # What a webhook quotes is not about this cluster or its account.
    for message in (
        '403 admission webhook "guard" denied the request: 401 Unauthorized, conflict with a disruption budget',
        '500 Internal error occurred: failed calling webhook "guard": Post "https://10.0.0.1/": net/http: timed out',
    ):
        assert "; ask whoever runs this webhook" in explained("refused", message)


def test_a_node_that_is_not_ready_or_not_there_is_named() -> None:
    assert "it is not Ready; see" in explain_failure({"resources": [node(ready="Unknown")]}, "gpu1")
    results: tuple[dict[str, Any], ...] = ({"msg": "gpu1: no such node", "exists": False}, {"result": {}})
    for result in results:
        assert "it has been deleted from the cluster meanwhile" in explain_failure(result, "gpu1")
    for action in ("drain", "confirm", "fail", "return"):
        assert "it has been deleted from the cluster meanwhile" in planned(action).refusal
