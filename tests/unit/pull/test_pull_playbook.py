# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/pull.yml: what it refuses, the host keys that it accepts, and what its service does with a git repository.

The repository is a directory, and the server of host keys a script: there need be no sshd on the machine of the tests.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

PLAYBOOKS = ROOT / "playbooks"
PLAY: Mapping[str, Any] = yaml.safe_load((PLAYBOOKS / "pull.yml").read_text())[0]
IMPORT = "ansible.builtin.import_tasks"
# All but those that install something, and start the timer.
TASKS = [
    {**task, IMPORT: str(PLAYBOOKS / task[IMPORT])}
    for task in PLAY["tasks"]
    if Path(task.get(IMPORT, "")).stem in ("check", "host_keys", "keys", "units")
]
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIDuxuXbA5Q4ZzQnC2sUeV9Q3y3Wn1Cz8s0N0oYq8eF0a"
FINGERPRINT = "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(KEY)).digest()).decode().rstrip("=")
SITE = [
    {"name": "Apply", "hosts": "all", "gather_facts": False, "tasks": [{"name": "Work", "ansible.builtin.ping": {}}]}
]
SSH = "ssh://git@git.example.com:2222/ops/fleet.git"
GIT = {
    "gpu_fleet_pull_collections": [{"name": "ssh://git@git.example.com/gpu.fleet", "type": "git", "version": "main"}]
}
PINNED = {"gpu_fleet_pull_collections": [{"name": "gpu.fleet", "version": "1.0.0"}]}


