# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a play of a test with ansible-playbook, whatever Ansible is configured to do on this machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE

from tests.conftest import ROOT

LOAD_FILTERS = {"gpu.fleet.managed_facts": {}, "when": False, "run_once": True}
"""Skipped, it still loads the filters in Ansible's main process, see plugins/action/managed_facts.py.

Otherwise each task of each host imports them for itself, which is most of the time of a play of parts of roles.
"""


def run_play(
    directory: Path,
    play: Mapping[str, Any],
    *arguments: str | Path,
    inventory: str | Path = "localhost,",
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a play that is to succeed, with `directory` for its files; returns what ansible-playbook printed."""
    (directory / "play.json").write_text(json.dumps([{"pre_tasks": [LOAD_FILTERS], **play}]))
    (directory / "ansible.cfg").touch()
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", *arguments, "-i", inventory, directory / "play.json"],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_PIPELINING": "true",
            # What Ansible would discover may be a shim of a Python that the machine has not chosen (pyenv).
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            **(env or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-3000:]
    return done.stdout


def unreachable(directory: Path, message: str) -> dict[str, Any]:
    """The variables of a host that ssh cannot reach, with this message; the machine of the tests may have no ssh."""
    program = directory / "ssh"
    program.write_text(f"#!/bin/sh\necho {shlex.quote(message)} >&2\nexit 255\n")
    program.chmod(0o755)
    # Without pipelining: nothing is sent to the program, which may have ended before Ansible sends it.
    return {"ansible_connection": "ssh", "ansible_ssh_executable": str(program), "ansible_pipelining": False}


def without_verdict() -> dict[str, Any]:
    """Variables by which the verdict of the role gpu_health accepts everything on the machine of the tests."""
    accepted = [{"id": row.id, "verdict": "ok", "remedy": "none"} for row in TABLE]
    return {"gpu_health_policy": accepted, "gpu_health_kernel_log": "none", "gpu_health_history": ""}
