# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access to the host for one run: nvidia-smi, host lock, search for blockers, cache. Private to this collection."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Mapping

from .._common.boot_cache import BootCache
from .._common.lock import LOCK, host_lock
from .._nvidia_smi.blockers import blockers_of
from .._nvidia_smi.client import RetryPolicy, Smi
from .reset import FindBlockers


@dataclass(frozen=True)
class Access:
    """One host, for one run."""

    smi: Smi
    lock: contextlib.AbstractContextManager[None]
    find_blockers: FindBlockers
    cache: BootCache


def access(options: Mapping[str, Any], cache: str, check_mode: bool) -> Access:
    """This host, with the module's `options`. Check mode takes no lock and writes nothing."""
    return Access(
        Smi(
            options["executable"],
            RetryPolicy(options["timeout"], options.get("retries", RetryPolicy.retries)),
            time_limit=options.get("time_limit"),
        ),
        contextlib.nullcontext() if check_mode else host_lock(LOCK, options["lock_timeout"]),
        blockers_of,
        BootCache(cache, is_read_only=check_mode),
    )