def git(repository: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=ops", "-c", "user.email=ops@example.com", "-c", "commit.gpgSign=false")
    subprocess.run(["git", *identity, "-C", repository, *arguments], check=True, capture_output=True)


@pytest.fixture
def signer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The directory of a key that signs. Its path is short: gpg listens on a socket there."""
    home = tmp_path_factory.mktemp("g")
    home.chmod(0o700)
    make = ["gpg", "--batch", "--passphrase", "", "--quick-gen-key", "ops@example.com", "ed25519", "sign", "never"]
    subprocess.run(make, env={**os.environ, "GNUPGHOME": str(home)}, check=True, capture_output=True)
    return str(home)


def service(unit: Path) -> tuple[list[str], dict[str, str]]:
    """The command of a unit and its environment."""
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    assigned = [word for name, _is, value in lines if name == "Environment" for word in shlex.split(value)]
    command = next(value for name, _is, value in lines if name == "ExecStart")
    return shlex.split(command), dict(word.split("=", 1) for word in assigned)


def test_the_service_applies_what_was_signed_and_reports_it(
    tmp_path: Path, signer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GNUPGHOME", signer)
    repository = tmp_path / "repository"
    (repository / "inventory").mkdir(parents=True)
    (repository / "inventory" / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"node": None, "other": None}}}))
    (repository / "site.yml").write_text(json.dumps(SITE))
    git(repository, "init", "--initial-branch=main")
    git(repository, "add", ".")
    git(repository, "commit", "--message=one", "--gpg-sign=ops@example.com")
    with (tmp_path / "keyring").open("wb") as file:
        subprocess.run(["gpg", "--export"], stdout=file, check=True)
    (tmp_path / "ssh-keyscan").write_text(
        "#!/bin/sh\n"
        'case "$*" in *silent*) echo "getaddrinfo: Name or service not known" >&2; exit 1; esac\n'
        f"echo '# a banner'\necho '[git.example.com]:2222 ssh-ed25519 {KEY}'\n"
    )
    (tmp_path / "ssh-keyscan").chmod(0o755)
    (tmp_path / "deploy_key").write_text("key\n")
    signed = {
        "gpu_fleet_pull_repository": f"file://{repository}",
        "gpu_fleet_pull_verify_commit": True,
        "gpu_fleet_pull_keyring": str(tmp_path / "keyring"),
    }
    ssh = {"gpu_fleet_pull_repository": SSH, "gpu_fleet_pull_deploy_key": str(tmp_path / "deploy_key")}
    hosts: dict[str, dict[str, Any]] = {
        "node": {**signed, **PINNED},
        "remote": {**ssh, **PINNED, "gpu_fleet_pull_host_key_fingerprints": [FINGERPRINT]},
        "impostor": {**ssh, **PINNED, "gpu_fleet_pull_host_key_fingerprints": ["SHA256:other"]},
        "lonely": {
            **ssh,
            **PINNED,
            "gpu_fleet_pull_repository": "ssh://git@silent.example.com/ops/fleet.git",
            "gpu_fleet_pull_host_key_fingerprints": [FINGERPRINT],
        },
        "vague": {**ssh, **GIT, "gpu_fleet_pull_host_key_fingerprints": [FINGERPRINT]},
        "careless": {
            **ssh,
            "gpu_fleet_pull_version": "main; reboot",
            "gpu_fleet_pull_verify_commit": True,
            "gpu_fleet_pull_interval_s": "1h",
        },
    }
    for name in hosts:
        (tmp_path / name / "units").mkdir(parents=True)
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    own = str(tmp_path) + "/{{ inventory_hostname }}"
    play = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "vars": {
            **PLAY["vars"],
            "__pull_settings": own,
            "__pull_directory": own,
            "__pull_units": own + "/units",
            "__pull_python": str(Path(sys.executable).parent),
            "__pull_collections_path": str(ROOT / ".cache" / "collections"),
        },
        "tasks": [
            {
                "block": TASKS,
                "rescue": [{"debug": {"msg": "{{ ansible_failed_result.msg }}"}}],
            }
        ],
    }
    path = f"{tmp_path}:{os.environ['PATH']}"
    printed = run_play(tmp_path, play, inventory=tmp_path / "hosts.json", env={"PATH": path})

    assert f"impostor: {SSH} has host keys with the fingerprints {FINGERPRINT}, and none of them is in" in printed, (
        printed
    )
    message = re.findall(r'"msg": "(careless: .*)"', printed)[-1]
    for name in ("version", "host_key_fingerprints", "keyring", "collections", "interval_s"):
        assert f"gpu_fleet_pull_{name}" in message
    assert "lonely: ssh-keyscan gets no host key of ssh://git@silent.example.com/ops/fleet.git: getaddrinfo:" in printed
    assert "vague: entries of gpu_fleet_pull_collections with type: git take as version a tag" in printed
    for name in ("careless", "impostor", "lonely", "vague"):
        assert not list((tmp_path / name / "units").iterdir()), name
    assert (tmp_path / "remote" / "known_hosts").read_text() == f"[git.example.com]:2222 ssh-ed25519 {KEY}\n"
    assert (tmp_path / "remote" / "deploy_key").stat().st_mode & 0o777 == 0o600
    _command, environment = service(tmp_path / "remote" / "units" / "gpu-fleet-pull.service")
    assert "-o StrictHostKeyChecking=yes" in environment["GIT_SSH_COMMAND"]
    timer = (tmp_path / "node" / "units" / "gpu-fleet-pull.timer").read_text()
    assert "OnActiveSec=300\nOnUnitActiveSec=3600\nRandomizedDelaySec=900\n" in timer

    command, environment = service(tmp_path / "node" / "units" / "gpu-fleet-pull.service")
    assert environment["GNUPGHOME"] == str(tmp_path / "node" / "gnupg")
    # What Ansible would discover may be a shim of a Python that the machine has not chosen (pyenv).
    own_settings = {"HOME": str(tmp_path), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    environment |= {"PATH": os.environ["PATH"], **own_settings}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "node" / "result.json").read_text())
    assert {name: host["status"] for name, host in result["hosts"].items()} == {"node": "ok"}

    (tmp_path / "node" / "result.json").unlink()
    git(repository, "commit", "--message=two", "--allow-empty", "--no-gpg-sign")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Failed to verify GPG signature" in done.stdout + done.stderr
    assert not (tmp_path / "node" / "result.json").exists()
