# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Kubernetes in a rolling upgrade: cordoned, drained, returned to service. Private to this collection.

Pure: the node and its pods as the API server returns them in, the patch of the node or the reason of a refusal out. The
playbook carries it out by the modules of kubernetes.core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import (
    HEALTH,
    REMEDY,
    UPGRADE,
    DrainReason,
    is_drain_of,
    refusal,
)
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import FAIL, INFO, OK, REMEDIES
from ansible_collections.gpu.fleet.plugins.module_utils._kubernetes import pods as of_pods

from . import _gpu_operator

ANNOTATION = "gpu.fleet/upgrade"
"""Of a node that an upgrade has cordoned: its DrainReason."""
TAINT = "gpu.fleet/unhealthy"
"""The key of the taint of a node whose verdict is `fail`. Its value is the remedy; with another one it is not ours."""

_PREFIX = "gpu_fleet_upgrade_kubernetes_"
_ANNOUNCED = re.compile(r"([A-Z]+): (?:.*; remedy ([a-z_]+))?.*")
# What an account needs to do, by the prefix of the variables that name it.
_RIGHTS = {
    _PREFIX: (
        "get and patch nodes, list pods, create pods/eviction, get resourceclaims (resource.k8s.io) where pods claim "
        "devices, and delete pods for gpu_fleet_upgrade_on_busy: force"
    ),
    "kubernetes_node_": (
        "get and patch nodes, and to get, create and patch runtimeclasses (node.k8s.io), and daemonsets (apps) and "
        "configmaps in kubernetes_node_namespace; for kubernetes_node_taint_unhealthy to list nodes; for "
        "kubernetes_node_gpus_by: dra_driver also deviceclasses "
        "(resource.k8s.io), serviceaccounts in that namespace, clusterroles and clusterrolebindings"
    ),
}
_MESSAGE = re.compile(r'"message": ?"(.*?)(?<!\\)"')
# What kubernetes.core puts before an exception that it does not know.
_UNKNOWN = re.compile(r"Value of unknown type: <class '[^']*'>, ")
# What the modules and the client report, and what to do then.
_ADVICE = {
    # First: such a message quotes others, and neither rights nor another file help.
    r"denied (?:the )?request|failed calling webhook": (
        "ask whoever runs this webhook or policy; the eviction is tried again until the limit"
    ),
    r"required Python library": (
        "install the Python package kubernetes for that interpreter (pip install kubernetes, or your distribution's "
        "python3-kubernetes), or set {prefix}host to a host that has it"
    ),
    r"certificate verify failed|CERTIFICATE_VERIFY_FAILED": (
        "set certificate-authority of the cluster in the file of {prefix}kubeconfig to its CA"
    ),
    r"Could not create API client|Invalid kube-config|No such file|Could not find or access": (
        "set {prefix}kubeconfig to a file on the host that reads it, and {prefix}context to a context of it"
    ),
    (
        r"Max retries exceeded|Connection refused|[Tt]imed out|NewConnectionError|Name or service not known|not replied"
        r"|Connection aborted|Connection reset|Connection broken"
    ): (
        "check whether `kubectl get nodes` reaches the cluster from the host that runs the modules, and check "
        "{prefix}kubeconfig and {prefix}context"
    ),
    r"\b401\b|Unauthorized": "renew the credentials in the file of {prefix}kubeconfig",
    r"test failed": "another program has changed its taints in between; run this again",
    r"\bconflict": (
        "another manager owns these fields (see `kubectl get --show-managed-fields`); let it give them up, or leave "
        "them to it: kubernetes_node_gpu_labels: false for labels of gpu-feature-discovery"
    ),
    r"namespaces? \S+ not found": "create the namespace, or set kubernetes_node_namespace",
    r"\b403\b|[Ff]orbidden": "give the account the rights to {rights}",
    r"disruption budget": (
        "give its application another replica on another node, or set gpu_fleet_upgrade_on_busy: force, which deletes "
        "the pod anyway"
    ),
}
_DELETED = "it has been deleted from the cluster meanwhile, so it is left alone"
_MOST_PODS = 10
# By the reason of a pod that is left. Whoever keeps it there: a DaemonSet, or the selectors of the user.
_LEFT = {
    of_pods.DAEMON_SET: (
        "pods with GPUs are still on it: {pods}; pods of a DaemonSet are not evicted, so keep them off the node with a "
        "hook before_drain"
    ),
    of_pods.STATIC: (
        "static pods with GPUs are on it: {pods}; remove their manifests from the host with a hook before_drain"
    ),
    of_pods.SELECTOR: (
        f"pods with GPUs that {_PREFIX}pod_selectors leaves have not ended yet: {{pods}}; see what they run"
    ),
    of_pods.EMPTYDIR: (
        f"pods with emptyDir volumes are not evicted: {{pods}}; set {_PREFIX}delete_emptydir_data: true, which loses "
        "their data"
    ),
    of_pods.UNMANAGED: (
        "pods without a controller are not evicted, since nothing creates them again: {pods}; set "
        f"{_PREFIX}delete_unmanaged_pods: true to lose them"
    ),
    of_pods.TERMINATING_NAMESPACE: (
        "pods of a namespace that is being deleted have not ended yet: {pods}; see `kubectl get namespaces`"
    ),
    of_pods.PAUSED: (
        "pods of NVIDIA's GPU Operator have not ended yet, though their labels of the node are paused: {pods}; see "
        "`kubectl describe daemonset` of theirs"
    ),
    **dict.fromkeys(
        (of_pods.ENDING, of_pods.EVICTED),
        "evicted pods have not ended yet: {pods}; see `kubectl get pods --all-namespaces "
        "--field-selector spec.nodeName={name}`",
    ),
}


