# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Call nvidia-smi, to read or to change, and interpret its results. Private to this collection."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shlex
import time
from dataclasses import dataclass, replace
from typing import Callable, Sequence

from .._common.errors import ChangeError, HostError, HostHangError
from .._common.runner import CommandResult, find_executable, run_all
from . import failures
from .gpu import Basics, Gpu
from .messages import failed_gpus
from .remedies import with_remedy
from .xml import Document, DocumentError, parse_document

# The exit status of nvidia-smi is an NVML status; where it is missing or 255, the output has the same information.
IN_USE = 19
NO_ROOM = 23
_STATUS_BY_TEXT = (
    ("in use by another client", IN_USE),
    ("insufficient permissions", 4),
    ("insufficient resources", NO_ROOM),
    ("not supported", 3),
    ("not found", 6),
)
DENIED = 4
NOT_FOUND = 6
# A GPU is lost; there may still be a document of the others.
LOST = 15
# The output is complete, with a warning about an infoROM.
INFOROM = 14
# No permission, no driver, or driver and library of different versions: another call gives the same result.
NON_RETRYABLE = (DENIED, 9, 18)
_NOTHING = re.compile(r"no (mig-(enabled|supported) devices|(gpu|compute) instances) found|no devices were found", re.I)
_LONGEST_QUOTE = 600
_GPUS_A_BATCH = 8

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

    `asked` has the results of all `ask`. Each call has the timeout of the retry policy; with `time_limit`, that is how
    many seconds all calls together may take.
    """

    def __init__(
        self,
        executable: str,
        retry_policy: RetryPolicy = RetryPolicy(),
        run: Run | None = None,
        sleep: Callable[[float], None] = time.sleep,
        time_limit: float | None = None,
    ) -> None:
        self.executable = find_executable(executable)
        self.retry_policy = retry_policy
        self.sleep = sleep
        self.commands: list[str] = []
        self.calls = 0
        self.asked: list[CommandResult] = []
        self._run = run or run_all
        self._readable = ""
        self._deadline = None if time_limit is None else time.monotonic() + time_limit

    def read(self, *arguments: Sequence[str], accept: Sequence[int] = ()) -> tuple[str, ...]:
        """Run read-only calls in parallel and give the output of each; raises HostError.

        "There are none" is valid output with any status; otherwise a status other than 0 has to be in `accept`. A call
        that failed, or printed nothing, is repeated once, since it is read-only.
        """
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

        One that is truncated, or describes fewer GPUs than it counts, is read again: a missing GPU would be taken for
        one that needs no change.
        """
        with contextlib.suppress(DocumentError):
            if text is not None:
                return _whole_document(text)
        (text,) = self.read(("-q", "-x"), accept=(LOST,))
        with contextlib.suppress(DocumentError):
            return _whole_document(text)
        (text,) = self.read(("-q", "-x"), accept=(LOST,))
        try:
            return _whole_document(text)
        except DocumentError as error:
            document = self._document_without_lost() if failed_gpus(text) else None
            if document is not None:
                return document
            raise HostError(_why_no_document(text, error)) from error

    def _document_without_lost(self) -> Document | None:
        """The document from one call for each GPU, where a lost one fails the call for all of them.

        A GPU that fails has its error in place of its readings; from now on lists are read of the others only. None
        where no GPU can be read.
        """
        gpus: list[Gpu] = []
        documents: list[Document] = []
        lines: list[str] = []
        while len(gpus) % _GPUS_A_BATCH == 0:
            indexes = range(len(gpus), len(gpus) + _GPUS_A_BATCH)
            for index, result in zip(indexes, self._call([("-q", "-x", "-i", str(index)) for index in indexes])):
                if _NOTHING.search(result.text):
                    break
                try:
                    document = parse_document(result.text)
                    gpus += [replace(gpu, index=index) for gpu in document.gpus[:1]]
                    documents.append(document)
                except DocumentError:
                    failed = next(iter(failed_gpus(result.text)), None)
                    gpus.append(Gpu(index, Basics(), error=failed.reason if failed is not None else explain(result)))
                    lines.append(quote(result))
            if len(gpus) < len(indexes) or not documents:
                break
        if not documents:
            return None
        self._readable = ",".join(gpu.identity for gpu in gpus if gpu.error is None)
        return replace(documents[0], attached_gpus=len(gpus), gpus=tuple(gpus), warnings=tuple(lines))

    def ask(self, *arguments: Sequence[str], share: float = 1.0) -> tuple[CommandResult, ...]:
        """Run read-only calls in parallel, once, whatever their results, within `share` of the time left."""
        results = tuple(self._call(arguments, share))
        self.asked += results
        return results

    def change(self, *arguments: str) -> CommandResult:
        """Run one call that changes something. Its result proves nothing; the state has to be read afterwards.

        Raises ChangeError when there is no time left: a call that is ended at once may have changed half of something.
        """
        if self._left() <= 0:
            raise ChangeError(f"{self.spell(arguments)} was not called: the time for all calls is over")
        self.commands.append(self.spell(arguments))
        return self._call([arguments])[0]

    def spell(self, arguments: Sequence[str]) -> str:
        """A call as typed in a shell."""
        return " ".join(shlex.quote(word) for word in ("nvidia-smi", *arguments))

    def _call(self, arguments: Sequence[Sequence[str]], share: float = 1.0) -> list[CommandResult]:
        self.calls += len(arguments)
        timeout = max(0.0, min(self.retry_policy.timeout, self._left()))
        return list(self._run([(self.executable, *words) for words in arguments], timeout * share))

    def _left(self) -> float:
        """The seconds left for all calls together."""
        return math.inf if self._deadline is None else self._deadline - time.monotonic()


def _whole_document(text: str) -> Document:
    """Parse a document; raises DocumentError also where it has fewer GPUs than it counts, without any warning."""
    document = parse_document(text)
    counted, described = document.attached_gpus or 0, len(document.gpus)
    # A lost GPU is reported by a line outside of the document.
    if described < counted and not document.warnings:
        raise DocumentError("broken_xml", f"it counts {counted} GPUs and describes {described}")
    return document


def status(result: CommandResult) -> int | None:
    """The NVML status of a call, from its exit status or its output; None for a call that was killed."""
    if result.rc is None or result.rc not in (0, 255):
        return result.rc
    message = quote(result).lower()
    # "Treating as warning" and pending modes are reported with status 0 as well, so then the output is ignored.
    return next((number for text, number in _STATUS_BY_TEXT if text in message), result.rc) if result.rc else 0


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
    return result.rc in (0, INFOROM, *accept) or (result.rc == NOT_FOUND and bool(_NOTHING.search(result.text)))
