# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_node: drain a node and return it to service. Private to this collection."""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Sequence

from .._common.errors import ChangeError
from .._common.runner import find_executable
from .._common.runner import run as run_program
from .node import (
    DRAINED,
    IN_SERVICE,
    Job,
    Node,
    Request,
    difference,
    is_idle,
    is_own,
    parse_jobs,
    parse_node,
    parse_request,
    plan,
)

_SQUEUE = ("--noheader", "--states=all", "--format=%i|%T|%u|%j")


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(params["name"], params["state"], params["owner"], params["reason"], params["jobs"])
    timeout: float = params["timeout"]
    node, jobs = _observe(request.name, timeout)
    commands = plan(request, node, jobs)
    diff = difference(request, node, commands)
    if commands and not check_mode:
        for command in commands:
            _run(request.name, command, timeout)
        node, jobs = _observe(request.name, timeout)
        _verify(request, node)
    return {
        "changed": bool(commands),
        "diff": diff,
        "commands": commands,
        "states": list(node.states),
        "reason": node.reason if node.is_out_of_service else "",
        "in_service": not node.is_out_of_service,
        "responding": node.is_responding,
        "own": is_own(request, node),
        "idle": is_idle(node, jobs),
        "jobs": [dataclasses.asdict(job) for job in jobs],
    }


def _observe(name: str, timeout: float) -> tuple[Node, tuple[Job, ...]]:
    """The node, then its jobs: after a drain none can come in between."""
    node = parse_node(_run(name, ["scontrol", "show", "node", name], timeout), name)
    return node, parse_jobs(_run(name, ["squeue", *_SQUEUE, f"--nodelist={name}"], timeout))


def _verify(request: Request, node: Node) -> None:
    """Whether Slurm did it: it reports success before the node has responded, and for what it ignores."""
    if request.state == DRAINED and not node.is_out_of_service:
        raise ChangeError(f"{node.name}: it is {'+'.join(node.states)} after it was drained; see slurmctld's log")
    if request.state == IN_SERVICE and is_own(request, node):
        raise ChangeError(
            f"{node.name}: it is {'+'.join(node.states)} ({node.reason}) after it was resumed; see `systemctl status "
            "slurmd` on the node and slurmctld's log"
        )


def _run(name: str, command: Sequence[str], timeout: float) -> str:
    """The output of a program; ChangeError where it fails."""
    result = run_program([find_executable(command[0]), *command[1:]], timeout)
    if result.rc == 0:
        return result.text
    # scontrol prints `Node NAME not found` to the standard output.
    reported = " ".join(f"{result.text} {result.error_text}".split())[:300] or result.ending
    if "not found" in reported or "Invalid node name" in reported:
        reported += "; name has to be the NodeName in slurm.conf, see `scontrol show nodes`"
    elif result.rc is None:
        reported += "; run it on a host with Slurm's commands, such as that of slurmctld"
    raise ChangeError(f"{name}: {' '.join(command[:2])}: {reported}")
