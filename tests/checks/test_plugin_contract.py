# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of plugins: valid examples, `version_added`, and a test for each plugin."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from tests.checks.tools import ROOT, VENV, check, project_files

PLUGINS = [
    path
    for path in project_files(".py")
    # An action is documented as the module of its name.
    if path.parts[0] == "plugins" and path.parts[1] not in ("action", "module_utils", "plugin_utils", "doc_fragments")
]
MODULES = [path.stem for path in PLUGINS if path.parts[1] == "modules"]
MAIN_LINES, CODE_LINES = 15, 40
"""Most lines of a module's main, and of all its code without documentation and argument spec."""

TASK_KEYWORDS = {"name", "register", "when", "loop", "vars", "become", "notify", "changed_when", "failed_when", "until"}
TASK_KEYWORDS |= {
    "retries",
    "delay",
    "loop_control",
    "delegate_to",
    "run_once",
    "ignore_unreachable",
    "tags",
    "no_log",
    "check_mode",
    "diff",
}


@functools.cache
def _documented(kind: str, name: str) -> dict[str, Any]:
    output = check([VENV / "bin" / "ansible-doc", "--json", "-t", kind, f"gpu.fleet.{name}"])
    found: dict[str, Any] = json.loads(output)[f"gpu.fleet.{name}"]
    return found


def _kind(path: Path) -> str:
    return path.parts[1].removesuffix("s")


def _tasks(block: Any) -> Iterator[dict[str, Any]]:
    for task in block or ():
        if "hosts" in task:
            yield from _tasks([*task.get("pre_tasks", ()), *task.get("tasks", ()), *task.get("post_tasks", ())])
            continue
        inner = [part for key in ("block", "rescue", "always") for part in task.get(key, ())]
        if inner:
            yield from _tasks(inner)
        else:
            yield task


def _argument_spec(options: dict[str, Any]) -> dict[str, Any]:
    """The argument spec that the documentation describes."""
    kept = ("type", "elements", "choices", "required", "default")
    spec: dict[str, Any] = {}
    for name, option in options.items():
        spec[name] = {key: option[key] for key in kept if option.get(key) is not None}
        if option.get("suboptions"):
            spec[name]["options"] = _argument_spec(option["suboptions"])
    return spec


def _without_templates(value: Any) -> Any:
    """The value without templates, which only a run can evaluate."""
    if isinstance(value, dict):
        return {key: _without_templates(item) for key, item in value.items() if not _is_template(item)}
    return [_without_templates(item) for item in value if not _is_template(item)] if isinstance(value, list) else value


def _is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_tasks_that_the_documented_options_allow(module: str) -> None:
    documented = _documented("module", module)
    spec = _argument_spec(documented["doc"]["options"])
    own = 0
    for task in _tasks(yaml.safe_load(documented["examples"])):
        actions = task.keys() - TASK_KEYWORDS
        assert [name for name in actions if name.count(".") != 2] == [], "a module has its full name"
        assert task["name"][0].isupper()
        if f"gpu.fleet.{module}" not in actions:
            continue
        own += 1
        arguments = task[f"gpu.fleet.{module}"] or {}
        templated = {name for name, value in arguments.items() if _is_template(value)}
        expected = {name: option for name, option in spec.items() if name not in templated}
        given = {name: _without_templates(value) for name, value in arguments.items() if name not in templated}
        assert ArgumentSpecValidator(expected).validate(given).error_messages == [], task["name"]
    assert own, "no example of its own"


