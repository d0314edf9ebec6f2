# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's devices on the PCI bus, with or without a driver. Private to this collection."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from .values import bus_id, interpret, small

DEVICES = "/sys/bus/pci/devices"
DRIVEN = "/proc/driver/nvidia/gpus"
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"


@dataclass(frozen=True)
class PciDevice:
    """One PCI function. Ids are hexadecimal with prefix; `driver` is the kernel driver bound to it, if any."""

    pci_bus_id: str
    device_id: str
    class_id: str
    driver: str | None
    numa_node: int | None


def nvidia_gpus() -> tuple[PciDevice, ...]:
    """NVIDIA's display controllers ordered by address: GPUs, but not their audio or USB functions."""
    return tuple(device for device in _nvidia_devices() if device.class_id.startswith(_DISPLAY_CLASS))


def driven_gpus() -> tuple[str, ...]:
    """The PCI bus ids of the GPUs that the loaded driver has, in its order; empty where it has or shows none."""
    try:
        names = os.listdir(DRIVEN)
    except OSError:
        return tuple(device.pci_bus_id for device in nvidia_gpus() if device.driver == "nvidia")
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            found.append(bus_id(name))
    return tuple(sorted(found))


def _nvidia_devices() -> tuple[PciDevice, ...]:
    try:
        names = sorted(os.listdir(DEVICES))
    except OSError:
        return ()
    found = []
    for name in names:
        path = os.path.join(DEVICES, name)
        try:
            address = bus_id(name)
        except ValueError:
            continue
        if _read(path, "vendor") == _NVIDIA:
            found.append(
                PciDevice(
                    pci_bus_id=address,
                    device_id=_read(path, "device"),
                    class_id=_read(path, "class"),
                    driver=_driver(path),
                    # The kernel reports -1 where the firmware assigns no node.
                    numa_node=interpret(_read(path, "numa_node"), small)[0],
                )
            )
    return tuple(found)


def _read(path: str, name: str) -> str:
    try:
        with open(os.path.join(path, name), encoding="ascii", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _driver(path: str) -> str | None:
    try:
        return os.path.basename(os.readlink(os.path.join(path, "driver")))
    except OSError:
        return None
