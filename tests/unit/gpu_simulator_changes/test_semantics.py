# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Effect and lifetime of changes: pending and current values, reset and reboot, privileges, blockers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .hosts import Host, two_a100

VOLATILE = (
    ("-pm 1", "persistence_mode", "Enabled", "Disabled"),
    ("-pl 200", "power.limit", "200.00", "400.00"),
    ("-c 3", "compute_mode", "Exclusive_Process", "Default"),
    ("-am 1", "accounting.mode", "Enabled", "Disabled"),
    ("-ac 1215,1410", "clocks.applications.graphics", "1410", "1095"),
    ("-lgc 900,1200", "clocks.current.graphics", "900", "210"),
)
"""Command, field, its value after the command, its default."""


@pytest.mark.parametrize(("command", "field", "changed", "usual"), VOLATILE)
def test_a_setting_holds_until_the_reboot(command: str, field: str, changed: str, usual: str, tmp_path: Path) -> None:
    host = Host(tmp_path, persistence_mode=False)
    assert host.csv(field) == usual
    assert host.smi(command)[1] == 0
    assert host.csv(field) == changed
    host.control("boot")
    assert host.csv(field) == usual


@pytest.mark.parametrize(
    ("command", "field", "usual"),
    [("-rgc", "clocks.current.graphics", "210"), ("-rac", "clocks.applications.graphics", "1095")],
)
def test_clocks_can_be_given_back(command: str, field: str, usual: str, tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.prepare("-lgc 900,1200", "-ac 1215,1410")
    assert host.csv(field) != usual
    assert host.smi(command) == ("All done.\n", 0)
    assert host.csv(field) == usual


def test_locked_memory_clocks_are_kept_and_given_back(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.smi("-lmc 1215")[0].startswith('Memory clocks set to "(memClkMin 1215, memClkMax 1215)" for GPU ')
    assert host.gpu()["locked_memory_clocks"] == [1215, 1215]
    assert host.smi("-rmc") == ("All done.\n", 0)
    assert host.gpu()["locked_memory_clocks"] is None


@pytest.mark.parametrize("model", ["a100_40gb", "h200", "t4"])
def test_ecc_is_pending_until_the_reboot_and_stays(model: str, tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": model}])
    host.smi("-e 0")
    assert host.csv("ecc.mode.current,ecc.mode.pending") == "Enabled, Disabled"
    host.control("boot")
    assert host.csv("ecc.mode.current,ecc.mode.pending") == "Disabled, Disabled"
    host.control("boot")
    assert host.csv("ecc.mode.current,ecc.mode.pending") == "Disabled, Disabled"


def test_memory_is_larger_without_ecc_where_it_lies_in_the_same_memory(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "t4"}])
    with_ecc = int(host.csv("memory.total"))
    host.prepare("-e 0", "!boot")
    assert int(host.csv("memory.total")) > with_ecc


def test_a_pending_ecc_mode_can_be_taken_back(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.smi("-e 0")
    text, _unused = host.smi("-e 1")
    assert text.endswith("All done.\nReboot required.\n")
    assert host.csv("ecc.mode.current,ecc.mode.pending") == "Enabled, Enabled"


@pytest.mark.parametrize(("model", "after"), [("a100_40gb", "Disabled"), ("h200", "Disabled"), ("t4", "Enabled")])
def test_a_reset_applies_ecc_on_ampere_and_newer(model: str, after: str, tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": model}])
    host.prepare("-e 0", "-r")
    assert host.csv("ecc.mode.current") == after


@pytest.mark.parametrize(
    ("model", "survives"),
    [("a100_40gb", True), ("a30", True), ("h100_80gb", False), ("h200", False), ("b200", False)],
)
def test_mig_mode_survives_a_reboot_on_ampere_alone_and_instances_never(
    model: str, survives: bool, tmp_path: Path
) -> None:
    host = Host(tmp_path, gpus=[{"model": model}])
    host.prepare("-mig 1", "mig -cgi 0 -C")
    assert len(host.gpu()["gpu_instances"]) == 1
    host.control("boot")
    mode = "Enabled" if survives else "Disabled"
    assert host.csv("mig.mode.current,mig.mode.pending") == f"{mode}, {mode}"
    assert host.gpu()["gpu_instances"] == []


def test_mig_mode_of_ampere_in_a_virtual_machine_waits_for_the_reboot(tmp_path: Path) -> None:
    host = Host(tmp_path, virtualization="Pass-Through")
    host.smi("-mig 1")
    assert host.csv("mig.mode.current,mig.mode.pending") == "Disabled, Enabled"
    host.control("boot")
    assert host.csv("mig.mode.current,mig.mode.pending") == "Enabled, Enabled"


def test_mig_mode_of_hopper_in_a_virtual_machine_changes_at_once(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200"}], virtualization="Pass-Through")
    host.smi("-mig 1")
    assert host.csv("mig.mode.current,mig.mode.pending") == "Enabled, Enabled"


def test_mig_mode_of_a_busy_ampere_is_applied_by_the_reset_once_it_is_idle(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.prepare("!busy", "-mig 1")
    assert host.csv("mig.mode.current,mig.mode.pending") == "Disabled, Enabled"
    assert host.smi("-r")[1] == 255
    host.prepare("!idle", "-r")
    assert host.csv("mig.mode.current,mig.mode.pending") == "Enabled, Enabled"


@pytest.mark.parametrize(("model", "status", "pending"), [("a100_40gb", 0, "Disabled"), ("h100_80gb", 19, "Enabled")])
def test_mig_mode_with_instances_left_cannot_be_left(model: str, status: int, pending: str, tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": model}])
    host.prepare("-mig 1", "mig -cgi 9")
    assert host.smi("-mig 0")[1] == status
    assert host.csv("mig.mode.current,mig.mode.pending") == f"Enabled, {pending}"


def test_a_later_gpu_is_left_alone_when_an_earlier_one_fails(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h100_80gb", "count": 3}])
    host.prepare("!busy --gpu 1")
    assert host.smi("-mig 1")[1] == 19
    assert [host.csv("mig.mode.current", number) for number in range(3)] == ["Enabled", "Disabled", "Disabled"]


def test_a_gpu_without_mig_does_not_stop_the_others(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "t4"}, {"model": "a30"}])
    text, status = host.smi("-mig 1")
    assert status == 0
    assert "Treating as warning and moving on.\nEnabled MIG Mode" in text


def test_mig_mode_ends_accounting(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.prepare("-am 1", "-mig 1")
    assert host.csv("accounting.mode") == "Disabled"


def test_only_one_of_all_gpus_is_reset_when_another_is_busy(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 3}])
    host.prepare("-pl 300", "!busy --gpu 0", "!busy --gpu 2")
    text, status = host.smi("-r")
    assert status == 255
    assert text == (
        "GPU 00000000:07:00.0 was successfully reset.\n"
        "The following GPUs could not be reset:\n"
        "  GPU 00000000:06:00.0: In use by another client\n"
        "  GPU 00000000:08:00.0: In use by another client\n"
        "\n"
        "2 devices are currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
        "graphics application such as an X server, or a monitoring application such as another instance of nvidia-smi)."
        " Please first kill all processes using these devices and all compute applications running in the system.\n"
    )
    assert [host.csv("power.limit", number) for number in range(3)] == ["300.00", "700.00", "300.00"]


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("-mig 1", "Unable to enable MIG Mode for GPU {}: Insufficient Permissions"),
        ("-e 0", "Unable to set ECC config for GPU {}: Insufficient Permissions"),
        ("-pm 1", "Unable to set persistence mode for GPU {}: Insufficient Permissions"),
        ("-pl 200", "Failed to set power management limit for GPU {}: Insufficient Permissions"),
        ("-c 3", "Unable to set the compute mode for GPU {}: Insufficient Permissions"),
        ("-lgc 900,1200", "The current user does not have permission to change clocks for GPU {}."),
        ("-rgc", "The current user does not have permission to change clocks for GPU {}."),
        ("-lmc 1215", "The current user does not have permission to change clocks for GPU {}."),
        ("-rmc", "The current user does not have permission to change clocks for GPU {}."),
        ("-ac 1215,1410", "The current user does not have permission to change clocks for GPU {}."),
        ("-rac", "The current user does not have permission to change clocks for GPU {}."),
    ],
)
def test_an_ordinary_user_changes_nothing(command: str, line: str, tmp_path: Path) -> None:
    host = Host(tmp_path, persistence_mode=False)
    before = host.state
    text = line.format("00000000:06:00.0") + "\nTerminating early due to previous errors.\n"
    assert host.smi(command, root_user=False) == (text, 4)
    assert host.state == before


@pytest.mark.parametrize("command", ["-p 0", "-am 1", "-r", "mig -cgi 9", "mig -cci", "mig -dci", "mig -dgi"])
def test_root_is_required(command: str, tmp_path: Path) -> None:
    host = Host(tmp_path, persistence_mode=False)
    host.prepare("-mig 1", "mig -cgi 19 -C")
    before = host.state
    text, status = host.smi(command, root_user=False)
    assert "Insufficient Permissions" in text
    assert status == 4
    assert host.state == before


def uuids(host: Host) -> list[str]:
    return re.findall(r"MIG-[0-9a-f-]{36}", host.smi("-L")[0])


def test_the_uuid_of_a_mig_device_depends_on_its_gpu_and_its_instances_alone(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h100_80gb", "count": 2}])
    host.prepare("-mig 1", "mig -cgi 9:4,19:0,19:1 -C")
    first = uuids(host)
    assert len(set(first)) == 6
    host.prepare("mig -dci", "mig -dgi", "mig -cgi 19:1,9:4 -C")
    again = uuids(host)
    assert set(again) < set(first)
    assert len(again) == 4


def test_what_was_created_before_a_failure_stays(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.smi("-mig 1")
    # Two starts are left for 3g.20gb after 1g at 0 took one of them.
    text, status = host.smi("mig -cgi 19:0,9,9")
    assert status == 23
    assert text.count("Successfully created") == 2
    assert [instance["start"] for instance in host.gpu()["gpu_instances"]] == [4, 0]


def test_a_busy_instance_stays_and_its_neighbours_can_go(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.prepare("-mig 1", "mig -cgi 9:0,9:4 -C", "!busy --gpu-instance 1")
    assert host.smi("mig -dci -gi 2")[1] == 0
    assert host.smi("mig -dgi -gi 2")[1] == 0
    assert host.smi("mig -dci -gi 1")[1] == 19
    assert host.smi("mig -dgi")[1] == 19
    host.control("idle")
    assert host.smi("mig -dci")[1] == 0
    assert host.smi("mig -dgi")[1] == 0


@pytest.mark.parametrize("selector", ["1", "00000000:0F:00.0", "0F:00.0", "GPU-a0000001-4d4f-434b-8000-000000000002"])
def test_a_gpu_goes_by_index_bus_id_and_uuid(selector: str, tmp_path: Path) -> None:
    host = two_a100(tmp_path, 580)
    assert host.smi(f"-i {selector} -mig 1")[1] == 0
    assert host.smi(f"mig -i {selector} -cgi 9")[1] == 0
    assert [len(gpu["gpu_instances"]) for gpu in host.state["gpus"]] == [0, 1]
    assert host.csv("mig.mode.current", 0) == "Disabled"


def test_a_profile_goes_by_number_short_and_full_name(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "rtx_pro_6000_blackwell"}])
    host.smi("-mig 1")
    assert host.run(["mig", "-cgi", "014,1g.24gb+me,MIG 1g.24gb-me,1g.24gb+gfx:9"])[1] == 0
    assert [instance["profile_id"] for instance in host.gpu()["gpu_instances"]] == [14, 21, 67, 47]


def test_all_media_engines_in_one_instance_leave_room_for_those_without(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "rtx_pro_6000_blackwell"}])
    host.prepare("-mig 1", "mig -cgi 1g.24gb+me.all")
    assert host.smi("mig -cgi 1g.24gb")[1] == 23
    assert host.smi("mig -cgi 1g.24gb+me")[1] == 23
    assert host.smi("mig -cgi 1g.24gb-me,2g.48gb-me")[1] == 0


def test_the_table_of_profiles_counts_what_is_free(tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "h100_80gb"}])
    host.prepare("-mig 1", "mig -cgi 19:4,19:6")
    free = dict(re.findall(r"MIG (\S+) +\d+ +(\d/\d)", host.smi("mig -lgip")[0]))
    # As captured on an H100 with 580.173.02.
    assert free == {
        "1g.10gb": "5/7",
        "1g.10gb+me": "1/1",
        "1g.20gb": "2/4",
        "2g.20gb": "2/3",
        "3g.40gb": "1/2",
        "4g.40gb": "1/1",
        "7g.80gb": "0/1",
    }


