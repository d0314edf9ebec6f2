# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cached simulated nvidia-smi of the module tests replies and changes the state as the uncached one does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator import cli
from gpu_simulator.state import store

from tests.unit import simulated_smi

CALLS = (
    "-q -x",
    "mig -i 0 -cgi 9,19 -C",
    "mig -lgi",
    "-q -x",
    "-i 1 -pl 300",
    "mig -i 0 -dgi",  # in use: refused
    "mig -i 0 -dci",
    "mig -i 0 -dgi",
    "mig -lgi",
    "-L",
    "-i 1 -pl 300",
    "--query-gpu=power.limit --format=csv",
)
Reply = Callable[[list[str], Path], tuple[str, int]]


def _history(root: Path, reply: Reply) -> list[tuple[str, int, Any]]:
    description: Any = {"driver_version": "580.159.04", "gpus": [{"model": "a100_40gb", "count": 2}]}
    store.initialise(description, root=str(root), device_nodes=True)
    with store.transaction(str(root)) as state:
        state["gpus"][0]["mig_mode"] = {"current": True, "pending": True}
    history = []
    for call in CALLS:
        text, status = reply(call.split(), root)
        text = re.sub(r"<timestamp>.*</timestamp>", "", text)
        history.append((text, status, store.read(str(root))))
    return history


def test_replies_and_states_are_those_without_a_cache(tmp_path: Path) -> None:
    expected = _history(tmp_path / "plain", lambda call, root: cli.reply(call, str(root), True))
    for run in ("first", "again"):
        assert _history(tmp_path / run, lambda call, root: simulated_smi.reply(call, root, True)) == expected
    assert len({str(state) for _text, _status, state in expected}) == 5
    # A GPU instance in use, and a list of none.
    assert [status for _text, status, _state in expected if status] == [19, 6]


def test_a_repeated_call_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _history(tmp_path / "first", lambda call, root: simulated_smi.reply(call, root, True))
    monkeypatch.delattr(cli, "reply")
    _history(tmp_path / "again", lambda call, root: simulated_smi.reply(call, root, True))


def test_faults_with_effects_act_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _history(tmp_path, lambda call, root: simulated_smi.reply(call, root, True))
    slept: list[float] = []
    monkeypatch.setattr("gpu_simulator.control.faults.time.sleep", slept.append)
    with store.transaction(str(tmp_path)) as state:
        fault = {"id": 1, "kind": "hang", "verb": "-L", "at": 1, "times": None, "seen": 0, "seconds": 9}
        state["faults"] = [fault]
    for _call in range(2):
        simulated_smi.reply(["-L"], tmp_path, True)
    assert slept == [9, 9]
