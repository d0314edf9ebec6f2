# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings on simulated GPUs: changes, refusals before any change, and the cache of locked clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._change import reset as gpu_reset
from ansible_collections.gpu.fleet.plugins.module_utils._change.locked_clocks import GPU_CLOCKS, LockedClocks
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Gpu
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document
from gpu_simulator.state import catalogue, store

from tests.unit.settings.settings_host import DRIVERS, SettingsHost, models

WITHOUT_LOCKED_CLOCKS = "Pascal"
WITHOUT_LOCKED_MEMORY_CLOCKS = ("Pascal", "Volta", "Turing")


def _everything(model: str) -> dict[str, Any]:
    """A supported value of each setting for this GPU model, different from its initial value."""
    data = catalogue.load(model)
    requested = {
        "persistence_mode": False,
        "compute_mode": "exclusive_process",
        "power_limit_w": data["power"]["min_w"],
        "accounting_mode": True,
    }
    if data["architecture"] != WITHOUT_LOCKED_CLOCKS:
        requested["gpu_clocks_mhz"] = data["clocks"]["max"]["graphics"]
    if data["architecture"] not in WITHOUT_LOCKED_MEMORY_CLOCKS:
        requested["memory_clocks_mhz"] = data["clocks"]["max"]["memory"]
    return requested


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("model", models())
def test_everything_is_set_by_one_call_each_and_read_back(tmp_path: Path, model: str, driver: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, model, driver=driver)
    host.change(0, persistence_mode=False)
    requested = {**_everything(model), "persistence_mode": True}
    check = host.settings(check=True, **requested)
    assert check.error is None and check.changes == [] and check.result["changed"] is True
    first, second = host.settings(**requested), host.settings(**requested)
    assert first.error is None and len(first.changes) == len(requested) and first.result["changed"] is True
    assert second.error is None and len(second.calls) == 1 and second.result["changed"] is False
    assert set(first.result["gpus"][0]["changed_settings"]) == set(requested)
    there = host.there()
    for run in (check, first, second):
        (gpu,) = run.result["gpus"]
        assert {name: gpu[name] for name in requested} == {name: there[name] for name in requested}
    assert there == {
        **there,
        "persistence_mode": "enabled",
        "compute_mode": "exclusive_process",
        "power_limit_w": catalogue.load(model)["power"]["min_w"],
        "accounting_mode": "enabled",
    }


