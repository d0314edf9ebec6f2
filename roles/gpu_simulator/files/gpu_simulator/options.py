# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of nvidia-smi: its options, in the grammars it tries one after the other, and its error texts.

The order and the two spellings of "not recognized" were observed on driver 580.159.04: a command of its own (``-L``)
refuses every other option; a selective query refuses unknown ones with 2; everything else ends in the grammar of the
device modifications, which refuses with 255.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence

HINT = "Please run 'nvidia-smi -h'"
INVALID_COMBINATION = "Invalid combination of input arguments"
INVALID_ARGUMENT = 2
MISUSE = 255


class UsageError(Exception):
    """The command line is refused: what is printed, and the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


COMMANDS: Mapping[str, str] = {
    "-h": "help",
    "--help": "help",
    "--version": "version",
    "-L": "list-gpus",
    "--list-gpus": "list-gpus",
    "-B": "list-excluded-gpus",
    "--list-excluded-gpus": "list-excluded-gpus",
    "--help-query-gpu": "help-query-gpu",
    "--help-query-supported-clocks": "help-query-supported-clocks",
    "--help-query-compute-apps": "help-query-compute-apps",
    "--help-query-accounted-apps": "help-query-accounted-apps",
    "--help-query-retired-pages": "help-query-retired-pages",
    "--help-query-remapped-rows": "help-query-remapped-rows",
}
"""Options that are a command by themselves and take no other option."""

# Long name -> (short name, takes a value)
_COMMON = {
    "id": ("-i", True),
    "filename": ("-f", True),
    "loop": ("-l", True),
    "loop-ms": ("-lms", True),
}

QUERY = {
    **_COMMON,
    "query": ("-q", False),
    "xml-format": ("-x", False),
    "dtd": ("", False),
    "display": ("-d", True),
    "unit": ("-u", False),
}

SELECTIVE = {
    **_COMMON,
    "query-gpu": ("", True),
    "query-supported-clocks": ("", True),
    "query-compute-apps": ("", True),
    "query-accounted-apps": ("", True),
    "query-retired-pages": ("", True),
    "query-remapped-rows": ("", True),
    "format": ("", True),
}

MODIFICATIONS = {
    "persistence-mode": ("-pm", True),
    "ecc-config": ("-e", True),
    "reset-ecc-errors": ("-p", True),
    "compute-mode": ("-c", True),
    "gom": ("", True),
    "gpu-reset": ("-r", False),
    "lock-gpu-clocks": ("-lgc", True),
    "reset-gpu-clocks": ("-rgc", False),
    "lock-memory-clocks": ("-lmc", True),
    "reset-memory-clocks": ("-rmc", False),
    "lock-memory-clocks-deferred": ("-lmcd", True),
    "reset-memory-clocks-deferred": ("-rmcd", False),
    "applications-clocks": ("-ac", True),
    "reset-applications-clocks": ("-rac", False),
    "power-limit": ("-pl", True),
    "accounting-mode": ("-am", True),
    "clear-accounted-apps": ("-caa", False),
    "multi-instance-gpu": ("-mig", True),
}
"""Only one of these goes into one call."""

MODIFICATION = {
    **MODIFICATIONS,
    "id": ("-i", True),
    "error-on-warning": ("-eow", False),
    "mode": ("-m", True),
    "scope": ("-sc", True),
}

Grammar = "Mapping[str, Tuple[str, bool]]"


def command_of(arguments: Sequence[str]) -> str | None:
    """Find the option that is a command by itself; raises UsageError when another option stands beside it."""
    found = [argument for argument in arguments if argument in COMMANDS]
    if not found:
        return None
    for argument in arguments:
        if argument != found[0]:
            raise UsageError(
                f"ERROR: Option {argument} is not valid for this command. {HINT} for help.\n\n", INVALID_ARGUMENT
            )
    return COMMANDS[found[0]]


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Turn arguments into a kind (``query``, ``selective``, ``modification``) and options by long name.

    An option without a value has the value ``""``. Raises UsageError.
    """
    if any(argument.startswith("--query-") for argument in arguments):
        queries = [name for name in _named(arguments, SELECTIVE) if name.startswith("query-")]
        if len(queries) > 1:
            raise UsageError("Only one --query-* switch can be used at a time.\n", INVALID_ARGUMENT)
        if queries:
            options = _parse(arguments, SELECTIVE, INVALID_ARGUMENT, f"{HINT} for help.")
            return "selective", options
    if not any(name in MODIFICATIONS for name in _named(arguments, MODIFICATION)) and not _unknown(arguments, QUERY):
        options = _parse(arguments, QUERY, MISUSE, f"{HINT}.")
        _check_query(options)
        return "query", options
    options = _parse(arguments, MODIFICATION, MISUSE, f"{HINT}.")
    if len([name for name in options if name in MODIFICATIONS]) > 1:
        raise UsageError(
            f"{INVALID_COMBINATION}. Only one device modification may be done at a time.\n\n",
            INVALID_ARGUMENT,
        )
    return "modification", options


