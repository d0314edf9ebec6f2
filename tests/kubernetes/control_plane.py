# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real control plane of Kubernetes on the loopback address: API server with RBAC, controllers, scheduler, etcd.

The programs are those of the directory in GPU_FLEET_KUBERNETES, with etcd there or of this machine. There is no
kubelet: a thread reports nodes as ready and pods as running, and ends pods that are deleted, as kwok does.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "GPU_FLEET_KUBERNETES"
TOKEN = "of-the-tests"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"
ENDS_AFTER = "test/ends-after"
"""Annotation of a pod: seconds that it needs to end; 1 without it."""

Object = dict[str, Any]


class RefusedError(Exception):
    """A reply of the API server that is an error."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code} {body}")
        self.code = code


def programs() -> str:
    """What is missing for the tests, empty where nothing is."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return f"set {VARIABLE} to a directory with kube-apiserver, kube-controller-manager and kube-scheduler"
    names = {path.name for path in Path(given).iterdir()} if Path(given).is_dir() else set()
    controllers = "kube-controllers" in names or {"kube-controller-manager", "kube-scheduler"} <= names
    if "kube-apiserver" not in names or not controllers:
        return f"{VARIABLE}: {given} has no kube-apiserver, or no kube-controller-manager and kube-scheduler"
    return "" if _etcd(Path(given)) else f"there is no etcd in {given}, and none of the package etcd-server"


def _etcd(directory: Path) -> str:
    return str(directory / "etcd") if (directory / "etcd").exists() else shutil.which("etcd") or ""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _number in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@dataclass
