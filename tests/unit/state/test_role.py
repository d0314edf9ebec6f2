# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the role gpu_state reboots, and its message if it does not: its own variables, evaluated by Ansible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from tests.conftest import ROOT
from tests.unit.plays import ansible_playbook

pytestmark = pytest.mark.plays

_PENDING = {"reboot_required": True, "reboot_tried": False, "pending": ["GPU-1"]}
# By name: connection, gpu_state_reboot, the module's result, whether to reboot, and a part of the explanation.
CASES: dict[str, tuple[str, str, dict[str, Any], bool, str]] = {
    "needed and allowed": ("ssh", "if_required", _PENDING, True, ""),
    "not needed": ("ssh", "if_required", {**_PENDING, "reboot_required": False}, False, ""),
    "not allowed": ("ssh", "never", _PENDING, False, "gpu_state_reboot is never"),
    "local": ("local", "if_required", _PENDING, False, "never rebooted over a local connection"),
    "local by full name": ("ansible.builtin.local", "if_required", _PENDING, False, "over a local connection"),
    "tried": ("ssh", "if_required", {**_PENDING, "reboot_tried": True}, False, "a reboot for it did not help"),
}
_PLAY = """
- hosts: all
  gather_facts: false
  vars_files: [{variables}]
  tasks:
    - ansible.builtin.debug:
        msg: {{reboots: "{{{{ __gpu_state_must_reboot }}}}", why: "{{{{ __gpu_state_pending_reason }}}}"}}
"""


def _decisions(directory: Path, *arguments: str) -> dict[str, Any]:
    """The role's decision for each host; debug runs on the controller, so that no host is needed."""
    hosts = {
        name.replace(" ", "-"): {"ansible_connection": connection, "gpu_state_reboot": reboot, "__gpu_state_run": run}
        for name, (connection, reboot, run, _reboots, _why) in CASES.items()
    }
    inventory, play = directory / "hosts.json", directory / "play.yml"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
    play.write_text(_PLAY.format(variables=ROOT / "roles" / "gpu_state" / "vars" / "main.yml"), encoding="utf-8")
    (directory / "ansible.cfg").write_text("", encoding="utf-8")
    environment = {
        **settings.environment(),
        "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_HOME": str(directory),
    }
    printed = ansible_playbook("-i", inventory, play, *arguments, env=environment).stdout
    found: dict[str, Any] = json.loads(printed)["plays"][0]["tasks"][0]["hosts"]
    return {name: found[name.replace(" ", "-")]["msg"] for name in CASES}


def test_a_host_is_rebooted_only_when_that_is_needed_allowed_and_of_use(tmp_path: Path) -> None:
    decisions = _decisions(tmp_path)
    assert {name: str(decision["reboots"]) == "True" for name, decision in decisions.items()} == {
        name: reboots for name, (_connection, _reboot, _run, reboots, _why) in CASES.items()
    }
    assert [name for name, case in CASES.items() if case[4] not in decisions[name]["why"]] == []


def test_check_mode_never_reboots(tmp_path: Path) -> None:
    assert {str(decision["reboots"]) for decision in _decisions(tmp_path, "--check").values()} == {"False"}


def test_the_role_leaves_the_reboot_to_the_next_run_when_the_driver_has_had_one(tmp_path: Path) -> None:
    rebooted = _decisions(tmp_path, "-e", json.dumps({"__common_rebooted": True}))
    assert {name: decision["reboots"] for name, decision in rebooted.items()} == dict.fromkeys(CASES, False)
    waiting = [name for name, (_c, _r, _run, reboots, _why) in CASES.items() if reboots]
    assert waiting
    for name in waiting:
        assert "run it again" in rebooted[name]["why"]
