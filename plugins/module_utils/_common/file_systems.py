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
_MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_INITRAMFS = ("/boot/initrd.img-*", "/boot/initramfs-*.img")
# Who mounts a file system read-only has both that mount and the file system so. The kernel changes the latter alone, or
# from Linux 6.15 on reports that ext4 stopped writing.
_SINCE_AN_ERROR = ("ro", "emergency_ro", "shutdown")
_REMOTE = re.compile(r"nfs4?|cifs|smb3|ceph|lustre|gpfs|beegfs|afs|pvfs2|9p|autofs|fuse\..+")


@dataclass(frozen=True)
class FileSystem:
    """The file system that a directory is on, or will be when it is created.

    mount: where it is mounted. device: its number in the kernel. available_mib: for root, without what is reserved;
    None of a remote one. free_inodes: None also where the file system has no fixed number of them.
    """

    mount: str
    device: int
    available_mib: int | None
    read_only: bool
    free_inodes: int | None


@dataclass(frozen=True)
class Mount:
    """A line of /proc/self/mountinfo. `turned_read_only`: it is mounted to be written, its file system cannot be."""

    kind: str
    device: int
    read_only: bool
    turned_read_only: bool
    is_remote: bool


def read_file_systems(
    directories: Sequence[str], files: HostFiles, statvfs: Callable[[str], os.statvfs_result] = os.statvfs
) -> dict[str, dict[str, Any]]:
    """By directory, an absolute path, its file system; one that cannot be read is left out.

    Of a remote one only what the kernel has: whoever looks at a path of a server that is gone waits for it, and
    cannot be interrupted.
    """
    # A bind mount, which may be read-only for itself, has the device of the file system that it is from.
    mounts = mounts_of(files)
    remote = {path for path, mount in mounts.items() if mount.is_remote and path != "/"}
    found = {}
    for directory in directories:
        try:
            place = files.resolve(directory, remote)
            while place not in ("/", *remote) and not os.path.isdir(files.real(place)):
                place = os.path.dirname(place)
            if place in remote:
                found[directory] = asdict(FileSystem(place, mounts[place].device, None, mounts[place].read_only, None))
                continue
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


def mounts_of(files: HostFiles) -> dict[str, Mount]:
    """The mounts by their places; one that is over another replaces it. For the fields see proc_pid_mountinfo(5)."""
    found = {}
    for line in (files.read(_MOUNTS) or "").splitlines():
        first, _separator, common = line.partition(" - ")
        try:
            _number, _parent, device, _root, place, options = first.split(" ")[:6]
            kind, _source, common_options = common.split(" ")[:3]
            major, minor = device.split(":")
            own, common_words = options.split(","), common_options.split(",")
            found[_plain(place)] = Mount(
                kind,
                os.makedev(int(major), int(minor)),
                "ro" in (*own, *common_words),
                "ro" not in own and any(word in common_words for word in _SINCE_AN_ERROR),
                bool(_REMOTE.fullmatch(kind)),
            )
        except ValueError:
            continue
    return found


def _plain(mount: str) -> str:
    """A mount point without the escapes of /proc, which has spaces as \\040."""
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
