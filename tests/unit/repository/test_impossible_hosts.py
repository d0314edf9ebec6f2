# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On a release on which Ansible cannot manage packages, every role stops with the reason before any module runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import ROOT

ROLES = ("cuda", "cudnn", "docker", "nvidia_container_toolkit", "nvidia_driver", "nvidia_repository")
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
                "vars": {"ansible_facts": FACTS, "__common_facts": ["packages", "managed"]},
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
    (directory / "play.json").write_text(json.dumps([play]))
    (directory / "ansible.cfg").touch()  # ignore this machine's own
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "localhost,", directory / "play.json"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("role", ROLES)
def test_a_role_gives_the_reason_and_runs_no_module(role: str, output: str) -> None:
    assert f"{role} failed with localhost: Rocky 8.10 is not supported: ansible-core needs Python 3.8" in output
    assert "/nonexistent" not in output
