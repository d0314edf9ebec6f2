# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of a GPU node of Kubernetes: RuntimeClass, device plugin, MPS daemon and node.

Private to this collection. Pure: no Ansible.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..._kubernetes_drain import review
from .dra import dra_driver
from .plan import DRA_DRIVER, ENVVAR, NONE, OF_CDI, PLUGIN_LABEL, Request

FIELD_MANAGER = "gpu-fleet"
"""By server-side apply the labels that are no longer in the manifest are removed, labels of others are kept."""
_RESOURCES = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "DeviceClass": "deviceclasses",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "DaemonSet": "daemonsets",
    "Node": "nodes",
    "RuntimeClass": "runtimeclasses",
}
_APP, _MPS_APP, _MPS_ROOT = "nvidia-device-plugin", "nvidia-mps-control-daemon", "/run/nvidia/mps"
_CONFIG_DIRECTORY, _CONFIG_FILE = "/config", "config.yaml"
_KUBELET_DIRECTORY, _CDI_DIRECTORY = "/var/lib/kubelet/device-plugins", "/var/run/cdi"


@dataclass(frozen=True)
class Manifest:
    """An object of the API, and the name of its file."""

    file: str
    body: Mapping[str, Any]


def variant(request: Request, mig_strategy: str, device_lists: str) -> str:
    """The variant of the device plugin."""
    sharing = request.sharing
    # Another configuration is another DaemonSet, which nodes change to by their label.
    digest = f"-{hashlib.sha256(sharing.encode()).hexdigest()[:8]}" if sharing else ""
    return f"{mig_strategy}-{device_lists}{digest}"


def manifests(
    request: Request, labels: Mapping[str, str], mig_strategy: str, device_lists: str
) -> tuple[Manifest, ...]:
    """All objects of a node, in the order in which they are applied."""
    name, sharing = variant(request, mig_strategy, device_lists), request.sharing
    found = []
    if request.runtime_class:
        file = f"runtime-class-{request.runtime_class}.yaml"
        found.append(Manifest(file, _runtime_class(request.runtime_class)))
    if sharing:
        found.append(Manifest(f"device-plugin-config-{name}.yaml", _config_map(request, name, sharing)))
    if request.gpus_by == DRA_DRIVER:
        driver = dra_driver(request.namespace, request.driver_image, request.tolerated, request.dra_sharing)
        found += [Manifest(*one) for one in driver]
    else:
        if request.mps:
            found.append(Manifest(f"mps-control-daemon-{name}.yaml", _mps_daemon(request, name, mig_strategy)))
        body = _device_plugin(request, name, mig_strategy, device_lists)
        found.append(Manifest(f"device-plugin-{name}.yaml", body))
    return (*found, Manifest(request.node_file, _node(str(request.node), labels)))


def reviews(of: Sequence[Manifest]) -> Iterator[Mapping[str, Any]]:
    """The questions whether the account may apply these; a node is never created, and its taint is a patch as well."""
    for body in (manifest.body for manifest in of):
        group = body["apiVersion"].rpartition("/")[0]
        resource = {"group": group, "resource": _RESOURCES[body["kind"]]}
        resource |= {key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]}
        for verb in ("get", "patch") if body["kind"] == "Node" else ("get", "create", "patch"):
            yield review({"verb": verb, **resource})


def _config_map(request: Request, variant: str, sharing: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{_APP}-{variant}", "namespace": request.namespace},
        "data": {_CONFIG_FILE: sharing},
    }


def _runtime_class(name: str) -> dict[str, Any]:
    # The handler is the name of the runtime in the configuration of containerd and CRI-O.
    return {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "nvidia"}


def _node(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    # Without taints: the list belongs to one manager as a whole, and Kubernetes has taints of its own in it.
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels)}}


