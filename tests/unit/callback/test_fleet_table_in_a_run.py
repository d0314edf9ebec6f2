# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callbacks inside ansible-playbook: the counts match the module runs that the host's interpreter received."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.callbacks import module_runs

pytestmark = pytest.mark.plays

ROOT = Path(__file__).resolve().parents[3]

TASKS = """
- name: Controller only
  ansible.builtin.debug:
- name: Facts as nvidia_smi_facts returns them
  ansible.builtin.set_fact:
    nvidia_smi: {available: true, gpus: [{name: NVIDIA H200}]}
- name: A command
  ansible.builtin.command: {argv: ["true"]}
- name: Skipped by its condition
  ansible.builtin.command: {argv: ["true"]}
  when: false
- name: A loop with an item skipped
  ansible.builtin.command: {argv: [echo, "{{ item }}"]}
  loop: [a, b, c]
  when: item != 'b'
- name: Two attempts
  ansible.builtin.stat: {path: "{{ path }}"}
  register: attempt
  until: attempt.attempts == 2
  retries: 3
  delay: 0
- name: A file that is new
  ansible.builtin.copy: {content: text, dest: "{{ path }}/file", mode: "0644"}
- name: The file again
  ansible.builtin.copy: {content: text, dest: "{{ path }}/file", mode: "0644"}
- name: A failure that is rescued
  block:
    - name: Fail on the host
      ansible.builtin.command: {argv: ["false"]}
  rescue:
    - name: Look
      ansible.builtin.stat: {path: "{{ path }}"}
"""
FAILURE = """
- name: Stop
  ansible.builtin.fail:
    msg: |
      node1: the
      end
"""


def _run(
    directory: Path, tasks: str, *arguments: str, env: Mapping[str, str] | None = None, separate: bool = False
) -> tuple[list[str], int]:
    """Lines of a run's output, of both streams unless `separate`, and how many modules the host's interpreter ran."""
    log = directory / "runs"
    log.write_text("")
    interpreter = directory / "python"
    interpreter.write_text(f'#!/bin/sh\necho run >> {log}\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    (directory / "ansible.cfg").touch()  # ignore this machine's own
    playbook = directory / "play.yml"
    lines = "".join(f"    {line}\n" for line in tasks.strip().splitlines())
    playbook.write_text(f"- hosts: node1\n  gather_facts: false\n  tasks:\n{lines}")
    run = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "--inventory=node1,", "--connection=local"),
            *(
                f"--extra-vars=ansible_python_interpreter={interpreter} path={directory}",
                *arguments,
                str(playbook),
            ),
        ],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table,module_runs",
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests" / "callbacks"),
            module_runs.VARIABLE: str(directory / "counts.json"),
            "ANSIBLE_PIPELINING": "true",
            **(env or {}),
        },
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if separate else subprocess.STDOUT,
        text=True,
        check=False,
    )
    return run.stdout.splitlines(), len(log.read_text().splitlines())


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_counts_what_the_host_ran(tmp_path: Path, arguments: list[str]) -> None:
    lines, runs = _run(tmp_path, TASKS, *arguments)
    assert runs > 5, lines
    header, row = lines[-2:]
    assert header.startswith("host "), lines
    assert row.split() == ["node1", "1", "x", "NVIDIA", "H200", "-", "-", "n/a", "n/a", "-", "-"]
    assert json.loads((tmp_path / "counts.json").read_text()) == {"node1": runs}


def test_reports_why_a_host_failed(tmp_path: Path) -> None:
    lines, _unused = _run(tmp_path, FAILURE)
    assert lines[-1] == "node1 failed: the end"


def test_reports_that_no_log_hides_why(tmp_path: Path) -> None:
    lines, _unused = _run(tmp_path, FAILURE, env={"ANSIBLE_NO_LOG": "true"})
    assert lines[-1] == (
        "node1 failed: no_log hides the reason; run again without ANSIBLE_NO_LOG, or no_log in ansible.cfg"
    )
    lines, _unused = _run(tmp_path, f"{FAILURE.rstrip()}\n  no_log: true\n")
    assert lines[-1] == "node1 failed: no_log of the task hides the reason, as it may have secrets"


@pytest.mark.parametrize("tasks", [TASKS, FAILURE])
@pytest.mark.parametrize("callback", ["ansible.posix.json", "minimal"])
def test_output_that_a_program_may_read_stays_as_it_is(tmp_path: Path, tasks: str, callback: str) -> None:
    lines, _unused = _run(tmp_path, tasks, env={"ANSIBLE_STDOUT_CALLBACK": callback}, separate=True)
    assert not [line for line in lines if line.startswith("host ")]
    if callback == "ansible.posix.json":
        assert "node1" in json.loads("\n".join(lines))["stats"]


def test_the_table_is_not_lost_where_a_program_reads_the_output(tmp_path: Path) -> None:
    lines, _unused = _run(tmp_path, FAILURE, env={"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"})
    assert "node1 failed: the end" in lines


def test_a_setting_turns_it_off(tmp_path: Path) -> None:
    lines, _unused = _run(tmp_path, TASKS, env={"GPU_FLEET_TABLE": "false"})
    assert not [line for line in lines if line.startswith("host ")]


def test_is_silent_about_other_playbooks(tmp_path: Path) -> None:
    lines, _unused = _run(tmp_path, "- ansible.builtin.debug:\n")
    assert not [line for line in lines if line.startswith("host ")], lines
    assert any(line.startswith("node1 ") for line in lines), lines
