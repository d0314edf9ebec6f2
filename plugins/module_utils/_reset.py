# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset one GPU that nothing uses. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Sequence

from ._holders import Holder
from ._smi import Smi, explain, quote


@dataclass(frozen=True)
class ResetResult:
    """What came of a reset. `blockers` hold the GPU; `is_impossible`: this GPU cannot be reset on its own, or at all.

    `note` None: nvidia-smi says that it was reset, which only reading can tell.
    """

    blockers: tuple[Holder, ...] = ()
    is_impossible: bool = False
    note: str | None = None


def reset(smi: Smi, identity: str, find_holders: Callable[[], Sequence[Holder]]) -> ResetResult:
    """Reset the GPU unless something holds it: then a reset would fail, or take the GPU from under it."""
    blockers = tuple(holder for holder in find_holders() if holder.pid is not None)
    if blockers:
        return ResetResult(blockers, note="not reset: it is in use")
    result = smi.change("--gpu-reset", "-i", identity)
    if result.rc == 0:
        return ResetResult()
    text = quote(result).lower()
    impossible = "not supported" in text or "must be reset together" in text
    return ResetResult(tuple(find_holders()), impossible, explain(result))
