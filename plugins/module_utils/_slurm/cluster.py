# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a cluster of Slurm, and those that verdicts have out of service. Private to this collection.

By one request to slurmctld, of which each user may read the reply; sinfo sends a second one for the partitions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._common.drain_cap import OutOfService
from .._common.drain_reason import REMEDY, is_by_verdict, read_reason
from .._common.errors import ChangeError
from .node import parse_node, without_notes
from .run import run_command

# A blank line is before each node but the first; the comment of a node may have a line like its beginning.
_BLOCK = re.compile(r"(?:\A|(?<=\n\n))(?=NodeName=)")
_BLOCK_NAME = re.compile(r"NodeName=(\S+)")
_GPUS = re.compile(r"^\s+Gres=(?:\S*,)?gpu(?:[:(,]\S*)?$", re.MULTILINE)
_SINCE = re.compile(r"^\s+Reason=.* \[[^\[\]@]*@([0-9T:-]+)\]$", re.MULTILINE)


@dataclass(frozen=True)
class Cluster:
    """How many nodes there are, those with GPUs where the asking one has GPUs, and those out of service by verdicts."""

    nodes: int
    out: tuple[OutOfService, ...]


def read_cluster(node: str, timeout: float) -> Cluster:
    """Ask slurmctld; raises ChangeError. With nodes of hidden partitions, which root sees in any case."""
    return parse_cluster(run_command(node, "", timeout, ["scontrol", "--all", "show", "node"]), node)


def parse_cluster(text: str, node: str) -> Cluster:
    """The cluster in the output of `scontrol show node`; ChangeError where `node` is missing or a part is no node.

    Whoever may drain nodes can write a reason of ours: that drain counts as one, as it is also returned as one.
    """
    with_gpus: dict[str, bool] = {}
    out = []
    preamble, *blocks = _BLOCK.split(text)
    if preamble.strip():
        raise ChangeError(f"scontrol shows no nodes: {' '.join(preamble.split())[:200]}")
    for block in map(without_notes, blocks):
        named = _BLOCK_NAME.match(block)
        found = parse_node(block, named[1] if named else "")
        if found.name in with_gpus:
            raise ChangeError(f"scontrol shows the node {found.name[:60]} twice")
        if "FUTURE" in found.states:
            continue
        with_gpus[found.name] = _GPUS.search(block) is not None
        reason, since = read_reason(found.reason), _SINCE.search(block)
        if found.is_out_of_service and reason is not None and is_by_verdict(found.reason):
            out.append(OutOfService(found.name, since[1] if since else "", reason.who == REMEDY))
    if node not in with_gpus:
        raise ChangeError(f"scontrol shows {len(with_gpus)} nodes, and {node} is none of them")
    return Cluster(sum(with_gpus.values()) if with_gpus[node] else len(with_gpus), tuple(out))
