# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/decommission.yml in real directories: a path of a variable may be anybody's, and what is not ours stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

TASKS = ROOT / "playbooks" / "decommission_tasks"
OURS = ("ansible", "checkout", "collections", "venv")
# What needs systemd, or has a path that no variable changes.
ELSEWHERE = (
    "Stop the timer",
    "Remove its settings and units",
    "Reload systemd without the units",
    "Reset the failed state of the last run",
)


def plays(tmp_path: Path, directory: Path, systemctl: str = "echo inactive", **variables: Any) -> str:
    """Run the tasks for the directory of gpu.fleet.pull, on the machine of the tests; returns what was printed."""
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\n{systemctl}\n")
    (tmp_path / "systemctl").chmod(0o755)
    tasks = yaml.safe_load((TASKS / "pull.yml").read_text())
    tasks[0]["loop"] = [str(directory)]
    block = tasks[1]["block"]
    tasks[1]["block"] = [task for task in block if not task["name"].startswith(ELSEWHERE)]
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {"__decommission_pull_directory": str(directory), **variables},
        "tasks": [{"block": tasks, "rescue": [{"debug": {"msg": "{{ ansible_failed_result.msg }}"}}]}],
    }
    return run_play(tmp_path, play, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})


def installed(directory: Path, *recorded: str) -> Path:
    for name in OURS:
        (directory / name).mkdir(parents=True)
        (directory / name / "file").touch()
    for name in ("requirements.yml", "result.json", "gpu_fleet_pull.py"):
        (directory / name).touch()
    if recorded:
        (directory / ".gpu-fleet-pull").write_text("".join(f"{name}\n" for name in recorded))
    return directory


def test_what_was_recorded_goes_and_what_was_not_stays(tmp_path: Path) -> None:
    directory = installed(tmp_path / "pull", *OURS)
    plays(tmp_path, directory)
    assert not directory.exists()

    # An operator's own directory, and a file, from before; a record that was edited.
    directory = installed(tmp_path / "srv", "ansible", "collections", "venv", "../precious", "precious", "/precious")
    (tmp_path / "precious").mkdir()
    (directory / "precious").mkdir()
    printed = plays(tmp_path, directory)
    assert sorted(path.name for path in directory.iterdir()) == ["checkout", "precious"]
    assert (tmp_path / "precious").exists()
    assert f"{directory}/checkout, {directory}/precious stays: nothing records that gpu.fleet.pull" in printed


def test_a_host_without_a_record_keeps_the_directory(tmp_path: Path) -> None:
    directory = installed(tmp_path / "pull")
    printed = plays(tmp_path, directory)
    assert len(list(directory.iterdir())) == len(OURS) + 3 and (directory / "venv" / "file").exists()
    assert f"{directory}/venv stays" in printed
    # Of a link to a directory not even the link is known to be ours.
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "other").mkdir()
    plays(tmp_path, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "other").is_dir()


def test_why_a_run_does_not_end(tmp_path: Path) -> None:
    directory = installed(tmp_path / "pull", *OURS)
    printed = plays(tmp_path, directory, "echo 'Failed to connect to bus: \033[31mNo medium' >&2; exit 1")
    assert "systemctl cannot read it: Failed to connect to bus:  [31mNo medium, and its timer is stopped" in printed
    assert "30 minutes" not in printed
    assert (directory / "venv").exists(), "nothing was removed"


@pytest.mark.parametrize(
    ("made", "goes"), [("metrics", True), ("other", False), ("directory", False), ("link", False), ("nothing", False)]
)
def test_metrics_are_removed_and_nothing_else(tmp_path: Path, made: str, goes: bool) -> None:
    path = tmp_path / "textfile"
    if made == "directory":
        path.mkdir()
        (path / "other.prom").write_text("# HELP gpu_fleet_x\n")
    elif made == "link":
        (tmp_path / "target").write_text("# HELP gpu_fleet_health_time_seconds Time.\n")
        path.symlink_to(tmp_path / "target")
    elif made != "nothing":
        path.write_text("# HELP gpu_fleet_health_time_seconds Time.\n" if made == "metrics" else "root:x:0:0\n")
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "vars": {"__common_metrics_file": str(path)},
        "tasks": yaml.safe_load((ROOT / "roles" / "common" / "tasks" / "remove_metrics.yml").read_text()),
    }
    printed = run_play(tmp_path, play)
    if made != "nothing":
        assert (path.exists() or path.is_symlink()) is not goes
        assert ("stays: it is no file with metrics of gpu.fleet" in printed) is not goes
    if made == "directory":
        assert len(list(path.iterdir())) == 1
