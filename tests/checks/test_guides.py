# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guides that have to name all of something, such as the addresses that a run fetches from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from testbed import settings
from tests.checks.test_examples import role_options
from tests.checks.tools import ROOT, project_files

AIR_GAPPED = (ROOT / "docs" / "air-gapped.md").read_text(encoding="utf-8")
ADDRESS = re.compile(
    r"https?://[^\s\"'{}|)?]+|\b(?:nvcr\.io|docker\.io|quay\.io|ghcr\.io|registry\.k8s\.io)/[^\s:\"'{}|)]+"
)
# Where a fact in a table was read, which no run fetches.
SOURCES = {"source", "sources"}
# In Docker's file of logins the name of Docker Hub, and what messages and units of planners name: none is fetched.
NAMES = (
    "https://index.docker.io/v1/",
    "https://developer.nvidia.com/cuda-toolkit-archive",
    "https://...,",
    "https://github.com/gpu-fleet/gpu.fleet/blob/main/docs/monitoring.md",
)


def _addresses(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from () if key in SOURCES else _addresses(item)
    elif isinstance(value, list):
        for item in value:
            yield from _addresses(item)
    elif isinstance(value, str):
        yield from ADDRESS.findall(value)


def _values(code: str) -> Iterator[str]:
    """The strings of a module, without its docstrings."""
    tree = ast.parse(code)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def _fetched() -> dict[str, list[str]]:
    """Addresses in the values of roles, playbooks and planners of roles, with the files that have them.

    Comments and messages are none.
    """
    found: dict[str, set[str]] = {}
    for path in project_files(".py"):
        if path.is_relative_to("plugins/plugin_utils/_roles"):
            for text in _values((ROOT / path).read_text(encoding="utf-8")):
                for address in ADDRESS.findall(text):
                    if address not in NAMES:
                        found.setdefault(address, set()).add(str(path))
    for path in project_files(".yml"):
        is_role = (
            path.parts[0] == "roles" and path.parts[2] in ("defaults", "vars", "tasks") and "simulator" not in str(path)
        )
        if is_role or path.parts[0] == "playbooks":
            for address in _addresses(yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))):
                found.setdefault(address, set()).add(str(path))
    return {address: sorted(files) for address, files in found.items()}


def _rows(page: str) -> list[list[str]]:
    """Rows of the tables of a page, without their headings."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if line.startswith("| ")
    ]
    return [row for row in rows if not row[0].startswith(("default ", "since", "---"))]


def _names(text: str) -> list[str]:
    return re.findall(r"`(\w+)(?:: \w+)?`", text)


@pytest.mark.parametrize(("address", "files"), sorted(_fetched().items()))
def test_the_page_of_air_gapped_sites_has_every_address(address: str, files: list[str]) -> None:
    named = [row[0].strip("`") for row in _rows(AIR_GAPPED)]
    assert [one for one in named if address.startswith(one)], f"docs/air-gapped.md lacks {address} of {files}"


def test_the_page_of_air_gapped_sites_has_no_address_that_is_gone() -> None:
    gone = [row[0] for row in _rows(AIR_GAPPED) if not any(one.startswith(row[0].strip("`")) for one in _fetched())]
    assert gone == []


def test_each_address_is_replaced_by_variables_that_exist() -> None:
    for row in _rows(AIR_GAPPED):
        variables = [name for name in _names(row[3]) if "_" in name and name != "key_url"]
        assert variables, row
        assert set(variables) <= set(role_options()), row


@pytest.mark.parametrize("page", ["containers", "kubernetes"])
def test_a_test_that_holds_a_row_of_a_guide_exists(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")))
    tests = [path for path in project_files(".py") if path.parts[0] in ("molecule", "tests")]
    functions = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
    existing = {name for path in tests for name in functions.findall((ROOT / path).read_text(encoding="utf-8"))}
    assert named
    assert named - existing == set()


def test_the_guide_names_the_ssh_configuration_of_the_demo() -> None:
    of_the_demo = settings.TESTBED.relative_to(ROOT) / "workspaces" / "default" / settings.SSH_CONFIG.name
    assert re.findall(r"`ssh -F (\S+) ", (ROOT / "docs/testing-without-a-gpu.md").read_text()) == [str(of_the_demo)]
