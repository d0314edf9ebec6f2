# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that a module writes or removes as planned steps, and shows as a diff. Private to this collection."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import Iterable

from .atomic_write import atomic_write
from .host_files import HostFiles
from .masking import masked
from .regular_file import read_bytes

MODE = 0o644


@dataclass(frozen=True)
class File:
    """A file as it is on the host. Anything but a regular file has no content, and counts as another file."""

    content: bytes
    mode: int
    owner: tuple[int, int]
    is_regular: bool = True


@dataclass(frozen=True)
class FileStep:
    """A file to write, or to remove where `after` is None. With `keeps` it keeps its mode and its owner."""

    path: str
    before: bytes | None
    after: bytes | None
    keeps: bool = False


def read_file(files: HostFiles, path: str) -> File | None:
    """The file at a path, None where there is none; raises OSError."""
    try:
        status = os.lstat(files.real(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return File(b"", 0, (-1, -1), False)
    return File(read_bytes(files.real(path)), stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid))


def write_step(path: str, file: File | None, content: bytes, owner: tuple[int, int]) -> FileStep | None:
    """The step to a file with this content, MODE and owner; None where there is nothing to do."""
    if file == File(content, MODE, owner):
        return None
    return FileStep(path, None if file is None else file.content, content)


def take(step: FileStep, files: HostFiles) -> None:
    """Carry out a step; raises OSError."""
    path = files.real(step.path)
    if step.after is not None:
        atomic_write(path, step.after, None if step.keeps else MODE)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def diff_of(steps: Iterable[FileStep]) -> list[dict[str, str]]:
    """What Ansible shows with --diff, without passwords."""
    return [
        {
            "before_header": step.path,
            "after_header": step.path,
            "before": masked((step.before or b"").decode("utf-8", "replace")),
            "after": masked((step.after or b"").decode("utf-8", "replace")),
        }
        for step in steps
    ]
