# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules that change GPUs raise. Private to this collection."""

from __future__ import annotations

from typing import Any, Mapping


class ChangeError(Exception):
    """A change that cannot be made, or that failed. The message is for people: which GPU, what, what to do."""


class RunError(ChangeError):
    """A run that failed, with the result to return beside the message."""

    def __init__(self, message: str, result: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.result = result
