# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG devices of a GPU as shown by queries: one for each compute instance, by the ids of its instances."""

from __future__ import annotations

from .. import lazy
from ..state import catalogue
from . import profiles as mig_profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..state.shapes import ComputeInstance, Gpu, GpuInstance, Model, Version

CONTEXT_MIB = 9
"""MiB that the driver uses for each memory unit of a GPU instance, approximately."""


class MigDevice:
    """One MIG device with the resources of its instances."""

    def __init__(self, index: int, gpu: Gpu, instance: GpuInstance, compute: ComputeInstance, version: Version) -> None:
        model = catalogue.load(gpu["model"])
        self.index = index
        self.gpu_instance_id = instance["id"]
        self.compute_instance_id = compute["id"]
        self.profile: dict[str, Any] = mig_profiles.gpu_profile(model, instance["profile_id"])
        self.compute: dict[str, Any] = mig_profiles.compute_profile(model, self.profile, compute["profile_id"])
        self.name: str = self.compute["name"]
        self._gpu_uuid = gpu["uuid"]
        self.total_mib: int = self.profile["memory_mib"]
        self.used_mib = CONTEXT_MIB * instance["size"] + sum(
            process["used_memory_mib"] for process in gpu["processes"] if process["gpu_instance_id"] == instance["id"]
        )
        self.bar1_mib = _bar1_mib(model, instance["size"], version)

    @property
    def uuid(self) -> str:
        """UUID: the same for the same GPU and ids."""
        found: str = lazy.load("state.identity").mig_uuid(
            self._gpu_uuid, self.gpu_instance_id, self.compute_instance_id
        )
        return found

    @property
    def free_mib(self) -> int:
        """Memory left in the GPU instance, MiB."""
        return self.total_mib - self.used_mib


def _bar1_mib(model: Model, size: int, version: Version) -> int:
    """Return an instance's share of BAR1 in MiB: an equal one up to driver 575, less the driver's use since."""
    if version >= (580,):
        return int(model["mig"]["bar1_mib_per_unit"] * size)
    share: int = model["bar1_mib"] * size // model["mig"]["units"]
    return share - 1


def mig_devices(gpu: Gpu, version: Version = (580,)) -> list[MigDevice]:
    """List the MIG devices of a GPU in MIG mode, in the order of ``Device n``."""
    if not (gpu["mig_mode"] and gpu["mig_mode"]["current"]):
        return []
    pairs = [
        (instance, compute)
        for instance in sorted(gpu["gpu_instances"], key=lambda instance: instance["id"])
        for compute in sorted(instance["compute_instances"], key=lambda compute: compute["id"])
    ]
    return [MigDevice(index, gpu, instance, compute, version) for index, (instance, compute) in enumerate(pairs)]
