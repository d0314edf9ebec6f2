# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVSwitches and NVLink 5 of a host, and what manages them; no driver has to be there. Private to this collection."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .._common.host_files import HostFiles
from .pci import DEVICES
from .values import bus_id

_NVIDIA, _MELLANOX = "0x10de", "0x15b3"
_BRIDGE_CLASS = "0x0680"
# https://pci-ids.ucw.cz/read/PC/10de: NVSwitches of the systems with V100, A100 and H100.
_NVSWITCHES = frozenset(("0x1ac0", "0x1ac1", "0x1ac2", "0x1af1", "0x22a3"))
# "SMDL=SW_MNG", the submodel: https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/. NVIDIA's driver
# container searches for the value alone.
_MARKER = b"SW_MNG"
# Through them Fabric Manager and nvlsm find the switches of NVLink 5, whose bridges are adapters of ConnectX.
_MODULES = ("mlx5_ib", "ib_umad")


@dataclass(frozen=True)
class NvlinkFabric:
    """PCI addresses of NVSwitches, of the ConnectX bridges to those of NVLink 5, and of unreadable ConnectX devices.

    `missing_modules` are those of NVLink 5 that the running kernel does not have. `imex_in_pods`: Kubernetes runs IMEX.
    """

    nvswitches: tuple[str, ...] = ()
    nvlink5_bridges: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    missing_modules: tuple[str, ...] = ()
    imex_in_pods: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The facts."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def is_nvlink5_bridge(vpd: bytes) -> bool:
    """Whether these vital product data are of a ConnectX that leads to the NVSwitches of NVLink 5.

    They are bytes: resource tags, two-byte lengths and a checksum stand between the strings, and may be cut off.
    """
    return _MARKER in vpd


def read_fabric(files: HostFiles) -> NvlinkFabric:
    """Read the PCI bus; virtual functions have no vital product data of their own."""
    nvswitches, bridges, unreadable = [], [], []
    for name in files.names(DEVICES):
        try:
            address = bus_id(name)
        except ValueError:
            continue
        path = f"{DEVICES}/{name}"
        vendor, device, kind = (
            (files.read(f"{path}/{entry}") or "").strip() for entry in ("vendor", "device", "class")
        )
        if vendor == _NVIDIA and (device in _NVSWITCHES or kind.startswith(_BRIDGE_CLASS)):
            nvswitches.append(address)
        elif vendor == _MELLANOX and files.exists(f"{path}/vpd") and not files.exists(f"{path}/physfn"):
            vpd = files.read_bytes(f"{path}/vpd")
            if is_nvlink5_bridge(vpd):
                bridges.append(address)
            elif not vpd:
                unreadable.append(address)
    return NvlinkFabric(
        tuple(nvswitches), tuple(bridges), tuple(unreadable), missing_modules(files), is_imex_in_pods(files)
    )


def missing_modules(files: HostFiles) -> tuple[str, ...]:
    """The modules of NVLink 5 that the running kernel does not have; none where it lists no module at all."""
    directory = f"/lib/modules/{(files.read('/proc/sys/kernel/osrelease') or '').strip()}"
    listed = [files.read(f"{directory}/modules.{kind}") or "" for kind in ("dep", "builtin")]
    paths = [line.partition(":")[0] for text in listed for line in text.splitlines()]
    names = {path.rpartition("/")[2].partition(".")[0].replace("-", "_") for path in paths}
    return tuple(name for name in _MODULES if name not in names) if names else ()


def is_imex_in_pods(files: HostFiles) -> bool:
    """Whether a process of IMEX is in a pod, as those that NVIDIA's DRA driver starts are."""
    return any(
        (files.read(f"/proc/{name}/comm") or "").strip() == "nvidia-imex"
        and "kubepods" in (files.read(f"/proc/{name}/cgroup") or "")
        for name in files.names("/proc")
        if name.isdigit()
    )