@dataclass(frozen=True)
class NodePlan:
    """The known state of a node, and what it needs.

    `patch` is of the node, empty if nothing changes, `cordon` whether it is cordoned after it. `own`: this run
    has cordoned it. `reason`: why it is cordoned, empty where no upgrade has. `refusal`: why it cannot be drained,
    empty where it can. `reviews`: the questions to the API server whether the account may drain it. `dra_driver`: it
    has the one of NVIDIA's GPU Operator, which is paused last. `loses_taint`: of the health check.
    """

    patch: Mapping[str, Any]
    own: bool
    cordoned: bool
    ready: bool
    reason: str
    refusal: str = ""
    reviews: Sequence[Mapping[str, Any]] = ()
    cordon: bool = False
    dra_driver: bool = False
    loses_taint: bool = False


def plan_node(
    action: str,
    resources: Sequence[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> NodePlan:
    """The plan for `check`, `drain`, `confirm`, `pause`, `fail` or `return` of a node.

    Operands of NVIDIA's GPU Operator are paused by `drain`, but for its DRA driver, which is by `pause`.

    resources: the nodes of this name, so at most one. pods: those that would be evicted. options: `name`, `who`,
    `run`, `reason`, `take_over`, `on_busy`, `delete_emptydir_data` and `delete_unmanaged_pods`; `mig`: whether a MIG
    layout is declared for the host.
    """
    name = options["name"]
    if not resources:
        missing = f"the cluster has no such node; set {_PREFIX}node of the host" if action == "check" else _DELETED
        return NodePlan({}, False, False, False, "", missing)
    metadata, spec = resources[0]["metadata"], resources[0].get("spec") or {}
    annotation = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    cordoned = bool(spec.get("unschedulable"))
    ours = DrainReason(options.get("who", UPGRADE), options["run"], options["reason"])
    taken_over = options.get("take_over", "")
    own = cordoned and bool(options["run"]) and is_drain_of(annotation, ours.owner, taken_over)
    of_other_run = refusal(annotation, ours.owner, taken_over) if cordoned else ""
    desired = ours.text
    patch: dict[str, Any] = {}
    if action in ("drain", "fail") and (not cordoned or (own and annotation != desired)):
        patch = _patch(desired, cordon=True)
    elif action == "return" and own:
        patch = _patch(None, cordon=False)
    if not of_other_run:
        patch = _with_metadata(patch, _operands(action, metadata))
    refused, reviews = "", list[dict[str, Any]]()
    if action == "check":
        claims = any(True for pod in pods for _claim in of_pods.claims_of(pod))
        refused, reviews = _refusal(pods, options), _reviews(name, options["on_busy"], claims=claims)
        if options.get("mig"):
            refused = "; ".join(filter(None, (_gpu_operator.mig_refusal(metadata), refused)))
    elif action in ("drain", "confirm"):
        refused = of_other_run
    if action in ("check", "drain", "confirm"):
        refused = "; ".join(filter(None, (_gpu_operator.node_refusal(metadata), refused)))
    return NodePlan(
        {"apiVersion": "v1", "kind": "Node", **_with_metadata(patch, {"name": name})} if patch else {},
        own,
        cordoned,
        _is_ready(resources[0]),
        annotation if cordoned else _reason_of_taint(spec),
        refused,
        reviews,
        cordon=patch.get("spec", {}).get("unschedulable", cordoned),
        dra_driver=_gpu_operator.has_dra_driver(metadata),
        # A remedy has judged the host, as it takes over a drain of the health check.
        loses_taint=action == "return" and own and ours.who == REMEDY and bool(_reason_of_taint(spec)),
    )


def taint_patch(resources: Sequence[Mapping[str, Any]], line: str) -> Sequence[Mapping[str, Any]]:
    """The JSON patch (RFC 6902) by which a node gets or loses the taint of the health check; empty for no change.

    It fails where the taints of the node are not those that were read. resources: the nodes of its name, so at most
    one. line: what the program `status` of the health check has printed.
    """
    return _taints(resources[0].get("spec") or {}, *_announced(line)) if resources else ()


def has_taint(node: Mapping[str, Any]) -> bool:
    """Whether a node has the taint of the health check."""
    return bool(_reason_of_taint(node.get("spec") or {}))


def gets_taint(node: Mapping[str, Any], line: str) -> bool:
    """Whether a node without the taint of the health check gets it by this line."""
    return _announced(line)[0] == FAIL and not has_taint(node) and bool(taint_patch([node], line))


def _is_taint_of_ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("key") == TAINT and taint.get("value") in REMEDIES


def _reason_of_taint(spec: Mapping[str, Any]) -> str:
    """Why a node takes no new pods, as the reason of a drain by the health check; empty without its taint."""
    values = [one["value"] for one in spec.get("taints") or () if _is_taint_of_ours(one)]
    return DrainReason(HEALTH, "check", f"the taint {TAINT}={values[0]}").text if values else ""


def _announced(line: str) -> tuple[str, str]:
    """Verdict and remedy in the line of the health check. Findings may have any words, so the last one counts."""
    found = _ANNOUNCED.fullmatch(line.strip())
    remedy = (found[2] if found else "") or "none"
    return found[1].lower() if found else "", remedy if remedy in REMEDIES else "none"


def _taints(spec: Mapping[str, Any], verdict: str, remedy: str = "none") -> Sequence[Mapping[str, Any]]:
    """The JSON patch by which a node has the taint with `fail`, and does not with `ok` and `info`; none with others."""
    before = [dict(one) for one in spec.get("taints") or ()]
    kept = [one for one in before if not _is_taint_of_ours(one)]
    own = {"key": TAINT, "value": remedy, "effect": "NoSchedule"}
    # One of an operator with this key, since a node has one of each key and effect.
    is_taken = any((one.get("key"), one.get("effect")) == (own["key"], own["effect"]) for one in kept)
    after = [*kept, own] if verdict == FAIL and not is_taken else kept
    if after == before or (own in before and own in after) or verdict not in (FAIL, OK, INFO):
        return ()
    return (
        {"op": "test", "path": "/spec/taints", "value": before or None},
        {"op": "add", "path": "/spec/taints", "value": after},
    )


def _operands(action: str, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata to patch for the operands of NVIDIA's GPU Operator; a node that fails keeps them paused."""
    if action in ("drain", "pause"):
        return _gpu_operator.pause(metadata, dra_driver=action == "pause")
    return _gpu_operator.resume(metadata) if action == "return" else {}


def explain_failure(result: Mapping[str, Any], name: str, variables: str = _PREFIX) -> str:
    """The result of a task that has failed on the node `name`, in the words of a user: what, where, what to do.

    variables: the prefix of those that name cluster and account.
    """
    # Of a loop, whose own message has no reason.
    result = next((one for one in result.get("results") or () if one.get("failed")), result)
    resources = result.get("resources") or ()
    # What a stage has refused stands as it is.
    _host, is_explained, explained = str(result.get("msg")).partition(at_node(name, ""))
    if is_explained:
        return at_node(name, explained)
    if denied(result):
        cause = f"the account may not {', '.join(denied(result))}; give it the rights to {_RIGHTS[variables]}"
    elif is_missing(result):
        cause = (
            f"the cluster has no node {name}; join it first, or set {variables}name to its name in `kubectl get nodes`"
        )
    elif result.get("exists") is False or ("result" in result and not result["result"]):
        cause = _DELETED
    elif result.get("remaining"):
        cause = "; ".join(_left(result["remaining"], name, variables))
    elif any(one.get("kind") == "Node" for one in resources):
        cause = "it is not Ready; see `systemctl status kubelet` and `journalctl -u kubelet` on the host"
    else:
        cause = _with_advice(_cause(str(result.get("msg") or "no message")), variables)
    return at_node(name, cause)


def is_missing(result: Mapping[str, Any]) -> bool:
    """Whether a result of k8s_info has none of what was asked for."""
    return "resources" in result and not result["resources"]


def at_node(name: str, text: str) -> str:
    """A statement about the node of this name."""
    return f"node {name} of Kubernetes: {text}"


def _left(remaining: Iterable[Mapping[str, str]], name: str, variables: str) -> Iterator[str]:
    """Why these pods, as kubernetes_evict returns them, are still on a node, and what to do."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in remaining:
        by_reason.setdefault((one["reason"], one["message"]), []).append(one["pod"])
    for (reason, message), pods in by_reason.items():
        shown = ", ".join(pods[:_MOST_PODS]) + (f" and {len(pods) - _MOST_PODS} more" if pods[_MOST_PODS:] else "")
        text = _LEFT.get(reason)
        if text:
            yield text.format(pods=shown, name=name)
        else:
            yield _with_advice(f"{shown} was not evicted: {message}", variables)


def _with_advice(cause: str, variables: str) -> str:
    advice = next((text for pattern, text in _ADVICE.items() if re.search(pattern, cause)), "")
    advice = advice.format(prefix=variables, rights=_RIGHTS[variables])
    return f"{cause.rstrip('.')}; {advice}" if advice else cause


def _cause(reported: str) -> str:
    """The message of the API server, where one is among headers and a traceback; otherwise the first 300 characters."""
    text = " ".join(reported.removeprefix("Task failed: ").removeprefix("Module failed: ").split())
    message = _MESSAGE.search(text)
    return message[1].replace("\\", "") if message else _UNKNOWN.sub("", text)[:300]


def _patch(annotation: str | None, *, cordon: bool) -> dict[str, Any]:
    """Cordon and annotation in one request, so that a killed run leaves no cordon without its reason."""
    return {"metadata": {"annotations": {ANNOTATION: annotation}}, "spec": {"unschedulable": cordon}}


def _with_metadata(patch: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A patch with further metadata, in the same request for the same reason."""
    if not more:
        return dict(patch)
    metadata = patch.get("metadata") or {}
    annotations = {**metadata.get("annotations", {}), **more.get("annotations", {})}
    return {**patch, "metadata": {**metadata, **more, **({"annotations": annotations} if annotations else {})}}


def _reviews(name: str, on_busy: str, *, claims: bool) -> list[dict[str, Any]]:
    asked: list[dict[str, str]] = [
        {"verb": "patch", "resource": "nodes", "name": name},
        {"verb": "list", "resource": "pods"},
        {"verb": "create", "resource": "pods", "subresource": "eviction"},
    ]
    if on_busy == "force":
        asked.append({"verb": "delete", "resource": "pods"})
    if claims:
        asked.append({"verb": "get", "group": "resource.k8s.io", "resource": "resourceclaims"})
    return [review(one) for one in asked]


def review(attributes: Mapping[str, str]) -> dict[str, Any]:
    """The question to the API server whether the account may do this."""
    spec = {"resourceAttributes": dict(attributes)}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}


def _refusal(pods: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    """Which pods would not be evicted for want of leave."""
    leave = of_pods.Leave(options["delete_emptydir_data"], options["delete_unmanaged_pods"])
    kept = [(of_pods.unevicted(pod, leave), of_pods.name_of(pod)) for pod in pods if not of_pods.is_finished(pod)]
    local = [name for reason, name in kept if reason == of_pods.EMPTYDIR]
    unmanaged = [name for reason, name in kept if reason == of_pods.UNMANAGED]
    reasons = []
    for names, option, what, loss in (
        (local, "delete_emptydir_data", "pods with emptyDir volumes", "their data is lost"),
        (unmanaged, "delete_unmanaged_pods", "pods without a controller", "nothing creates them again"),
    ):
        if names:
            reasons.append(
                f"{what} would be evicted, and {loss}: {', '.join(names)}; set {_PREFIX}{option}: true, or leave them "
                f"to end by themselves with {_PREFIX}pod_selectors"
            )
    return "; ".join(reasons)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def denied(result: Mapping[str, Any]) -> list[str]:
    """What the reviews of a SelfSubjectAccessReview deny, as `create pods/eviction`."""
    replies = result.get("result")
    found = []
    for one in replies.get("results") or () if isinstance(replies, Mapping) else ():
        asked_for = one["result"]
        # Other objects have no such status.
        if (asked_for.get("status") or {}).get("allowed") is False:
            asked = asked_for["spec"]["resourceAttributes"]
            subresource = f"/{asked['subresource']}" if asked.get("subresource") else ""
            found.append(f"{asked['verb']} {asked['resource']}{subresource}")
    return list(dict.fromkeys(found))
