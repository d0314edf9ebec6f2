# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a release on which Ansible cannot manage packages, every role stops with the reason before any module runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

ROLES = ("cuda", "cudnn", "docker", "nvidia_container_toolkit", "nvidia_dcgm", "nvidia_driver", "nvidia_repository")
FACTS = {
    "distribution": "Rocky",
    "distribution_version": "8.10",
    "distribution_major_version": "8",
    "os_family": "RedHat",
    "architecture": "x86_64",
}


def _attempt(role: str) -> dict[str, Any]:
    return {
        "block": [
            {
                "ansible.builtin.include_role": {"name": f"gpu.fleet.{role}"},
                "vars": {"ansible_facts": FACTS},
            }
        ],
        "rescue": [{"ansible.builtin.debug": {"msg": f"{role} failed with {{{{ ansible_failed_result.msg }}}}"}}],
    }


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of a play that includes each role on a host of EL 8, where no module can run."""
    directory = tmp_path_factory.mktemp("impossible")
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "/nonexistent"},
        "tasks": [_attempt(role) for role in ROLES],
    }
    return run_play(directory, play)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_gives_the_reason_and_runs_no_module(role: str, output: str) -> None:
    assert f"{role} failed with localhost: Rocky 8.10 is not supported: ansible-core needs Python 3.8" in output
    assert "/nonexistent" not in output
