# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defaults and argument_specs of a role describe the same variables with the same values, and README has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import tables
from tests.checks.tools import ROOT, project_files

ROLES = sorted({name.parts[1] for name in project_files() if name.parts[0] == "roles"})
TASK_FILES = [
    name for name in project_files(".yml") if name.parts[0] == "roles" and name.parts[2] in ("tasks", "handlers")
]
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "path": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "list": (list,),
    "dict": (dict,),
    # The role reads the value itself, and refuses another form in words of its own.
    "raw": (list, dict),
}
for_each_role = pytest.mark.parametrize("role", ROLES)


def _load(*parts: str) -> Any:
    path = ROOT.joinpath("roles", *parts)
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def _entry_points(role: str) -> dict[str, dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = _load(role, "meta", "argument_specs.yml")["argument_specs"]
    return specs


def _options(role: str) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = _entry_points(role)["main"].get("options", {})
    return options


def _defaults(role: str) -> dict[str, Any]:
    defaults: dict[str, Any] = _load(role, "defaults", "main.yml")
    return defaults


def _is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


@for_each_role
def test_role_is_complete(role: str) -> None:
    needed = ("README.md", "defaults/main.yml", "meta/argument_specs.yml", "meta/main.yml", "tasks/main.yml")
    assert [name for name in needed if not (ROOT / "roles" / role / name).is_file()] == []


@for_each_role
def test_defaults_agree_with_argument_specs(role: str) -> None:
    optional = {name: spec for name, spec in _options(role).items() if not spec.get("required")}
    assert _defaults(role).keys() == optional.keys()
    # A default that depends on the host is a template, which argument_specs cannot hold.
    fixed = {name: value for name, value in _defaults(role).items() if not _is_template(value)}
    assert fixed == {name: spec["default"] for name, spec in optional.items() if "default" in spec}


@for_each_role
def test_defaults_have_the_type_that_argument_specs_report(role: str) -> None:
    for name, value in _defaults(role).items():
        spec = _options(role)[name]
        assert "description" in spec, name
        if _is_template(value):
            continue
        # In Python a bool is an int; in the documentation it is not.
        assert isinstance(value, TYPES[spec["type"]]), name
        assert not isinstance(value, bool) or spec["type"] == "bool", name
        values = value if isinstance(value, list) else [value]
        assert "choices" not in spec or set(values) <= set(spec["choices"]), name


@for_each_role
def test_readme_has_a_table_for_each_entry_point(role: str) -> None:
    """tests/checks/test_tables.py holds what is in it."""
    text = (ROOT / "roles" / role / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"<!-- variables of (\w+):", text) == tables.entry_points(role)
    outside = tables.BLOCK.sub("", text)
    assert re.findall(rf"^\| *`({role}_\w+)` *\|[^|]*\|[^|]*\|$", outside, re.MULTILINE) == []


@for_each_role
def test_variables_carry_the_name_of_the_role(role: str) -> None:
    public = [name for spec in _entry_points(role).values() for name in spec.get("options", {})]
    assert [name for name in public if not name.startswith(f"{role}_")] == []
    internal = [
        name for path in (ROOT / "roles" / role / "vars").glob("**/*.yml") for name in _load(role, "vars", path.name)
    ]
    assert [name for name in internal if not name.startswith(f"__{role}_")] == []


def _tasks(block: Any) -> Iterator[dict[str, Any]]:
    """Every task of a list, including those in blocks."""
    for task in block or ():
        yield task
        for part in ("block", "rescue", "always"):
            yield from _tasks(task.get(part))


@pytest.mark.parametrize("path", TASK_FILES, ids=str)
def test_registered_and_set_variables_are_internal(path: Path) -> None:
    role = path.parts[1]
    inputs = {name for spec in _entry_points(role).values() for name in spec.get("options", {})}
    for task in _tasks(yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))):
        assert str(task.get("register", f"__{role}_")).startswith(f"__{role}_"), task["name"]
        facts = set(task.get("ansible.builtin.set_fact", ())) - {"cacheable"}
        assert not facts & inputs, f"{task['name']}: an input is never set again"


