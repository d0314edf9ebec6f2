# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real agent of Backend.AI with etcd, Redis and Docker of Debian: installed with hashes, started, removed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

HOST = "full-deb13"
VERSION = "26.9.6"
# A network may have an authority of its own, which pip does not find on the hosts: they trust what this machine does.
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
CERTIFICATES = "/etc/ssl/gpu-fleet-testbed.pem"
FILES = ("/opt/backend.ai", "/etc/backend.ai", "/var/lib/backend.ai", "/etc/systemd/system/backend-ai-agent.service")


def _apt(*names: str) -> dict[str, Any]:
    packages = {"name": list(names), "install_recommends": False, "update_cache": True}
    return {"ansible.builtin.apt": packages, "check_mode": False}


# What docs/backend-ai.md requires of a host, and no more.
BARE: list[dict[str, Any]] = [
    _apt("python3-venv"),
    {
        "ansible.builtin.copy": {"src": AUTHORITIES, "dest": CERTIFICATES, "mode": "0644"},
        "check_mode": False,
    },
]
SERVICES: list[dict[str, Any]] = [
    _apt("docker.io", "docker-cli", "etcd-server", "etcd-client", "redis-server"),
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
    "backend_ai_agent_version": VERSION,
    "backend_ai_agent_pip_arguments": f"--cert {CERTIFICATES}",
    "backend_ai_agent_etcd_addresses": ["127.0.0.1:2379"],
    "backend_ai_agent_address": "127.0.0.1",
    "backend_ai_agent_settings": {"agent": {"skip-manager-detection": True}},
}
WITHOUT_CUDA = {"backend_ai_agent_slots": {"cuda.device": 0}}
# pip resolves what the agent needs, and reports each file with its hash.
REPORT = "/root/report.json"
RESOLVE = (
    f"/root/resolver/bin/pip install --cert {CERTIFICATES} --dry-run --ignore-installed --quiet --report {REPORT} "
    f"backend.ai-agent=={VERSION} backend.ai-accelerator-cuda-open=={VERSION}"
)


def _run(directory: Path, tasks: list[dict[str, Any]], variables: dict[str, Any], *arguments: str) -> Result:
    path = directory / "agent.json"
    path.write_text(json.dumps([{"hosts": HOST, "gather_facts": False, "tasks": tasks, "vars": variables}]))
    return run(["ansible-playbook", "-i", INVENTORY, str(path), *arguments])


def _play(directory: Path, tasks: list[dict[str, Any]], *arguments: str, **given: Any) -> Result:
    role = {"ansible.builtin.include_role": {"name": "gpu.fleet.backend_ai_agent"}}
    return _run(directory, [*tasks, role], {**VARIABLES, **given}, *arguments)


def _on_host(command: str) -> str:
    result = run(["ansible", HOST, "-i", INVENTORY, "-m", "ansible.builtin.shell", "-a", command])
    assert result.status == 0, result.output
    return result.output.partition("\n")[2]


@pytest.fixture(scope="module", name="requirements")
def _requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every package that the agent needs, with its hash, as pip on the host resolves them."""
    directory = tmp_path_factory.mktemp("requirements")
    report = directory / "report.json"
    tasks = [
        *BARE,
        {"ansible.builtin.command": "python3.13 -m venv /root/resolver"},
        {"ansible.builtin.command": RESOLVE},
        {"ansible.builtin.fetch": {"src": REPORT, "dest": str(report), "flat": True}},
    ]
    resolved = _run(directory, tasks, {})
    assert resolved.status == 0, resolved.output[-6000:]
    lines = [
        f"{one['metadata']['name']}=={one['metadata']['version']} "
        f"--hash=sha256:{one['download_info']['archive_info']['hashes']['sha256']}\n"
        for one in json.loads(report.read_text(encoding="utf-8"))["install"]
    ]
    path = directory / "requirements.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_check_mode_on_a_bare_host_predicts_and_changes_nothing(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"backend.ai-agent=={VERSION} --hash=sha256:{0:064x}\n", encoding="utf-8")
    for given in ({}, {"backend_ai_agent_requirements": str(requirements)}):
        # Docker and its runtime may be still to be installed.
        predicted = _play(tmp_path, BARE, "--check", "--diff", **given)
        assert predicted.status == 0, predicted.output[-6000:]
        expected = f"backend.ai-agent=={VERSION}, backend.ai-accelerator-cuda-open=={VERSION}"
        assert expected in predicted.output, predicted.output[-6000:]
        assert predicted.changed[HOST] > 5
    assert _on_host(f"ls -d {' '.join(FILES)} 2>/dev/null; id backend-ai 2>/dev/null; true").strip() == ""
    refused = _play(tmp_path, [])
    assert refused.status != 0
    assert "Docker does not respond on this host; run the role gpu.fleet.docker first" in refused.output


def test_a_package_with_another_hash_is_not_installed(tmp_path: Path, requirements: Path) -> None:
    wrong = tmp_path / "requirements.txt"
    right = requirements.read_text(encoding="utf-8")
    wrong.write_text(
        re.sub(r"(?m)^(backend.ai-cli==.*sha256:)[0-9a-f]+$", rf"\g<1>{0:064x}", right, flags=re.IGNORECASE),
        encoding="utf-8",
    )
    assert wrong.read_text(encoding="utf-8") != right
    refused = _play(tmp_path, SERVICES, backend_ai_agent_requirements=str(wrong))
    assert refused.status != 0
    assert (
        f"backend.ai-cli=={VERSION} has another hash than the one in backend_ai_agent_requirements" in refused.output
    ), refused.output[-6000:]
    assert _on_host("/opt/backend.ai/bin/pip freeze").strip() == ""


def test_the_agent_runs_and_is_refused_where_it_has_no_gpus(tmp_path: Path, requirements: Path) -> None:
    # Simulated GPUs have no CUDA runtime: the real plugin disables itself, and the agent goes on.
    hashed = {"backend_ai_agent_requirements": str(requirements)}
    refused = _play(tmp_path, [], **hashed)
    assert refused.status != 0
    assert "the agent reports 0 cuda.device instead of" in refused.output, refused.output[-6000:]
    assert "could not load the CUDA runtime library" in refused.output
    for given in (hashed, {}):
        for arguments in ((), ("--check",)):
            without = _play(tmp_path, [], *arguments, **WITHOUT_CUDA, **given)
            assert without.status == 0, without.output[-6000:]
            assert without.changed[HOST] == 0
    other = {"agent": {"skip-manager-detection": True, "region": "seoul"}}
    changed = _play(tmp_path, [], **WITHOUT_CUDA, backend_ai_agent_settings=other)
    assert changed.status == 0, changed.output[-6000:]
    assert changed.changed[HOST] == 2, "agent.toml, and the restart"


def test_check_mode_shows_another_version(tmp_path: Path) -> None:
    predicted = _play(tmp_path, [], "--check", **WITHOUT_CUDA, backend_ai_agent_version="26.9.5")
    assert predicted.status == 0, predicted.output[-6000:]
    assert "backend.ai-agent==26.9.5, backend.ai-accelerator-cuda-open==26.9.5" in predicted.output
    assert predicted.changed[HOST] > 0


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
