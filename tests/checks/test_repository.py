# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules for every file of the project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.tools import ROOT, project_files

HEADER = """\
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""
LARGEST = 600 * 1024
LARGEST_RECORDING = 2 * 1024 * 1024
"""A real host is recorded in one file; one document of eight GPUs has 240 KiB there."""
ROLES_AND_PLAYBOOKS = [path for path in project_files(".yml") if path.parts[0] in ("roles", "playbooks")]
# Each hides a failure or the command that is run, or runs in check mode. A justified use has its reason on the line.
HIDING = re.compile(
    r"^\s*(?:- )?(?:ignore_errors:|ignore_unreachable:|(?:failed_when|check_mode): *false\b"
    r"|(?:ansible\.builtin\.)?(?:shell|raw):)"
    r"(?!.*\s# \w)",
    re.MULTILINE,
)
# What Ansible itself sets, and variables of connections; facts are read from ansible_facts alone.
NO_FACT = re.compile(
    r"\bansible_(?!facts\b|check_mode\b|version\b|failed_(?:result|task)\b|job_id\b|play_(?:hosts|hosts_all|batch)\b|parent_role_names\b"
    r"|async_dir\b|connection\b|host\b|become\b|user\b|python_interpreter\b|psrp_protocol\b|collections\b|playbook\b)\w+"
)
# From the start of each of N blank lines `\s*` reads all that follow, so N squared; a file of a host may have millions.
BLANK_LINES = re.compile(r"\^\\s\*.*\bMULTILINE|\(\?\w*m\w*\)\^\\s\*")
# No personal home directories. root's exists on every target host, but tools installed below it do not.
HOME = re.compile(r"/(?:home|Users)/[a-z][\w.-]*/|/root/\.(?:pyenv|cache|local|ansible|venv)\b")


def _text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("path", project_files(".py"), ids=str)
def test_python_file_has_the_licence(path: Path) -> None:
    text = _text(path)
    # An empty file has nothing to license.
    assert not text or (text.partition("\n")[2] if text.startswith("#!") else text).startswith(HEADER)


@pytest.mark.parametrize("path", ROLES_AND_PLAYBOOKS, ids=str)
def test_nothing_hides_a_failure_without_a_reason(path: Path) -> None:
    assert HIDING.findall(_text(path)) == []


def test_the_search_for_hidden_failures_finds_them() -> None:
    assert HIDING.search("    ignore_errors: true\n")
    assert HIDING.search("  ansible.builtin.shell: ls | wc\n")
    assert HIDING.search("  failed_when: false\n")
    assert HIDING.search("  check_mode: false\n")
    assert not HIDING.search("  failed_when: false  # the next task reports what is wrong\n")


def _tasks(found: Any) -> Iterator[dict[str, Any]]:
    for task in found if isinstance(found, list) else ():
        if isinstance(task, dict):
            yield task
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                yield from _tasks(task.get(part))


def _unread(tasks: Any, text: str) -> list[str]:
    """Tasks that cannot fail, and whose result no other place of the role or the playbooks reads."""
    swallowed = [task for task in _tasks(tasks) if task.get("failed_when") is False]
    return [
        task["name"]
        for task in swallowed
        if "register" not in task or len(re.findall(rf"\b{task['register']}\b", text)) < 2
    ]


# By name, what shows the failure.
REPORTED_ELSEWHERE = {
    "Remove the results of the background jobs": "the next run removes it",
    "Reset the start limit": "a start that reaches the limit fails in the next task",
    "Run the check once": "the next task reads the file that it writes, and reports one that is not there",
    "Refresh the CDI specification": "the next task reads the file that it writes, and plans for one that is not there",
    "Run the health check again": "its unit is a failed one, and its verdict becomes unknown",
    "Start slurmd": "the role restarts slurmd after this, which fails where it does not run",
}


@pytest.mark.parametrize(
    "scope",
    sorted({Path(*path.parts[:2]) for path in ROLES_AND_PLAYBOOKS if path.parts[0] == "roles"} | {Path("playbooks")}),
    ids=str,
)
def test_a_failure_that_does_not_end_a_task_is_read_by_another(scope: Path) -> None:
    contents = {path: _text(path) for path in ROLES_AND_PLAYBOOKS if path.is_relative_to(scope)}
    unread = [name for text in contents.values() for name in _unread(yaml.safe_load(text), "".join(contents.values()))]
    assert sorted(set(unread) - REPORTED_ELSEWHERE.keys()) == []


def test_the_search_for_failures_that_nobody_reads_finds_them() -> None:
    lost = {"name": "Read it", "failed_when": False, "register": "__read"}
    assert _unread([{"block": [lost]}], "register: __read") == ["Read it"]
    assert _unread([lost], "register: __read\nthat: __read.rc == 0") == []
    assert _unread([{"name": "Start it", "failed_when": False}], "") == ["Start it"]


@pytest.mark.parametrize("path", ROLES_AND_PLAYBOOKS, ids=str)
def test_a_task_that_is_never_a_change_has_a_reason(path: Path) -> None:
    assert re.findall(r"^ *changed_when: false$", _text(path), re.MULTILINE) == []


def _changed_though_left_out(tasks: Any) -> list[str]:
    """Commands that `creates` or `removes` may leave out, with status 0, and that state their change by the status."""
    commands = [(task, task.get("ansible.builtin.command")) for task in _tasks(tasks)]
    return [
        task["name"]
        for task, command in commands
        if isinstance(command, dict)
        and {"creates", "removes"} & command.keys()
        and isinstance(task.get("changed_when"), str)
        and "is changed" not in task["changed_when"]
    ]


@pytest.mark.parametrize("path", ROLES_AND_PLAYBOOKS, ids=str)
def test_a_command_that_was_left_out_changes_nothing(path: Path) -> None:
    assert _changed_though_left_out(yaml.safe_load(_text(path))) == []


def test_the_search_for_changes_of_commands_that_were_left_out_finds_them() -> None:
    task = {"name": "Remove it", "ansible.builtin.command": {"argv": ["rmdir", "/a"], "removes": "/a"}}
    assert _changed_though_left_out([{**task, "changed_when": "__removed.rc == 0"}]) == ["Remove it"]
    assert _changed_though_left_out([{**task, "changed_when": "__it is changed and __it.rc == 0"}, task]) == []


def test_no_file_is_large() -> None:
    recordings = Path("tests", "unit", "recordings")
    assert [
        str(path)
        for path in project_files()
        if (ROOT / path).stat().st_size > (LARGEST_RECORDING if path.parent == recordings else LARGEST)
    ] == []


def test_no_file_names_a_home_directory() -> None:
    assert [str(path) for path in project_files() if HOME.search(_text(path))] == []


@pytest.mark.parametrize("path", ROLES_AND_PLAYBOOKS, ids=str)
def test_no_fact_is_read_as_a_variable(path: Path) -> None:
    """Every playbook refuses inject_facts_as_vars; a name that is none of Ansible's own would not be defined."""
    assert NO_FACT.findall(_text(path)) == []


@pytest.mark.parametrize("path", [path for path in project_files(".py") if path.parts[0] == "plugins"], ids=str)
def test_blank_lines_are_read_once(path: Path) -> None:
    assert [line for line in (ROOT / path).read_text().splitlines() if BLANK_LINES.search(line)] == []


def test_the_search_for_blank_lines_that_are_read_again_finds_them() -> None:
    for line in (r're.compile(r"^\s*a", re.MULTILINE)', r're.search(r"(?mi)^\s*a", text)'):
        assert BLANK_LINES.search(line)
    for line in (r're.compile(r"^[ \t]*a\s*$", re.MULTILINE)', r're.search(r"^\s*a", line)'):
        assert not BLANK_LINES.search(line)
