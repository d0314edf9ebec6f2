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
from ..._kubernetes_drain import at_node, denied, explain_failure, gets_taint, is_missing, taint_patch
from ..._planning.contract import Ask, Outlook, Plan, Reading, RolePlanner, unread
from .manifests import FIELD_MANAGER, Manifest, manifests, reviews, unapplied, variant
from .plan import OTHERS, Request, device_list_strategy, labels, mig_strategy, node_refusals

KUBERNETES_NODE = "kubernetes_node"
ANNOUNCE, APPLY, RECORD, REMOVE, UNLABEL, WRITE = "announce", "apply", "record", "remove", "unlabel", "write"
"""Steps: the taint of the verdict, manifests to the cluster and into the record of the node, and their removal."""
_CONTROLLER = "localhost"
_PREFIX = f"{KUBERNETES_NODE}_"
_INFO, _APPLY = "kubernetes.core.k8s_info", "kubernetes.core.k8s"
# Most of the list of all nodes, and nobody counts it.
_UNCOUNTED = ("status", "metadata.managedFields", "metadata.annotations")
_GPUS: Reading = ("gpu.fleet.nvidia_smi_facts", {"gather_subset": ["hardware", "mig"]})
_MANAGED: Reading = ("gpu.fleet.host_facts", {"gather": ["managed"]})
_RECORD: Reading = ("gpu.fleet.managed_facts", {})


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
        UNLABEL: not request.is_present and request.applies,
    }
    return Plan(
        refusals=request.refusals,
        steps=tuple(step for step, is_due in steps.items() if is_due),
        tasks={
            "environment": request.environment,
            "field_manager": FIELD_MANAGER,
            "directory_host": directory_host,
            "becomes": directory_host != _CONTROLLER,
            "file": posixpath.join(request.directory, request.node_file),
            "taint": request.parsed_taint,
        },
    )


def _cluster(variables: Mapping[str, Any], _facts: Mapping[str, Any], _given: Mapping[str, Any]) -> Plan:
    """How the cluster is reached, for what needs no other variable than the cap."""
    request = Request.read(variables)
    # Hosts with the same `cluster` are of the same one.
    found = {"environment": request.environment, "cluster": [variables[f"{_PREFIX}api_host"], request.environment]}
    return Plan(refusals=tuple(filter(None, [request.cap.refusal])), tasks=found)


def _cap(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """Why hosts of the play get no taint, by name: `held`.

    Of the hosts in `hosts`, `announced` has what the health check has printed, `clusters` what the stage of that name
    has returned, and `found` the node, each empty where it did not run. The cluster of `host` is counted.
    """
    hosts = zip(given["hosts"], given["announced"], given["clusters"], given["found"], strict=True)
    heard = [
        Heard(str(host), str(nodes[0]["metadata"]["name"]), str(printed.get("stdout") or ""), reached["cluster"])
        for host, printed, reached, found in hosts
        if printed and (nodes := found.get("resources"))
    ]
    if not any(gets_taint({}, one.line) for one in heard):
        return Plan(tasks={"held": {}})
    asked = unread(given, {"nodes": (_INFO, {"kind": "Node", "hidden_fields": [*_UNCOUNTED]})})
    if asked:
        return asked
    held = held_taints(Request.read(variables).cap, given["nodes"], heard, str(given["host"]))
    more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
    return Plan(warnings=tuple(f"{first}{more}" for first in list(held.values())[:1]), tasks={"held": held})


def _plan(variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """Labels and manifests, or the recorded manifests that are removed, and their directories."""
    request = Request.read(variables)
    asked = unread(given, {"gpus": _GPUS, "managed": _MANAGED} if request.is_present else {"record": _RECORD})
    if asked:
        return asked
    if request.is_present:
        return plan(request, Host.of(facts, given["managed"]["gpu_operator"]))
    files = list(_recorded(facts, KUBERNETES_NODE).get("files") or ())
    return Plan(
        steps=(REMOVE,), tasks={"files": files, "directories": list(dict.fromkeys(map(posixpath.dirname, files)))}
    )


def _refusals(variables: Mapping[str, Any], facts: Mapping[str, Any], outlook: Outlook) -> tuple[str, ...]:
    """Refusals by the GPUs and by how the container toolkit is set up, as far as no role before changes them."""
    request, gpus = Request.read(variables), outlook.gpus(facts)
    if request.refusals or not request.is_present or not gpus:
        return request.refusals
    known = {} if "nvidia_container_toolkit" in outlook.coming else _recorded(facts, "nvidia_container_toolkit")
    strategies = mig_strategy(request, gpus["gpus"]), device_list_strategy(request, known)
    return tuple(node_refusals(request, gpus["gpus"], known, strategies))


def _check(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """Refuses a node that the cluster does not have, and `manifests` that the account may not apply, or others own.

    Applied to a name that does not exist, it would be a node without a kubelet.
    """
    name, of = str(variables[f"{_PREFIX}name"]), [Manifest(**each) for each in given["manifests"]]
    options = {"apply": True, "server_side_apply": {"field_manager": FIELD_MANAGER}}
    # Dry runs of the API server, which replies to the questions and stores nothing.
    asks: tuple[dict[str, Reading], ...] = (
        {"node": (_INFO, {"kind": "Node", "name": name}), "reviews": (_APPLY, {"definition": list(reviews(of))})},
        {"applied": (_APPLY, {"definition": [one.body for one in of], **options})},
    )
    for each in asks:
        asked = unread(given, each)
        if asked:
            return asked
        refusals = _explained(name, *(given[one] for one in each))
        if refusals:
            return Plan(refusals)
    return Plan()


def _explained(name: str, *results: Mapping[str, Any]) -> tuple[str, ...]:
    """Why these results are of no use, empty where they are."""
    return tuple(
        explain_failure(one, name, _PREFIX)
        for one in results
        if is_missing(one) or denied(one) or any(each.get("failed") for each in one.get("results") or (one,))
    )


def _taint(_variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The patch by which a node has the taint of its verdict; `announced` is the line of the health check."""
    return {"patch": list(taint_patch(given["resources"], str(given["announced"])))}


def _verify(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan | Ask:
    """Refuses a cluster that has something else than the `manifests` and the taint."""
    name, of = str(variables[f"{_PREFIX}name"]), [Manifest(**each) for each in given["manifests"]]
    asked = unread(given, {"read": [(_INFO, _named(one.body)) for one in of]})
    if asked:
        return asked
    refusals = _explained(name, given["read"])
    if refusals:
        return Plan(refusals)
    objects = [each for result in given["read"]["results"] for each in result["resources"]]
    found = list(unapplied(of, Request.read(variables).parsed_taint, objects))
    text = f"the cluster did not accept the manifests: {'; '.join(found)}"
    return Plan((at_node(name, text),) if found else ())


def _named(body: Mapping[str, Any]) -> dict[str, Any]:
    """The object of a manifest, as k8s_info takes it."""
    metadata = {name: body["metadata"][name] for name in ("name", "namespace") if name in body["metadata"]}
    return {"api_version": body["apiVersion"], "kind": body["kind"], **metadata}


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
    },
    others=OTHERS,
    reads=("kubernetes_node_api_host", "kubernetes_node_directory", "kubernetes_node_name"),
    refuses=_refusals,
)
