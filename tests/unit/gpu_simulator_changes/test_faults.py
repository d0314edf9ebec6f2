# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fault injection through the control command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator.control import command as control
from gpu_simulator.control import faults

from .hosts import Host
from .reference import ROOT

SIMULATOR = ROOT / "roles" / "gpu_simulator" / "files"
PROGRAM = "import sys; from gpu_simulator import cli; sys.exit(cli.main(sys.argv[1:], root_user=True))"


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Host:
    return Host(tmp_path, gpus=[{"model": "a100_40gb", "count": 2}])


@pytest.fixture(name="slept")
def _slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collect the sleep times of calls in seconds, without sleeping."""
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def process(host: Host, *arguments: str) -> int:
    """Run nvidia-smi as a separate process; return its exit status."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        env={"GPU_SIMULATOR_ROOT": host.root, "PYTHONPATH": str(SIMULATOR)},
    )
    return done.returncode


def test_hang(host: Host, slept: list[float]) -> None:
    host.control("fault", "hang", "30", "--verb", "-q -x")
    assert host.smi("-L")[1] == 0
    assert slept == []
    assert host.smi("-x -q")[1] == 0
    assert slept == [30.0]


def test_exit_at_the_nth_call_of_a_verb(host: Host) -> None:
    host.smi("-mig 1")
    host.control("fault", "exit", "255", "--verb", "mig -cgi", "--at", "2", "--text", "Unknown Error")
    assert host.smi("mig -cgi 19 -i 0")[1] == 0
    assert host.smi("mig -lgi")[1] == 0
    assert host.smi("mig --create-gpu-instance=19 -i 0") == ("Unknown Error", 255)
    assert host.smi("mig -cgi 19 -i 0")[1] == 0
    assert len(host.gpu()["gpu_instances"]) == 2


def test_a_fault_acts_as_often_as_it_was_reported(host: Host) -> None:
    host.control("fault", "exit", "9", "--verb", "-L", "--at", "2", "--times", "2")
    assert [host.smi("-L")[1] for _unused in range(5)] == [0, 9, 9, 0, 0]


def test_silent_no_op(host: Host) -> None:
    host.control("fault", "noop", "--verb", "-mig")
    assert host.smi("-mig 1") == ("", 0)
    assert host.smi("--multi-instance-gpu=1") == ("", 0)
    assert host.csv("mig.mode.current,mig.mode.pending") == "Disabled, Disabled"


def test_lost_gpu(host: Host) -> None:
    host.control("fault", "lost", "--gpu", "1")
    assert host.smi("-q -x")[1] == 15
    assert host.smi("-i 0 -q -x")[1] == 0


def test_a_field_that_cannot_be_read(host: Host) -> None:
    host.control("fault", "field", "fan_speed", "--gpu", "1")
    text, status = host.smi("-i 1 -q -x")
    assert "<fan_speed>ERR!</fan_speed>" in text
    assert status == 0
    assert "ERR!" not in host.smi("-i 0 -q -x")[0]


