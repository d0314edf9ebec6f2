# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be installed on machines whose driver does not come from their distribution. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module_utils._host.machine import JETSON, LXC, PROXMOX, VGPU_GUEST, VGPU_HOST, WSL

MACHINE = "gpu_fleet_machine"
_WITHOUT_ROLE = "take nvidia_driver out of gpu_fleet_roles for this host"
_DRIVERS = {
    WSL: "this is WSL 2, which uses the driver of Windows: install NVIDIA's driver there, not here, and "
    f"{_WITHOUT_ROLE}",
    JETSON: "this is a Jetson, whose driver is part of its kernel and comes with JetPack, as packages nvidia-l4t-*: "
    f"{_WITHOUT_ROLE}",
    LXC: "this is an LXC container, which uses the kernel modules of its host: run the role on the host, give the "
    f"container its devices and libraries (lxc.mount.entry, or nvidia.runtime of LXD and Incus), and {_WITHOUT_ROLE}",
}
_VGPU_GUIDE = "https://docs.nvidia.com/vgpu/latest/grid-vgpu-user-guide/"
_VGPUS = {
    VGPU_HOST: "this host has NVIDIA's Virtual GPU Manager, which is the driver of a vGPU host: update it with the "
    f"package of its release from NVIDIA's licensing portal ({_VGPU_GUIDE}), and {_WITHOUT_ROLE}",
    VGPU_GUEST: "this is a virtual machine with a vGPU, which works with the guest driver of vGPU software only, of a "
    f"release that fits its host's manager ({_VGPU_GUIDE}): set nvidia_driver_source to runfile and "
    "nvidia_driver_runfile_url to the -grid.run file from NVIDIA's licensing portal or your cloud, or install it "
    f"yourself and {_WITHOUT_ROLE}",
}
_DGX = "https://docs.nvidia.com/dgx/"


def against_driver(facts: Mapping[str, str], source: str, may_install: bool, file: str = "") -> str:
    """Why no driver of a source is installed on a machine with these facts; empty where nothing is against it.

    `may_install`: whether the source is the distribution, which DGX OS is as well. `file` is the name of a runfile.
    """
    kind, dgx, vgpu = (facts.get(name, "") for name in ("virtualization", "dgx_os", "vgpu"))
    if kind in _DRIVERS:
        return _DRIVERS[kind]
    # Such a file has it in its name: NVIDIA-Linux-x86_64-580.95.05-grid.run, 595.58.03-grid-azure.run.
    if vgpu in _VGPUS and not (vgpu == VGPU_GUEST and "-grid" in file):
        return _VGPUS[vgpu]
    if dgx and not may_install:
        return (
            f"this is DGX OS {dgx}, which brings its own driver, Fabric Manager and repositories, and "
            f"nvidia_driver_source is {source}: keep the driver that is there, update it as NVIDIA describes ({_DGX}), "
            "or set nvidia_driver_source to distribution"
        )
    return ""


def against_repository(facts: Mapping[str, str], option: str) -> str:
    """Why a repository with drivers is not added."""
    dgx = facts.get("dgx_os", "")
    if not dgx:
        return ""
    return (
        f"this is DGX OS {dgx}, which has its own repositories of NVIDIA's packages, and this repository would add "
        f"other versions: install CUDA and cuDNN from those ({_DGX}), and take out the roles that need this "
        f"one (cuda, cudnn, nvidia_repository), or set the url of a repository of yours in {option}"
    )


def about_driver(facts: Mapping[str, str]) -> str:
    """What the admin of a machine that gets a driver has to know of it; empty for nothing."""
    if facts.get("virtualization") != PROXMOX:
        return ""
    return (
        "this is a host of Proxmox VE: a driver on it is for its own containers (LXC) and programs; GPUs that virtual "
        "machines get whole need none here, so keep them with vfio-pci, and vGPUs need NVIDIA's Virtual GPU Manager "
        "instead (https://pve.proxmox.com/wiki/NVIDIA_vGPU_on_Proxmox_VE)"
    )


def machine_of(facts: Mapping[str, Any]) -> Mapping[str, str]:
    """The part of a host's facts that is about its machine; empty where it was not read."""
    found: Mapping[str, str] = facts.get(MACHINE) or {}
    return found
