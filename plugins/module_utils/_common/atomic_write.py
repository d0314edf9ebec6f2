# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a file so that a reader finds the previous or the new one, never a part. Private to this collection."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import Callable

PREFIX = ".gpu-fleet-"
"""Names of temporary files start with it; no service reads files of such a name."""

_NEW_MODE = 0o644


def atomic_write(
    path: str,
    content: bytes,
    mode: int | None = None,
    check: Callable[[str], None] | None = None,
) -> None:
    """Replace the file at `path`, or create it and its directory; a symbolic link is replaced, not followed.

    With `mode` None, the mode, owner, SELinux label and access list of the existing file are kept, and a new one has
    mode 0644. `check` takes the path of the complete temporary file, in the same directory, and raises to keep the
    previous file. On any error, OSError among them, the previous file is unchanged and the temporary one is removed.
    """
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=PREFIX)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), _NEW_MODE if mode is None else mode)
            # Else a power loss may leave the new name with no content.
            os.fsync(stream.fileno())
        if mode is None:
            _copy_attributes(path, temporary)
        if check is not None:
            check(temporary)
        os.replace(temporary, path)
    except BaseException:
        # Also of a signal or a failed check.
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _copy_attributes(path: str, temporary: str) -> None:
    """Copy mode, owner and extended attributes of an existing file; the time of modification is now."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    # The mode last: a change of the owner clears bits of it.
    os.chown(temporary, status.st_uid, status.st_gid)
    shutil.copystat(path, temporary)
    os.utime(temporary)
