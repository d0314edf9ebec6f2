# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host lock: one run at a time changes the GPUs of a host. Private to this collection."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from typing import Callable, Iterator

from . import connection
from .errors import HostError

LOCK = "/run/gpu-fleet/lock"
"""Lock file held by every run that changes GPUs of this host."""

POLL_SECONDS = 0.2


@contextlib.contextmanager
def host_lock(
    path: str,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock file `path`, waiting up to `timeout` seconds; raises HostError. The kernel frees it on exit."""
    deadline = clock() + timeout
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(
            f"nothing was changed: cannot open the lock file {path}: {error.strerror}{_needed(path, error)}"
        ) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            except OSError as error:
                raise HostError(
                    f"nothing was changed: cannot lock {path}: {error.strerror}{_needed(path, error)}"
                ) from error
            if connection.is_gone():
                raise HostError(connection.GONE)
            if clock() >= deadline:
                blocker = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                raise HostError(
                    f"another run (PID {blocker}) has been changing GPUs of this host for more than {timeout:g} s; "
                    f"it holds {path}"
                )
            sleep(POLL_SECONDS)
        # The PID is only for the error message of waiting runs; the lock also works on a full disk.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)


def _needed(path: str, error: OSError) -> str:
    """What to do about `error`. There is no change without the lock: two runs could change one GPU at once."""
    if isinstance(error, PermissionError):
        return "; changing GPUs needs root (become: true)"
    directory = os.path.dirname(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"; make room in {directory}; check mode works without the lock"
    if error.errno == errno.EROFS:
        return f"; make {directory} writable; check mode works without the lock"
    return ""
