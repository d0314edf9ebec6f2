# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the role runs the user's hooks: its own tasks, around a mock module and reboot that record their order."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from tests.conftest import ROOT

_STUB = """
- name: "{name}"
  ansible.builtin.set_fact:
    __gpu_state_run: "{{{{ prediction if __gpu_state_predict_only | default(false) else done }}}}"
  failed_when: "'{name}' == broken and not __gpu_state_predict_only | default(false)"
"""
_HOOK = """
- name: "{name}"
  ansible.builtin.debug:
    msg: "{{{{ gpu_state_change.interrupts }}}}"
  failed_when: "'{name}' == broken"
"""
_NOTHING = {"changed": False, "gpus_changed": False, "interrupts": False, "reboot_required": False, "pending": []}
_RUN = {**_NOTHING, "reboot_tried": False}
_CHANGE = {**_RUN, "changed": True, "gpus_changed": True, "interrupts": True}
_PENDING = {**_RUN, "reboot_required": True, "pending": ["GPU-1"]}
_ALL = ["first", "second", "module", "last"]
# By name: prediction, result of the change, the step that fails, further variables, and the steps after the prediction.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, dict[str, Any], list[str]]] = {
    "a change": (_CHANGE, _CHANGE, "", {}, _ALL),
    "nothing to do": (_RUN, _RUN, "", {}, []),
    "only the service": ({**_RUN, "changed": True}, {**_RUN, "changed": True}, "", {}, ["module"]),
    "a change that fails": (_CHANGE, _CHANGE, "module", {}, _ALL),
    "a hook that fails": (_CHANGE, _CHANGE, "first", {}, ["first", "last"]),
    "a reboot within": (
        _CHANGE,
        {**_CHANGE, **_PENDING},
        "",
        {"gpu_state_reboot": "if_required"},
        ["first", "second", "module", "reboot", "last"],
    ),
    "a reboot that fails": (
        _CHANGE,
        {**_CHANGE, **_PENDING},
        "reboot",
        {"gpu_state_reboot": "if_required"},
        ["first", "second", "module", "reboot", "last"],
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


def _turns(directory: Path, case: str, *arguments: str, hooks: bool = True) -> tuple[list[str], int]:
    """The steps that ran after the prediction, in order, and the exit status."""
    prediction, done, broken, more, _expected = CASES[case]
    role = directory / "roles" / "gpu_state"
    for part in ("tasks", "vars", "defaults"):
        shutil.copytree(ROOT / "roles" / "gpu_state" / part, role / part)
    (role / "tasks" / "converge.yml").write_text(_STUB.format(name="module"), encoding="utf-8")
    (role / "tasks" / "reboot.yml").write_text(_STUB.format(name="reboot"), encoding="utf-8")
    for name in ("first", "second", "last"):
        (directory / f"{name}.yml").write_text(_HOOK.format(name=name), encoding="utf-8")
    variables = {"prediction": prediction, "done": done, "broken": broken, "ansible_connection": "ssh", **more}
    if hooks:
        variables["gpu_state_hooks_before"] = [str(directory / "first.yml"), str(directory / "second.yml")]
        variables["gpu_state_hooks_after"] = [str(directory / "last.yml")]
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": {"host": variables}}}), encoding="utf-8")
    (directory / "play.yml").write_text("- {hosts: all, gather_facts: false, roles: [gpu_state]}", encoding="utf-8")
    (directory / "ansible.cfg").write_text("", encoding="utf-8")
    environment = {
        **settings.environment(),
        "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_HOME": str(directory),
    }
    argv = ["ansible-playbook", "-i", str(directory / "hosts.json"), str(directory / "play.yml"), *arguments]
    run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    tasks = json.loads(run.stdout[run.stdout.index("{") :])["plays"][0]["tasks"]
    names = [task["task"]["name"].rpartition(" : ")[2] for task in tasks if not task["hosts"]["host"].get("skipped")]
    return [name for name in names if name in (*_ALL, "reboot")][1:], run.returncode


@pytest.mark.parametrize("case", CASES)
def test_hooks_run_around_a_change_and_nothing_else(tmp_path: Path, case: str) -> None:
    *_inputs, broken, _more, expected = CASES[case]
    turns, status = _turns(tmp_path, case)
    assert turns == expected
    assert (status != 0) == bool(broken), "what failed stays failed, whatever the hooks after it did"


def test_no_hook_runs_in_check_mode(tmp_path: Path) -> None:
    assert _turns(tmp_path, "a change", "--check") == ([], 0)


def test_without_hooks_nothing_is_predicted(tmp_path: Path) -> None:
    assert _turns(tmp_path, "a change", hooks=False) == ([], 0)
