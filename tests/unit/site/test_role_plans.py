# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract of the planners of roles: what is recorded of a request, and what role_plan hands to them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.action.role_plan import _results_of_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import reading
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import (
    RUN_ONLY,
    Ask,
    Plan,
    command,
    in_order,
    inputs_of,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS, WITH_PLAN

from tests.unit.conftest import ROOT
from tests.unit.plays import run_play


@dataclass(frozen=True)
class Entry:
    name: str
    comment: str = field(default="", metadata=RUN_ONLY)


@dataclass(frozen=True)
class Request:
    version: str
    entries: tuple[Entry, ...] = ()
    attempts: int = field(default=4, metadata=RUN_ONLY)
    given: dict[str, str] = field(default_factory=dict)


FACTS = {
    "distribution": "Debian",
    "distribution_version": "13",
    "distribution_major_version": "13",
    "distribution_release": "trixie",
    "os_family": "Debian",
    "architecture": "x86_64",
}
BEFORE = Request("13.0", (Entry("a"),))


@pytest.mark.parametrize(
    "changed",
    [
        Request("13.1", (Entry("a"),)),
        Request("13.0", (Entry("b"),)),
        Request("13.0", (Entry("a"), Entry("a"))),
        Request("13.0", (Entry("a"),), given={"a": "b"}),
    ],
)
def test_a_changed_value_has_other_inputs(changed: Request) -> None:
    assert inputs_of(changed) != inputs_of(BEFORE)


def test_what_a_run_leaves_nothing_of_has_the_same_inputs() -> None:
    assert inputs_of(Request("13.0", (Entry("a", "other"),), attempts=1)) == inputs_of(BEFORE)


def test_a_field_that_a_later_version_adds_has_the_same_inputs_at_its_default() -> None:
    later: Any = make_dataclass("Request", [("mirror", str, "")], bases=(Request,), frozen=True)
    assert inputs_of(later("13.0", (Entry("a"),))) == inputs_of(BEFORE)
    assert inputs_of(later("13.0", (Entry("a"),), mirror="https://mirror.example.com")) != inputs_of(BEFORE)


def test_a_field_without_a_default_always_counts_and_so_does_the_host() -> None:
    assert inputs_of(Request("")) != inputs_of(Request("13.0"))
    assert inputs_of(BEFORE, platform="Debian 12") != inputs_of(BEFORE, platform="Debian 13")


def test_tasks_read_lists_and_what_is_theirs_next_to_the_rest() -> None:
    plan = Plan(steps=("install",), tasks={"packages": ("a", ("b",)), "by_name": {"a": ("b",)}}).as_dict()
    assert (plan["has_work"], plan["steps"]) == (True, ["install"])
    assert (plan["packages"], plan["by_name"]) == (["a", ["b"]], {"a": ["b"]})
    assert "tasks" not in plan


def test_items_of_a_loop_have_what_comes_before_them() -> None:
    engine = {"name": "docker", "tasks": "docker"}
    assert in_order(["a", engine, "b"]) == [
        {"name": "a", "after": []},
        {**engine, "after": ["a"]},
        {"name": "b", "after": ["a", "docker"]},
    ]


@pytest.mark.plays
@pytest.mark.parametrize("control", [{}, {"extended": True}], ids=["items of a plan", "a list of a user"])
def test_ansible_includes_them_in_the_order_of_each_host(control: dict[str, Any], tmp_path: Path) -> None:
    lists = {"one": ["c"], "two": ["a", "b", "c"], "three": ["a", "c"], "four": ["a", "b", "c"]}
    hosts = {
        name: {"parts": [{"name": one} for one in items] if control else in_order(items)}
        for name, items in lists.items()
    }
    (tmp_path / "inventory.json").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    (tmp_path / "part.yml").write_text("- ansible.builtin.debug: {msg: '{{ inventory_hostname }} {{ part.name }}'}\n")
    include = {
        "ansible.builtin.include_tasks": str(tmp_path / "part.yml"),
        "loop": "{{ parts }}",
        "loop_control": {"loop_var": "part", **control},
    }
    play = {"hosts": "all", "gather_facts": False, "tasks": [include]}
    printed = run_play(tmp_path, play, inventory=tmp_path / "inventory.json")
    shown = [found.split() for found in re.findall('"msg": "(.*)"', printed)]
    assert {name: [item for host, item in shown if host == name] for name in lists} == lists
    # Hosts with the same list have it at the same time.
    assert printed.count("TASK [ansible.builtin.debug]") == (6 if control else 5)


WITHOUT_ORDER = {
    "roles/cuda/tasks/install_runfile.yml": "toolkits next to each other",
    "roles/cuda/tasks/main.yml": "one step",
    "roles/cudnn/tasks/main.yml": "one step",
    "roles/nvidia_dcgm/tasks/main.yml": "one step",
    "roles/nvidia_repository/tasks/main.yml": "repositories next to each other",
    "playbooks/accept.yml": "the rounds of the plan of all hosts",
    "playbooks/upgrade_tasks/check_node.yml": "hosts that read the state of a node",
    "playbooks/upgrade_tasks/lost.yml": "by one host for all",
}
"""Files that include tasks for what of which the order does not count, or is the same on all hosts."""


def test_each_host_keeps_the_order_of_the_tasks_that_it_includes() -> None:
    """Ansible includes an item of a loop at the place where any host has it first."""
    found = set()
    for path in (*(ROOT / "roles").rglob("tasks/**/*.yml"), *(ROOT / "playbooks").rglob("*.yml")):
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        plays = [one for one in read if isinstance(one, dict)] if isinstance(read, list) else []
        for task in _tasks([*plays, *(task for play in plays for task in play.get("tasks") or ())]):
            included = [
                value for name, value in task.items() if name.split(".")[-1] in ("include_tasks", "include_role")
            ]
            if not included or not isinstance(task.get("loop"), str):
                continue
            control = task["loop_control"]
            by_plan = [f"{control['loop_var']}.{name} }}}}" for name in ("name", "tasks")]
            in_its_place = any(one in str(included[0]) for one in by_plan)
            if not in_its_place and not control.get("extended"):
                found.add(str(path.relative_to(ROOT)))
    assert found == {*WITHOUT_ORDER}


def test_a_role_of_which_a_plan_knows_whether_it_has_work_has_a_planner() -> None:
    assert {*WITH_PLAN} <= {*PLANNERS}


@pytest.mark.parametrize("role", PLANNERS)
def test_a_planner_has_the_stages_and_tables_that_tasks_and_files_have(role: str) -> None:
    planner = PLANNERS[role]
    variables: dict[str, Any] = {}
    for path in (ROOT / "roles" / role / "vars").glob("*.yml"):
        variables |= yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    assert {name for name in planner.tables if "{{" in str(variables[name])} == set()
    assert set(planner.secret) <= set(planner.stages)
    own, of_playbooks = (ROOT / "roles" / role / "tasks").rglob("*.yml"), (ROOT / "playbooks").glob("*_tasks/**/*.yml")
    # Tasks that several roles include, such as those for evidence, are in the role common.
    shared = set((ROOT / "roles" / "common" / "tasks").rglob("*.yml"))
    used = set()
    for path in sorted((*own, *of_playbooks, *shared)):
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        # Playbooks keep files of variables next to their tasks.
        for task in _tasks(read) if isinstance(read, list) else ():
            arguments = task.get("gpu.fleet.role_plan", {"role": ""})
            assert path in shared or path.is_relative_to(ROOT / "playbooks") or arguments["role"] in ("", role)
            if arguments["role"] == role:
                used.add(arguments.get("stage", "plan"))
                assert task.get("no_log", False) is (arguments.get("stage", "plan") in planner.secret)
    assert used == set(planner.stages)


def _tasks(tasks: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Tasks with those of their blocks."""
    found = []
    for task in tasks or ():
        inner = [*task.get("block", ()), *task.get("rescue", ()), *task.get("always", ())]
        found += [task, *_tasks(inner)]
    return found


@pytest.mark.plays
def test_role_plan_evaluates_public_variables_only_and_needs_no_log_for_secrets(tmp_path: Path) -> None:
    def asks(**arguments: str) -> dict[str, Any]:
        return {
            "block": [{"gpu.fleet.role_plan": {"role": "nvidia_repository", **arguments}, "register": "planned"}],
            "rescue": [{"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}}],
        }

    defaults = yaml.safe_load((ROOT / "roles/nvidia_repository/defaults/main.yml").read_text(encoding="utf-8"))
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            **defaults,
            "ansible_facts": {**FACTS, "gpu_fleet_managed": {}},
            "nvidia_repository_of_others": "{{ undefined_anywhere }}",
            "__nvidia_repository_keys": "{{ undefined_anywhere }}",
        },
        "tasks": [
            asks(),
            {"ansible.builtin.debug": {"msg": "{{ planned.plans[0].steps }}"}},
            asks(stage="offers"),
            asks(stage="definitions"),
            {**asks(), "vars": {"nvidia_repository_local": "/a.deb"}},
        ],
    }
    printed = run_play(tmp_path, play)
    assert '"install"' in printed
    assert "the role nvidia_repository has no stage offers; use plan or definitions or packages" in printed
    assert 'localhost: nvidia_repository_local is \\"/a.deb\\"; it takes a list of dictionaries with source' in printed
    assert "the stage definitions of the role nvidia_repository may have secrets; set no_log on its task" in printed


@pytest.mark.plays
def test_role_plan_knows_check_mode_and_warns_once_by_name_of_the_host(tmp_path: Path) -> None:
    """Of a vulnerable toolkit with drift, which check mode predicts to be repaired."""
    packages = {name: [{"version": "5:27.0"}] for name in ("docker-ce", "docker-ce-cli")}
    toolkit = {"installed": True, "version": "1.17.3", "cdi_specifications": []}
    facts = {
        **FACTS,
        "gpu_fleet_managed": {"nvidia_container_toolkit": {"drift": [{"message": "a file is gone"}]}},
        "packages": packages,
        "kernel": "6.1",
        "cuda": {"container_toolkit": toolkit},
    }
    asks = {"gpu.fleet.role_plan": {"role": "nvidia_container_toolkit"}, "register": "planned"}
    shown = {
        "ansible.builtin.debug": {
            "msg": "{{ planned.is_predicted }} {{ planned.notes | length }} {{ 'warnings' in planned }}"
        }
    }
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            **yaml.safe_load((ROOT / "roles/nvidia_container_toolkit/defaults/main.yml").read_text(encoding="utf-8")),
            "ansible_facts": {**facts, "nvidia_smi": {"available": False}},
            "__common_facts_are_read": True,
        },
        "tasks": [asks, shown, {**asks, "check_mode": True}, shown],
    }
    printed = run_play(tmp_path, play)
    there, predicted = re.findall('"msg": "(.*)"', printed)
    assert (there, predicted) == ("False 1 True", "True 1 True")
    assert printed.count("localhost: container toolkit 1.17.3 has known vulnerabilities") == 1


@pytest.mark.plays
def test_a_directory_that_is_not_there_is_no_warning(tmp_path: Path) -> None:
    """Of the real `find`, which warns of each one; Docker's plan looks for a snap and for drop-ins of others."""
    role = ROOT / "roles" / "docker"
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {
            **yaml.safe_load((role / "defaults/main.yml").read_text(encoding="utf-8")),
            "ansible_facts": {**FACTS, "gpu_fleet_managed": {}, "packages": {}, "kernel": "6.1"},
            "__common_facts_are_read": True,
        },
        "tasks": [{"gpu.fleet.role_plan": {"role": "docker", "facts": {"asks": True}}}],
    }
    printed = run_play(tmp_path, play, "-vvv")
    assert "Using module file" in printed and "/find.py" in printed, printed
    assert "failed=0" in printed and "WARNING]: Skipped" not in printed, printed


@pytest.mark.plays
def test_role_plan_observes_the_host_unless_its_playbook_or_another_role_has(tmp_path: Path) -> None:
    asks: dict[str, Any] = {"gpu.fleet.role_plan": {"role": "gpu_health", "observe": ["gpus", "cuda", "managed"]}}
    shown = (
        "{{ planned.ansible_facts | default({}) | length > 6 }} {{ 'system' in ansible_facts }} {{ planned.changed }}"
    )
    known = {"__common_facts_are_read": True, "ansible_python_interpreter": "/nonexistent"}
    role = tmp_path / "roles" / "gpu.fleet.outer"
    (role / "tasks").mkdir(parents=True)
    part = [{**asks, "register": "planned", "vars": {"ansible_python_interpreter": "/nonexistent"}}]
    (role / "tasks" / "main.yml").write_text(yaml.safe_dump([{"ansible.builtin.include_role": {"name": "inner"}}]))
    (tmp_path / "roles" / "inner" / "tasks").mkdir(parents=True)
    (tmp_path / "roles" / "inner" / "tasks" / "main.yml").write_text(yaml.safe_dump(part))
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": yaml.safe_load((ROOT / "roles/gpu_health/defaults/main.yml").read_text(encoding="utf-8")),
        "tasks": [
            {**asks, "register": "planned"},
            {"ansible.builtin.debug": {"msg": f"first {shown}"}},
            {**asks, "register": "planned", "vars": known},
            {"ansible.builtin.debug": {"msg": f"second {shown}"}},
            {"ansible.builtin.include_role": {"name": "gpu.fleet.outer"}},
            {"ansible.builtin.debug": {"msg": f"third {shown}"}},
        ],
    }
    printed = run_play(tmp_path, play, env={"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")})
    assert re.findall('"msg": "(.*)"', printed) == [
        "first True True False",
        "second False True False",
        "third False True False",
    ]


@pytest.mark.parametrize("check_mode", [False, True])
def test_modules_of_the_collection_only_look_and_their_facts_and_warnings_count(check_mode: bool) -> None:
    """package_transaction would change the host otherwise; a command is skipped in check mode."""
    ran: list[tuple[str, bool]] = []

    class Action:
        _task = SimpleNamespace(check_mode=check_mode, no_log=False)

        def _execute_module(self, name: str, _arguments: object, task_vars: object) -> dict[str, Any]:
            ran.append((name, self._task.check_mode))
            return {"ansible_facts": {"imex_domain": []}, "warnings": ["a container"]}

    action = Action()
    own = reading(action, "gpu.fleet.fabric_facts", {}, {})
    reading(action, "command", {}, {})
    assert ran == [("gpu.fleet.fabric_facts", True), ("ansible.legacy.command", False)]
    assert action._task.check_mode is check_mode
    asked = Ask(
        {"own": ("gpu.fleet.fabric_facts", {}), "shown": command("dkms", "status"), "keys": [command("mokutil")]}
    )
    assert _results_of_facts(asked, {"own": own, "shown": {"rc": 0}, "keys": {"results": []}}) == [own]
