# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The top-level `gpus` limits everything in the same call; entries that match no GPU cause a warning by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.settings.settings_host import SettingsHost, SettingsRun

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "ecc": ("modes", {"enabled": False}),
    "settings": ("settings", {"accounting_mode": True, "compute_mode": "prohibited"}),
}


@pytest.fixture(params=ENTRIES)
def module(request: pytest.FixtureRequest) -> str:
    """ecc_mode or gpu_settings."""
    return str(request.param)


def _run(host: SettingsHost, module: str, options: dict[str, Any], check: bool = False) -> SettingsRun:
    return host.ecc(check=check, **options) if module == "ecc" else host.settings(check=check, **options)


@pytest.mark.parametrize("selector", ["0", "00000000:07:00.0", "NVIDIA A100*"])
@pytest.mark.parametrize("entry_gpus", [["all"], ["0", "1"], ["NVIDIA*", "Tesla*"]])
def test_no_gpu_outside_of_the_limit_is_touched(
    tmp_path: Path, module: str, selector: str, entry_gpus: list[str]
) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "t4")
    bus_id = host.call("--query-gpu=pci.bus_id", "--format=csv,noheader")[0].splitlines()[0].lower()
    before = host.snapshot()["gpus"]
    option, desired = ENTRIES[module]
    limit = [bus_id if ":" in selector else selector]
    for check in (True, False):
        run = _run(host, module, {"gpus": limit, option: [{"gpus": entry_gpus, **desired}]}, check)
        assert run.error is None and run.result["changed"] is True
        assert [row["index"] for row in run.result["gpus"]] == [0]
        assert not any(option in warning for warning in run.result["warnings"])
    after = host.snapshot()["gpus"]
    assert after[1] == before[1] and after[0] != before[0]


def test_entries_outside_of_the_limit_declare_nothing_and_are_named(tmp_path: Path, module: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
    option, desired = ENTRIES[module]
    before = host.snapshot()
    run = _run(host, module, {"gpus": ["0"], option: [{"gpus": ["1"], **desired}]})
    assert run.error is None and run.result["changed"] is False and host.state == before
    (warning,) = run.result["warnings"]
    assert option in warning and "top-level gpus" in warning


@pytest.mark.parametrize("entry_gpus", [["7"], ["NVIDIA B200*"], ["0", "GPU-none"], []])
def test_entries_that_match_no_gpu_are_warned_of(tmp_path: Path, module: str, entry_gpus: list[str]) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
    option, desired = ENTRIES[module]
    entries = [{"gpus": ["1"], **desired}, {"gpus": entry_gpus, **desired}]
    for check in (True, False, False):
        run = _run(host, module, {option: entries}, check)
        assert run.error is None
        (warning,) = [text for text in run.result["warnings"] if text.startswith(f"{option}[1]: ")]
        assert (entry_gpus[-1] if entry_gpus else "gpus is empty") in warning


def test_an_empty_list_is_warned_of_and_changes_nothing(tmp_path: Path, module: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4")
    before = host.snapshot()
    option, _desired = ENTRIES[module]
    run = _run(host, module, {option: []})
    assert (run.error, run.result["changed"], run.result["gpus"]) == (None, False, []) and host.state == before
    (warning,) = run.result["warnings"]
    assert warning.startswith(f"{option} is empty")


@pytest.mark.parametrize("is_list", [True, False])
def test_an_empty_limit_is_refused_by_name(tmp_path: Path, module: str, is_list: bool) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4")
    option, desired = ENTRIES[module]
    run = _run(host, module, {"gpus": [], **({option: [desired]} if is_list else desired)})
    assert run.error is not None and run.error.startswith("gpus is empty") and run.changes == []


def test_an_option_without_a_meaning_is_refused_by_name(tmp_path: Path, module: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4")
    option, desired = ENTRIES[module]
    run = _run(host, module, {**desired, option: [desired]})
    assert run.error is not None and run.calls == []
    assert all(name in run.error for name in (*desired, option))
