# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server of Kubernetes on the loopback address, with the nodes and pods that a test gives it.

It has only what draining a node needs, and replies as the published schema of the API requires: each reply is kept, so
that a test can hold it to the client's models of that schema.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TIME = "2026-05-04T09:00:00Z"
VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."
_VERBS = ("create", "delete", "get", "list", "patch")
Object = dict[str, Any]


@dataclass
class Cluster:
    """What the API server has. Pods are by `NAMESPACE/NAME`.

    budgets: how many evictions of a pod are refused before one is granted. denied: what the account may not, as
    `patch nodes/NAME` or `list pods`. requests: method and path of all, in order. replies: the name of the schema of
    each, and its body.
    """

    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)
    replies: list[tuple[str, Object]] = field(default_factory=list)
    url: str = ""

    def add_node(self, name: str, *, cordoned: bool = False, note: str = "") -> None:
        """Add a node that is ready; `note` is the annotation of an upgrade."""
        annotations = {"gpu.fleet/upgrade": note} if note else {}
        self.nodes[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "creationTimestamp": TIME, **({"annotations": annotations} if note else {})},
            "spec": {"unschedulable": True} if cordoned else {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"nvidia.com/gpu": "8"}},
        }

    def add_pod(self, node: str, name: str, owner: str = "ReplicaSet", *, local: bool = False, gpus: int = 1) -> None:
        """Add a running pod; `local` with an emptyDir volume, as for /dev/shm. Without owner it has no controller."""
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": f"of-{name}", "uid": "7"}
        resources = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
        self.pods[f"default/{name}"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"app": name},
                **({"ownerReferences": [reference]} if owner else {}),
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", **resources}],
                **({"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]} if local else {}),
            },
            "status": {"phase": "Running"},
        }

    def kubeconfig(self, path: Path, url: str = "") -> Path:
        """Write the file by which a client finds this API server, or the one at `url`; returns its path."""
        cluster = {"name": "mock", "cluster": {"server": url or self.url}}
        user = {"name": "upgrade", "user": {"token": "abc"}}
        context = {"name": "mock", "context": {"cluster": "mock", "user": "upgrade"}}
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [cluster],
                    "users": [user],
                    "contexts": [context],
                    "current-context": "mock",
                }
            )
        )
        return path

    def changes(self) -> list[tuple[str, str]]:
        """The requests that are none to read, nor questions."""
        return [one for one in self.requests if one[0] != "GET" and not one[1].endswith("accessreviews")]


def _status(code: int, reason: str, message: str) -> tuple[int, str, Object]:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "code": code}
    outcome = {"status": "Success"} if code < 300 else {"status": "Failure", "reason": reason, "message": message}
    return code, "V1Status", {**body, **outcome}


def _discovery(path: str) -> tuple[int, str, Object] | None:
    address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
    version = {"groupVersion": "authorization.k8s.io/v1", "version": "v1"}
    group = {"name": "authorization.k8s.io", "versions": [version], "preferredVersion": version}
    reviews = _resource("selfsubjectaccessreviews", "SelfSubjectAccessReview", "selfsubjectaccessreview")
    core = [_resource("nodes", "Node", "node"), {**_resource("pods", "Pod", "pod"), "namespaced": True}]
    found: Mapping[str, tuple[str, Object]] = {
        "/version": (
            "VersionInfo",
            {
                **{"major": "1", "minor": "33", "gitVersion": "v1.33.1", "gitCommit": "0", "gitTreeState": "clean"},
                **{"buildDate": TIME, "goVersion": "go1.24", "compiler": "gc", "platform": "linux/amd64"},
            },
        ),
        "/api": ("V1APIVersions", {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address}),
        "/apis": ("V1APIGroupList", {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}),
        "/api/v1": ("V1APIResourceList", {"kind": "APIResourceList", "groupVersion": "v1", "resources": core}),
        "/apis/authorization.k8s.io/v1": (
            "V1APIResourceList",
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version["groupVersion"],
                "resources": [reviews],
            },
        ),
    }
    return (200, *found[path]) if path in found else None


