# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's DRA driver as manifests: GPUs and MIG devices that pods claim. Private to this collection.

Names, rights, paths and environment come from its Helm chart with resources.computeDomains.enabled=false, as v0.4.1
has it, and as its main branch had it for 0.5 on 2026-08-07: with the policy for the image of MPS, and the right to
record events (https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu, deployments/helm/dra-driver-nvidia-gpu). The
chart's right to patch nodes is for compute domains. Device classes have the version v1 of their API, which Kubernetes
has since 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DRA_LABEL = "gpu.fleet/dra-driver"
"""The node label by which the DaemonSet of the DRA driver selects its nodes."""
_DRIVER = "gpu.nvidia.com"
_APP = "nvidia-dra-driver"
_PLUGIN = f"{_APP}-kubelet-plugin"
_REGISTRY, _PLUGINS, _CDI = "/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins", "/var/run/cdi"
_HEALTH_PORT = 51516
_RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]


FEATURE_GATES = {"time_slicing": "TimeSlicingSettings", "mps": "MPSSupport"}
"""The gates of the driver, off by default, by which the configuration of a claim may set how its GPU is shared."""


def dra_driver(
    namespace: str, image: str, taints: Sequence[tuple[str, str]], sharing: Sequence[str] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """The objects of the cluster, each with the name of its file. `image` has its tag or digest.

    `sharing` has names of FEATURE_GATES.
    """
    of_mps = [
        ("dra-driver-mps-role.yaml", _mps_role(namespace)),
        ("dra-driver-mps-binding.yaml", _mps_binding(namespace)),
    ]
    return [
        *((f"device-class-{kind}.yaml", _device_class(name, kind)) for kind, name in _CLASSES.items()),
        ("dra-driver-account.yaml", _object("v1", "ServiceAccount", _PLUGIN, namespace)),
        ("dra-driver-role.yaml", {**_object(f"{_RBAC}/v1", "ClusterRole", _PLUGIN), "rules": _rules()}),
        ("dra-driver-role-binding.yaml", _binding(namespace)),
        *(of_mps if "mps" in sharing else []),
        ("dra-driver.yaml", _daemon_set(namespace, image, taints, sharing)),
    ]


_CLASSES = {"gpu": "gpu.nvidia.com", "mig": "mig.nvidia.com"}


def _object(version: str, kind: str, name: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _device_class(name: str, kind: str) -> dict[str, Any]:
    expression = f"device.driver == '{_DRIVER}' && device.attributes['{_DRIVER}'].type == '{kind}'"
    body = _object("resource.k8s.io/v1", "DeviceClass", name)
    return {**body, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def _rules() -> list[dict[str, Any]]:
    """It publishes the devices of its node, and prepares the claims of the pods there."""
    return [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": _READ},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices"],
            "verbs": [*_READ, "create", "update", "delete"],
        },
        {"apiGroups": [""], "resources": ["nodes"], "verbs": [*_READ, "update"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": _READ},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]


def _binding(namespace: str) -> dict[str, Any]:
    return {
        **_object(f"{_RBAC}/v1", "ClusterRoleBinding", _PLUGIN),
        "subjects": [{"kind": "ServiceAccount", "name": _PLUGIN, "namespace": namespace}],
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _PLUGIN},
    }


def _mps_role(namespace: str) -> dict[str, Any]:
    """For MPS it starts a daemon for each claim, as a Deployment in its own namespace."""
    verbs = [*_READ, "create", "update", "patch", "delete"]
    rule = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}
    return {**_object(f"{_RBAC}/v1", "Role", _PLUGIN, namespace), "rules": [rule]}


def _mps_binding(namespace: str) -> dict[str, Any]:
    return {
        **_object(f"{_RBAC}/v1", "RoleBinding", _PLUGIN, namespace),
        "subjects": [{"kind": "ServiceAccount", "name": _PLUGIN, "namespace": namespace}],
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": _PLUGIN},
    }


def _daemon_set(
    namespace: str, image: str, taints: Sequence[tuple[str, str]], sharing: Sequence[str]
) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": _APP}
    mounts: list[tuple[str, str, dict[str, Any]]] = [
        ("plugins-registry", _REGISTRY, {"mountPath": _REGISTRY}),
        ("plugins", _PLUGINS, {"mountPath": _PLUGINS, "mountPropagation": "Bidirectional"}),
        ("cdi", _CDI, {"mountPath": _CDI}),
        ("driver-root", "/", {"mountPath": "/driver-root", "readOnly": True, "mountPropagation": "HostToContainer"}),
    ]
    container = {
        "name": "gpus",
        "image": image,
        "command": ["gpu-kubelet-plugin", "-v", "4"],
        "env": _environment(image, sharing),
        # It makes device nodes and mounts on the host.
        "securityContext": {"privileged": True},
        "startupProbe": {**_probe(), "periodSeconds": 1, "failureThreshold": 600},
        "livenessProbe": {**_probe(), "periodSeconds": 30, "failureThreshold": 3},
        "volumeMounts": [{"name": name, **mount} for name, _path, mount in mounts],
    }
    pod = {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": _PLUGIN,
        "nodeSelector": {DRA_LABEL: "true"},
        "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints],
        "containers": [container],
        "volumes": [{"name": name, "hostPath": {"path": path}} for name, path, _mount in mounts],
    }
    return {
        **_object("apps/v1", "DaemonSet", _PLUGIN, namespace),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _probe() -> dict[str, Any]:
    return {"grpc": {"port": _HEALTH_PORT, "service": "liveness"}, "timeoutSeconds": 10}


def _environment(image: str, sharing: Sequence[str]) -> list[Mapping[str, Any]]:
    given = {
        "NVIDIA_DRIVER_ROOT": "/",
        # NVIDIA's runtime is to give it no GPU: it finds them on the host.
        "NVIDIA_VISIBLE_DEVICES": "void",
        "NVIDIA_MIG_CONFIG_DEVICES": "all",
        "CDI_ROOT": _CDI,
        "KUBELET_REGISTRAR_DIRECTORY_PATH": _REGISTRY,
        "KUBELET_PLUGINS_DIRECTORY_PATH": _PLUGINS,
        "HEALTHCHECK_PORT": str(_HEALTH_PORT),
        # Of the daemon of MPS, with the account below.
        "IMAGE_NAME": image,
        "IMAGE_PULL_POLICY": "IfNotPresent",
    }
    if sharing:
        given["FEATURE_GATES"] = ",".join(f"{FEATURE_GATES[name]}=true" for name in sorted(sharing))
    fields = {
        "NODE_NAME": "spec.nodeName",
        "NAMESPACE": "metadata.namespace",
        "SERVICE_ACCOUNT_NAME": "spec.serviceAccountName",
    }
    return [
        *({"name": name, "value": value} for name, value in given.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]
