# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the network between the GPUs of hosts from sysfs, without any program. Private to this collection."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from typing import Mapping, Sequence

from .._common.host_files import HostFiles
from .._common.nics import ACTIVE, PCI_ADDRESS, Adapter, Interface, RdmaDevice, RdmaPort, number, read_adapters
from .._cuda.driver import loaded_driver
from .._nvidia_smi.nvlink_fabric import ofed_version, peermem
from .kernel_log_sources import is_container
from .network import (
    CARRIER_DOWNS,
    ETHERNET,
    INTEGRITY_ERRORS,
    LINK_DOWNED,
    SYMBOL_ERRORS,
    Before,
    Known,
    Port,
    PortHistory,
    acs_redirects,
    bridges_between,
    gpudirect,
    judged,
    network_of_gpus,
    peermem_unbuilt,
    serves_gpus,
    updated,
    with_names,
)
from .observe import PCI_DEVICES, device_path
from .readings import Facts

_VERBS = "/sys/class/infiniband_verbs"
_MADS = "/sys/class/infiniband_mad"
_NODES = "/dev/infiniband"
_RELEASE = "/proc/sys/kernel/osrelease"
_NAMESPACES = ("/proc/self/ns/net", "/proc/1/ns/net")
_PEER_MODULES = ("/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem")
# Its driver reaches the memory of GPUs by itself.
_AMAZON = "0x1d0f"
# On their boards adapters of the same kind manage the NVSwitches; their product data have this text.
_WITH_SWITCH_ADAPTERS = ("B200", "B300")
_OF_A_SWITCH = b"SW_MNG"


def read_network(
    facts: Facts, files: HostFiles, before: Before, declared: int | None
) -> tuple[dict[str, str], dict[str, PortHistory]]:
    """The readings of all rows about the network, and the ports for the history. In a network namespace of its own, as
    a service may have one, there is nothing to see."""
    if _is_apart(files):
        return {}, dict(before.known)
    gpu_paths = {gpu["pci_bus_id"]: device_path(gpu["pci_bus_id"], files) for gpu in facts["pci_gpus"]}
    switched = any(board in (gpu["name"] or "") for gpu in facts["gpus"] for board in _WITH_SWITCH_ADAPTERS)
    ports = _read_ports(files, gpu_paths, switched)
    readings = judged(ports, before, declared, _gone(ports, before.known, files))
    network = network_of_gpus(ports, before.known, declared is not None)
    others = [port for port in network if not port.model.startswith(_AMAZON)]
    if facts["available"] and serves_gpus(others, len(facts["gpus"]), declared is not None):
        release = (files.read(_RELEASE) or "").strip()
        _version, kind = loaded_driver(files)
        has_peer_module = any(files.exists(path) for path in _PEER_MODULES)
        readings["gpudirect_impossible"], readings["gpudirect_unknown"] = gpudirect(has_peer_module, kind, release)
        is_reached = not (readings["gpudirect_impossible"] or readings["gpudirect_unknown"])
        readings["peermem_unbuilt"] = "" if is_reached else peermem_unbuilt(peermem(files), ofed_version(files))
        # A hypervisor keeps its guests apart, and what it shows of the bus is not the bus.
        is_physical = all(gpu["virtualization_mode"] in (None, "none") for gpu in facts["gpus"])
        readings["gpudirect_redirected"] = _redirected(files, network, gpu_paths) if is_physical else ""
    return readings, updated(ports, before, declared is not None)


def _is_apart(files: HostFiles) -> bool:
    """Whether this program has another network than the first of the host or of the container."""
    try:
        own, first = (os.readlink(files.real(path)) for path in _NAMESPACES)
    except OSError:
        return False
    return own != first


def _read_ports(files: HostFiles, gpu_paths: Mapping[str, Sequence[str]], switched: bool) -> tuple[Port, ...]:
    adapters = read_adapters(files)
    cards = Counter(adapter.pci_bus_id[:-2] for adapter in adapters)
    bridges = {name for path in gpu_paths.values() for name in path[:-1] if PCI_ADDRESS.fullmatch(name)}
    nodes = _Nodes(files)
    ports = []
    for adapter in adapters:
        if not adapter.rdma_devices or (switched and _OF_A_SWITCH in files.read_bytes(f"{adapter.path}/vpd")):
            continue
        near = bool(bridges.intersection(adapter.path.split("/")))
        for device in adapter.rdma_devices:
            for port in device.ports:
                found = _port(files, adapter, device, port)
                missing = nodes.missing(device, port) if port.state == ACTIVE else ()
                card = cards[adapter.pci_bus_id[:-2]]
                ports.append(replace(found, functions=card, near=near, missing_nodes=missing))
    return with_names(ports)


