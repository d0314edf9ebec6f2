# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines whose driver does not come from their distribution. Private to this collection."""

from __future__ import annotations

import re

from .._common.host_files import HostFiles

WSL, LXC, JETSON = "wsl", "lxc", "jetson"
_KERNEL = "/proc/sys/kernel/osrelease"


def read_machine(files: HostFiles) -> dict[str, str]:
    """`virtualization`, which is one of these or empty, and `dgx_os`, the version of DGX OS.

    The kernels of WSL 2 and of Jetson have it in their release (5.15.167.4-microsoft-standard-WSL2,
    5.15.148-tegra), a container manager gives it to the first process, and systemd writes it down. Each update of DGX
    OS adds its version to /etc/dgx-release: https://docs.nvidia.com/dgx/dgx-os-7-user-guide/.
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
    return {"virtualization": kind, "dgx_os": versions[-1] if versions else ""}
