# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fault injection: around a call of nvidia-smi, or inside the driver that it calls.

A fault is a dict in ``state["faults"]``::

    {"id": 1, "kind": "exit", "verb": "mig -cgi", "at": 2, "times": 1, "seen": 0, "status": 255, "text": ""}

``verb`` is the words that a command line must contain to match (empty: every call). ``seen`` counts the matching calls;
the fault acts on ``times`` of them (null: all) from number ``at`` on. The kinds:

* ``hang``: sleep for ``seconds``, then continue;
* ``slow``: take as long as a real host takes, times ``factor``;
* ``exit``: do nothing, print ``text``, exit with ``status``; with 0 it is a silent no-op;
* ``kill``: die by SIGKILL, before the call does anything or after it (``moment``: ``before``, ``after``);
* ``truncate``: print only the first ``share`` of the text, exit as usual;
* ``driver``: the driver's ``operation`` on a GPU (``gpu``: index or null) fails with NVML's ``code``; no ``verb``.
"""

from __future__ import annotations

import os
import signal
import time

from ..command_line import options, selection
from ..mig import request as mig_request
from ..state import nvml, store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Sequence

    from ..command_line.selection import Selected
    from ..state.shapes import Reply, State

    Fault = Dict[str, Any]

OPERATIONS = (
    "set_mig_mode",
    "create_gpu_instance",
    "create_compute_instance",
    "destroy_gpu_instance",
    "destroy_compute_instance",
    "set_ecc_mode",
    "clear_ecc_errors",
    "set_persistence_mode",
    "set_compute_mode",
    "set_power_limit",
    "set_gpu_clocks",
    "reset_gpu_clocks",
    "set_memory_clocks",
    "reset_memory_clocks",
    "set_applications_clocks",
    "reset_applications_clocks",
    "set_accounting_mode",
    "reset_gpu",
)

START_S = 0.005
OPEN_S = 0.016
"""Seconds to open one GPU of the host, whether the call selects it or not (8 H200: 130 ms, 1 H200: 21 ms)."""
READ_S = (
    (("-q", "-d", "UTILIZATION"), 0.031),
    (("-q", "-d", "CLOCK"), 0.020),
    (("-q", "-d"), 0.007),
    (("-q",), 0.088),
    (("topo",), 0.025),
    (("mig",), 0.007),
    (("-L",), 0.0),
)
"""Seconds to read one GPU, by the words of the command; the first match counts."""
SUMMARY_S = 0.095
OTHER_S = 0.002


def wrap(argv: Sequence[str], root: str, state: State, result: Callable[[], Reply]) -> Reply:
    """Run a call with the faults that are due injected."""
    due = _count(argv, root, state)
    for fault in due:
        if fault["kind"] == "hang":
            time.sleep(fault["seconds"])
        elif fault["kind"] == "slow":
            visible = selection.visible(state, root)
            time.sleep(fault["factor"] * usual_seconds(argv, len(visible), len(_selected(argv, visible))))
    for fault in due:
        if fault["kind"] == "kill" and fault["moment"] == "before":
            _die()
    for fault in due:
        if fault["kind"] == "exit":
            return fault["text"], fault["status"]
    text, status = result()
    for fault in due:
        if fault["kind"] == "kill":
            _die()
        elif fault["kind"] == "truncate":
            text = text[: int(len(text) * fault["share"])]
    return text, status


def usual_seconds(argv: Sequence[str], gpus: int, selected: int) -> float:
    """Return the seconds that a call takes on a real host with ``gpus`` GPUs, of which it selects ``selected``.

    Fitted to timings of driver 580.159.04 on hosts with 8 H200 and with 1 H200.
    """
    each = OTHER_S if argv else SUMMARY_S
    for words, seconds in READ_S:
        if set(words) <= set(argv):
            each = seconds
            break
    return START_S + OPEN_S * gpus + each * selected


def matches(fault: Fault, argv: Sequence[str]) -> bool:
    """Return whether a fault matches a command line: all words of its verb occur, in any order and spelling."""
    if fault["kind"] == "driver":
        return False
    return set(_short_words(fault["verb"].split())) <= set(_short_words(argv))


def _short_words(words: Sequence[str]) -> list[str]:
    """Write options in their short form, without values: ``--create-gpu-instance`` and ``-cgi`` are the same."""
    shorter = dict(mig_request.ALIASES)
    for grammar in (options.QUERY, options.SELECTIVE, options.MODIFICATION):
        shorter.update({f"--{long}": short for long, (short, _unused) in grammar.items() if short})
    names = [word.partition("=")[0] for word in words]
    return [shorter.get(name, name) for name in names]


def _selected(argv: Sequence[str], visible: Selected) -> Selected:
    for name, value in zip(_short_words(argv), [*argv[1:], None]):
        if name == "-i" and value:
            return selection.select(visible, value)
    return visible


def _count(argv: Sequence[str], root: str, state: State) -> list[Fault]:
    """Count a call and return the faults that act on it."""
    watching = [fault for fault in state["faults"] if matches(fault, argv)]
    if all(fault["at"] == 1 and fault["times"] is None for fault in watching):
        return watching
    ids = [fault["id"] for fault in watching]
    try:
        with store.transaction(root) as opened:
            return _seen(opened, ids)
    except store.StoreError:
        # In a container the state is read-only: it cannot count, so every call there is the next one.
        return _seen(state, ids)


def _seen(state: State, watching: Sequence[int]) -> list[Fault]:
    due = []
    for fault in state["faults"]:
        if fault["id"] in watching:
            fault["seen"] += 1
            if nvml.is_due(fault):
                due.append(fault)
    return due


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
