# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last verdict of the check, for schedulers and monitors that ask on the host. Private to this collection.

A copy of this file and of all that it imports is in the programs of the role gpu_monitoring. No GPU is read: the
verdict is the one that gpu-fleet-health.service wrote, and one that is missing, damaged or too old is unknown.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from .._common.drain_reason import HEALTH, DrainReason
from .._common.errors import ChangeError
from .._common.json_text import parse_json
from .._common.plain_text import one_line
from .._common.regular_file import text_of
from .._slurm import run as slurm
from .._slurm.node import DRAINED, IN_SERVICE, KEEP
from .policy import FAIL, INFO, OK, UNKNOWN, VERDICTS, WARN

FILE = "/run/gpu-fleet-health/verdict.json"
"""In a directory that is empty after a reboot."""
WHO = DrainReason(HEALTH, "check").owner
"""What the reasons of drains by the health check begin with; other drains are left alone."""

_MISSED_CHECKS = 3
_LONGEST = 400
_TIMEOUT_S = 20.0
# As plug-ins of Nagios and its successors, and as those of node-problem-detector.
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
    """The file for a result of the module gpu_health. `interval` is that of the checks, `now` the time, in seconds."""
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


def slurm_health_check(announced: Announcement, node: str) -> int:
    """HealthCheckProgram of slurmd: drain an idle node whose verdict is `fail`, and return it when it is `ok` again.

    A drain of another is left alone, and so is a node that is busy or whose verdict is `warn` or `unknown`.
    """
    if announced.verdict == FAIL:
        observed = _slurm(node, None)
        if observed["own"] or (observed["in_service"] and observed["idle"]):
            _slurm(node, DRAINED, announced)
    elif announced.verdict in (OK, INFO):
        _slurm(node, IN_SERVICE, announced)
    return 0


def slurm_prolog(announced: Announcement, node: str) -> int:
    """Prolog of slurmd: no job begins on a node whose verdict is `fail`.

    Slurm requeues the job and drains the node. It is drained before that, for Slurm's own reason names no GPU.
    """
    if announced.verdict != FAIL:
        return 0
    _slurm(node, DRAINED, announced)
    return 1


def _slurm(node: str, state: str | None, announced: Announcement | None = None) -> dict[str, Any]:
    reason = f"{announced.found}; remedy {announced.remedy}" if announced and state == DRAINED else ""
    params = {"name": node, "state": state, "owner": WHO, "reason": reason, "jobs": KEEP, "take_over": ""}
    return slurm.run({**params, "directory": "", "timeout": _TIMEOUT_S}, False)


AUDIENCES: Mapping[str, Callable[[Announcement, str], int]] = {
    "status": lambda announced, _node: _MONITOR_STATUS[announced.verdict],
    "node-problem": lambda announced, _node: _NODE_PROBLEM_STATUS[announced.verdict],
    "slurm-health-check": slurm_health_check,
    "slurm-prolog": slurm_prolog,
}
"""What a program does with the verdict after it has printed it, by the name of the program; the exit status."""


def main(audience: str, path: str = FILE) -> int:
    """Print the verdict in one line and do what `audience`, one of AUDIENCES, asks for."""
    announced = read(path, time.time())
    sys.stdout.write(f"{announced.line}\n")
    # slurmd names the node to its programs; elsewhere it is the host's short name, which is NodeName by default.
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]
    try:
        return AUDIENCES[audience](announced, node)
    except ChangeError as error:
        sys.stderr.write(f"Slurm was not changed: {error}\n")
        # A node whose Slurm does not respond takes no job either; one that fails is not to get this one.
        return 1
