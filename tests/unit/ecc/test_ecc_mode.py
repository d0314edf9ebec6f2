# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ECC mode on simulated GPUs: applied, pending and refused changes, and the effect of a reset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.blockers import Blocker
from gpu_simulator.state import catalogue, store

from tests.unit import faults
from tests.unit.faults import Reply, result
from tests.unit.settings.settings_host import DRIVERS, SettingsHost, models

WITH_ECC = [name for name in models() if catalogue.load(name)["ecc"]]
WITHOUT_ECC = [name for name in models() if not catalogue.load(name)["ecc"]]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("model", WITH_ECC)
def test_off_and_on_again_with_reboots(tmp_path: Path, model: str, driver: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, model, driver=driver)
    for enabled in (False, True):
        first, second = host.ecc(enabled=enabled), host.ecc(enabled=enabled)
        assert (first.error, second.error) == (None, None)
        assert (first.result["changed"], second.result["changed"]) == (True, False)
        assert first.result["reboot_required"] and second.result["reboot_required"]
        assert second.changes == [] and first.changes == [
            ["-i", first.result["gpus"][0]["uuid"], "-e", str(int(enabled))]
        ]
        assert host.ecc_modes() == (not enabled, enabled)
        host.boot()
        third = host.ecc(enabled=enabled)
        assert third.result["changed"] is False and third.result["reboot_required"] is False
        assert third.result["gpus"][0]["ecc_mode_current"] == ("enabled" if enabled else "disabled")


