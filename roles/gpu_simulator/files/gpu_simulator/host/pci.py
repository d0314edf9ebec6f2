# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI devices in sysfs, as read by lspci, Ansible's facts and a driver role."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..state.shapes import Gpu, Model

_LINK_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""GT/s of a PCI Express generation."""

_COMMAND = 0x0406
"""Memory space, bus master, no legacy interrupt: a device bound to a driver."""

_CLASS_DISPLAY = 0x03


class PciDevice:
    """One simulated PCI device: its address (``0000:00:06.0``), its ids as numbers, its link."""

    def __init__(self, gpu: Gpu, model: Model) -> None:
        pci = model["pci"]
        domain, bus, slot = gpu["bus_id"].lower().split(":")
        self.address = f"{domain[-4:]}:{bus}:{slot}"
        self.passed_through = gpu["health"] == "passthrough"
        # nvidia-smi prints each pair of ids as one number: device, then vendor.
        self.device, self.vendor = _ids(pci["device_id"])
        self.subsystem_device, self.subsystem_vendor = _ids(pci["subsystem_id"])
        self.class_code = _CLASS_DISPLAY << 16 | int(pci["sub_class"], 16) << 8
        self.link_generation = int(pci["device_link_gen"])

    def config_space(self) -> bytes:
        """Return the first 256 bytes of the configuration space: a type 0 header without capabilities."""
        header = struct.pack(
            "<HHHHBBBBBBBB24xIHHIB7xBBBB",
            self.vendor,
            self.device,
            _COMMAND,
            0,  # status: no capability list
            0xA1,  # revision
            self.class_code & 0xFF,
            self.class_code >> 8 & 0xFF,
            self.class_code >> 16,
            0,  # cache line size
            0,  # latency timer
            0,  # header type: an ordinary device
            0,  # no self test
            0,  # CardBus
            self.subsystem_vendor,
            self.subsystem_device,
            0,  # expansion ROM
            0,  # capabilities
            0xFF,  # interrupt line: none
            1,  # interrupt pin A
            0,
            0,
        )
        return header.ljust(256, b"\0")

    def files(self) -> dict[str, bytes]:
        """Return the attribute files of the device's directory in sysfs, by name."""
        modalias = (
            f"pci:v{self.vendor:08X}d{self.device:08X}sv{self.subsystem_vendor:08X}sd{self.subsystem_device:08X}"
            f"bc{self.class_code >> 16:02X}sc{self.class_code >> 8 & 0xFF:02X}i{self.class_code & 0xFF:02X}"
        )
        speed = _LINK_SPEEDS[self.link_generation] + " GT/s PCIe"
        contents = {
            "vendor": f"0x{self.vendor:04x}",
            "device": f"0x{self.device:04x}",
            "subsystem_vendor": f"0x{self.subsystem_vendor:04x}",
            "subsystem_device": f"0x{self.subsystem_device:04x}",
            "class": f"0x{self.class_code:06x}",
            "revision": "0xa1",
            "modalias": modalias,
            "irq": "0",
            "enable": "1",
            "numa_node": "-1",
            "resource": "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 13),
            "current_link_speed": speed,
            "max_link_speed": speed,
            "current_link_width": "16",
            "max_link_width": "16",
            "uevent": "\n".join(self.uevent(None)),
        }
        files = {name: (text + "\n").encode() for name, text in contents.items()}
        files["config"] = self.config_space()
        return files

    def uevent(self, driver: str | None) -> list[str]:
        """Return the lines of the uevent file; the first names the driver bound to the device, if any."""
        return ([f"DRIVER={driver}"] if driver else []) + [
            f"PCI_CLASS={self.class_code:X}",
            f"PCI_ID={self.vendor:04X}:{self.device:04X}",
            f"PCI_SUBSYS_ID={self.subsystem_vendor:04X}:{self.subsystem_device:04X}",
            f"PCI_SLOT_NAME={self.address}",
        ]


def _ids(text: str) -> tuple[int, int]:
    digits = text.lower().replace("0x", "").rjust(8, "0")
    return int(digits[:4], 16), int(digits[4:], 16)