@pytest.mark.parametrize(("branch", "free"), [(550, "0/7"), (580, "7/7"), (610, "7/7")])
def test_profiles_are_listed_with_mig_off_since_550(branch: int, free: str, tmp_path: Path) -> None:
    host = Host(tmp_path, branch)
    text, status = host.smi("mig -lgip")
    assert status == 0
    assert re.search(rf"MIG 1g\.5gb +19 +{free} ", text)
    assert host.smi("mig -lgipp")[1] == 0


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("-lgc 900,1200", "Setting locked GPU clocks is not supported for GPU {}."),
        ("-lmc 715", "Setting locked Memory clocks is not supported for GPU {}."),
        ("-p 1", None),
    ],
)
def test_an_old_gpu_has_what_it_has(command: str, line: str | None, tmp_path: Path) -> None:
    host = Host(tmp_path, gpus=[{"model": "p100"}])
    expected = "Reset aggregate ECC errors to zero for GPU {}." if line is None else line
    text, status = host.smi(command)
    assert status == 0
    assert text.startswith(expected.format("00000000:06:00.0") + "\n")
    assert ("Treating as warning and moving on." in text) is (line is not None)


def test_an_unsupported_setting_is_an_error_where_warnings_are_errors(tmp_path: Path) -> None:
    host = Host(tmp_path, 550, gpus=[{"model": "geforce_rtx_3080"}])
    assert host.smi("-e 1")[1] == 0
    assert host.smi("-e 1 -eow")[1] == 3


