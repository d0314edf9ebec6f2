# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kubernetes_evict: which pods are evicted, which have GPUs, and what is done with each reply of an API server."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, RunError
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes.api import connect
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes.evict import run
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes.pods import uses_gpus

PARAMS = {
    "name": "gpu1",
    "pods": "evict",
    "pod_selectors": [],
    "delete_emptydir_data": False,
    "delete_unmanaged_pods": False,
}
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def pod(name: str = "train", owner: str = "Job", phase: str = "Running", **given: Any) -> dict[str, Any]:
    """A pod; `given` is the rest of its spec, with `metadata` and `status` as such."""
    metadata = {"name": name, "namespace": "ml", "uid": f"0-{name}", **given.pop("metadata", {})}
    owners = {"ownerReferences": [{"kind": owner}]} if owner else {}
    status = {"phase": phase, **given.pop("status", {})}
    return {"metadata": {**metadata, **owners}, "spec": {"containers": [{"name": "main"}], **given}, "status": status}


class Server:
    """An API server with these pods; replies: status and body by the name of a pod that is ended."""

    def __init__(
        self,
        *pods: Mapping[str, Any],
        replies: Mapping[str, tuple[int, Any]] | None = None,
        objects: Mapping[str, Any] | None = None,
    ) -> None:
        self.pods = pods
        self.replies = replies or {}
        self.objects = objects or {}
        self.sent: list[tuple[str, str]] = []

    def send(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None) -> tuple[int, str]:
        """The reply to a request."""
        self.sent.append((method, path))
        if path in self.objects:
            found = self.objects[path]
            return (200, json.dumps(found)) if isinstance(found, dict) else found
        if path == "/api/v1/nodes/gpu1":
            return 200, "{}"
        if path == "/api/v1/pods":
            left = [one for one in self.pods if one["metadata"]["name"] not in query.get("labelSelector", "")]
            return 200, json.dumps({"items": left})
        if method == "GET":
            return 404, ""
        assert body is not None
        options = body if method == "DELETE" else body["deleteOptions"]
        name = path.split("/")[6]
        assert options["preconditions"] == {"uid": f"0-{name}"}
        status, reply = self.replies.get(name, (201, {}))
        return status, reply if isinstance(reply, str) else json.dumps(reply)