class ControlPlane:
    """Its programs by name, and requests to it as its administrator.

    with_kubelet: names of the nodes that have one, for which nothing is reported here.
    """

    directory: Path
    url: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    with_kubelet: set[str] = field(default_factory=set)

    @property
    def certificate(self) -> Path:
        """The certificate of the API server, which is its own CA."""
        return self.directory / "apiserver.crt"

    def start(self, name: str) -> None:
        """Start a program, as after its end."""
        log = (self.directory / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            self.commands[name], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def wait(self, seconds: float = 120) -> None:
        """Wait until the API server serves requests."""
        end = time.monotonic() + seconds
        while True:
            with suppress(OSError, RefusedError, ssl.SSLError):
                self.get("/readyz", text=True)
                return
            for name, process in self.processes.items():
                assert process.poll() is None, (self.directory / f"{name}.log").read_text()[-2000:]
            assert time.monotonic() < end, (self.directory / "kube-apiserver.log").read_text()[-2000:]
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill the API server: connections to it are refused from now on, until it is started again."""
        self.processes["kube-apiserver"].kill()
        self.processes["kube-apiserver"].wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The API server accepts connections, and replies to nothing."""
        process = self.processes["kube-apiserver"]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def request(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", token: str = TOKEN
    ) -> bytes:
        """The reply to a request; raises RefusedError."""
        asked = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": kind, "Authorization": f"Bearer {token}"},
        )
        context = ssl.create_default_context(cafile=str(self.certificate))
        try:
            with urllib.request.urlopen(asked, context=context, timeout=30) as reply:
                found: bytes = reply.read()
                return found
        except urllib.error.HTTPError as error:
            raise RefusedError(error.code, error.read().decode(errors="replace")) from None

    def get(self, path: str, *, text: bool = False) -> Any:
        """The object or list at a path."""
        found = self.request("GET", path)
        return found.decode() if text else json.loads(found)

    def exists(self, path: str) -> bool:
        """Whether there is an object at a path."""
        try:
            self.get(path)
        except RefusedError as error:
            assert error.code == 404, error
            return False
        return True

    def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection."""
        created: Object = json.loads(self.request("POST", path, body))
        return created

    def patch(self, path: str, body: Object, kind: str = _MERGE) -> None:
        """Patch an object."""
        self.request("PATCH", path, body, kind=kind)

    def delete(self, path: str) -> None:
        """Delete an object without a grace period."""
        self.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    def kubeconfig(self, path: Path, url: str = "", *, token: str = TOKEN, trusted: bool = True) -> Path:
        """Write the file by which a client finds this API server, or the one at `url`; returns its path."""
        authority = {"certificate-authority": str(self.certificate)} if trusted else {}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": {"server": url or self.url, **authority}}],
            "users": [{"name": "upgrade", "user": {"token": token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "upgrade"}}],
            "current-context": "real",
        }
        path.write_text(json.dumps(document))
        return path

    def account(self, name: str, rules: Sequence[Mapping[str, Any]]) -> str:
        """Make a service account with these rules in the whole cluster; returns its token."""
        rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        path = "/apis/rbac.authorization.k8s.io/v1"
        self.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
        self.create(f"{path}/clusterroles", {**rbac, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
        self.create(
            f"{path}/clusterrolebindings",
            {
                **rbac,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
            },
        )
        # Longer than all tests take on a busy machine.
        spec = {"expirationSeconds": 24 * 3600}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token = self.create(f"/api/v1/namespaces/default/serviceaccounts/{name}/token", asked)["status"]["token"]
        return str(token)

    def add_node(
        self,
        name: str,
        *,
        cordoned: bool = False,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Add a node with eight GPUs that is ready at once."""
        metadata = {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})}
        self.create("/api/v1/nodes", {"metadata": metadata, "spec": {"unschedulable": cordoned}})
        _report_node(self, name)

    @contextmanager
    def reporting(self, name: str) -> Iterator[None]:
        """The status of a node changes all the time."""
        done = threading.Event()

        def report() -> None:
            for number in itertools.count():
                if done.wait(0.02):
                    return
                _report_node(self, name, f"report {number}")

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def node(self, name: str) -> Object:
        """A node."""
        found: Object = self.get(f"/api/v1/nodes/{name}")
        return found

    def cordoned(self, *names: str) -> set[str]:
        """Those of the nodes that take no pods."""
        return {name for name in names if self.node(name)["spec"].get("unschedulable")}

    def add_pod(
        self, node: str, name: str, owner: str = "Job", *, namespace: str = "default", gpus: int = 1, **given: Any
    ) -> None:
        """Add a pod on a node; `given` is the rest of its spec, and `annotations` and `finalizers` of its metadata."""
        metadata: Object = {"name": name, "labels": {"app": name}}
        metadata |= {key: given.pop(key) for key in ("annotations", "finalizers") if key in given}
        if owner:
            version = "batch/v1" if owner == "Job" else "apps/v1"
            metadata["ownerReferences"] = [
                {"apiVersion": version, "kind": owner, "name": f"of-{name}", "uid": f"0-{name}"}
            ]
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **given,
        }
        self.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": spec})
        self.wait_for(lambda: (self.pod(name, namespace) or {}).get("status", {}).get("phase") == "Running")

    def pod(self, name: str, namespace: str = "default") -> Object | None:
        """A pod, None where there is none."""
        try:
            found: Object = self.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except RefusedError as error:
            assert error.code == 404, error
            return None
        return found

    def clear(self) -> None:
        """Delete what tests have left: nodes, what makes pods, pods, budgets, claims.

        The API server is started or goes on again where a test that failed has left it killed or stopped.
        """
        if self.processes["kube-apiserver"].poll() is not None:
            self.start("kube-apiserver")
        self.processes["kube-apiserver"].send_signal(signal.SIGCONT)
        self.wait()
        for path in (
            "/apis/apps/v1/deployments",
            "/apis/apps/v1/replicasets",
            "/apis/apps/v1/daemonsets",
            "/api/v1/nodes",
            "/apis/policy/v1/poddisruptionbudgets",
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            "/apis/resource.k8s.io/v1/resourceclaimtemplates",
            "/apis/resource.k8s.io/v1/resourceclaims",
            "/apis/resource.k8s.io/v1/resourceslices",
            "/apis/resource.k8s.io/v1/deviceclasses",
        ):
            self._delete_all(path)
        # The controller of a daemon set that is gone may make a pod still, so none must be found for a second.
        found = [1] * 5

        def is_clear() -> bool:
            found.append(self._delete_all("/api/v1/pods"))
            return not any(found[-5:])

        self.wait_for(is_clear)

    def _delete_all(self, path: str) -> int:
        """Delete the objects of a kind in all namespaces; returns how many there were. A kubelet keeps its node."""
        collection, _slash, plural = path.rpartition("/")
        found = [one for one in self.get(path)["items"] if one["metadata"]["name"] not in self.with_kubelet]
        for one in found:
            metadata = one["metadata"]
            namespace = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            with suppress(RefusedError):
                own = f"{collection}{namespace}/{plural}/{metadata['name']}"
                if metadata.get("finalizers"):
                    self.patch(own, {"metadata": {"finalizers": None}})
                self.delete(own)
        return len(found)

    def pods(self, node: str) -> set[str]:
        """Names of the pods on a node."""
        return {
            each["metadata"]["name"] for each in self.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node}")["items"]
        }

    def add_budget(self, name: str) -> None:
        """A PodDisruptionBudget that lets no pod of this name be evicted."""
        body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}}
        path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        self.create(path, body)
        self.wait_for(lambda: "observedGeneration" in self.get(f"{path}/{name}").get("status", {}))

    @staticmethod
    def wait_for(condition: Any, seconds: float = 600) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.2)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _report_node(plane: ControlPlane, name: str, message: str = "of the tests") -> None:
    resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    condition = {"type": "Ready", "status": "True", "reason": "Kubelet", "message": message}
    times = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
    status = {"capacity": resources, "allocatable": resources, "conditions": [{**condition, **times}]}
    plane.patch(f"/api/v1/nodes/{name}/status", {"status": status}, _STRATEGIC)


