# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of mistakes.yml, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.unit.site.converged import CUDA, NVIDIA_SMI, WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import DEBIAN_12, NO_GPU, MockHost

_OLD = "535.288.01"
_READ = {"command": {"changed": True, "rc": 0, "stdout": "", "stderr": ""}}
"""Of a host whose package lists have nothing of NVIDIA's."""


def _with_an_old_driver() -> MockHost:
    """A host with a driver of its image, and one whose power limit the module gpu_state would change."""
    host = converged(WITHOUT_CONTAINER)
    driver = {**CUDA["driver"], **dict.fromkeys(("library_version", "module_version", "loaded_version"), _OLD)}
    return replace(
        host,
        nvidia_smi={**NVIDIA_SMI, "driver_version": _OLD, "cuda_version": "12.2"},
        cuda={**CUDA, "driver": driver},
        records={},
        results={**host.results, **_READ, "gpu_state": {**host.results["gpu_state"], "changed": True}},
    )


HOSTS: Mapping[str, MockHost] = {
    "bare": MockHost(),
    "without_gpu": MockHost(nvidia_smi=NO_GPU),
    "old_driver": _with_an_old_driver(),
    "converged": converged(WITHOUT_CONTAINER),
    "ordinary_user": MockHost(system={**DEBIAN_12, "ansible_user_id": "ops", "ansible_effective_user_id": 1000}),
    "alpine": MockHost(
        system={
            **DEBIAN_12,
            "ansible_distribution": "Alpine",
            "ansible_distribution_version": "3.20",
            "ansible_distribution_major_version": "3",
            "ansible_os_family": "Alpine",
        }
    ),
}
