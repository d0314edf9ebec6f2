# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What proves that an event of the kernel log is over. Pure, private to this collection.

The driver logs no reset. It is proved by what the driver asks for, by the GPU that it initializes again, by this
collection's own record, or by counters that begin again. Each row of the policy names what ends it, see `Row.ends`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Sequence

from .kernel_log import Event

Facts = Mapping[str, Any]
QUIET_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Proofs:
    """What is known besides the log; times are in seconds since 1970, 0 where there is none.

    `gpus` are those that nvidia-smi lists, by PCI bus id, `resets` the last reset of each. `all_respond`: no GPU of the
    host is missing or lost. `repaired`: a person has repaired the host. `fabric_manager`: its service was started.
    """

    gpus: Mapping[str, Facts] = field(default_factory=dict)
    resets: Mapping[str, float | None] = field(default_factory=dict)
    all_respond: bool = False
    repaired: float = 0.0
    fabric_manager: float = 0.0
    now: float = 0.0


class Ends:
    """The ends of the events of one log. `place_of` is the PCI bus id of an event's device."""

    def __init__(self, events: Sequence[Event], proofs: Proofs, place_of: Callable[[Event], str | None]) -> None:
        self._proofs = proofs
        self._driver_loaded = max((event.line for event in events if event.kind == "driver_loaded"), default=-1)
        # By place, the last line before a reset that the log proves, and before one that only the GPU's present state
        # can prove.
        self._phases: dict[str | None, tuple[int, int]] = {}
        self._works_again: dict[str | None, int] = {}
        named = set()
        for event in events:
            place = place_of(event)
            self._phases[place] = _after(self._phases.get(place, (-1, -1)), event, place in named)
            if event.kind == "uuid":
                named.add(place)
            elif event.kind in ("link_up", "nic_recovered"):
                self._works_again[place] = event.line
        self._tests: Mapping[str, Callable[[Event, str | None], bool]] = {
            "driver": lambda event, _place: event.line <= self._driver_loaded,
            "repair": lambda event, _place: self._is_before(event, proofs.repaired),
            "replaced": self.is_of_another_gpu,
            "reset": self._was_reset,
            "all_reset": lambda event, _place: self._were_all_reset(event),
            "responds": self._responds,
            "link_up": self._is_before_it_works,
            "adapter": self._is_before_it_works,
            "fabric_manager": lambda event, _place: self._is_before(event, proofs.fabric_manager),
            "quiet": lambda event, _place: event.time is not None and proofs.now - event.time >= QUIET_SECONDS,
        }

    def of(self, event: Event, place: str | None, ends: Iterable[str]) -> str:
        """The key of policy.ENDS that has ended an event; empty while it lasts."""
        return next((end for end in ("replaced", *ends) if end in self._tests and self._tests[end](event, place)), "")

    @property
    def driver_loaded(self) -> int:
        """The line with the last start of the driver, -1 without one."""
        return self._driver_loaded

    def is_of_another_gpu(self, event: Event, place: str | None) -> bool:
        """Whether the driver names another GPU than the one that is now at the address: the GPU was replaced."""
        gpu = self._proofs.gpus.get(place or "")
        return bool(gpu and gpu["uuid"] and event.uuid and event.uuid.lower() != str(gpu["uuid"]).lower())

    @staticmethod
    def _is_before(event: Event, time: float) -> bool:
        return event.time is not None and event.time <= time

    def _is_before_it_works(self, event: Event, place: str | None) -> bool:
        return event.line < self._works_again.get(place, -1)

    def _was_reset(self, event: Event, place: str | None) -> bool:
        """Whether the GPU was reset after an event: the driver asked for it and asks for nothing any more, has
        initialized the GPU again, or this collection has reset it or seen its counters begin again."""
        ended, asked = self._phases.get(place, (-1, -1))
        action = self._proofs.gpus.get(place or "", {}).get("recovery_action")
        if event.line <= ended or (event.line <= asked and action == "none"):
            return True
        if place is None:
            # The line names no GPU: one that was reset since, where none asks for anything.
            known = [time for time in self._proofs.resets.values() if time is not None]
            return self._is_before(event, max(known, default=0.0)) and not self._any_asks()
        return self._is_before(event, self._proofs.resets.get(place) or 0.0) and action in (None, "none")

    def _were_all_reset(self, event: Event) -> bool:
        """Whether all GPUs were reset, and with them the NVSwitches that connect them."""
        times = [self._proofs.resets.get(place) or 0.0 for place in self._proofs.gpus]
        return self._is_before(event, min(times, default=0.0)) and not self._any_asks()

    def _any_asks(self) -> bool:
        return any(gpu["recovery_action"] not in (None, "none") for gpu in self._proofs.gpus.values())

    def _responds(self, event: Event, place: str | None) -> bool:
        """Whether a GPU that could not be initialized responds now; all GPUs, where the line names none."""
        if event.kind in ("probe_failed", "conflict"):
            return bool(self._proofs.gpus) and self._proofs.all_respond
        gpu = self._proofs.gpus.get(place or "")
        return gpu is not None and gpu["error"] is None


def _after(phase: tuple[int, int], event: Event, is_named: bool) -> tuple[int, int]:
    """`is_named`: the driver had named the GPU before."""
    ended, asked = phase
    if event.action is not None:
        return (event.line, event.line) if event.action[0] == 0 else (ended, event.line)
    # The driver names a GPU with its first error since it initialized the GPU.
    if event.kind == "uuid" and is_named:
        return ended, max(asked, event.line - 1)
    return phase
