# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of nvidia-smi calls, for tests of error handling in modules."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from gpu_simulator.state import store


class Host(Protocol):
    """A simulated host."""

    root: Path

    def snapshot(self) -> Any:
        """A copy of the state, to restore later."""

    def call(self, *arguments: str) -> tuple[str, int]:
        """Call the simulated nvidia-smi as a user would."""


Reply = Callable[[], CommandResult]
Counts = Callable[[Sequence[str]], bool]
Way = Callable[[Host, Sequence[str], Reply], CommandResult]


class ModuleKilledError(BaseException):
    """Simulates the death of the module process: no more of its code runs."""


def result(arguments: Sequence[str], status: int | None, text: str = "", timed_out: bool = False) -> CommandResult:
    """The result of a call."""
    return CommandResult(("nvidia-smi", *arguments), status, text.encode(), b"", 5.0, timed_out=timed_out)


def error(status: int, text: str) -> Way:
    """A fault: the call does nothing and returns this error."""

    def way(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
        del host, reply
        return result(arguments, status, text)

    return way


def _hang_before(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    del host, reply
    return result(arguments, None, timed_out=True)


def _hang_after(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    del host
    reply()
    return result(arguments, None, timed_out=True)


def _kill_after(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    del host
    reply()
    return result(arguments, -9)


def _pretend(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    """Return the output of a successful call, and change nothing."""
    before = host.snapshot()
    message = reply()
    Path(store.state_path(str(host.root))).write_text(json.dumps(before))
    return message


def _cut_off(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    del host
    message = reply()
    return result(arguments, message.rc, message.text[: len(message.text) * 2 // 3])


def _die_before(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    raise ModuleKilledError


def _die_after(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    reply()
    raise ModuleKilledError


WAYS: dict[str, Way] = {
    "unknown error": error(255, "Unknown Error"),
    "in use": error(19, "In use by another client"),
    "insufficient resources": error(23, "Insufficient Resources"),
    "invalid argument": error(2, "Invalid Argument"),
    "denied": error(4, "Insufficient Permissions"),
    "lost": error(15, "GPU is lost"),
    "not supported": error(3, "Not Supported"),
    "silent no-op": error(0, ""),
    "killed before": error(-9, ""),
    "killed after": _kill_after,
    "hang before": _hang_before,
    "hang after": _hang_after,
    "pretended success": _pretend,
    "cut off": _cut_off,
    "module killed before": _die_before,
    "module killed after": _die_after,
}


class FaultInjector:
    """Injects a fault into the nth matching call and, if `lasts`, into every matching call after it."""

    def __init__(self, host: Host, way: Way, number: int, lasts: bool, counts: Counts) -> None:
        self.struck = False
        self._host, self._way, self._lasts, self._counts = host, way, lasts, counts
        self._left = number

    def __call__(self, arguments: Sequence[str], reply: Reply) -> CommandResult:
        if not self._counts(arguments):
            return reply()
        self._left -= 1
        if self._left == 0 or (self._left < 0 and self._lasts):
            self.struck = True
            return self._way(self._host, arguments, reply)
        return reply()


def is_any(call: Sequence[str]) -> bool:
    """Whether a call counts, if all do."""
    return bool(call)


def scenarios(changes: Iterable[str], ways: Collection[str] = tuple(WAYS)) -> Iterator[tuple[str, str, bool, bool]]:
    """Change, way, whether the fault lasts, and whether only changing calls count; a dead module cannot go on."""
    for change in changes:
        for way in ways:
            yield change, way, False, False
            yield change, way, False, True
            if not way.startswith("module"):
                yield change, way, True, True


@dataclass(frozen=True)
class Change:
    """A change of a host, whose calls are to fail.

    run: runs the module with the change, with a fault injector or without. roll_back: restores the state before the
    change. judge: checks the result of a run in which a fault struck against the host, and names the outcome. verify:
    checks the host after a run without faults that follows.
    """

    host: Host
    run: Callable[..., Any]
    roll_back: Callable[[], None]
    judge: Callable[[Any], str]
    verify: Callable[[], None]


def fail_every_call(
    make: Callable[[str, str], Change], changes: Iterable[str], ways: Mapping[str, Way], is_change: Counts
) -> Counter[str]:
    """Let each call of each change fail in each way, and run again without faults; the outcomes and their number.

    make: from the names of change and way. A run must not raise but for its own death, whatever its calls returned.
    """
    outcomes: Counter[str] = Counter()
    for name, way, lasts, only_changes in scenarios(changes, ways):
        change = make(name, way)
        number = 0
        while True:
            number += 1
            change.roll_back()
            injector = FaultInjector(change.host, ways[way], number, lasts, is_change if only_changes else is_any)
            where = f"{name}, {way}, call {number}, lasts {lasts}"
            try:
                run = change.run(injector)
            except ModuleKilledError:
                outcome = "killed"
            else:
                if not injector.struck:
                    break
                try:
                    outcome = change.judge(run)
                except AssertionError as failure:
                    raise AssertionError(f"{where}: {failure}") from failure
            outcomes[outcome] += 1
            again = change.run()
            assert again.error is None, f"{where}: the next run: {again.error}"
            change.verify()
    return outcomes
