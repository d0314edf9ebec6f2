# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/pull_tasks/install.yml: a virtual environment gets the files that the requirements have a hash of."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.plays import run_play

REQUIREMENTS = ROOT / "playbooks" / "pull_tasks" / "files" / "requirements.txt"


def test_each_package_has_a_version_and_hashes() -> None:
    text = REQUIREMENTS.read_text(encoding="utf-8")
    packages = re.split(r"(?<!\\)\n", text.strip())
    pattern = r"([a-z0-9-]+)==[0-9][0-9a-z.]*(?: \\\n    --hash=sha256:[0-9a-f]{64})+"
    names = [match[1] for match in (re.fullmatch(pattern, package) for package in packages) if match]
    assert len(names) == len(packages) and {"ansible-core", "jmespath", "requests", "cryptography"} <= {*names}


def wheel(directory: Path, content: str) -> str:
    """A wheel of ansible-core with this content; returns its SHA-256."""
    files = {"ansible_mock.py": content}
    info = "ansible_core-2.19.14.dist-info"
    files[f"{info}/METADATA"] = "Metadata-Version: 2.1\nName: ansible-core\nVersion: 2.19.14\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(text)}")
    directory.mkdir(exist_ok=True)
    path = directory / "ansible_core-2.19.14-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "\n".join([*rows, f"{info}/RECORD,,"]))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.plays
def test_another_file_of_the_same_version_is_refused(tmp_path: Path) -> None:
    names = ("Write the requirements", "Compare the virtual environment with the requirements", "Install Ansible")
    tasks = yaml.safe_load((ROOT / "playbooks" / "pull_tasks" / "install.yml").read_text())
    own = {"owner", "group"}
    chosen = [task for task in tasks if task["name"] in names]
    for task in chosen:
        for module in ("ansible.builtin.copy",):
            task.update(
                {module: {key: task[module][key] for key in task[module] if key not in own}} if module in task else {}
            )
    directory = tmp_path / "pull"
    directory.mkdir(mode=0o700)
    variables: dict[str, Any] = {
        "__pull_directory": str(directory),
        "__pull_python": f"{directory}/venv/bin",
        "__pull_interpreter": sys.executable,
        "__pull_missing_packages": [],
        "__pull_directory_found": {"stat": {"exists": True}},
        "__pull_other_python": {"changed": False},
    }
    play = {"hosts": "all", "connection": "local", "gather_facts": False, "vars": variables}
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links"), "PIP_CONFIG_FILE": "/dev/null"}
    rescue = [{"debug": {"msg": "{{ ansible_failed_result.msg }}"}}]

    def run(*words: str) -> str:
        return run_play(tmp_path, {**play, "tasks": [{"block": chosen, "rescue": rescue}]}, *words, env=env)

    digest = wheel(tmp_path / "links", "published = True\n")
    variables["__pull_python_requirements"] = f"ansible-core==2.19.14 \\\n    --hash=sha256:{digest}"
    wheel(tmp_path / "links", "replaced = True\n")
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in run()
    assert not list((directory / "venv").glob("lib/python*/site-packages/ansible_mock.py"))
    wheel(tmp_path / "links", "published = True\n")
    assert "changed=1" in run()
    assert list((directory / "venv").glob("lib/python*/site-packages/ansible_mock.py"))
    for words in ((), ("--check",)):
        assert "changed=0" in run(*words), "what is installed is found without an index"
    variables["__pull_python_requirements"] = variables["__pull_python_requirements"].replace("2.19.14", "2.19.15")
    assert "changed=2" in run("--check")
