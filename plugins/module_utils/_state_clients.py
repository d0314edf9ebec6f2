# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop what holds GPUs while they must be free, and put it back as it was. Private to this collection."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Iterator, Mapping, Sequence

from ._errors import ChangeError
from ._state_systemd import Systemd, Unit

# They keep a GPU open, so that it can neither be reset nor change its MIG mode.
HOLDERS = ("nvidia-persistenced.service",)
# They watch MIG instances as well, so that these cannot be destroyed either.
WATCHERS = (
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "nvidia_gpu_exporter.service",
    "nvsm.service",
)

_TYPES = (".service", ".socket", ".timer", ".path", ".target", ".scope")


def clients(given: Sequence[str]) -> tuple[str, ...]:
    """All units that may have to let go of the GPUs, those that were given first: they may need the others."""
    return tuple(dict.fromkeys((*map(full_name, given), *reversed(WATCHERS), *HOLDERS)))


def full_name(unit: str) -> str:
    """A unit's name as systemd lists it: without a type it is a service."""
    return unit if unit.endswith(_TYPES) else f"{unit}.service"


@contextmanager
def stopped(systemd: Systemd, units: Sequence[Unit]) -> Iterator[tuple[str, ...]]:
    """Stop those of `units` that run, and start them again at the end, whatever happened meanwhile.

    Gives their names. Raises ChangeError when one cannot be stopped, or does not come up again.
    """
    names = tuple(unit.name for unit in units if unit.is_active)
    failure: BaseException | None = None
    try:
        with _ending_in_order():
            if names:
                systemd.act("stop", *names)
            yield names
    except BaseException as error:
        failure = error
        raise
    finally:
        left = _start(systemd, names)
        if left:
            raise ChangeError(
                f"{f'{failure}; and ' if failure is not None else ''}{', '.join(left)} ran before and could not be "
                "started again; see systemctl status"
            ) from failure


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let a signal that would end the process end this block first."""

    def leave(number: int, frame: FrameType | None) -> None:
        del frame
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(systemd: Systemd, names: Sequence[str]) -> list[str]:
    """Start units in the reverse order; gives those that did not come up.

    A service that was running when its package was removed has no unit to be started again.
    """
    # Without an answer all are started: better to fail with one too many than to leave one out.
    with suppress(ChangeError):
        if any(unit.needs_reload for unit in systemd.show(names).values()):
            systemd.act("daemon-reload")
            known = systemd.show(names)
            names = [name for name in names if name in known]
    for name in reversed(names):
        # One that fails does not keep the others from being started; the look below tells.
        try:
            systemd.act("start", name)
        except ChangeError:
            continue
    there: Mapping[str, Unit] = systemd.show(names)
    return [name for name in names if not there.get(name, Unit(name)).is_active]
