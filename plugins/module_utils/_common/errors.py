# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exceptions of the modules that change GPUs. Private to this collection."""

from __future__ import annotations

from typing import Any, Mapping


class ChangeError(Exception):
    """A change that is impossible or failed. The message is for users: which GPU, what went wrong, what to do."""


class HostError(ChangeError):
    """A failure that all GPUs of a host share, before anything was changed: the next GPU would meet it again."""


class RunError(ChangeError):
    """A failed run, with the result to return next to the message."""

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = result


def result_of(error: ChangeError) -> Mapping[str, Any]:
    """What a module returns next to the message of a failure: what was changed before it, if anything was."""
    return error.result if isinstance(error, RunError) else {}
