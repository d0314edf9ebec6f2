# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role gathers facts if it runs alone, not if a role that has gathered them includes it; run by Ansible."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

ALONE = {"nvidia_repository_repositories": ["cuda"]}
# Not cuDNN, for which the role would read this machine's GPUs.
NESTED = {
    "cudnn_versions": [],
    "cudnn_additional_libraries": [{"library": "nccl", "version": "2.28.3", "cuda": "13.0"}],
}
# A platform that both roles support, whatever machine runs the tests.
FACTS = {"distribution": "Debian", "distribution_version": "13", "distribution_major_version": "13"} | {
    "os_family": "Debian",
    "architecture": "x86_64",
}


@pytest.mark.parametrize(("role", "variables"), [("nvidia_repository", ALONE), ("cudnn", NESTED)])
def test_facts_are_gathered_once(role: str, variables: dict[str, Any], tmp_path: Path) -> None:
    known = {
        "ansible.builtin.set_fact": {f"ansible_{name}": value for name, value in FACTS.items()} | {"cacheable": True}
    }
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        # No programs of this machine, whose package lists would be read.
        "environment": {"PATH": str(tmp_path)},
        "tasks": [known, {"ansible.builtin.include_role": {"name": f"gpu.fleet.{role}"}, "vars": variables}],
    }
    printed = run_play(tmp_path, play, "--check", "-v")
    assert printed.count("[gpu.fleet.nvidia_repository : Install or remove each repository]") == 1
    assert printed.count('"gpu_fleet_managed":') == 1