def _device_plugin(request: Request, variant: str, mig_strategy: str, device_lists: str) -> dict[str, Any]:
    """The DaemonSet of the nodes with this variant."""
    name = f"{_APP}-{variant}"
    labels = {"app.kubernetes.io/name": _APP, PLUGIN_LABEL: variant}
    mounts, volumes = _volumes(device_lists)
    environment = list(_environment(mig_strategy, device_lists))
    if request.replicas:
        mounts.append({"name": "config", "mountPath": _CONFIG_DIRECTORY})
        volumes.append({"name": "config", "configMap": {"name": name}})
        environment.append({"name": "CONFIG_FILE", "value": f"{_CONFIG_DIRECTORY}/{_CONFIG_FILE}"})
    if request.mps:
        mounts += _MPS_MOUNTS
        volumes += _MPS_VOLUMES
        environment.append({"name": "MPS_ROOT", "value": _MPS_ROOT})
    pod: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {PLUGIN_LABEL: variant},
        "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in request.tolerated],
        "containers": [
            {
                "name": _APP,
                "image": request.plugin_image,
                "env": environment,
                "securityContext": _security_context(mig_strategy, device_lists),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }
    return _daemon_set(request, name, labels, pod)


def _mps_daemon(request: Request, variant: str, mig_strategy: str) -> dict[str, Any]:
    """The DaemonSet of the plugin's MPS daemon, as deployments/helm has it: it mounts memory on the host and sets the
    compute mode, for which it is privileged; its clients are not."""
    labels = {"app.kubernetes.io/name": _MPS_APP, PLUGIN_LABEL: variant}
    image = request.plugin_image
    environment = {
        "MIG_STRATEGY": mig_strategy,
        "CONFIG_FILE": f"{_CONFIG_DIRECTORY}/{_CONFIG_FILE}",
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    pod: dict[str, Any] = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {PLUGIN_LABEL: variant},
        "tolerations": [{"key": key, "operator": "Exists", "effect": effect} for key, effect in request.tolerated],
        # Its servers look up their own process id on the host.
        "hostPID": True,
        "initContainers": [
            {
                "name": "mount-shm",
                "image": image,
                "command": ["mps-control-daemon", "mount-shm"],
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "mps-root", "mountPath": "/mps", "mountPropagation": "Bidirectional"}],
            }
        ],
        "containers": [
            {
                "name": _MPS_APP,
                "image": image,
                "command": ["mps-control-daemon"],
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                "securityContext": {"privileged": True},
                "volumeMounts": [*_MPS_MOUNTS, {"name": "config", "mountPath": _CONFIG_DIRECTORY}],
            }
        ],
        "volumes": [*_MPS_VOLUMES, {"name": "config", "configMap": {"name": f"{_APP}-{variant}"}}],
    }
    return _daemon_set(request, f"{_MPS_APP}-{variant}", labels, pod)


def _daemon_set(request: Request, name: str, labels: Mapping[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    if request.runtime_class:
        pod["runtimeClassName"] = request.runtime_class
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": request.namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


_MPS_MOUNTS = ({"name": "mps-shm", "mountPath": "/dev/shm"}, {"name": "mps-root", "mountPath": "/mps"})
_MPS_VOLUMES = (
    {"name": "mps-root", "hostPath": {"path": _MPS_ROOT, "type": "DirectoryOrCreate"}},
    {"name": "mps-shm", "hostPath": {"path": f"{_MPS_ROOT}/shm"}},
)


def _volumes(device_lists: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes of the plugin. For CDI it reads the host's driver, and writes a specification about it."""
    mounts: list[dict[str, Any]] = [{"name": "device-plugins", "mountPath": _KUBELET_DIRECTORY}]
    paths = [("device-plugins", _KUBELET_DIRECTORY, "Directory")]
    if device_lists in OF_CDI:
        mounts += [
            {"name": "driver-root", "mountPath": "/driver-root", "readOnly": True},
            {"name": "cdi", "mountPath": _CDI_DIRECTORY},
        ]
        paths += [("driver-root", "/", "Directory"), ("cdi", _CDI_DIRECTORY, "DirectoryOrCreate")]
    return mounts, [{"name": name, "hostPath": {"path": path, "type": kind}} for name, path, kind in paths]


def _environment(mig_strategy: str, device_lists: str) -> Iterator[dict[str, str]]:
    given = {"MIG_STRATEGY": mig_strategy, "DEVICE_LIST_STRATEGY": device_lists}
    if device_lists in OF_CDI:
        given["NVIDIA_DRIVER_ROOT"] = "/"
    if mig_strategy != NONE:
        given["NVIDIA_MIG_MONITOR_DEVICES"] = "all"
    given |= {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    for name, value in given.items():
        yield {"name": name, "value": value}


def _security_context(mig_strategy: str, device_lists: str) -> dict[str, Any]:
    """Without rights where the runtime gives any container the GPUs that its environment names, otherwise SYS_ADMIN.

    It is what MIG's monitor device needs, and by which NVIDIA's runtime distinguishes the plugin from an ordinary pod.
    """
    if mig_strategy == NONE and device_lists == ENVVAR:
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"capabilities": {"add": ["SYS_ADMIN"]}}


# What the cluster has


def unapplied(of: Sequence[Manifest], taint: Mapping[str, str] | None, objects: Sequence[Any]) -> Iterator[str]:
    """How the objects that were read from the API differ from the manifests and the taint."""
    read = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    for manifest in of:
        kind, name = manifest.body["kind"], manifest.body["metadata"]["name"]
        actual = read.get((kind, name))
        if actual is None:
            yield f"{kind} {name} does not exist"
            continue
        for text in differences(manifest.body, actual):
            yield f"{kind} {name}: {text}"
        taints = (actual.get("spec") or {}).get("taints") or ()
        if kind == "Node" and taint and not any(next(differences(taint, each), None) is None for each in taints):
            yield f"{kind} {name} does not have the taint {taint['key']} with the effect {taint['effect']}"


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """Where an object of the API lacks what a manifest has; what the API server adds is no difference."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key, value in expected.items():
            yield from differences(value, actual.get(key), f"{path}.{key}" if path else str(key))
    elif _is_list(expected) and _is_list(actual) and len(expected) == len(actual):
        for index, value in enumerate(expected):
            yield from differences(value, actual[index], f"{path}[{index}]")
    elif expected != actual:
        yield f"{path} is {actual!r} instead of {expected!r}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
