# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room and write access of a host's directories. Private to this collection."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from typing import Any, Callable, Mapping, Sequence

from .host_files import HostFiles

MIB = 1 << 20
_MOUNTS = "/proc/self/mounts"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_INITRAMFS = ("/boot/initrd.img-*", "/boot/initramfs-*.img")


@dataclass(frozen=True)
class FileSystem:
    """The file system that a directory is on, or will be when it is created.

    mount: where it is mounted. device: its number in the kernel. available_mib: for root, without what is reserved.
    free_inodes: None where the file system has no fixed number of them.
    """

    mount: str
    device: int
    available_mib: int
    read_only: bool
    free_inodes: int | None


def read_file_systems(
    directories: Sequence[str], files: HostFiles, statvfs: Callable[[str], os.statvfs_result] = os.statvfs
) -> dict[str, dict[str, Any]]:
    """By directory, an absolute path, its file system; one that cannot be read is left out."""
    # A bind mount, which may be read-only for itself, has the device of the file system that it is from.
    mounts = {_plain(line.split(" ")[1]) for line in (files.read(_MOUNTS) or "").splitlines() if " " in line}
    found = {}
    for directory in directories:
        try:
            place = files.resolve(directory)
            while place != "/" and not os.path.isdir(files.real(place)):
                place = os.path.dirname(place)
            room, device = statvfs(files.real(place)), os.stat(files.real(place)).st_dev
        except OSError:
            continue
        while place != "/" and place not in mounts and not os.path.ismount(files.real(place)):
            place = os.path.dirname(place)
        found[directory] = asdict(
            FileSystem(
                mount=place,
                device=device,
                available_mib=room.f_bavail * room.f_frsize // MIB,
                read_only=bool(room.f_flag & os.ST_RDONLY),
                free_inodes=room.f_favail if room.f_files else None,
            )
        )
    return found


def _plain(mount: str) -> str:
    """A mount point without the escapes of /proc/self/mounts, which has spaces as \\040."""
    return _ESCAPED.sub(lambda code: chr(int(code[1], 8)), mount)


def largest_initramfs_mib(files: HostFiles) -> int:
    """The size of the largest initramfs in /boot, of which a new one is written next to it; 0 without any."""
    sizes = [0]
    for pattern in _INITRAMFS:
        for path in files.matching(pattern):
            try:
                sizes.append(os.stat(files.real(path)).st_size)
            except OSError:
                continue
    return -(-max(sizes) // MIB)


def read_only_mounts(found: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """The directories that cannot be written by the mount that they are on."""
    mounts: dict[str, list[str]] = {}
    for directory, system in found.items():
        if system["read_only"]:
            mounts.setdefault(system["mount"], []).append(directory)
    return mounts
