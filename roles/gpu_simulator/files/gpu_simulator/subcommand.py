# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a subcommand (``topo``, ``nvlink``, ``mig``): its own options and its own error texts."""

from __future__ import annotations

from . import health, selection
from .options import INVALID_ARGUMENT, MISUSE, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

    from .shapes import Answer
    from .verbs import Call


def parse(arguments: Sequence[str], grammar: Mapping[str, tuple[str, bool]]) -> dict[str, str]:
    """Turn arguments into options by long name; a grammar maps long names to (short name, takes a value).

    Raises UsageError. ``-i 0``, ``--id 0`` and ``--id=0`` are the same.
    """
    options: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        name, separator, value = argument.partition("=")
        long = _long_name(name, grammar)
        if long is None:
            raise UsageError(f'Option "{argument}" is not recognized.\n', INVALID_ARGUMENT)
        if grammar[long][1] and not separator:
            if position == len(arguments) or _long_name(arguments[position], grammar):
                raise UsageError(f'Option "{argument}" is missing its value.\n', INVALID_ARGUMENT)
            value = arguments[position]
            position += 1
        options[long] = value
    return options


def _long_name(name: str, grammar: Mapping[str, tuple[str, bool]]) -> str | None:
    for long, (short, _takes_value) in grammar.items():
        if name in ("--" + long, short):
            return long
    return None


def select(call: Call, options: Mapping[str, str]) -> Answer | None:
    """Narrow the call to the GPUs of ``-i``; gives the refusal when there are none."""
    try:
        call.gpus = selection.select(call.visible, options.get("id"))
    except selection.UnparsableSelectorError:
        return "Failed to parse device string on command line", MISUSE
    return None if call.gpus else health.NO_DEVICES
