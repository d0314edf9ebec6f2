# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of mistakes.yml, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.site.converged import CUDA, NVIDIA_SMI, WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import DEBIAN_12, NO_GPU, ROOM, MockHost

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


def _with(mount: str, **system: Any) -> dict[str, Any]:
    """The file systems of a host that has another one at `mount`."""
    return {"/": ROOM, mount: {**ROOM, "mount": mount, "device": 2050, **system}}


HOSTS: Mapping[str, MockHost] = {
    "bare": MockHost(),
    "without_gpu": MockHost(nvidia_smi=NO_GPU),
    "old_driver": _with_an_old_driver(),
    "converged": converged(WITHOUT_CONTAINER),
    "read_only_etc": MockHost(file_systems=_with("/etc", read_only=True)),
    "read_only": MockHost(file_systems={"/": {**ROOM, "read_only": True}}),
    "full_root": MockHost(file_systems={"/": {**ROOM, "available_mib": 40}}),
    "full_boot": MockHost(file_systems=_with("/boot", available_mib=30)),
    "full_var": MockHost(file_systems=_with("/var", available_mib=700)),
    "full_engine": MockHost(file_systems=_with("/var/lib/docker", available_mib=0)),
    "no_inodes": MockHost(file_systems=_with("/var", free_inodes=3)),
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
