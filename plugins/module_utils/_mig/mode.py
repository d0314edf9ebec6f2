# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enable and disable MIG mode, with a reset where that is needed and allowed. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from .._change.locked_clocks import invalidate_clocks
from .._change.reset import NOT_NAMED, FindBlockers, Resetter
from .._common.errors import ChangeError
from .._nvidia_smi.blockers import Blocker
from .._nvidia_smi.client import IN_USE, Smi, explain, quote, status
from .._nvidia_smi.gpu import Gpu
from .observe import Observer
from .state import GpuState, Host


@dataclass(frozen=True)
class ModeResult:
    """Result of a change of mode. `blockers` use the GPU; `needs_reboot`: no reset can apply the mode."""

    blockers: tuple[Blocker, ...] = ()
    needs_reboot: bool = False
    note: str | None = None


class ModeChanger:
    """Sets MIG modes and resets GPUs. Calls name only GPUs of `declared`, the desired mode by identity.

    `has_changed`: a mode was seen to be another one, or a GPU was reset, also where that was undone later.
    """

    def __init__(
        self,
        smi: Smi,
        observer: Observer,
        find_blockers: FindBlockers,
        may_reset: bool,
        declared: Mapping[str, bool],
    ) -> None:
        self._smi = smi
        self._observer = observer
        self._find_blockers = find_blockers
        self._may_reset = may_reset
        self._declared = declared
        self.has_changed = False

    def set(self, host: Host, desired: Mapping[str, bool]) -> tuple[Host, dict[str, ModeResult]]:
        """Set the mode of each GPU of `desired` (by identity); raises ChangeError for one whose driver refuses.

        A mode that is still pending afterwards is a result, not an error. Where the driver applies the mode at once, as
        on Hopper and newer, nothing is reset. A call that hangs is the last: it would hang for each of the others.
        """
        results: dict[str, ModeResult] = {}
        message: dict[str, str] = {}
        hangs = False
        for identity, enable in desired.items():
            gpu = host.find(identity)
            if gpu.will_be_enabled != enable and not hangs:
                message[identity], hangs = self._switch(gpu, enable)
        if message:
            before, host = host, self._observer.observe_again()
            self.has_changed |= any(_modes(before.find(name)) != _modes(host.find(name)) for name in message)
        for identity, enable in desired.items():
            gpu = host.find(identity)
            if gpu.will_be_enabled != enable:
                word = "enabled" if enable else "disabled"
                left = [host.find(name).label for name in desired if hangs and name not in message and name != identity]
                raise ChangeError(
                    f"MIG mode of {gpu.label} cannot be {word}: {message.get(identity) or 'it was changed back'}"
                    f"{'; not tried: ' if left else ''}{', '.join(left)}",
                    is_hang=hangs,
                )
        if self._may_reset:
            done = self._resetter(host).reset([gpu.gpu for gpu in map(host.find, desired) if gpu.is_pending])
            if done:
                self.has_changed |= any(item.touched for item in done.values())
                results = {
                    name: ModeResult(item.blockers, item.is_impossible, item.note) for name, item in done.items()
                }
                host = self._observer.observe_again()
        for identity in desired:
            gpu = host.find(identity)
            if gpu.is_pending:
                known = results.get(identity, ModeResult())
                needs_reboot = known.needs_reboot or "not supported" in message.get(identity, "").lower()
                blockers = known.blockers or tuple(self._find_blockers(gpu.gpu))
                results[identity] = ModeResult(blockers, needs_reboot, known.note or message.get(identity))
        return host, results

    def _resetter(self, host: Host) -> Resetter:
        def why_not(gpu: Gpu) -> str | None:
            """Only GPUs whose pending mode is the declared one may join a group reset, and only without loss."""
            declared, state = self._declared.get(gpu.identity), host.find(gpu.identity)
            if declared is None:
                return NOT_NAMED
            if not state.is_pending or state.will_be_enabled != declared:
                return "its MIG mode does not wait for a reset"
            return "it has MIG instances, which a reset destroys" if state.instances else None

        return Resetter(self._smi, self._find_blockers, lambda: [state.gpu for state in host.gpus], why_not)

    def _switch(self, gpu: GpuState, enable: bool) -> tuple[str, bool]:
        """Request a mode, with retries while the GPU is in use; gives nvidia-smi's output, and whether it hangs."""
        invalidate_clocks(gpu.identity)
        pauses = list(self._smi.retry_policy.pauses())
        while True:
            result = self._smi.change("-i", gpu.identity, "-mig", "1" if enable else "0")
            if status(result) != IN_USE or not pauses:
                break
            self._smi.sleep(pauses.pop(0))
        if status(result) == IN_USE:
            held = "; ".join(map(str, self._find_blockers(gpu.gpu)))
            return f"{explain(result)}{'; ' + held if held else ''}", False
        if result.rc != 0:
            return explain(result), result.timed_out
        return quote(result) or f"{self._smi.spell(result.argv[1:])} ended with status 0, without output", False


def _modes(gpu: GpuState) -> tuple[bool, bool]:
    return gpu.is_enabled, gpu.will_be_enabled
