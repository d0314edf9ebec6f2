# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of locked clocks, which nvidia-smi sets but does not show. Private to this collection.

What nvidia-smi confirmed is remembered for as long as it can hold: until the next boot, load of the driver, start of
nvidia-persistenced, or reset of the GPU by us, and while persistence mode is on, since without it the driver forgets as
soon as nothing uses the GPU. What another hand does to the clocks in between can be seen only where a clock is above
what was locked.
"""

from __future__ import annotations

import os

from .._common.boot_cache import Memory
from .._nvidia_smi.gpu import Gpu

GPU_CLOCKS = "gpu_clocks_mhz"
MEMORY_CLOCKS = "memory_clocks_mhz"
SETTINGS = (GPU_CLOCKS, MEMORY_CLOCKS)

MEMORY = "/run/gpu-fleet/clocks.json"
DRIVER = "/sys/module/nvidia"
PERSISTENCED = "/run/nvidia-persistenced/socket"

# Clocks come in steps of up to 15 MHz, and the driver takes the step next to what it was told.
_TOLERANCE_MHZ = 30


class LockedClocks:
    """The locked clocks of a host's GPUs, as far as they are known: `default`, or a range as `1000-1500`."""

    def __init__(self, memory: Memory, driver: str = DRIVER, persistenced: str = PERSISTENCED) -> None:
        self._memory = memory
        self._key = [_generation(driver), _generation(persistenced)]
        self._confirmed: dict[str, str] = {}

    def known(self, gpu: Gpu, setting: str) -> str | None:
        """What nvidia-smi last confirmed, unless it cannot hold any more."""
        name = _name(gpu.identity, setting)
        value = self._confirmed.get(name)
        if value is None and gpu.basics.persistence_mode != "disabled":
            (value,) = self._memory.recall((name,), self._key) or (None,)
        return None if value is None or _is_above(gpu, setting, value) else value

    def confirm(self, identity: str, setting: str, value: str) -> None:
        """nvidia-smi said that it set this."""
        self._confirmed[_name(identity, setting)] = value
        self._memory.remember((_name(identity, setting),), self._key, (value,))

    def forget(self, identity: str, *settings: str) -> None:
        """nvidia-smi did not confirm what it was told, or the GPU is about to be reset."""
        names = [_name(identity, setting) for setting in settings]
        self._memory.forget(names)
        for name in names:
            self._confirmed.pop(name, None)


def forget_clocks(identity: str) -> None:
    """A GPU is about to be reset, by us or by the driver as it changes its MIG mode: that frees its clocks."""
    LockedClocks(Memory(MEMORY)).forget(identity, *SETTINGS)


def _generation(path: str) -> int | None:
    """What differs between two loads of the driver, or starts of the service: files made anew have other numbers."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _name(identity: str, setting: str) -> str:
    return f"{setting} {identity}"


def _is_above(gpu: Gpu, setting: str, value: str) -> bool:
    """Whether a clock is higher than the lock allows, which shows that the lock is gone. A low clock shows nothing."""
    clock = gpu.clocks.clock_graphics_mhz if setting == GPU_CLOCKS else gpu.clocks.clock_memory_mhz
    high = value.rpartition("-")[2]
    return clock is not None and high.isdigit() and clock > int(high) + _TOLERANCE_MHZ
