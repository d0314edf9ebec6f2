# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives in NVIDIA's layouts, and hostile ones."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def member(
    name: str, content: str = "", *, mode: int = 0o644, kind: bytes = tarfile.REGTYPE, to: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """A member of an archive, and its content."""
    info = tarfile.TarInfo(name)
    data = content.encode()
    info.size, info.mode, info.type, info.linkname = len(data), mode, kind, to
    # Owners and times of the archive's creator must not be applied on the host.
    info.uid = info.gid = 12345
    return info, data


def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    """A symbolic link."""
    return member(name, kind=tarfile.SYMTYPE, to=to, mode=0o777)


def hard_link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    """A hard link; its target is relative to the archive's root."""
    return member(name, kind=tarfile.LNKTYPE, to=to)


def write(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    """Write an archive, compressed by the suffix of its name; return its SHA-256."""
    compression = {".xz": "xz", ".txz": "xz", ".tgz": "gz", ".gz": "gz"}[path.suffix]
    with tarfile.open(path, f"w:{compression}", format=tarfile.GNU_FORMAT) as archive:  # type: ignore[call-overload]
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return sha256(path)


def sha256(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def cudnn_9(path: Path, top: str = "cudnn-linux-x86_64-9.14.0.64_cuda13-archive", text: str = "nine") -> str:
    """The layout since cuDNN 8.3: .tar.xz, include and lib."""
    return write(
        path,
        member(f"{top}/", kind=tarfile.DIRTYPE, mode=0o755),
        member(f"{top}/LICENSE", "terms"),
        member(f"{top}/include/cudnn.h", "#pragma once\n"),
        member(f"{top}/lib/libcudnn.so.9.14.0", text, mode=0o755),
        link(f"{top}/lib/libcudnn.so.9", "libcudnn.so.9.14.0"),
        link(f"{top}/lib/libcudnn.so", "libcudnn.so.9"),
        member(f"{top}/lib/libcudnn_static_v9.a", "static"),
        link(f"{top}/lib/libcudnn_static.a", "libcudnn_static_v9.a"),
    )


def cudnn_7(path: Path) -> str:
    """The layout until cuDNN 8.2: .tgz, directory `cuda`, include and lib64."""
    return write(
        path,
        member("cuda/include/cudnn.h", "#pragma once\n", mode=0o444),
        member("cuda/NVIDIA_SLA_cuDNN_Support.txt", "terms", mode=0o444),
        link("cuda/lib64/libcudnn.so", "libcudnn.so.7"),
        member("cuda/lib64/libcudnn.so.7.6.5", "seven", mode=0o555),
        link("cuda/lib64/libcudnn.so.7", "libcudnn.so.7.6.5"),
    )


def write_files(path: Path, members: Sequence[tuple[str, Path]], links: Mapping[str, str]) -> str:
    """Write an archive of large files; return its SHA-256."""
    with tarfile.open(path, "w:xz", preset=0) as archive:
        for name, source in members:
            archive.add(source, arcname=name)
        for name, target in links.items():
            archive.addfile(link(name, target)[0])
    return sha256(path)
