# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a play of a test with ansible-playbook, whatever Ansible is configured to do on this machine."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import REQUIRES_NATIVE

from testbed import ansible_caches
from tests.conftest import ROOT

LOAD_FILTERS = {"gpu.fleet.managed_facts": {}, "when": False, "run_once": True}
"""Skipped, it still loads the filters in Ansible's main process, see plugins/action/managed_facts.py.

Otherwise each task of each host imports them for itself, which is most of the time of a play of parts of roles.
"""


NATIVE = {"ANSIBLE_JINJA2_NATIVE": "true"} if REQUIRES_NATIVE else {}
"""What ansible-core before 2.19 has to be set to."""

_OF_THE_RUN = ("ANSIBLE_HOME", "ANSIBLE_CONFIG")
"""Settings that each run has for itself and that do not change what it does: the configuration is an empty file."""


class _Server:
    """A process that forks for each run of ansible-playbook with these settings of Ansible; see play_server.py."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="plays-")
        (Path(self._home.name) / "ansible.cfg").touch()
        own = {"ANSIBLE_HOME": self._home.name, "ANSIBLE_CONFIG": f"{self._home.name}/ansible.cfg"}
        kept = {ansible_caches.DIRECTORY: str(ROOT / ".cache" / "ansible-caches")}
        self._process = subprocess.Popen(
            # Without the directory of the program in the path of modules, where Ansible looks for collections as well.
            [sys.executable, "-P", Path(__file__).with_name("play_server.py")],
            env={**_without_settings(os.environ), **settings, **own, **kept},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, argv: list[str], env: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run ansible-playbook with these arguments."""
        assert self._process.stdin
        assert self._process.stdout
        with tempfile.TemporaryDirectory(dir=self._home.name) as scratch:
            files = {name: Path(scratch) / name for name in ("stdout", "stderr")}
            for path in files.values():
                path.touch()
            request = {"argv": argv, "env": dict(env), "cwd": str(cwd), **{name: str(files[name]) for name in files}}
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            return subprocess.CompletedProcess(argv, status, *(path.read_text() for path in files.values()))

    def close(self) -> None:
        """End the process, which then has run all that it was asked for."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()
        self._home.cleanup()


@cache
def _server(settings: tuple[tuple[str, str], ...]) -> _Server:
    server = _Server(dict(settings))
    atexit.register(server.close)
    return server


def _without_settings(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith("ANSIBLE_")}


def ansible_playbook(
    *arguments: str | Path, env: Mapping[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook, from a server where other runs have the same settings."""
    argv = [str(Path(sys.executable).parent / "ansible-playbook"), *map(str, arguments)]
    settings = {name: env[name] for name in sorted(env) if name.startswith("ANSIBLE_") and name not in _OF_THE_RUN}
    configuration = Path(env.get("ANSIBLE_CONFIG", "/etc/ansible/ansible.cfg"))
    own = configuration.exists() and configuration.stat().st_size > 0
    if own or any(str(ROOT) not in value and "/" in value.replace(sys.executable, "") for value in settings.values()):
        return subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    return _server(tuple(settings.items())).run(argv, env, cwd or Path.cwd())


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
    done = ansible_playbook(
        *(*arguments, "-i", inventory, directory / "play.json"),
        env={
            **_without_settings(os.environ),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            **NATIVE,
            "ANSIBLE_PIPELINING": "true",
            # What Ansible would discover may be a shim of a Python that the machine has not chosen (pyenv).
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            **(env or {}),
        },
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


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
