# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call nvidia-smi, to read or to change, and interpret its results. Private to this collection."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import time
from dataclasses import dataclass, replace
from typing import Callable, Mapping, Sequence

from .._common import connection
from .._common.errors import ChangeError, HostError, HostHangError
from .._common.runner import CommandResult, find_executable, run_all
from . import failures
from .gpu import Basics, Gpu
from .messages import failed_gpus
from .pci import driven_gpus
from .remedies import with_remedy
from .xml import Document, DocumentError, disagreement, parse_document

# The exit status of nvidia-smi is an NVML status; where it is missing or 255, the output has the same information.
IN_USE = 19
NO_ROOM = 23
# A GPU is lost; there may still be a document of the others.
LOST = 15
_LOST_TEXT = "gpu is lost"
_STATUS_BY_TEXT = (
    ("in use by another client", IN_USE),
    ("insufficient resources", NO_ROOM),
    *failures.STATUS_BY_TEXT,
    ("not supported", 3),
    ("not found", 6),
)
DENIED = 4
NOT_FOUND = 6
# The output is complete, with a warning about an infoROM.
INFOROM = 14
# No permission, no driver, or driver and library of different versions: another call gives the same result.
NON_RETRYABLE = (DENIED, 9, 18)
_NOTHING = re.compile(r"no (mig-(enabled|supported) devices|(gpu|compute) instances) found|no devices were found", re.I)
_LONGEST_QUOTE = 600
_GPUS_A_BATCH = 8
# More than any host has: whatever is replied, no GPU is asked for beyond.
_MOST_GPUS = 64
_POLL_SECONDS = 1.0
RUN_SECONDS = 1800.0
"""Time limit of all calls of a run that sets none, where ten calls need no more: real runs take minutes."""
RESTORE_SECONDS = 120.0
"""What is left at least to restore what was destroyed."""

Run = Callable[[Sequence[Sequence[str]], float], Sequence[CommandResult]]


@dataclass(frozen=True)
class RetryPolicy:
    """Timeout and retry policy: `timeout` seconds per call, `retries` more attempts, the first after `delay`."""

    timeout: float = 60.0
    retries: int = 5
    delay: float = 0.5

    def pauses(self) -> tuple[float, ...]:
        """Seconds to wait before each retry, doubled each time."""
        return tuple(self.delay * 2**attempt for attempt in range(self.retries))


