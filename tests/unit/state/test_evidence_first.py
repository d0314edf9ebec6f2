# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_state as a task: gpu_health keeps evidence on the host before a reset, and gpu_state then goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action.normal import ActionModule as NormalActionModule
from ansible_collections.gpu.fleet.plugins.action.gpu_state import ActionModule

from tests.unit.plays import run_play
from tests.unit.site.mock_host import MockHost, mock_variables

pytestmark = pytest.mark.plays

STOPPED = {"failed": True, "msg": "the evidence of a fault has to be kept first", "evidence_due": True}
DONE = {"changed": True, "evidence_due": False, "evidence": {"directory": "/evidence/1", "files": [], "notes": []}}
KEPT = {"directory": "/evidence/1", "files": ["kernel.log"], "notes": ["there is no nvidia-bug-report.sh"]}
OPTIONS = {"ecc": False, "evidence": "when_unhealthy", "timeout": 90, "evidence_directory": "/evidence"}
ASKED = {"evidence": "when_unhealthy", "evidence_directory": "/evidence", "timeout": 90, "history": ""}


def run(directory: Path, results: dict[str, Any], **task: Any) -> list[tuple[str, dict[str, Any], bool]]:
    """Run a task of gpu_state on a host with these results: the modules, their options, and whether in check mode."""
    log = directory / "log"
    host = mock_variables(directory / "host", MockHost(results=results))
    inventory = directory / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": {"node": host}}}))
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"gpu.fleet.gpu_state": OPTIONS, **task}]}
    env = {"GPU_FLEET_MOCK_LOG": str(log), "PATH": os.environ["PATH"]}
    run_play(directory, play, inventory=inventory, env=env)
    calls = []
    for line in log.read_text().splitlines():
        name, _tab, text = line.partition("\t")
        options = json.loads(text)
        given = {key: value for key, value in options.items() if not key.startswith("_ansible")}
        calls.append((name, given, options["_ansible_check_mode"]))
    return calls


def test_evidence_is_kept_before_the_run_that_resets(tmp_path: Path) -> None:
    calls = run(tmp_path, {"gpu_state": [STOPPED, DONE], "gpu_health": {"changed": False, "evidence": KEPT}})
    assert calls == [
        ("gpu_state", OPTIONS, False),
        ("gpu_health", ASKED, False),
        ("gpu_state", {**OPTIONS, "evidence_kept": KEPT}, False),
    ]


def test_a_host_that_cannot_be_read_is_reset_with_a_note(tmp_path: Path) -> None:
    unreadable = {"failed": True, "msg": "evidence_directory: evidence is not an absolute path"}
    calls = run(tmp_path, {"gpu_state": [STOPPED, DONE], "gpu_health": unreadable})
    note = f"no evidence could be collected: {unreadable['msg']}"
    assert [name for name, _options, _check in calls] == ["gpu_state", "gpu_health", "gpu_state"]
    assert calls[-1][1]["evidence_kept"] == {"files": [], "notes": [note]}


@pytest.mark.parametrize(
    ("results", "task"),
    [
        ({"gpu_state": {**DONE, "changed": False}}, {}),
        ({"gpu_state in check mode": {"changed": True, "evidence_due": True}}, {"check_mode": True}),
        ({"gpu_state": {"failed": True, "msg": "ecc is not supported"}}, {"ignore_errors": True}),
    ],
)
def test_a_run_that_resets_nothing_is_one(tmp_path: Path, results: dict[str, Any], task: dict[str, Any]) -> None:
    name = next(iter(results))
    assert run(tmp_path, results, **task) == [(name, OPTIONS, "check" in name)]


@pytest.mark.parametrize("due", [True, False])
def test_a_task_in_the_background_has_its_evidence_before_it_begins(monkeypatch: pytest.MonkeyPatch, due: bool) -> None:
    """Its result comes too late to keep any."""
    calls: list[tuple[str, bool]] = []
    task = SimpleNamespace(args=OPTIONS, async_val=600, check_mode=False, _role=None)
    action = object.__new__(ActionModule)
    action._task = task

    def execute(name: str = "gpu_state", **_options: Any) -> dict[str, Any]:
        calls.append((name, task.check_mode))
        return {"evidence": KEPT} if name == "gpu.fleet.gpu_health" else {"evidence_due": due}

    def start(_action: Any, _tmp: Any, _variables: Any) -> dict[str, Any]:
        calls.append(("start", task.check_mode))
        return {"started": 1, "given": task.args}

    monkeypatch.setattr(action, "_execute_module", execute)
    monkeypatch.setattr(NormalActionModule, "run", start)
    result = action.run(None, {})
    kept = [("gpu.fleet.gpu_health", False)] if due else []
    assert calls == [("gpu_state", True), *kept, ("start", False)]
    assert result["given"] == ({**OPTIONS, "evidence_kept": KEPT} if due else OPTIONS)
    assert task.args == OPTIONS
