# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about an error of the operating system. Private to this collection."""

from __future__ import annotations

import errno
import os

_FULL = "make room there (df -h, df -i), then run again"
_READ_ONLY = "mount it writable, then run again"
_ROOT = "this needs root (become: true)"
_DENIED = "root is denied this as well: see `lsattr -d` for the attribute i, and dmesg for SELinux or AppArmor"
REMEDIES = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _ROOT,
    errno.EPERM: _ROOT,
    errno.EIO: "check the disk (dmesg)",
}


def advice(error: Exception) -> str:
    """What to do about the error, to be appended to its message; empty where that is not known."""
    remedy = REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    remedy = _DENIED if remedy == _ROOT and os.geteuid() == 0 else remedy
    return f"; {remedy}" if remedy else ""
