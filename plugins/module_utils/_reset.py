# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset one GPU that nothing uses. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

from ._gpu import Gpu
from ._holders import Holder
from ._settings_clocks import forget_clocks
from ._smi import Smi, explain, quote

IN_USE = "not reset: it is in use"

FindHolders = Callable[[Gpu], Sequence[Holder]]


@dataclass(frozen=True)
class ResetResult:
    """What came of a reset. `blockers` hold the GPU; `is_impossible`: this GPU cannot be reset on its own, or at all.

    `note` None: nvidia-smi says that it was reset, which only reading can tell.
    """

    blockers: tuple[Holder, ...] = ()
    is_impossible: bool = False
    note: str | None = None


def reset(smi: Smi, gpu: Gpu, find_holders: FindHolders) -> ResetResult:
    """Reset the GPU unless something holds it: then a reset would fail, or take the GPU from under it."""
    blockers = tuple(holder for holder in find_holders(gpu) if holder.pid is not None)
    if blockers:
        return ResetResult(blockers, note=IN_USE)
    forget_clocks(gpu.identity)
    result = smi.change("--gpu-reset", "-i", gpu.identity)
    if result.rc == 0:
        return ResetResult()
    text = quote(result).lower()
    impossible = "not supported" in text or "must be reset together" in text
    return ResetResult(tuple(find_holders(gpu)), impossible, explain(result))
