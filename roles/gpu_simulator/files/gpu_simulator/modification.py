# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a device modification runs: GPU after GPU, until one fails for good."""

from __future__ import annotations

from . import health, nvml, options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from .shapes import Answer, Gpu
    from .verbs import Call

    Change = Callable[[int, Gpu], str]

PERSISTENCE_WARNING = (
    "\nWarning: persistence mode is disabled on device {}. See the Known Issues section of the nvidia-smi(1) man page "
    "for more information. Run with [--help | -h] switch to get more information on how to enable persistence mode.\n"
)
ONE_AT_A_TIME = "Invalid combination of input arguments. Only one device modification may be done at a time.\n\n"
REFUSES_ERROR_ON_WARNING = (535,)
"""Branches that take -eow for a modification of its own."""
SWITCH = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}


class UnsupportedError(Exception):
    """A change that a GPU does not have; nvidia-smi says so and goes on."""


class RefusedError(Exception):
    """A change that failed; nvidia-smi stops there. What it did to the GPUs before stays."""

    def __init__(self, line: str, exit_status: int) -> None:
        super().__init__(line)
        self.exit_status = exit_status


def on_each_gpu(call: Call, change: Change) -> Answer:
    """Change the selected GPUs in their order.

    ``change`` gives the text for one; UnsupportedError lets the next GPUs have their turn, RefusedError does not.
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
    """Begin an operation of the driver; ``failure`` is the line for its error, raised as ``on_each_gpu`` takes it."""
    try:
        nvml.begin(call.state, call.root_user, operation, index)
    except nvml.NvmlError as error:
        line = failure.format(error)
        if error.code == nvml.NOT_SUPPORTED:
            raise UnsupportedError(line) from error
        raise RefusedError(line, error.exit_status) from error


def choice(option: str, value: str, allowed: dict[str, bool], complaint: str) -> bool:
    """Read a switch, by number or by name; raises RefusedError for a wrong number, UsageError for a wrong word."""
    try:
        return allowed[value.upper()]
    except KeyError:
        raise wrong_value(option, value, complaint) from None


def wrong_value(option: str, value: str, complaint: str) -> Exception:
    """Make the error for a value that an option of this long name does not have."""
    if value.lstrip("-").isdigit():
        return RefusedError(f"{complaint}: {value}", nvml.INVALID_ARGUMENT)
    return options.invalid_value(option, value)


def integers(option: str, value: str) -> list[int]:
    """Read one number or a comma list of them; raises UsageError."""
    try:
        return [int(part) for part in value.split(",")]
    except ValueError:
        raise options.invalid_value(option, value) from None


def persistence_warning(gpu: Gpu) -> str:
    """Give the reminder that follows a setting which a driver without persistence mode soon forgets."""
    return "" if gpu["persistence_mode"] else PERSISTENCE_WARNING.format(gpu["bus_id"])


def word(mode: bool) -> str:
    """Print a mode."""
    return "Enabled" if mode else "Disabled"
