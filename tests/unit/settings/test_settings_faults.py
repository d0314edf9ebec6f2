# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call of a settings change fails in every way: the module reports the actual state.

The one exception is documented: locked clocks cannot be read, so a false confirmation by the driver is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult

from tests.unit.faults import WAYS, Change, FaultInjector, Host, Reply, fail_every_call, result
from tests.unit.settings.settings_host import SettingsHost, SettingsRun, is_change

CLOCKS = ("gpu_clocks_mhz", "memory_clocks_mhz")
CHANGES: dict[str, dict[str, Any]] = {
    "modes": {"persistence_mode": True, "compute_mode": "exclusive_process", "accounting_mode": True},
    "limit and clocks": {"power_limit_w": "80%", "gpu_clocks_mhz": "1000-1200", "memory_clocks_mhz": 1215},
    "back": {"power_limit_w": "default", "gpu_clocks_mhz": "default", "compute_mode": "default"},
    "of two kinds": {
        "settings": [
            {"gpus": ["0"], "power_limit_w": 350, "gpu_clocks_mhz": 1000},
            {"gpus": ["1"], "compute_mode": "prohibited"},
        ],
        "on_unsupported": "skip",
    },
}
# State of the two GPUs after each change, in the simulator's terms.
REACHED: dict[str, list[dict[str, Any]]] = {
    "modes": [
        {"persistence_mode": "enabled", "compute_mode": "exclusive_process", "accounting_mode": "enabled"},
        {"persistence_mode": "enabled", "compute_mode": "exclusive_process", "accounting_mode": "enabled"},
    ],
    "limit and clocks": [
        {"power_limit_w": 320.0, "gpu_clocks_mhz": "1000-1200", "memory_clocks_mhz": "1215"},
        {"power_limit_w": 320.0, "gpu_clocks_mhz": "1000-1200", "memory_clocks_mhz": "1215"},
    ],
    "back": [
        {"power_limit_w": 400.0, "gpu_clocks_mhz": "default", "compute_mode": "default"},
        {"power_limit_w": 400.0, "gpu_clocks_mhz": "default", "compute_mode": "default"},
    ],
    "of two kinds": [{"power_limit_w": 350.0, "gpu_clocks_mhz": "1000"}, {"compute_mode": "prohibited"}],
}


def _start(host: SettingsHost, change: str) -> None:
    """Set up the initial state of a change on both GPUs."""
    if change == "modes":
        for index in (0, 1):
            host.change(index, persistence_mode=False)
    if change == "back":
        run = host.settings(power_limit_w=300, gpu_clocks_mhz=900, compute_mode="prohibited")
        assert run.error is None


def _differs(host: SettingsHost, change: str) -> list[str]:
    """Names of the settings that differ from the change's desired values."""
    return [
        name
        for index, desired in enumerate(REACHED[change])
        for name, value in desired.items()
        if host.there(index)[name] != value
    ]


def _judge(host: SettingsHost, run: SettingsRun, before: Any, change: str, way: str) -> str:
    there = [host.there(index) for index in (0, 1)]
    skipped = {item["setting"] for gpu in run.result["gpus"] for item in gpu["skipped"]}
    lied_about = {name for name in CLOCKS if way == "pretended success"}
    if run.error is None:
        wrong = set(_differs(host, change)) - skipped - lied_about
        assert not wrong, f"reported success, but there is {there}"
        for gpu, desired in zip(run.result["gpus"], REACHED[change], strict=True):
            assert set(gpu["confirmed_only"]) == set(CLOCKS) & set(desired) - skipped
    readable = run.error is None or "cannot be read" not in run.error
    if readable:
        for gpu, real in zip(run.result["gpus"], there, strict=bool(run.result["gpus"])):
            reported = {name: gpu[name] for name in real}
            unknown = {name for name in CLOCKS if reported[name] is None}
            assert {**real, **dict.fromkeys(unknown)} == reported or lied_about, (
                f"{run.error}: {reported}, there is {real}"
            )
    if there != before:
        assert run.result["changed"] is True, f"{run.error}: there is {there}"
    if run.error is None:
        return "skipped" if skipped else "believed" if _differs(host, change) else "reached"
    return "as before" if there == before else "reported" if readable else "could not be read"


