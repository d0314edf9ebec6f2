# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of plugins/module_utils: allowed imports between sub-packages. docs/architecture.md shows the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.checks.tools import ROOT

MODULE_UTILS = ROOT / "plugins" / "module_utils"
PREFIX = "ansible_collections.gpu.fleet.plugins.module_utils."

LAYERS: dict[str, tuple[str, ...]] = {
    "_common": (),
    "_knowledge": (),
    "_nvidia_smi": ("_common", "_knowledge"),
    "_change": ("_common", "_nvidia_smi"),
    "_ecc": ("_change", "_common", "_nvidia_smi"),
    "_settings": ("_change", "_common", "_nvidia_smi"),
    "_mig": ("_change", "_common", "_nvidia_smi"),
    "_state": ("_change", "_common", "_ecc", "_mig", "_nvidia_smi", "_settings"),
    "_cuda": ("_common", "_nvidia_smi"),
    "_slurm": ("_common",),
    "_kubernetes": ("_common",),
    "_health": ("_common", "_cuda", "_knowledge", "_nvidia_smi", "_slurm"),
    "_managed": ("_common",),
    "_host": ("_common", "_cuda", "_managed", "_nvidia_smi", "_state"),
    "_report": ("_common", "_cuda", "_health", "_nvidia_smi"),
    "_packages": ("_common", "_managed"),
    "_repository": ("_common",),
    "_files": ("_common",),
}
"""By sub-package, lowest first: the sub-packages that it may import."""

FILES = sorted(path.relative_to(MODULE_UTILS) for path in MODULE_UTILS.rglob("*.py"))


def imports(path: Path) -> Iterator[Path]:
    """Files of module_utils that a file imports, at any place in it."""
    for node in ast.walk(ast.parse((MODULE_UTILS / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            package = path.parents[node.level - 1]
            base = package / (node.module or "").replace(".", "/")
            names = [base] if node.module else []
            for name in (*names, *(base / alias.name for alias in node.names)):
                if (MODULE_UTILS / f"{name}.py").is_file():
                    yield Path(f"{name}.py")


def test_every_file_is_in_a_sub_package() -> None:
    assert {path.parts[0] for path in FILES} == set(LAYERS)
    assert [path for path in FILES if len(path.parts) != 2] == []
    # Ansible ships packages without it; with it, each would need a documented reason.
    assert [path for path in FILES if path.name == "__init__.py"] == []


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_imports_downwards_only(path: Path) -> None:
    package = path.parts[0]
    used = {other.parts[0] for other in imports(path)} - {package}
    assert used <= set(LAYERS[package])
    absolute = re.findall(rf"{re.escape(PREFIX)}\S+", (MODULE_UTILS / path).read_text(encoding="utf-8"))
    assert absolute == [], "imports between these files are relative, so that the boot program can have a copy of them"


def test_files_do_not_import_each_other_in_a_circle() -> None:
    order = list(TopologicalSorter({path: list(imports(path)) for path in FILES}).static_order())
    assert len(order) == len(FILES)


def test_a_lower_layer_is_listed_before_the_ones_above() -> None:
    seen: set[str] = set()
    for package, below in LAYERS.items():
        assert set(below) <= seen
        seen.add(package)


def picture() -> str:
    """The layers as a diagram, with an arrow for each import that other arrows do not imply."""
    lines = ["flowchart TD"]
    for package, below in LAYERS.items():
        reached = {indirect for each in below for indirect in LAYERS[each]}
        lines += [f"    {package} --> {each}" for each in below if each not in reached]
    return "\n".join(lines)


def test_the_documentation_shows_these_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{picture()}\n```" in text
    described = re.findall(r"^\| `(_\w+)` \|", text, re.MULTILINE)
    assert described == list(LAYERS)


def test_nothing_but_the_page_of_the_report_evaluates_templates() -> None:
    """What plugins decide is Python, and the variables of a user are evaluated by Ansible.

    _ansible_core.py has Jinja keep the types of values in releases of Ansible that lose them.
    """
    found = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] == "jinja2" for name in names):
                found.add(str(path.relative_to(ROOT)))
    assert found == {"plugins/plugin_utils/_ansible_core.py", "plugins/plugin_utils/_report/page.py"}


def test_a_role_imports_nothing_that_knows_all_roles() -> None:
    """The list of roles imports them; what reads their files, or only their variables, imports neither."""
    planning = ROOT / "plugins" / "plugin_utils" / "_planning"
    of_roles = re.compile(
        r"^from \.+(?:_planning)?\.?(?:registry|data|room|preflight)\b|^from \.+_roles\b", re.MULTILINE
    )
    below = [
        planning / f"{name}.py"
        for name in ("contract", "data", "plain", "platforms", "variable_forms", "variable_names")
    ]
    files = [*below, *(planning.parent / "_roles").rglob("*.py")]
    assert [str(path) for path in files if of_roles.search(path.read_text(encoding="utf-8"))] == []
