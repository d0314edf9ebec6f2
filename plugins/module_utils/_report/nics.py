# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network adapters of a host, as the report shows them. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass

from .._common.host_files import HostFiles
from .._common.nics import ACTIVE, Adapter, number, read_adapters


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
    return tuple(_nic(files, adapter) for adapter in read_adapters(files))


def _nic(files: HostFiles, adapter: Adapter) -> Nic:
    ports = [port for device in adapter.rdma_devices for port in device.ports]
    states = [(files.read(f"{interface.path}/operstate") or "").strip() for interface in adapter.interfaces]
    known = [state == "up" for state in states if state in ("up", "down")]
    known += [port.state == ACTIVE for port in ports]
    up = any(known) if known else None
    speeds = [port.rate_gb_per_second for port in ports]
    for interface in adapter.interfaces:
        megabits = number(files.read(f"{interface.path}/speed"))
        speeds.append(megabits / 1000 if megabits else None)
    return Nic(
        names=(*(each.name for each in adapter.interfaces), *(each.name for each in adapter.rdma_devices)),
        pci_bus_id=adapter.pci_bus_id,
        rdma=bool(adapter.rdma_devices),
        speed_gb_per_second=max((speed for speed in speeds if speed is not None), default=None) if up else None,
        up=up,
        # -1 is a host without NUMA.
        numa_node=number(files.read(f"{adapter.path}/numa_node")),
    )
