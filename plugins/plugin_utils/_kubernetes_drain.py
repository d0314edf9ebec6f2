# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes in a rolling upgrade: cordoned, drained, returned to service. Private to this collection.

Pure: the node and its pods as the API server returns them in, the patch of the node or the reason of a refusal out. The
playbook carries it out by the modules of kubernetes.core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import (
    UPGRADE,
    DrainReason,
    is_drain_of,
    refusal,
)

ANNOTATION = "gpu.fleet/upgrade"
"""Of a node that an upgrade has cordoned: its DrainReason. Until version 1.0.0 it began with the id of the run."""

_PREFIX = "gpu_fleet_upgrade_kubernetes_"
_VENDOR = "nvidia.com/"
_MIRROR = "kubernetes.io/config.mirror"
_RIGHTS = (
    "get and patch nodes, list and get pods, create pods/eviction, and delete pods for gpu_fleet_upgrade_on_busy: force"
)
_MESSAGE = re.compile(r'"message": ?"(.*?)(?<!\\)"')
# What the modules and the client report, and what to do then.
_ADVICE = {
    r"required Python library": (
        "install the Python package kubernetes for that interpreter (pip install kubernetes, or your distribution's "
        f"python3-kubernetes), or set {_PREFIX}host to a host that has it"
    ),
    r"Could not create API client|Invalid kube-config|No such file": (
        f"set {_PREFIX}kubeconfig to a file on the host that reads it, and {_PREFIX}context to a context of it"
    ),
    r"Max retries exceeded|Connection refused|timed out|NewConnectionError|Name or service not known": (
        "see whether `kubectl get nodes` reaches the cluster from the host that runs the modules, and check "
        f"{_PREFIX}kubeconfig and {_PREFIX}context"
    ),
    r"\b401\b|Unauthorized": f"renew the credentials in the file of {_PREFIX}kubeconfig",
    r"\b403\b|[Ff]orbidden": f"give the account the rights to {_RIGHTS}",
    r"disruption budget": (
        "give its application another replica on another node, or set gpu_fleet_upgrade_on_busy: force, which deletes "
        "the pod all the same"
    ),
}


@dataclass(frozen=True)
class NodePlan:
    """What is known of a node, and what is to be done with it.

    `patch` is of the node, empty where nothing is to be done. `own`: this run has cordoned it. `reason`: why it is
    cordoned, empty where no upgrade has. `refusal`: why it cannot be drained, empty where it can. `reviews`: the
    questions to the API server whether the account may drain it.
    """

    patch: Mapping[str, Any]
    own: bool
    cordoned: bool
    ready: bool
    reason: str
    refusal: str = ""
    reviews: Sequence[Mapping[str, Any]] = ()


