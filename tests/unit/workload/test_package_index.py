# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A package index that is not there: the role reports why, without the password in its address. By the real pip."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

TASKS = ROOT / "roles" / "gpu_workload" / "tasks" / "requirements.yml"


def test_the_password_of_a_package_index_is_not_printed(tmp_path: Path) -> None:
    test = {
        "name": "pytorch",
        "requirements": ["torch==2.11.0"],
        "virtualenv": str(tmp_path / "virtualenv"),
        "python": sys.executable,
        "pip_arguments": "--retries 0 --index-url https://ops:correct-horse@127.0.0.1:9/simple",
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"__gpu_workload_plan": {"tests": [test]}},
        "tasks": [
            {
                "block": yaml.safe_load(TASKS.read_text(encoding="utf-8")),
                "rescue": [{"ansible.builtin.debug": {"msg": "rescued"}}],
            }
        ],
    }
    printed = run_play(tmp_path, play, "-vvv")
    reason = "pip cannot install the requirements of pytorch: No matching distribution found for torch==2.11.0"
    assert f"localhost: {reason}" in printed and "rescued" in printed
    assert "correct-horse" not in printed
