# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of nvidia-smi: its options, the grammars that it tries in order, and its error messages.

Order, messages and the two spellings of "not recognized" were observed on driver 580.159.04. The first match counts:

* a standalone command (``-L``) rejects every other option with 2;
* an invalid value of an option is rejected with 2, whatever else is wrong;
* ``--mode`` and ``--scope`` without their modification, and two modifications, are rejected with 2;
* with a modification (``-pm``) the grammar of the modifications applies, which rejects other options with 255;
* with ``--dtd`` and no ``-q`` the grammar of the DTD, as well;
* ``--help-query-*`` ignores everything else;
* with a ``--query-*`` the grammar of the selective queries, which rejects other options with 2;
* else the grammar of the table and ``-q``, which rejects them with 255, in a shorter message.

Within a grammar a missing value is reported before an option that is not recognized.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping, Sequence, Tuple

    from ..state.shapes import Version

    Grammar = Mapping[str, Tuple[str, bool]]

HINT = "Please run 'nvidia-smi -h'"
LONG_HINT = f"{HINT} for help."
INVALID_COMBINATION = "Invalid combination of input arguments"
INVALID_ARGUMENT = 2
MISUSE = 255


class UsageError(Exception):
    """The command line is rejected, with this output and exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


class NotSimulatedError(Exception):
    """A function of nvidia-smi that the simulator lacks; the message names it."""


COMMANDS: Mapping[str, str] = {
    "-h": "help",
    "--help": "help",
    "--help-query-gpu": "help-query-gpu",
    "--help-query-supported-clocks": "help-query-supported-clocks",
    "--help-query-compute-apps": "help-query-compute-apps",
    "--help-query-accounted-apps": "help-query-accounted-apps",
    "--help-query-retired-pages": "help-query-retired-pages",
    "--help-query-remapped-rows": "help-query-remapped-rows",
    "--version": "version",
    "-L": "list-gpus",
    "--list-gpus": "list-gpus",
    "-B": "list-excluded-gpus",
    "--list-excluded-gpus": "list-excluded-gpus",
}
"""Standalone commands, which take no other option; the first of them here wins."""

LISTS = (("-L", "--list-gpus", "-B", "--list-excluded-gpus"), ("--version",))
"""Commands with an error message of their own for two together."""

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
    "columns": ("-col", True),
}
SINCE_610 = {"show-all-processes": ("", False)}

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
    "gpu-reset": ("-r", True),
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
    "applications-clocks-permission": ("-acp", True),
    "cuda-clocks": ("-cc", True),
    "auto-boost-default": ("", True),
    "auto-boost-permission": ("", True),
    "virt-mode": ("-vm", True),
    "gpu-target-temp": ("-gtt", True),
    "dram-encryption": ("-den", True),
    "set-hostname": ("", True),
    "get-hostname": ("", False),
}
"""At most one of these is allowed in a call."""

OPTIONAL_VALUE = ("gpu-reset", "loop", "loop-ms")
"""``-r`` may be followed by ``bus``, ``-l`` by seconds."""

MODIFICATION = {
    **MODIFICATIONS,
    "id": ("-i", True),
    "error-on-warning": ("-eow", False),
    "mode": ("-m", True),
    "scope": ("-sc", True),
}
GOES_WITH = {"mode": ("lock-gpu-clocks", "lock-gpu-clocks"), "scope": ("power-limit", "power-limits")}
"""Options that belong to one modification: which, and its name in the error message."""

DOCUMENT_TYPE = {"dtd": ("", False), "filename": ("-f", True), "unit": ("-u", False)}

UNIT_MODIFICATION = {"toggle-led": ("-t", True), "id": ("-i", True)}


PERMISSION = ("UNRESTRICTED", "RESTRICTED")
ON_OFF = ("DISABLED", "ENABLED")
WORDS: Mapping[str, tuple[str, ...]] = {
    "persistence-mode": ON_OFF,
    "ecc-config": ON_OFF,
    "multi-instance-gpu": ON_OFF,
    "accounting-mode": ON_OFF,
    "reset-ecc-errors": ("VOLATILE", "AGGREGATE"),
    "compute-mode": ("DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS"),
    "gom": ("ALL_ON", "COMPUTE", "LOW_DP"),
    "power-limit": (),
    "applications-clocks-permission": PERMISSION,
    "auto-boost-permission": PERMISSION,
    "auto-boost-default": ON_OFF,
    "dram-encryption": ON_OFF,
    "cuda-clocks": ("RESTORE_DEFAULT", "OVERRIDE"),
    "virt-mode": ("VGPU", "VSGA"),
    "gpu-target-temp": (),
    "scope": ("GPU", "TOTAL_MODULE"),
    "toggle-led": ("GREEN", "AMBER"),
}
"""Values that an option accepts besides numbers; anything that begins like a number is left to the driver."""

UNSIGNED = ("lock-memory-clocks-deferred", "mode", "columns")
"""Options that accept digits only."""


def command_of(arguments: Sequence[str]) -> str | None:
    """Find the standalone command; raises UsageError when there is another option."""
    given = [argument.partition("=")[0] for argument in arguments]
    if any(sum(name in alike for name in given) > 1 for alike in LISTS):
        raise UsageError(f"ERROR: Only one command can be run at a time. {LONG_HINT}\n\n", INVALID_ARGUMENT)
    found = next((option for option in COMMANDS if option in given and not COMMANDS[option].startswith("help-")), None)
    if found is None:
        return None
    for argument in arguments:
        name, separator, value = argument.partition("=")
        if name != found or separator:
            word = value if name == found else argument
            raise UsageError(f"ERROR: Option {word} is not valid for this command. {LONG_HINT}\n\n", INVALID_ARGUMENT)
    return COMMANDS[found]


def without_debug(arguments: Sequence[str]) -> list[str]:
    """Remove ``--debug`` and its file, into which the simulator writes nothing; raises UsageError."""
    kept = [argument for argument in arguments if not argument.startswith("--debug=")]
    if "--debug" not in kept:
        return kept
    place = kept.index("--debug")
    following = kept[place + 1 : place + 2]
    if not following or following == ["--debug"]:
        text = "Invalid input arguments. Please supply an argument for --debug. Run 'nvidia-smi -h' for help.\n\n"
        raise UsageError(text, INVALID_ARGUMENT)
    if following[0].startswith("-"):
        raise UsageError(f"Invalid input arguments. {LONG_HINT}\n\n", INVALID_ARGUMENT)
    return kept[:place] + kept[place + 2 :]


def parse(arguments: Sequence[str], version: Version = ()) -> tuple[str, dict[str, str]]:
    """Turn arguments into a kind (``query``, ``selective``, ``modification``, ``unit``) and options by long name.

    An option without a value has the value ``""``. Raises UsageError.
    """
    _check_values(arguments)
    named = _named(arguments, MODIFICATION)
    modifications = [name for name in named if name in MODIFICATIONS]
    for name, (needed, words) in GOES_WITH.items():
        if name in named and needed not in modifications:
            text = f"{INVALID_COMBINATION}. '--{name}' can only be used with '--{words}'.\n\n"
            raise UsageError(text, INVALID_ARGUMENT)
    if len(modifications) > 1:
        raise UsageError(
            f"{INVALID_COMBINATION}. Only one device modification may be done at a time.\n\n",
            INVALID_ARGUMENT,
        )
    if modifications:
        return "modification", _parse(arguments, MODIFICATION, MISUSE, LONG_HINT)
    if "--dtd" in arguments and "query" not in _named(arguments, QUERY):
        return "query", _parse(arguments, DOCUMENT_TYPE, MISUSE, LONG_HINT)
    helps = [COMMANDS[argument] for argument in arguments if COMMANDS.get(argument, "").startswith("help-")]
    if helps:
        return helps[0], {}
    if _named(arguments, UNIT_MODIFICATION).count("toggle-led"):
        return "unit", _parse(arguments, UNIT_MODIFICATION, INVALID_ARGUMENT, LONG_HINT)
    queries = {name for name in _named(arguments, SELECTIVE) if name.startswith("query-")}
    if len(queries) > 1:
        raise UsageError("Only one --query-* switch can be used at a time.\n", INVALID_ARGUMENT)
    _check_one_id(arguments)
    if queries:
        return "selective", _parse(arguments, SELECTIVE, INVALID_ARGUMENT, LONG_HINT)
    grammar = {**QUERY, **SINCE_610} if version >= (610,) else QUERY
    options = _parse(arguments, grammar, MISUSE, f"{HINT}.")
    _check_query(options)
    return "query", options


def _check_one_id(arguments: Sequence[str]) -> None:
    """Reject a second ``-i``: the grammar that then applies has no other option."""
    if _named(arguments, _COMMON).count("id") > 1:
        _parse(arguments, {"id": _COMMON["id"]}, MISUSE, LONG_HINT)
        raise UsageError("Input combination for device modification is not valid.\n\n", MISUSE)


def _check_values(arguments: Sequence[str]) -> None:
    """Reject the first invalid value of an option, whatever else is wrong."""
    grammar = {**QUERY, **SELECTIVE, **MODIFICATION, **UNIT_MODIFICATION}
    del grammar["format"]  # which would be read as a value
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        found = _lookup(argument, grammar)
        if found is None or not grammar[found[0]][1]:
            continue
        name, value = found
        if value is None and waiting and not _lookup(waiting[0], grammar):
            value = waiting.pop(0)
        if value is not None:
            _check_value(name, value, argument)
        elif name in GOES_WITH:
            raise _missing(argument)


def _missing(spelled: str) -> UsageError:
    return UsageError(f"ERROR: Option {spelled} is missing its value. {LONG_HINT}\n\n", MISUSE)


def _check_query(options: Mapping[str, str]) -> None:
    """Reject combinations of ``-q``, ``-x``, ``-d``, ``-u`` and ``--dtd``."""
    text = ""
    if "query" in options:
        if "xml-format" in options and "display" in options:
            text = ": --display/-d flags can not be combined with -x/--xml-format flags.\n"
        elif "unit" in options and "display" in options:
            text = ": --display/-d flags can not be combined with -u/--unit flags.\n"
        elif "dtd" in options and "xml-format" not in options:
            text = ": Specify -x/--xml-format with the -q/--query and --dtd flags to embed DTD.\n"
    else:
        for name, flag, what in (
            ("unit", "-u/--unit", "a unit"),
            ("xml-format", "-x/--xml-format", "an XML"),
            ("display", "-d/--display", "a filtered"),
        ):
            if name in options and not text:
                text = f". Specify -q/--query and {flag} to run {what} query.  {LONG_HINT}\n\n"
    if text:
        raise UsageError(INVALID_COMBINATION + text, INVALID_ARGUMENT)


def _check_value(name: str, value: str, spelled: str) -> None:
    """Reject an invalid value of an option; ``spelled`` is the option as it was given."""
    if name in UNSIGNED and not value.isdecimal():
        raise invalid_value(name, value, spelled)
    words = WORDS.get(name)
    if words is None or value in words:
        return
    if not looks_like_number(value) or (not value and spelled.endswith("=")):
        raise invalid_value(name, value, spelled)


def looks_like_number(value: str) -> bool:
    """Return whether nvidia-smi reads a value as a number: it begins like a number or is empty."""
    return not value or value.lstrip("+-.")[:1].isdigit()


def invalid_value(name: str, value: str, spelled: str = "") -> UsageError:
    """Return the error for an invalid value; ``spelled`` is the option as it was given."""
    option = spelled or MODIFICATION[name][0] or "--" + name
    return UsageError(f"ERROR: Option {value} is invalid for {option}. {LONG_HINT}\n\n", INVALID_ARGUMENT)


def _lookup(argument: str, grammar: Grammar) -> tuple[str, str | None] | None:
    """Find an argument in a grammar: its long name and the value after ``=``."""
    name, separator, value = argument.partition("=")
    for long, (short, _takes_value) in grammar.items():
        if name in ("--" + long, short) and name:
            return long, value if separator else None
    return None


def _named(arguments: Sequence[str], grammar: Grammar) -> list[str]:
    return [found[0] for found in (_lookup(argument, grammar) for argument in arguments) if found]


def _parse(arguments: Sequence[str], grammar: Grammar, unknown_status: int, hint: str) -> dict[str, str]:
    for argument, following in zip(arguments, [*arguments[1:], None]):
        if argument in ("-i", "--id") and "id" in grammar and (following is None or _lookup(following, grammar)):
            raise _missing(argument)
    options: dict[str, str] = {}
    unknown = None
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        found = _lookup(argument, grammar)
        if found is None:
            unknown = unknown or UsageError(f"ERROR: Option {argument} is not recognized. {hint}\n\n", unknown_status)
            continue
        name, value = found
        if not grammar[name][1]:
            if value is not None:
                unknown = unknown or UsageError(f"ERROR: Option {value} is not recognized. {hint}\n\n", unknown_status)
            options[name] = ""
            continue
        if value is None and name not in OPTIONAL_VALUE and (not waiting or _lookup(waiting[0], grammar)):
            raise _missing(argument)
        if value is None and waiting and not (name in OPTIONAL_VALUE and _lookup(waiting[0], grammar)):
            value = waiting.pop(0)
        options[name] = value or ""
    if unknown:
        raise unknown
    return options


LOOP_SECONDS = 5.0


def loop_seconds(arguments: Sequence[str]) -> float | None:
    """Return the pause of ``-l`` or ``-lms`` in seconds; None when the call prints once."""
    try:
        options = {} if command_of(arguments) else parse(arguments)[1]
    except UsageError:
        return None
    for name, unit in (("loop", 1.0), ("loop-ms", 0.001)):
        if name in options:
            digits = options[name]
            return float(digits) * unit if digits.isdigit() else LOOP_SECONDS
    return None


def without_header(arguments: Sequence[str], text: str) -> str:
    """Remove the header of CSV or of a monitor, which a loop prints only once."""
    if text.startswith("# "):
        return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    with_header = any(argument.startswith("--query-") for argument in arguments) and not any(
        "noheader" in argument for argument in arguments
    )
    return text.partition("\n")[2] if with_header else text
