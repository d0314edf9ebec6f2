# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No YAML of roles and playbooks reads a public variable itself: a fact of the host may have its name.

It reads `variables` of a registered result of host_facts or role_plan, which have looked at the facts of the host
first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import public_names
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_names import GIVEN
from jinja2 import Environment, nodes

from tests.checks.tools import ROOT, project_files

# Of regular expressions in templates.
pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")
NAMES = public_names().names
# The report's template has no variables of Ansible.
FILES = {
    path: (ROOT / path).read_text(encoding="utf-8")
    for path in project_files(".yml", ".j2")
    if path.parts[0] in ("roles", "playbooks")
    and not {"meta", "defaults", "files", "molecule"} & {*path.parts}
    and path.parts[1] != "templates"
}
# Ansible evaluates these without braces.
EXPRESSIONS = ("when", "until", "changed_when", "failed_when", "break_when", "that", "var")
JINJA = Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])
ANY, VARIABLES = "a variable of any name", "variables"


class _Loader(yaml.SafeLoader):
    """Takes `!vault` and `!unsafe`, which have no expressions."""


_Loader.add_multi_constructor("!", lambda _loader, _suffix, _node: None)


@dataclass(frozen=True)
class Read:
    """A public variable in an expression: what it is read of, empty for itself, and where it is in the YAML."""

    name: str
    of: str = ""
    keys: tuple[str, ...] = ()


def reads(text: str, suffix: str = ".yml") -> list[Read]:
    """The public variables that a file reads."""
    return list(_of_data(list(yaml.load_all(text, _Loader)) if suffix == ".yml" else text))


