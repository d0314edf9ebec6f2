# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let one run at a time change the GPUs of a host. Private to this collection."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import Callable, Iterator

from ._errors import ChangeError

LOCK = "/run/gpu-fleet/lock"
"""What every run that changes GPUs of this host holds meanwhile."""

POLL_SECONDS = 0.2


@contextmanager
def host_lock(
    path: str,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock file `path`, waiting `timeout` seconds for another run; raises ChangeError. The kernel frees it."""
    deadline = clock() + timeout
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        needed = "; changing GPUs needs root (become: true)" if isinstance(error, PermissionError) else ""
        raise ChangeError(f"cannot open the lock file {path}: {error.strerror}{needed}") from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            if clock() >= deadline:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                raise ChangeError(
                    f"another run (PID {holder}) has been changing GPUs of this host for more than {timeout:g} s; "
                    f"it holds {path}"
                )
            sleep(POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)
