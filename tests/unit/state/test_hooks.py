# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the role runs the user's hooks: its own tasks, around a mock module and reboot that record their order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import settings
from tests.conftest import ROOT
from tests.unit.plays import ansible_playbook

pytestmark = pytest.mark.plays

_STUB = """
- name: "{name}"
  ansible.builtin.set_fact:
    __gpu_state_run: "{{{{ prediction if __gpu_state_plan.predicts else done }}}}"
  failed_when: "'{name}' == broken and not __gpu_state_plan.predicts"
"""
_HOOK = """
- name: "{name}"
  ansible.builtin.debug:
    msg: "{{{{ gpu_state_change.interrupts }}}}"
  failed_when: "'{name}' == broken"
"""
_NOTHING = {"changed": False, "gpus_changed": False, "interrupts": False, "reboot_required": False, "pending": []}
_RUN = {**_NOTHING, **dict.fromkeys(("reboot_tried", "awaits_reboot", "mig_changed", "cdi_refresh"), False)}
_CHANGE = {**_RUN, "changed": True, "gpus_changed": True, "interrupts": True}
_PENDING = {**_RUN, "reboot_required": True, "pending": ["GPU-1"]}
_ALL = ["first", "second", "module", "start", "last"]
# By name: prediction, result of the change, the step that fails, further variables, and the steps after the prediction.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, dict[str, Any], list[str]]] = {
    "a change": (_CHANGE, _CHANGE, "", {}, _ALL),
    "nothing to do": (_RUN, _RUN, "", {}, []),
    "only the service": ({**_RUN, "changed": True}, {**_RUN, "changed": True}, "", {}, ["module"]),
    "a change that fails": (_CHANGE, _CHANGE, "module", {}, _ALL),
    "a hook that fails": (_CHANGE, _CHANGE, "first", {}, ["first", "start", "last"]),
    "a hook that fails after the change": (_CHANGE, _CHANGE, "start", {}, _ALL),
    "a reboot within": (
        _CHANGE,
        {**_CHANGE, **_PENDING},
        "",
        {"gpu_state_reboot": "if_required"},
        ["first", "second", "module", "reboot", "start", "last"],
    ),
    "a reboot that fails": (
        _CHANGE,
        {**_CHANGE, **_PENDING},
        "reboot",
        {"gpu_state_reboot": "if_required"},
        ["first", "second", "module", "reboot", "start", "last"],
    ),
    "pending, and no reboot": (_PENDING, _PENDING, "", {}, []),
    "pending after a reboot": (
        {**_PENDING, "reboot_tried": True},
        _PENDING,
        "",
        {"gpu_state_reboot": "if_required"},
        [],
    ),
}


Turns = dict[str, tuple[list[str], bool]]
"""By host: the steps that ran after the prediction, in order, and whether the host failed."""


def _turns(directory: Path, hosts: dict[str, dict[str, Any]], *arguments: str) -> Turns:
    """Run the role on these hosts, each with the variables of one case."""
    role = directory / "roles" / "gpu_state"
    for part in ("tasks", "defaults"):
        shutil.copytree(ROOT / "roles" / "gpu_state" / part, role / part)
    tasks = yaml.safe_load((role / "tasks" / "configure.yml").read_text(encoding="utf-8"))
    (place,) = (number for number, task in enumerate(tasks) if "gpu.fleet.gpu_state" in task)
    tasks[place : place + 1] = yaml.safe_load(_STUB.format(name="module"))
    (role / "tasks" / "configure.yml").write_text(yaml.safe_dump(tasks), encoding="utf-8")
    (role / "tasks" / "reboot.yml").write_text(_STUB.format(name="reboot"), encoding="utf-8")
    for name in ("first", "second", "start", "last"):
        (directory / f"{name}.yml").write_text(_HOOK.format(name=name), encoding="utf-8")
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    (directory / "play.yml").write_text("- {hosts: all, gather_facts: false, roles: [gpu_state]}", encoding="utf-8")
    (directory / "ansible.cfg").write_text("", encoding="utf-8")
    environment = {
        **settings.environment(),
        "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_HOME": str(directory),
    }
    run = ansible_playbook("-i", directory / "hosts.json", directory / "play.yml", *arguments, env=environment)
    result = json.loads(run.stdout[run.stdout.index("{") :])
    steps: dict[str, list[str]] = {host: [] for host in hosts}
    for task in result["plays"][0]["tasks"]:
        name = task["task"]["name"].rpartition(" : ")[2]
        for host, outcome in task["hosts"].items():
            if name in (*_ALL, "reboot") and not outcome.get("skipped"):
                steps[host].append(name)
    failed = {host: bool(result["stats"][host]["failures"]) for host in hosts}
    assert (run.returncode != 0) == any(failed.values())
    return {host: (steps[host][1:], failed[host]) for host in hosts}


def _variables(directory: Path, case: str, hooks: bool = True) -> dict[str, Any]:
    prediction, done, broken, more, _expected = CASES[case]
    variables = {"prediction": prediction, "done": done, "broken": broken, "ansible_connection": "ssh", **more}
    if hooks:
        variables["gpu_state_hooks_before"] = [str(directory / "first.yml"), str(directory / "second.yml")]
        variables["gpu_state_hooks_after"] = [str(directory / f"{name}.yml") for name in ("start", "last")]
    return variables


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Turns:
    """All cases in one play, each as a host, and a host without hooks."""
    directory = tmp_path_factory.mktemp("hooks")
    hosts = {case: _variables(directory, case) for case in CASES}
    return _turns(directory, {**hosts, "without hooks": _variables(directory, "a change", hooks=False)})


@pytest.mark.parametrize("case", CASES)
def test_hooks_run_around_a_change_and_nothing_else(turns: Turns, case: str) -> None:
    *_inputs, broken, _more, expected = CASES[case]
    steps, failed = turns[case]
    assert steps == expected
    assert failed == bool(broken), "what failed stays failed, whatever the hooks after it did"


def test_no_hook_runs_in_check_mode(tmp_path: Path) -> None:
    assert _turns(tmp_path, {"host": _variables(tmp_path, "a change")}, "--check") == {"host": ([], False)}


def test_without_hooks_nothing_is_predicted(turns: Turns) -> None:
    assert turns["without hooks"] == ([], False)
