# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every block of the guides: YAML against the options of modules and roles, shell lines against what they call.

Tasks and plays of the modules about GPUs are run in check mode, against the simulated nvidia-smi. The rest needs hosts,
package managers or vendors' servers. The scenario of docs/testing-without-a-gpu.md runs in
tests/system/test_documented_scenario.py.
"""

from __future__ import annotations

import configparser
import functools
import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from tests.checks.conftest import Reported
from tests.checks.test_plugin_contract import TASK_KEYWORDS, _is_template, _without_templates
from tests.checks.tools import ROOT, VENV, check, environment, project_files
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable

PAGES = [
    path
    for path in project_files(".md")
    if len(path.parts) == 1
    or path.parts[0] in ("docs", "examples")
    or (path.parts[0] == "roles" and len(path.parts) == 3)
]
SHELL = {"sh"}
# Languages that another file checks.
ELSEWHERE = {"text": "test_outputs.py", "mermaid": "test_layers.py"}
MODULES = {path.stem for path in project_files(".py") if path.parts[:2] == ("plugins", "modules")}
PLAYBOOKS = {path.stem for path in project_files(".yml") if path.parent == Path("playbooks")}
ROLES = {path.parts[1] for path in project_files() if path.parts[0] == "roles"}
RESULTS = {
    "gpu_health_result": "what gpu_health sets",
    "gpu_workload_result": "what gpu_workload sets",
    "nvidia_container_toolkit_seen": "what nvidia_container_toolkit sets",
}
PLAY_KEYWORDS = TASK_KEYWORDS | {
    "block",
    "rescue",
    "always",
    "args",
    "environment",
    "ignore_errors",
    "no_log",
    "any_errors_fatal",
}
# What an example may have to be run: nothing of it changes a host in check mode or reads another part of it.
RUN = {
    *(f"gpu.fleet.{name}" for name in ("ecc_mode", "gpu_health", "gpu_settings", "mig_profile", "nvidia_smi_facts")),
    *(f"ansible.builtin.{name}" for name in ("assert", "debug", "group_by", "reboot")),
}
FROM_A_FILE = "lookup('ansible.builtin.file'"
IN_A_SCENARIO = Path("docs/testing-without-a-gpu.md")
# Programs that a shell line may begin with.
PROGRAMS = {
    ".cache/venv/bin/pytest",
    "ansible-doc",
    "ansible-galaxy",
    "ansible-lint",
    "ansible-playbook",
    "ansible-vault",
    "antsibull-changelog",
    "apt-get",
    "cd",
    "cp",
    "curl",
    "dnf",
    "docker",
    "dockerd-rootless-setuptool.sh",
    "dpkg-repack",
    "echo",
    "git",
    "gpg",
    "gpu-simulator",
    "grep",
    "journalctl",
    "kubectl",
    "make",
    "mkdir",
    "modinfo",
    "modprobe",
    "mokutil",
    "molecule",
    "nvidia-ctk",
    "nvidia-docker",
    "nvidia-smi",
    "openssl",
    "pip",
    "podman",
    "pytest",
    "python3",
    "sha256sum",
    "ssh",
    "sudo",
    "systemctl",
}


class Block(NamedTuple):
    """A block of a page, without its indentation. kind: its language, `indented` for one without a fence."""

    page: Path
    line: int
    kind: str
    text: str


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        fence = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
        for match in fence.finditer(text):
            content = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
            yield Block(page, text[: match.start()].count("\n") + 1, match[2], content)
        rest = fence.sub(lambda match: re.sub(r".", "", match[0]), text)
        for match in re.finditer(r"(?:(?<=\n\n)|\A)((?: {4}\S.*\n)(?:(?: {4}.*)?\n)*)", rest):
            content = re.sub(r"^ {4}", "", match[1], flags=re.MULTILINE)
            yield Block(page, rest[: match.start()].count("\n") + 1, "indented", content)


BLOCKS = list(_blocks())


def _each(blocks: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", blocks, ids=lambda block: f"{block.page}:{block.line}")


def _is_yaml(block: Block) -> bool:
    return block.kind == "yaml" or (block.kind == "indented" and block.text.startswith("- "))


def _commands(block: Block) -> list[list[str]]:
    """The commands of a block of shell lines, each in words, without assignments before it."""
    lines = re.sub(r"\\\n\s*", " ", block.text).splitlines()
    parts = [part for line in lines for part in re.split(r"\s(?:&&|\|\||\||;)\s", re.sub(r"(^|\s)#.*", "", line))]
    commands = [shlex.split(part) for part in parts if part.strip()]
    return [words[next((i for i, word in enumerate(words) if "=" not in word), 0) :] for words in commands]


def _is_shell(block: Block) -> bool:
    if block.kind in SHELL:
        return True
    if block.kind != "indented" or _is_yaml(block):
        return False
    first = re.sub(r"^(?:[A-Z_]+=\S+ +)*", "", block.text).split()
    return bool(first) and first[0] in PROGRAMS


@functools.cache
def role_options() -> dict[str, dict[str, Any]]:
    """The variables of all roles, with their part of the argument spec."""
    options: dict[str, dict[str, Any]] = {}
    for path in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            options.update(entry.get("options") or {})
    return options


def _spec(option: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: option[key] for key in ("type", "elements", "choices") if key in option}
    if option.get("options"):
        kept["options"] = {
            name: _spec(inner) | {"required": inner.get("required", False)} for name, inner in option["options"].items()
        }
    return kept


def _errors(spec: dict[str, Any], values: dict[str, Any]) -> list[str]:
    given = {name: _without_templates(value) for name, value in values.items() if not _is_template(value)}
    spec = {name: option for name, option in spec.items() if name in given or not _is_template(values.get(name))}
    found: list[str] = ArgumentSpecValidator(spec).validate(json.loads(json.dumps(given, default=str))).error_messages
    return found


def _mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _mappings(item)


@_each([block for block in BLOCKS if _is_yaml(block)])
def test_yaml_has_options_and_variables_that_exist(block: Block) -> None:
    problems = []
    for mapping in _mappings(yaml.safe_load(block.text)):
        for name, value in mapping.items():
            module = str(name).removeprefix("gpu.fleet.")
            if str(name).startswith("gpu.fleet.") and module in MODULES and (isinstance(value, dict) or value is None):
                spec = importlib.import_module(f"ansible_collections.gpu.fleet.plugins.modules.{module}").ARGUMENT_SPEC
                problems += [f"{name}: {error}" for error in _errors(spec, value or {})]
            elif str(name).startswith("gpu.fleet.") and module not in MODULES:
                problems.append(f"{name} is no module")
            elif name in ("role", "name") and str(value).startswith("gpu.fleet.") and module_of(value) not in ROLES:
                problems.append(f"{value} is no role")
            elif (
                any(str(name).startswith(f"{role}_") for role in ROLES) and name not in MODULES and name not in RESULTS
            ):
                option = role_options().get(name)
                problems += (
                    [f"{name} is no variable"] if option is None else _errors({name: _spec(option)}, {name: value})
                )
    assert problems == []


def module_of(name: object) -> str:
    """The part of a full name after the collection's."""
    return str(name).removeprefix("gpu.fleet.")


