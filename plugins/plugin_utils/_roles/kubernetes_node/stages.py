# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a GPU node of Kubernetes, and what the tasks of kubernetes_node get of it, by stages.

Private to this collection. Pure: variables, facts and replies of the API server in.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..._gpu_operator import OnHost, host_refusals
from ..._kubernetes_cap import Heard, held_taints
from ..._kubernetes_drain import at_node, denied, explain_failure, taint_patch
from ..._planning.contract import Outlook, Plan, RolePlanner
from .manifests import Manifest, manifests, reviews, unapplied, variant
from .plan import OTHERS, Request, device_list_strategy, labels, mig_strategy, node_refusals

KUBERNETES_NODE = "kubernetes_node"
ANNOUNCE, APPLY, RECORD, REMOVE, UNLABEL, WRITE = "announce", "apply", "record", "remove", "unlabel", "write"
"""Steps: the taint of the verdict, manifests to the cluster and into the record of the node, and their removal."""
_CONTROLLER = "localhost"
_PREFIX = f"{KUBERNETES_NODE}_"


@dataclass(frozen=True)
class Host:
    """What is known of the node.

    nvidia_smi: the facts of that name. toolkit: what the role nvidia_container_toolkit has recorded, or {}. operator:
    what host_facts has found of NVIDIA's GPU Operator. recorded: the manifests that the role has written there.
    """

    nvidia_smi: Mapping[str, Any]
    toolkit: Mapping[str, Any] = field(default_factory=dict)
    operator: OnHost = field(default_factory=OnHost)
    recorded: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any], operator: Mapping[str, bool]) -> Host:
        """The node with these facts."""
        return cls(
            nvidia_smi=facts["nvidia_smi"],
            toolkit=_recorded(facts, "nvidia_container_toolkit"),
            operator=OnHost(**operator),
            recorded=tuple(_recorded(facts, KUBERNETES_NODE).get("files") or ()),
        )