def _check_query(options: Mapping[str, str]) -> None:
    def needs_query(long: str, what: str) -> UsageError:
        text = f"{INVALID_COMBINATION}. Specify -q/--query and {long} to run {what} query.  {HINT} for help.\n\n"
        return UsageError(text, INVALID_ARGUMENT)

    if "query" in options:
        if "xml-format" in options and "display" in options:
            text = f"{INVALID_COMBINATION}: --display/-d flags can not be combined with -x/--xml-format flags.\n"
            raise UsageError(text, INVALID_ARGUMENT)
    elif "xml-format" in options:
        raise needs_query("-x/--xml-format", "an XML")
    elif "display" in options:
        raise needs_query("-d/--display", "a filtered")
    elif "unit" in options:
        raise needs_query("-u/--unit", "a unit")


def _lookup(argument: str, grammar: Mapping[str, tuple[str, bool]]) -> tuple[str, str | None] | None:
    """Find an argument in a grammar: its long name and the value after ``=``."""
    name, separator, value = argument.partition("=")
    for long, (short, _takes_value) in grammar.items():
        if name == "--" + long or (short and name == short):
            return long, value if separator else None
    return None


def _named(arguments: Sequence[str], grammar: Mapping[str, tuple[str, bool]]) -> list[str]:
    return [found[0] for found in (_lookup(argument, grammar) for argument in arguments) if found]


def _unknown(arguments: Sequence[str], grammar: Mapping[str, tuple[str, bool]]) -> bool:
    """Tell whether an argument is neither an option of the grammar nor the value of one."""
    expects_value = False
    for argument in arguments:
        found = _lookup(argument, grammar)
        if found:
            expects_value = grammar[found[0]][1] and found[1] is None
        elif expects_value:
            expects_value = False
        else:
            return True
    return False


def _parse(
    arguments: Sequence[str], grammar: Mapping[str, tuple[str, bool]], unknown_status: int, unknown_hint: str
) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        found = _lookup(argument, grammar)
        if found is None or found[0] in options:
            raise UsageError(f"ERROR: Option {argument} is not recognized. {unknown_hint}\n\n", unknown_status)
        name, value = found
        if grammar[name][1] and value is None:
            if position == len(arguments) or _lookup(arguments[position], grammar):
                raise UsageError(f"ERROR: Option {argument} is missing its value. {HINT} for help.\n\n", MISUSE)
            value = arguments[position]
            position += 1
        options[name] = value or ""
    return options


def invalid_value(option: str, value: str) -> UsageError:
    """Make the error for a value that an option cannot have, as ``-pl`` and ``-c`` say it."""
    short = MODIFICATION[option][0] or "--" + option
    return UsageError(f"ERROR: Option {value} is invalid for {short}. {HINT} for help.\n\n", INVALID_ARGUMENT)
