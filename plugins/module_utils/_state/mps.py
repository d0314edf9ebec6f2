# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPS, by which several processes use a GPU at the same time, as a service of the host. Private to this collection.

Commands and limits are documented at https://docs.nvidia.com/deploy/mps/ and in nvidia-cuda-mps-control(1). Tried with
driver 580.159.04 on an H100: limits in the environment of the daemon do not reach its servers, so they are set by
commands; commands that it refuses end with status 0, so what was set is read back; a server runs as the user of its
clients and has to reach the directory of the sockets, so that it cannot be closed to users, as by a group; with -f the
daemon and its servers write to their output and not to the log directory.
"""

from __future__ import annotations

import os
import re
from typing import Mapping, Sequence

from .._common import gpu_clients
from .._common.errors import ChangeError
from .._common.systemd import Systemd, Unit
from .._nvidia_smi.gpu import Gpu
from .._nvidia_smi.selection import SelectionError, select
from . import service_files
from .request import Mps
from .service import ServicePlan
from .service_files import FileStep

UNIT = gpu_clients.MPS
UNIT_FILE = "/etc/systemd/system/" + UNIT
LINK = "/etc/systemd/system/multi-user.target.wants/" + UNIT

# Limits of clients came with Volta; before it a server has one address space for all of them.
_BEFORE_VOLTA = frozenset(("kepler", "maxwell", "pascal"))

_UNIT_TEXT = """\
# Written by gpu.fleet.gpu_state; its next run overwrites changes. Put additions into a drop-in.
[Unit]
Description=CUDA MPS on the GPUs that gpu_state_mps names
Documentation=https://github.com/gpu-fleet/gpu.fleet/blob/main/docs/sharing.md
# After the compute mode that it needs, and before what starts its clients.
After=gpu-fleet-state.service
{before}
StartLimitIntervalSec=0

[Service]
Environment=CUDA_VISIBLE_DEVICES={uuids}
Environment=CUDA_MPS_PIPE_DIRECTORY={pipes}
Environment=CUDA_MPS_LOG_DIRECTORY=/var/log/gpu-fleet-mps
{user}ExecStart={control} -f{flags}
# It is ready when it responds; only then it takes limits.
ExecStartPost=/bin/sh -c 'for i in 1 2 3 4 5 6 7 8; do echo get_server_list | {control} && exit; sleep 1; done; exit 1'
{limits}# In order where it has no clients: with clients it would wait for them, however long they take.
ExecStop=-/bin/sh -c 'echo quit | timeout 5 {control}'
TimeoutStopSec=30
Restart=on-failure
RestartSec=5
# Kept, since containers have mounted it.
RuntimeDirectory=gpu-fleet-mps
RuntimeDirectoryPreserve=yes
LogsDirectory=gpu-fleet-mps
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes

