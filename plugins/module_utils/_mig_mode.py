# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn MIG mode on and off, and bring a pending mode into effect where that is allowed. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

from ._mig_holders import Holder
from ._mig_observe import Observer
from ._mig_profiles import MigError
from ._mig_smi import IN_USE, Smi, explain, quote, status
from ._mig_state import GpuState, Host

FindHolders = Callable[[GpuState], Sequence[Holder]]


@dataclass(frozen=True)
class ModeResult:
    """What came of a change of mode. `blockers` hold the GPU; `needs_reboot` says that no reset will do."""

    blockers: tuple[Holder, ...] = ()
    needs_reboot: bool = False
    note: str | None = None


class ModeChanger:
    """Sets MIG modes and resets GPUs. Only the GPUs it is given are ever named to nvidia-smi."""

    def __init__(self, smi: Smi, observer: Observer, find_holders: FindHolders, may_reset: bool) -> None:
        self._smi = smi
        self._observer = observer
        self._find_holders = find_holders
        self._may_reset = may_reset

    def set(self, host: Host, wanted: Mapping[str, bool]) -> tuple[Host, dict[str, ModeResult]]:
        """Give each GPU of `wanted` (by identity) its mode; raises MigError for one whose driver refuses.

        A mode that is still pending afterwards is a result, not an error. Where the driver changes the mode at once,
        as on Hopper and newer, nothing is reset.
        """
        results: dict[str, ModeResult] = {}
        said: dict[str, str] = {}
        for identity, enable in wanted.items():
            gpu = host.find(identity)
            if gpu.will_be_enabled != enable:
                said[identity] = self._switch(gpu, enable)
        if said:
            host = self._observer.afresh()
        for identity, enable in wanted.items():
            gpu = host.find(identity)
            if gpu.will_be_enabled != enable:
                word = "enabled" if enable else "disabled"
                raise MigError(f"MIG mode of {gpu.label} cannot be {word}: {said.get(identity, 'no answer')}")
        if self._may_reset:
            for identity in wanted:
                gpu = host.find(identity)
                if gpu.is_pending:
                    results[identity] = self._reset(gpu)
            if results:
                host = self._observer.afresh()
        for identity in wanted:
            gpu = host.find(identity)
            if gpu.is_pending:
                known = results.get(identity, ModeResult())
                needs_reboot = known.needs_reboot or "not supported" in said.get(identity, "").lower()
                blockers = known.blockers or tuple(self._find_holders(gpu))
                results[identity] = ModeResult(blockers, needs_reboot, known.note or said.get(identity))
        return host, results

    def _switch(self, gpu: GpuState, enable: bool) -> str:
        """Ask for a mode, again while the GPU is in use; gives what nvidia-smi said."""
        pauses = list(self._smi.patience.pauses())
        while True:
            result = self._smi.change("-i", gpu.identity, "-mig", "1" if enable else "0")
            if status(result) != IN_USE or not pauses:
                break
            self._smi.sleep(pauses.pop(0))
        if status(result) == IN_USE:
            held = "; ".join(map(str, self._find_holders(gpu)))
            return f"{explain(result)}{'; ' + held if held else ''}"
        return explain(result) if result.rc != 0 else quote(result)

    def _reset(self, gpu: GpuState) -> ModeResult:
        """Reset one GPU unless something holds it: then a reset would fail, or take the GPU from under it."""
        blockers = tuple(holder for holder in self._find_holders(gpu) if holder.pid is not None)
        if blockers:
            return ModeResult(blockers, note="not reset: it is in use")
        result = self._smi.change("--gpu-reset", "-i", gpu.identity)
        if result.rc == 0:
            return ModeResult()
        text = quote(result).lower()
        impossible = "not supported" in text or "must be reset together" in text
        return ModeResult(tuple(self._find_holders(gpu)), impossible, explain(result))
