# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes and kernel modules that block a reset of a GPU. Private to this collection."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Callable, Iterable

from .gpu import Gpu

# Services that keep GPUs open, by the names of their processes (15 characters in /proc/PID/comm).
SERVICES = {
    "nvidia-persiste": "nvidia-persistenced.service",
    "nv-hostengine": "nvidia-dcgm.service",
    "dcgm-exporter": "dcgm-exporter",
    "nvidia-cuda-mps": "the MPS daemon and its clients (gpu-fleet-mps.service, of gpu_state_mps)",
    "nv-fabricmanage": "nvidia-fabricmanager.service",
    "nvsm_core": "nvsm.service",
    "Xorg": "the display manager",
    "gnome-shell": "the display manager",
    "nvidia-device-p": "the Kubernetes device plugin",
}
MODULES = ("nvidia_drm",)
# The device file of one GPU; the others belong to the driver as a whole.
_GPU = re.compile(r"/dev/nvidia\d+$")


@dataclass(frozen=True)
class Blocker:
    """A process (`pid`) or a kernel module (`pid` None) that uses `device`; `stop` is what to stop, where known."""

    name: str
    pid: int | None
    device: str
    stop: str | None = None

    def __str__(self) -> str:
        who = f"kernel module {self.name}" if self.pid is None else f"{self.name} (PID {self.pid})"
        return f"{who} holds {self.device}" + (f": stop {self.stop}" if self.stop else "")


def blockers(minor: int | None, processes: Iterable[tuple[int, str]] = (), root: str = "/") -> tuple[Blocker, ...]:
    """Everything that uses the GPU whose device file is /dev/nvidia`minor`.

    `processes` (pid, name) are those listed by nvidia-smi, which include some that a container hides. Without root only
    the user's own processes are visible.
    """
    device = f"/dev/nvidia{minor}" if minor is not None else "the GPU"
    found = {blocker.pid: blocker for blocker in _open_files(lambda path: path == device, root)}
    for pid, name in processes:
        found.setdefault(pid, Blocker(name, pid, device))
    return (*found.values(), *_modules(root))


def blockers_of(gpu: Gpu) -> tuple[Blocker, ...]:
    """Everything that uses the device file of a GPU, or is listed as its process by nvidia-smi."""
    processes = ((item.pid, item.name or "a process") for item in gpu.processes or () if item.pid is not None)
    return blockers(gpu.hardware.minor_number, processes)


def blockers_of_driver(root: str = "/") -> tuple[Blocker, ...]:
    """Everything that has any of the driver's device files open, which prevents unloading its kernel modules."""
    return (*_open_files(lambda path: path.startswith("/dev/nvidia"), root), *_modules(root))


def _open_files(is_meant: Callable[[str], bool], root: str) -> Iterable[Blocker]:
    """Processes with an open file whose path is meant, without duplicates, and that path: of several a GPU's."""
    proc = os.path.join(root, "proc")
    try:
        pids = [int(name) for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return
    for pid in sorted(pids):
        descriptors = os.path.join(proc, str(pid), "fd")
        try:
            targets = [_target(os.path.join(descriptors, name)) for name in os.listdir(descriptors)]
        except OSError:
            # It ended, or belongs to another user.
            continue
        held = min(filter(is_meant, targets), key=lambda path: (not _GPU.match(path), path), default=None)
        if held is not None:
            name = _first_line(os.path.join(proc, str(pid), "comm")) or "a process"
            yield Blocker(name, pid, held, SERVICES.get(name))


def _modules(root: str) -> Iterable[Blocker]:
    """Kernel modules in use, each of which keeps every GPU open."""
    for name in MODULES:
        count = _first_line(os.path.join(root, "sys", "module", name, "refcnt"))
        if count.isdigit() and int(count) > 0:
            yield Blocker(name, None, "every GPU", f"the display manager, then modprobe -r {name}")


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""
