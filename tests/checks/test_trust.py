# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles and playbooks trust: signatures of packages, and who names the files of the controller."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, TemplateSyntaxError, nodes

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
                # A block gives its tasks the host that they are delegated to.
                host = {"delegate_to": task["delegate_to"]} if "delegate_to" in task else {}
                yield from ({**host, **one} for one in _tasks(task.get(part)))


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
    "plugins/module_utils/_repository/run.py": "what dnf has read of a repository, in its cache",
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


# Of a delegated task these work on the controller alone, whatever the host that it is delegated to.
_ON_CONTROLLER = ("assert", "debug", "fail", "host_facts", "include_role", "include_tasks", "role_plan", "set_fact")


@dataclass(frozen=True)
class Use:
    """A value with a variable that names a file of the controller, another host, or what is done there."""

    text: str
    loop: str = ""


def by_variables(text: str) -> list[Use]:
    """Where a variable names a file of the controller, the host that a task is delegated to, or what it does there."""
    found = []
    for task in _tasks(yaml.safe_load(text)):
        names: list[Any] = [task.get("delegate_to"), *task.get("vars_files", ())]
        for name, given in _modules(task):
            if name in ("copy", "template", "unarchive", "script", "assemble", "win_copy", "win_template"):
                names += () if given.get("remote_src") else (given.get("src"), given.get("cmd"), given.get("free"))
            elif name == "fetch":
                names.append(given.get("dest"))
            elif name == "include_vars":
                names += (given.get("file"), given.get("dir"), given.get("free"))
            elif name in ("include_tasks", "import_tasks"):
                # A name without a directory or an end of ours; a list of literals is ours.
                files = (given.get("file"), given.get("free")) if isinstance(task.get("loop"), str) else ()
                names += [one for one in files if str(one or "").endswith("}}")]
            if task.get("delegate_to") and name not in _ON_CONTROLLER:
                names += _strings(given)
        loop = "" if task.get("loop") is None else str(task["loop"])
        found += [Use(str(one), loop) for one in names if _VARIABLE in str(one or "")]
    for match in _LOOKUPS.finditer(text):
        if match[1] in _READING and not _LITERAL.match(match[2] or ""):
            found.append(Use("{{ " + match[0]))
    return found


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
    elif isinstance(value, str):
        yield value


# Magic variables, which come after facts, and a directory of the role.
_MAGIC = {"ansible_check_mode", "inventory_hostname", "omit", "role_path"}
_TRUSTED_RESULTS = ("host_facts", "role_plan")


@dataclass(frozen=True)
class Names:
    """What the private names of roles are: `results` of modules by name, and templates by name.

    A name has several of them where several tasks register, give or loop over it.
    """

    results: dict[str, set[str]]
    templates: dict[str, list[str]]

    @classmethod
    def of(cls, contents: Mapping[Path, str]) -> Names:
        """The names in these files of roles."""
        results: dict[str, set[str]] = defaultdict(set)
        templates: dict[str, list[str]] = defaultdict(list)
        for path, text in contents.items():
            read = yaml.safe_load(text)
            if path.parts[2] == "vars":
                for name, value in read.items():
                    templates[name] += [*_strings(value)] or [""]
            for task in _tasks(read):
                if "register" in task:
                    results[task["register"]] |= {name for name, _given in _modules(task)}
                if loop_var := task.get("loop_control", {}).get("loop_var"):
                    templates[loop_var] += [*_strings(task["loop"])]
                given = {**task.get("vars", {}), **task.get("ansible.builtin.set_fact", {})}
                for name, value in given.items():
                    templates[name] += [*_strings(value)] or [""]
        return cls(results, templates)

    def untrusted(self, use: Use, seen: frozenset[str] = frozenset()) -> set[str]:
        """Names in a value that a host may set, by a fact or by the result of a module that runs there."""
        wrong = set()
        for name in _names(use.text) - _MAGIC - seen:
            if name == "item":
                wrong |= self.untrusted(Use(use.loop), seen) if use.loop else {name}
            elif not name.startswith("__") or name not in {*self.results, *self.templates}:
                wrong.add(name)
            else:
                others = self.results.get(name, set()) - {*_TRUSTED_RESULTS}
                wrong |= {f"{name} of {module}" for module in others}
                for text in self.templates.get(name, ()):
                    wrong |= self.untrusted(Use(text), seen | {name})
        return wrong