def test_every_call_fails_in_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def make(change: str, way: str) -> Change:
        host = SettingsHost.with_gpus(tmp_path / change, "a100_40gb", "a100_40gb")
        _start(host, change)
        start, before = host.checkpoint(), [host.there(index) for index in (0, 1)]

        def verify() -> None:
            assert way == "pretended success" or _differs(host, change) == [], f"{change}, {way}: the next run"

        return Change(
            host,
            lambda *injector: host.settings(*injector, **CHANGES[change]),
            lambda: host.roll_back(start),
            lambda run: _judge(host, run, before, change, way),
            verify,
        )

    outcomes = fail_every_call(make, CHANGES, WAYS, is_change)
    with capsys.disabled():
        print(f"\nsettings: {sum(outcomes.values())} combinations of change, call and fault: {outcomes}")
    assert sum(outcomes.values()) > 600
    assert {"reached", "as before", "reported", "killed", "skipped", "believed", "could not be read"} <= set(outcomes)


def test_a_failure_reports_what_was_already_changed_and_what_was_not_tried(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb", "a100_40gb")
    uuid = host.state["gpus"][1]["uuid"]

    def refuses_the_second(call: Sequence[str]) -> bool:
        return is_change(call) and uuid in call

    run = host.settings(FaultInjector(host, WAYS["unknown error"], 1, True, refuses_the_second), power_limit_w=300)
    error = run.error or ""
    failed, _semicolon, rest = error.partition("; already changed and left so: ")
    assert failed.startswith("power limit 300 W of GPU 1 (") and "Unknown Error (exit status 255)" in failed
    done, _semicolon, left = rest.partition("; not tried: ")
    assert "GPU 0" in done and "GPU 1" not in done and left.startswith("power limit 300 W of GPU 2")
    assert run.result["changed"] is True
    assert [gpu["power_limit_w"] for gpu in run.result["gpus"]] == [300.0, 400.0, 400.0]


def _without_the_last_gpu(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    message = reply()
    start = message.text.rfind("\t<gpu id=")
    end = message.text.rfind("</nvidia_smi_log>")
    return message if start < 0 else result(arguments, message.rc, message.text[:start] + message.text[end:])


@pytest.mark.parametrize("module", ["settings", "ecc"])
@pytest.mark.parametrize("lasts", [False, True])
def test_a_document_that_lacks_a_gpu_which_it_counts_is_not_believed(tmp_path: Path, module: str, lasts: bool) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
    fault_injector = FaultInjector(host, _without_the_last_gpu, 1, lasts, lambda call: "-x" in call)
    work, options = (host.settings, {"power_limit_w": 300}) if module == "settings" else (host.ecc, {"enabled": False})
    run = work(fault_injector, **options)
    if lasts:
        assert run.error is not None and "it counts 2 GPUs and describes 1" in run.error
        assert run.changes == []
    else:
        assert run.error is None and len(run.result["gpus"]) == 2
    assert host.there(1)["power_limit_w"] == (300.0 if module == "settings" and not lasts else 400.0)


@pytest.mark.parametrize(("way", "changed"), [("hang after", True), ("killed after", True), ("denied", False)])
def test_clocks_that_a_failed_call_may_have_locked_are_a_change(tmp_path: Path, way: str, changed: bool) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb")

    def locks(call: Sequence[str]) -> bool:
        return "-lgc" in call

    run = host.settings(FaultInjector(host, WAYS[way], 1, True, locks), gpu_clocks_mhz="1000-1200")
    assert run.error is not None
    # nvidia-smi does not report them, so that both before and afterwards they are unknown.
    assert run.result["gpus"][0]["gpu_clocks_mhz"] is None
    assert (host.there()["gpu_clocks_mhz"] != "default") is changed
    assert run.result["changed"] is changed
