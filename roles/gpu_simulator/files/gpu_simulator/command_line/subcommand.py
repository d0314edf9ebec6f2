# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a subcommand (``topo``, ``nvlink``, ``pci``, ...): its own options and error messages."""

from __future__ import annotations

from ..state import health
from . import selection
from .options import INVALID_ARGUMENT, MISUSE, UsageError, looks_like_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence, Tuple, Union

    from ..state.shapes import Reply
    from .verbs import Call

    Grammar = Mapping[str, Tuple[str, Union[bool, str]]]
    Given = Tuple[str, str, str]

NUMBER, UNSIGNED, OPTIONAL = "number", "unsigned", "optional"


def scan(arguments: Sequence[str], grammar: Grammar) -> list[Given]:
    """Parse arguments from left to right into (long name, the option as it was spelled, value).

    A grammar maps long names to (short name, kind of value): False (none), True (any string), ``number`` (no
    word), ``unsigned`` (digits only) or ``optional`` (the next argument, unless it is an option).
    ``-i 0``, ``--id 0`` and ``--id=0`` are the same. Raises UsageError: for the first invalid value, else the first
    option that is not recognized, else the first whose value is missing.
    """
    found: list[Given] = []
    invalid: list[str] = []
    unknown: list[str] = []
    missing: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        name, separator, value = argument.partition("=")
        long = _long_name(name, grammar)
        if long is None:
            unknown.append(f'Option "{argument}" is not recognized.\n')
            continue
        kind = grammar[long][1]
        is_option_next = bool(waiting) and _long_name(waiting[0].partition("=")[0], grammar) is not None
        if not kind and separator:
            unknown.append(f'Option "{value}" is not recognized.\n')
        elif kind and not separator and waiting and not is_option_next:
            value = waiting.pop(0)
        elif kind and kind != OPTIONAL and not separator:
            missing.append(f'Option "{argument}" is missing its value.\n')
            continue
        if (kind == NUMBER and not looks_like_number(value)) or (kind == UNSIGNED and not value.isdecimal()):
            invalid.append(f'Option "{value}" is invalid for "{argument if separator else name}".\n')
        found.append((long, argument if separator else name, value))
    for mistakes in (invalid, unknown, missing):
        if mistakes:
            raise UsageError(mistakes[0], INVALID_ARGUMENT)
    return found


def parse(arguments: Sequence[str], grammar: Grammar) -> dict[str, str]:
    """Parse arguments into options by long name, the last of each counting; raises UsageError."""
    return {long: value for long, _spelled, value in scan(arguments, grammar)}


def _long_name(name: str, grammar: Grammar) -> str | None:
    for long, (short, _kind) in grammar.items():
        if name and name in ("--" + long, short):
            return long
    return None


def select(call: Call, options: Mapping[str, str]) -> Reply | None:
    """Narrow the call to the GPUs of ``-i``; returns the error output when there are none."""
    try:
        call.gpus = selection.select(call.visible, options.get("id"))
    except selection.UnparsableSelectorError:
        return "Failed to parse device string on command line", MISUSE
    return None if call.gpus else health.NO_DEVICES
