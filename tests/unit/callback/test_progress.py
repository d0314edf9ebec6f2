# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines about tasks that take long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.callback.progress import Running, Tasks, elapsed, line

from tests.unit.plays import run_play

pytestmark = pytest.mark.plays


def test_a_task_is_reported_after_the_interval_and_again() -> None:
    tasks = Tasks(60)
    tasks.start("node1", Running("t", "Install the driver", 100.0))
    tasks.start("node2", Running("t", "Install the driver", 110.0))
    reported = {now: tasks.due(float(now)) for now in range(100, 281)}
    assert {now: lines for now, lines in reported.items() if lines} == {
        160: ["still running after 1 min: Install the driver (node1, node2)"],
        220: ["still running after 2 min: Install the driver (node1, node2)"],
        280: ["still running after 3 min: Install the driver (node1, node2)"],
    }


def test_what_is_over_is_not_reported() -> None:
    tasks = Tasks(60)
    for host in ("node1", "node2", "node3"):
        tasks.start(host, Running("t", "Install", 0.0))
    tasks.end(["node1", "unknown"])
    # The next task of the host ends one of which no end was reported, as an include.
    tasks.start("node2", Running("u", "Reboot", 90.0))
    assert tasks.due(100.0) == ["still running after 1 min: Install (node3)"]
    assert tasks.due(150.0) == ["still running after 1 min: Reboot (node2)"]
    tasks.clear()
    assert tasks.due(1000.0) == []


def test_many_hosts_take_one_line() -> None:
    assert line("Reboot", [f"node{number}" for number in range(200)], 3720.0) == (
        "still running after 1 h 2 min: Reboot (node0, node1, node2 and 197 more)"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.9, "1 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7260, "2 h 1 min")]
)
def test_elapsed(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


def test_in_a_run(tmp_path: Path) -> None:
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"name": "Take long", "ansible.builtin.command": {"argv": ["sleep", "2.2"]}}],
    }
    env = {"ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.progress", "GPU_FLEET_PROGRESS_INTERVAL": "1"}
    printed = run_play(tmp_path, play, env=env)
    assert "s: Take long (localhost)\n" in printed.partition("TASK [Take long]")[2].partition("PLAY RECAP")[0]
