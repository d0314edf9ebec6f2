# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The breaker before a drain by a verdict: how many nodes verdicts may have out of service. Private to this collection.

A verdict that is false on one host may be false on all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Collection

from .errors import ChangeError

_LEAST = 2
_CAP = re.compile(r"(?:100|[0-9]{1,2})%|[0-9]{1,6}")


@dataclass(frozen=True)
class OutOfService:
    """A node that a verdict has taken out of service. `since` sorts by time; `by_remedy`: a remedy holds it."""

    node: str
    since: str = ""
    by_remedy: bool = False


@dataclass(frozen=True)
class Cap:
    """A number of nodes, or a percentage of them, and the variable that has it."""

    text: str
    variable: str

    @property
    def refusal(self) -> str:
        """Why it is no cap; empty where it is one."""
        if _CAP.fullmatch(self.text):
            return ""
        return f"{self.variable} is {self.text[:60]!r}; it takes a number of nodes, or a percentage of them such as 10%"

    def allowed(self, nodes: int) -> int:
        """How many of so many nodes may be out of service by verdicts; raises ChangeError.

        A percentage is rounded down, and allows two nodes at least: 10 % of a small cluster would be none.
        """
        if self.refusal:
            raise ChangeError(self.refusal)
        number = int(self.text.rstrip("%"))
        if not self.text.endswith("%"):
            return number
        return max(_LEAST, nodes * number // 100) if number else 0

    def refuses_another(self, nodes: int, out: Collection[OutOfService]) -> str:
        """Why no further node may be drained; empty where one may."""
        return "" if len(out) < self.allowed(nodes) else self._reached(nodes, len(out))

    def refuses(self, node: str, nodes: int, out: Collection[OutOfService], *, is_new: bool) -> str:
        """Why the drain of this node has to be undone; empty where it stays.

        Nodes that drain themselves at the same time have all counted before. The earliest stay, and of the same second
        those whose names come first, so that each of them decides alike. An earlier drain yields to other drains of
        the health check alone: remedies have limits of their own.
        """
        own = [(one.since, one.node) for one in out if one.node == node]
        before = [one for one in out if own and not one.by_remedy and (one.since, one.node) < own[0]]
        by_remedies = [one for one in out if one.by_remedy and is_new]
        is_within = not own or len(before) + len(by_remedies) < self.allowed(nodes)
        return "" if is_within else self._reached(nodes, len(out))

    def _reached(self, nodes: int, out: int) -> str:
        return (
            f"verdicts have {out} of {nodes} nodes out of service, and {self.variable} ({self.text}) allows "
            f"{self.allowed(nodes)}: the cause may be common, such as a driver or the check itself. Find it; to take "
            "nodes out of service anyway, raise the variable"
        )
