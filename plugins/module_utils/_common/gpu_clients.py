# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop what holds GPUs while they must be free, and put it back as it was. Private to this collection."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from types import FrameType
from typing import AbstractSet, Iterator, Mapping, Sequence

from .errors import ChangeError
from .systemd import Systemd, Unit

# They keep a GPU open, so that it can neither be reset nor change its MIG mode.
HOLDERS = ("nvidia-persistenced.service",)
# They watch MIG instances as well, so that these cannot be destroyed either.
WATCHERS = (
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "prometheus-dcgm-exporter.service",
    "nvidia_gpu_exporter.service",
    "nvidia-gpu-exporter.service",
    "nvidia-device-plugin.service",
    "nvidia-k8s-device-plugin.service",
    "nvsm.service",
)
# They list GPUs and MIG devices when they start, or start what does.
_RUNTIMES = (
    "docker.service",
    "containerd.service",
    "crio.service",
    "podman.service",
    "podman-restart.service",
    "snap.docker.dockerd.service",
)
_SCHEDULERS = (
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.microk8s.daemon-containerd.service",
    "snap.microk8s.daemon-kubelite.service",
    "slurmd.service",
    "nomad.service",
    "pbs.service",
)
_MANAGERS = ("nvidia-cdi-refresh.service", "nvidia-mig-manager.service")
WAITING = (*_RUNTIMES, *_SCHEDULERS, *WATCHERS, *_MANAGERS)
"""Units that wait at boot until the GPUs are as declared."""

DRIVER_UNITS = (
    "systemd-modules-load.service",
    "systemd-udev-trigger.service",
    "dkms.service",
    "akmods.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-powerd.service",
)
"""Units that build or load the driver, and its own daemons: the GPUs' turn comes after them."""

_TYPES = (".service", ".socket", ".timer", ".path", ".target", ".scope")


def clients(given: Sequence[str]) -> tuple[str, ...]:
    """All units that may have to let go of the GPUs, those that were given first: they may need the others."""
    return tuple(dict.fromkeys((*map(full_name, given), *reversed(WATCHERS), *HOLDERS)))


def in_the_way(units: Mapping[str, Unit], given: Sequence[str], for_idle: bool, for_instances: bool) -> list[Unit]:
    """The units that must let go of the GPUs, of those that are there.

    `for_idle`: GPUs are reset or change their MIG mode, for which nothing may have them open. `for_instances`: MIG
    instances are destroyed, and who only keeps a GPU open is in nobody's way.
    """
    if not (for_idle or for_instances):
        return []
    kept = () if for_idle else HOLDERS
    return [units[name] for name in clients(given) if name in units and name not in kept]


def full_name(unit: str) -> str:
    """A unit's name as systemd lists it: without a type it is a service."""
    return unit if unit.endswith(_TYPES) else f"{unit}.service"


@contextmanager
def stopped(systemd: Systemd, units: Sequence[Unit], is_boot: bool = False) -> Iterator[tuple[str, ...]]:
    """Stop those of `units` that run, and start them again at the end, whatever happened meanwhile.

    Gives their names. Raises ChangeError when one cannot be stopped, or does not come up again. `is_boot`: this is the
    boot service, which most of them come after, so that they can start only when it has ended.
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
        left = _start(systemd, names, set(names) - set(HOLDERS) if is_boot else set())
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


def _start(systemd: Systemd, names: Sequence[str], later: AbstractSet[str]) -> list[str]:
    """Start units in the reverse order; gives those that did not come up. For those in `later` nobody waits.

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
            systemd.act("start", *(("--no-block",) if name in later else ()), name)
        except ChangeError:
            continue
    names = [name for name in names if name not in later]
    there: Mapping[str, Unit] = systemd.show(names)
    return [name for name in names if not there.get(name, Unit(name)).is_active]
