# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines whose driver does not come from their distribution. Private to this collection."""

from __future__ import annotations

import re

from .._common.host_files import HostFiles

WSL, LXC, JETSON, PROXMOX = "wsl", "lxc", "jetson", "proxmox"
VGPU_HOST, VGPU_GUEST = "host", "guest"
_KERNEL = "/proc/sys/kernel/osrelease"
_DEVICES = "/sys/bus/pci/devices"
# Of the Virtual GPU Manager: its daemon, and its module. https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/
_MANAGER = ("/usr/bin/nvidia-vgpud", "/sys/module/nvidia_vgpu_vfio")
# In the configuration of a PCI device: where its list of capabilities begins, and the id of a vendor's own one. In
# a vGPU's are these letters: https://github.com/NVIDIA/k8s-device-plugin, internal/vgpu/vgpu.go, read 2026-11-29.
_CAPABILITIES, _OF_VENDOR, _LETTERS = 0x34, 0x09, b"VF"


def read_machine(files: HostFiles) -> dict[str, str]:
    """`virtualization`, which is one of these or empty, `dgx_os`, the version of DGX OS, and the side of a vGPU.

    The kernels of WSL 2 and of Jetson have it in their release (5.15.167.4-microsoft-standard-WSL2,
    5.15.148-tegra), a container manager gives it to the first process, and systemd writes it down. Containers of
    Proxmox VE have its kernel, and only the host its programs. Each update of DGX OS adds its version to
    /etc/dgx-release: https://docs.nvidia.com/dgx/dgx-os-7-user-guide/.
    """
    kernel = (files.read(_KERNEL) or "").strip()
    manager = (files.read("/run/systemd/container") or "").strip()
    environment = (files.read("/proc/1/environ") or "").split("\0")
    versions = re.findall(r'(?m)^DGX_(?:SWBUILD|OTA)_VERSION="?([0-9][0-9.]*)', files.read("/etc/dgx-release") or "")
    kind = ""
    if re.search(r"microsoft.*WSL2?", kernel, re.IGNORECASE):
        kind = WSL
    elif kernel.endswith("-tegra") or files.exists("/etc/nv_tegra_release"):
        kind = JETSON
    elif LXC in (manager, *(one[len("container=") :] for one in environment if one.startswith("container="))):
        kind = LXC
    elif files.exists("/usr/bin/pveversion"):
        kind = PROXMOX
    return {"virtualization": kind, "dgx_os": versions[-1] if versions else "", "vgpu": _side_of_vgpu(files)}


def _side_of_vgpu(files: HostFiles) -> str:
    """Whether the host has the Virtual GPU Manager, or is a virtual machine with a vGPU, with or without its driver."""
    if any(files.exists(path) for path in _MANAGER):
        return VGPU_HOST
    gpus = [
        f"{_DEVICES}/{name}"
        for name in files.names(_DEVICES)
        if (files.read(f"{_DEVICES}/{name}/vendor") or "").strip() == "0x10de"
        and (files.read(f"{_DEVICES}/{name}/class") or "").startswith("0x03")
    ]
    return VGPU_GUEST if any(is_vgpu(files.read_bytes(f"{path}/config")) for path in gpus) else ""


def is_vgpu(config: bytes) -> bool:
    """Whether the configuration of a PCI device is a vGPU's. It may be cut, and its list may lead back to itself."""
    place, seen = (config[_CAPABILITIES] if len(config) > _CAPABILITIES else 0), set()
    while place and place not in seen and place + 1 < len(config):
        seen.add(place)
        if config[place] == _OF_VENDOR and config[place + 3 : place + 5] == _LETTERS:
            return True
        place = config[place + 1]
    return False
