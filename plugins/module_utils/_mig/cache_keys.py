# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache keys of nvidia-smi's lists: as long as the key is the same, the list cannot have changed.

The tables of profiles and places are constant while the driver is loaded. The names and UUIDs of `-L` are constant
while `-q -x` and `mig -lgi` show the same instances with the same indexes, ids, places, multiprocessors and engines.
With the cache, a run without changes makes two calls, one that adds an instance five. Private to this collection.
"""

from __future__ import annotations

from typing import Iterable, Mapping

from .._nvidia_smi.gpu import Gpu, MigDevice
from .layout import Instance
from .profiles import Table

DEVICES = "-L"
TABLES = ("-lgip", "-lgipp")


def host_key(executable: str, driver_version: str | None, gpus: Iterable[Gpu]) -> object:
    """Cache key of the tables. ECC reserves memory, and profile names contain the memory size."""
    return [
        executable,
        driver_version,
        [
            [gpu.index, gpu.basics.uuid, gpu.basics.name, gpu.basics.memory_total_mib, gpu.basics.ecc_mode_current]
            for gpu in gpus
        ],
    ]


def devices_seen(devices: Iterable[MigDevice]) -> list[list[int | None]]:
    """What `-q -x` shows of the MIG devices of one GPU and would differ for a re-created instance."""
    return sorted(
        (
            [
                device.index,
                device.gpu_instance_id,
                device.compute_instance_id,
                device.multiprocessor_count,
                device.copy_engine_count,
                device.encoder_count,
                device.decoder_count,
                device.ofa_count,
                device.jpeg_count,
            ]
            for device in devices
        ),
        key=str,
    )


def devices_expected(
    instances: Iterable[Instance], table: Table, indexes: Mapping[str, int]
) -> list[list[int | None]] | None:
    """The predicted `devices_seen` of `instances`, each with one whole compute instance; None where unknown.

    `indexes` has the index of each MIG device by its UUID.
    """
    found = []
    for instance in instances:
        profile = table.by_id(instance.profile_id)
        if profile is None or instance.compute_sizes != (instance.slices,):
            return None
        index = indexes.get(instance.compute[0].uuid or "")
        if index is None:
            return None
        found.append(
            [
                index,
                instance.gpu_instance_id,
                instance.compute[0].compute_instance_id,
                profile.multiprocessors,
                profile.copy_engines,
                profile.encoders,
                profile.decoders,
                profile.ofas,
                profile.jpegs,
            ]
        )
    return sorted(found, key=str)