@pytest.mark.parametrize("path", TASK_FILES, ids=str)
def test_task_file_is_short(path: Path) -> None:
    limit = 40 if path.match("tasks/main.yml") else 100
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= limit


# Roles that no host of the scenarios can run, and why.
NOT_IN_MOLECULE = {
    "enroot": "needs the sources of enroot and pyxis; tests/system/test_enroot.py runs it",
    "nvidia_dcgm": "needs hosts of both package managers; tests/system/test_dcgm.py runs it",
    "windows_gpu": "needs Windows; tests/unit/windows runs its tasks against mock modules",
}


@for_each_role
def test_molecule_runs_the_role(role: str) -> None:
    if role in NOT_IN_MOLECULE:
        pytest.skip(NOT_IN_MOLECULE[role])
    assert f"gpu.fleet.{role}" in _roles_in_molecule()


@functools.cache
def _roles_in_molecule() -> frozenset[str]:
    """Roles that the scenarios' playbooks run, and the playbooks and task files that those import or include."""
    waiting = [ROOT / name for name in project_files(".yml") if name.parts[0] == "molecule"]
    seen: set[Path] = set()
    roles: set[str] = set()
    while waiting:
        path = waiting.pop().resolve()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for entry in _mappings(yaml.safe_load(path.read_text(encoding="utf-8"))):
            if path.name == "molecule.yml":
                waiting += [path.parent / value for value in entry.values() if str(value).endswith(".yml")]
            roles.update(str(item.get("role") if isinstance(item, dict) else item) for item in entry.get("roles") or ())
            for word in ("include_role", "import_role"):
                roles.add(str((entry.get(f"ansible.builtin.{word}") or {}).get("name")))
            for word in ("include_tasks", "import_tasks", "import_playbook"):
                named = entry.get(f"ansible.builtin.{word}")
                named = named.get("file") if isinstance(named, dict) else named
                if named:
                    waiting.append(path.parent / str(named))
    return frozenset(roles)


