# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much room software needs at least. Private to this collection.

Data only. The smallest that any supported source has, rounded down: a host with less cannot succeed, and one with
more may still lack some. What a repository has of it is known to its package manager alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source


@dataclass(frozen=True)
class Room:
    """What one installation needs, in MiB: of downloaded packages, and of installed files."""

    what: str
    download_mib: int
    installed_mib: int
    source: Source


# The sizes are those of the package lists of Debian 13, whose fields these pages show.
_DEBIAN = "https://packages.debian.org/trixie/{0}"

DRIVER = Room(
    # 550.163.01: the sum of libcuda1, firmware-nvidia-gsp and nvidia-kernel-dkms, without the modules that are built.
    "the driver",
    110,
    180,
    Source(_DEBIAN.format("nvidia-kernel-dkms"), "2026-11-25"),
)
CUDA = Room(
    # 11.8: 1622 and 5542 MB with all dependencies; 12.4: 1872 and 4852 MB. The archives of NVIDIA's 13.0.2 are 2390 MB
    # without Nsight.
    "CUDA",
    1400,
    4000,
    Source(_DEBIAN.format("nvidia-cuda-toolkit"), "2026-11-25"),
)
CUDNN = Room(
    # 9.28 for CUDA 13: 517 MB of compressed libraries, without what developers need.
    "cuDNN",
    400,
    500,
    Source("https://pypi.org/project/nvidia-cudnn-cu13/9.28.1.4/", "2026-11-25"),
)
DOCKER = Room(
    # 20.10: 62 and 253 MB with all dependencies; 26.1: 87 and 234 MB.
    "Docker",
    50,
    200,
    Source(_DEBIAN.format("docker.io"), "2026-11-25"),
)
