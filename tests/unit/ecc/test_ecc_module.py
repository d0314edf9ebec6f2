# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module ecc_mode as Ansible runs it: its documented results and the options that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.modules import ecc_mode

from tests.unit.changing_modules import runner_of
from tests.unit.module_runs import COMMON, check_documented
from tests.unit.settings.settings_host import SettingsHost

RunModule = Callable[..., dict[str, Any]]


@pytest.fixture
def run_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """Run the module with options; its lock and its caches are in the test's directory."""
    caches = {ecc_run: "ecc.json", locked_clocks: "clocks.json"}
    return runner_of(ecc_mode, monkeypatch, tmp_path / "run", caches)


def test_results_are_as_documented(tmp_path: Path, run_module: RunModule) -> None:
    documented = yaml.safe_load(ecc_mode.RETURN)
    host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb", "geforce_rtx_3080")
    host.count_errors(0, "aggregate", dram_correctable=3)
    results = [
        run_module(host, check=True, gpus=["0", "1"], enabled=False),
        run_module(host, gpus=["0", "1"], enabled=False),
        run_module(host, gpus=["0", "1"], enabled=False, reset="if_required"),
        run_module(host, enabled=False),
        run_module(host, enabled=False, on_unsupported="skip"),
        run_module(host, gpus=["0"], clear_counters="aggregate"),
    ]
    assert [result.get("failed", False) for result in results] == [False, False, False, True, False, False]
    assert [result["changed"] for result in results] == [True, True, True, False, False, True]
    for result in results:
        check_documented({key: item for key, item in result.items() if key not in COMMON}, documented, "result")
    assert [len(result.get("warnings", ())) for result in results] == [2, 2, 1, 0, 0, 0]
    filled = {key for result in results for gpu in result["gpus"] for key, item in gpu.items() if item}
    assert {"message", "errors_aggregate", "errors_cleared", "reset_required", "reboot_required"} <= filled


@pytest.mark.parametrize("place", range(5))
def test_examples_work(tmp_path: Path, run_module: RunModule, place: int) -> None:
    options = yaml.safe_load(ecc_mode.EXAMPLES)[place].get("gpu.fleet.ecc_mode")
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "t4")
    if options is None:
        # The reboot after the first task.
        assert place == 1
        return
    result = run_module(host, **options)
    assert not result.get("failed"), result["msg"]
    assert run_module(host, **options)["changed"] is False


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "one of the following is required"),
        ({"enabled": True, "modes": []}, "mutually exclusive"),
        ({"clear_counters": "volatile", "modes": []}, "mutually exclusive"),
        ({"clear_counters": "all"}, "must be one of"),
        ({"enabled": True, "reset": "always"}, "must be one of"),
        ({"modes": [{"gpus": ["0"]}]}, "nothing is declared"),
        ({"modes": [{"enabled": True, "reset": "never"}]}, "Unsupported parameters"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, run_module: RunModule, options: Any, reported: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200")
    before = host.snapshot()
    result = run_module(host, **options)
    assert result["failed"] and reported in result["msg"] and host.state == before
