# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subcommands beyond the recordings: other models and drivers, what is not simulated, continuous output."""

from __future__ import annotations

import time

import pytest
from gpu_simulator import cli

from .conftest import MakeHost

NOT_SIMULATED = [
    ("h200", "boost-slider --vboost 1"),
    ("h200", "clocks -som 1 -i 0"),
    ("h200", "compute-policy --set-timeslice 1"),
    ("h200", "conf-compute -srs 1"),
    ("h200", "drain -p 0000:00:06.0 -m 1"),
    ("h200", "gpm -s 1"),
    ("h200", "nvlink -re"),
    ("h200", "pci -cErrCnt"),
    ("h200", "prm -l"),
    ("h200", "dmon -s e -c 1"),
    ("h200", "daemon"),
    ("h200", "-cc 1"),
    ("h200", "-gtt 80"),
    ("a100_40gb", "base-clocks"),
    ("a100_40gb", "boost-slider -l"),
    ("t4", "conf-compute -f"),
    ("b200", "power-profiles -l"),
    ("gh200", "c2c -s"),
]


@pytest.mark.parametrize(("model", "command"), NOT_SIMULATED, ids=[" ".join(case) for case in NOT_SIMULATED])
def test_what_is_not_simulated_is_named(
    model: str, command: str, make_host: MakeHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing on standard output, a line on standard error, and a status that nvidia-smi never exits with."""
    assert make_host(model).smi(*command.split()) == ("", cli.NOT_SIMULATED)
    assert capsys.readouterr().err.startswith("gpu-simulator: not simulated: ")


@pytest.mark.parametrize(
    ("driver", "known"),
    [("550.163.01", False), ("570.148.08", True), ("580.159.04", True)],
)
def test_a_subcommand_that_came_later(driver: str, known: bool, make_host: MakeHost) -> None:
    text, status = make_host("h200", driver=driver).smi("power-profiles", "-h")
    assert (status, "Workload Power Profiles" in text) == ((0, True) if known else (2, False))


def test_a_link_that_is_not_there_has_no_bridge(make_host: MakeHost) -> None:
    host = make_host("h200", fabric=True)
    title = "GPU 0: NVIDIA H200"
    text, status = host.smi(*["nvlink", "-cBridge", "-i", "0", "-l", "99"])
    assert (text.startswith(title), text.splitlines()[1:], status) == (True, ["\t Invalid Link"], 0)
    assert host.smi(*["nvlink", "-cBridge", "-i", "0", "-l", "3"])[0].count("\n") == 1


def test_fields_and_format_are_looked_at_before_an_empty_selector(make_host: MakeHost) -> None:
    host = make_host("h200")
    assert host.smi("--query-gpu=name", "--format=xml", "-i", "") == ("Format modifier is not recognized.\n", 2)
    refusal, status = host.smi("--query-gpu=name", "--format=csv", "-i", "")
    assert (refusal, status) == ("Failed to parse device string on command line", 255)


def test_a_monitor_prints_its_titles_once(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    host = make_host("h200", "h200")
    assert cli.main(["dmon", "-c", "3", "-d", "2"], host.root, root_user=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:5] for line in lines] == ["# gpu", "# Idx", *["    0", "    1"] * 3]
    assert slept == [2.0, 2.0]


def test_pmon_lists_processes(make_host: MakeHost) -> None:
    host = make_host("h200", "h200")

    def add_process(state: object) -> None:
        process = {"pid": 1125, "name": "/usr/bin/python3", "type": "C", "used_memory_mib": 1}
        state["gpus"][1]["processes"] = [{**process, "gpu_instance_id": None, "compute_instance_id": None}]  # type: ignore[index]

    host.change(add_process)
    rows = host.smi("pmon", "-c", "1")[0].splitlines()[2:]
    assert [row.split()[:3] for row in rows] == [["0", "-", "-"], ["1", "1125", "C"]]
    assert rows[1].split()[-1] == "python3"
    assert len({len(row) for row in rows}) == 1


# Bus ID and board ID as in documents of real hosts.
@pytest.mark.parametrize(
    ("bus_id", "board_id"),
    [
        ("00000000:00:06.0", "0x6"),
        ("00000000:00:1E.0", "0x1e"),
        ("00000000:06:00.0", "0x600"),
        ("00000000:8F:00.0", "0x8f00"),
        ("00000000:CC:00.0", "0xcc00"),
        ("00001580:00:00.0", "0x15800000"),
        ("0000F8D6:00:00.0", "0xf8d60000"),
    ],
)
def test_board_id(bus_id: str, board_id: str, make_host: MakeHost) -> None:
    host = make_host(gpus=[{"model": "h200", "bus_id": bus_id}])
    assert f"<board_id>{board_id}</board_id>" in host.smi("-q", "-x")[0]
    assert f"Board ID                                           : {board_id}\n" in host.smi("-q")[0]
