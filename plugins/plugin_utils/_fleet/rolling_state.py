# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a rolling upgrade has come with a host. Private to this collection.

Pure: a state and what was done in, the next state out. The playbook writes each state before it goes on, so a run that
is killed at any point continues: a step that was done and not recorded is done again, and each of them can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import LONGEST
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line

PLANNED, DRAINING, DRAINED, CHANGED = "planned", "draining", "drained", "changed"
HEALTHY, IN_SERVICE, FAILED = "healthy", "in_service", "failed"
STEPS = (DRAINED, CHANGED, HEALTHY, IN_SERVICE)
"""What is done with a host, in this order. Each is recorded after it was done, DRAINING before a host is drained."""

_NEXT: Mapping[str, tuple[str, ...]] = {
    # A host is planned again where it was too busy.
    PLANNED: (DRAINING, FAILED),
    DRAINING: (DRAINING, DRAINED, PLANNED, FAILED),
    DRAINED: (DRAINING, CHANGED, FAILED),
    CHANGED: (HEALTHY, FAILED),
    HEALTHY: (IN_SERVICE, FAILED),
    IN_SERVICE: (),
    FAILED: (),
}


class StateError(ValueError):
    """A state that cannot be, or cannot follow another; the message is for the user."""


@dataclass(frozen=True)
class Event:
    """A step with its time, in UTC, and for a failure or a delay the reason."""

    step: str
    time: str
    reason: str = ""


@dataclass(frozen=True)
class HostState:
    """The state of a host in the run `run`, with all steps in `history`."""

    host: str
    run: str
    step: str
    reason: str = ""
    history: tuple[Event, ...] = ()

    @property
    def is_out_of_service(self) -> bool:
        """Whether this upgrade has drained the host, or may have, and not returned it to service."""
        return self.step in (DRAINING, DRAINED, CHANGED, HEALTHY, FAILED)

    @property
    def is_finished(self) -> bool:
        """Whether the upgrade has returned the host to service."""
        return self.step == IN_SERVICE

    def as_dict(self) -> dict[str, Any]:
        """As in the file."""
        return {**asdict(self), "history": [asdict(event) for event in self.history]}


def read_state(data: Mapping[str, Any]) -> HostState:
    """A state as in the file; StateError for another document."""
    try:
        history = tuple(Event(event["step"], event["time"], event.get("reason", "")) for event in data["history"])
        state = HostState(data["host"], data["run"], data["step"], data.get("reason", ""), history)
    except (KeyError, TypeError, AttributeError) as error:
        raise StateError(f"this is not the state of a host: {error!r}") from None
    if state.step not in _NEXT:
        raise StateError(f"{state.host} has the unknown step {state.step}")
    return state


def begin(host: str, run: str, time: str, previous: HostState | None, needs_change: bool) -> HostState:
    """The state at the start of a run, which continues the state of an interrupted one.

    A host that failed begins again, and so does one whose change was recorded and that needs another one by now. Both
    are still drained by this run.
    """
    if previous is None or previous.step in (IN_SERVICE, PLANNED):
        return HostState(host, run, PLANNED, "", (Event(PLANNED, time),))
    if previous.step == FAILED or (previous.step in (CHANGED, HEALTHY) and needs_change):
        return _followed_by(previous, DRAINING, time, "")
    return previous


def advance(state: HostState, step: str, time: str, reason: str = "") -> HostState:
    """The state after a step; StateError for a step that cannot follow."""
    if step not in _NEXT[state.step]:
        raise StateError(f"{state.host} is {state.step}, which {step} cannot follow")
    return _followed_by(state, step, time, reason)


def remaining(state: HostState) -> tuple[str, ...]:
    """The steps that are still needed. That a host is drained and idle is verified again before its change."""
    if state.step == FAILED:
        return ()
    return STEPS[STEPS.index(state.step) + 1 :] if state.step in STEPS[1:] else STEPS


def _followed_by(state: HostState, step: str, time: str, reason: str) -> HostState:
    # Messages of hosts: the reason goes to the scheduler and to the output.
    reason = one_line(reason, LONGEST)
    return replace(state, step=step, reason=reason, history=(*state.history, Event(step, time, reason)))
