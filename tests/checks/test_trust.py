# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles and playbooks trust: signatures of packages, and who names the files of the controller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.checks.tools import ROOT, project_files

# What users run, in any language, with what they copy of the documentation.
SHIPPED = [
    path
    for path in project_files()
    if path.parts[0] in ("docs", "examples", "inventories", "playbooks", "plugins", "roles")
    and path.suffix in (".j2", ".json", ".md", ".py", ".sh", ".yml", ".yaml", "")
]
TASK_FILES = [
    path
    for path in project_files(".yml")
    if path.parts[0] in ("playbooks", "roles", "examples") and "files" not in path.parts and path.stem != "vault"
]
# An option of a task, of a program or of a repository that lifts a check of signatures or certificates.
LIFTS = re.compile(
    r"disable_gpg_check|allow_unauthenticated|nogpgcheck|no-?gpg-?checks?\b|\bnosignature|\bnodigest|trusted\s*[=:]\s*(?:yes|true|1)\b"
    r"|force[-_]yes|allow-?unauthenticated|AllowInsecure|allow-insecure|allow-weak|(?<![a-z_])(?:pkg_|localpkg_)?gpgcheck\"?\s*[=:]\s*(?:0|no\b|false)"
    r"|validate_certs\s*:\s*(?:false|no)\b|sslverify\"?\s*[=:]\s*(?:0|no\b|false)|no-check-certificate|\bcurl\b.*\s(?:-k|--insecure)\b"
    r"|Verify-Peer|trusted-host|StrictHostKeyChecking[= ]no",
    re.IGNORECASE,
)


def _tasks(found: Any) -> Iterator[dict[str, Any]]:
    for task in found if isinstance(found, list) else ():
        if isinstance(task, dict):
            yield task
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
                yield from _tasks(task.get(part))


