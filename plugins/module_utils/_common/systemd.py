# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Query and control systemd units. Private to this collection."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

from .errors import ChangeError
from .runner import CommandResult, run_all
from .services import parse_units

Run = Callable[[Sequence[Sequence[str]], float], Sequence[CommandResult]]

PROPERTIES = (
    "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload,Result,StatusText,After,DropInPaths,"
    "ActiveEnterTimestampMonotonic"
)
BOOTED = "/run/systemd/system"
"""Exists while systemd is the first process: sd_booted(3)."""

# Stopping a unit takes up to its TimeoutStopSec: 90 s by default, 300 s of nvidia-persistenced in NVIDIA's rpm.
_SECONDS = 400.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Unit:
    """A unit as reported by `systemctl show`; `status` is the program's own status text, `after` its ordering.

    `drop_ins` are the paths of those that systemd has read. `started` is when it became active, in seconds since the
    boot, 0 where it never has.
    """

    name: str
    is_loaded: bool = False
    active: str = "inactive"
    enabled: str = ""
    needs_reload: bool = False
    result: str = ""
    status: str = ""
    after: tuple[str, ...] = ()
    drop_ins: tuple[str, ...] = ()
    started: float = 0.0

    @property
    def is_active(self) -> bool:
        """Whether it is active or about to be."""
        return self.active in ("active", "activating", "reloading")

    @property
    def is_moving(self) -> bool:
        """Whether it is starting or stopping."""
        return self.active in ("activating", "deactivating")


class Systemd:
    """systemd on this host."""

    def __init__(self, run: Run = run_all, booted: str = BOOTED, sleep: Callable[[float], None] = time.sleep) -> None:
        self._run = run
        self._booted = booted
        self._sleep = sleep

    @property
    def is_running(self) -> bool:
        """Whether systemd is PID 1; in most containers it is not."""
        return os.path.isdir(self._booted)

    def show(self, names: Sequence[str]) -> dict[str, Unit]:
        """The existing units by requested name; empty where systemd is not running."""
        if not names or not self.is_running:
            return {}
        result = self._call("show", "--property=" + PROPERTIES, *names)
        found = {}
        for name, properties in parse_units(result.text).items():
            found[name] = _unit(name, properties)
        return found

    def unit(self, name: str) -> Unit:
        """One unit; a default where it does not exist."""
        return self.show((name,)).get(name, Unit(name))

    def settle(self, name: str, timeout: float) -> None:
        """Wait up to `timeout` seconds until a unit is neither starting nor stopping."""
        deadline = time.monotonic() + timeout
        while self.unit(name).is_moving and time.monotonic() < deadline:
            self._sleep(_POLL_SECONDS)

    def act(self, *words: str) -> None:
        """Run `systemctl` with these arguments; raises ChangeError with its output."""
        self._call(*words)

    def _call(self, *words: str) -> CommandResult:
        (result,) = self._run([("systemctl", "--no-pager", *words)], _SECONDS)
        if result.rc != 0:
            message = " ".join((result.text + " " + result.error_text).split())
            raise ChangeError(f"systemctl {' '.join(words)} failed: {message or result.ending}")
        return result


def _unit(name: str, properties: Mapping[str, str]) -> Unit:
    return Unit(
        name=name,
        is_loaded=properties.get("LoadState") == "loaded",
        active=properties.get("ActiveState", ""),
        enabled=properties.get("UnitFileState", ""),
        needs_reload=properties.get("NeedDaemonReload") == "yes",
        result=properties.get("Result", ""),
        status=properties.get("StatusText", ""),
        after=tuple(properties.get("After", "").split()),
        drop_ins=tuple(properties.get("DropInPaths", "").split()),
        started=_seconds(properties.get("ActiveEnterTimestampMonotonic", "")),
    )


def _seconds(microseconds: str) -> float:
    return int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0