class Smi:
    """One host's nvidia-smi. `commands` lists the calls that change something, in order; `calls` counts all.

    `asked` has the results of all `ask`. Each call has the timeout of the retry policy. All calls together may take
    `time_limit` seconds, counted from now; without it RUN_SECONDS, or ten timeouts, counted from the first call.
    """

    def __init__(
        self,
        executable: str,
        retry_policy: RetryPolicy = RetryPolicy(),
        run: Run | None = None,
        sleep: Callable[[float], None] | None = None,
        time_limit: float | None = None,
    ) -> None:
        self.executable = find_executable(executable)
        self.retry_policy = retry_policy
        self.sleep = sleep or self._sleep
        self.commands: list[str] = []
        self.calls = 0
        self.asked: list[CommandResult] = []
        self._run = run or run_all
        self._readable = ""
        self._loses_gpus = False
        self._deadline = None if time_limit is None else time.monotonic() + time_limit

    def read(self, *arguments: Sequence[str], accept: Sequence[int] = ()) -> tuple[str, ...]:
        """Run read-only calls in parallel and give the output of each; raises HostError.

        "There are none" is valid output with any status; otherwise a status other than 0 has to be in `accept`. A call
        that failed, or printed nothing, is repeated once, since it is read-only.
        """
        self._require_time()
        arguments = tuple(map(self._without_lost, arguments))
        results = self._call(arguments)
        failed = [place for place, result in enumerate(results) if not _is_read(result, accept)]
        if failed and not any(status(results[place]) in NON_RETRYABLE for place in failed):
            again = self._call([arguments[place] for place in failed])
            for place, result in zip(failed, again):
                results[place] = result
        for result in results:
            if not _is_read(result, accept):
                is_of_all = result.timed_out and "-i" not in result.argv
                raise (HostHangError if is_of_all else HostError)(_why_unread(result), is_hang=result.timed_out)
        return tuple(result.text for result in results)

    def _without_lost(self, arguments: Sequence[str]) -> Sequence[str]:
        """A call of `mig` that names no GPU, for all GPUs that can be read."""
        if not self._readable or arguments[0] != "mig" or "-i" in arguments:
            return arguments
        return ("mig", "-i", self._readable, *arguments[1:])

    def document(self, text: str | None = None) -> Document:
        """The document of all GPUs: `text` where that is complete output of `-q -x`, else read; see `read`.

        One that is truncated, or describes other GPUs than it counts, is read again: a missing GPU would be taken for
        one that needs no change. Where a lost GPU fails the call for all, each GPU is read by a call of its own.
        """
        self._require_time()
        with contextlib.suppress(DocumentError):
            if text is not None:
                return _whole_document(text)
        if self._loses_gpus:
            document = self.document_by_index()
            if document is not None:
                return document
        (text,) = self.read(("-q", "-x"), accept=(LOST,))
        with contextlib.suppress(DocumentError):
            return _whole_document(text)
        (text,) = self.read(("-q", "-x"), accept=(LOST,))
        try:
            return _whole_document(text)
        except DocumentError as error:
            document = self.document_by_index() if failed_gpus(text) else None
            if document is not None:
                return document
            raise HostError(_why_no_document(text, error)) from error

    def document_by_index(self) -> Document | None:
        """The document from one call for each GPU; None where no GPU can be read.

        A GPU that fails has its error in place of its readings; from now on lists are read of the others only.

        How many there are is what the driver counts: each document states it, and so does the kernel. The reply to an
        index beyond the last GPU proves nothing: next to a lost GPU it may be "GPU is lost" as well.
        """
        there = driven_gpus()
        read: dict[int, Document] = {}
        failed: dict[int, CommandResult] = {}
        counted, asked, end = 0, 0, len(there) or _GPUS_A_BATCH
        while asked < min(end, _MOST_GPUS) and len(read) + len(failed) == asked and self._left() > 0:
            indexes = range(asked, min(asked + _GPUS_A_BATCH, end, _MOST_GPUS))
            for index, result in zip(indexes, self._call([("-q", "-x", "-i", str(index)) for index in indexes])):
                if _NOTHING.search(result.text):
                    break
                document = _described(result.text)
                if document is not None:
                    read[index] = document
                else:
                    failed[index] = result
            asked = indexes.stop
            end = counted = max((document.attached_gpus or 0 for document in read.values()), default=0) or len(there)
        gpus = _by_index(read, {index: failed[index] for index in failed if index < max(counted, *read, 0)}, there)
        if not read or disagreement(max(counted, len(gpus)), gpus) is not None:
            return None
        self._loses_gpus = any(gpu.error is not None for gpu in gpus)
        self._readable = ",".join(gpu.identity for gpu in gpus if gpu.error is None) if self._loses_gpus else ""
        warnings = tuple(dict.fromkeys(quote(failed[gpu.index]) for gpu in gpus if gpu.index in failed))
        return replace(next(iter(read.values())), attached_gpus=len(gpus), gpus=gpus, warnings=warnings)

    def ask(self, *arguments: Sequence[str], share: float = 1.0) -> tuple[CommandResult, ...]:
        """Run read-only calls in parallel, once, whatever their results, within `share` of the time left."""
        results = tuple(self._call(tuple(map(self._without_lost, arguments)), share))
        self.asked += results
        return results

    def change(self, *arguments: str) -> CommandResult:
        """Run one call that changes something. Its result proves nothing; the state has to be read afterwards.

        Raises ChangeError when there is no time left: a call that is ended at once may have changed half of something.
        """
        if self._left() <= 0:
            raise ChangeError(f"{self.spell(arguments)} was not called: the time for all calls is over", is_hang=True)
        self._require_reader()
        self.commands.append(self.spell(arguments))
        return self._call([arguments])[0]

    def allow_restoring(self) -> None:
        """Leave time to restore what was destroyed, also where the time for all calls is over."""
        self._deadline = max(time.monotonic() + RESTORE_SECONDS, time.monotonic() + self._left())

    def spell(self, arguments: Sequence[str]) -> str:
        """A call as typed in a shell."""
        return " ".join(shlex.quote(word) for word in ("nvidia-smi", *arguments))

    def _call(self, arguments: Sequence[Sequence[str]], share: float = 1.0) -> list[CommandResult]:
        argv = [(self.executable, *words) for words in arguments]
        timeout = min(self.retry_policy.timeout, self._left()) * share
        if timeout <= 0:
            # Nothing is started that would be ended at once.
            return [CommandResult(words, None, b"", b"", 0.0, timed_out=True) for words in argv]
        self.calls += len(arguments)
        return list(self._run(argv, timeout))

    def _left(self) -> float:
        """The seconds left for all calls together."""
        if self._deadline is None:
            self._deadline = time.monotonic() + max(RUN_SECONDS, 10 * self.retry_policy.timeout)
        return self._deadline - time.monotonic()

    def _sleep(self, seconds: float) -> None:
        """Wait before a retry, while there is time and Ansible waits for the result."""
        end = time.monotonic() + min(seconds, max(0.0, self._left()))
        while (self.commands or not connection.is_gone()) and time.monotonic() < end:
            time.sleep(max(0.0, min(_POLL_SECONDS, end - time.monotonic())))

    def _require_time(self) -> None:
        """Raise ChangeError where nothing more is to be read."""
        if self._left() <= 0:
            raise ChangeError(
                "the time for all calls of nvidia-smi is over; see why it is slow, then run this again", is_hang=True
            )
        self._require_reader()

    def _require_reader(self) -> None:
        """Raise HostError where nobody waits for the result. A change that began is finished: half of one is worse."""
        if not self.commands and connection.is_gone():
            raise HostError(connection.GONE)


