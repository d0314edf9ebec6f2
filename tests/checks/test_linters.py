# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Linters over the whole checkout, without ignore lists."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.checks.sanity import shellcheck
from tests.checks.tools import COLLECTIONS, ROOT, VENV, ToolError, check, environment, project_files, run

BIN = VENV / "bin"
# Where Ansible and its tools look for the collection; a link to the checkout.
COLLECTION = COLLECTIONS / "ansible_collections" / "gpu" / "fleet"
SHELLS = (b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash")


def _shell_scripts() -> list[Path]:
    return [name for name in project_files() if name.suffix == ".sh" or (ROOT / name).read_bytes().startswith(SHELLS)]


def test_ruff_finds_nothing() -> None:
    check([BIN / "ruff", "check", "--output-format=concise", "."])


def test_python_is_formatted_by_ruff() -> None:
    check([BIN / "ruff", "format", "--check", "."])


def test_types_are_right_by_mypy_strict() -> None:
    # Plugins are named by import name, or each would be two modules.
    simulator = ROOT / "roles" / "gpu_simulator" / "files"
    workload = ROOT / "roles" / "gpu_workload" / "files"
    pull = ROOT / "playbooks" / "pull_tasks" / "files"
    paths = [COLLECTION / "plugins", simulator, workload, pull, ROOT / "tests", ROOT / "testbed"]
    check([BIN / "mypy", "--strict", *paths], env=environment() | {"MYPYPATH": str(simulator)})


def test_yaml_is_clean() -> None:
    check([BIN / "yamllint", "--strict", "--format=parsable", "."])


def test_ansible_lint_production_profile() -> None:
    command: list[str | Path] = [
        BIN / "ansible-lint",
        "--profile",
        "production",
        "--strict",
        "--offline",
        "--nocolor",
        "-q",
    ]
    # It checks the syntax of each playbook in a process of its own: without an inventory a third faster.
    check(command, env=environment() | {"ANSIBLE_INVENTORY_ENABLED": "host_list"})


def test_documentation_of_plugins_and_roles_is_valid() -> None:
    options = ["--plugin-docs", "--validate-collection-refs", "all", "--check-extra-docs-refs"]
    command: list[str | Path] = [BIN / "antsibull-docs", "lint-collection-docs", *options, "."]
    try:
        run(command)
    except ToolError as error:
        # docutils takes its temporary directory for a reference where the random name ends in _, as one of 37 does.
        assert 'Unknown target name: "antsibull-docs-' in str(error), str(error)
        check(command)


def test_changelog_fragments_are_valid() -> None:
    check([BIN / "antsibull-changelog", "lint"])
    check([BIN / "antsibull-changelog", "lint-changelog-yaml", "--strict", "changelogs/changelog.yaml"])


def test_changelog_is_generated_from_its_source(tmp_path: Path) -> None:
    for name in project_files():
        if name.parts[0] in ("changelogs", "plugins", "roles", "playbooks", "meta", "galaxy.yml"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name)
    check([BIN / "antsibull-changelog", "generate"], cwd=tmp_path)
    generated, ours = ((directory / "CHANGELOG.md").read_text(encoding="utf-8") for directory in (tmp_path, ROOT))
    assert ours == generated


@pytest.mark.parametrize("script", _shell_scripts(), ids=str)
def test_shell_script_is_clean(script: Path) -> None:
    check(["bash", "-n", script])
    check([shellcheck(), script])


@pytest.mark.parametrize(
    "directory", ["plugins/modules", "plugins/module_utils", "roles/gpu_simulator/files", "roles/gpu_workload/files"]
)
def test_code_for_target_hosts_needs_python_3_8_at_most(directory: str) -> None:
    # Annotations are never evaluated: every file has `from __future__ import annotations`.
    options = ["--target=3.8-", "--no-tips", "--no-eval-annotations", "--no-parse-comments", "--violations"]
    check([BIN / "vermin", *options, directory], cwd=ROOT)
