# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset GPUs that nothing uses, each alone or, where nvidia-smi asks for that, as a group. Private to this collection.

GPUs that NVLink connects can be reset only together before Ampere, and on Ampere's NVSwitch boards where no Fabric
Manager runs. Which these are is what nvidia-smi says when it refuses; such a refusal touches no GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Sequence

from .._common.runner import CommandResult
from .._nvidia_smi import selection
from .._nvidia_smi.blockers import Holder
from .._nvidia_smi.client import Smi, explain, quote
from .._nvidia_smi.gpu import Gpu
from .locked_clocks import forget_clocks

NOT_RESET = "not reset: "
IN_USE = NOT_RESET + "it is in use"
NOT_NAMED = "it is not among the GPUs of this task"

_TOGETHER = re.compile(r"must be reset together|do not meet the reset criterion", re.I)
_APPEND = re.compile(r"append the following device indexes to the command line and retry(.*)", re.I | re.S)
_DEVICE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|GPU-[0-9a-f-]{36}|\b[0-9]{1,3}\b", re.I)

FindHolders = Callable[[Gpu], Sequence[Holder]]
WhyNot = Callable[[Gpu], "str | None"]
"""Why a GPU may not be reset together with others that are to be, None where it may."""


@dataclass(frozen=True)
class ResetResult:
    """What came of a reset. `blockers` hold the GPU, or one that is reset together with it.

    `is_impossible`: this run cannot reset the GPU, neither on its own nor with others. `note` None: nvidia-smi reports
    that it was reset, which only reading proves.
    """

    blockers: tuple[Holder, ...] = ()
    is_impossible: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Resetter:
    """Resets GPUs of one host. `everyone` reads all its GPUs; `why_not` is asked about those that nobody gave."""

    smi: Smi
    find_holders: FindHolders
    everyone: Callable[[], Sequence[Gpu]]
    why_not: WhyNot

    def reset(self, gpus: Sequence[Gpu]) -> dict[str, ResetResult]:
        """Reset `gpus`, each by its identity in the result; one after the other, unless they need to be together.

        A GPU that something holds is left alone: its reset would fail, or take the GPU from under it. A group is reset
        only when all its GPUs may be, and with a single call.
        """
        results: dict[str, ResetResult] = {}
        for gpu in gpus:
            if gpu.identity not in results:
                group, result = self._reset_group(gpu)
                results.update(dict.fromkeys((member.identity for member in group), result))
        return {gpu.identity: results[gpu.identity] for gpu in gpus}

    def _reset_group(self, gpu: Gpu) -> tuple[tuple[Gpu, ...], ResetResult]:
        """Reset one GPU with those that nvidia-smi asks for; gives all of them with what came of it."""
        group: tuple[Gpu, ...] = (gpu,)
        while True:
            refusal = self._refusal(group)
            if refusal is not None:
                return group, refusal
            for member in group:
                forget_clocks(member.identity)
            answer = self.smi.change("--gpu-reset", "-i", ",".join(member.identity for member in group))
            if not _TOGETHER.search(quote(answer)):
                return group, self._result(group, answer)
            others = self._others(group, answer)
            if not others:
                return group, ResetResult(self._blockers(group), is_impossible=True, note=explain(answer))
            group = (*group, *others)

    def _refusal(self, group: Sequence[Gpu]) -> ResetResult | None:
        """Why the group is not reset; None where nothing is in the way."""
        together = f"{group[0].label} can be reset only together with {_labels(group[1:])}"
        hindered = [f"{member.label}: {why}" for member in group[1:] for why in (self.why_not(member),) if why]
        blockers = tuple(holder for holder in self._blockers(group) if holder.pid is not None)
        if hindered:
            advice = "name all of them in one task with reset: if_required, or reboot the host"
            return ResetResult(blockers, True, f"{NOT_RESET}{together}, but {'; '.join(hindered)}; {advice}")
        if not blockers:
            return None
        return ResetResult(blockers, note=IN_USE if len(group) == 1 else f"{NOT_RESET}{together}, and that is in use")

    def _result(self, group: Sequence[Gpu], answer: CommandResult) -> ResetResult:
        if answer.rc == 0:
            return ResetResult()
        return ResetResult(self._blockers(group), "not supported" in quote(answer).lower(), explain(answer))

    def _blockers(self, group: Sequence[Gpu]) -> tuple[Holder, ...]:
        """What holds any of them, once each."""
        return tuple(dict.fromkeys(holder for member in group for holder in self.find_holders(member)))

    def _others(self, group: Sequence[Gpu], answer: CommandResult) -> tuple[Gpu, ...]:
        """The GPUs that nvidia-smi asks for beside `group`; none where it is not certain which these are."""
        found = _APPEND.search(answer.text + "\n" + answer.error_text)
        devices = _DEVICE.findall(found[1]) if found else []
        known = {member.identity for member in group}
        try:
            asked = selection.select(self.everyone(), devices)
        except selection.SelectionError:
            return ()
        return tuple(gpu for gpu in asked if gpu.identity not in known)


def _labels(gpus: Sequence[Gpu]) -> str:
    return ", ".join(gpu.label for gpu in gpus)