def _of_data(value: Any, keys: tuple[str, ...] = ()) -> Iterator[Read]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _of_data(str(key), keys)
            yield from _of_data(item, (*keys, str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from _of_data(item, keys)
    elif isinstance(value, str):
        is_expression = keys[-1:] and keys[-1] in EXPRESSIONS and "{{" not in value
        for name, of in _of_template(f"{{{{ {value} }}}}" if is_expression else value):
            yield Read(name, of, keys)


def _of_template(text: str) -> Iterator[tuple[str, str]]:
    """Names, each with the result. Any word that is a name counts, so that no way to read a variable is missed."""
    tree = JINJA.parse(text)
    taken: set[int] = set()
    node: Any
    for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
        if _last(node) in NAMES:
            taken |= {id(node), id(getattr(node, "arg", None))}
            of = _last(node.node)
            yield _last(node), f"{_last(node.node.node)}.{of}" if of == VARIABLES else of
        is_of_host = _last(node.node) == "vars" or _last(getattr(node.node, "node", None)) == "hostvars"
        if is_of_host and isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
            yield ANY, ""
    for node in tree.find_all(nodes.Const):
        if re.fullmatch(r"(ansible\.builtin\.)?var(s|names)", str(node.value)):
            yield ANY, ""
    for node in tree.find_all((nodes.Name, nodes.Getattr, nodes.Const)):
        if _last(node) in NAMES and id(node) not in taken and getattr(node, "ctx", "load") == "load":
            yield _last(node), ""


def _last(node: Any) -> str:
    """The name that an expression ends with."""
    if isinstance(node, nodes.Getitem):
        return _last(node.arg) if isinstance(node.arg, nodes.Const) else ""
    found = getattr(node, "value", None) if isinstance(node, nodes.Const) else None
    return str(found or getattr(node, "attr", "") or getattr(node, "name", ""))


def _tasks(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
    for item in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _tasks(item)


def returned(paths: Iterable[Path]) -> dict[str, set[str]]:
    """The public variables that these files get from doors, by what they are read of."""
    data = [list(yaml.load_all(FILES[path], _Loader)) for path in paths if path.suffix == ".yml"]
    lists = {key: value for part in _tasks(data) for key, value in part.items() if isinstance(value, list)}
    found: dict[str, set[str]] = {}
    for task in _tasks(data):
        names = (task.get("gpu.fleet.host_facts") or {}).get("variables", [])
        if isinstance(names, str):
            names = [one for name in re.findall(r"\w+", names) for one in lists.get(name, [])]
        role = (task.get("gpu.fleet.role_plan") or {}).get("role", "")
        if "register" in task:
            of = f"{task['register']}.{VARIABLES}"
            found.setdefault(of, set()).update(names, PLANNERS[role].reads if role in PLANNERS else ())
    for part in _tasks(data):
        for key, value in part.items():
            alias = (
                re.fullmatch(r"\{\{ (?:hostvars\[\w+\]\.)?(\w+\.variables) \}\}", value)
                if isinstance(value, str)
                else None
            )
            if alias and key != VARIABLES:
                found[key] = found.get(alias[1], set())
    return found


def tree(playbook: Path) -> set[Path]:
    """The playbook with all files that it, or one of them, includes: each that fits where part of the name is made."""
    found, rest = {playbook}, [playbook]
    while rest:
        path = rest.pop()
        text = re.sub(r"'(\w+/)' ~ \w+ ~ '\.yml'.*", r"\1*.yml", FILES[path])
        for name in re.findall(r"[\w./*]+\.(?:yml|j2)\b", re.sub(r"\{\{[^{}]*\}\}/?", "*", text)):
            named = {
                os.path.normpath(base / name) for base in (path.parent, path.parent / "templates", Path("playbooks"))
            }
            new = {one for one in FILES if any(fnmatch(str(one), pattern) for pattern in named)} - found
            rest += new
            found |= new
    return found


TREES = {
    **{
        path.parts[1]: {one for one in FILES if one.parts[:2] == path.parts[:2]}
        for path in FILES
        if path.parts[0] == "roles"
    },
    **{path.name: tree(path) for path in FILES if path.parts[0] == "playbooks" and len(path.parts) == 2},
}
"""The files that run together, by role and by playbook."""


@dataclass(frozen=True)
class Allowed:
    """Where a variable may be read itself, and why: expressions for the path, the name, and the place in the YAML."""

    reason: str
    path: str = ".*"
    name: str = ".*"
    place: str = ".*"


# Files of a role that others include, with the variables that each include gives.
PARAMETERS = {
    "daemon_options.yml": ("docker_daemon_conflict", "docker_daemon_earlier", "docker_daemon_merge"),
    "smoke_test.yml": tuple(f"nvidia_container_toolkit_smoke_{name}" for name in ("engine", "image", "requests")),
}
EXCEPTIONS = (
    Allowed("a play has no host yet", r"playbooks/\w+\.yml", "gpu_fleet_targets", "hosts"),
    Allowed("the door itself refuses first", name="gpu_fleet_roles", place=r".*gpu\.fleet\.host_facts/roles"),
    Allowed(
        "vars of each include, after facts",
        r"roles/docker/tasks/(daemon_options|restart_plan)\.yml",
        "docker_daemon_.*",
    ),
    Allowed(
        "vars of each include, after facts", "roles/nvidia_container_toolkit/.*", "nvidia_container_toolkit_smoke_.*"
    ),
    Allowed("given by set_fact and vars, after facts", name="|".join(GIVEN)),
    Allowed("makes hosts for tests, and works on no other", "roles/gpu_simulator/.*", "gpu_simulator_.*"),
    # Of a task on the host itself, which it deceives alone.
    Allowed("a password, which no result has", r".*/secure_boot/enroll\.yml", "nvidia_driver_mok_password"),
    Allowed("may have a password, which no result has", r"roles/cuda/.*", "cuda_runfiles", ".*get_url/url"),
)


def exception(path: Path, read: Read) -> Allowed | None:
    """The row that allows a read."""
    where = str(path), read.name, "/".join(read.keys)
    rows = (one for one in EXCEPTIONS if all(map(re.fullmatch, (one.path, one.name, one.place), where)))
    return next(rows, None)


@pytest.mark.parametrize("name", sorted(TREES))
def test_variables_are_read_of_results(name: str) -> None:
    known = returned(TREES[name])
    wrong = {
        f"{path}: {one.name} of {one.of or 'nothing'} in {'/'.join(one.keys)}"
        for path in TREES[name]
        for one in reads(FILES[path], path.suffix)
        if one.name not in known.get(one.of, ()) and not exception(path, one)
    }
    assert sorted(wrong) == []


def test_planners_return_no_variable_that_no_task_reads() -> None:
    read = {one.name for path, text in FILES.items() for one in reads(text, path.suffix) if one.of}
    assert {name for planner in PLANNERS.values() for name in planner.reads} - read == set()


@pytest.mark.parametrize("file", PARAMETERS)
def test_each_include_gives_the_variables_of_the_file(file: str) -> None:
    given = [
        {*task.get("vars", ())}
        for path, text in FILES.items()
        if path.suffix == ".yml"
        for task in _tasks(list(yaml.load_all(text, _Loader)))
        if (task.get("ansible.builtin.include_role") or {}).get("tasks_from") == file
    ]
    assert given
    assert [names for names in given if not names >= {*PARAMETERS[file]}] == []


def test_each_exception_is_needed() -> None:
    rows = {exception(path, one) for path, text in FILES.items() for one in reads(text, path.suffix)}
    assert {*EXCEPTIONS} - rows == set()


@pytest.mark.parametrize(
    "text",
    [
        "loop: '{{ docker_users }}'",
        "when: docker_purge and x",
        "when: [x, docker_purge]",
        "name: 'x {{ docker_users | default([]) }}'",
        "vars: {docker_users: '{{ docker_users }}'}",
        "a: {b: [{c: '{% if docker_purge %}x{% endif %}'}]}",
        "'{{ docker_users }}': 1",
        "that: [docker_purge]",
        "a: \"{{ vars['docker_users'] }}\"",
        "a: '{{ vars.docker_users }}'",
        "a: \"{{ lookup('vars', 'docker_users') }}\"",
        "a: \"{{ q('ansible.builtin.vars', 'docker_' ~ x) }}\"",
        "a: '{{ vars[x] }}'",
        "a: '{{ hostvars[x].docker_users }}'",
        "a: \"{{ hostvars['x']['docker_users'] }}\"",
        "a: \"{{ hostvars[x]['docker_' ~ y] }}\"",
        "a: \"{{ groups['all'] | map('extract', hostvars, 'docker_users') }}\"",
        "a: '{{ ansible_facts.docker_users }}'",
        # The result of another task than a door.
        "a: '{{ __docker_variables.docker_users }}'",
    ],
)
def test_the_search_finds(text: str) -> None:
    (found, *_more) = reads(text)
    assert found.name in ("docker_purge", "docker_users", ANY) and not found.of.endswith(".variables")


@pytest.mark.parametrize(
    "text",
    [
        "docker_users: 1",
        "a: docker_users",
        "when: x_docker_users",
        "a: !unsafe '{{ docker_users }}'",
        "var: item.docker",
    ],
)
def test_the_search_does_not_find(text: str) -> None:
    assert reads(text) == []


@pytest.mark.parametrize(
    "text", ["__x.variables.docker_users", "__x['variables']['docker_users']", "hostvars[y].__x.variables.docker_users"]
)
def test_the_search_knows_the_result(text: str) -> None:
    assert reads(f'a: "{{{{ {text} | default(1) }}}}"') == [Read("docker_users", "__x.variables", ("a",))]


def test_playbooks_have_the_files_that_they_include() -> None:
    files = {str(path.relative_to("playbooks")) for path in TREES["remediate.yml"]}
    assert files >= {"tasks/site.yml", "remediate_tasks/vars.yml", "remediate_tasks/remedies/power_cycle.yml"}
    assert files >= {"upgrade_tasks/steps/return.yml", "upgrade_tasks/schedulers/kubernetes/node.yml"}
    assert not [name for name in files if name.startswith("pull")]
    assert {*FILES} - {path for paths in TREES.values() for path in paths} == set()
