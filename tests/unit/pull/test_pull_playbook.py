# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/pull.yml: what it refuses, the host keys that it accepts, and what its service does with a git repository.

The repository is a directory, and the server of host keys a script: there need be no sshd on the machine of the tests.
"""

from __future__ import annotations

import base64
import getpass
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
from tests.unit.pull.git_server import Keys, Origin

pytestmark = pytest.mark.plays

PLAYBOOKS = ROOT / "playbooks"
PLAY: Mapping[str, Any] = yaml.safe_load((PLAYBOOKS / "pull.yml").read_text())[0]
IMPORT = "ansible.builtin.import_tasks"
# All but those that install something, and start the timer.
# The first one reads the variables.
TASKS = [
    PLAY["tasks"][0],
    *(
        {**task, IMPORT: str(PLAYBOOKS / task[IMPORT])}
        for task in PLAY["tasks"]
        if Path(task.get(IMPORT, "")).stem in ("check", "host_keys", "keys", "units")
    ),
]
REQUIREMENTS = PLAYBOOKS / "pull_tasks" / "files" / "requirements.txt"
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


def service(unit: Path) -> tuple[list[str], dict[str, str]]:
    """The command of a unit and its environment."""
    lines = [line.partition("=") for line in unit.read_text().splitlines()]
    assigned = [word for name, _is, value in lines if name == "Environment" for word in shlex.split(value)]
    command = next(value for name, _is, value in lines if name == "ExecStart")
    return shlex.split(command), dict(word.split("=", 1) for word in assigned)


def test_the_service_applies_what_was_signed_and_reports_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = Keys(tmp_path_factory.mktemp("g"))
    keys.home.chmod(0o700)
    keys.make("ops")
    keys.export(tmp_path / "keyring", "ops")
    origin = Origin(tmp_path / "repository", keys)
    origin.start()
    inventory = json.dumps({"all": {"hosts": {"node": None, "other": None}}})
    # Its settings count once the commit is proven, and its directory is where Ansible starts.
    settings = "[defaults]\ncallback_result_format = yaml\n"
    signed_files = {"inventory/hosts.yml": inventory, "site.yml": json.dumps(SITE), "ansible.cfg": settings}
    origin.commit("one", key="ops", files=signed_files)
    (tmp_path / "ssh-keyscan").write_text(
        "#!/bin/sh\n"
        'case "$*" in *silent*) echo "getaddrinfo: Name or service not known" >&2; exit 1; esac\n'
        f"echo '# a banner'\necho '[git.example.com]:2222 ssh-ed25519 {KEY}'\n"
    )
    (tmp_path / "ssh-keyscan").chmod(0o755)
    (tmp_path / "deploy_key").write_text("key\n")
    signed = {
        "gpu_fleet_pull_repository": origin.url,
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
    # With a password, and a token in place of a user; in a URL that is none either way; of a collection.
    secrets: dict[str, dict[str, Any]] = {
        "password": {"gpu_fleet_pull_repository": "https://user:hunter2@git.example.com/fleet.git"},
        "token": {"gpu_fleet_pull_repository": "https://hunter2@git.example.com/fleet.git"},
        "broken": {"gpu_fleet_pull_repository": "https://user:hunter2#x@git.example.com/fleet.git"},
        "remote_password": {**ssh, "gpu_fleet_pull_repository": "ssh://git:hunter2@git.example.com/fleet.git"},
        "collection": {
            **signed,
            "gpu_fleet_pull_collections": [
                {"name": "https://user:hunter2@git.example.com/c", "type": "git", "version": "v1.0.0"}
            ],
        },
        "archive": {
            **signed,
            "gpu_fleet_pull_collections": [
                {"name": "https://files.example.com/c.tar.gz?token=hunter2", "type": "url", "version": "1.0.0"}
            ],
        },
    }
    hosts |= {name: {**PINNED, **given} for name, given in secrets.items()}
    hosts["unhashed"] = {**signed, **PINNED, "gpu_fleet_pull_requirements": str(tmp_path / "requirements.txt")}
    (tmp_path / "requirements.txt").write_text("ansible-core==2.19.14\n")
    hosts["older"] = {**signed, **PINNED, "gpu_fleet_pull_packages": ["ansible-core==2.19.14"]}
    for name in hosts:
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "units").mkdir()
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
            "__pull_owner": getpass.getuser(),
            "__pull_requirements_file": f"{{{{ gpu_fleet_pull_requirements | default('{REQUIREMENTS}') }}}}",
            "__pull_program": str(PLAYBOOKS / "pull_tasks" / "files" / "gpu_fleet_pull.py"),
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
    assert "hunter2" not in printed
    refused = re.findall(r"(\w+): (?:[^\"]*; )?gpu_fleet_pull_repository or a name or source in [^\"]*netrc", printed)
    assert {*refused} >= {*secrets}, printed
    assert "broken: gpu_fleet_pull_repository is 'https://...@git.example.com/fleet.git'" in printed
    assert "(gpu_fleet_pull_requirements) is no file on the controller, or has no ansible-core" in printed
    assert "older: gpu_fleet_pull_packages is not read any more" in printed
    for name in ("careless", "impostor", "lonely", "vague", *secrets, "unhashed", "older"):
        assert not list((tmp_path / name / "units").iterdir()), name
    assert (tmp_path / "remote" / "known_hosts").read_text() == f"[git.example.com]:2222 ssh-ed25519 {KEY}\n"
    assert (tmp_path / "remote" / "deploy_key").stat().st_mode & 0o777 == 0o600
    _command, environment = service(tmp_path / "remote" / "units" / "gpu-fleet-pull.service")
    assert "-o StrictHostKeyChecking=yes" in environment["GIT_SSH_COMMAND"]
    timer = (tmp_path / "node" / "units" / "gpu-fleet-pull.timer").read_text()
    assert "OnActiveSec=300\nOnUnitActiveSec=3600\nRandomizedDelaySec=900\n" in timer

    command, environment = service(tmp_path / "node" / "units" / "gpu-fleet-pull.service")
    # What Ansible would discover may be a shim of a Python that the machine has not chosen (pyenv).
    own_settings = {"HOME": str(tmp_path), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    environment |= {"PATH": os.environ["PATH"], **own_settings}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "node" / "result.json").read_text())
    assert {name: host["status"] for name, host in result["hosts"].items()} == {"node": "ok"}

    # Old commits are signed as well, and a name of git may be that of several things.
    (tmp_path / "node" / "result.json").unlink()
    origin.git("tag", "main")
    origin.commit("two, unsigned")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "nothing was applied" in done.stderr and "is not signed" in done.stderr
    origin.git("reset", "--quiet", "--hard", "HEAD~1")
    origin.commit("two", key="ops")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "node" / "result.json").unlink()
    origin.git("reset", "--quiet", "--hard", "HEAD~1")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "is older than" in done.stderr
    assert not (tmp_path / "node" / "result.json").exists()


def test_a_host_needs_the_passwords_of_its_own_groups_alone(tmp_path: Path) -> None:
    """As docs/pull.md has it: a vault ID for each group, and on a host the password of one."""
    inventory = tmp_path / "inventory"
    groups = {"gpu": {"hosts": {"node": None}}, "login": {"hosts": {"other": None}}}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.debug": {"var": "secret"}}]}
    (tmp_path / "site.yml").write_text(json.dumps([play]))
    programs = Path(sys.executable).parent
    env = {**os.environ, "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg")}
    (tmp_path / "ansible.cfg").touch()
    for group in groups:
        (inventory / "group_vars" / group).mkdir(parents=True)
        vault = inventory / "group_vars" / group / "vault.yml"
        vault.write_text(f"secret: of {group}\n")
        (tmp_path / group).write_text(f"password of {group}\n")
        encrypt: list[str | Path] = [
            programs / "ansible-vault",
            "encrypt",
            f"--vault-id={group}@{tmp_path}/{group}",
            vault,
        ]
        subprocess.run(encrypt, env=env, check=True, capture_output=True)
    (inventory / "hosts.yml").write_text(json.dumps({"all": {"children": groups}}))
    for limit, works in (("node", True), ("other", False)):
        options = (f"--inventory={inventory}", "--connection=local", f"--limit={limit}")
        argv: list[str | Path] = [
            programs / "ansible-playbook",
            *options,
            f"--vault-password-file={tmp_path}/gpu",
            "site.yml",
        ]
        done = subprocess.run(argv, env=env, cwd=tmp_path, check=False, capture_output=True, text=True)
        assert (done.returncode == 0) is works, done.stdout + done.stderr
        assert ("of gpu" in done.stdout) is works
