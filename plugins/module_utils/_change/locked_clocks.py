# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache of locked clocks, which nvidia-smi sets but does not report. Private to this collection.

A value that nvidia-smi confirmed is cached for as long as it can be in effect: until the next boot, driver load, start
of nvidia-persistenced, or reset of the GPU by this collection, and only while persistence mode is on (without it the
driver drops the lock as soon as nothing uses the GPU). Changes made by other tools are detected only where a clock is
above the locked range.
"""

from __future__ import annotations

import os

from .._common.boot_cache import BootCache
from .._nvidia_smi.gpu import Gpu

GPU_CLOCKS = "gpu_clocks_mhz"
MEMORY_CLOCKS = "memory_clocks_mhz"
SETTINGS = (GPU_CLOCKS, MEMORY_CLOCKS)

CACHE_FILE = "/run/gpu-fleet/clocks.json"
DRIVER = "/sys/module/nvidia"
PERSISTENCED = "/run/nvidia-persistenced/socket"

# Clocks come in steps of up to 15 MHz; the driver takes the step nearest to the requested value.
_TOLERANCE_MHZ = 30


class LockedClocks:
    """Locked clocks of a host's GPUs, as far as they are known: `default`, or a range such as `1000-1500` (MHz)."""

    def __init__(self, cache: BootCache, driver: str = DRIVER, persistenced: str = PERSISTENCED) -> None:
        self._cache = cache
        self._key = [_generation(driver), _generation(persistenced)]
        self._confirmed: dict[str, str] = {}

    def known(self, gpu: Gpu, setting: str) -> str | None:
        """The value that nvidia-smi last confirmed, or None where it may no longer be in effect."""
        name = _name(gpu.identity, setting)
        value = self._confirmed.get(name)
        if value is None and gpu.basics.persistence_mode != "disabled":
            (value,) = self._cache.get((name,), self._key) or (None,)
        return None if value is None or _is_above(gpu, setting, value) else value

    def confirm(self, identity: str, setting: str, value: str) -> None:
        """Cache a value that nvidia-smi reported as set."""
        self._confirmed[_name(identity, setting)] = value
        self._cache.put((_name(identity, setting),), self._key, (value,))

    def invalidate(self, identity: str, *settings: str) -> None:
        """Invalidate: nvidia-smi did not confirm a call, or the GPU is about to be reset."""
        names = [_name(identity, setting) for setting in settings]
        self._cache.invalidate(names)
        for name in names:
            self._confirmed.pop(name, None)


def invalidate_clocks(identity: str) -> None:
    """Invalidate the clocks of a GPU about to be reset, by us or by the driver during a change of its MIG mode."""
    LockedClocks(BootCache(CACHE_FILE)).invalidate(identity, *SETTINGS)


def _generation(path: str) -> int | None:
    """A number that differs between two driver loads or service starts: re-created files get new inode numbers."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _name(identity: str, setting: str) -> str:
    return f"{setting} {identity}"


def _is_above(gpu: Gpu, setting: str, value: str) -> bool:
    """Whether a clock is above the locked range, so the lock is gone. A lower clock proves nothing."""
    clock = gpu.clocks.clock_graphics_mhz if setting == GPU_CLOCKS else gpu.clocks.clock_memory_mhz
    high = value.rpartition("-")[2]
    return clock is not None and high.isdigit() and clock > int(high) + _TOLERANCE_MHZ
