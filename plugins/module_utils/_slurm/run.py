# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_node: drain a node and return it to service. Private to this collection."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any, Callable, Mapping, Sequence

from .._common.errors import ChangeError, RunError
from .._common.runner import find_executable
from .._common.runner import run as run_program
from .node import (
    DRAINED,
    IN_SERVICE,
    Job,
    Node,
    Request,
    difference,
    held_by,
    is_idle,
    is_own,
    parse_jobs,
    parse_node,
    parse_request,
    plan,
)

# No field that a user of the cluster writes, such as the name of a job: after a newline it is another row.
_SQUEUE = ("--noheader", "--states=all", "--format=%i|%T|%u")


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(
        params["name"],
        params["state"],
        params["owner"],
        params["reason"],
        params["jobs"],
        take_over=params["take_over"],
    )
    directory: str = params["directory"] or ""
    if directory and not os.path.isabs(directory):
        raise ChangeError(f"directory: {directory[:60]} is not an absolute path")
    call = functools.partial(run_command, request.name, directory, params["timeout"])
    node, jobs = before = _observe(request.name, call)
    commands = plan(request, node, jobs)
    diff = difference(request, node, commands)
    if commands and not check_mode:
        called: list[list[str]] = []
        try:
            for command in commands:
                called.append(command)
                call(command)
            node, jobs = _observe(request.name, call)
            _verify(request, node)
        except ChangeError as error:
            result = {"changed": _is_changed(request.name, call, before, called), "commands": called}
            raise RunError(str(error), result) from error
    return {
        "changed": bool(commands),
        "diff": diff,
        "commands": commands,
        "states": list(node.states),
        "reason": node.why,
        "in_service": node.takes_jobs,
        "responding": node.is_responding,
        "own": is_own(request, node),
        "refusal": held_by(request, node),
        "idle": is_idle(node, jobs),
        "jobs": [dataclasses.asdict(job) for job in jobs],
    }


def _observe(name: str, call: Callable[[Sequence[str]], str]) -> tuple[Node, tuple[Job, ...]]:
    """The node, then its jobs: after a drain none can come in between."""
    node = parse_node(call(["scontrol", "show", "node", name]), name)
    return node, parse_jobs(call(["squeue", *_SQUEUE, f"--nodelist={name}"]))


def _is_changed(
    name: str, call: Callable[[Sequence[str]], str], before: tuple[Node, tuple[Job, ...]], called: list[list[str]]
) -> bool:
    """Whether these calls, of which one has failed, have changed something. What cannot be read may have changed."""
    try:
        node, jobs = _observe(name, call)
    except ChangeError:
        return True
    was, had = before
    if (node.is_out_of_service, node.reason) != (was.is_out_of_service, was.reason):
        return True
    # Jobs end by themselves as well.
    return jobs != had and any(command[0] == "scancel" for command in called)


def _verify(request: Request, node: Node) -> None:
    """Whether Slurm did it: it reports success before the node has responded, and for what it ignores."""
    if request.state == DRAINED and not node.is_out_of_service:
        raise ChangeError(f"{node.name}: it is {'+'.join(node.states)} after it was drained; see slurmctld's log")
    if request.state == IN_SERVICE and is_own(request, node):
        raise ChangeError(
            f"{node.name}: it is {'+'.join(node.states)} ({node.reason}) after it was resumed; see `systemctl status "
            "slurmd` on the node and slurmctld's log"
        )


def run_command(name: str, directory: str, timeout: float, command: Sequence[str]) -> str:
    """The output of a program of Slurm; ChangeError where it fails. `name`: of the node, for the message."""
    program = os.path.join(directory, "bin", command[0]) if directory else find_executable(command[0])
    result = run_program([program, *command[1:]], timeout)
    if result.rc == 0:
        return result.text
    # scontrol prints `Node NAME not found` to the standard output.
    reported = " ".join(f"{result.text} {result.error_text}".split())[:300] or result.ending
    if "not found" in reported or "Invalid node name" in reported:
        reported += "; name has to be the NodeName in slurm.conf, see `scontrol show nodes`"
    elif result.start_error and directory:
        reported += "; set directory to Slurm's installation, with its commands in bin"
    elif result.start_error:
        reported += (
            "; run it on a host with Slurm's commands, such as the host of slurmctld, or set directory to Slurm's "
            "installation"
        )
    shown = program[:120] if directory else command[0]
    raise ChangeError(f"{name}: {shown} {command[1]}: {reported}")