def test_undoing_a_pending_change_needs_no_reboot(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4")
    host.ecc(enabled=False)
    run = host.ecc(enabled=True)
    assert "Reboot required." in host.call("-i", "0", "-e", "0")[0]
    host.call("-i", "0", "-e", "1")
    assert run.result["changed"] is True
    assert (run.result["reset_required"], run.result["reboot_required"]) == (False, False)
    assert run.result["gpus"][0]["status"] == "changed" and run.result["warnings"] == []


def test_check_mode_predicts_and_changes_nothing(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
    before = host.snapshot()
    run = host.ecc(check=True, enabled=False, reset="if_required")
    assert host.state == before and run.changes == [] and not (tmp_path / "run").exists()
    (gpu,) = run.result["gpus"]
    assert run.result["changed"] and gpu["status"] == "changed" and gpu["ecc_mode_pending"] == "disabled"
    assert "after the next reboot" in run.result["diff"]["after"] and run.result["reboot_required"]
    assert host.ecc(check=True, enabled=True).result["changed"] is False


def test_a_change_warns_of_memory_size_and_profile_names(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
    (warning,) = host.ecc(gpus=["1"], enabled=False).result["warnings"]
    assert "GPU 1 (NVIDIA A100-SXM4-40GB" in warning and "memory size" in warning and "MIG profiles" in warning
    assert host.ecc(gpus=["1"], enabled=False).result["warnings"] == []


class TestReset:
    """`reset: if_required`."""

    @pytest.mark.parametrize("model", WITH_ECC)
    def test_it_is_verified_and_else_a_reboot_is_asked_for(self, tmp_path: Path, model: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, model)
        run = host.ecc(enabled=False, reset="if_required")
        (gpu,) = run.result["gpus"]
        current, pending = host.ecc_modes()
        assert run.error is None and pending is False
        assert run.result["reboot_required"] is current
        assert (gpu["status"], gpu["reset_required"]) == ("pending" if current else "changed", False)
        if current:
            assert gpu["message"] == "the ECC mode is not in effect after a reset; reboot the host"
        # A reset without effect is not repeated before the next boot.
        again = host.ecc(enabled=False, reset="if_required")
        assert again.changes == [] and again.result["changed"] is False
        assert again.result["reboot_required"] is current
        assert again.result["gpus"][0]["message"] == gpu["message"]

    def test_both_outcomes_are_simulated(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", "a100_40gb")
        host.ecc(enabled=False, reset="if_required")
        assert [host.ecc_modes(index)[0] for index in (0, 1)] == [True, False]

    def test_only_gpus_that_need_it_are_reset(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
        uuids = [gpu["uuid"] for gpu in host.ecc(check=True, enabled=True).result["gpus"]]
        run = host.ecc(modes=[{"gpus": ["0"], "enabled": False}, {"gpus": ["1"], "enabled": True}], reset="if_required")
        assert run.changes == [["-i", uuids[0], "-e", "0"], ["--gpu-reset", "-i", uuids[0]]]

    def test_a_mode_that_another_admin_left_pending_stays_so(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.call("-i", "0", "-e", "0")
        run = host.ecc(clear_counters="volatile", reset="if_required")
        assert run.changes == [] and run.result["reboot_required"] and run.result["gpus"][0]["status"] == "pending"

    def test_a_gpu_in_use_is_not_reset_and_the_blocker_is_named(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        uuid = host.state["gpus"][0]["uuid"]
        host.blockers[uuid] = [Blocker("nv-hostengine", 77, "/dev/nvidia0", "nvidia-dcgm.service")]
        run = host.ecc(enabled=False, reset="if_required")
        (gpu,) = run.result["gpus"]
        assert run.changes == [["-i", uuid, "-e", "0"]]
        assert gpu["message"] == "not reset: it is in use" and gpu["reset_required"] and gpu["reboot_required"]
        assert gpu["blockers"] == [
            {"name": "nv-hostengine", "pid": 77, "device": "/dev/nvidia0", "stop": "nvidia-dcgm.service"}
        ]
        del host.blockers[uuid]
        assert host.ecc(enabled=False, reset="if_required").result["gpus"][0]["ecc_mode_current"] == "disabled"

    def test_mig_instances_are_not_destroyed_by_a_reset(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.run(profiles=["3g.20gb"], reset=True)
        layout = host.layout()
        run = host.ecc(enabled=False, reset="if_required")
        message = run.result["gpus"][0]["message"]
        assert message.startswith("not reset: it has MIG instances, which a reset destroys: 3g.20gb:")
        assert "mig_profile" in message and run.result["gpus"][0]["reset_required"]
        assert layout and host.layout() == layout and run.result["reboot_required"]
        host.run(profiles=[])
        assert host.ecc(enabled=False, reset="if_required").result["reboot_required"] is False

    @pytest.mark.parametrize("text", ["", "No GPU instances found: Not Found\n", "Warning: infoROM is corrupted\n"])
    def test_one_list_without_mig_instances_does_not_allow_a_reset(self, tmp_path: Path, text: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.run(profiles=["3g.20gb"], reset=True)
        layout = host.layout()

        def intercept(arguments: Sequence[str], reply: faults.Reply) -> CommandResult:
            return faults.result(arguments, 0, text) if arguments[-1] == "-lgi" else reply()

        host.ecc(intercept, enabled=False, reset="if_required")
        assert layout and host.layout() == layout

    @pytest.mark.parametrize("is_busy", [False, True])
    @pytest.mark.parametrize("compute", [False, True])
    def test_all_instances_are_named_and_stay(self, tmp_path: Path, compute: bool, is_busy: bool) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.run(profiles=[], reset=True)
        host.call("mig", "-cgi", "9,14,19", *(["-C"] if compute else []))
        if is_busy:
            host.blockers[host.state["gpus"][0]["uuid"]] = [Blocker("python", 77, "/dev/nvidia0", None)]
        layout = host.layout()
        for check in (True, False, False):
            run = host.ecc(check=check, enabled=False, reset="if_required")
            (gpu,) = run.result["gpus"]
            assert run.error is None and not any("--gpu-reset" in call for call in run.calls)
            assert all(f"{name}:" in gpu["message"] for name in ("3g.20gb", "2g.10gb", "1g.5gb"))
            assert host.layout() == layout and host.state["gpus"][0]["gpu_instances"]
        assert gpu["status"] == "pending" and gpu["reboot_required"]

    @pytest.mark.parametrize("compute", [False, True])
    @pytest.mark.parametrize("text", ["", "\n", "No MIG-enabled devices found.\n", "All good.\n"])
    def test_an_empty_list_of_instances_is_not_believed(self, tmp_path: Path, compute: bool, text: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.run(profiles=[], reset=True)
        host.call("mig", "-cgi", "9,14", *(["-C"] if compute else []))

        def lists_nothing(arguments: Sequence[str], reply: Reply) -> CommandResult:
            return result(arguments, 0, text) if "-lgi" in arguments else reply()

        run = host.ecc(lists_nothing, enabled=False, reset="if_required")
        assert run.error is None and not any("--gpu-reset" in call for call in run.calls)
        assert len(host.state["gpus"][0]["gpu_instances"]) == 2
        assert "whether it has MIG instances" in run.result["gpus"][0]["message"]

    def test_a_gpu_in_mig_mode_without_instances_is_reset(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        host.run(profiles=[], reset=True)
        run = host.ecc(enabled=False, reset="if_required")
        assert run.error is None and run.result["gpus"][0]["status"] == "changed"
        assert host.ecc_modes() == (False, False)

    def test_gpus_of_one_board_are_reset_together(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb", "a100_40gb")
        with store.transaction(str(tmp_path)) as state:
            state["host"]["fabric_manager"] = False
        uuids = [gpu["uuid"] for gpu in host.state["gpus"]]
        for named, resets in ((["0", "1"], [uuids[0]]), (["0", "1", "2"], [uuids[0], ",".join(uuids)])):
            run = host.ecc(gpus=named, enabled=False, reset="if_required")
            assert run.error is None
            assert [call[-1] for call in run.changes if "--gpu-reset" in call] == resets
            together = len(named) == 3
            assert [gpu["ecc_mode"]["current"] for gpu in host.state["gpus"]] == [not together] * 3
            assert run.result["reboot_required"] is not together
            if not together:
                message = run.result["gpus"][0]["message"]
                assert "GPU 2 (" in message and "): it is not among the GPUs of this task" in message

    def test_mig_instances_of_one_keep_the_board_from_a_reset(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
        host.run(gpus=["1"], profiles=["3g.20gb"], reset=True)
        with store.transaction(str(tmp_path)) as state:
            state["host"]["fabric_manager"] = False
        run = host.ecc(enabled=False, reset="if_required")
        assert [call[-1] for call in run.changes if "--gpu-reset" in call] == [host.state["gpus"][0]["uuid"]]
        assert "GPU 1 (" in run.result["gpus"][0]["message"]
        assert "): it has MIG instances, which a reset destroys" in run.result["gpus"][0]["message"]
        assert len(host.state["gpus"][1]["gpu_instances"]) == 1

    def test_a_reset_that_cannot_be(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        with store.transaction(str(tmp_path)) as state:
            state["host"]["virtualization"] = "Pass-Through"
        run = host.ecc(enabled=False, reset="if_required")
        (gpu,) = run.result["gpus"]
        assert "Resetting GPU 00000000:06:00.0 is not supported." in gpu["message"]
        assert (gpu["reset_required"], gpu["reboot_required"]) == (False, True)

    def test_never_is_the_default(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb")
        run = host.ecc(enabled=False)
        assert not any("--gpu-reset" in call for call in run.calls)
        assert run.result["reset_required"] and run.result["reboot_required"]


class TestUnsupported:
    """GPUs without ECC are an error or reported as skipped, never silently successful."""

    @pytest.mark.parametrize("model", WITHOUT_ECC)
    @pytest.mark.parametrize("enabled", [True, False])
    def test_it_fails_before_anything_is_changed(self, tmp_path: Path, model: str, enabled: bool) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4", model)
        before = host.snapshot()
        run = host.ecc(enabled=not host.ecc_modes()[0] if enabled else enabled)
        assert run.error is not None and "GPU 1" in run.error and "has no ECC mode" in run.error
        assert "on_unsupported" in run.error and run.changes == [] and host.state == before
        assert run.result["changed"] is False

    @pytest.mark.parametrize("model", WITHOUT_ECC)
    def test_skip_states_so(self, tmp_path: Path, model: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, model, "t4")
        run = host.ecc(enabled=False, on_unsupported="skip")
        assert run.error is None
        skipped, changed = run.result["gpus"]
        assert skipped["status"] == "skipped" and "has no ECC mode" in skipped["message"]
        assert changed["status"] == "pending" and host.ecc_modes(1) == (True, False)

    def test_the_driver_may_state_so_only_when_asked(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
        fault = {"id": 1, "kind": "driver", "operation": "set_ecc_mode", "gpu": 0, "code": 3, "verb": ""}
        with store.transaction(str(tmp_path)) as state:
            state["faults"] = [{**fault, "at": 1, "times": None, "seen": 0}]
        run = host.ecc(enabled=False)
        assert run.error is not None and "Not Supported" in run.error and "on_unsupported" in run.error
        assert len(run.changes) == 1 and run.result["changed"] is False
        run = host.ecc(enabled=False, on_unsupported="skip")
        assert run.error is None and run.result["changed"] is True
        assert "Not Supported" in run.result["gpus"][0]["message"] and run.result["gpus"][0]["changed"] is False
        assert host.ecc_modes(1) == (True, False)

    def test_a_lost_gpu_is_no_gpu_without_ecc(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
        host.change(1, health="lost")
        run = host.ecc(enabled=False, on_unsupported="skip")
        assert run.error is not None and "lost" in run.error and run.changes == []


class TestCounters:
    """`clear_counters`."""

    @pytest.mark.parametrize("model", WITH_ECC)
    def test_volatile_counters_are_cleared_once(self, tmp_path: Path, model: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, model)
        assert host.ecc(clear_counters="volatile").changes == []
        host.count_errors(0, "volatile", dram_correctable=5, sram_uncorrectable_parity=1)
        check = host.ecc(check=True, clear_counters="volatile")
        first, second = host.ecc(clear_counters="volatile"), host.ecc(clear_counters="volatile")
        assert [run.result["changed"] for run in (check, first, second)] == [True, True, False]
        assert [run.result["gpus"][0]["errors_cleared"] for run in (check, first, second)] == [6, 6, 0]
        assert first.result["gpus"][0]["errors_volatile"] == 0
        assert first.changes == [["-i", first.result["gpus"][0]["uuid"], "-p", "0"]]
        assert set(host.state["gpus"][0]["ecc_errors"]["volatile"].values()) == {0}

    @pytest.mark.parametrize("model", WITH_ECC)
    def test_aggregate_counters_only_where_the_driver_can(self, tmp_path: Path, model: str) -> None:
        host = SettingsHost.with_gpus(tmp_path, model)
        host.count_errors(0, "aggregate", dram_uncorrectable=2)
        run = host.ecc(clear_counters="aggregate")
        if catalogue.load(model)["architecture"] in ("Pascal", "Volta", "Turing"):
            assert run.error is None and run.result["gpus"][0]["errors_cleared"] == 2
        else:
            assert run.error is not None and "Clearing ECC errors is not supported" in run.error
            assert run.result["changed"] is False and run.result["gpus"][0]["errors_aggregate"] == 2
            skipped = host.ecc(clear_counters="aggregate", on_unsupported="skip").result["gpus"][0]
            assert "is not supported" in skipped["message"] and skipped["errors_cleared"] == 0

    def test_zero_aggregate_counters_need_no_support(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "h200")
        run = host.ecc(clear_counters="aggregate")
        assert run.error is None and run.result["gpus"][0]["status"] == "unchanged"

    def test_with_ecc_off_there_are_none_and_that_is_reported(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4")
        host.ecc(enabled=False)
        host.boot()
        run = host.ecc(clear_counters="volatile")
        assert run.error is None and run.result["changed"] is False
        assert run.result["gpus"][0]["message"] == "ECC is off, so there are no counters to clear"
        assert run.result["gpus"][0]["errors_volatile"] is None

    def test_clearing_and_turning_off_in_one_run(self, tmp_path: Path) -> None:
        host = SettingsHost.with_gpus(tmp_path, "t4")
        host.count_errors(0, "aggregate", dram_correctable=1)
        run = host.ecc(clear_counters="aggregate", enabled=False)
        assert [call[2] for call in run.changes] == ["-p", "-e"]
        assert run.result["gpus"][0]["errors_cleared"] == 1 and host.ecc_modes() == (True, False)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({}, "nothing is declared"),
        ({"clear_counters": "all"}, "volatile or aggregate"),
        ({"gpus": [], "enabled": False}, "gpus is empty"),
        ({"gpus": ["7"], "enabled": False}, "no GPU matches '7'"),
        (
            {"modes": [{"enabled": True}, {"gpus": ["1"], "enabled": False}]},
            "GPU 1 (Tesla T4, 00000000:07:00.0) is in two entries of modes that differ in enabled",
        ),
        ({"modes": []}, None),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, options: dict[str, Any], reported: str | None) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4", "t4")
    run = host.ecc(**options)
    assert run.changes == [] and run.result["changed"] is False
    assert run.error is None if reported is None else reported in (run.error or "")


@pytest.mark.parametrize("selector", ["1", "GPU-*", "0000:07:00.0", "07:00.0", "Tesla*", "uuid"])
def test_gpus_are_chosen_as_everywhere(tmp_path: Path, selector: str) -> None:
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "t4")
    uuid = host.state["gpus"][1]["uuid"]
    run = host.ecc(gpus=[uuid if selector == "uuid" else selector], enabled=False)
    if selector == "GPU-*":
        assert run.error is not None
    else:
        assert run.changes == [["-i", uuid, "-e", "0"]]


def test_an_ordinary_user_is_reported_what_is_needed(tmp_path: Path) -> None:
    host = SettingsHost.with_gpus(tmp_path, "t4")
    host.root_user = False
    run = host.ecc(enabled=False)
    assert run.error is not None and "become: true" in run.error
    assert len(run.changes) == 1 and run.result["changed"] is False