def plan_node(
    action: str,
    resources: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> NodePlan:
    """The plan for `check`, `drain`, `confirm`, `fail` or `return` of a node.

    resources: the nodes of this name, so at most one. pods: those that would be evicted. options: `name`, `run`,
    `reason`, `take_over`, `on_busy`, `delete_emptydir_data` and `delete_unmanaged_pods`.
    """
    name = options["name"]
    if not resources:
        return NodePlan({}, False, False, False, "", f"the cluster has no such node; set {_PREFIX}node of the host")
    metadata, spec = resources[0]["metadata"], resources[0].get("spec") or {}
    annotation = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    cordoned = bool(spec.get("unschedulable"))
    if annotation and not annotation.startswith(UPGRADE):
        annotation = f"{UPGRADE} {annotation}"
    ours = DrainReason(UPGRADE, options["run"], options["reason"])
    taken_over = options.get("take_over", "")
    own = cordoned and bool(options["run"]) and is_drain_of(annotation, ours.owner, taken_over)
    desired = ours.text
    patch: dict[str, Any] = {}
    if action in ("drain", "fail") and (not cordoned or (own and annotation != desired)):
        patch = _patch(name, desired, cordon=True)
    elif action == "return" and own:
        patch = _patch(name, None, cordon=False)
    refused, reviews = "", list[dict[str, Any]]()
    if action == "check":
        refused, reviews = _refusal(pods, options), _reviews(name, options["on_busy"])
    elif action in ("drain", "confirm") and cordoned:
        refused = refusal(annotation, ours.owner, taken_over)
    return NodePlan(patch, own, cordoned, _is_ready(resources[0]), annotation if cordoned else "", refused, reviews)


def gpu_pods(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """The pods that hold GPUs or MIG devices, as NAMESPACE/NAME: they request nvidia.com/* and have not ended."""
    return [_name(pod) for pod in pods if not _is_finished(pod) and _requests_gpus(pod)]


def explain_failure(result: Mapping[str, Any], name: str) -> str:
    """The result of a task that has failed on the node `name`, in the words of a user: what, where, what to do."""
    resources = result.get("resources") or ()
    pods = gpu_pods(resources)
    denied = _denied(result)
    if pods:
        cause = (
            f"pods with GPUs are still on it: {', '.join(pods)}; a pod of a DaemonSet is not evicted, so keep it off "
            "the node by a hook before_drain"
        )
    elif denied:
        cause = f"the account may not {', '.join(denied)}; give it the rights to {_RIGHTS}"
    elif any(one.get("kind") == "Node" for one in resources):
        cause = "it is not Ready; see `systemctl status kubelet` and `journalctl -u kubelet` on the host"
    elif result.get("msg") and not str(result.get("result", "")).endswith("from node."):
        cause = _cause(str(result["msg"]))
        cause += next((f"; {advice}" for pattern, advice in _ADVICE.items() if re.search(pattern, cause)), "")
    else:
        selector = f"--field-selector spec.nodeName={name}"
        cause = f"evicted pods have not ended yet; see `kubectl get pods --all-namespaces {selector}`"
    return f"node {name} of Kubernetes: {cause}"


def _cause(reported: str) -> str:
    """The message of the API server, where one is among headers and a traceback; otherwise the first 300 characters."""
    text = " ".join(reported.removeprefix("Task failed: ").removeprefix("Module failed: ").split())
    message = _MESSAGE.search(text)
    return message[1].replace("\\", "") if message else text[:300]


def _patch(name: str, annotation: str | None, *, cordon: bool) -> dict[str, Any]:
    """Cordon and annotation in one request, so that a killed run leaves no cordon without its reason."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {ANNOTATION: annotation}},
        "spec": {"unschedulable": cordon},
    }


def _reviews(name: str, on_busy: str) -> list[dict[str, Any]]:
    asked: list[dict[str, str]] = [
        {"verb": "patch", "resource": "nodes", "name": name},
        {"verb": "list", "resource": "pods"},
        {"verb": "create", "resource": "pods", "subresource": "eviction"},
    ]
    if on_busy == "force":
        asked.append({"verb": "delete", "resource": "pods"})
    return [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": one},
        }
        for one in asked
    ]


def _refusal(pods: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    """Why k8s_drain would refuse these pods: it judges a pod by the first of these that fits."""
    local: list[str] = []
    unmanaged: list[str] = []
    for pod in pods:
        metadata = pod["metadata"]
        owners = [owner["kind"] for owner in metadata.get("ownerReferences") or ()]
        if _MIRROR in (metadata.get("annotations") or {}) or _is_finished(pod) or "DaemonSet" in owners:
            continue
        if any(volume.get("emptyDir") is not None for volume in pod["spec"].get("volumes") or ()):
            local.append(_name(pod))
        elif not owners:
            unmanaged.append(_name(pod))
    reasons = []
    for names, option, what, loss in (
        (local, "delete_emptydir_data", "pods with emptyDir volumes", "their data is lost"),
        (unmanaged, "delete_unmanaged_pods", "pods without a controller", "nothing creates them again"),
    ):
        if names and not options[option]:
            reasons.append(
                f"{what} would be evicted, and {loss}: {', '.join(names)}; set {_PREFIX}{option}: true, or leave them "
                f"to end by themselves with {_PREFIX}pod_selectors"
            )
    return "; ".join(reasons)


def _requests_gpus(pod: Mapping[str, Any]) -> bool:
    spec = pod["spec"]
    return any(
        resource.startswith(_VENDOR) and str(quantity) != "0"
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        for kind in ("requests", "limits")
        for resource, quantity in ((container.get("resources") or {}).get(kind) or {}).items()
    )


def _is_finished(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _denied(result: Mapping[str, Any]) -> list[str]:
    """What the reviews of a SelfSubjectAccessReview deny, as `create pods/eviction`."""
    found = result.get("result")
    denied = []
    for one in found.get("results") or () if isinstance(found, Mapping) else ():
        review = one["result"]
        if not review["status"]["allowed"]:
            asked = review["spec"]["resourceAttributes"]
            subresource = f"/{asked['subresource']}" if asked.get("subresource") else ""
            denied.append(f"{asked['verb']} {asked['resource']}{subresource}")
    return denied


def _name(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