def _whole_document(text: str) -> Document:
    """Parse a document; raises DocumentError also where it describes other GPUs than it counts."""
    document = parse_document(text)
    objection = disagreement(document.attached_gpus, document.gpus)
    if objection is not None:
        raise DocumentError("broken_xml", objection)
    return document


def _described(text: str) -> Document | None:
    """The document of a single GPU; None where there is none."""
    try:
        document = parse_document(text)
    except DocumentError:
        return None
    return document if document.gpus else None


def _by_index(
    read: Mapping[int, Document], failed: Mapping[int, CommandResult], there: Sequence[str]
) -> tuple[Gpu, ...]:
    """The GPUs of the documents, and those that failed with their error; `there` are the driver's, by PCI bus id.

    The driver numbers GPUs in the order of their addresses: where those that were read have the address of their
    place, so has one that failed.
    """
    gpus = {index: replace(document.gpus[0], index=index) for index, document in read.items()}
    addresses = dict(enumerate(there))
    if any(addresses.get(index) != gpu.basics.pci_bus_id for index, gpu in gpus.items()):
        addresses = {}
    for index, result in failed.items():
        reasons = {found.index: found.reason for found in failed_gpus(result.text + "\n" + result.error_text)}
        error = reasons.get(index) or next(iter(reasons.values()), None) or explain(result)
        gpus[index] = Gpu(index, Basics(pci_bus_id=addresses.get(index)), error=error)
    return tuple(gpus[index] for index in sorted(gpus))


def status(result: CommandResult) -> int | None:
    """The NVML status of a call, from its exit status or its output; None for a call that was killed."""
    if result.rc is None or result.rc not in (0, 255):
        return result.rc
    if result.rc == 0:
        # "Treating as warning" and pending modes are reported with status 0 as well, so the output is ignored.
        return 0
    message = quote(result).lower()
    known = next((number for text, number in _STATUS_BY_TEXT if text in message), result.rc)
    # A whole list may come before this message, and not in what is quoted.
    return LOST if known == result.rc and _LOST_TEXT in (result.text + result.error_text).lower() else known


def quote(result: CommandResult) -> str:
    """The output of a call in one line."""
    lines = [line.strip() for line in (result.text + "\n" + result.error_text).splitlines()]
    message = " ".join(line for line in lines if line)
    return message if len(message) <= _LONGEST_QUOTE else message[:_LONGEST_QUOTE] + "…"


def explain(result: CommandResult) -> str:
    """Describe a failed call, and what to do where that is known."""
    call = " ".join(("nvidia-smi", *result.argv[1:]))
    if result.start_error is not None:
        why = f"{result.argv[0]}: {os.strerror(result.start_error)}"
        is_missing = result.start_error == errno.ENOENT
        needed = (
            "; install the driver or name nvidia-smi with executable"
            if is_missing
            else "; executable has to name nvidia-smi"
        )
        return f"{call} could not be started: {why}{needed}"
    if result.timed_out:
        return f"{call} did not respond within {result.seconds:.0f} s and was ended"
    if result.rc is None:
        return f"{call} was ended: it printed too much"
    ended = f"ended by signal {-result.rc}" if result.rc < 0 else f"exit status {result.rc}"
    needed = "; this needs root (become: true)" if status(result) == DENIED else ""
    return f"{call}: {quote(result) or 'no output'} ({ended}){needed}"


def _why_unread(result: CommandResult) -> str:
    """Describe a call that was to read, and what to do."""
    reason = failures.explain(result)[0]
    # The description of these two has it already, in the words of the options.
    return explain(result) if reason in ("no_driver", "permission_denied") else with_remedy(reason, explain(result))


def _why_no_document(text: str, error: DocumentError) -> str:
    """Describe output of `nvidia-smi -q -x` that has no whole document, and what to do."""
    output = " ".join(text.split())[:300]
    reason = failures.reason_in(output)
    if reason is not None:
        return with_remedy(reason, f"nvidia-smi -q -x: {output}")
    code = "failed" if error.reason == "no_document" else error.reason
    return with_remedy(code, f"nvidia-smi -q -x: {error}: {output}")


def _is_read(result: CommandResult, accept: Sequence[int]) -> bool:
    if result.rc is None or result.rc < 0:
        return False
    if status(result) == DENIED:
        return False
    if not result.text.strip():
        # Every list has at least a message that it is empty: with no output at all, the output was lost.
        return False
    return status(result) in (0, INFOROM, *accept) or (result.rc == NOT_FOUND and bool(_NOTHING.search(result.text)))
