# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every planner of a role returns. Private to this collection. Pure: no Ansible, no file access.

A role has a `Request`, whose `read` takes the variables, and a function `plan` that returns a `Plan` for a host. The
check before the first change, a role that runs alone, and the plan of a playbook all call these two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Plan:
    """What a role does on a host.

    steps: what its tasks carry out, in their order; none where it has no work. reasons: why. inputs: a hash of what
    decides the state of the host, which the record keeps for the next run. tasks: what the tasks read. Nothing in
    a plan is secret, as a registered plan is printed with -v.
    """

    refusals: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    inputs: str = ""
    notes: tuple[str, ...] = ()
    tasks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether the role has to run."""
        return bool(self.steps)

    def as_dict(self) -> dict[str, Any]:
        """The plan as tasks read it: with `has_work`, and with what `tasks` has next to the rest."""
        plan = asdict(self)
        return {**plan, **plan.pop("tasks"), "has_work": self.has_work}
