# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real agent of Backend.AI with etcd, Redis and Docker of Debian: installed, started without CUDA, removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

HOST = "full-deb13"
PACKAGES = [
    "python3-venv",
    "python3-packaging",
    "python3-requests",
    "docker.io",
    "docker-cli",
    "etcd-server",
    "redis-server",
]
SERVICES: list[dict[str, Any]] = [
    {"ansible.builtin.apt": {"name": [*PACKAGES, "etcd-client"], "install_recommends": False, "update_cache": True}},
    # What the role nvidia_container_toolkit would add.
    {
        "ansible.builtin.copy": {
            "content": '{"runtimes": {"nvidia": {"path": "runc"}}}',
            "dest": "/etc/docker/daemon.json",
            "mode": "0644",
        },
        "register": "daemon",
    },
    {"ansible.builtin.systemd_service": {"name": "docker", "state": "restarted"}, "when": "daemon is changed"},
    # What a manager would write.
    {
        "ansible.builtin.command": "etcdctl put /sorna/local/config/redis/addr 127.0.0.1:6379",
        "changed_when": False,
    },
    {"ansible.builtin.include_role": {"name": "gpu.fleet.gpu_simulator"}},
]
VARIABLES = {
    "backend_ai_agent_version": "26.9.6",
    "backend_ai_agent_etcd_addresses": ["127.0.0.1:2379"],
    "backend_ai_agent_address": "127.0.0.1",
    "backend_ai_agent_settings": {"agent": {"skip-manager-detection": True}},
}
WITHOUT_CUDA = {"backend_ai_agent_slots": {"cuda.device": 0}}


def _play(directory: Path, tasks: list[dict[str, Any]], **given: Any) -> Result:
    path = directory / "agent.json"
    role = {"ansible.builtin.include_role": {"name": "gpu.fleet.backend_ai_agent"}}
    path.write_text(
        json.dumps([{"hosts": HOST, "gather_facts": False, "tasks": [*tasks, role], "vars": {**VARIABLES, **given}}])
    )
    return run(["ansible-playbook", "-i", INVENTORY, str(path)])


def test_the_agent_runs_and_is_refused_where_it_has_no_gpus(tmp_path: Path) -> None:
    # Simulated GPUs have no CUDA runtime: the real plugin disables itself, and the agent goes on.
    refused = _play(tmp_path, SERVICES)
    assert refused.status != 0
    assert "the agent reports 0 cuda.device instead of" in refused.output, refused.output[-6000:]
    assert "could not load the CUDA runtime library" in refused.output
    without = _play(tmp_path, [], **WITHOUT_CUDA)
    assert without.status == 0, without.output[-6000:]
    assert without.changed[HOST] == 0
    other = {"agent": {"skip-manager-detection": True, "region": "seoul"}}
    changed = _play(tmp_path, [], **WITHOUT_CUDA, backend_ai_agent_settings=other)
    assert changed.status == 0, changed.output[-6000:]
    assert changed.changed[HOST] == 2, "agent.toml, and the restart"


def test_what_the_checker_cannot_use_leaves_the_running_agent_alone(tmp_path: Path) -> None:
    refused = _play(tmp_path, [], **WITHOUT_CUDA, backend_ai_agent_etcd_addresses=["127.0.0.1:2999"])
    assert refused.status != 0
    assert "redis-config (temp): GRPCStatusError" in refused.output, refused.output[-6000:]
    assert refused.changed[HOST] == 0


def test_the_agent_is_removed(tmp_path: Path) -> None:
    for is_changed in (True, False):
        removed = _play(tmp_path, [], backend_ai_agent_state="absent")
        assert removed.status == 0, removed.output[-6000:]
        assert (removed.changed[HOST] > 0) is is_changed
