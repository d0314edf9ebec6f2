# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last verdict of the check, for schedulers and monitors that ask on the host. Private to this collection.

A copy of this file and of all that it imports is in the programs of the role gpu_monitoring. No GPU is read: the
verdict is the one that gpu-fleet-health.service wrote, and one that is missing, damaged or too old is unknown.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import syslog
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from .._common.atomic_write import atomic_write
from .._common.drain_cap import Cap
from .._common.drain_reason import HEALTH, DrainReason
from .._common.errors import ChangeError
from .._common.json_text import parse_json
from .._common.plain_text import one_line
from .._common.regular_file import text_of
from .._slurm import run as slurm
from .._slurm.cluster import read_cluster
from .._slurm.node import DRAINED, IN_SERVICE, KEEP
from .policy import FAIL, INFO, OK, UNKNOWN, VERDICTS, WARN

FILE = "/run/gpu-fleet-health/verdict.json"
"""In a directory that is empty after a reboot."""
WHO = DrainReason(HEALTH, "check").owner
"""What the reasons of drains by the health check begin with; other drains are left alone."""

CAP = "gpu_monitoring_max_drained"
"""The variable of the role with the cap."""
SLURM, KUBERNETES = "slurm", "kubernetes"
"""Schedulers that hear the verdict."""

_MISSED_CHECKS = 3
_LONGEST = 400
_TIMEOUT_S = 20.0
# slurmd ends a HealthCheckProgram after 60 seconds.
_ALL_S, _LEAST_S = 40.0, 4.0
# slurmctld notes the time of a drain in seconds: after so long none can get the time of ours any more.
_SETTLE_S = 1.5
# As plug-ins of Nagios, its successors and node-problem-detector.
_MONITOR_STATUS: Mapping[str, int] = {OK: 0, INFO: 0, WARN: 1, FAIL: 2, UNKNOWN: 3}
_NODE_PROBLEM_STATUS: Mapping[str, int] = {OK: 0, INFO: 0, WARN: 0, FAIL: 1, UNKNOWN: 2}


@dataclass(frozen=True)
class Announcement:
    """A verdict with its remedy, both by the names of the health policy, and what was found in one line."""

    verdict: str
    remedy: str = "none"
    found: str = ""

    @property
    def line(self) -> str:
        """For people, as `FAIL: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot`."""
        remedy = f"; remedy {self.remedy}" if self.remedy != "none" else ""
        return f"{self.verdict.upper()}: {self.found or 'nothing found'}{remedy}"


def document(health: Mapping[str, Any], interval: float, now: float) -> dict[str, Any]:
    """The file for a result of the module gpu_health. `interval` is between checks, `now` the time, in seconds."""
    found = [finding["message"] for finding in health["findings"] if finding["verdict"] == health["verdict"] != OK]
    return {
        "time": now,
        "valid_s": _MISSED_CHECKS * interval,
        "verdict": health["verdict"],
        "remedy": health["remedy"],
        "found": one_line("; ".join(found), _LONGEST),
    }


def read(path: str, now: float) -> Announcement:
    """The verdict in the file at the time `now`; unknown, with the reason, where there is none that counts."""
    try:
        written = parse_json(text_of(path))
        age, verdict = now - written["time"], VERDICTS[VERDICTS.index(written["verdict"])]
        if not 0 <= age <= written["valid_s"]:
            return Announcement(UNKNOWN, found=f"the last verdict is {age:.0f} s old; see gpu-fleet-health.timer")
        return Announcement(verdict, str(written["remedy"]), one_line(str(written["found"]), _LONGEST))
    except OSError as error:
        return Announcement(UNKNOWN, found=f"no verdict: {path}: {error.strerror}; see gpu-fleet-health.timer")
    except (ValueError, KeyError, TypeError):
        return Announcement(UNKNOWN, found=f"no verdict: {path} is damaged; see gpu-fleet-health.service")


def held_file(scheduler: str, path: str = FILE) -> str:
    """The file that is there while a verdict `fail` is held: nothing was drained for it. `path`: of the verdict."""
    return os.path.join(os.path.dirname(path), f"held-{scheduler}.json")


def held(verdict: str, path: str = FILE) -> tuple[str, ...]:
    """The schedulers in which this verdict is held; a file of an earlier one does not count."""
    return tuple(one for one in (SLURM, KUBERNETES) if verdict == FAIL and os.path.exists(held_file(one, path)))


@dataclass(frozen=True)
class Here:
    """The node that a program runs on, the cap of drains by verdicts, the verdict's file, and when to have ended."""

    node: str
    cap: Cap
    path: str
    end: float

    @property
    def timeout(self) -> float:
        """Of the next call of Slurm, in seconds."""
        return min(_TIMEOUT_S, max(_LEAST_S, self.end - time.monotonic()))