def _recorded(facts: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    record = (facts.get("gpu_fleet_managed") or {}).get(role) or {}
    return record.get("data") or {}


def plan(request: Request, host: Host) -> Plan:
    """The labels and objects of the node."""
    gpus: Sequence[Mapping[str, Any]] = host.nvidia_smi.get("gpus") or ()
    of_mig, of_lists = mig_strategy(request, gpus), device_list_strategy(request, host.toolkit)
    refusals = (
        *request.refusals,
        *node_refusals(request, gpus, host.toolkit, (of_mig, of_lists)),
        *host_refusals((KUBERNETES_NODE,), host.operator),
    )
    if refusals:
        return Plan(refusals=refusals)
    of_node = labels(request, host.nvidia_smi, of_mig, variant(request, of_mig, of_lists))
    objects = manifests(request, of_node, of_mig, of_lists)
    files = [posixpath.join(request.directory, each.file) for each in objects]
    steps = {WRITE: True, RECORD: not request.directory_host, APPLY: request.applies}
    return Plan(
        steps=tuple(step for step, is_due in steps.items() if is_due),
        tasks={
            "mig_strategy": of_mig,
            "device_list_strategy": of_lists,
            "labels": of_node,
            "taint": request.parsed_taint,
            "manifests": [asdict(each) for each in objects],
            "reviews": list(reviews(objects)),
            "files": files,
            # Also files of another strategy, and of a directory that was declared before.
            "recorded": list(dict.fromkeys([*host.recorded, *files])),
        },
    )


# Stages


def _request(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Refuses what is wrong whatever the node has, and names what the tasks do where; `host`: its name."""
    request = Request.read(variables)
    directory_host = request.directory_host or str(given["host"])
    steps = {
        ANNOUNCE: request.is_present and request.applies and request.announces,
        WRITE: request.is_present,
        UNLABEL: not request.is_present and request.applies,
        REMOVE: not request.is_present,
    }
    return Plan(
        refusals=request.refusals,
        steps=tuple(step for step, is_due in steps.items() if is_due),
        tasks={
            "environment": request.environment,
            "directory_host": directory_host,
            "becomes": directory_host != _CONTROLLER,
            "file": posixpath.join(request.directory, request.node_file),
            "taint": request.parsed_taint,
        },
    )


def _cluster(variables: Mapping[str, Any], _facts: Mapping[str, Any], _given: Mapping[str, Any]) -> Mapping[str, Any]:
    """How the cluster is reached, for what needs no other variable."""
    return {"environment": Request.read(variables).environment}


def _cap(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Why hosts of the play get no taint, by name: `held`.

    Of the hosts in `hosts`, `announced` has what the health check has printed and `joined` what the stage `check` has
    returned, each empty where it did not run. `nodes`: all of the cluster of `host`.
    """
    heard = [
        Heard(str(host), str(joined["node"]), str(printed.get("stdout") or ""), joined["cluster"])
        for host, printed, joined in zip(given["hosts"], given["announced"], given["joined"], strict=True)
        if printed and joined.get("node")
    ]
    cap = Request.read(variables).cap
    held = {} if cap.refusal else held_taints(cap, given["nodes"], heard, str(given["host"]))
    more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
    return Plan(
        refusals=tuple(filter(None, [cap.refusal])),
        warnings=tuple(f"{first}{more}" for first in list(held.values())[:1]),
        tasks={"held": held},
    )


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    return plan(Request.read(variables), Host.of(facts, given["operator"]))


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> tuple[str, ...]:
    """Refusals by the GPUs and by how the container toolkit is set up, as far as no role before changes them."""
    request, gpus = Request.read(variables), outlook.gpus(facts)
    if request.refusals or not request.is_present or not gpus:
        return request.refusals
    known = {} if "nvidia_container_toolkit" in outlook.coming else _recorded(facts, "nvidia_container_toolkit")
    strategies = mig_strategy(request, gpus["gpus"]), device_list_strategy(request, known)
    return tuple(node_refusals(request, gpus["gpus"], known, strategies))


def _check(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Refuses a node that the cluster does not have, and an account that may not apply the manifests."""
    name = str(variables[f"{_PREFIX}name"])
    replies = given.get("reviews") or {}
    missing = (
        f"the cluster has no node {name}; join it first, or set kubernetes_node_name to its name in `kubectl get nodes`"
    )
    return Plan(
        (
            *([] if given["resources"] else [at_node(name, missing)]),
            *([explain_failure(replies, name, _PREFIX)] if denied(replies) else []),
        ),
        # Hosts with the same ones are of the same cluster.
        tasks={"node": name, "cluster": [str(variables[f"{_PREFIX}api_host"]), Request.read(variables).environment]},
    )


def _taint(_variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The patch by which a node has the taint of its verdict; `announced` is the line of the health check."""
    return {"patch": list(taint_patch(given["resources"], str(given["announced"])))}


def _verify(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Refuses a cluster that has something else than the plan; `read` are results of k8s_info."""
    objects = [each for result in given["read"] for each in result["resources"]]
    found = list(unapplied([Manifest(**each) for each in given["manifests"]], given["taint"], objects))
    text = f"the cluster did not accept the manifests: {'; '.join(found)}"
    return Plan((at_node(str(variables[f"{_PREFIX}name"]), text),) if found else ())


def _failure(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """Explains the failed `result` of a task about the cluster."""
    result: Mapping[str, Any] = given["result"]
    # What a stage has refused stands as it is.
    message = str(result.get("msg") or "").removeprefix(f"{given['host']}: ")
    return Plan((explain_failure({**result, "msg": message}, str(variables[f"{_PREFIX}name"]), _PREFIX),))


def _removal(_variables: Mapping[str, Any], facts: Mapping[str, Any], _given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recorded manifests, and their directories."""
    files = list(_recorded(facts, KUBERNETES_NODE).get("files") or ())
    return {"files": files, "directories": list(dict.fromkeys(map(posixpath.dirname, files)))}


PLANNER = RolePlanner(
    "kubernetes_node",
    {
        "plan": _plan,
        "request": _request,
        "cluster": _cluster,
        "cap": _cap,
        "check": _check,
        "taint": _taint,
        "verify": _verify,
        "failure": _failure,
        "removal": _removal,
    },
    others=OTHERS,
    reads=("kubernetes_node_api_host", "kubernetes_node_directory", "kubernetes_node_name"),
    refuses=_refusals,
)
