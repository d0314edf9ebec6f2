# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make changes call by call and verify them by reading back. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

from .._common.errors import ChangeError
from .._common.runner import CommandResult
from .._nvidia_smi.client import DENIED, IN_USE, NON_RETRYABLE, NOT_FOUND, Smi, explain, quote, status
from .assignment import ADVICE

# A call without effect is repeated once, in case of a transient fault; more attempts would hide a persistent one.
ROUNDS = 2
_UNSUPPORTED = ("not supported", "has been deprecated")


@dataclass(frozen=True)
class Step:
    """One call that sets one setting of one GPU. `what` describes it in messages."""

    identity: str
    setting: str
    what: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return self.what


Call = Callable[[Step], CommandResult]


class StepsError(ChangeError):
    """Steps that did not take effect."""


def carry_out(
    smi: Smi,
    steps: Sequence[Step],
    call: Call,
    read_again: Callable[[], Sequence[Step]],
    skips_unsupported: bool,
) -> dict[Step, str]:
    """Make the calls of `steps`; gives the steps that their GPU does not support, with nvidia-smi's output.

    After a failed call the state is read before any other call is made. `call` makes the call of a step; `read_again`
    reads all GPUs and gives the steps that are still missing. Raises StepsError with the steps that took effect and
    those that did not.
    """
    todo = tuple(steps)
    results: dict[Step, CommandResult] = {}
    skipped: dict[Step, str] = {}
    for _round in range(ROUNDS):
        failed = _call_all(smi, todo, results, call, skips_unsupported)
        try:
            missing = read_again()
        except ChangeError as error:
            tried = _names(step for step in steps if step in results)
            raise StepsError(
                f"nvidia-smi was called for: {tried}; the current state cannot be read: {error}"
            ) from error
        if skips_unsupported:
            refused = (step for step in missing if step in results and is_unsupported(results[step]))
            skipped.update((step, quote(results[step])) for step in refused)
        todo = tuple(step for step in missing if step not in skipped)
        if not todo or (failed is not None and _is_final(failed)):
            break
    if todo:
        hangs = any(step in results and results[step].timed_out for step in todo)
        raise StepsError(_describe(steps, [*todo, *skipped], results), is_hang=hangs)
    return skipped


def _call_all(
    smi: Smi,
    steps: Sequence[Step],
    results: dict[Step, CommandResult],
    call: Call,
    skips_unsupported: bool,
) -> CommandResult | None:
    """Make the calls in order and stop at the first that fails; gives its result."""
    for step in steps:
        pauses = list(smi.retry_policy.pauses())
        result = call(step)
        while status(result) == IN_USE and pauses:
            smi.sleep(pauses.pop(0))
            result = call(step)
        results[step] = result
        if is_unsupported(result):
            if not skips_unsupported:
                return result
        elif result.rc != 0:
            return result
    return None


def is_confirmed(result: CommandResult) -> bool:
    """Whether nvidia-smi reports success. Only reading back proves it."""
    return result.rc == 0 and "All done." in result.text and not is_unsupported(result)


def is_unsupported(result: CommandResult) -> bool:
    """Whether nvidia-smi reports that the GPU lacks the setting; usually with exit status 0."""
    message = quote(result).lower()
    return result.rc in (0, 3) and any(text in message for text in _UNSUPPORTED)


def is_refused(result: CommandResult) -> bool:
    """Whether nvidia-smi reports that it has done nothing, for want of rights or since the GPU is in use."""
    return result.start_error is not None or status(result) in (DENIED, NOT_FOUND, IN_USE) or is_unsupported(result)


def _is_final(result: CommandResult) -> bool:
    # A call that hangs has taken its time already, and would most likely hang again.
    return result.timed_out or status(result) in NON_RETRYABLE or is_unsupported(result)


def _describe(steps: Sequence[Step], missing: Sequence[Step], results: dict[Step, CommandResult]) -> str:
    tried = [step for step in missing if step in results]
    left = [step for step in missing if step not in results]
    done = [step for step in steps if step not in missing]
    message = "; ".join(f"{step} failed: {_why(results[step])}" for step in tried)
    message += f"; already changed and left so: {_names(done)}" if done else "; nothing else was changed"
    return message + (f"; not tried: {_names(left)}" if left else "")


def _why(result: CommandResult) -> str:
    if is_unsupported(result):
        return f"{explain(result)}; {ADVICE}"
    return explain(result) + ("; it reported success but nothing changed" if result.rc == 0 else "")


def _names(steps: Iterable[Step]) -> str:
    return ", ".join(map(str, steps)) or "nothing"