@pytest.mark.parametrize("module", MODULES)
def test_module_is_documentation_options_and_a_short_main(module: str) -> None:
    tree = ast.parse((ROOT / "plugins" / "modules" / f"{module}.py").read_text(encoding="utf-8"))
    described = ("DOCUMENTATION", "EXAMPLES", "RETURN", "ARGUMENT_SPEC")
    code = {
        node: (node.end_lineno or node.lineno) - node.lineno + 1
        for node in tree.body
        if not isinstance(node, ast.Expr) and not any(name in described for name in _assigned(node))
    }
    defined = [node for node in code if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert [node.name for node in defined] == ["main"], "what a module does belongs in plugins/module_utils"
    assert code[defined[0]] <= MAIN_LINES
    assert sum(code.values()) <= CODE_LINES


@pytest.mark.parametrize("path", [path for path in project_files(".py") if path.parts[0] == "plugins"], ids=str)
def test_a_failure_has_its_message_once(path: Path) -> None:
    """With `exception=`, Ansible prints the message of each exception in its chain, each with that of its cause."""
    calls = [
        node for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
    failing = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "fail_json"]
    assert [call.lineno for call in failing for keyword in call.keywords if keyword.arg == "exception"] == []


@pytest.mark.parametrize("kind", ["filter", "test"])
def test_each_filter_and_test_has_its_own_documentation(kind: str) -> None:
    """Ansible prefers the documentation in a file of Python, whichever of its filters is asked for."""
    directory = ROOT / "plugins" / kind
    for path in directory.glob("*.py"):
        plugin = importlib.import_module(f"ansible_collections.gpu.fleet.plugins.{kind}.{path.stem}")
        names = {*(plugin.FilterModule().filters() if kind == "filter" else plugin.TestModule().tests())}
        inside = {path.stem} if hasattr(plugin, "DOCUMENTATION") else set()
        assert names == (inside or {name for name in names if (directory / f"{name}.yml").is_file()}), path


MODULES_OF_ROLES = {
    "archive_directory",
    "containerd_runtime",
    "crio_runtime",
    "daemon_json",
    "file_set",
    "package_pin",
    "package_transaction",
    "role_plan",
    "signed_repository",
    "systemd_reload",
    "unit_restart",
}
"""Modules that only the roles of this collection are meant to call."""


@pytest.mark.parametrize("module", MODULES)
def test_documentation_separates_modules_of_roles_from_those_for_playbooks(module: str) -> None:
    of_roles = module in MODULES_OF_ROLES
    first = _documented("module", module)["doc"]["description"][0]
    assert (first.startswith("Made for the role") and "options may change" in first) is of_roles
    section = (ROOT / "docs" / "roles.md").read_text(encoding="utf-8").partition("\n## Modules of the roles\n")[2]
    assert (f"`{module}`" in section.partition("\n## ")[0]) is of_roles
    assert (f"`{module}`" in (ROOT / "docs" / "README.md").read_text(encoding="utf-8")) is not of_roles
    called = [
        path
        for path in project_files(".yml")
        if path.parts[0] in ("playbooks", "roles")
        and f"gpu.fleet.{module}:" in (ROOT / path).read_text(encoding="utf-8")
    ]
    if of_roles:
        assert "roles" in {path.parts[0] for path in called}


@pytest.mark.parametrize("path", [path for path in PLUGINS if path.parts[1] == "filter"], ids=str)
def test_filter_takes_the_options_that_are_documented(path: Path) -> None:
    plugin = importlib.import_module(f"ansible_collections.gpu.fleet.plugins.filter.{path.stem}")
    parameters = list(inspect.signature(plugin.FilterModule().filters()[path.stem]).parameters)[1:]
    documented = _documented("filter", path.stem)["doc"]
    options = [name for name in documented["options"] if name != "_input"]
    assert sorted(options) == sorted(parameters)
    positional = documented.get("positional") or []
    named = positional if isinstance(positional, list) else re.split(r",\s*", positional)
    assert [name for name in named if name != "_input"] == parameters


def _assigned(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@pytest.mark.parametrize("module", MODULES)
def test_module_has_a_unit_test(module: str) -> None:
    tests = [
        path for path in project_files(".py") if path.parts[:2] == ("tests", "unit") and path.name.startswith("test_")
    ]
    assert [path for path in tests if re.search(rf"\b{module}\b", (ROOT / path).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", PLUGINS, ids=str)
def test_plugin_states_since_which_version_it_is_there(path: Path) -> None:
    added = _documented(_kind(path), path.stem)["doc"].get("version_added")
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    assert added, "version_added is missing"
    major, minor, _patch = map(int, version.split("."))
    # Of galaxy.yml is the last release; what was added since is in the next.
    assert tuple(map(int, added.split("."))) <= (major, minor + 1, 0)


@pytest.mark.parametrize("path", PLUGINS, ids=str)
def test_changelog_lists_the_plugin_in_the_release_that_added_it(path: Path) -> None:
    added = _documented(_kind(path), path.stem)["doc"].get("version_added")
    releases = yaml.safe_load((ROOT / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))["releases"]
    # An unreleased version gets its list with the release.
    if added in releases:
        release = releases[added]
        kind = _kind(path)
        listed = release.get("modules", []) if kind == "module" else release.get("plugins", {}).get(kind, [])
        assert path.stem in [plugin["name"] for plugin in listed]


@pytest.mark.parametrize(
    "path", [path for path in project_files(".py") if path.parts[:2] == ("plugins", "module_utils")], ids=str
)
def test_module_utils_are_private(path: Path) -> None:
    assert path.parts[2].startswith("_")
    assert "rivate" in (ROOT / path).read_text(encoding="utf-8").partition("from __future__")[0], (
        "states it in its docstring"
    )
