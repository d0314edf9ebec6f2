# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Slurm: reading it, and planning whether it takes jobs. Private to this collection.

Read from the text of scontrol, which every version prints: the JSON needs a plug-in of slurmctld's packages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._common.drain_reason import is_drain_of, refusal
from .._common.errors import ChangeError
from .._common.plain_text import one_line

DRAINED, IN_SERVICE = "drained", "in_service"
KEEP, CANCEL = "keep", "cancel"

# A node with any of these was taken out of service. The first word is the node's own state, the others come on top.
_OUT_OF_SERVICE = frozenset(("DOWN", "DRAIN", "DRAINED", "DRAINING", "ERROR", "FAIL", "FAILING", "FUTURE"))
# A node with nothing but these takes jobs, if not at once: state and flags of https://slurm.schedmd.com/scontrol.html,
# "NODES - SPECIFICATIONS FOR SHOW COMMAND". Whether its slurmd responds is a flag of its own.
_TAKES_JOBS = frozenset(
    (
        *("ALLOCATED", "IDLE", "MIXED", "BLOCKED", "CLOUD", "COMPLETING", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "MAINT"),
        *("MAINTENANCE", "NOT_RESPONDING", "PERFCTRS", "PLANNED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"),
        *("POWER_DOWN", "POWER_UP", "REBOOT_REQUESTED", "RESERVED", "RESUME", "UNDRAIN"),
    )
)
_BUSY = frozenset(("ALLOCATED", "COMPLETING", "MIXED"))
# Jobs of which nothing runs on the node any more, or yet.
_NOT_RUNNING = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PENDING"),
        *("PREEMPTED", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "REVOKED", "SPECIAL_EXIT", "TIMEOUT"),
    )
)
_NAME = re.compile(r"^NodeName=(\S+)", re.MULTILINE)
# Fields are three spaces behind the margin, further lines of a reason ten.
_STATE = re.compile(r"^ {3}State=(\S+)", re.MULTILINE)
_LAST_FIELDS = "\n   CfgTRES="
_NOTES = re.compile(r"^ {3}(?:Comment|Extra)=", re.MULTILINE)
_REASON = re.compile(r"^ {3}Reason=(.*?)(?: \[([^\[\]]*)@[^\[\]@]*\])?$", re.MULTILINE)
# Marks that versions before 21.08 put behind a state, of which only the first matters here.
_NO_RESPONSE, _MARKS = "*", "*~#!%$@^-+"
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The id of a job, of one in an array, of those in an array that have not begun (squeue cuts a long list), and of a part
# of a heterogeneous job.
_JOB = re.compile(r"([0-9]+(?:_[0-9]+|_\[[0-9,:%-]+\]?|\+[0-9]+)?)\|([A-Z_]+)\|([^|\x00-\x1f\x7f]+)")


@dataclass(frozen=True)
class Node:
    """A node. `states` are its own state and the flags on top of it, in capitals; `reason` is empty for none."""

    name: str
    states: tuple[str, ...]
    reason: str = ""
    reason_by: str = ""

    @property
    def is_out_of_service(self) -> bool:
        """Whether it takes no jobs. A reason alone proves nothing: newer versions keep it after a resume."""
        return bool(_OUT_OF_SERVICE.intersection(self.states))

    @property
    def takes_jobs(self) -> bool:
        """Whether it may take jobs: none of its states and flags prevents it, and all of them are known."""
        return _TAKES_JOBS.issuperset(self.states)

    @property
    def why(self) -> str:
        """Why it takes no jobs, empty where it does: the reason of who took it out of service, else its state."""
        against = [state for state in self.states if state not in _TAKES_JOBS]
        if self.is_out_of_service or not against:
            return self.reason if against else ""
        return f"its state is {'+'.join(against)}{': ' if self.reason else ''}{self.reason}"

    @property
    def is_responding(self) -> bool:
        """Whether slurmd responds."""
        return "NOT_RESPONDING" not in self.states


@dataclass(frozen=True)
class Job:
    """A job with processes on the node, or one that is being started or cleaned up there."""

    id: str
    state: str
    user: str


@dataclass(frozen=True)
class Request:
    """`state` is DRAINED, IN_SERVICE, or empty to read only. `owner` begins the reason of a drain of ours.

    `take_over` is the run whose drain counts as ours.
    """

    name: str
    state: str
    owner: str
    reason: str
    jobs: str
    take_over: str = ""

    @property
    def text(self) -> str:
        """The whole reason of a drain. scontrol removes a quotation mark at its end."""
        return (f"{self.owner}: {self.reason}" if self.reason else self.owner).rstrip("'\"")


