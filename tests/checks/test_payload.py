# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible sends to each host for a module stays small, and a part of host_facts costs only who requests it."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

import pytest

from tests.benchmark.payload import COMMON_LIMIT_KIB, LIMITS_KIB, REQUESTS, own_files, payloads
from tests.checks.tools import ROOT

HOST_FACTS = ROOT / "plugins" / "module_utils" / "_host" / "facts.py"
# Ansible's own collectors are 170 KiB, the verdict on health 100, and the tables of products 10.
LEFT_OUT = {
    "host_facts": ("ansible/module_utils/facts/", "/_health/", "/_knowledge/"),
    "gpu_state": ("/_health/", "/_knowledge/"),
    "gpu_health": ("/_mig/", "/_settings/", "/_state/", "/_knowledge/specifications"),
}


@pytest.fixture(name="archives", scope="module")
def _archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    directory = tmp_path_factory.mktemp("payloads")
    return directory, payloads(directory)


def test_payloads_stay_below_their_limits(archives: tuple[Path, dict[str, int]]) -> None:
    sizes = archives[1]
    assert set(LIMITS_KIB) <= set(sizes)
    limits = {module: LIMITS_KIB.get(module, COMMON_LIMIT_KIB) for module in sizes}
    found = {module: round(size / 1024, 1) for module, size in sizes.items()}
    assert {module: size for module, size in found.items() if size > limits[module]} == {}
    loose = {module: size for module, size in found.items() if module in LIMITS_KIB and size < limits[module] - 15}
    assert loose == {}, "limits that have become too high, so that they hold nothing"


@pytest.mark.parametrize("module", LEFT_OUT)
def test_code_that_a_module_does_not_need_is_not_sent(archives: tuple[Path, dict[str, int]], module: str) -> None:
    with zipfile.ZipFile(archives[0] / f"{module}.zip") as archive:
        names = archive.namelist()
    assert own_files(archives[0] / f"{module}.zip")
    assert [name for name in names if any(part in name for part in LEFT_OUT[module])] == []


def test_the_benchmark_imports_what_requests_of_host_facts_import() -> None:
    tree = ast.parse(HOST_FACTS.read_text(encoding="utf-8"))
    found = set()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                base = ".".join(filter(None, ("_host" if node.level == 1 else "", node.module)))
                inner = (f"{base}.{alias.name}" for alias in node.names)
                files = [name for name in (base, *inner) if _path(name).is_file()]
                found.update(files)
    assert found == {part for parts in REQUESTS["host_facts"].values() for part in parts}


def _path(name: str) -> Path:
    return ROOT / "plugins" / "module_utils" / f"{name.replace('.', '/')}.py"
