# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of the kernels of the supported distributions. Private to this collection. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

# Enterprise Linux: 5.14.0-503.el9.aarch64+64k, 6.12.0-55.el10.x86_64+rt-debug; Oracle: 5.15.0-306.el9uek.x86_64.
_RPM = re.compile(r"(?P<base>[^+]+?)(?:\+(?P<variant>[a-z0-9-]+))?")
# The real-time kernel of EL 9.2 and older has no variant at its end: 5.14.0-284.30.1.rt14.315.el9_2.x86_64.
_REAL_TIME = re.compile(r"\.rt\d+\.")
# Packages that have the kernel's name and are not booted or built against.
_NOT_KERNEL = re.compile(
    r"linux-(?:libc-dev|doc|source|perf|cpupower|firmware|base|(?:\S+-)?(?:tools|buildinfo))(?:-.*)?"
)
_RPM_KERNEL = re.compile(
    r"kernel(?:\d+\.\d+)?(?:-(?:rt|64k|uek|uki|core|modules|devel|matched|extra|internal|partner|virt|kvm))*"
)
# Amazon Linux 2023: 6.1.134-152.225.amzn2023.x86_64. Kernels after the first, 6.1, have their own names since August
# 2025: https://github.com/amazonlinux/amazon-linux-2023/issues/989 and 1042, read 2026-11-29.
_AMAZON = re.compile(r"(\d+\.\d+)\..*\.amzn2023\..*")
_FIRST_OF_AMAZON = "6.1"
# 6.8.0-151-generic, 6.12.43+deb13-cloud-arm64, 6.1.0-0.deb11.13-amd64.
_PARTS = re.compile(r"(\d.*?)-([a-z].*)")
_META_IMAGE = re.compile("linux-image-(?![0-9]|unsigned|extra)")
_OF_ONE_KERNEL = re.compile(r"-\d+\.\d+\.\d+-\d+")
# Proxmox VE, whose kernels are 6.17.2-2-pve: what installs the newest kernel of a series, or of the default one.
_PROXMOX = re.compile(r"(?:proxmox|pve)-(?:default-)?(?:kernel|headers)(?:-\d+\.\d+)?")
_DEFAULT_OF_PROXMOX = "proxmox-default-kernel"


def headers_package(kernel: str, manager: str) -> str:
    """The package with the headers of a kernel, which is named as `uname -r` prints it.

    `manager` is apt or dnf. Kernels with pages of 64 KiB, for debugging and for real time have packages of their own,
    and so has Oracle's Unbreakable Enterprise Kernel.
    """
    if manager == "apt":
        # https://pve.proxmox.com/wiki/NVIDIA_vGPU_on_Proxmox_VE, read 2026-11-29; older releases call them pve-.
        return f"{'proxmox' if kernel.endswith('-pve') else 'linux'}-headers-{kernel}"
    if amazon := _AMAZON.fullmatch(kernel):
        return f"kernel{'' if amazon[1] == _FIRST_OF_AMAZON else amazon[1]}-devel-{kernel}"
    found = _RPM.fullmatch(kernel)
    base, variant = (found["base"], found["variant"] or "") if found else (kernel, "")
    if _REAL_TIME.search(base) and not variant:
        variant = "rt"
    if "uek" in base:
        parts = variant.split("-") if variant else []
        # Its kernel with pages of 64 KiB is kernel-uek64k.
        name = "kernel-uek64k" if "64k" in parts else "kernel-uek"
        variant = "-".join(part for part in parts if part != "64k")
    else:
        name = "kernel"
    return "-".join(part for part in (name, variant, "devel", base) if part)


def kernel_packages(installed: Iterable[str], kernels: Iterable[str]) -> list[str]:
    """The installed packages that pin the kernel, sorted: of `kernels`, and metapackages that install new ones.

    `kernels` are as `uname -r` prints them. With rpm all versions have the same names.
    """
    names = set(installed)
    images = {name for name in names if _META_IMAGE.match(name)}
    flavours = "|".join(re.escape(name.removeprefix("linux-image-")) for name in images)
    releases = "|".join(re.escape(part) for kernel in kernels for part in (kernel, parts_of(kernel)[0]))
    of_kernel = re.compile(rf"(?:linux|proxmox|pve)-(?:.*-)?(?:{releases})(?:-common(?:-rt)?|-unsigned|-signed)?")
    metapackage = re.compile(rf"linux-(?:.*-)?(?:{flavours or '(?!)'})")
    return sorted(
        name
        for name in names
        if not _NOT_KERNEL.fullmatch(name)
        and (
            of_kernel.fullmatch(name)
            or (metapackage.fullmatch(name) and not _OF_ONE_KERNEL.search(name))
            or _PROXMOX.fullmatch(name)
            or _RPM_KERNEL.fullmatch(name)
        )
    )


def headers_metapackages(installed: Collection[str]) -> list[str]:
    """The packages that install the headers of new kernels, for the ones that install these kernels."""
    found = [name.replace("linux-image-", "linux-headers-") for name in installed if _META_IMAGE.match(name)]
    series = [name for name in installed if _PROXMOX.fullmatch(name) and "kernel-" in name]
    of_proxmox = [_DEFAULT_OF_PROXMOX] if _DEFAULT_OF_PROXMOX in installed else series
    found += [name.replace("kernel", "headers") for name in of_proxmox]
    return [name for name in dict.fromkeys(found) if name not in installed]


def parts_of(kernel: str) -> tuple[str, str]:
    """Release and flavour of a kernel of apt: 6.8.0-1020 and nvidia-64k of 6.8.0-1020-nvidia-64k.

    Headers that all flavours share have the release alone.
    """
    found = _PARTS.fullmatch(kernel)
    return (found[1], found[2]) if found else (kernel, "")
