# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device nodes of MIG instances, /dev/nvidia-caps/nvidia-cap<n>: an instance is usable where its node exists.

The numbers are as in /proc/driver/nvidia-caps/mig-minors: ``config`` is 1 and ``monitor`` 2, followed by 15
GPU instances for each GPU, each with one node of its own and 8 for its compute instances.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..state.shapes import Gpu

MAJOR = 510
"""Assigned dynamically by the kernel; most hosts have this one."""
GPUS = 32
"""As many as the driver has numbers for, whatever the host has."""
CONFIG, MONITOR = 1, 2
_FIRST = 3
_COMPUTE_INSTANCES = 8
_GPU_INSTANCES = 15
_NODES_OF_INSTANCE = 1 + _COMPUTE_INSTANCES
_NODES_OF_GPU = _GPU_INSTANCES * _NODES_OF_INSTANCE


def of_gpu_instance(gpu_minor: int, instance: int) -> int:
    """Return the number of a GPU instance's node."""
    return _FIRST + gpu_minor * _NODES_OF_GPU + instance * _NODES_OF_INSTANCE


def of_compute_instance(gpu_minor: int, instance: int, compute_instance: int) -> int:
    """Return the number of a compute instance's node."""
    return of_gpu_instance(gpu_minor, instance) + 1 + compute_instance


def node(number: int) -> str:
    """Return the path of a node."""
    return f"/dev/nvidia-caps/nvidia-cap{number}"


def minors() -> str:
    """Return the driver's list of all numbers, the same on each host."""
    lines = [f"config {CONFIG}", f"monitor {MONITOR}"]
    for gpu in range(GPUS):
        for instance in range(_GPU_INSTANCES):
            lines.append(f"gpu{gpu}/gi{instance}/access {of_gpu_instance(gpu, instance)}")
            for compute in range(_COMPUTE_INSTANCES):
                number = of_compute_instance(gpu, instance, compute)
                lines.append(f"gpu{gpu}/gi{instance}/ci{compute}/access {number}")
    return "".join(f"{line}\n" for line in lines)


def numbers(gpus: list[Gpu]) -> list[int]:
    """Return the numbers of the nodes of all MIG devices."""
    found = set()
    for gpu in gpus:
        for instance in gpu["gpu_instances"]:
            for compute in instance["compute_instances"]:
                found.add(of_gpu_instance(gpu["minor"], instance["id"]))
                found.add(of_compute_instance(gpu["minor"], instance["id"], compute["id"]))
    return sorted(found)


def access_files(gpus: list[Gpu]) -> dict[str, str]:
    """Return the files of all MIG instances by path below /proc/driver/nvidia/capabilities."""
    files = {}
    for gpu in gpus:
        for instance in gpu["gpu_instances"]:
            directory = f"gpu{gpu['minor']}/mig/gi{instance['id']}"
            files[f"{directory}/access"] = _access(of_gpu_instance(gpu["minor"], instance["id"]))
            for compute in instance["compute_instances"]:
                number = of_compute_instance(gpu["minor"], instance["id"], compute["id"])
                files[f"{directory}/ci{compute['id']}/access"] = _access(number)
    return files


def _access(number: int) -> str:
    return f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"


def reachable(gpu: Gpu, root: str) -> Gpu:
    """Return the GPU as seen below ``root``: in a container, with the MIG instances whose nodes it was given.

    A host, which has the ``monitor`` node, sees every instance and gets the same object, which may be modified.
    """

    def exists(path: str) -> bool:
        return os.path.exists(os.path.join(root, path[1:]))

    if exists(node(MONITOR)) or not exists("/dev/nvidiactl"):
        return gpu
    seen = gpu.copy()
    seen["gpu_instances"] = []
    for instance in gpu["gpu_instances"]:
        if exists(node(of_gpu_instance(gpu["minor"], instance["id"]))):
            part = instance.copy()
            part["compute_instances"] = [
                compute
                for compute in instance["compute_instances"]
                if exists(node(of_compute_instance(gpu["minor"], instance["id"], compute["id"])))
            ]
            seen["gpu_instances"].append(part)
    return seen