@_each([block for block in BLOCKS if _is_shell(block)])
def test_shell_lines_call_what_exists(block: Block) -> None:
    parsed = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert parsed.returncode == 0, parsed.stderr
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for program, *words in _commands(block):
        assert program in PROGRAMS, program
        for word in words:
            if word.startswith("gpu.fleet.") and program == "ansible-playbook":
                assert module_of(word) in PLAYBOOKS, word
            if word.startswith(("playbooks/", "tests/", "inventories/")):
                assert (ROOT / word.partition("::")[0]).exists(), word
            if program == "make" and re.fullmatch(r"[a-z-]+", word) and word == words[0]:
                assert re.search(rf"^[\w -]*\b{word}\b[\w -]*:", makefile, re.MULTILINE), word
            name = word.partition("=")[0]
            if program == "ansible-playbook" and any(name.startswith(f"{role}_") for role in ROLES):
                assert name in role_options(), word


def _tasks(value: Any) -> Iterator[dict[str, Any]]:
    """The tasks of a document of tasks or plays; none for another document."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and "tasks" in item:
            yield from _tasks(item["tasks"])
        elif isinstance(item, dict):
            yield item


def _is_run(block: Block) -> bool:
    """Whether a block has only tasks that can be run here. That of a file which is not on the page cannot."""
    if not _is_yaml(block) or block.page == IN_A_SCENARIO or FROM_A_FILE in block.text:
        return False
    names = {name for task in _tasks(yaml.safe_load(block.text)) for name in task if name not in PLAY_KEYWORDS}
    return names <= RUN and any(name.startswith("gpu.fleet.") for name in names)


def _plays(block: Block, host: str, directory: Path) -> list[dict[str, Any]]:
    """The plays of a block on a host of its own, with the GPUs that it is about."""
    model = "a100_40gb" if re.search(r"A100|\b1g\.5gb", block.text) else "h200"
    document = yaml.safe_load(block.text)
    plays = document if "hosts" in document[0] else [{"hosts": "gpu", "tasks": document}]
    # Of this machine nothing is read that an example leaves to its defaults.
    defaults = {"gpu.fleet.gpu_health": {"kernel_log": str(directory / "kernel.log"), "history": ""}}
    given = {
        "gather_facts": False,
        "environment": {"PATH": f"{directory / model}:{environment()['PATH']}"},
        "module_defaults": defaults,
    }
    return [{**play, **given, "hosts": host if play["hosts"] == "gpu" else play["hosts"]} for play in plays]


def test_tasks_run_in_check_mode(tmp_path: Path) -> None:
    """In one run of Ansible, since its start takes longer than most examples."""
    for model in ("h200", "a100_40gb"):
        (tmp_path / model).mkdir()
        Host(tmp_path / model, gpus=[{"model": model, "count": 8}])
        executable(tmp_path / model)
    (tmp_path / "kernel.log").write_text("Linux version 6.8.0\n")
    # A name is also that of a group in Ansible's output, and a failure has to lead to its block.
    blocks = {f"{block.page.stem}-{block.line}": block for block in BLOCKS if _is_run(block)}
    assert len(blocks) > 10
    plays = [play for host, block in blocks.items() for play in _plays(block, host, tmp_path)]
    (tmp_path / "examples.json").write_text(json.dumps(plays), encoding="utf-8")
    variables = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    inventory = {"all": {"hosts": {host: {} for host in blocks}, "vars": variables}}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory), encoding="utf-8")
    check(
        [VENV / "bin" / "ansible-playbook", "--check", "-i", tmp_path / "inventory.json", tmp_path / "examples.json"],
        cwd=tmp_path,
    )


def test_each_block_is_counted(reported: Reported) -> None:
    run = [block for block in BLOCKS if _is_run(block)]
    scenario = [block for block in BLOCKS if block.page == IN_A_SCENARIO and _is_yaml(block)]
    elsewhere = [block for block in BLOCKS if block.kind in ELSEWHERE]
    checked = len(BLOCKS) - len(run) - len(scenario) - len(elsewhere)
    reported(
        "examples",
        f"{len(run)} of {len(BLOCKS)} blocks run here, {len(scenario)} in a scenario of molecule, {checked} are checked"
        f" against modules, roles and programs, {len(elsewhere)} are output and a picture that other checks compare",
    )
    assert checked > 0


@_each([block for block in BLOCKS if block.kind in ("ini", "json")])
def test_configuration_can_be_read(block: Block) -> None:
    if block.kind == "json":
        json.loads(block.text)
    else:
        configparser.ConfigParser().read_string(block.text)


def test_no_block_is_left_out() -> None:
    """A block has a language that is checked here or in another file."""
    kinds = {block.kind for block in BLOCKS}
    assert kinds <= {"yaml", "ini", "json", "indented"} | SHELL | set(ELSEWHERE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu_health_ignore: [no_such_code]", "no_such_code"),
        ("docker_colour: red", "docker_colour is no variable"),
        ("- gpu.fleet.gpu_settings: {watts: 3}", "watts"),
        ("- gpu.fleet.no_such: {}", "gpu.fleet.no_such is no module"),
        ("roles: [{role: gpu.fleet.no_such}]", "gpu.fleet.no_such is no role"),
    ],
)
def test_a_wrong_example_is_found(text: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(problem)):
        test_yaml_has_options_and_variables_that_exist(Block(Path("page.md"), 1, "yaml", text))
