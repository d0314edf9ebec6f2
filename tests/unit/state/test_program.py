# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program's files: every module of the collection that it imports, in any form, so that it runs alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import COLLECTION, PROGRAM, Source

ROOT = f"{COLLECTION}.plugins.module_utils"

# By name: a module, whether it is a package, its source, and its imports: modules, and names that may be modules.
IMPORTS: dict[str, tuple[str, bool, str, set[str], set[str]]] = {
    "siblings": ("a", False, "from . import b, c as d\nimport os\nfrom os import path", {""}, {"b", "c"}),
    "a name of a sibling": ("a", False, "from .e import f", {"e"}, {"e.f"}),
    "in a function": ("a", False, "def f():\n    from .late import g", {"late"}, {"late.g"}),
    "from above": ("mig.plan", False, "from ..errors import E", {"errors"}, {"errors.E"}),
    "above itself": ("mig.plan", False, "from .. import gpu", {""}, {"gpu"}),
    "from a sibling package": ("mig.plan", False, "from ..state import run", {"state"}, {"state.run"}),
    "two up": ("x.y.z", False, "from ...a import b", {"a"}, {"a.b"}),
    "in a package itself": ("mig", True, "from . import plan", {"mig"}, {"mig.plan"}),
    "above a package": ("mig", True, "from ..errors import E", {"errors"}, {"errors.E"}),
    "absolute": ("a", False, f"from {ROOT}.mig.plan import P", {"mig.plan"}, {"mig.plan.P"}),
    "absolute package": ("a", False, f"from {ROOT} import b", {""}, {"b"}),
    "absolute by import": ("a", False, f"import {ROOT}.mig.plan as plan", {"mig.plan"}, set()),
    "everything": ("a", False, "from .b import *", {"b"}, set()),
    "others": ("a", False, "from ansible.module_utils.basic import M\nimport ansible_collections.x.y", set(), set()),
}


@pytest.mark.parametrize("case", IMPORTS)
def test_imports_are_resolved_at_any_level(case: str) -> None:
    name, is_package, source, modules, perhaps = IMPORTS[case]

    def full(names: set[str], is_module: bool) -> set[tuple[str, bool]]:
        return {(f"{ROOT}.{short}".rstrip("."), is_module) for short in names}

    assert service_files.imported(source, f"{ROOT}.{name}", is_package) == full(modules, True) | full(perhaps, False)


SOURCES = {
    "": "",
    "state": "from .boot import main",
    "state.boot": f"from ..mig import plan\nfrom {ROOT}.errors import E\nfrom . import late\n\ndef main():\n"
    "    from ..mig.deep.er import value\n    print(plan.NAME, E.__module__, late.x, value)\n    return 0\n",
    "state.late": "x = 1",
    "mig": "NAME = 'of the package'",
    "mig.plan": "from ..errors import E as _E\nfrom . import NAME",
    "mig.deep": "",
    "mig.deep.er": "from ...errors import E\nvalue = E()",
    "errors": f"import {ROOT}.mig.leaf\n\nclass E:\n    def __repr__(self): return 'one class'",
    "mig.leaf": "",
    "never": "raise SystemExit('nobody imports this')",
}
PACKAGES = ("", "state", "mig", "mig.deep")


def _source(name: str) -> Source | None:
    if not name.startswith(ROOT):
        return Source("", is_package=True)
    short = name[len(ROOT) + 1 :]
    return Source(SOURCES[short], short in PACKAGES) if short in SOURCES else None


def test_modules_in_packages_are_installed_and_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = f"{ROOT}.state.boot"
    monkeypatch.setattr(service_files, "_MAIN", service_files._MAIN.replace(service_files.ENTRY, entry))
    files = service_files.program_files(entry, _source)
    for path, text in files.items():
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path.lstrip("/")).write_text(text)
    inside = f"{PROGRAM}/{ROOT.replace('.', '/')}"
    assert f"{inside}/mig/deep/er.py" in files and f"{inside}/mig/deep/__init__.py" in files
    assert f"{inside}/never.py" not in files
    program = [sys.executable, "-I", "-S", "-B", str(tmp_path / PROGRAM.lstrip("/"))]
    completed = subprocess.run(program, cwd="/", capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout == f"of the package {ROOT}.errors 1 one class\n"


def test_an_import_that_leads_nowhere_is_an_error_that_names_it() -> None:
    def source(name: str) -> Source | None:
        return (
            Source("from .gone import x")
            if name == f"{ROOT}.a"
            else None
            if name.endswith("gone")
            else Source("", True)
        )

    with pytest.raises(ChangeError, match=r"the source of .*\.gone cannot be read"):
        service_files.program_files(f"{ROOT}.a", source)


def test_directories_of_another_version_go_and_links_are_not_followed(tmp_path: Path) -> None:
    old = tmp_path / PROGRAM.lstrip("/") / "gpu_fleet" / "deeper"
    old.mkdir(parents=True)
    (old / "_smi.py").write_text("")
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.py").write_text("")
    (old.parent / "link").symlink_to(other)
    service_files.apply_files(service_files.plan_files({}, str(tmp_path)), str(tmp_path))
    assert not old.exists() and (other / "mine.py").exists()