def result(server: Server, *, check_mode: bool = False, **given: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The result of the module, and by pod why it is still there."""
    found = run({**PARAMS, **given}, check_mode, server.send)
    return found, {one["pod"].removeprefix("ml/"): one["reason"] for one in found["remaining"]}


def test_only_pods_that_may_be_lost_are_evicted() -> None:
    local: dict[str, Any] = {"volumes": [{"name": "shm", "emptyDir": {}}]}
    pods = (
        pod("train"),
        pod("local", **local),
        pod("bare", ""),
        pod("done", "", "Succeeded", **local),
        pod("exporter", "DaemonSet", **local),
        pod("burn", "DaemonSet", containers=[GPU]),
        pod("static", "Node", metadata={"annotations": {"kubernetes.io/config.mirror": "1"}}),
        pod("ending", metadata={"deletionTimestamp": "2026-05-04T09:00:00Z"}),
        pod("notebook", containers=[GPU]),
        pod("web"),
    )
    server = Server(*pods)
    found, left = result(server, pod_selectors=["app notin (notebook, web)"])
    kept = {"local": "emptydir", "bare": "unmanaged", "burn": "daemon_set", "notebook": "selector"}
    assert left == {"train": "evicted", "ending": "ending", **kept}
    assert found["evicted"] == ["ml/train"] and found["changed"] and not found["idle"]
    posts = [path for method, path in server.sent if method == "POST"]
    assert posts == ["/api/v1/namespaces/ml/pods/train/eviction"]

    _found, left = result(Server(*pods[:3]), delete_emptydir_data=True, delete_unmanaged_pods=True)
    assert left == dict.fromkeys(("train", "local", "bare"), "evicted")
    server = Server(*pods[:1])
    found, _left = result(server, check_mode=True)
    assert (
        found["changed"] and found["evicted"] == ["ml/train"] and {method for method, _path in server.sent} == {"GET"}
    )
    server = Server(*pods[:1])
    assert result(server, pods="delete")[0]["evicted"] == ["ml/train"]
    assert server.sent[-1] == ("DELETE", "/api/v1/namespaces/ml/pods/train")
    found, left = result(Server(pods[3], pods[4]))
    assert found["idle"] and not found["changed"] and not left


def test_one_that_is_refused_does_not_keep_the_others() -> None:
    terminating = {
        "message": "pods is forbidden: unable to create new content in namespace ml because it is being terminated",
        "details": {"causes": [{"reason": "NamespaceTerminating"}]},
    }
    replies: dict[str, tuple[int, Any]] = {
        "guarded": (429, {"message": "it would violate\nthe budget"}),
        "old": (403, terminating),
        "proxied": (502, "<html>bad gateway</html>"),
        "listed": (500, "[]"),
        "hostile": (403, {"message": "no\r\n\x1b[2J\u202e\u2028fatal: [other]" + "x" * 5000}),
        "gone": (404, {}),
        "replaced": (409, {}),
    }
    server = Server(*map(pod, [*replies, "last"]), replies=replies)
    found, left = result(server)
    refused = dict.fromkeys(("guarded", "proxied", "listed", "hostile"), "refused")
    assert left == {
        **refused,
        "old": "terminating_namespace",
        **dict.fromkeys(("gone", "replaced", "last"), "evicted"),
    }
    messages = [one["message"] for one in found["remaining"]]
    assert messages[0] == "429 it would violate the budget" and messages[2] == "502 <html>bad gateway</html>"
    [shown] = [message for message in messages if "fatal" in message]
    assert shown.startswith("403 no [2J fatal: [other]xxx") and shown.isprintable() and len(shown) == 300
    with pytest.raises(ChangeError, match="401 Unauthorized"):
        result(Server(pod(), replies={"train": (401, {"message": "Unauthorized"})}))
    with pytest.raises(RunError, match="no such node") as raised:
        result(Server(objects={"/api/v1/nodes/gpu1": (404, "")}))
    assert raised.value.result == {"exists": False}
    with pytest.raises(ChangeError, match="403 pods is forbidden"):
        result(Server(objects={"/api/v1/pods": (403, '{"message": "pods is forbidden"}')}))


@pytest.mark.parametrize(
    ("resources", "is_held"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, True),
        ({"requests": {"nvidia.com/mig-1g.18gb": "2"}}, True),
        ({"limits": {"nvidia.com/gpu": "0"}}, False),
        ({"limits": {"cpu": "1", "amd.com/gpu": "1"}}, False),
        ({}, False),
    ],
)
def test_pods_with_gpus_keep_a_node_busy(resources: dict[str, Any], is_held: bool) -> None:
    container = {"name": "main", "resources": resources}
    assert uses_gpus(pod(containers=[container]), {}) == is_held
    assert uses_gpus(pod(containers=[{"name": "main"}], initContainers=[container]), {}) == is_held
    assert not uses_gpus(pod(containers=[container], phase="Succeeded"), {})


def _claim(*drivers: str) -> dict[str, Any]:
    results = [{"driver": driver, "request": "gpu", "adminAccess": True} for driver in drivers]
    return {"status": {"allocation": {"devices": {"results": results}}} if drivers else {}}


DIRECT: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}]}
TEMPLATE = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a"}]},
}
EXTENDED = {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "a", "requestMappings": []}}}


@pytest.mark.parametrize("given", [DIRECT, TEMPLATE, EXTENDED])
@pytest.mark.parametrize(
    ("claim", "is_held"),
    [
        (_claim("gpu.nvidia.com"), True),
        (_claim("dra.net", "compute-domain.nvidia.com"), True),
        (_claim("dra.net"), False),
        (_claim("fakenvidia.com"), False),
        # What is not allocated or not found is not known.
        (_claim(), True),
        (None, True),
    ],
)
def test_a_pod_with_a_claim_of_gpus_keeps_a_node_busy(
    given: dict[str, Any], claim: dict[str, Any] | None, is_held: bool
) -> None:
    found = pod("burn", "DaemonSet", **json.loads(json.dumps(given)))
    assert uses_gpus(found, {("ml", "a"): claim} if claim else {}) == is_held
    claims = {"/apis/resource.k8s.io/v1beta2/namespaces/ml/resourceclaims/a": claim} if claim else {}
    group = {"/apis/resource.k8s.io": {"preferredVersion": {"groupVersion": "resource.k8s.io/v1beta2"}}}
    _found, left = result(Server(found, objects={**group, **claims}))
    assert left == ({"burn": "daemon_set"} if is_held else {})


def test_a_claim_that_may_not_be_read_is_no_idle_node() -> None:
    denied = (403, '{"message": "resourceclaims is forbidden"}')
    group = {"/apis/resource.k8s.io": {"preferredVersion": {"groupVersion": "resource.k8s.io/v1"}}}
    path = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/a"
    with pytest.raises(ChangeError, match="403 resourceclaims is forbidden"):
        result(Server(pod("burn", "DaemonSet", **DIRECT), objects={**group, path: denied}))
    unmade = pod("waits", "DaemonSet", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    assert not uses_gpus(unmade, {})


def test_a_request_to_a_server_that_hangs_ends_by_itself(tmp_path: Path) -> None:
    """It accepts the connection and never replies; the timeout is the float of the module's option."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        config = {
            "clusters": [{"name": "one", "cluster": {"server": url}}],
            "users": [{"name": "one", "user": {"token": "of-the-tests"}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            "current-context": "one",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        module = SimpleNamespace(params={"kubeconfig": str(tmp_path / "kubeconfig")}, fail_json=pytest.fail)
        send = connect(module, 0.5)
        with pytest.raises(ChangeError, match="the API server has not replied"):
            send("GET", "/api/v1/nodes/gpu1", {}, None)