def parse_request(name: str, state: str | None, owner: str, reason: str, jobs: str, *, take_over: str = "") -> Request:
    """The request in the options; raises ChangeError by the name of an option."""
    # scontrol takes ALL and gpu[1-8] as well, and would change each of these nodes.
    if not _NODE_NAME.fullmatch(name) or name.upper() == "ALL":
        raise ChangeError(f"name: {name[:60]!r} is not the name of one node, NodeName in slurm.conf")
    for option, text in (("owner", owner), ("reason", reason)):
        # scontrol keeps only the first line.
        if any(ord(character) < 32 for character in text):
            raise ChangeError(f"{option} has to be one line, without control characters")
    if state and not owner.strip():
        raise ChangeError("state requires owner, which distinguishes our drain from one of an operator")
    if re.search("[\"']|: ", owner):
        raise ChangeError(
            f"owner: {owner[:60]} has a quotation mark, or a colon and a space, which end it in the reason"
        )
    return Request(name, state or "", owner.strip(), one_line(reason), jobs, take_over.strip())


def parse_node(text: str, name: str) -> Node:
    """The node in the output of `scontrol show node`; ChangeError where it is not this node alone."""
    text = without_notes(text)
    names, found, reason = _NAME.findall(text), _STATE.findall(text), _REASON.search(text)
    shown = ""
    if names != [name]:
        shown = f"{', '.join(names[:3]) or 'no node'} instead of this node"
    elif len(found) != 1 or len(_REASON.findall(text)) > 1:
        # More than one of them is the text of another field.
        shown = f"{len(found)} states and {len(_REASON.findall(text))} reasons of this node"
    if shown:
        raise ChangeError(f"{name}: scontrol shows {shown}: {' '.join(text.split())[:200] or 'no output'}")
    states = found[0].split("+")
    flags = [state.rstrip(_MARKS) for state in states]
    if any(_NO_RESPONSE in state for state in states):
        flags.append("NOT_RESPONDING")
    return Node(name, tuple(flags), reason[1] if reason else "", (reason[2] or "") if reason else "")


def without_notes(text: str) -> str:
    """A node without its comment and all that follows, which have any form and come last.

    They begin behind the last line of resources: an earlier field, which the node itself reports, hides nothing.
    """
    last = text.rfind(_LAST_FIELDS)
    notes = _NOTES.search(text, last) if last >= 0 else None
    return text[: notes.start()] if notes else text


def parse_jobs(text: str) -> tuple[Job, ...]:
    """The jobs in lines of `id|state|user` that have anything on the node. Their ids become arguments of scancel."""
    jobs = []
    for line in text.splitlines():
        found = _JOB.fullmatch(line.strip())
        if found is None:
            raise ChangeError(f"squeue printed a line that is not a job: {line[:100]!r}")
        if found[2] not in _NOT_RUNNING:
            jobs.append(Job(*found.groups()))
    return tuple(jobs)


def is_idle(node: Node, jobs: tuple[Job, ...]) -> bool:
    """Whether nothing runs. The base state of a node with a job that is being cleaned up is IDLE already."""
    return not jobs and not _BUSY.intersection(node.states)


def is_own(request: Request, node: Node) -> bool:
    """Whether the node is out of service by a drain of this owner."""
    return node.is_out_of_service and is_drain_of(node.reason, request.owner, request.take_over)


def held_by(request: Request, node: Node) -> str:
    """Why it may not be drained, where another run of ours has done so; empty where it may."""
    return refusal(node.reason, request.owner, request.take_over) if node.is_out_of_service else ""


def plan(request: Request, node: Node, jobs: tuple[Job, ...]) -> list[list[str]]:
    """The commands, as arguments after the program. None for a node that another user took out of service.

    Nor are jobs cancelled on a node that another run of ours holds.
    """
    commands: list[list[str]] = []
    if held_by(request, node):
        return commands
    own = is_own(request, node)
    target = f"NodeName={node.name}"
    if request.state == DRAINED:
        is_drained = any(state.startswith("DRAIN") for state in node.states)
        if not node.is_out_of_service or (own and not (is_drained and node.reason == request.text)):
            commands.append(["scontrol", "update", target, "State=DRAIN", f"Reason={request.text}"])
        if request.jobs == CANCEL and jobs:
            commands.append(["scancel", *(job.id for job in jobs)])
    elif request.state == IN_SERVICE and own:
        commands.append(["scontrol", "update", target, "State=RESUME"])
    return commands


def difference(request: Request, node: Node, commands: list[list[str]]) -> dict[str, str]:
    """What the commands change, for Ansible's diff."""
    before = "+".join(node.states) + (f" {node.reason}" if node.is_out_of_service else "")
    after = before
    if any("State=DRAIN" in command for command in commands):
        after = f"{node.states[0]}+DRAIN {request.text}"
    elif any("State=RESUME" in command for command in commands):
        after = "IDLE"
    cancelled = [job for command in commands if command[0] == "scancel" for job in command[1:]]
    ended = f"\ncancelled jobs: {', '.join(cancelled)}" if cancelled else ""
    return {"before": f"{before}\n", "after": f"{after}{ended}\n"}
