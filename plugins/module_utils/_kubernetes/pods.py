# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods of a node are evicted, which hold GPUs, and why a node is not idle. Private to this collection.

Pure: objects as the API server returns them in, a plan out. A pod holds GPUs by the resources of the device plugin,
nvidia.com/*, or by claims of devices (DRA, https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Sequence, Tuple

Pod = Mapping[str, Any]
Claims = Mapping[Tuple[str, str], Mapping[str, Any]]
"""ResourceClaims by namespace and name; one that is missing could not be found."""

_VENDOR = "nvidia.com/"
# gpu.nvidia.com and compute-domain.nvidia.com are NVIDIA's drivers and, with mig.nvidia.com, its device classes.
_DRIVERS = ".nvidia.com"
_MIRROR = "kubernetes.io/config.mirror"
OPERAND = "nvidia.com/gpu.deploy."
"""Prefix of the labels by which the operands of NVIDIA's GPU Operator, each a DaemonSet, select their nodes."""

# Why a pod is still on a node.
DAEMON_SET = "daemon_set"
"""It is not evicted, since its DaemonSet would create it again at once."""
STATIC = "static"
EMPTYDIR = "emptydir"
UNMANAGED = "unmanaged"
SELECTOR = "selector"
"""The selectors leave it to its end."""
ENDING = "ending"
EVICTED = "evicted"
PAUSED = "paused"
"""An operand of NVIDIA's GPU Operator that the node does not select any more; its controller ends it."""
TERMINATING_NAMESPACE = "terminating_namespace"
REFUSED = "refused"
"""The API server has not let it be evicted; the message has the reason."""


@dataclass(frozen=True)
class Leave:
    """What may be lost with a pod."""

    delete_emptydir_data: bool = False
    delete_unmanaged_pods: bool = False


@dataclass(frozen=True)
class Remaining:
    """A pod that is still on a node, as NAMESPACE/NAME, and why."""

    pod: str
    reason: str
    message: str = ""


def name_of(pod: Pod) -> str:
    """NAMESPACE/NAME of a pod."""
    return "{}/{}".format(pod["metadata"].get("namespace", "default"), pod["metadata"]["name"])


def is_finished(pod: Pod) -> bool:
    """Whether all its containers have ended for good: it holds nothing of the node."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def unevicted(pod: Pod, leave: Leave) -> str:
    """Why a pod is not evicted; empty where it is."""
    metadata = pod["metadata"]
    owners = [owner.get("kind") for owner in metadata.get("ownerReferences") or ()]
    if _MIRROR in (metadata.get("annotations") or {}):
        return STATIC
    if "DaemonSet" in owners:
        return DAEMON_SET
    if not leave.delete_emptydir_data and any(
        volume.get("emptyDir") is not None for volume in pod["spec"].get("volumes") or ()
    ):
        return EMPTYDIR
    return UNMANAGED if not owners and not leave.delete_unmanaged_pods else ""


def claims_of(pod: Pod) -> Iterator[tuple[str, str]]:
    """Namespace and name of the ResourceClaims of a pod that exist or are to exist by now."""
    namespace = pod["metadata"].get("namespace", "default")
    status = pod.get("status") or {}
    made = {one["name"]: one.get("resourceClaimName") for one in status.get("resourceClaimStatuses") or ()}
    for claim in pod["spec"].get("resourceClaims") or ():
        # Of a template the controller makes a claim; with none in the status the pod needs none.
        name = claim.get("resourceClaimName") or made.get(claim["name"])
        if name:
            yield namespace, name
    # A device class may stand behind an extended resource of any name; the scheduler makes that claim.
    extended = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        yield namespace, extended


def uses_gpus(pod: Pod, claims: Claims) -> bool:
    """Whether a pod that has not ended holds GPUs, MIG devices or channels of a compute domain."""
    if is_finished(pod):
        return False
    return _requests_gpus(pod["spec"]) or any(_is_of_gpus(claims.get(key)) for key in claims_of(pod))


def _requests_gpus(spec: Mapping[str, Any]) -> bool:
    return any(
        resource.startswith(_VENDOR) and str(quantity) != "0"
        for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
        for kind in ("requests", "limits")
        for resource, quantity in ((container.get("resources") or {}).get(kind) or {}).items()
    )


def _is_of_gpus(claim: Mapping[str, Any] | None) -> bool:
    """By the drivers of what is allocated, whatever its class is; what is not known counts as GPUs."""
    if claim is None:
        return True
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return not results or any(("." + one["driver"]).endswith(_DRIVERS) for one in results)


def targets(pods: Iterable[Pod], selected: Iterable[str], leave: Leave) -> list[Pod]:
    """The selected pods to evict, without pods that have finished, that end or that are not evicted."""
    names = set(selected)
    return [
        pod
        for pod in pods
        if name_of(pod) in names
        and not is_finished(pod)
        and not pod["metadata"].get("deletionTimestamp")
        and not unevicted(pod, leave)
    ]


def is_paused(pod: Pod, labels: Mapping[str, str]) -> bool:
    """Whether a pod is an operand of NVIDIA's GPU Operator that a node with these labels is not to have."""
    selector = pod["spec"].get("nodeSelector") or {}
    return any(name.startswith(OPERAND) and labels.get(name) != value for name, value in selector.items())


def remaining(
    pods: Sequence[Pod],
    selected: Iterable[str],
    claims: Claims,
    leave: Leave,
    refused: Mapping[str, Remaining],
    *,
    labels: Mapping[str, str],
) -> list[Remaining]:
    """The pods for which a node with these labels is not idle.

    refused: by NAMESPACE/NAME those that could not be evicted just now.
    """
    names = set(selected)
    found = []
    for pod in pods:
        name, kept = name_of(pod), unevicted(pod, leave)
        if is_finished(pod):
            continue
        if kept == DAEMON_SET and is_paused(pod, labels):
            found.append(Remaining(name, PAUSED))
        elif name not in names or kept in (STATIC, DAEMON_SET):
            # Without GPUs they may stay.
            if uses_gpus(pod, claims):
                found.append(Remaining(name, kept if kept in (STATIC, DAEMON_SET) else SELECTOR))
        elif pod["metadata"].get("deletionTimestamp"):
            found.append(Remaining(name, ENDING))
        elif kept:
            found.append(Remaining(name, kept))
        else:
            found.append(refused.get(name) or Remaining(name, EVICTED))
    return found
