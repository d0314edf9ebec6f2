# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML's return codes with nvidia-smi's messages and exit statuses."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .shapes import State

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
GPU_IS_LOST = 15
IN_USE = 19
INSUFFICIENT_MEMORY = 20
INSUFFICIENT_RESOURCES = 23
UNKNOWN = 999

MESSAGES = {
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    GPU_IS_LOST: "GPU is lost",
    IN_USE: "In use by another client",
    INSUFFICIENT_MEMORY: "Insufficient Memory",
    INSUFFICIENT_RESOURCES: "Insufficient Resources",
    UNKNOWN: "Unknown Error",
}

NAMES = {
    "invalid_argument": INVALID_ARGUMENT,
    "not_supported": NOT_SUPPORTED,
    "no_permission": NO_PERMISSION,
    "not_found": NOT_FOUND,
    "gpu_is_lost": GPU_IS_LOST,
    "in_use": IN_USE,
    "insufficient_memory": INSUFFICIENT_MEMORY,
    "insufficient_resources": INSUFFICIENT_RESOURCES,
    "unknown": UNKNOWN,
}
"""Codes by their names on the command line."""


class NvmlError(Exception):
    """A call of the driver library that failed, with its return code."""

    def __init__(self, code: int) -> None:
        super().__init__(MESSAGES[code])
        self.code = code

    @property
    def exit_status(self) -> int:
        """Return nvidia-smi's exit status: the code, or 255 for codes without one."""
        return 255 if self.code in (INSUFFICIENT_MEMORY, UNKNOWN) else self.code


def begin(state: State, root_user: bool, operation: str, index: int) -> None:
    """Begin a driver operation on a GPU: raise the errors that precede the check of its arguments.

    Those are "Insufficient Permissions" for an ordinary user, and the code of a fault injected into this operation.
    """
    if not root_user:
        raise NvmlError(NO_PERMISSION)
    code = _armed_error(state, operation, index)
    if code is not None:
        raise NvmlError(code)


def is_due(fault: dict[str, Any]) -> bool:
    """Return whether a fault acts on the call that was just counted."""
    first: int = fault["at"]
    return fault["seen"] >= first and (fault["times"] is None or fault["seen"] < first + fault["times"])


def _armed_error(state: State, operation: str, index: int) -> int | None:
    """Return the code with which a fault makes the operation fail now, or None; counts the call in the state."""
    code: int | None = None
    for fault in state["faults"]:
        if fault["kind"] == "driver" and fault["operation"] == operation and fault["gpu"] in (None, index):
            fault["seen"] += 1
            if code is None and is_due(fault):
                code = fault["code"]
    return code
