# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numeric options of all modules: values outside of the documented range are refused with the option's name."""

from __future__ import annotations

import copy
import importlib
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpu.fleet.plugins.module_utils._common import bounds as common_bounds

from tests.conftest import ROOT

MODULES: list[ModuleType] = [
    importlib.import_module(f"ansible_collections.gpu.fleet.plugins.modules.{path.stem}")
    for path in sorted((ROOT / "plugins" / "modules").glob("*.py"))
]
NUMBERS = [
    pytest.param(module, name, option, id=f"{module.__name__.rpartition('.')[2]} {name}")
    for module in MODULES
    for name, option in getattr(module, "ARGUMENT_SPEC", {}).items()
    if option.get("type") in ("int", "float")
]
NO_NUMBERS = [
    "\uff11\uff12",
    "\u0663",
    "1_0",
    "nan",
    "inf",
    "-inf",
    float("nan"),
    float("inf"),
    -1,
    "-1",
    True,
    "",
    "ten",
    "0x10",
    [5],
]
HUGE = [10**12, "1e12", "1e999999999", "9" * 5000, 10**400, 1e308]
REQUIRED = {"src": "/archive", "sha256": "0" * 64, "path": "/directory", "name": "name", "role": "role"}


def _messages(option: dict[str, Any], name: str, value: object) -> list[str]:
    messages: list[str] = ArgumentSpecValidator({name: option}).validate({name: value}).error_messages
    return messages


def test_there_are_numbers() -> None:
    assert len(NUMBERS) >= 15


@pytest.mark.parametrize(("module", "name", "option"), NUMBERS)
def test_what_is_no_number_in_the_range_is_refused_by_name(
    module: ModuleType, name: str, option: dict[str, Any]
) -> None:
    for value in (*NO_NUMBERS, *HUGE, *(["0", 0] if "timeout" in name and "lock" not in name else [])):
        (message,) = _messages(option, name, value)
        assert f"'{name}'" in message and " from " in message and " to " in message, message
        assert len(message) < 300


@pytest.mark.parametrize(("module", "name", "option"), NUMBERS)
def test_the_documentation_has_the_range(module: ModuleType, name: str, option: dict[str, Any]) -> None:
    documentation = yaml.safe_load(module.DOCUMENTATION)
    fragment = importlib.import_module("ansible_collections.gpu.fleet.plugins.doc_fragments.nvidia_smi")
    shared = yaml.safe_load(fragment.ModuleDocFragment.DOCUMENTATION)["options"].get(name, {})
    described = {**shared, **documentation.get("options", {}).get(name, {})}
    lowest, highest = (
        f"{bound:g}" if bound < 1 else str(bound) for bound in (option["type"].lowest, option["type"].highest)
    )
    assert any(f"From {lowest} to {highest}." in text for text in described["description"]), described["description"]


def test_numbers_in_every_spelling_of_ansible_are_taken() -> None:
    assert [common_bounds.TIMEOUT(value) for value in (5, 5.5, "5", " 5.5 ", "1e1", b"7", 86_400)] == [
        5,
        5.5,
        5,
        5.5,
        10,
        7,
        86_400,
    ]
    whole = [common_bounds.RETRIES(value) for value in (5, 5.0, "5", "5.0", "1e1", "0")]
    assert whole == [5, 5, 5, 5, 10, 0] and all(isinstance(number, int) for number in whole)
    with pytest.raises(TypeError, match=r"a whole number from 0 to 10, not '1\.5'"):
        common_bounds.RETRIES("1.5")


def test_a_type_can_be_copied() -> None:
    same = copy.deepcopy(common_bounds.TIMEOUT)
    assert same == "float" and (same.lowest, same.highest, same.unit) == (0.1, 86_400, "seconds")