def _mappings(value: object) -> Iterator[dict[str, Any]]:
    """Every mapping in a document, at any depth."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _mappings(item)


_MODULE = re.compile(r"(?!ansible\.builtin\.|gpu\.fleet\.)[a-z]+\.[a-z_]+\.[a-z0-9_]+")


@for_each_role
def test_a_controller_without_other_collections_reads_the_role(role: str) -> None:
    """What main.yml imports is read with it, before the plan can refuse a controller that lacks a collection."""
    tasks = ROOT / "roles" / role / "tasks"
    waiting, missing = [tasks / "main.yml"], []
    while waiting:
        path = waiting.pop()
        for entry in _mappings(yaml.safe_load(path.read_text(encoding="utf-8"))):
            missing += [f"{path.relative_to(ROOT)}: {key}" for key in entry if _MODULE.fullmatch(str(key))]
            if imported := entry.get("ansible.builtin.import_tasks"):
                waiting.append(tasks / imported.removeprefix("{{ role_path }}/tasks/"))
    assert missing == []


@for_each_role
def test_an_old_ansible_core_finds_imported_tasks_in_subdirectories(role: str) -> None:
    """2.16 looks through the files that included this one, and crashes at the one that included the role."""
    tasks = ROOT / "roles" / role / "tasks"
    found = [
        f"{path.relative_to(ROOT)}: {imported}"
        for path in tasks.rglob("*/*.yml")
        for entry in _mappings(yaml.safe_load(path.read_text(encoding="utf-8")))
        if (imported := str(entry.get("ansible.builtin.import_tasks", "")))
        and not imported.startswith("{{ role_path }}/")
    ]
    assert found == []


# Entry points other than main that a role's README offers to other roles.
ENTRY_POINTS = {"docker": {"daemon_options.yml"}}
# What a role is included with: a public variable would give way to one of -e.
ARGUMENTS = {"__nvidia_repository_needed"}


@for_each_role
def test_roles_do_not_reach_into_each_other(role: str) -> None:
    others = set(ROLES) - {role, "common"}
    internal = re.compile(rf"\b__({'|'.join(sorted(others))})_\w+")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted((ROOT / "roles" / role).rglob("*"))
        if path.suffix in (".yml", ".j2")
        for match in internal.finditer(path.read_text(encoding="utf-8"))
        if match[0] not in ARGUMENTS
    ]
    assert found == []


@pytest.mark.parametrize("path", TASK_FILES, ids=str)
def test_a_role_includes_of_others_only_what_they_offer(path: Path) -> None:
    for task in _tasks(yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))):
        include = task.get("ansible.builtin.include_role", {})
        other = include.get("name", "").removeprefix("gpu.fleet.")
        if "tasks_from" in include and other not in ("common", path.parts[1]):
            assert include["tasks_from"] in ENTRY_POINTS.get(other, ()), task["name"]


@pytest.mark.parametrize("path", TASK_FILES, ids=str)
def test_a_role_observes_the_host_where_it_plans(path: Path) -> None:
    """By role_plan, which reads nothing where the playbook has; not by a task that is skipped there."""
    alone = {"common/tasks/main.yml", "windows_gpu/tasks/refuse.yml"}
    found = [
        task["name"]
        for task in _tasks(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")) or ())
        if "ansible.builtin.setup" in task or "system" in (task.get("gpu.fleet.host_facts") or {}).get("gather", ())
    ]
    assert bool(found) == (path.relative_to("roles").as_posix() in alone)


@pytest.mark.parametrize("path", TASK_FILES, ids=str)
def test_packages_are_read_with_what_every_host_has(path: Path) -> None:
    """package_facts needs python3-apt or the bindings of rpm, for which it installs packages or fails."""
    names = [
        task["name"]
        for task in _tasks(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")) or ())
        if {"package_facts", "ansible.builtin.package_facts"} & set(task)
    ]
    assert names == []


@pytest.mark.parametrize("path", [path for path in TASK_FILES if path.parts[1] != "gpu_simulator"], ids=str)
def test_systemd_is_reloaded_with_a_warning_about_containers(path: Path) -> None:
    """A reload can take the GPUs from running containers: systemd_reload names them, and reloads only where needed."""
    names = []
    for task in _tasks(yaml.safe_load((ROOT / path).read_text(encoding="utf-8")) or ()):
        service = task.get("ansible.builtin.systemd_service", {})
        if service.get("daemon_reload", False) is not False or "daemon-reload" in str(
            task.get("ansible.builtin.command")
        ):
            names.append(task["name"])
    assert names == []


STEPS = ("observe", "plan", "preview", "install", "configure", "start", "verify", "record", "remove")
OTHER_WORDS = {"converge", "present", "absent", "variables"}
"""Names that files of the same step had in other roles."""


@for_each_role
def test_roles_share_one_shape(role: str) -> None:
    tasks = ROOT / "roles" / role / "tasks"
    assert {path.stem for path in tasks.rglob("*.yml")} & OTHER_WORDS == set()
    included = [
        str(task.get("ansible.builtin.include_tasks") or task.get("ansible.builtin.import_tasks") or "")
        for task in yaml.safe_load((tasks / "main.yml").read_text(encoding="utf-8"))
    ]
    named = [name.removesuffix(".yml").removesuffix("/main") for name in included]
    order = [STEPS.index(name) for name in named if name in STEPS]
    assert order == sorted(order)
    # Of these two the same tasks apply either state.
    if f"{role}_state" in _options(role) and role not in ("gpu_state", "gpu_containers"):
        assert (tasks / "remove.yml").is_file() or (tasks / "remove" / "main.yml").is_file()


def test_filters_that_roles_and_playbooks_use_are_there() -> None:
    known = {path.stem for path in (ROOT / "plugins" / "filter").iterdir()}
    used = {
        (str(path), name)
        for path in project_files()
        if path.parts[0] in ("roles", "playbooks") and path.suffix in (".yml", ".j2")
        for name in re.findall(r"\|\s*gpu\.fleet\.(\w+)", (ROOT / path).read_text(encoding="utf-8"))
    }
    assert {one for one in used if one[1] not in known} == set()
    assert used
