# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be installed on machines whose driver does not come from their distribution. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module_utils._host.machine import JETSON, LXC, WSL

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
_DGX = "https://docs.nvidia.com/dgx/"


def against_driver(facts: Mapping[str, str], source: str, may_install: bool) -> str:
    """Why no driver of a source is installed on a machine with these facts; empty where nothing is against it.

    `may_install`: whether the source is the distribution, which DGX OS is as well.
    """
    kind, dgx = facts.get("virtualization", ""), facts.get("dgx_os", "")
    if kind in _DRIVERS:
        return _DRIVERS[kind]
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


def machine_of(facts: Mapping[str, Any]) -> Mapping[str, str]:
    """The part of a host's facts that is about its machine; empty where it was not read."""
    found: Mapping[str, str] = facts.get(MACHINE) or {}
    return found