def test_defaults_give_everything_back(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
    untouched = host.there()
    host.settings(**{**_everything("a100_40gb"), "persistence_mode": True})
    defaults: dict[str, Any] = {
        "power_limit_w": "default",
        "gpu_clocks_mhz": "default",
        "memory_clocks_mhz": "default",
        "compute_mode": "default",
        "accounting_mode": False,
    }
    run = host.settings(**defaults)
    assert run.error is None and host.there() == untouched
    assert [call[2] for call in run.changes] == ["-c", "-pl", "-rgc", "-rmc", "-am"]
    assert host.settings(**defaults).changes == []


class TestPowerLimit:
    """`power_limit_w`."""

    @pytest.mark.parametrize(
        ("desired", "watts"),
        [(300, 300.0), ("300", 300.0), (250.5, 250.5), ("80%", 320.0), ("62.55 %", 250.0), ("default", 400.0)],
    )
    def test_it_is_a_number_a_percentage_or_the_default(self, tmp_path: Path, desired: Any, watts: float) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.change(0, power_limit_w=200.0)
        run = host.settings(power_limit_w=desired)
        assert run.error is None and run.result["gpus"][0]["power_limit_w"] == watts == host.there()["power_limit_w"]
        assert host.settings(power_limit_w=desired).changes == []

    @pytest.mark.parametrize("desired", [99, 401, "10%", "101%"])
    def test_limits_are_checked_before_any_change_on_any_gpu(self, tmp_path: Path, desired: Any) -> None:
        host = SettingsHost.with_gpus(tmp_path, "b200", "a100_40gb")
        before = host.snapshot()
        run = host.settings(
            settings=[
                {"gpus": ["0"], "power_limit_w": 500},
                {"gpus": ["1"], "power_limit_w": desired},
                {"accounting_mode": True},
            ]
        )
        assert run.error is not None and "GPU 1" in run.error and "100 to 400 W" in run.error
        assert run.changes == [] and host.state == before and run.result["changed"] is False

    @pytest.mark.parametrize("desired", ["", "fast", "-5", "80", "1e3", "nan", "inf", True, "80%%", [300], "٣٠٠"])
    def test_other_strings_are_refused(self, tmp_path: Path, desired: Any) -> None:
        run = SettingsHost.with_gpus(tmp_path, "a100_40gb").settings(power_limit_w=desired)
        assert run.error is not None and run.changes == []
        if desired != "80":
            assert "power_limit_w is a number of watts, a percentage like 80%, or default" in run.error

    @pytest.mark.parametrize(
        ("desired", "bounds"),
        [
            ("9" * 400 + "%", "percent from 1 to 150"),
            ("180%", "percent from 1 to 150"),
            ("0%", "percent from 1 to 150"),
            (0, "watts from 1 to 100000"),
            ("9" * 400, "watts from 1 to 100000"),
            ("9" * 5000, "watts from 1 to 100000"),
            (100_001, "watts from 1 to 100000"),
        ],
    )
    def test_numbers_beyond_any_gpu_are_refused_by_their_range(self, tmp_path: Path, desired: Any, bounds: str) -> None:
        run = SettingsHost.with_gpus(tmp_path, "a100_40gb").settings(power_limit_w=desired)
        assert run.error is not None and run.error.startswith("power_limit_w: ") and bounds in run.error
        assert run.calls == [] and len(run.error) < 300

    def test_a_percentage_is_of_each_gpus_own_default(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "h200", "l40s", "t4")
        run = host.settings(power_limit_w="90%")
        assert [gpu["power_limit_w"] for gpu in run.result["gpus"]] == [630.0, 315.0, 63.0]

    def test_without_persistence_mode_a_lost_limit_is_explained(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.change(0, persistence_mode=False)

        def reset_at_exit(arguments: Any, result: Any) -> Any:
            message = result()
            host.change(0, power_limit_w=400.0)
            return message

        run = host.settings(reset_at_exit, power_limit_w=300)
        assert run.error is not None and "reported success but nothing changed" in run.error
        assert "persistence mode is off" in run.error and run.result["changed"] is False

    def test_a_warning_reports_what_is_invalidated_without_persistence_mode(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        (warning,) = host.settings(power_limit_w=300, persistence_mode=False, compute_mode="default").result["warnings"]
        assert "GPU 0" in warning and "resets power_limit_w as soon as" in warning
        assert host.settings(power_limit_w=300, persistence_mode=True).result["warnings"] == []


class TestClocks:
    """`gpu_clocks_mhz` and `memory_clocks_mhz`."""

    @pytest.mark.parametrize(
        ("desired", "clocks", "shown"),
        [
            ("1000-1200", [1000, 1200], "1000-1200"),
            ("1000 - 1200", [1000, 1200], "1000-1200"),
            ([1000, 1200], [1000, 1200], "1000-1200"),
            (["1000", "1200"], [1000, 1200], "1000-1200"),
            (1200, [1200, 1200], "1200"),
            ("1200", [1200, 1200], "1200"),
            ([1200], [1200, 1200], "1200"),
            ("default", None, "default"),
        ],
    )
    def test_ways_to_write_them(self, tmp_path: Path, desired: Any, clocks: Any, shown: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        run = host.settings(gpu_clocks_mhz=desired)
        assert run.error is None and host.state["gpus"][0]["locked_gpu_clocks"] == clocks
        assert run.result["gpus"][0]["gpu_clocks_mhz"] == shown
        assert run.result["gpus"][0]["confirmed_only"] == ["gpu_clocks_mhz"]

    @pytest.mark.parametrize("setting", ["gpu_clocks_mhz", "memory_clocks_mhz"])
    @pytest.mark.parametrize(
        "desired",
        ["", "fast", "1200,1300", "1200-", "-1200", 0, -5, [1, 2, 3], [], {"min": 1}, True, 12.5, "1300-1200", "٣"],
    )
    def test_other_values_are_refused(self, tmp_path: Path, setting: str, desired: Any) -> None:
        run = SettingsHost.with_gpus(tmp_path, "a100_40gb").settings(**{setting: desired})
        assert run.error is not None and run.error.startswith(setting) and run.calls == [], run.error

    @pytest.mark.parametrize(
        "desired",
        ["9" * 5000, "1-" + "9" * 5000, pytest.param(10**400, id="10**400"), [1, 100_001], "0-5", "\uff11\uff12"],
    )
    def test_numbers_beyond_any_gpu_are_refused_by_their_range(self, tmp_path: Path, desired: Any) -> None:
        run = SettingsHost.with_gpus(tmp_path, "a100_40gb").settings(gpu_clocks_mhz=desired)
        assert run.error is not None and run.error.startswith("gpu_clocks_mhz") and run.calls == []
        assert len(run.error) < 300 and ("MHz from 1 to 100000" in run.error or not desired[0].isascii())

    @pytest.mark.parametrize("desired", ["209-1200", "1000-1411", 100, 5000])
    def test_limits_are_those_that_the_gpu_reports(self, tmp_path: Path, desired: Any) -> None:
        host = SettingsHost.with_gpus(tmp_path, "b200", "a100_40gb")
        run = host.settings(gpu_clocks_mhz=desired, compute_mode="prohibited")
        assert run.error is not None and "GPU 1" in run.error and "210 to 1410 MHz" in run.error and run.changes == []

    def test_memory_clocks_have_limits_of_their_own(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "geforce_rtx_3080")
        assert host.settings(memory_clocks_mhz="405-9501").error is None
        assert "405 to 9501 MHz" in (host.settings(memory_clocks_mhz=10000).error or "")

    def test_a_lock_is_known_until_the_next_boot(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.settings(gpu_clocks_mhz=1200)
        assert host.settings(gpu_clocks_mhz=1200).changes == []
        host.boot()
        host.call("-pm", "1")
        again = host.settings(gpu_clocks_mhz=1200)
        assert again.result["changed"] is True and host.there()["gpu_clocks_mhz"] == "1200"

    def test_a_lock_is_not_known_without_persistence_mode(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.settings(gpu_clocks_mhz=1200)
        host.change(0, persistence_mode=False)
        run = host.settings(gpu_clocks_mhz=1200)
        assert run.result["changed"] is True and len(run.changes) == 1 and run.error is None

    def test_a_clock_above_the_lock_shows_that_it_is_gone(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.settings(gpu_clocks_mhz=300)
        host.change(0, locked_gpu_clocks=[1000, 1000])
        run = host.settings(gpu_clocks_mhz=300)
        assert run.result["changed"] is True and host.there()["gpu_clocks_mhz"] == "300"

    def test_a_lock_that_does_not_hold_is_no_success(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.change(0, locked_gpu_clocks=[1000, 1000])

        def pretends(arguments: Any, result: Any) -> Any:
            message = result()
            if "-lgc" in arguments:
                host.change(0, locked_gpu_clocks=[1000, 1000])
            return message

        run = host.settings(pretends, gpu_clocks_mhz=300)
        assert run.error is not None and "reported success but nothing changed" in run.error

    def test_a_reset_frees_the_clocks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        monkeypatch.setattr(locked_clocks, "CACHE_FILE", str(tmp_path / "run" / "clocks.json"))
        host.settings(gpu_clocks_mhz=1200)
        assert host.ecc(enabled=False, reset="if_required").result["gpus"][0]["ecc_mode_current"] == "disabled"
        run = host.settings(gpu_clocks_mhz=1200)
        assert run.result["changed"] is True and host.there()["gpu_clocks_mhz"] == "1200"

    def test_what_is_not_supported_is_found_by_trying(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
        host.settings(gpus=["0"], memory_clocks_mhz="default")
        desired: dict[str, Any] = {
            "settings": [{"gpus": ["0"], "memory_clocks_mhz": 405}, {"gpus": ["1"], "memory_clocks_mhz": 1215}]
        }
        run = host.settings(**desired)
        assert run.error is not None and "Setting locked Memory clocks is not supported" in run.error
        assert "not tried: memory clocks 1215 of GPU 1" in run.error and run.result["changed"] is False
        run = host.settings(**desired, on_unsupported="skip")
        skipped, changed = run.result["gpus"]
        assert run.error is None and (skipped["status"], changed["status"]) == ("skipped", "changed")
        (reason,) = skipped["skipped"]
        assert reason["setting"] == "memory_clocks_mhz" and "not supported" in reason["reason"]
        assert host.settings(**desired, on_unsupported="skip").result["changed"] is False


class TestCacheOfClocks:
    """When cached clocks are invalidated."""

    @pytest.mark.parametrize("second", ["driver", "persistenced"])
    def test_until_the_driver_is_loaded_or_persistenced_started_again(self, tmp_path: Path, second: str) -> None:
        gpu = _gpu(tmp_path)
        cache = BootCache(str(tmp_path / "run" / "clocks.json"))
        paths = {name: tmp_path / name for name in ("driver", "persistenced")}
        for path in paths.values():
            path.mkdir()

        def clocks() -> LockedClocks:
            return LockedClocks(cache, **{name: str(path) for name, path in paths.items()})

        clocks().confirm(gpu.identity, GPU_CLOCKS, "1200")
        assert clocks().known(gpu, GPU_CLOCKS) == "1200"
        # Rename it, so that its inode number is not reused.
        paths[second].rename(tmp_path / "before")
        assert clocks().known(gpu, GPU_CLOCKS) is None
        paths[second].mkdir()
        assert clocks().known(gpu, GPU_CLOCKS) is None

    def test_until_the_gpu_is_reset_by_us(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        gpu = _gpu(tmp_path)
        monkeypatch.setattr(locked_clocks, "CACHE_FILE", str(tmp_path / "run" / "clocks.json"))
        LockedClocks(BootCache(locked_clocks.CACHE_FILE)).confirm(gpu.identity, GPU_CLOCKS, "1200")
        smi = Smi(
            "nvidia-smi", RetryPolicy(1, 0, 0), lambda commands, timeout: [_done(command) for command in commands]
        )
        gpu_reset.Resetter(smi, lambda _gpu: (), lambda: (gpu,), lambda _gpu: None).reset((gpu,))
        assert LockedClocks(BootCache(locked_clocks.CACHE_FILE)).known(gpu, GPU_CLOCKS) is None

    def test_until_the_mig_mode_changes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        monkeypatch.setattr(locked_clocks, "CACHE_FILE", str(tmp_path / "run" / "clocks.json"))
        host.settings(gpu_clocks_mhz=1200)
        host.run(enabled=True)
        run = host.settings(gpu_clocks_mhz=1200)
        assert run.result["changed"] is True and host.there()["gpu_clocks_mhz"] == "1200"

    def test_not_in_check_mode(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.settings(check=True, gpu_clocks_mhz=1200)
        assert host.settings(check=True, gpu_clocks_mhz=1200).result["changed"] is True


def _gpu(directory: Path) -> Gpu:
    return parse_document(SettingsHost.with_gpus(directory, "a100_40gb").call("-q", "-x")[0]).gpus[0]


def _done(command: Any) -> Any:
    return CommandResult(tuple(command), 0, b"All done.\n", b"", 0.0)


class TestPersistenceMode:
    """`persistence_mode`."""

    @pytest.mark.parametrize("enabled", [True, False])
    def test_a_mode_that_persistenced_does_not_give_is_explained(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enabled: bool
    ) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.change(0, persistence_mode=not enabled)

        def keeps(arguments: Any, result: Any) -> Any:
            message = result()
            host.change(0, persistence_mode=not enabled)
            return message

        monkeypatch.setattr(locked_clocks, "PERSISTENCED", str(tmp_path))
        run = host.settings(keeps, persistence_mode=enabled)
        assert run.error is not None and "reported success but nothing changed" in run.error
        assert "nvidia-persistenced runs" in run.error
        monkeypatch.setattr(locked_clocks, "PERSISTENCED", str(tmp_path / "nothing"))
        assert "nvidia-persistenced" not in (
            host.settings(keeps, persistence_mode=enabled).error or "nvidia-persistenced"
        )


class TestConflicts:
    """Settings that exclude each other, or that no longer exist, are refused by name."""

    @pytest.mark.parametrize("pending", [True, False])
    def test_accounting_and_mig(self, tmp_path: Path, pending: bool) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
        host.change(1, mig_mode={"current": not pending, "pending": pending})
        run = host.settings(accounting_mode=True, on_unsupported="skip")
        assert run.error is not None and "accounting_mode and MIG exclude each other on GPU 1" in run.error
        assert run.changes == []
        assert host.settings(accounting_mode=False).error is None

    def test_compute_mode_and_mig(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.change(0, mig_mode={"current": True, "pending": True})
        run = host.settings(compute_mode="prohibited")
        assert run.error is not None and "compute_mode prohibited and MIG exclude each other" in run.error
        assert host.settings(compute_mode="default").error is None

    def test_exclusive_thread(self, tmp_path: Path) -> None:
        run = SettingsHost.with_gpus(tmp_path, "t4").settings(compute_mode="exclusive_thread")
        assert run.error == "compute_mode: exclusive_thread is deprecated; use exclusive_process" and run.calls == []

    def test_everything_that_is_wrong_is_reported_at_once(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
        run = host.settings(power_limit_w=90, gpu_clocks_mhz=1500)
        assert run.error is not None and run.error.startswith("nothing was changed: ")
        assert "60 to 70 W" in run.error and "100 to 400 W" in run.error and "210 to 1410 MHz" in run.error


class TestUnsupported:
    """GPUs that lack a setting."""

    def test_one_without_power_limit(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
        _show(host, 0, "gpu_power_readings/requested_power_limit", "N/A")
        run = host.settings(power_limit_w="default")
        assert (
            run.error is not None
            and "GPU 0 (Tesla T4, 00000000:06:00.0) has no power limit (not available)" in run.error
        )
        run = host.settings(power_limit_w=350, gpus=["0", "1"], on_unsupported="skip")
        assert [gpu["status"] for gpu in run.result["gpus"]] == ["skipped", "changed"] and run.error is None

    def test_a_reading_that_failed_is_not_taken_for_unsupported(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4")
        _show(host, 0, "persistence_mode", "Unknown Error")
        run = host.settings(persistence_mode=True, on_unsupported="skip")
        assert run.error is not None and "the persistence mode of GPU 0" in run.error and "cannot be read" in run.error

    @pytest.mark.parametrize(
        ("setting", "desired", "path"),
        [
            ("persistence_mode", True, "persistence_mode"),
            ("compute_mode", "default", "compute_mode"),
            ("accounting_mode", False, "accounting_mode"),
        ],
    )
    def test_modes_that_a_gpu_lacks(self, tmp_path: Path, setting: str, desired: Any, path: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4")
        _show(host, 0, path, "N/A")
        run = host.settings(**{setting: desired})
        assert run.error is not None and f"has no {setting.replace('_', ' ')} (not available)" in run.error
        (gpu,) = host.settings(**{setting: desired}, on_unsupported="skip").result["gpus"]
        assert gpu["status"] == "skipped" and gpu["skipped"][0]["setting"] == setting


def _show(host: SettingsHost, index: int, path: str, text: str) -> None:
    """Show this text at `path` of the document."""
    with store.transaction(str(host.root)) as state:
        state["gpus"][index]["overrides"][path] = text


class TestSeveralDeclarations:
    """The option `settings`."""

    def test_entries_add_up(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb", "a100_40gb")
        run = host.settings(
            settings=[
                {"accounting_mode": True},
                {"gpus": ["NVIDIA A100*"], "power_limit_w": 300, "accounting_mode": True},
                {"gpus": ["2"], "compute_mode": "prohibited"},
            ]
        )
        assert run.error is None
        assert [gpu["changed_settings"] for gpu in run.result["gpus"]] == [
            ["accounting_mode"],
            ["power_limit_w", "accounting_mode"],
            ["compute_mode", "power_limit_w", "accounting_mode"],
        ]
        for call in run.changes:
            assert call[0] == "-i" and call[1].startswith("GPU-")

    def test_entries_that_differ_are_refused(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "t4")
        run = host.settings(settings=[{"power_limit_w": 65}, {"gpus": ["1"], "power_limit_w": 66}])
        assert run.error is not None and "GPU 1" in run.error and "differ in power_limit_w" in run.error
        assert run.changes == []

    @pytest.mark.parametrize(
        ("options", "reported"),
        [
            ({}, "nothing is declared"),
            ({"settings": [{"gpus": ["0"]}]}, "nothing is declared"),
            ({"gpus": [], "accounting_mode": True}, "gpus is empty"),
            ({"gpus": ["9"], "accounting_mode": True}, "no GPU matches '9'"),
            ({"accounting_mode": "yes"}, "accounting_mode is true or false"),
            ({"compute_mode": "Default"}, "compute_mode is one of default, prohibited, exclusive_process"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, tmp_path: Path, options: dict[str, Any], reported: str) -> None:
        run = SettingsHost.with_gpus(tmp_path, "t4").settings(**options)
        assert run.error is not None and reported in run.error and run.changes == []


def test_few_reads_whatever_the_number_of_gpus(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, *["h200"] * 8)
    run = host.settings(power_limit_w=500, accounting_mode=True)
    assert len(run.changes) == 16 and len(run.calls) == 19 and run.calls[1] == run.calls[-1] == ["-q", "-x"]
    # A converged host does not need the document, which takes five times as long.
    (call,) = host.settings(power_limit_w=500, accounting_mode=True).calls
    assert call[0].startswith("--query-gpu=")
    (call,) = host.ecc(enabled=True, clear_counters="volatile").calls
    assert call[0].startswith("--query-gpu=")


def test_an_ordinary_user_is_reported_what_is_needed(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4", "t4")
    host.root_user = False
    run = host.settings(persistence_mode=False, compute_mode="prohibited")
    assert run.error is not None and "become: true" in run.error
    assert len(run.changes) == 1 and run.result["changed"] is False
    assert "not tried: compute mode prohibited of GPU 0" in run.error
