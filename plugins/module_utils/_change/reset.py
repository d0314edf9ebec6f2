# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset idle GPUs, one at a time or, where nvidia-smi requires it, as a group. Private to this collection.

Before Ampere, and on Ampere's NVSwitch boards without a running Fabric Manager, GPUs connected by NVLink can be reset
only together. nvidia-smi lists the group when it refuses the reset; a refused call affects no GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable, Sequence

from .._common import resets
from .._common.runner import CommandResult
from .._nvidia_smi import selection
from .._nvidia_smi.blockers import Blocker
from .._nvidia_smi.client import Smi, explain, quote, status
from .._nvidia_smi.gpu import Gpu
from .locked_clocks import invalidate_clocks
from .steps import is_refused

NOT_RESET = "not reset: "
IN_USE = NOT_RESET + "it is in use"
NOT_NAMED = "it is not among the GPUs of this task"

_TOGETHER = re.compile(r"must be reset together|do not meet the reset criterion", re.I)
_APPEND = re.compile(r"append the following device indexes to the command line and retry(.*)", re.I | re.S)
_DEVICE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|GPU-[0-9a-f-]{36}|\b[0-9]{1,3}\b", re.I)

_NOT_SUPPORTED = 3

FindBlockers = Callable[[Gpu], Sequence[Blocker]]
WhyNot = Callable[[Gpu], "str | None"]
"""Why a GPU may not be reset as part of a group, None where it may."""


@dataclass(frozen=True)
class ResetResult:
    """Result of a reset. `blockers` use the GPU, or one that is reset together with it.

    `is_impossible`: this run cannot reset the GPU, neither alone nor in a group. `note` None: nvidia-smi reports a
    successful reset, which only a new reading can prove. `touched` are the GPUs, by identity, that it reset, or that
    it may have reset before it failed.
    """

    blockers: tuple[Blocker, ...] = ()
    is_impossible: bool = False
    note: str | None = None
    touched: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Resetter:
    """Resets GPUs of one host. `everyone` reads all its GPUs; `why_not` decides on group members nobody requested."""

    smi: Smi
    find_blockers: FindBlockers
    everyone: Callable[[], Sequence[Gpu]]
    why_not: WhyNot

    def reset(self, gpus: Sequence[Gpu]) -> dict[str, ResetResult]:
        """Reset `gpus` one after the other, or in groups where needed; gives results by GPU identity.

        A GPU that something uses is not reset: the reset would fail, or break its users. A group is reset only when all
        of its GPUs may be, and with a single call.
        """
        results: dict[str, ResetResult] = {}
        for gpu in gpus:
            if gpu.identity not in results:
                group, result = self._reset_group(gpu)
                results.update(dict.fromkeys((member.identity for member in group), result))
        return {gpu.identity: results[gpu.identity] for gpu in gpus}

    def _reset_group(self, gpu: Gpu) -> tuple[tuple[Gpu, ...], ResetResult]:
        """Reset one GPU and those that nvidia-smi requires with it; gives the whole group and the result."""
        group: tuple[Gpu, ...] = (gpu,)
        while True:
            refusal = self._refusal(group)
            if refusal is not None:
                return group, refusal
            for member in group:
                invalidate_clocks(member.identity)
            reply = self.smi.change("--gpu-reset", "-i", ",".join(member.identity for member in group))
            if not _TOGETHER.search(quote(reply)):
                return group, self._result(group, reply)
            others = self._others(group, reply)
            if not others:
                return group, ResetResult(self._blockers(group), is_impossible=True, note=explain(reply))
            group = (*group, *others)

    def _refusal(self, group: Sequence[Gpu]) -> ResetResult | None:
        """Why the group is not reset; None where nothing blocks it."""
        together = f"{group[0].label} can be reset only together with {_labels(group[1:])}"
        hindered = [f"{member.label}: {why}" for member in group[1:] for why in (self.why_not(member),) if why]
        blockers = tuple(blocker for blocker in self._blockers(group) if blocker.pid is not None)
        if hindered:
            advice = "name all of them in one task with reset: if_required, or reboot the host"
            return ResetResult(blockers, True, f"{NOT_RESET}{together}, but {'; '.join(hindered)}; {advice}")
        if not blockers:
            return None
        return ResetResult(blockers, note=IN_USE if len(group) == 1 else f"{NOT_RESET}{together}, and that is in use")

    def _result(self, group: Sequence[Gpu], reply: CommandResult) -> ResetResult:
        touched = tuple(member.identity for member in group) if may_have_reset(reply) else ()
        if reply.rc == 0:
            resets.record(touched)
            return ResetResult(touched=touched)
        return ResetResult(self._blockers(group), "not supported" in quote(reply).lower(), explain(reply), touched)

    def _blockers(self, group: Sequence[Gpu]) -> tuple[Blocker, ...]:
        """Everything that uses any GPU of the group, without duplicates."""
        return tuple(dict.fromkeys(blocker for member in group for blocker in self.find_blockers(member)))

    def _others(self, group: Sequence[Gpu], reply: CommandResult) -> tuple[Gpu, ...]:
        """The GPUs that nvidia-smi requires in addition to `group`; empty where they cannot be identified."""
        found = _APPEND.search(reply.text + "\n" + reply.error_text)
        devices = _DEVICE.findall(found[1]) if found else []
        known = {member.identity for member in group}
        try:
            asked = selection.select(self.everyone(), devices)
        except selection.SelectionError:
            return ()
        return tuple(gpu for gpu in asked if gpu.identity not in known)


def may_have_reset(reply: CommandResult) -> bool:
    """Whether a call of `--gpu-reset` has reset its GPUs, as far as its result shows: a refusal has not."""
    return not is_refused(reply) and status(reply) != _NOT_SUPPORTED


def _labels(gpus: Sequence[Gpu]) -> str:
    return ", ".join(gpu.label for gpu in gpus)
