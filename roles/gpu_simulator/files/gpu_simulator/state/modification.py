# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run of a device modification: GPU by GPU, until one fails for good."""

from __future__ import annotations

from ..command_line import options
from . import health, nvml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..command_line.verbs import Call
    from .shapes import Gpu, Reply

    Change = Callable[[int, Gpu], str]

PERSISTENCE_WARNING = (
    "\nWarning: persistence mode is disabled on device {}. See the Known Issues section of the nvidia-smi(1) man page "
    "for more information. Run with [--help | -h] switch to get more information on how to enable persistence mode.\n"
)
ONE_AT_A_TIME = "Invalid combination of input arguments. Only one device modification may be done at a time.\n\n"
REFUSES_ERROR_ON_WARNING = (535,)
"""Branches that treat -eow as a modification of its own."""
SWITCH = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}


class UnsupportedError(Exception):
    """A change that a GPU does not support; nvidia-smi reports it and continues."""


class RefusedError(Exception):
    """A change that failed; nvidia-smi stops there. Changes to earlier GPUs stay."""

    def __init__(self, line: str, exit_status: int) -> None:
        super().__init__(line)
        self.exit_status = exit_status


def on_each_gpu(call: Call, change: Change) -> Reply:
    """Change the selected GPUs in their order.

    ``change`` returns the text for one; it continues with the next GPU after UnsupportedError, not after RefusedError.
    """
    if "error-on-warning" in call.options and call.version[0] in REFUSES_ERROR_ON_WARNING:
        return ONE_AT_A_TIME, nvml.INVALID_ARGUMENT
    lost = health.lost(call.gpus)
    if lost:
        return lost
    text = ""
    for index, gpu in call.gpus:
        try:
            text += change(index, gpu)
        except UnsupportedError as warning:
            text += f"{warning}\n"
            if "error-on-warning" in call.options:
                return text + "Terminating early due to previous errors.\n", nvml.NOT_SUPPORTED
            text += "Treating as warning and moving on.\n"
        except RefusedError as error:
            return f"{text}{error}\nTerminating early due to previous errors.\n", error.exit_status
    return f"{text}All done.\n", 0


def driver_call(call: Call, operation: str, index: int, failure: str) -> None:
    """Begin a driver operation; raises RefusedError or UnsupportedError with the line ``failure``."""
    try:
        nvml.begin(call.state, call.root_user, operation, index)
    except nvml.NvmlError as error:
        line = failure.format(error)
        if error.code == nvml.NOT_SUPPORTED:
            raise UnsupportedError(line) from error
        raise RefusedError(line, error.exit_status) from error


def choice(option: str, value: str, allowed: dict[str, bool], error_message: str) -> bool:
    """Parse a switch, by number or by name; raises RefusedError for a wrong number, UsageError for a wrong word."""
    try:
        return allowed[value.upper()]
    except KeyError:
        raise wrong_value(option, value, error_message) from None


def wrong_value(option: str, value: str, error_message: str) -> Exception:
    """Return the error for an invalid value of the option with this long name."""
    if value.lstrip("-").isdigit():
        return RefusedError(f"{error_message}: {value}", nvml.INVALID_ARGUMENT)
    return options.invalid_value(option, value)


def integers(option: str, value: str) -> list[int]:
    """Parse one number or a comma-separated list; raises UsageError."""
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise options.invalid_value(option, value) from None


def persistence_warning(gpu: Gpu) -> str:
    """Return the warning after a setting that a driver without persistence mode soon loses."""
    return "" if gpu["persistence_mode"] else PERSISTENCE_WARNING.format(gpu["bus_id"])


def word(mode: bool) -> str:
    """Return a mode as text."""
    return "Enabled" if mode else "Disabled"
