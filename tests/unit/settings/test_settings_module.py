# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_settings as Ansible runs it: its documented results and the options that it refuses."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.modules import gpu_settings

from tests.conftest import ROOT
from tests.unit.changing_modules import runner_of
from tests.unit.module_runs import COMMON, check_documented
from tests.unit.settings.settings_host import SettingsHost

RunModule = Callable[..., dict[str, Any]]


@pytest.fixture
def run_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """Run the module with options; its lock and its caches are in the test's directory."""
    return runner_of(gpu_settings, monkeypatch, tmp_path / "run", {locked_clocks: "clocks.json"})


def test_results_are_as_documented(tmp_path: Path, run_module: RunModule) -> None:
    documented = yaml.safe_load(gpu_settings.RETURN)
    host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
    desired = {"power_limit_w": "90%", "gpu_clocks_mhz": "1000-1200", "persistence_mode": True}
    results = [
        run_module(host, check=True, **desired),
        run_module(host, **desired),
        run_module(host, **desired),
        run_module(host, memory_clocks_mhz=[405, 1215], gpus=["0"]),
        run_module(host, settings=[{"gpus": ["0"], "memory_clocks_mhz": 405}], on_unsupported="skip"),
        run_module(host, power_limit_w=1000),
        run_module(host, persistence_mode=False, power_limit_w="default"),
    ]
    assert [result.get("failed", False) for result in results] == [False, False, False, True, False, True, False]
    assert [result["changed"] for result in results] == [True, True, False, False, False, False, True]
    for result in results:
        check_documented({key: item for key, item in result.items() if key not in COMMON}, documented, "result")
    assert [len(result.get("warnings", ())) for result in results] == [0, 0, 0, 0, 0, 0, 2]
    filled = {key for result in results for gpu in result["gpus"] for key, item in gpu.items() if item}
    assert filled >= set(documented["gpus"]["contains"]) - {"memory_clocks_mhz", "index"}


@pytest.mark.parametrize("place", range(5))
def test_examples_work(tmp_path: Path, run_module: RunModule, place: int) -> None:
    options = yaml.safe_load(gpu_settings.EXAMPLES)[place]["gpu.fleet.gpu_settings"]
    host = SettingsHost.with_gpus(tmp_path, "h200", "h200", "h200")
    result = run_module(host, **options)
    assert not result.get("failed"), result["msg"]
    assert run_module(host, **options)["changed"] is False


def test_examples_of_the_guide_work(tmp_path: Path, run_module: RunModule) -> None:
    guide = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^ {4}- name: .*(?:\n(?: {4}.*)?)*", guide, re.MULTILINE)
    tasks = [task for block in blocks for task in yaml.safe_load(textwrap.dedent(block))]
    found = [task["gpu.fleet.gpu_settings"] for task in tasks if "gpu.fleet.gpu_settings" in task]
    assert len(found) == 1 and sum("gpu.fleet.ecc_mode" in task for task in tasks) == 1
    host = SettingsHost.with_gpus(tmp_path, "h200", "a100_40gb", "h200")
    assert not run_module(host, **found[0]).get("failed")
    assert run_module(host, **found[0])["changed"] is False


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "one of the following is required"),
        ({"accounting_mode": True, "settings": []}, "mutually exclusive"),
        ({"gpu_clocks_mhz": 5, "settings": []}, "mutually exclusive"),
        ({"compute_mode": "exclusive_thread"}, "use exclusive_process"),
        ({"power_limit_w": "much"}, "a percentage like 80%"),
        ({"on_unsupported": "ignore", "accounting_mode": True}, "must be one of"),
        ({"settings": [{"gpus": ["0"]}]}, "nothing is declared"),
        ({"settings": [{"enabled": True}]}, "Unsupported parameters"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, run_module: RunModule, options: Any, reported: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200")
    before = host.snapshot()
    result = run_module(host, **options)
    assert result["failed"] and reported in result["msg"] and host.state == before
