# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call of an ECC change fails in every way: the module reports the actual state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.faults import WAYS, Change, FaultInjector, fail_every_call
from tests.unit.settings.settings_host import SettingsHost, SettingsRun, is_change

CHANGES: dict[str, dict[str, Any]] = {
    "off": {"enabled": False},
    "off with reset": {"enabled": False, "reset": "if_required"},
    "clear": {"clear_counters": "volatile"},
    "both of two kinds": {
        "modes": [{"gpus": ["0"], "enabled": False}, {"gpus": ["1"], "clear_counters": "volatile"}],
        "on_unsupported": "skip",
    },
}


def _there(host: SettingsHost) -> list[tuple[tuple[bool, bool], int]]:
    """The actual state: ECC modes (current, pending) and volatile error count of each GPU."""
    return [
        (host.ecc_modes(index), sum(gpu["ecc_errors"]["volatile"].values()))
        for index, gpu in enumerate(host.state["gpus"])
    ]


def _reported(run: SettingsRun) -> list[tuple[tuple[bool, bool], int | None]]:
    return [
        ((gpu["ecc_mode_current"] == "enabled", gpu["ecc_mode_pending"] == "enabled"), gpu["errors_volatile"])
        for gpu in run.result["gpus"]
    ]


def _is_reached(host: SettingsHost, change: str) -> bool:
    there = _there(host)
    if change == "clear":
        return [errors for _modes, errors in there] == [0, 0]
    if change == "both of two kinds":
        return there[0][0][1] is False and there[1][1] == 0
    return all(modes[1] is False for modes, _errors in there)


def _judge(host: SettingsHost, run: SettingsRun, before: Any, change: str) -> str:
    there, reported = _there(host), _reported(run)
    skipped = any("Not Supported" in (gpu["message"] or "") for gpu in run.result["gpus"])
    if run.error is None and not skipped:
        assert _is_reached(host, change), f"reported success, but there is {there}"
    # GPUs with ECC off report no counters, whatever their values.
    if run.error is None or (reported and "cannot be read" not in run.error):
        for (modes, errors), (reported_modes, reported_errors) in zip(there, reported, strict=True):
            assert reported_modes == modes, f"{run.error}: reported {reported}, there is {there}"
            assert reported_errors in (errors, None), f"{run.error}: reported {reported}, there is {there}"
    if there != before:
        assert run.result["changed"] is True
    if run.error is None:
        for gpu, (modes, _errors) in zip(run.result["gpus"], there, strict=True):
            assert gpu["reboot_required"] is (modes[0] != modes[1])
        return "skipped" if skipped else "reached"
    return "as before" if there == before else "reported" if reported else "could not be read"


def test_every_call_fails_in_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def make(change: str, _way: str) -> Change:
        host = SettingsHost.with_gpus(tmp_path / change, "t4", "a100_40gb")
        for index in (0, 1):
            host.count_errors(index, "volatile", dram_correctable=index + 1)
        start, before = host.checkpoint(), _there(host)

        def verify() -> None:
            assert _is_reached(host, change), f"{change}: the next run"

        return Change(
            host,
            lambda *injector: host.ecc(*injector, **CHANGES[change]),
            lambda: host.roll_back(start),
            lambda run: _judge(host, run, before, change),
            verify,
        )

    outcomes = fail_every_call(make, CHANGES, WAYS, is_change)
    with capsys.disabled():
        print(f"\nECC: {sum(outcomes.values())} combinations of change, call and fault: {outcomes}")
    assert sum(outcomes.values()) > 400
    assert {"reached", "as before", "reported", "killed", "skipped"} <= set(outcomes)


def test_a_failure_reports_what_was_already_changed_and_what_was_not_tried(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4", "t4", "t4")
    uuid = host.state["gpus"][1]["uuid"]

    def refuses_the_second(call: Sequence[str]) -> bool:
        return is_change(call) and uuid in call

    run = host.ecc(FaultInjector(host, WAYS["unknown error"], 1, True, refuses_the_second), enabled=False)
    error = run.error or ""
    failed, _semicolon, rest = error.partition("; already changed and left so: ")
    assert failed.startswith("disabling ECC of GPU 1 (Tesla T4") and "Unknown Error (exit status 255)" in failed
    done, _semicolon, left = rest.partition("; not tried: ")
    assert "GPU 0" in done and "GPU 1" not in done and left.startswith("disabling ECC of GPU 2")
    assert run.result["changed"] is True
    assert [gpu["status"] for gpu in run.result["gpus"]] == ["pending", "unchanged", "unchanged"]
