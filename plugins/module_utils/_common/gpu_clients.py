# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop the units that use GPUs while these must be idle, then start them again. Private to this collection."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from types import FrameType
from typing import AbstractSet, Callable, Iterable, Iterator, Mapping, Sequence, Tuple

from . import runner
from .bounds import listed
from .errors import ChangeError
from .systemd import Systemd, Unit

MPS = "gpu-fleet-mps.service"
"""The unit of gpu_state_mps."""
MPS_CONTROL = "nvidia-cuda-mps-control"
MPS_PIPES = "/run/gpu-fleet-mps"
"""The directory of its sockets, which a client has in CUDA_MPS_PIPE_DIRECTORY."""
_PERSISTENCED = "nvidia-persistenced.service"
# They keep a GPU open, which blocks resets and changes of MIG mode.
BLOCKING_SERVICES = (MPS, _PERSISTENCED)
# They also monitor MIG instances, which blocks destroying them.
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
# They enumerate GPUs and MIG devices at startup, or start programs that do.
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
WAITING = (*_RUNTIMES, *_SCHEDULERS, *WATCHERS, *_MANAGERS, MPS)
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
"""Units that build or load the driver, and its own daemons: the boot service runs after them."""

_ASK_SECONDS = 30.0
_TYPES = (".service", ".socket", ".timer", ".path", ".target", ".scope")


def clients(given: Sequence[str]) -> tuple[str, ...]:
    """All units that may have to be stopped; the given ones first, since they may depend on the others."""
    return tuple(dict.fromkeys((*map(full_name, given), *reversed(WATCHERS), *BLOCKING_SERVICES)))


def blocking_units(units: Mapping[str, Unit], given: Sequence[str], for_idle: bool, for_instances: bool) -> list[Unit]:
    """The installed units that must be stopped.

    `for_idle`: GPUs are reset or change their MIG mode, so no process may have them open. `for_instances`: MIG
    instances are destroyed, which units that only keep a GPU open do not block.
    """
    if not (for_idle or for_instances):
        return []
    kept = () if for_idle else BLOCKING_SERVICES
    return [units[name] for name in clients(given) if name in units and name not in kept]


def full_name(unit: str) -> str:
    """A unit's name as systemd lists it; without a suffix it is a service."""
    return unit if unit.endswith(_TYPES) else f"{unit}.service"


Ask = Callable[[Sequence[str]], runner.CommandResult]


def ask_mps(run: Ask, control: str, command: str) -> str | None:
    """What the daemon of MPS responds to a command; None where there is none."""
    # Only words of this collection and the path of the program come into this line.
    result = run(("/bin/sh", "-c", f"echo {command} | CUDA_MPS_PIPE_DIRECTORY={MPS_PIPES} {control}"))
    return result.text if result.rc == 0 else None


def mps_clients() -> list[str]:
    """The processes that use MPS."""
    control = runner.find_executable(MPS_CONTROL)
    return parse_mps_clients(ask_mps(lambda command: runner.run_all([command], _ASK_SECONDS)[0], control, "ps"))


def parse_mps_clients(text: str | None) -> list[str]:
    """The clients in the output of `ps`, with process id and command, of 580.159.04.

    Its columns are PID, ID, SERVER, DEVICE, NAMESPACE and COMMAND; without clients it is "Server not found", or the
    head alone.
    """
    rows = [line.split() for line in (text or "").splitlines()]
    return list(dict.fromkeys(f"{row[-1]} (PID {row[0]})" for row in rows if len(row) > 1 and row[0].isdigit()))


def running(units: Iterable[Unit]) -> tuple[str, ...]:
    """Names of the active units: those that `stopped` stops, which check mode predicts."""
    return tuple(unit.name for unit in units if unit.is_active)


Begin = Callable[[Tuple[str, ...]], None]


@contextmanager
def stopped(
    systemd: Systemd, units: Sequence[Unit], is_boot: bool = False, begin: Begin | None = None
) -> Iterator[tuple[str, ...]]:
    """Stop the active ones of `units`, and start them again at the end, also after an error.

    Yields their names. `begin` gets them before the first is stopped: a stop that fails has stopped some of them.
    Raises ChangeError when one cannot be stopped or started again, and before that when it is MPS
    and has clients, which would end with it. `is_boot`: called by the boot
    service; most units are ordered after it, so they can start only when it has ended.
    """
    names = running(units)
    found = mps_clients() if MPS in names else []
    if found:
        raise ChangeError(f"{MPS} has to stop, which ends its clients: {listed(found)}; let them end first")
    failure: BaseException | None = None
    try:
        with _ending_in_order():
            if names:
                if begin is not None:
                    begin(names)
                systemd.act("stop", *names)
            yield names
    except BaseException as error:
        failure = error
        raise
    finally:
        left = _start(systemd, names, set(names) - {_PERSISTENCED} if is_boot else set())
        if left:
            raise ChangeError(
                f"{f'{failure}; and ' if failure is not None else ''}{', '.join(left)} ran before and could not be "
                "started again; see systemctl status"
            ) from failure


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Turn a terminating signal into SystemExit, so that cleanup runs first."""

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
    """Start units in reverse order; gives those that failed to start. Those in `later` are not waited for.

    A service that was running after its package was removed has no unit to start.
    """
    # If the query fails, start all of them: a needless start is better than a missed one.
    with suppress(ChangeError):
        if any(unit.needs_reload for unit in systemd.show(names).values()):
            systemd.act("daemon-reload")
            known = systemd.show(names)
            names = [name for name in names if name in known]
    for name in reversed(names):
        # A failed start does not prevent the others; the check below reports it.
        try:
            systemd.act("start", *(("--no-block",) if name in later else ()), name)
        except ChangeError:
            continue
    names = [name for name in names if name not in later]
    there: Mapping[str, Unit] = systemd.show(names)
    return [name for name in names if not there.get(name, Unit(name)).is_active]
