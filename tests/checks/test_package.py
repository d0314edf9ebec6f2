# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as users get it: built, installed elsewhere, and found there by every ansible-core."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.checks.controllers import Controller, controllers
from tests.checks.tools import COLLECTIONS, VENV, check, environment, project_files

MOST_ENTRIES = 1060
"""Maximum number of archive entries: some 840 files and their directories, half of them short task files of roles.

With the tests and their hosts there would be some 700 more, which no user of the collection needs.
"""
ONLY_IN_A_CHECKOUT = {"testbed", "tests", "molecule", "inventories", "examples"}
NEEDED = {
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "meta/runtime.yml",
    "playbooks/site.yml",
    "requirements.yml",
    "SECURITY.md",
    "MAINTAINERS",
}
ROLES = sorted({name.parts[1] for name in project_files() if name.parts[0] == "roles"})
PLAYBOOKS = sorted(path.stem for path in project_files(".yml") if path.parent == Path("playbooks"))
PLUGINS = [
    (path.parts[1].removesuffix("s"), path.stem)
    for path in project_files(".py")
    if path.parts[0] == "plugins" and path.parts[1] not in ("module_utils", "plugin_utils", "doc_fragments")
]
for_each_controller = pytest.mark.parametrize("controller", controllers(), ids=lambda each: f"core-{each.core}")


@pytest.fixture(scope="module")
def installed(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collections directory with the installed gpu.fleet and its dependencies."""
    directory = tmp_path_factory.mktemp("installed")
    install: list[str | Path] = ["collection", "install", "--no-deps", "--offline", "-p", directory, archive]
    check([VENV / "bin" / "ansible-galaxy", *install], env=environment() | {"ANSIBLE_COLLECTIONS_PATH": str(directory)})
    for other in (COLLECTIONS / "ansible_collections").iterdir():
        if other.name != "gpu":
            (directory / "ansible_collections" / other.name).symlink_to(other)
    return directory


def _with(controller: Controller, installed: Path, *argv: str | Path) -> str:
    env = environment(controller.venv) | {"ANSIBLE_COLLECTIONS_PATH": str(installed)}
    return check([controller.ensure() / argv[0], *argv[1:]], cwd=installed, env=env)


def test_package_holds_what_users_need(archive: Path) -> None:
    with tarfile.open(archive) as packed_files:
        members = packed_files.getmembers()
    packed = {member.name for member in members if member.isfile()}
    # galaxy.yml becomes MANIFEST.json.
    assert packed - {str(path) for path in project_files()} == {"MANIFEST.json", "FILES.json"}
    used = ("plugins", "roles", "playbooks", "meta", "docs", "changelogs")
    assert packed >= NEEDED | {
        str(path) for path in project_files() if path.parts[0] in used and "fragments" not in path.parts
    }
    assert {Path(name).parts[0] for name in packed} & ONLY_IN_A_CHECKOUT == set()
    assert len(members) < MOST_ENTRIES


@for_each_controller
def test_playbooks_of_the_installed_collection_parse(controller: Controller, installed: Path) -> None:
    for playbook in PLAYBOOKS:
        _with(controller, installed, "ansible-playbook", "--syntax-check", "-i", "host,", f"gpu.fleet.{playbook}")


@for_each_controller
def test_roles_of_the_installed_collection_parse(controller: Controller, installed: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "roles.yml"
    roles = "".join(f"    - gpu.fleet.{role}\n" for role in ROLES)
    playbook.write_text(f"- hosts: all\n  gather_facts: false\n  roles:\n{roles}", encoding="utf-8")
    _with(controller, installed, "ansible-playbook", "--syntax-check", "-i", "host,", playbook)


@for_each_controller
def test_documentation_can_be_read(controller: Controller, installed: Path) -> None:
    # An action is documented as the module of its name.
    documented = [*(each for each in PLUGINS if each[0] != "action"), *(("role", role) for role in ROLES)]
    for kind in sorted({kind for kind, _name in documented}):
        names = [f"gpu.fleet.{name}" for of_kind, name in documented if of_kind == kind]
        shown = _with(controller, installed, "ansible-doc", "-t", kind, *names)
        # ansible-doc of 2.16 prints the name of a role in capitals.
        assert [name for name in names if name not in shown.lower()] == []
        assert _warnings(shown) == []


# ansible-core warns of a collection of its own, which has no version.
_OWN_OF_CORE = "/ansible/_internal/ansible_collections/"
# And of the collections of others that are installed here, which may be too new for it.
_OF_OTHERS = re.compile(r"Collection (?!gpu\.fleet )\S+ does not support Ansible version")


def _warnings(output: str) -> list[str]:
    """Lines of warnings, deprecations and errors that are not about ansible-core itself."""
    lines = [line for line in output.splitlines() if re.match(r"\[(?:[A-Z]+ )?(?:WARNING|ERROR)\]", line)]
    return [line for line in lines if _OWN_OF_CORE not in line and not _OF_OTHERS.search(line)]


def test_a_warning_of_ansible_doc_is_found() -> None:
    found = ["[DEPRECATION WARNING]: gone in 2.23", "[WARNING]: no such", "[ERROR]: bad"]
    assert _warnings("\n".join([*found, "gives a warning.", f"[WARNING]: at '{_OWN_OF_CORE}x'"])) == found