[Install]
WantedBy=multi-user.target
"""


def chosen_gpus(
    mps: Mps, gpus: Sequence[Gpu], within: Sequence[str], compute_mode: str | None, mig: Mapping[str, bool]
) -> tuple[str, ...]:
    """The UUIDs of the GPUs that MPS is for; raises ChangeError for what is impossible.

    `within` are the GPUs of the whole declaration, `mig` has whether MIG is declared, by identity.
    """
    try:
        chosen = select(gpus, mps.gpus)
        allowed = {gpu.identity for gpu in select(gpus, within)}
    except SelectionError as error:
        raise ChangeError(f"mps: {error}") from error
    if compute_mode not in (None, "exclusive_process"):
        raise ChangeError(
            f"mps: compute_mode is {compute_mode}, and MPS needs exclusive_process, without which a process that does "
            "not reach the daemon uses the GPU next to its clients, without their limits; leave compute_mode out"
        )
    for gpu in chosen:
        if gpu.error is not None:
            raise ChangeError(f"mps: {gpu.label} does not respond: {gpu.error}")
        if gpu.identity not in allowed:
            raise ChangeError(f"mps: {gpu.label} is not among the GPUs of this declaration; add it to gpus")
        now = "enabled" in (gpu.basics.mig_mode_current, gpu.basics.mig_mode_pending)
        if mig.get(gpu.identity, now):
            # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ has MPS on MIG devices, a daemon for each and
            # without the compute mode, which a GPU in MIG mode does not have.
            raise ChangeError(
                f"mps: {gpu.label} is in MIG mode, where MPS needs a daemon for each MIG device, which gpu_state "
                "does not offer; turn MIG off there, or name other GPUs"
            )
        _refuse_limits(mps, gpu)
    return tuple(gpu.identity for gpu in chosen)


def _refuse_limits(mps: Mps, gpu: Gpu) -> None:
    has_limits = mps.pinned_memory_limit is not None or mps.active_thread_percentage is not None
    if has_limits and gpu.hardware.architecture in _BEFORE_VOLTA:
        raise ChangeError(f"mps: {gpu.label} is older than Volta, where MPS has no limits for clients; leave them out")
    total = gpu.basics.memory_total_mib
    if mps.pinned_memory_limit is not None and total is not None:
        number, unit = int(mps.pinned_memory_limit[:-1]), mps.pinned_memory_limit[-1]
        if number * (1024 if unit == "G" else 1) > total:
            raise ChangeError(
                f"mps: pinned_memory_limit {mps.pinned_memory_limit} is more than {gpu.label} has, {total} MiB"
            )


def unit_text(mps: Mps, uuids: Sequence[str], control: str, clients: Sequence[str] = ()) -> str:
    """The content of the unit file."""
    commands = []
    if mps.active_thread_percentage is not None:
        commands.append(f"set_default_active_thread_percentage {mps.active_thread_percentage:g}")
    if mps.pinned_memory_limit is not None:
        commands += [f"set_default_device_pinned_mem_limit {uuid} {mps.pinned_memory_limit}" for uuid in uuids]
    before = [name for name in dict.fromkeys((*clients, *gpu_clients.WAITING)) if name != UNIT]
    return _UNIT_TEXT.format(
        uuids=",".join(uuids),
        pipes=gpu_clients.MPS_PIPES,
        control=control,
        flags=" -M" if mps.multi_user else "",
        user="" if mps.user is None else f"User={mps.user}\n",
        limits="".join(f"ExecStartPost=/bin/sh -c 'echo {command} | {control}'\n" for command in commands),
        before=service_files.lines("Before", [name for name in before if name.endswith(".service")]),
    )


def plan_service(text: str | None, unit: Unit, starts: bool, root: str = "") -> ServicePlan:
    """Plan the unit with this content, None for no unit. `starts`: no GPU waits for a reboot."""
    there = service_files.read(root + UNIT_FILE)
    files = () if there == text else (FileStep(UNIT_FILE, there, text),)
    is_enabled = os.path.islink(root + LINK)
    commands: list[tuple[str, ...]] = []
    if text is None:
        # A unit of this name that is not there was never ours.
        if is_enabled:
            commands.append(("disable", "--no-reload", UNIT))
        if files and unit.active not in ("", "inactive"):
            commands.append(("stop", UNIT))
        return ServicePlan(files, tuple(commands))
    if not is_enabled:
        commands.append(("enable", "--no-reload", UNIT))
    if starts and (files or unit.active != "active"):
        commands.append(("restart", UNIT))
    return ServicePlan(files, tuple(commands))


def ends_clients(plan: ServicePlan) -> bool:
    """Whether the plan stops a daemon that may have clients."""
    return any(words[0] in ("restart", "stop") for words in plan.commands)


def apply(systemd: Systemd, plan: ServicePlan, root: str = "", done: list[str] | None = None) -> None:
    """Apply the output of plan_service; raises ChangeError.

    `done` gets each file that was changed, and each command before it is called: one that fails may have an effect.
    """
    done = [] if done is None else done
    is_removal = any(step.after is None for step in plan.files)
    if is_removal:
        for words in plan.commands:
            done.append(" ".join(words))
            systemd.act(*words)
    service_files.apply_files(plan.files, root, done)
    if plan.files and systemd.unit(UNIT).needs_reload:
        systemd.act("daemon-reload")
    if is_removal:
        return
    for words in plan.commands:
        done.append(" ".join(words))
        try:
            systemd.act(*words)
        except ChangeError as error:
            raise ChangeError(f"{error}; see journalctl -u {UNIT}") from error


def uuids_of(text: str | None) -> tuple[str, ...]:
    """The GPUs of a unit file."""
    found = re.search(r"^Environment=CUDA_VISIBLE_DEVICES=(.+)$", text or "", re.MULTILINE)
    return tuple(found[1].split(",")) if found else ()


def verify(mps: Mps, run: gpu_clients.Ask, control: str) -> None:
    """Verify that the daemon responds and has taken the limit; raises ChangeError."""
    share = gpu_clients.ask_mps(run, control, "get_default_active_thread_percentage")
    if share is None:
        raise ChangeError(f"mps: {UNIT} was started, but does not respond; see journalctl -u {UNIT}")
    expected = 100.0 if mps.active_thread_percentage is None else mps.active_thread_percentage
    try:
        is_set = float(share.strip()) == expected
    except ValueError:
        is_set = False
    if not is_set:
        raise ChangeError(f"mps: active_thread_percentage is {share.strip()!r}, declared {expected:g}; see its journal")