def test_an_element_that_no_document_has(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main(["fault", "field", "fan_sped"], host.root) == 1
    assert "the document of a GPU has no element fan_sped" in capsys.readouterr().err
    assert host.gpu()["overrides"] == {}


def test_a_missing_gpu_is_not_listed_until_a_reboot(host: Host) -> None:
    host.control("fault", "missing", "--gpu", "0")
    assert host.csv("index,uuid") == f"0, {host.gpu(1)['uuid']}"
    assert "<attached_gpus>1</attached_gpus>" in host.smi("-q -x")[0]
    host.control("boot")
    assert host.smi("-L")[0].count("GPU ") == 2


def test_nvlinks_that_are_down_until_a_reset(host: Host) -> None:
    host.control("fault", "nvlink", "3", "11", "--gpu", "1")
    text, status = host.smi("nvlink -s")
    assert status == 0
    assert text.count("<inactive>") == 2
    assert "\t Link 3: <inactive>\n\t Link 4: 25 GB/s\n" in text.partition("GPU 1: ")[2]
    host.smi("-r")
    assert "inactive" not in host.smi("nvlink -s")[0]


def test_errors_of_nvlinks_until_a_reset(host: Host) -> None:
    for count, counter in ((5, "Replay"), (2, "Replay"), (1, "CRC")):
        host.control("fault", "nvlink", "3", "11", "--errors", str(count), "--counter", counter, "--gpu", "1")
    text, status = host.smi("nvlink -s -e")
    assert (status, text.count("25 GB/s")) == (0, 24)
    lines = "\t Link 3: Replay Errors: 7\n\t Link 3: Recovery Errors: 0\n\t Link 3: CRC Errors: 1\n"
    assert lines in text.partition("GPU 1: ")[2] and lines not in text.partition("GPU 1: ")[0]
    host.smi("-r")
    assert host.smi("nvlink -e")[0].count("Errors: 0\n") == 2 * 12 * 3


def test_all_nvlinks_are_down(host: Host) -> None:
    host.control("fault", "nvlink", *map(str, range(12)))
    text, _status = host.smi("nvlink -s")
    assert text.splitlines()[1] == "NVML: Unable to retrieve NVLink information as all links are inActive"
    assert text.count("25 GB/s") == 12


def test_a_gpu_without_that_nvlink(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main(["fault", "nvlink", "12"], host.root) == 1
    assert "A100-SXM4-40GB has no NVLink 12" in capsys.readouterr().err


# Reason, the event reasons that are active, and NVML's mask, in which 1 is an idle GPU.
SLOWDOWNS = [
    ("hw_thermal", ("hw_slowdown", "hw_thermal_slowdown"), 0x49),
    ("sw_thermal", ("sw_thermal_slowdown",), 0x21),
    ("hw_power_brake", ("hw_slowdown", "hw_power_brake_slowdown"), 0x89),
]


@pytest.mark.parametrize(("reason", "active", "mask"), SLOWDOWNS)
def test_a_counter_grows_while_clocks_are_lowered(
    reason: str, active: tuple[str, ...], mask: int, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    counter = f"clocks_event_reasons_counters.{reason}_slowdown"
    host.control("fault", "slowdown", reason, "--seconds", "100")
    for name in ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"):
        assert host.csv(f"clocks_event_reasons.{name}") == ("Active" if name in active else "Not Active")
    assert host.csv("clocks_event_reasons.active") == f"0x{mask:016X}"
    assert host.csv(counter) == "100000000"
    now += 20
    assert host.csv(counter) == "120000000"
    assert host.csv(counter, 1) == "0"
    host.control("boot")
    now += 3
    assert host.csv(counter) == "3000000"
    host.control("fault", "clear")
    assert host.csv("clocks_event_reasons.active") == "0x0000000000000001"


def test_a_corrupted_inforom_is_reported_after_the_table(host: Host) -> None:
    host.control("fault", "inforom", "--gpu", "0")
    text, status = host.smi("")
    assert text.endswith("WARNING: infoROM is corrupted at gpu 0000:06:00.0\n")
    assert status == 14


def test_truncated_xml(host: Host) -> None:
    whole, _unused = host.smi("-q -x -i 0")
    host.control("fault", "truncate", "--share", "0.25")
    cut, status = host.smi("-q -x -i 0")
    assert status == 0
    assert len(cut) == len(whole) // 4
    assert "</nvidia_smi_log>" not in cut


def test_busy_process(host: Host) -> None:
    host.control("busy", "--gpu", "1", "--pid", "77", "--name", "train", "--memory-mib", "1024")
    assert host.smi("--query-compute-apps=pid,name,used_memory --format=csv,noheader")[0] == "77, train, 1024 MiB\n"
    assert host.smi("-r -i 1")[1] == 255


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        # Measured with 8 H200 under 580.159.04; within a tenth.
        ("-q -x", 0.848),
        ("-q -x -i 0", 0.219),
        ("-L", 0.130),
        ("--query-gpu=index,uuid --format=csv", 0.150),
        ("mig -lgip", 0.190),
        ("-q -d ECC", 0.182),
        ("topo -m", 0.329),
        ("-pm 1 -i 99", 0.130),
    ],
)
def test_slow_replies_take_what_they_take_on_a_real_host(
    command: str, seconds: float, tmp_path: Path, slept: list[float]
) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200", "count": 8}])
    host.control("fault", "slow")
    host.smi(command)
    assert slept == [pytest.approx(seconds, rel=0.1)]


def test_slow_replies_of_a_small_host(tmp_path: Path, slept: list[float]) -> None:
    host = Host(tmp_path, gpus=[{"model": "h200"}])
    host.control("fault", "slow", "--factor", "2")
    host.smi("-q -x")
    assert slept == [pytest.approx(2 * 0.107, rel=0.1)]


def test_a_failed_compute_instance_leaves_its_gpu_instance(host: Host) -> None:
    host.prepare("-i 0 -mig 1")
    host.control("fault", "compute-instance", "--at", "2", "--error", "insufficient_resources")
    text, status = host.smi("mig -cgi 19,19,19 -C")
    assert status == 23
    assert text.count("Successfully created GPU instance") == 2
    assert text.count("Successfully created compute instance") == 1
    assert [len(instance["compute_instances"]) for instance in host.gpu()["gpu_instances"]] == [0, 1]
    assert host.smi("mig -cci -gi 11")[1] == 0


def test_an_operation_fails_on_one_gpu_only(host: Host) -> None:
    host.control("fault", "driver", "set_power_limit", "--gpu", "1", "--error", "unknown")
    text, status = host.smi("-pl 300")
    assert status == 255
    assert "Power limit for GPU 00000000:06:00.0 was set to 300.00 W" in text
    assert "Failed to set power management limit for GPU 00000000:07:00.0: Unknown Error" in text


@pytest.mark.parametrize(("moment", "expected"), [("before", "Disabled"), ("after", "Enabled")])
def test_killed_before_or_after_the_change(host: Host, moment: str, expected: str) -> None:
    host.control("fault", "kill", "--verb", "-mig", "--moment", moment, "--at", "2")
    assert process(host, "-i", "1", "-mig", "1") == 0
    assert process(host, "-i", "0", "-mig", "1") == -signal.SIGKILL
    host.control("fault", "clear")
    assert host.csv("mig.mode.current") == expected


def test_faults_are_listed_and_cleared(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.control("fault", "hang", "1")
    host.control("fault", "exit", "9")
    host.control("fault", "lost")
    capsys.readouterr()
    host.control("fault", "list")
    assert '"kind": "hang"' in capsys.readouterr().out
    host.control("fault", "clear", "2")
    assert [fault["kind"] for fault in host.state["faults"]] == ["hang"]
    host.control("fault", "clear")
    assert host.state["faults"] == []
    assert host.smi("-L")[1] == 0


def test_what_faults_did_to_gpus_is_listed(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    def listed() -> list[dict[str, Any]]:
        capsys.readouterr()
        host.control("fault", "list")
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    assert listed() == []
    host.control("fault", "lost", "--gpu", "1")
    assert listed() == [{"kind": "lost", "gpu": 1}]
    host.control("fault", "nvlink", "2", "--gpu", "0")
    host.control("fault", "recovery-action", "drain_and_reset", "--gpu", "0")
    host.control("fault", "field", "fan_speed")
    host.control("fault", "dcgm", "memory")
    assert [(one["kind"], one.get("gpu")) for one in listed()] == [
        ("recovery-action", 0),
        ("nvlink", 0),
        ("field", 0),
        ("lost", 1),
        ("dcgm", None),
    ]
    host.control("fault", "clear")
    assert listed() == []


@pytest.mark.parametrize(
    ("verb", "command", "expected"),
    [
        ("", "-L", True),
        ("mig", "mig -lgi", True),
        ("mig -cgi", "mig -i 0 -cgi 9 -C", True),
        ("mig -cgi", "mig -dgi", False),
        ("-q -x", "-q -x -i 3", True),
        ("-q -x", "--xml-format --query", True),
        ("-q -x", "-q", False),
        ("--query-gpu", "--query-gpu=index --format=csv", True),
        ("-mig", "--multi-instance-gpu=1", True),
        ("-mig", "mig -lgi", False),
    ],
)
def test_a_fault_reads_the_commands_that_have_its_words(verb: str, command: str, expected: bool) -> None:
    fault: Any = {"kind": "exit", "verb": verb}
    assert faults.matches(fault, command.split()) is expected


@pytest.mark.parametrize(
    ("arguments", "error_message"),
    [
        (["busy", "--gpu", "5"], "no one GPU is meant by '5'"),
        (["busy", "--gpu-instance", "3"], "this GPU has no compute instance 0 in a GPU instance 3"),
        (["busy", "--compute-instance", "0"], "give --gpu-instance as well"),
        (["fault", "clear", "7"], "there is no fault 7"),
        (["fault", "exit", "1", "--at", "0"], "--at and --times count from 1"),
        (["set", "no.such.path", "1"], "a GPU's state has no no.such.path"),
        (["set", "uuid", "1"], 'uuid is "GPU-'),
        (["set", "minor", "{"], "{ is not JSON"),
        (["init"], ""),
    ],
)
def test_the_control_command_states_what_is_wrong(
    host: Host, arguments: list[str], error_message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert control.main(arguments, host.root) == (1 if error_message else 0)
    assert error_message in capsys.readouterr().err


def test_the_control_command_shows_and_makes_the_state(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.smi("-mig 1")
    host.control("show", "--gpu", "1")
    assert '"model": "a100_40gb"' in capsys.readouterr().out
    host.control("init", "--host", "h200x8")
    assert {gpu["model"] for gpu in host.state["gpus"]} == {"h200"}
    assert len(host.state["gpus"]) == 8


def actions(host: Host) -> list[str]:
    """The recovery actions of a host's two GPUs."""
    return [host.csv("gpu_recovery_action", number) for number in (0, 1)]


@pytest.mark.parametrize(
    ("action", "branch", "text", "after_reset"),
    [
        ("reset", 580, "Reset", "None"),
        ("reboot", 580, "Reboot", "Reboot"),
        ("drain_p2p", 580, "Drain P2P", "None"),
        ("drain_and_reset", 580, "Drain and Reset", "None"),
        ("recover_imex_domain", 610, "Recover IMEX Domain", "Recover IMEX Domain"),
        ("bus_reset", 615, "Bus Reset", "None"),
        ("system_reboot", 615, "System Reboot", "System Reboot"),
    ],
)
def test_recovery_action(action: str, branch: int, text: str, after_reset: str, tmp_path: Path) -> None:
    """The driver reports a recovery action for one GPU until it has been carried out."""
    host = Host(tmp_path, branch=branch, gpus=[{"model": "a100_40gb", "count": 2}])
    host.control("fault", "recovery-action", action, "--gpu", "1")
    assert actions(host) == ["None", text]
    assert f"GPU Recovery Action                                : {text}\n" in host.smi("-q -i 1")[0]
    host.smi("-r -i 1")
    assert actions(host) == ["None", after_reset]
    host.control("boot")
    assert actions(host) == ["None", "None"]


def test_a_recovery_action_that_the_driver_does_not_have(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main(["fault", "recovery-action", "bus_reset"], host.root) == 1
    assert "came with 615" in capsys.readouterr().err
    assert actions(host) == ["None", "None"]


def test_a_row_that_waits_to_be_remapped_asks_for_a_reset(host: Host) -> None:
    host.control("set", "remapped_rows.pending", "true")
    assert actions(host) == ["Reset", "None"]
