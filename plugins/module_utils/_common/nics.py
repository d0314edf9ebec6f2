# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network adapters of a host on the PCI bus, from sysfs. Private to this collection.

The kernel documents the files in Documentation/ABI: stable/sysfs-class-infiniband, testing/sysfs-class-net.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .host_files import HostFiles

NETWORK = "/sys/class/net"
INFINIBAND = "/sys/class/infiniband"
PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NUMBER = re.compile(r"[0-9]{1,20}")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec")
_MOST_ADAPTERS = 256
_LONGEST_NAME = 64

ACTIVE = 4
LINK_UP = 5


@dataclass(frozen=True)
class Interface:
    """A network interface. `path` is its directory in sysfs."""

    name: str
    path: str


@dataclass(frozen=True)
class RdmaPort:
    """A port of an RDMA device. `state` and `physical_state` are the kernel's numbers: 4 is ACTIVE, 5 is LinkUp."""

    number: int
    link_layer: str
    state: int | None
    physical_state: int | None
    physical_text: str
    rate_gb_per_second: float | None


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device, as mlx5_0. `path` is its directory in sysfs."""

    name: str
    path: str
    ports: tuple[RdmaPort, ...]


@dataclass(frozen=True)
class Adapter:
    """One PCI function with network interfaces or RDMA devices. `path` is its directory in sysfs."""

    path: str
    pci_bus_id: str
    interfaces: tuple[Interface, ...]
    rdma_devices: tuple[RdmaDevice, ...]


def read_adapters(files: HostFiles) -> tuple[Adapter, ...]:
    """All adapters by PCI address, without virtual functions of this host's own."""
    interfaces = _by_device(files, NETWORK)
    rdma_devices = _by_device(files, INFINIBAND)
    physical = [path for path in sorted({*interfaces, *rdma_devices}) if not files.exists(f"{path}/physfn")]
    return tuple(
        Adapter(
            path=path,
            pci_bus_id=path.rpartition("/")[2],
            interfaces=tuple(Interface(printable(name), f"{NETWORK}/{name}") for name in interfaces.get(path, ())),
            rdma_devices=tuple(_rdma_device(files, name) for name in rdma_devices.get(path, ())),
        )
        for path in physical[:_MOST_ADAPTERS]
    )


def number(text: str | None) -> int | None:
    """A count in a file of sysfs; None for -1, an error or anything else."""
    found = _NUMBER.fullmatch((text or "").strip())
    return int(found[0]) if found else None


def printable(name: str) -> str:
    """A name for messages: who makes an interface or a device chooses its name."""
    return re.sub(r"[^!-~]", "?", name[:_LONGEST_NAME])


def _by_device(files: HostFiles, directory: str) -> dict[str, tuple[str, ...]]:
    """The names in a directory of sysfs by the path of their PCI device; other buses are left out."""
    found: dict[str, tuple[str, ...]] = {}
    for name in files.names(directory):
        device = files.resolve(f"{directory}/{name}/device")
        if PCI_ADDRESS.fullmatch(device.rpartition("/")[2]):
            found[device] = (*found.get(device, ()), name)
    return found


def _rdma_device(files: HostFiles, name: str) -> RdmaDevice:
    path = f"{INFINIBAND}/{name}"
    ports = tuple(_rdma_port(files, f"{path}/ports/{port}", int(port)) for port in _ports(files, path))
    return RdmaDevice(printable(name), path, ports)


def _ports(files: HostFiles, path: str) -> list[str]:
    return [name for name in files.names(f"{path}/ports") if re.fullmatch(r"[0-9]{1,3}", name)]


def _rdma_port(files: HostFiles, path: str, port: int) -> RdmaPort:
    state, _text = _numbered(files.read(f"{path}/state"))
    physical, text = _numbered(files.read(f"{path}/phys_state"))
    rate = _RATE.match(files.read(f"{path}/rate") or "")
    return RdmaPort(
        number=port,
        link_layer=printable((files.read(f"{path}/link_layer") or "").strip()),
        state=state,
        physical_state=physical,
        physical_text=text,
        rate_gb_per_second=float(rate[1]) if rate else None,
    )


def _numbered(text: str | None) -> tuple[int | None, str]:
    """The number and the name in `4: ACTIVE`."""
    first, _colon, name = (text or "").partition(":")
    return number(first), printable(name.strip())