def slurm_health_check(announced: Announcement, here: Here) -> int:
    """HealthCheckProgram of slurmd: drain an idle node whose verdict is `fail`, and return it when it is `ok` again.

    A drain of another is left alone, and so is a node that is busy or whose verdict is `warn` or `unknown`. The exit
    status is success where a drain is held: versions of slurmd register with slurmctld only after that.
    """
    if announced.verdict == FAIL:
        observed = _slurm(here, None)
        if observed["own"] or (observed["in_service"] and observed["idle"]):
            _drain(announced, here, is_own=observed["own"])
    elif announced.verdict in (OK, INFO):
        _slurm(here, IN_SERVICE, announced)
    return 0


def slurm_prolog(announced: Announcement, here: Here) -> int:
    """Prolog of slurmd: no job begins on a node whose verdict is `fail`, and which is out of service for it.

    Slurm requeues the job and drains the node, for a reason that names no GPU and that nobody counts. So the node is
    drained before that, and where it cannot be, the job begins.
    """
    if announced.verdict != FAIL:
        return 0
    is_out = False
    try:
        observed = _slurm(here, None)
        is_out = not observed["in_service"]
        if observed["own"] or not is_out:
            is_out = _drain(announced, here, is_own=observed["own"])
    except ChangeError as error:
        sys.stderr.write(f"Slurm was not changed: {error}\n")
    return 1 if is_out else 0


def _drain(announced: Announcement, here: Here, *, is_own: bool) -> bool:
    """Drain the node where the cap allows it; whether it is out of service. `is_own`: it is so by us already.

    Counted before, which keeps a false verdict from draining all nodes in a later minute, and after it, for those that
    drain themselves in the same second. A count that fails proves nothing, so nothing is drained then.
    """
    why = "" if is_own else _refusal(here, is_new=None)
    if not why:
        if not is_own:
            _slurm(here, DRAINED, announced)
            time.sleep(_SETTLE_S)
        why = _refusal(here, is_new=not is_own)
        if why:
            _slurm(here, IN_SERVICE)
        elif is_own:
            _slurm(here, DRAINED, announced)
    _report(why, here)
    return not why


def _refusal(here: Here, *, is_new: bool | None) -> str:
    """Why the node may not be drained; of one that is, why it may not stay so. `is_new`: drained just now, or None."""
    try:
        cluster = read_cluster(here.node, here.timeout)
        if is_new is None:
            return here.cap.refuses_another(cluster.nodes, cluster.out)
        return here.cap.refuses(here.node, cluster.nodes, cluster.out, is_new=is_new)
    except ChangeError as error:
        if is_new is False:
            raise
        return f"the nodes that verdicts have out of service cannot be counted: {error}"


def _report(why: str, here: Here) -> None:
    """Report a verdict that is held: to whoever runs the program, to syslog, and to the check for its metrics."""
    path = held_file(SLURM, here.path)
    try:
        if not why:
            if os.path.exists(path):
                os.unlink(path)
            return
        atomic_write(path, f"{json.dumps({'held': why})}\n".encode(), 0o644)
    except OSError as error:
        sys.stderr.write(f"{path} is not up to date: {error.strerror}\n")
    if why:
        message = one_line(f"{here.node} is not drained, though its verdict is fail: {why}")
        sys.stderr.write(f"{message}\n")
        syslog.syslog(syslog.LOG_WARNING, f"gpu-fleet-health: {message}")


def _slurm(here: Here, state: str | None, announced: Announcement | None = None) -> dict[str, Any]:
    reason = f"{announced.found}; remedy {announced.remedy}" if announced and state == DRAINED else ""
    params = {"name": here.node, "state": state, "owner": WHO, "reason": reason, "jobs": KEEP, "take_over": ""}
    return slurm.run({**params, "directory": "", "timeout": here.timeout}, False)


AUDIENCES: Mapping[str, Callable[[Announcement, Here], int]] = {
    "status": lambda announced, _here: _MONITOR_STATUS[announced.verdict],
    "node-problem": lambda announced, _here: _NODE_PROBLEM_STATUS[announced.verdict],
    "slurm-health-check": slurm_health_check,
    "slurm-prolog": slurm_prolog,
}
"""What a program does with the verdict after it has printed it, by the name of the program; the exit status."""


def main(audience: str, path: str, max_drained: str) -> int:
    """Print the verdict in one line and do what `audience`, one of AUDIENCES, asks for, within a cap."""
    announced = read(path, time.time())
    sys.stdout.write(f"{announced.line}\n")
    # slurmd names the node to its programs; elsewhere it is the host's short name, which is NodeName by default.
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    try:
        return AUDIENCES[audience](announced, Here(node, Cap(max_drained, CAP), path, time.monotonic() + _ALL_S))
    except ChangeError as error:
        sys.stderr.write(f"Slurm was not changed: {error}\n")
        return 1