def test_ecc_counters_are_cleared_by_kind(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.control("set", "ecc_errors.volatile.dram_correctable", "3")
    host.control("set", "ecc_errors.aggregate.dram_correctable", "5")
    host.smi("-p 0")
    assert host.gpu()["ecc_errors"]["volatile"]["dram_correctable"] == 0
    # Ampere and newer keep the aggregate counters permanently.
    assert "not supported" in host.smi("-p 1")[0]
    host.control("boot")
    assert host.gpu()["ecc_errors"]["aggregate"]["dram_correctable"] == 5


def test_a_reboot_ends_processes_and_brings_a_lost_gpu_back(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.prepare("!busy", "!fault lost")
    assert host.smi("-i 0 -mig 1")[1] == 15
    assert host.smi("mig -lgi")[1] == 15
    host.control("boot")
    assert host.gpu()["processes"] == []
    assert host.smi("-L")[1] == 0


@pytest.mark.parametrize("command", ["-ac 1215,1410", "-rac"])
def test_applications_clocks_are_gone_in_610(command: str, tmp_path: Path) -> None:
    host = Host(tmp_path, 610)
    assert host.smi(command)[0] == "The requested functionality has been deprecated.\n"


@pytest.mark.parametrize("command", ["-i 0 -mig 0", "-i 0 -pl 200", "mig -cgi 19", "mig -dgi"])
def test_root_of_a_container_that_sees_the_state_read_only_changes_nothing(command: str, tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.prepare("-mig 1", "mig -cgi 19")
    host.control("fault", "hang", "0", "--at", "2")
    lock = tmp_path / "var/lib/gpu-simulator/state.lock"
    lock.unlink()
    # Opening a directory for writing fails, like all writes on a read-only mount; root would ignore mode bits.
    lock.mkdir()
    before = host.state
    text, status = host.smi(command)
    assert "Insufficient Permissions" in text
    assert status == 4
    assert host.state == before
    assert host.smi("mig -lgip")[1] == 0
