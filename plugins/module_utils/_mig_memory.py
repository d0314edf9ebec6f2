# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Remember what nvidia-smi listed while that cannot have changed. Private to this collection.

The tables of profiles and places stay the same while the driver is loaded. The names and UUIDs of `-L` stay the same
while `-q -x` and `mig -lgi` show the same instances with the same ids, places, multiprocessors and engines. So they are
not read each time: a run that changes nothing makes two calls, one that adds an instance five.

The file belongs below /run: then it is gone after a reboot, as the instances are.
"""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, Iterable, Sequence

from ._gpu import Gpu, MigDevice
from ._mig_layout import Instance
from ._mig_profiles import Table

BOOT_ID = "/proc/sys/kernel/random/boot_id"
DEVICES = "-L"
TABLES = ("-lgip", "-lgipp")


class Memory:
    """Texts by the option that gave them. Anything wrong with the file means that nothing is known."""

    def __init__(self, path: str, is_read_only: bool = False, boot_id_path: str = BOOT_ID) -> None:
        self._path = path
        self._is_read_only = is_read_only
        self._boot_id_path = boot_id_path

    def recall(self, names: Sequence[str], key: object) -> tuple[str, ...] | None:
        """The texts of `names`, all of them as they were remembered under `key`, else None."""
        entries = self._read()
        found = [entries.get(name) for name in names]
        texts = [entry.get("text") for entry in found if isinstance(entry, dict) and entry.get("key") == self._key(key)]
        if len(texts) != len(names) or any(not isinstance(text, str) for text in texts):
            return None
        return tuple(str(text) for text in texts)

    def remember(self, names: Sequence[str], key: object, texts: Sequence[str]) -> None:
        """Keep `texts` under `key` for the time until the next boot."""
        entries = self._read()
        entries.update({name: {"key": self._key(key), "text": text} for name, text in zip(names, texts)})
        self._write(entries)

    def forget(self, names: Sequence[str]) -> None:
        """Drop the texts of `names`: they are about to become wrong."""
        entries = self._read()
        left = {name: entry for name, entry in entries.items() if name not in names}
        if left != entries:
            self._write(left)

    def _key(self, key: object) -> Any:
        try:
            with open(self._boot_id_path, encoding="ascii") as stream:
                boot_id = stream.read().strip()
        except OSError:
            boot_id = None
        # Through JSON and back: what comes out of the file has lists where tuples went in.
        return json.loads(json.dumps([boot_id, key]))

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as stream:
                entries = json.load(stream)
        except (OSError, ValueError):
            return {}
        return entries if isinstance(entries, dict) else {}

    def _write(self, entries: dict[str, Any]) -> None:
        """Replace the file as a whole; a run that ends in the middle leaves the one before."""
        if self._is_read_only:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(self._path))
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(entries, stream)
            os.replace(temporary, self._path)
        except OSError:
            # Nothing depends on it: the next run reads what it could have recalled.
            return


def host_key(executable: str, driver_version: str | None, gpus: Iterable[Gpu]) -> object:
    """What the tables depend on. ECC takes memory, and profile names tell memory."""
    return [
        executable,
        driver_version,
        [
            [gpu.index, gpu.basics.uuid, gpu.basics.name, gpu.basics.memory_total_mib, gpu.basics.ecc_mode_current]
            for gpu in gpus
        ],
    ]


def devices_seen(devices: Iterable[MigDevice]) -> list[list[int | None]]:
    """What `-q -x` shows of the MIG devices of one GPU, and a re-created instance would not share."""
    return sorted(
        (
            [
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


def devices_expected(instances: Iterable[Instance], table: Table) -> list[list[int | None]] | None:
    """What `-q -x` will show of `instances`, each with one compute instance for the whole of it; None where unknown."""
    found = []
    for instance in instances:
        profile = table.by_id(instance.profile_id)
        if profile is None or instance.compute_sizes != (instance.slices,):
            return None
        found.append(
            [
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