def _modules(task: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Short names of the modules of a task, with their arguments; those of a free form are `free`."""
    for name, given in task.items():
        if "." in name or name in ("copy", "dnf", "fetch", "script", "template", "yum"):
            yield name.rpartition(".")[2], given if isinstance(given, dict) else {"free": given}


def lifting(tasks: Any) -> list[str]:
    """Tasks without checks of signatures that do not install files alone, with every repository disabled."""
    return [
        task.get("name", "")
        for task in _tasks(tasks)
        for _name, given in _modules(task)
        if given.get("disable_gpg_check") and (given.get("disablerepo") != "*" or "enablerepo" in given)
    ]


@pytest.mark.parametrize("path", TASK_FILES, ids=str)
def test_signatures_are_checked_while_a_repository_is_enabled(path: Path) -> None:
    assert lifting(yaml.safe_load((ROOT / path).read_text())) == []


def test_the_search_for_tasks_without_checks_finds_them() -> None:
    given = {"name": "/a.rpm", "disable_gpg_check": True}
    assert lifting([{"block": [{"name": "Install it", "ansible.builtin.dnf": given}]}]) == ["Install it"]
    assert lifting([{"name": "x", "dnf": {**given, "disablerepo": "a"}}]) == ["x"]
    assert lifting([{"ansible.builtin.dnf": {**given, "disablerepo": "*"}}]) == []


def test_nothing_else_lifts_a_check_of_signatures() -> None:
    found = {
        f"{path}: {line.strip()}"
        for path in SHIPPED
        for line in (ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines()
        if LIFTS.search(line)
    }
    alone = "disable_gpg_check: true # their sha256 was verified"
    assert found == {
        f"roles/enroot/tasks/install_dnf.yml: {alone}",
        f"roles/nvidia_repository/tasks/local_dnf.yml: {alone}",
    }


@pytest.mark.parametrize(
    "line",
    [
        "  nogpgcheck",
        "dnf --nogpgcheck install x",
        "zypper --no-gpg-checks in x",
        "deb [trusted=yes] https://x /",
        "Trusted: yes",
        "apt-get --allow-unauthenticated install x",
        "allow_unauthenticated: true",
        "apt-get --force-yes install x",
        "gpgcheck=0",
        "localpkg_gpgcheck = false",
        "rpm --nosignature --install x",
        "validate_certs: false",
        "curl --silent -k https://x",
        "sslverify=0",
    ],
)
def test_the_search_for_lifted_checks_finds_them(line: str) -> None:
    assert LIFTS.search(line)
    assert not LIFTS.search("gpgcheck=1") and not LIFTS.search('"repo_gpgcheck": False')


# Each with what makes the directory one of ours.
REMOVED_RECURSIVELY = {
    "plugins/module_utils/_files/archive_run.py": "hidden names next to a directory that its record shows to be ours",
    "plugins/module_utils/_health/evidence.py": "its marker",
}


def test_only_directories_of_ours_are_removed_recursively() -> None:
    found = {
        str(path)
        for path in project_files(".py")
        if path.parts[0] in ("plugins", "playbooks") and re.search(r"\brmtree\b|removedirs", (ROOT / path).read_text())
    }
    assert found == {*REMOVED_RECURSIVELY}


_VARIABLE = "{{"
_LOOKUPS = re.compile(r"\b(?:lookup|query|q)\(\s*'(?:ansible\.builtin\.|community\.general\.)?(\w+)'\s*(?:,\s*(.*))?")
# Those that read a file of the controller or run a program on it.
_READING = (
    "csvfile",
    "file",
    "filetree",
    "fileglob",
    "first_found",
    "ini",
    "lines",
    "pipe",
    "template",
    "unvault",
    "url",
)
_LITERAL = re.compile(r"(?:role_path ~ )?'[^']*'\s*[,)]")


def by_variables(path: Path, text: str) -> list[str]:
    """Where a variable names a file of the controller, or the host that a task is delegated to."""
    found = []
    for task in _tasks(yaml.safe_load(text)):
        for name, given in _modules(task):
            names: tuple[Any, ...] = ()
            if name in ("copy", "template", "unarchive", "script", "assemble", "win_copy", "win_template"):
                names = () if given.get("remote_src") else (given.get("src"), given.get("cmd"), given.get("free"))
            elif name == "fetch":
                names = (given.get("dest"),)
            elif name == "include_vars":
                names = (given.get("file"), given.get("dir"), given.get("free"))
            elif name in ("include_tasks", "import_tasks"):
                # A name without a directory or an end of ours; a list of literals is ours.
                names = (given.get("file"), given.get("free")) if isinstance(task.get("loop"), str) else ()
                names = tuple(one for one in names if str(one or "").endswith("}}"))
            if task.get("delegate_to") == "localhost":
                names += (given.get("path"), given.get("dest"), given.get("argv"), given.get("cmd"))
            found += [f"{name} {one}" for one in names if _VARIABLE in str(one or "")]
        if _VARIABLE in str(task.get("delegate_to", "")):
            found.append(f"delegate_to {task['delegate_to']}")
        found += [f"vars_files {one}" for one in task.get("vars_files", ()) if _VARIABLE in str(one)]
    for match in _LOOKUPS.finditer(text):
        if match[1] in _READING and not _LITERAL.match(match[2] or ""):
            found.append(match[0])
    return found


_REFUSES = "tasks_from: refuse_injected_facts.yml"
# Instead of a refusal. Variables of a role itself come after facts, see the precedence of variables in Ansible's guide.
_ELSE = {
    "common": "fetch_evidence.yml fetches nothing then; the templates have literal names",
    "gpu_simulator": "the files of its own directory, which its vars list",
}
ROLES = sorted({path.parts[1] for path in TASK_FILES if path.parts[0] == "roles"})


@pytest.mark.parametrize("role", ROLES)
def test_a_role_refuses_facts_as_variables_where_a_variable_names_a_file_of_the_controller(role: str) -> None:
    """Facts of a host come before defaults and inventory where inject_facts_as_vars is true."""
    contents = {path: (ROOT / path).read_text() for path in TASK_FILES if path.parts[:2] == ("roles", role)}
    found = {str(path): uses for path, text in contents.items() if (uses := by_variables(path, text))}
    refuses = any(_REFUSES in text for text in contents.values())
    assert refuses or not found or role in _ELSE, found


# Each begins with host_facts, which refuses; site.yml and decommission.yml import what does.
@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yml")), ids=lambda path: path.name)
def test_each_playbook_begins_with_the_refusal(path: Path) -> None:
    assert _begins_with_host_facts(path)


def _begins_with_host_facts(path: Path) -> bool:
    for task in _tasks(yaml.safe_load(path.read_text())):
        for name, given in _modules(task):
            if name == "host_facts":
                return True
            if name in ("import_playbook", "import_tasks"):
                return _begins_with_host_facts(path.parent / str(given.get("free") or given["file"]))
    return False


def test_the_search_for_files_that_a_variable_names_finds_them() -> None:
    for text in (
        "- ansible.builtin.copy: {src: '{{ a }}', dest: /b}",
        "- block: [{ansible.builtin.script: '{{ a }}'}]",
        "- ansible.builtin.include_vars: {file: '{{ a }}'}",
        "- ansible.builtin.fetch: {src: /a, dest: '{{ a }}'}",
        "- vars_files: ['{{ a }}']",
        "- ansible.builtin.command: {argv: [a]}\n  delegate_to: '{{ a }}'",
        "- ansible.builtin.file: {path: '{{ a }}'}\n  delegate_to: localhost",
        "- ansible.builtin.copy: {content: b, dest: '{{ a }}'}\n  delegate_to: localhost",
        "- ansible.builtin.include_tasks: '{{ a }}'\n  loop: '{{ b }}'",
        "a: \"{{ lookup('ansible.builtin.file', a) }}\"",
        "a: \"{{ query('fileglob', a ~ '/*.json') }}\"",
        "a: \"{{ lookup('pipe', 'cat ' ~ a) }}\"",
    ):
        assert by_variables(Path("x.yml"), text), text
    for text in (
        "- ansible.builtin.copy: {src: '{{ a }}', dest: /b, remote_src: true}",
        "- ansible.builtin.copy: {src: a.sh, dest: '{{ b }}'}",
        "- ansible.builtin.include_tasks: 'install_{{ a }}.yml'",
        "a: \"{{ lookup('ansible.builtin.file', 'a.json') }}\"",
        "a: \"{{ lookup('ansible.builtin.config', 'A') }}\"",
    ):
        assert not by_variables(Path("x.yml"), text), text
