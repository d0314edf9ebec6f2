# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The breaker before the taint of a verdict: which nodes of a play get none. Private to this collection. Pure.

Decided for all hosts of a play at once: each by itself would count before any other of them has its taint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_cap import Cap, OutOfService

from ._kubernetes_drain import at_node, explain_failure, gets_taint, has_taint

_GPUS = "nvidia.com/gpu.present"


@dataclass(frozen=True)
class Heard:
    """A host of a play with the line of its health check; `cluster` is how its cluster is reached."""

    host: str
    node: str
    line: str
    cluster: Any


def held_taints(cap: Cap, listed: Mapping[str, Any], heard: Sequence[Heard], asking: str) -> dict[str, str]:
    """Why nodes get no taint though their verdict is `fail`, by host; those with one keep it.

    listed: the result of k8s_info with all nodes of the cluster of the host `asking`. A list that cannot be read
    proves nothing: no node gets a taint then.
    """
    nodes = {str(one["metadata"]["name"]): one for one in listed.get("resources") or ()}
    cluster = next((one.cluster for one in heard if one.host == asking), None)
    held = {}
    new = []
    for one in sorted(heard, key=lambda host: host.node):
        if one.cluster == cluster and one.node in nodes:
            if gets_taint(nodes[one.node], one.line):
                new.append(one)
        elif gets_taint({}, one.line):
            held[one.host] = _uncounted(one, listed, asking, is_here=one.cluster == cluster)
    # Ten percent of many nodes without GPUs would be all of those with them.
    by_gpus = all(_has_gpus(nodes[one.node]) for one in new)
    total = sum(_has_gpus(one) or not by_gpus for one in nodes.values())
    out = [OutOfService(name) for name, one in nodes.items() if has_taint(one)]
    for one in new:
        why = cap.refuses_another(total, out)
        if why:
            held[one.host] = at_node(one.node, f"no taint, though its verdict is fail: {why}")
        else:
            out.append(OutOfService(one.node))
    return held


def _has_gpus(node: Mapping[str, Any]) -> bool:
    return str((node["metadata"].get("labels") or {}).get(_GPUS)) == "true"


def _uncounted(one: Heard, listed: Mapping[str, Any], asking: str, *, is_here: bool) -> str:
    if not is_here:
        why = f"the play has nodes of several clusters, and {asking} counts only its own; run it for one cluster"
    elif "resources" not in listed:
        why = explain_failure(listed, one.node, "kubernetes_node_").removeprefix(at_node(one.node, ""))
    else:
        why = f"the API server lists {len(listed['resources'])} nodes, and this is none of them"
    return at_node(one.node, f"no taint, though its verdict is fail: nodes with one cannot be counted: {why}")
