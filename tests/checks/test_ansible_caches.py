# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What testbed/ansible_caches.py keeps is what Ansible would make again, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible import constants

from testbed import ansible_caches
from tests.checks.tools import VENV, check, environment

# With what only Ansible's own compiler of templates does: undefined variables, backslashes, filters of collections.
_PLAY = """\
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.command: "{{ ansible_playbook_python }} -c 'print(1 + 1)'"
      register: result
    - ansible.builtin.debug:
        msg: "{{ [result.stdout, missing | default('none'), 'a\\\\b' | length, platform_of] | join(' ') }}"
      vars:
        platform_of: "{{ {'distribution': 'Debian'} | gpu.fleet.platform | type_debug }}"
"""


def _modules(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the archives of modules are kept for a run."""
    local = tmp_path / str(number)
    local.mkdir()
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(local))
    ansible_caches.keep_modules(tmp_path / "kept")
    link = local / "ansiballz_cache"
    return str(link.readlink()) if link.is_symlink() else ""


def test_archives_of_modules_are_kept_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utilities = tmp_path / "one" / ansible_caches._PLUGINS / "module_utils"
    utilities.mkdir(parents=True)
    (utilities / "a.py").write_text("A = 1\n")
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "one"))
    first = _modules(tmp_path, 1, monkeypatch)
    assert first == _modules(tmp_path, 2, monkeypatch)
    (utilities / "a.py").write_text("A = 10\n")
    assert first != _modules(tmp_path, 3, monkeypatch)
    (utilities / "a.py").unlink()
    assert first != _modules(tmp_path, 4, monkeypatch)
    # Elsewhere, or in two places: it is not known which files a module is made of.
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    (tmp_path / "two" / ansible_caches._PLUGINS).mkdir(parents=True)
    assert not _modules(tmp_path, 5, monkeypatch)
    monkeypatch.delenv("ANSIBLE_COLLECTIONS_PATH")
    assert not _modules(tmp_path, 6, monkeypatch)


def test_a_play_is_the_same_with_and_without(tmp_path: Path) -> None:
    (tmp_path / "play.yml").write_text(_PLAY)
    argv: list[str | Path] = [VENV / "bin" / "ansible-playbook", "-i", "localhost,", tmp_path / "play.yml"]
    (tmp_path / "ansible.cfg").touch()
    configuration = {"ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
    plain = {**environment(), **configuration, ansible_caches.DIRECTORY: ""}
    kept = {**plain, ansible_caches.DIRECTORY: str(tmp_path / "kept")}
    without, first, second = (check(argv, cwd=tmp_path, env=env) for env in (plain, kept, kept))
    assert "2 none 3" in without
    assert without == first == second
    assert all(any((tmp_path / "kept" / name).rglob("*")) for name in ("collections", "modules", "templates"))
