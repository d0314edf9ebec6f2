# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network adapters of a host, from sysfs. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._common.host_files import HostFiles

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE = re.compile(r"([0-9.]+) Gb/sec")
_NETWORK = "/sys/class/net"
_INFINIBAND = "/sys/class/infiniband"


@dataclass(frozen=True)
class Nic:
    """A port of an adapter on the PCI bus; `names` are its network interfaces and RDMA devices.

    `speed_gb_per_second` is in Gbit/s, None without a link. `up` is whether it has one, None where that is not known.
    """

    names: tuple[str, ...]
    pci_bus_id: str
    rdma: bool
    speed_gb_per_second: float | None
    up: bool | None
    numa_node: int | None


def read_nics(files: HostFiles) -> tuple[Nic, ...]:
    """All adapters by PCI address, without virtual functions."""
    interfaces = _by_device(files, _NETWORK)
    rdma_devices = _by_device(files, _INFINIBAND)
    return tuple(
        _nic(files, device, interfaces.get(device, ()), rdma_devices.get(device, ()))
        for device in sorted({*interfaces, *rdma_devices})
        if not files.exists(f"{device}/physfn")
    )


def _by_device(files: HostFiles, directory: str) -> dict[str, tuple[str, ...]]:
    """The names in a directory of sysfs by the path of their PCI device; those of other buses are left out."""
    found: dict[str, tuple[str, ...]] = {}
    for name in files.names(directory):
        device = files.resolve(f"{directory}/{name}/device")
        if _ADDRESS.fullmatch(device.rpartition("/")[2]):
            found[device] = (*found.get(device, ()), name)
    return found


def _nic(files: HostFiles, device: str, interfaces: tuple[str, ...], rdma_devices: tuple[str, ...]) -> Nic:
    states = [(files.read(f"{_NETWORK}/{name}/operstate") or "").strip() for name in interfaces]
    for name in rdma_devices:
        for port in files.names(f"{_INFINIBAND}/{name}/ports"):
            states.append(
                "up" if "ACTIVE" in (files.read(f"{_INFINIBAND}/{name}/ports/{port}/state") or "") else "down"
            )
    known = [state for state in states if state in ("up", "down")]
    up = "up" in known if known else None
    node = (files.read(f"{device}/numa_node") or "").strip()
    return Nic(
        names=(*interfaces, *rdma_devices),
        pci_bus_id=device.rpartition("/")[2],
        rdma=bool(rdma_devices),
        speed_gb_per_second=_speed(files, interfaces, rdma_devices) if up else None,
        up=up,
        # -1 is a host without NUMA.
        numa_node=int(node) if node.isdigit() else None,
    )


def _speed(files: HostFiles, interfaces: tuple[str, ...], rdma_devices: tuple[str, ...]) -> float | None:
    """The fastest link in Gbit/s."""
    speeds = []
    for name in interfaces:
        megabits = (files.read(f"{_NETWORK}/{name}/speed") or "").strip()
        if megabits.isdigit() and int(megabits) > 0:
            speeds.append(int(megabits) / 1000)
    for name in rdma_devices:
        for port in files.names(f"{_INFINIBAND}/{name}/ports"):
            rate = _RATE.match(files.read(f"{_INFINIBAND}/{name}/ports/{port}/rate") or "")
            if rate is not None:
                speeds.append(float(rate[1]))
    return max(speeds, default=None)
