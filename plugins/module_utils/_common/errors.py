# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exceptions of the modules that change GPUs. Private to this collection."""

from __future__ import annotations

from typing import Any, Iterator, Mapping


class ChangeError(Exception):
    """A change that is impossible or failed. The message is for users: which GPU, what went wrong, what to do.

    `is_hang`: a call did not respond in time, as the next one may not either.
    """

    def __init__(self, message: str, is_hang: bool = False) -> None:
        super().__init__(message)
        self.is_hang = is_hang


class HostError(ChangeError):
    """A failure that all GPUs of a host share, before anything was changed: the next GPU would meet it again."""


class HostHangError(HostError):
    """A call that reads all GPUs did not respond in time: nothing on this host can be read."""


class RunError(ChangeError):
    """A failed run, with the result to return next to the message."""

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = result


def is_hang(error: ChangeError) -> bool:
    """Whether a call that did not respond in time is behind a failure."""
    return any(cause.is_hang for cause in _causes(error))


def is_hang_of_host(error: ChangeError) -> bool:
    """Whether it was a call that reads all GPUs."""
    return any(isinstance(cause, HostHangError) for cause in _causes(error))


def _causes(error: ChangeError) -> Iterator[ChangeError]:
    """A failure and those that it was raised from."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ChangeError):
            yield cause
        cause = cause.__cause__


def result_of(error: ChangeError) -> Mapping[str, Any]:
    """What a module returns next to the message of a failure: what was changed before it, if anything was."""
    return error.result if isinstance(error, RunError) else {}
