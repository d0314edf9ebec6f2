# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files that others may have put there, within a bound. Private to this collection."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

MOST_BYTES = 1 << 24
"""More than any file has that is read as a whole."""

_PART = 1 << 16
_NULL = os.makedev(1, 3)


def open_regular(path: str) -> BinaryIO:
    """Open a regular file to read; OSError for anything else: a FIFO waits for a writer, a device may never end."""
    _refuse(os.stat(path), path)
    # Not blocking: it may have become a FIFO meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse(os.fstat(descriptor), path)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb", buffering=0)


def _refuse(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    # What is masked is a link to the null device, which is as empty as it looks.
    if not stat.S_ISREG(status.st_mode) and status.st_rdev != _NULL:
        raise OSError(errno.EINVAL, "it is not a regular file", path)


def read_bytes(path: str) -> bytes:
    """The content of a regular file; raises OSError, also for one that is larger than what is read."""
    content = bytearray()
    with open_regular(path) as stream:
        while len(content) <= MOST_BYTES:
            part = stream.read(_PART)
            if not part:
                return bytes(content)
            content += part
    raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES >> 20} MiB", path)


def decoded(content: bytes, errors: str = "strict") -> str:
    """Text of UTF-8, whose lines end as Python's do."""
    return content.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def read_text(path: str, newline: str | None = None) -> str | None:
    """The content of a file, None when there is none; raises OSError, and UnicodeError for one that is not UTF-8.

    With `newline` empty the ends of lines stay as in the file.
    """
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return None
    return decoded(content) if newline is None else content.decode("utf-8")


def text_of(path: str) -> str:
    """The content of a file; raises OSError, also when there is none, and UnicodeError."""
    return decoded(read_bytes(path))