class _Kubelets(threading.Thread):
    """What the kubelets of all nodes would report."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(daemon=True)
        self._plane = plane
        self._ending: dict[str, float] = {}
        self.stopped = threading.Event()

    def run(self) -> None:
        """Report until it is stopped; while the API server is not there, nothing."""
        while not self.stopped.wait(0.25):
            # A test stops or kills the API server, and removes what was just read.
            with suppress(OSError, RefusedError, json.JSONDecodeError, http.client.HTTPException):
                for pod in self._plane.get("/api/v1/pods?resourceVersion=0")["items"]:
                    if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in self._plane.with_kubelet:
                        with suppress(RefusedError):
                            self._report(pod)

    def _report(self, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            since = self._ending.setdefault(metadata["uid"], time.monotonic())
            if time.monotonic() - since >= float((metadata.get("annotations") or {}).get(ENDS_AFTER, "1")):
                self._plane.delete(path)
        elif (pod.get("status") or {}).get("phase") == "Pending":
            now, kinds = _now(), ("Initialized", "ContainersReady", "Ready")
            conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
            status = {"phase": "Running", "startTime": now, "conditions": conditions}
            self._plane.patch(f"{path}/status", {"status": status}, _STRATEGIC)


@contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    """The control plane with data, certificates and logs in a directory, as long as the block lasts."""
    given = Path(os.environ[VARIABLE]).resolve()
    client, peer, port, *others = _free_ports(5)
    plane = ControlPlane(directory, f"https://127.0.0.1:{port}")
    key, public = directory / "accounts.key", directory / "accounts.pub"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    subprocess.run(["openssl", "rsa", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    (directory / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
    etcd = f"http://127.0.0.1:{client}"
    peers = f"http://127.0.0.1:{peer}"
    kubeconfig = str(plane.kubeconfig(directory / "kubeconfig"))
    plane.commands = {
        "etcd": [
            _etcd(given),
            f"--data-dir={directory}/etcd",
            *(f"--{kind}-client-urls={etcd}" for kind in ("listen", "advertise")),
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        ],
        "kube-apiserver": [
            str(given / "kube-apiserver"),
            f"--etcd-servers={etcd}",
            *("--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}"),
            f"--cert-dir={directory}",
            f"--token-auth-file={directory}/tokens.csv",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={public}",
            f"--service-account-signing-key-file={key}",
            *("--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.96.0.0/16"),
            *("--allow-privileged=true", "--endpoint-reconciler-type=none", "--shutdown-delay-duration=0s"),
        ],
    }
    if (given / "kube-controllers").exists():
        plane.commands["kube-controllers"] = [str(given / "kube-controllers"), kubeconfig]
    else:
        local = ("--leader-elect=false", "--bind-address=127.0.0.1", f"--kubeconfig={kubeconfig}")
        plane.commands["kube-controller-manager"] = [
            str(given / "kube-controller-manager"),
            *(*local, f"--secure-port={others[0]}", f"--service-account-private-key-file={key}"),
            *("--node-monitor-grace-period=24h", "--controllers=*,-garbage-collector-controller,-node-ipam-controller"),
        ]
        plane.commands["kube-scheduler"] = [
            str(given / "kube-scheduler"),
            *(*local, f"--secure-port={others[1]}"),
        ]
    kubelets = _Kubelets(plane)
    try:
        plane.start("etcd")
        plane.start("kube-apiserver")
        plane.wait()
        for name in plane.commands.keys() - plane.processes.keys():
            plane.start(name)
        # Without its account, which a controller makes, a namespace takes no pod.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        plane.wait_for(lambda: plane.exists(account))
        kubelets.start()
        yield plane
    finally:
        kubelets.stopped.set()
        for process in reversed(plane.processes.values()):
            # None of them has anything to keep.
            process.kill()
            process.wait()
