# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Device nodes of MIG instances, /dev/nvidia-caps/nvidia-cap<n>: an instance is usable where its node exists.

The numbers are those of /proc/driver/nvidia-caps/mig-minors: ``config`` is 1 and ``monitor`` 2, followed by 15
GPU instances for each GPU, each with one node of its own and 8 for its compute instances.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .shapes import Gpu

CONFIG, MONITOR = 1, 2
_FIRST = 3
_NODES_OF_INSTANCE = 1 + 8
_NODES_OF_GPU = 15 * _NODES_OF_INSTANCE


def of_gpu_instance(gpu_minor: int, instance: int) -> int:
    """Return the number of a GPU instance's node."""
    return _FIRST + gpu_minor * _NODES_OF_GPU + instance * _NODES_OF_INSTANCE


def of_compute_instance(gpu_minor: int, instance: int, compute_instance: int) -> int:
    """Return the number of a compute instance's node."""
    return of_gpu_instance(gpu_minor, instance) + 1 + compute_instance


def node(number: int) -> str:
    """Return the path of a node."""
    return f"/dev/nvidia-caps/nvidia-cap{number}"


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
