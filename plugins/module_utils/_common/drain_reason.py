# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reason that a scheduler shows for a drain of ours, which is a lock as well. Private to this collection.

Whoever drains a node writes `WHO RUN: CAUSE`, in Slurm as the reason and in Kubernetes as an annotation: two
controllers on two machines share nothing else. A drain of another run is never changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .plain_text import one_line

UPGRADE = "gpu.fleet"
"""The playbook upgrade.yml. Another part of the collection that drains nodes adds a word: `gpu.fleet.WORD`."""
HEALTH = "gpu.fleet.health"
"""The health check of the role gpu_monitoring."""
REMEDY = "gpu.fleet.remedy"
"""The playbook remediate.yml."""
_TAKES_OVER = {REMEDY: HEALTH}
"""Whose drains another part takes over without being asked: the check drains a host for a remedy to come."""

LONGEST = 1000
_TEXT = re.compile(r"(gpu\.fleet(?:\.[a-z_]+)?) ([0-9A-Za-z_.-]+)(?:: (.*))?")


@dataclass(frozen=True)
class DrainReason:
    """Which part of the collection has drained a node, in which run, and why."""

    who: str
    run: str
    cause: str = ""

    @property
    def owner(self) -> str:
        """The beginning of the reason, which no other run has."""
        return f"{self.who} {self.run}"

    @property
    def text(self) -> str:
        """The whole reason."""
        cause = one_line(self.cause, LONGEST)
        return f"{self.owner}: {cause}" if cause else self.owner


def read_reason(text: str) -> DrainReason | None:
    """The reason of a drain of ours, None for another one."""
    found = _TEXT.fullmatch(text)
    return DrainReason(found[1], found[2], found[3] or "") if found else None


def is_by_verdict(text: str) -> bool:
    """Whether this is the reason of a drain by a verdict: of the health check, or of a remedy for what it has found."""
    found = read_reason(text)
    return found is not None and found.who in (HEALTH, REMEDY)


def is_drain_of(text: str, owner: str, taken_over: str = "") -> bool:
    """Whether a reason belongs to `owner`, `WHO RUN`, or of the run that it takes over."""
    if text == owner or text.startswith(f"{owner}: "):
        return bool(owner)
    found, asking = read_reason(text), read_reason(owner)
    if found is None:
        return False
    is_expected = asking is not None and _TAKES_OVER.get(asking.who) == found.who
    return is_expected or (bool(taken_over) and found.run == taken_over)


def refusal(text: str, owner: str, taken_over: str = "") -> str:
    """Why a node with this reason may not be drained by `owner`: another run of ours holds it. Empty where it may."""
    found = read_reason(text)
    if found is None or read_reason(owner) is None or is_drain_of(text, owner, taken_over):
        return ""
    return (
        f"the run {found.run} of {found.who} has drained it ({one_line(found.cause, 200) or 'no cause'}), perhaps from "
        "another controller or with another gpu_fleet_upgrade_directory: wait for that run to end, or continue it "
        "there. Where "
        f"nobody continues it, take its nodes over with gpu_fleet_upgrade_take_over: {found.run}"
    )
