# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated ``nvidia-smi``: from arguments to text and exit status."""

from __future__ import annotations

import os
import sys
import time

from . import lazy
from .command_line import options, selection, verbs
from .state import branches, health, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

    from .command_line.verbs import Call
    from .state.shapes import Reply, State

NO_DRIVER_TEXT = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
NO_DRIVER: Reply = (NO_DRIVER_TEXT, 9)
BROKEN_PIPE = 141
INTERRUPTED = 130
NOT_SIMULATED = 69
"""Exit status for functions that are not simulated: EX_UNAVAILABLE, which nvidia-smi never uses."""


def main(argv: Sequence[str], root: str | None = None, root_user: bool | None = None) -> int:
    """Run one call, repeatedly with ``-l``, and print its output; returns the exit status."""
    seconds, left = samples(argv)
    first = True
    try:
        while True:
            text, status = reply(argv, root, root_user)
            sys.stdout.write(text if first else options.without_header(argv, text))
            sys.stdout.flush()
            left -= 1
            if left <= 0 or status:
                return status
            first = False
            time.sleep(seconds)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def samples(argv: Sequence[str]) -> tuple[float, float]:
    """Return the pause between samples in seconds, and the number of samples."""
    if argv and argv[0] in verbs.MONITORS:
        return lazy.load("queries.monitors").pause(argv) or (0.0, 1)
    seconds = options.loop_seconds(argv)
    return (0.0, 1) if seconds is None else (seconds, float("inf"))


def reply(argv: Sequence[str], root: str | None = None, root_user: bool | None = None) -> Reply:
    """Return the output of one call and its exit status."""
    directory = store.root_of(root)
    arguments = list(argv)
    state = store.read(directory)
    if state is None:
        return NO_DRIVER
    if state["faults"]:
        wrapped: Reply = lazy.load("control.faults").wrap(
            arguments, directory, state, lambda: _reply(arguments, directory, root_user)
        )
        return wrapped
    return _reply(arguments, directory, root_user, state)


def _reply(arguments: list[str], root: str, root_user: bool | None, state: State | None = None) -> Reply:
    try:
        state = state or store.read(root)
        if state is None:
            return NO_DRIVER
        subcommand = verbs.subcommand_of(arguments, state)
        arguments = arguments if subcommand else options.without_debug(arguments)
        command = None if subcommand else options.command_of(arguments)
        call = new_call(arguments, root, state, root_user)
        refusal = None if command == "help" else _driver_refusal(state)
        if refusal:
            return refusal
        if subcommand:
            call.value, call.arguments = subcommand, arguments[1:]
            return verbs.find(verbs.SUBCOMMANDS[subcommand])(call)
        if command:
            return verbs.find(verbs.COMMANDS[command])(call)
        kind, call.options = options.parse(arguments, call.version)
        return _dispatch(kind, call)
    except options.UsageError as error:
        return error.text, error.status
    except options.NotSimulatedError as error:
        sys.stderr.write(f"gpu-simulator: not simulated: {error}\n")
        return "", NOT_SIMULATED


def new_call(arguments: list[str], root: str, state: State, root_user: bool | None = None) -> Call:
    """Make the Call that is passed to a verb."""
    return verbs.Call(arguments, root, state, os.geteuid() == 0 if root_user is None else root_user)


def _driver_refusal(state: State) -> Reply | None:
    """Return the error output if nvidia-smi cannot communicate with the driver, else None."""
    driver = state["driver"]
    if driver["loaded"] is None:
        return NO_DRIVER
    if driver["loaded"] != driver["installed"]:
        library = branches.library_version(driver["installed"])
        return f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {library}\n", 18
    return None


def _dispatch(kind: str, call: Call) -> Reply:
    if kind.startswith("help-"):
        call.value = kind
        return verbs.find(verbs.COMMANDS[kind])(call)
    if kind == "unit":
        return verbs.find(verbs.UNITS)(call)
    refusal: Reply | None = lazy.load("queries.query").refusal(call) if kind == "query" else None
    if refusal:
        return refusal
    try:
        call.gpus = selection.select(call.visible, call.options.get("id"))
    except selection.UnparsableSelectorError:
        call.gpus = []
        # The fields and the format are looked at before the GPUs.
        found = _selected(call) if kind == "selective" else health.NO_DEVICES
        return (
            found if found != health.NO_DEVICES else ("Failed to parse device string on command line", options.MISUSE)
        )
    if kind == "selective":
        return _selective(call)
    if kind == "modification":
        return _modification(call)
    return _to_file(call, verbs.find(verbs.VIEWS["query"])(call))


def _selective(call: Call) -> Reply:
    return _to_file(call, _selected(call))


def _selected(call: Call) -> Reply:
    name = next(option for option in call.options if option.startswith("query-"))
    call.value = call.options[name]
    reply: Reply = verbs.find(verbs.QUERIES[name])(call)
    return reply


def _to_file(call: Call, found: Reply) -> Reply:
    """Write the output into the file of ``-f``, as nvidia-smi does."""
    if "filename" not in call.options:
        return found
    with open(call.options["filename"], "w", encoding="utf-8") as file:
        file.write(found[0])
    return "", found[1]


def _modification(call: Call) -> Reply:
    """Run a modification in a transaction; a caller without write permission gets the verb's own error output."""
    name = next(option for option in call.options if option in options.MODIFICATIONS)
    handler = verbs.find(verbs.MODIFICATIONS[name])
    call.value = call.options[name]
    if not call.gpus:
        return health.NO_DEVICES
    if not call.root_user:
        return handler(call)
    try:
        with store.transaction(call.root) as state:
            opened = new_call(call.arguments, call.root, state, call.root_user)
            opened.options, opened.value = call.options, call.value
            opened.gpus = selection.select(opened.visible, call.options.get("id"))
            return handler(opened)
    except store.StoreError:
        call.root_user = False
        return handler(call)
