# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's devices on the PCI bus, with or without a driver. Private to this collection."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from .values import bus_id, interpret, small

DEVICES = "/sys/bus/pci/devices"
DRIVEN = "/proc/driver/nvidia/gpus"
PARAMETERS = "/proc/driver/nvidia/params"
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_VGA_CLASS = "0x0300"

PASSTHROUGH = r"(?:[\w-]{0,64}vfio[\w-]{0,64}|(?:pci[-_])?(?:pf[-_])?stub|(?:xen[-_])?pciback|uio_pci_generic|igb_uio)"
"""Drivers that are bound to a GPU on purpose, to pass it through to a virtual machine: vfio-pci, its variants such as
nvgrace-gpu-vfio-pci and nvidia-vgpu-vfio-pci, and drivers of other hypervisors. With nouveau or none it is a fault."""
_IS_PASSTHROUGH = re.compile(PASSTHROUGH)
# The parameter of older drivers is GpuBlacklist, and what they print of a GPU `Blacklisted`.
_EXCLUDES = re.compile(r'^(?:(?:ExcludedGpus|GpuBlacklist): *"[^"\n]|ExcludeAllGpus: *[1-9])', re.MULTILINE)
_IS_EXCLUDED = re.compile(r"^(?:GPU Excluded|(?:GPU )?Blacklisted):\s*Yes\b", re.MULTILINE)


@dataclass(frozen=True)
class PciDevice:
    """One PCI function. Ids are hexadecimal with prefix; `driver` is the kernel driver bound to it, if any.

    `excluded`: nvidia's parameters have it ignore this GPU.
    """

    pci_bus_id: str
    device_id: str
    class_id: str
    driver: str | None
    numa_node: int | None
    excluded: bool = False

    @property
    def passed_through(self) -> bool:
        """Whether it is kept for a virtual machine."""
        return self.driver is not None and _IS_PASSTHROUGH.fullmatch(self.driver) is not None

    @property
    def is_withheld(self) -> bool:
        """Whether nvidia-smi is not to show it, on purpose."""
        return self.passed_through or self.excluded

    @property
    def is_display_card(self) -> bool:
        """Whether a monitor can be connected: of most data center GPUs the class is another one."""
        return self.class_id.startswith(_VGA_CLASS)


def nvidia_gpus() -> tuple[PciDevice, ...]:
    """NVIDIA's display controllers ordered by address: GPUs, but not their audio, USB or SR-IOV virtual functions."""
    return tuple(device for device in _nvidia_devices() if device.class_id.startswith(_DISPLAY_CLASS))


def driven_gpus() -> tuple[str, ...]:
    """The PCI bus ids of the GPUs that the loaded driver has, in its order; empty where it has or shows none."""
    try:
        names = os.listdir(DRIVEN)
    except OSError:
        return tuple(device.pci_bus_id for device in nvidia_gpus() if device.driver == "nvidia")
    excludes = _excludes()
    found = []
    for name in names:
        with contextlib.suppress(ValueError):
            if not (excludes and _is_excluded(name)):
                found.append(bus_id(name))
    return tuple(sorted(found))


def _excludes() -> bool:
    """Whether the driver is to ignore GPUs. Without need nothing else is read of it: a driver that hangs may block."""
    return _EXCLUDES.search(_read(*os.path.split(PARAMETERS))) is not None


def _is_excluded(name: str) -> bool:
    return _IS_EXCLUDED.search(_read(os.path.join(DRIVEN, name), "information")) is not None


def _nvidia_devices() -> tuple[PciDevice, ...]:
    try:
        names = sorted(os.listdir(DEVICES))
    except OSError:
        return ()
    excludes = _excludes()
    found = []
    for name in names:
        path = os.path.join(DEVICES, name)
        try:
            address = bus_id(name)
        except ValueError:
            continue
        # Of a GPU that is shared among virtual machines, each has a virtual function, whatever its driver.
        if _read(path, "vendor") == _NVIDIA and not os.path.lexists(os.path.join(path, "physfn")):
            driver = _driver(path)
            found.append(
                PciDevice(
                    pci_bus_id=address,
                    device_id=_read(path, "device"),
                    class_id=_read(path, "class"),
                    driver=driver,
                    # The kernel reports -1 where the firmware assigns no node.
                    numa_node=interpret(_read(path, "numa_node"), small)[0],
                    excluded=driver == "nvidia" and excludes and _is_excluded(name),
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
