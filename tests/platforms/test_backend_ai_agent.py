# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""agent.toml of the role backend_ai_agent, held to the real package: its model, its checker with etcd and Redis.

The package needs Python 3.13 and 600 MB; what this machine lacks is skipped. tests/full runs the role itself.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.backend_ai_agent import (
    Request,
    failed_checks,
    secrets,
)

from tests.checks.controllers import pythons
from tests.checks.tools import CACHE, ROOT, make_venv

VERSION = "26.9.6"
DEFAULTS = yaml.safe_load((ROOT / "roles/backend_ai_agent/defaults/main.yml").read_text())
KEYS = {"manager_public_key": "public", "keypair": "pair"}
SERVICES = ("etcd", "etcdctl", "redis-server")
# Reads contents of agent.toml; prints the keys of the tables that the role writes, as the package has them.
MODEL = """
import json, sys, tomllib
from ai.backend.agent.config.unified import AgentConfigValidationContext, AgentUnifiedConfig
from ai.backend.logging import LogLevel
context = AgentConfigValidationContext(debug=False, log_level=LogLevel.INFO, is_invoked_subcommand=True)
for text in json.load(sys.stdin):
    AgentUnifiedConfig.model_validate(tomllib.loads(text), context=context)
schema = AgentUnifiedConfig.model_json_schema(by_alias=True)
tables = ("etcd", "agent", "container", "resource", "logging")
models = {name: schema["properties"][name]["$ref"].split("/")[-1] for name in tables}
print(json.dumps({name: sorted(schema["$defs"][model]["properties"]) for name, model in models.items()}))
"""


@pytest.fixture(scope="session")
def agent() -> Path:
    """The directory of the package's programs, kept for the next run."""
    python = pythons().get((3, 13))
    if not python:
        pytest.skip("the agent of Backend.AI needs Python 3.13")
    packages = [f"backend.ai-{name}=={VERSION}" for name in ("agent", "accelerator-cuda-open")]
    return make_venv(CACHE / "venv-backend-ai", python, packages) / "bin"


def written(directory: Path, **given: Any) -> str:
    """agent.toml with all directories and files below `directory`: the package's model creates or looks for them."""
    needed = {"version": VERSION, "etcd_addresses": ["127.0.0.1:2379"], "address": "127.0.0.1", **given}
    named = {f"backend_ai_agent_{name}": value for name, value in needed.items()}
    request = Request.read({**DEFAULTS, **named})
    assert request.refusals == ()
    text = str(secrets(request, None, check_mode=False)["configuration"])
    for path in ("/etc/backend.ai", "/run/backend.ai", "/var/lib/backend.ai"):
        (directory / path[1:]).mkdir(parents=True, exist_ok=True)
        text = text.replace(f'"{path}', f'"{directory}{path}')
    for name in ("manager.key", "agent.key_secret"):
        (directory / "etc/backend.ai" / name).touch()
    return text


def test_the_package_accepts_what_is_written(agent: Path, tmp_path: Path) -> None:
    contents = [
        written(tmp_path),
        written(
            tmp_path, **KEYS, id="i-gpu1", scratch_type="memory", plugins=[], etcd_addresses=["a:2379", "[::1]:2379"]
        ),
        written(tmp_path, etcd_user="agent", etcd_password='p"a\\ss\x7f', settings={"agent": {"region": "seoul"}}),
    ]
    done = subprocess.run(
        [agent / "python", "-c", MODEL],
        input=json.dumps(contents),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = ROOT / f"tests/unit/backend_ai/fixtures/{VERSION}/keys.json"
    assert json.loads(done.stdout) == json.loads(recorded.read_text(encoding="utf-8"))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _number in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[str]:
    """The address of an etcd on loopback that has that of a Redis, as a manager would write it."""
    missing = [name for name in SERVICES if not shutil.which(name)]
    if missing:
        pytest.skip(f"this machine has no {', '.join(missing)}")
    client, peer, redis = _free_ports(3)
    urls = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    commands = (
        [
            *("etcd", f"--data-dir={tmp_path / 'etcd'}", f"--listen-client-urls={urls[0]}"),
            *(f"--advertise-client-urls={urls[0]}", f"--listen-peer-urls={urls[1]}"),
            *(f"--initial-advertise-peer-urls={urls[1]}", f"--initial-cluster=default={urls[1]}"),
        ],
        ["redis-server", "--bind", "127.0.0.1", "--port", str(redis), "--save", "", "--requirepass", "secret"],
    )
    nowhere = subprocess.DEVNULL
    running = [subprocess.Popen(command, stdout=nowhere, stderr=nowhere) for command in commands]
    try:
        for key, value in (("addr", f"127.0.0.1:{redis}"), ("password", "secret")):
            put = ["etcdctl", f"--endpoints={urls[0]}", "put", f"/sorna/local/config/redis/{key}", value]
            for _attempt in range(30):
                env = os.environ | {"ETCDCTL_API": "3"}
                if not subprocess.run(put, env=env, stdout=nowhere, stderr=nowhere, check=False).returncode:
                    break
                time.sleep(1)
        yield f"127.0.0.1:{client}"
    finally:
        for process in running:
            process.terminate()
            process.wait()


def _checked(agent: Path, directory: Path, text: str, *command: str) -> tuple[str, ...]:
    """What the checker of the package names as unusable."""
    (directory / "agent.toml").write_text(text)
    done = subprocess.run(
        [agent / "backend.ai", "ag", "--config-path", "agent.toml", *command, "--no-timestamps"],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env=os.environ | {"DOCKER_HOST": f"unix://{directory}/docker.sock"},
    )
    causes = failed_checks(done.stdout)
    assert bool(causes) == bool(done.returncode), done.stdout + done.stderr
    return causes


def test_the_checker_reaches_etcd_and_redis(agent: Path, etcd: str, tmp_path: Path) -> None:
    text = written(tmp_path, etcd_addresses=[etcd])
    assert _checked(agent, tmp_path, text, "dependencies", "verify") == ()
    causes = _checked(agent, tmp_path, text, "health", "check")
    assert len(causes) == 1
    assert causes[0].startswith("docker: [900] Cannot connect to Docker Engine")
    (nobody,) = _free_ports(1)
    unreached = _checked(
        agent, tmp_path, written(tmp_path, etcd_addresses=[f"127.0.0.1:{nobody}"]), "dependencies", "verify"
    )
    assert unreached[0].startswith("redis-config (temp): GRPCStatusError")
