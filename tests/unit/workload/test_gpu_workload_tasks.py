# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of the role gpu_workload: packages by real pip, the prediction on a bare host, an image that is not pulled."""

from __future__ import annotations

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_workload import Host, Request, plan, runs

from tests.conftest import ROOT
from tests.unit.mock_modules import mock_modules
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

TASKS = ROOT / "roles" / "gpu_workload" / "tasks" / "requirements.yml"
PASSWORD = "correct-horse"


class _Index(BaseHTTPRequestHandler):
    """Looks at the arguments of all processes while pip waits for the response."""

    asked: ClassVar[list[str]] = []
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Authorization", ""))
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if PASSWORD in arguments:
                self.seen.append(arguments)
        self.send_error(404)

    def log_message(self, *_arguments: object) -> None:
        """Nothing."""


def _variables(test: dict[str, Any]) -> dict[str, Any]:
    return {
        "gpu_workload_state": "present",
        "gpu_workload_tests": [test],
        "gpu_workload_container_mode": "auto",
        "gpu_workload_timeout": 300,
    }


FACTS = {
    "gpu_fleet_managed": {},
    "os_family": "Debian",
    "distribution": "Debian",
    "distribution_version": "13",
    "distribution_major_version": "13",
}


def test_the_password_of_a_package_index_is_neither_printed_nor_an_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = HTTPServer(("127.0.0.1", 0), _Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    test = {
        "framework": "pytorch",
        "requirements": ["no-such==2.11.0"],
        "virtualenv": str(tmp_path / "virtualenv"),
        "python": sys.executable,
        "index_url": f"http://ops:{PASSWORD}@127.0.0.1:{server.server_port}/simple",
    }
    variables = _variables(test)
    planned = plan(Request.read(variables), Host({"manager": "apt"})).as_dict()
    # The file is root's in the role; who runs the test need not be root.
    tasks = yaml.safe_load(TASKS.read_text(encoding="utf-8").replace("owner: root", f"owner: {os.getuid()}"))
    for task in tasks:
        task.get("ansible.builtin.copy", {}).pop("group", None)
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {**variables, "__gpu_workload_plan": planned, "ansible_facts": FACTS},
        "tasks": [{"block": tasks, "rescue": [{"ansible.builtin.debug": {"msg": "rescued"}}]}],
    }
    printed = run_play(tmp_path, play, "-vvv")
    server.shutdown()
    name = f"PyTorch of {test['virtualenv']}"
    reason = f"pip cannot install the requirements of {name}: No matching distribution found for no-such==2.11.0"
    assert f"localhost: {reason}" in printed and "rescued" in printed, printed
    assert PASSWORD not in printed
    assert any(_Index.asked), "pip gave the index the password"
    assert _Index.seen == []
    assert (tmp_path / "virtualenv" / "pip.conf").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("packages", "would"),
    [
        ({}, "would install python3-packaging, python3-venv and make /opt/torch"),
        ({"python3-venv": [], "python3-packaging": []}, "would make /opt/torch"),
    ],
)
def test_a_bare_host_is_predicted_without_modules_that_need_its_packages(
    tmp_path: Path, packages: dict[str, Any], would: str
) -> None:
    test = {"framework": "pytorch", "virtualenv": "/opt/torch", "requirements": ["torch"]}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {
            **_variables(test),
            "__common_facts_are_read": True,
            "ansible_facts": {**FACTS, "packages": packages},
        },
        "tasks": [{"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_workload"}}],
    }
    printed = run_play(tmp_path, play, "--check")
    assert f"localhost: {would}" in printed and "changed=1 " in printed and "failed=0 " in printed, printed
    assert "Refresh the package index" not in printed


def test_an_image_that_cannot_be_pulled_is_a_reason_with_what_helps(tmp_path: Path) -> None:
    failed = {"failed": True, "msg": "Error pulling torch - 400 Client Error (incorrect repository format)"}
    test = {"framework": "pytorch", "image": "torch"}
    known = {**_variables(test), "ansible_facts": FACTS}
    tests = {"archives": [], "on_host": [], "in_containers": runs(Request.read(known), Host({"manager": "apt"}))}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {**known, "__gpu_workload_plan": {"program": "/x", **tests}},
        "tasks": [
            {
                "block": [{"ansible.builtin.include_tasks": str(TASKS.with_name("test.yml"))}],
                "rescue": [{"ansible.builtin.debug": {"var": "gpu_workload_result[0].reasons"}}],
            },
        ],
    }
    bodies = {"docker_container": f"result.update({failed!r})", "docker_image_load": ""}
    env = mock_modules(tmp_path, {f"community.docker.{name}": body for name, body in bodies.items()})
    printed = run_play(tmp_path, play, env=env)
    assert "the test printed no result: Error pulling torch - 400" in printed, printed
    assert "containerd-snapshotter: false" in printed
