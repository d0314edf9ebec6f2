# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When this collection has reset GPUs since the boot: the driver logs no reset. Private to this collection."""

from __future__ import annotations

import time
from typing import Iterable

from .boot_cache import BootCache

FILE = "/run/gpu-fleet/resets.json"


def record(identities: Iterable[str]) -> None:
    """Note that GPUs have just been reset."""
    for identity in identities:
        BootCache(FILE).put((identity,), None, (str(time.time()),))


def known(identities: Iterable[str], now: float) -> dict[str, float]:
    """The time of the last reset of each GPU since the boot, in seconds since 1970; without those that have none.

    A time after `now` proves nothing: the clock was set back since.
    """
    found = {}
    for identity in identities:
        (text,) = BootCache(FILE).get((identity,), None) or ("",)
        try:
            time_of_reset = float(text)
        except ValueError:
            continue
        if time_of_reset <= now:
            found[identity] = time_of_reset
    return found