def _names(text: str) -> set[str]:
    """The variables that a template reads."""
    try:
        found = {one.name for one in Environment().parse(text).find_all(nodes.Name) if one.ctx == "load"}
    except TemplateSyntaxError:
        # A lookup in the first line of an expression.
        found = {*re.findall(r"\b[a-z_]\w*\b(?![(=])", re.sub(r"'[^']*'|\w+=\w+|[|]\s*\w+", "", text))}
    return found - {"lookup", "query"}


_CONTENTS = {
    path: (ROOT / path).read_text()
    for path in TASK_FILES
    if path.parts[0] == "roles" and path.parts[2] in ("tasks", "handlers", "vars")
}


@pytest.mark.parametrize("path", sorted(path for path in _CONTENTS if by_variables(_CONTENTS[path])), ids=str)
def test_no_host_names_a_file_of_the_controller_or_what_is_done_on_another_host(path: Path) -> None:
    """Where facts become variables, they come before defaults and inventory; results of role_plan are checked."""
    names = Names.of({one: text for one, text in _CONTENTS.items() if one.parts[1] in (path.parts[1], "common")})
    uses = by_variables(_CONTENTS[path])
    assert {use.text: sorted(wrong) for use in uses if (wrong := names.untrusted(use))} == {}


@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        ("- command: {argv: [a]}\n  delegate_to: '{{ docker_host }}'", {"docker_host"}),
        ("- ansible.builtin.command: {argv: [a]}\n  delegate_to: '{{ __plan.host }}'", set()),
        ("- ansible.builtin.command: {argv: [a]}\n  delegate_to: '{{ __other }}'", {"__other"}),
        ("- ansible.builtin.command: {argv: ['{{ __read.stdout }}']}\n  delegate_to: a", {"__read of command"}),
        ("- ansible.builtin.copy: {src: '{{ item }}', dest: a}\n  loop: '{{ __plan.files }}'", set()),
        ("- ansible.builtin.copy: {src: '{{ item }}', dest: a}\n  loop: '{{ files }}'", {"files"}),
        ("- ansible.builtin.copy: {src: '{{ __ours }}', dest: a}", set()),
        ("- ansible.builtin.copy: {src: '{{ __theirs }}', dest: a}", {"public"}),
        ("- delegate_to: a\n  block: [{ansible.builtin.file: {path: '{{ public }}'}}]", {"public"}),
        ("- delegate_to: a\n  block: [{gpu.fleet.role_plan: {facts: '{{ __read }}'}}]", set()),
    ],
)
def test_the_search_for_what_a_host_may_name_finds_it(task: str, wrong: set[str]) -> None:
    tasks = (
        "- gpu.fleet.role_plan: {role: a}\n  register: __plan\n"
        "- ansible.builtin.command: {argv: [a]}\n  register: __read\n"
    )
    own = "__ours: '{{ __plan.file }}/{{ inventory_hostname }}'\n__theirs: '{{ __ours }}{{ public }}'\n"
    names = Names.of({Path("roles/a/tasks/main.yml"): tasks, Path("roles/a/vars/main.yml"): own})
    assert {name for use in by_variables(task) for name in names.untrusted(use)} == wrong


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
        assert by_variables(text), text
    for text in (
        "- ansible.builtin.copy: {src: '{{ a }}', dest: /b, remote_src: true}",
        "- ansible.builtin.copy: {src: a.sh, dest: '{{ b }}'}",
        "- ansible.builtin.include_tasks: 'install_{{ a }}.yml'",
        "a: \"{{ lookup('ansible.builtin.file', 'a.json') }}\"",
        "a: \"{{ lookup('ansible.builtin.config', 'A') }}\"",
    ):
        assert not by_variables(text), text