def _resource(name: str, kind: str, singular: str) -> Object:
    return {"name": name, "kind": kind, "singularName": singular, "namespaced": False, "verbs": list(_VERBS)}


def _merge(target: Object, patch: Mapping[str, Any]) -> None:
    """Merge as a patch of a node does: null removes. The API server leaves out what is false or empty."""
    for key, value in patch.items():
        if isinstance(value, Mapping):
            _merge(target.setdefault(key, {}), value)
            if not target[key] and key != "spec":
                del target[key]
        elif value is None or value is False:
            target.pop(key, None)
        else:
            target[key] = value


def _evict(cluster: Cluster, key: str, *, is_eviction: bool) -> tuple[int, str, Object]:
    """End a pod: it is there until it was read once more. A budget does not protect one that ends already."""
    if key not in cluster.pods:
        return _status(404, "NotFound", f'pods "{key.split("/")[1]}" not found')
    metadata = cluster.pods[key]["metadata"]
    if is_eviction and "deletionTimestamp" not in metadata and cluster.budgets.get(key, 0):
        cluster.budgets[key] -= 1
        return _status(429, "TooManyRequests", VIOLATION)
    metadata["deletionTimestamp"] = TIME
    return _status(201, "", "") if is_eviction else (200, "V1Pod", cluster.pods[key])


def _pods(cluster: Cluster, query: Mapping[str, list[str]]) -> Object:
    node = query["fieldSelector"][0].removeprefix("spec.nodeName=")
    left_out = [one.removeprefix("app!=") for one in query.get("labelSelector", [])]
    items = [
        pod
        for pod in cluster.pods.values()
        if pod["spec"]["nodeName"] == node and pod["metadata"]["labels"]["app"] not in left_out
    ]
    ending = [key for key, pod in cluster.pods.items() if pod in items and "deletionTimestamp" in pod["metadata"]]
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
    for key in ending:
        del cluster.pods[key]
    return document


def _response(cluster: Cluster, method: str, url: str, body: Object) -> tuple[int, str, Object]:
    path, query = urlsplit(url).path, parse_qs(urlsplit(url).query)
    words = path.strip("/").split("/")
    found = _discovery(path)
    if found:
        return found
    if words[-1] == "selfsubjectaccessreviews":
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"), asked.get("name"))))
        allowed = f"{asked['verb']} {resource}" not in cluster.denied
        return 201, "V1SelfSubjectAccessReview", {**body, "metadata": {}, "status": {"allowed": allowed}}
    verb = {"GET": "get" if words[2] != "pods" else "list", "POST": "create"}.get(method, method.lower())
    if cluster.denied.intersection((f"{verb} {words[2]}", f"{verb} {'/'.join(words[2:4])}")):
        return _status(403, "Forbidden", f'{words[2]} is forbidden: User "upgrade" cannot {verb} resource "{words[2]}"')
    if words[2] == "nodes":
        node = cluster.nodes.get(words[3])
        if node is None:
            return _status(404, "NotFound", f'nodes "{words[3]}" not found')
        if method == "PATCH":
            _merge(node, body)
        return 200, "V1Node", node
    if words[2] == "pods":
        return 200, "V1PodList", _pods(cluster, query)
    return _evict(cluster, f"{words[3]}/{words[5]}", is_eviction=words[-1] == "eviction")


@contextmanager
def api_server() -> Iterator[Cluster]:
    """A cluster without nodes, as long as the block lasts."""
    cluster, lock = Cluster(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        """Handles requests one by one."""

        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

        def _reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length) or b"null") or {}
            with lock:
                cluster.requests.append((self.command, urlsplit(self.path).path))
                code, schema, body = _response(cluster, self.command, self.path, sent)
                text = json.dumps(body).encode()
                cluster.replies.append((schema, json.loads(text)))
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    for method in ("GET", "POST", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler._reply)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
