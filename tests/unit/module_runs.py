# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run modules as Ansible does, with the simulated nvidia-smi as a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils.common import warnings
from ansible.module_utils.testing import patch_module_args

from tests.conftest import ROOT

TYPES: dict[str, Any] = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}
COMMON = frozenset(("changed", "diff", "failed", "msg", "exception", "invocation", "warnings"))
"""Keys of results in addition to those that a module documents."""

# A program, because the module must be able to start and kill it.
SMI = """#!{python} -S
import sys
sys.path.insert(0, {simulator!r})
from gpu_simulator import cli
sys.exit(cli.main(sys.argv[1:], {root!r}, root_user=True))
"""


def executable(root: Path) -> Path:
    """The simulated nvidia-smi of a host as a program."""
    path = root / "nvidia-smi"
    simulator = str(ROOT / "roles" / "gpu_simulator" / "files")
    path.write_text(SMI.format(python=sys.executable, simulator=simulator, root=str(root)))
    path.chmod(0o755)
    return path


def run_module(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], check: bool = False
) -> dict[str, Any]:
    """Run a module's main with these options and return the result that it prints."""
    printed: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("builtins.print", lambda *strings, **_more: printed.extend(map(str, strings)))
        # Ansible collects warnings per process, which normally runs one module; and with the controller's plugins in
        # the same process, it would display them instead.
        patch.setattr(warnings, "_global_warnings", {})
        patch.setattr("ansible.module_utils._internal.is_controller", False)
        with (
            patch_module_args({"_ansible_check_mode": check, "_ansible_diff": True, **arguments}),
            pytest.raises(SystemExit),
        ):
            module.main()
    result: dict[str, Any] = json.loads(printed[-1])
    return result


def _is_of(value: object, documented: str) -> bool:
    """Whether a value is of the documented type; a bool is not an int here."""
    return isinstance(value, TYPES[documented]) and isinstance(value, bool) == (documented == "bool")


def check_documented(value: dict[str, Any], documented: dict[str, Any], where: str) -> None:
    """Compare the keys and types of a result with RETURN."""
    assert set(value) == set(documented), where
    for key, item in value.items():
        if item is None:
            continue
        description = documented[key]
        assert _is_of(item, description["type"]), f"{where}.{key}"
        for element in item if isinstance(item, list) else ():
            assert _is_of(element, description["elements"]), f"{where}.{key}"
            if isinstance(element, dict):
                check_documented(element, description["contains"], f"{where}.{key}")


def disagreements(documented: dict[str, Any], value: Any, where: str) -> Iterator[str]:
    """Differences between `value` and RETURN: missing and additional keys, other types, at any depth."""
    if value is None:
        return
    kind = documented["type"]
    if not _is_of(value, kind):
        yield f"{where}: {value!r} is no {kind}"
        return
    items = list(value) if isinstance(value, list) else [value]
    if kind == "list" and "elements" not in documented:
        yield f"{where}: RETURN does not describe the elements of the list"
    for item in items:
        if kind == "list" and not _is_of(item, documented["elements"]):
            yield f"{where}: {item!r} is no {documented['elements']}"
        elif isinstance(item, dict) and "contains" in documented:
            for name in sorted(set(item) - set(documented["contains"])):
                yield f"{where}.{name}: not documented"
            for name, inner in documented["contains"].items():
                if name in item:
                    yield from disagreements(inner, item[name], f"{where}.{name}")
                elif inner["returned"] == "always":
                    yield f"{where}.{name}: documented, but not returned"


def check_options(documented: dict[str, Any], spec: dict[str, Any]) -> None:
    """Compare DOCUMENTATION's options, at every depth, with the argument spec."""
    for name, option in documented.items():
        for key in ("type", "default", "choices", "elements"):
            assert option.get(key) == spec[name].get(key), (name, key)
        if "suboptions" in option:
            assert set(option["suboptions"]) == set(spec[name]["options"])
            check_options(option["suboptions"], spec[name]["options"])
