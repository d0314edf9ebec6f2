# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xid errors on demand: log lines as in real logs, and the resulting state of the GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator.control import command as control
from gpu_simulator.control import xid

from .hosts import Host

PLACE = "PCI:0000:06:00"
UNKNOWN = "pid='<unknown>', name=<unknown>"


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Host:
    return Host(tmp_path, gpus=[{"model": "h200", "count": 2}])


def logged(host: Host, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Inject an Xid; return the lines added to the log."""
    capsys.readouterr()
    host.control("fault", "xid", *arguments)
    return capsys.readouterr().out.splitlines()


# Arguments and log lines, the latter from real logs except for the bus ID.
LINES = [
    ("79 --log-only", [f"NVRM: Xid ({PLACE}): 79, {UNKNOWN}, GPU has fallen off the bus."]),
    (
        "13 --pid 9 --name a --gpu-instance 1 --compute-instance 2 --text Graphics_Exception",
        ["NVRM: Xid (PCI:0000:06:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics_Exception"],
    ),
    (
        "94 --pid 7194 --gpu-instance 5",
        ["NVRM: Xid (PCI:0000:06:00 GPU-I:05): 94, pid=7194, name=python3, Contained: SM (0x1). RST: No, D-RST: No"],
    ),
    (
        "119 --pid 4614 --name llama-server",
        [
            (
                f"NVRM: Xid ({PLACE}): 119, pid=4614, name=llama-server, Timeout after 6s of waiting for RPC response "
                "from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8)."
            ),
            f"NVRM: Xid ({PLACE}): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        ],
    ),
    (
        "149",
        [
            (
                f"NVRM: Xid ({PLACE}): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 "
                "(0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
            ),
            f"NVRM: Xid ({PLACE}): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
        ],
    ),
    (
        "154 --action reboot",
        [f"NVRM: Xid ({PLACE}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"],
    ),
    ("62 --text abc --action none", [f"NVRM: Xid ({PLACE}): 62, abc"]),
    ("200 --text new", [f"NVRM: Xid ({PLACE}): 200, {UNKNOWN}, new"]),
]


@pytest.mark.parametrize(("command", "lines"), LINES, ids=[command for command, _lines in LINES])
def test_line(command: str, lines: list[str], host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    introduction = f"NVRM: GPU at {PLACE}: {host.gpu()['uuid']}"
    assert logged(host, capsys, *command.split()) == [introduction, *lines]
    assert logged(host, capsys, "43")[0].startswith("NVRM: Xid ")


def test_615_names_the_kind_of_reset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = Host(tmp_path, branch=615, gpus=[{"model": "h200"}])
    assert logged(host, capsys, "154", "--action", "reset")[-1].endswith("from 0x0 (None) to 0x1 (PF FLR)")
    assert logged(host, capsys, "154", "--action", "bus_reset")[-1].endswith("from 0x1 (PF FLR) to 0x6 (Bus Reset)")


def test_a_driver_without_recovery_actions_logs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = Host(tmp_path, branch=550, gpus=[{"model": "h200"}])
    assert [line.partition("): ")[2][:3] for line in logged(host, capsys, "95")] == ["", "95,"]


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("48", {"ecc.errors.uncorrected.volatile.dram": "1"}),
        ("63", {"remapped_rows.pending": "Yes", "gpu_recovery_action": "Reset"}),
        ("64 --text failed", {"remapped_rows.failure": "Yes"}),
        ("95", {"gpu_recovery_action": "Reset"}),
        ("13", {"gpu_recovery_action": "None", "ecc.errors.uncorrected.volatile.dram": "0"}),
    ],
)
def test_what_an_xid_does_to_its_gpu(code: str, shown: dict[str, str], host: Host) -> None:
    host.control("fault", "xid", *code.split(), "--gpu", "1")
    for field, value in shown.items():
        assert host.csv(field, 1) == value
        assert host.csv(field, 0) != value or value in ("0", "None")


def test_a_gpu_that_fell_off_the_bus_is_lost_until_the_reboot(host: Host) -> None:
    host.control("fault", "xid", "79", "--gpu", "1")
    assert host.smi("-q -x")[1] == 15
    host.control("boot")
    assert host.smi("-q -x")[1] == 0
    assert host.csv("gpu_recovery_action", 1) == "None"


def test_only_the_line(host: Host) -> None:
    host.control("fault", "xid", "79", "--log-only")
    assert host.smi("-q -x")[1] == 0


FORMS = {
    "dmesg": r"\[ *\d+\.\d{6}\] NVRM: ",
    "syslog": r"[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \S+ kernel: NVRM: ",
    "iso": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:\d\d NVRM: ",
    "kmsg": r"3,\d+,\d+,-;NVRM: ",
}


@pytest.mark.parametrize("form", xid.FORMS)
def test_log_of_this_boot(form: str, host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.control("fault", "xid", "31", "--pid", "12", "--gpu", "1")
    capsys.readouterr()
    host.control("dmesg", "--form", form)
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2
    assert all(re.match(FORMS[form], line) for line in shown)
    assert "Xid (PCI:0000:07:00): 31, pid=12, name=python3, " in shown[1]
    host.control("boot")
    host.control("dmesg", "--form", form)
    assert capsys.readouterr().out == ""


def test_a_file_with_the_log_of_this_boot_for_programs_that_read_files(host: Host) -> None:
    path = Path(host.root, xid.BOOT_LOG)
    host.control("boot")
    [first] = path.read_text().splitlines()
    assert first.startswith("Linux version ")
    host.control("fault", "xid", "31", "--pid", "12")
    host.control("fault", "xid", "43")
    lines = path.read_text().splitlines()[1:]
    assert [" Xid " in line for line in lines] == [False, True, True]
    assert all(re.match(FORMS["iso"], line) for line in lines)
    host.control("boot")
    assert path.read_text().splitlines() == [first]


def test_kern_log_is_kept_over_reboots(host: Host) -> None:
    host.control("fault", "xid", "31")
    host.control("boot")
    host.control("fault", "xid", "43")
    lines = Path(host.root, "var/log/kern.log").read_text().splitlines()
    assert [" Xid " in line for line in lines] == [False, True, False, True]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("55", "no real line of Xid 55 is known"),
        ("154", "needs --action"),
        ("13 --compute-instance 1", "give --gpu-instance"),
        ("154 --action system_reboot", "came with 615"),
        ("13 --gpu 9", "no one GPU is meant"),
    ],
)
def test_what_cannot_be_logged(command: str, error: str, host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    before: Any = host.state
    assert control.main(["fault", "xid", *command.split()], host.root) == 1
    assert error in capsys.readouterr().err
    assert host.state == before


SWITCH = "nvidia-nvswitch{}: SXid (PCI:0000:{}:00.0): "
NO_DATA = "Data {" + ", ".join(["0x00000000"] * 9) + "}"
# Arguments and log lines; those of known codes have the form of real logs.
SXIDS = [
    (
        "24007 --link 28",
        [
            SWITCH.format(0, "c3") + "24007, Fatal, Link 28 sourcetrack timeout error (First)",
            SWITCH.format(0, "c3") + "24007, Severity 1 Engine instance 28 Sub-engine instance 00",
            SWITCH.format(0, "c3") + f"24007, {NO_DATA}",
        ],
    ),
    (
        "20009 --switch 3",
        [
            SWITCH.format(3, "c6") + "20009, Non-fatal, Link 00 RX Short Error Rate",
            SWITCH.format(3, "c6") + "20009, Severity 0 Engine instance 00 Sub-engine instance 00",
            SWITCH.format(3, "c6") + f"20009, {NO_DATA}",
        ],
    ),
    ("26006 --text HALTED", [SWITCH.format(0, "c3") + "26006, HALTED"]),
    ("99999 --text new --severity fatal", [SWITCH.format(0, "c3") + "99999, Fatal, Link 00 new"]),
]


@pytest.mark.parametrize(("command", "lines"), SXIDS, ids=[command for command, _lines in SXIDS])
def test_line_of_an_nvswitch(command: str, lines: list[str], host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    host.control("fault", "sxid", *command.split())
    assert capsys.readouterr().out.splitlines()[: len(lines)] == lines
    assert all(line in Path(host.root, xid.BOOT_LOG).read_text() for line in lines)


def test_an_sxid_without_a_known_line(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert control.main(["fault", "sxid", "10004"], host.root) == 1
    assert "no real line of SXid 10004 is known: give its text with --text" in capsys.readouterr().err


def test_any_line_of_the_kernel(host: Host) -> None:
    line = "nvidia 0000:06:00.0: AER: Uncorrected (Fatal) error received"
    host.control("fault", "log", line)
    assert [entry["text"] for entry in host.state["kernel_log"]] == [line]
    assert Path(host.root, xid.LOG).read_text().endswith(f" kernel: {line}\n")