def _port(files: HostFiles, adapter: Adapter, device: RdmaDevice, port: RdmaPort) -> Port:
    interfaces = _interfaces(files, adapter, device, port)
    guid = (files.read(f"{device.path}/node_guid") or "").strip()
    is_known = re.fullmatch(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}", guid) and set(guid) != {"0", ":"}
    counters = {
        name: value
        for name in (LINK_DOWNED, SYMBOL_ERRORS, INTEGRITY_ERRORS)
        if (value := number(files.read(f"{device.path}/ports/{port.number}/counters/{name}"))) is not None
    }
    downs = [count for count in (_link_downs(files, interface) for interface in interfaces) if count is not None]
    if downs:
        counters[CARRIER_DOWNS] = sum(downs)
    received = number(files.read(f"{device.path}/ports/{port.number}/counters/port_rcv_data"))
    is_ethernet = port.link_layer == ETHERNET
    had_carrier = is_ethernet and any(number(files.read(f"{each.path}/carrier_up_count")) for each in interfaces)
    states = [state for state in (_is_enabled(files, interface) for interface in interfaces) if state is not None]
    return Port(
        key=f"{guid if is_known else adapter.pci_bus_id}/{port.number}",
        name=device.name,
        place=adapter.pci_bus_id,
        model=f"{_line(files, adapter, 'vendor')}:{_line(files, adapter, 'device')}",
        link_layer=port.link_layer,
        state=port.state,
        physical_state=port.physical_state,
        physical_text=port.physical_text,
        rate=port.rate_gb_per_second,
        enabled=any(states) if states else None,
        had_link=bool(counters.get(LINK_DOWNED) or received or had_carrier),
        pcie_speed=_speed(_line(files, adapter, "current_link_speed")),
        # A guest may see 0.
        pcie_lanes=number(_line(files, adapter, "current_link_width")) or None,
        counters=counters,
    )


def _interfaces(files: HostFiles, adapter: Adapter, device: RdmaDevice, port: RdmaPort) -> list[Interface]:
    """The interfaces of a port: they have its number, from 0, where the device has several."""
    if len(device.ports) <= 1:
        return list(adapter.interfaces)
    return [each for each in adapter.interfaces if number(files.read(f"{each.path}/dev_port")) == port.number - 1]


def _link_downs(files: HostFiles, interface: Interface) -> int | None:
    """How often an interface lost its carrier; kernels before 4.16 count only both directions together."""
    downs = number(files.read(f"{interface.path}/carrier_down_count"))
    if downs is None:
        changes = number(files.read(f"{interface.path}/carrier_changes"))
        return None if changes is None else changes // 2
    return downs


def _is_enabled(files: HostFiles, interface: Interface) -> bool | None:
    """Whether an interface is set to be up, with or without a link."""
    flags = re.fullmatch(r"0x[0-9a-f]{1,8}", (files.read(f"{interface.path}/flags") or "").strip())
    return bool(int(flags[0], 16) & 1) if flags else None


def _line(files: HostFiles, adapter: Adapter, name: str) -> str:
    return (files.read(f"{adapter.path}/{name}") or "").strip()[:64]


def _speed(text: str) -> float | None:
    """The number in `32.0 GT/s PCIe`."""
    found = re.match(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) GT/s", text)
    return float(found[1]) if found else None


class _Nodes:
    """The character devices of RDMA devices. Devices of a container do not concern the host."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._unknown = is_container(files)
        # Without the module ib_umad there is no class, which is a choice: only tools of the fabric need it.
        self._has_mads = files.exists(_MADS)
        self._verbs = self._devices(_VERBS, "uverbs", "ibdev")
        self._mads = self._devices(_MADS, "umad", "ibdev", "port")

    def missing(self, device: RdmaDevice, port: RdmaPort) -> tuple[str, ...]:
        """What a port does not have."""
        if self._unknown:
            return ()
        name = device.path.rpartition("/")[2]
        found = [] if (name,) in self._verbs else [f"{_NODES}/uverbs*"]
        if port.link_layer == "InfiniBand" and self._has_mads and (name, str(port.number)) not in self._mads:
            found.append(f"{_NODES}/umad*")
        return tuple(found)

    def _devices(self, directory: str, prefix: str, *attributes: str) -> set[tuple[str, ...]]:
        return {
            tuple((self._files.read(f"{directory}/{name}/{attribute}") or "").strip() for attribute in attributes)
            for name in self._files.names(directory)
            if re.fullmatch(prefix + "[0-9]{1,6}", name) and self._files.exists(f"{_NODES}/{name}")
        }


def _gone(ports: Sequence[Port], known: Known, files: HostFiles) -> list[PortHistory]:
    """Known ports whose adapter has no driver or is not on the bus, as far as there are fewer of its model: the address
    changes with other cards, and an adapter that was given to a guest has another driver."""
    if not files.names(PCI_DEVICES):
        return []
    present = {port.key for port in ports}
    now = Counter(port.model for port in ports)
    before = Counter(port.model for port in known.values())
    return [
        port
        for key, port in known.items()
        if key not in present
        and now[port.model] < before[port.model]
        and PCI_ADDRESS.fullmatch(port.place)
        and not files.exists(f"{PCI_DEVICES}/{port.place}/driver")
    ]


def _redirected(files: HostFiles, network: Sequence[Port], gpu_paths: Mapping[str, Sequence[str]]) -> str:
    """The bridges between GPUs and adapters whose ACS redirects what they send each other."""
    bridges: dict[str, str] = {}
    for port in network:
        if not port.near:
            continue
        path = device_path(port.place, files)
        for gpu, gpu_path in gpu_paths.items():
            if any(PCI_ADDRESS.fullmatch(name) and name in gpu_path for name in path[:-1]):
                for bridge in bridges_between(path, gpu_path):
                    if PCI_ADDRESS.fullmatch(bridge):
                        bridges.setdefault(bridge, f"{port.label} and GPU {gpu}")
    found = [
        f"{bridge} (between {ends})"
        for bridge, ends in sorted(bridges.items())
        if acs_redirects(files.read_bytes(f"{PCI_DEVICES}/{bridge}/config"))
    ]
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    what = "sends traffic between GPUs and adapters through the CPU; disable it in the firmware"
    return f"ACS of PCI bridge {found[0]}{more} {what}"
