# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distributions that the collection supports: one table for all roles. Private to this collection. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_CUDA_REPOSITORIES = Source("https://developer.download.nvidia.com/compute/cuda/repos/", "2026-11-22")


@dataclass(frozen=True)
class Platform:
    """One release of a distribution, or of all rebuilds of Enterprise Linux."""

    name: str
    # Package manager: apt or dnf.
    manager: str
    # Directory in NVIDIA's CUDA repository, and the last digits of its signing key's fingerprint.
    cuda_repository: str
    cuda_key: str
    # Directory in Docker's repository, empty where it has none, and its suite (apt only).
    docker_repository: str
    docker_suite: str = ""
    # The distribution's own engine; empty where it has none.
    docker_packages: tuple[str, ...] = ()
    # The version of CUDA in the distribution's own toolkit; empty where it has none.
    cuda_version: str = ""
    # The major version of the distribution's compiler.
    gcc: str = ""
    # The distribution's toolkit are NVIDIA's own packages, with NVIDIA's names and directories.
    cuda_of_nvidia: bool = False
    source: Source = _CUDA_REPOSITORIES


# The distribution's CUDA: https://packages.debian.org/nvidia-cuda-toolkit,
# https://packages.ubuntu.com/nvidia-cuda-toolkit; Docker's repository: https://download.docker.com/linux/
PLATFORMS = (
    Platform("Debian 12", "apt", "debian12", "3BF863CC", "debian", "bookworm", ("docker.io",), "11.8", "12"),
    Platform(
        "Debian 13",
        "apt",
        "debian13",
        "8793F200",
        "debian",
        "trixie",
        ("docker.io", "docker-cli"),
        "12.4",
        "14",
    ),
    Platform("Ubuntu 22.04", "apt", "ubuntu2204", "3BF863CC", "ubuntu", "jammy", ("docker.io",), "11.5", "11"),
    Platform("Ubuntu 24.04", "apt", "ubuntu2404", "3BF863CC", "ubuntu", "noble", ("docker.io",), "12.0", "13"),
    # Its archive has NVIDIA's own packages in multiverse, those of CUDA 13.1 below /usr/local/cuda-13.1 (the source of
    # the row, and https://github.com/ubuntu/ubuntu-release-notes/issues/207), and no nvidia-cuda-toolkit that is known.
    Platform(
        "Ubuntu 26.04",
        "apt",
        "ubuntu2604",
        "60DF8A40",
        "ubuntu",
        "resolute",
        ("docker.io",),
        "13.1",
        "15",
        cuda_of_nvidia=True,
        source=Source("https://packages.ubuntu.com/ja/resolute/all/cuda-nvdisasm-13-1/filelist", "2026-11-25"),
    ),
    Platform("EL 9", "dnf", "rhel9", "D42D0685", "centos", gcc="11"),
    Platform("EL 10", "dnf", "rhel10", "CDF6BA43", "centos", gcc="14"),
    # Its packages docker, dkms and gcc 11.5; the repository's key by public files of repositories, and NVIDIA's guide
    # (Table 5) for the streams of dnf's module, as in EL 9.
    Platform(
        "Amazon Linux 2023",
        "dnf",
        "amzn2023",
        "D42D0685",
        "",
        docker_packages=("docker",),
        gcc="11",
        source=Source(
            "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/620/kernel-modules.html", "2026-11-29"
        ),
    ),
)

# https://docs.ansible.com/ansible/latest/reference_appendices/release_and_maintenance.html (Python on the hosts). The
# bindings of dnf and rpm exist for the distribution's own Python only.
IMPOSSIBLE = {
    "EL 8": "ansible-core needs Python 3.8 or newer on the host, and the dnf and rpm bindings of EL 8 exist only for "
    "its Python 3.6, so that no package can be read or installed; upgrade the host to EL 9 or 10"
}
"""Releases on which no role can work, and why."""
