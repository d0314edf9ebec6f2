# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``dcgmi`` on a simulated host: documents in the format of DCGM 4, and faults that its tests detect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator import cli
from gpu_simulator.control import command as control
from gpu_simulator.control import dcgmi
from gpu_simulator.state import store

Shown = tuple[str, int]


class Host:
    """A host with GPUs below a directory."""

    def __init__(self, root: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def dcgmi(self, command: str) -> Shown:
        """Run dcgmi; return its output and exit status."""
        self._capsys.readouterr()
        status = dcgmi.main(command.split(), self.root)
        return self._capsys.readouterr().out, status

    def control(self, command: str) -> None:
        """Run the control command."""
        assert control.main(command.split(), self.root) == 0


@pytest.fixture(name="host")
def _host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    description: Any = {"driver_version": "580.82.09", "gpus": [{"model": "h200", "count": 2}]}
    store.initialise(description, str(tmp_path), device_nodes=True)
    return Host(str(tmp_path), capsys)


def results(document: Any) -> dict[str, list[str]]:
    """Status of each test on each GPU."""
    return {
        test["name"]: [result["status"] for result in test["results"]]
        for category in document["DCGM Diagnostic"]["test_categories"]
        for test in category["tests"]
    }


def test_discovery(host: Host) -> None:
    text, status = host.dcgmi("discovery -l")
    assert status == 0
    assert text.startswith("2 GPUs found.\n+--------+-----")
    assert "| 0      | Name: NVIDIA H200       " in text
    assert "|        | PCI Bus ID: 00000000:06:00.0 " in text
    # All that follows the GPUs, as DCGM 4 prints it: https://github.com/NVIDIA/DCGM/issues/314 of 2026-09-21.
    line = "+--------+----------------------------------------------------------------------+"
    heading = "Device Information                                                   |"
    assert text.partition("0 NvSwitches")[2].splitlines() == [
        *(" found.", "+-----------+", "| Switch ID |", "+-----------+", "+-----------+"),
        *("0 ConnectX found.", "+----------+", "| ConnectX |", "+----------+", "+----------+"),
        *("0 CPUs found.", line, f"| CPU ID | {heading}", line, line),
    ]
    gpus = text.partition("0 NvSwitches")[0].splitlines()
    assert gpus[1:4] == [line, f"| GPU ID | {heading}", line] and {len(one) for one in gpus[1:]} == {len(line)}
    host.control("fault lost --gpu 1")
    assert host.dcgmi("discovery -l")[0].startswith("1 GPU found.\n")


@pytest.mark.parametrize(
    ("level", "tests"),
    [
        ("1", ["software"]),
        ("quick", ["software"]),
        ("2", ["software", "pcie", "memory"]),
        ("3", ["software", "pcie", "memory", "diagnostic", "memory_bandwidth", "targeted_power", "targeted_stress"]),
        ("xlong", list(dcgmi.TESTS)),
    ],
)
def test_levels(level: str, tests: list[str], host: Host) -> None:
    text, status = host.dcgmi(f"diag -r {level} -j")
    assert results(json.loads(text)) == {test: ["Pass", "Pass"] for test in tests}
    assert status == 0


def test_shape_is_that_of_dcgm_4(host: Host) -> None:
    """The document for one GPU with persistence mode off, as printed by DCGM 4.2.3 except for the info text."""
    cli.main(["-pm", "0", "-i", "0"], host.root, root_user=True)
    text, status = host.dcgmi("diag -r 1 -j -i 0")
    warning = (
        "Persistence Mode: Persistence mode for GPU 0 is disabled. "
        'Enable persistence mode by running "nvidia-smi -i <gpuId> -pm 1 " as root.'
    )
    document = json.loads(text)
    assert document["DCGM Diagnostic"]["test_categories"] == [
        {
            "category": "Deployment",
            "tests": [
                {
                    "name": "software",
                    "results": [
                        {
                            "entity_group": "GPU",
                            "entity_group_id": 1,
                            "entity_id": 0,
                            "status": "Fail",
                            "warnings": [
                                {"error_category": 8, "error_id": 29, "error_severity": 5, "warning": warning}
                            ],
                        }
                    ],
                    "test_summary": {"status": "Fail"},
                }
            ],
        }
    ]
    assert document["metadata"] == {"Driver Version Detected": "580.82.09", "version": "4.2.3"}
    assert [each["device_id"] for each in document["entity_groups"][0]["entities"]] == ["2335"]
    assert status == 226


def test_faults_that_a_test_finds(host: Host) -> None:
    host.control("fault dcgm memory --gpu 1 --status Warn --text slow")
    text, status = host.dcgmi("diag -r 2 -j")
    assert results(json.loads(text)) == {"software": ["Pass"] * 2, "pcie": ["Pass"] * 2, "memory": ["Pass", "Warn"]}
    assert status == 0
    host.control("fault clear")
    host.control("fault xid 63 --gpu 0")
    text, status = host.dcgmi("diag -r 2 -j")
    assert results(json.loads(text))["software"] == ["Fail", "Pass"]
    assert status == 226


def test_mig_mode_skips_the_tests_of_the_hardware(host: Host) -> None:
    cli.main(["-mig", "1", "-i", "1"], host.root, root_user=True)
    assert results(json.loads(host.dcgmi("diag -r 2 -j")[0]))["memory"] == ["Pass", "Skip"]


def test_health_does_not_see_the_recovery_action(host: Host) -> None:
    """As on a real host whose GPU had the recovery action Reset."""
    host.control("fault recovery-action reset")
    healthy = {"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}
    assert json.loads(host.dcgmi("health -c -j")[0]) == healthy
    host.control("fault xid 48 --gpu 1")
    overall = json.loads(host.dcgmi("health -c -j")[0])["body"]["Overall Health"]
    assert overall["value"] == "Failure"
    assert list(overall["children"]) == ["GPU 1"]
    lines = host.dcgmi("health -c")[0].splitlines()
    assert len({len(line) for line in lines}) == 1


def test_nvlink_errors(host: Host) -> None:
    document = json.loads(host.dcgmi("nvlink -e -g 1 -j")[0])
    assert document["header"] == ["NVLINK Error Counts", "GPU 1"]
    assert len(document["body"]) == 18
    assert document["body"]["Link 17"]["children"]["Replay Error"] == {"value": "0"}
    assert host.dcgmi("nvlink -e -g 9 -j")[1] == 255


def test_no_host_engine_without_a_driver(host: Host) -> None:
    with store.transaction(host.root) as state:
        state["driver"]["loaded"] = None
    text, status = host.dcgmi("diag -r 1 -j")
    assert "Unable to connect to host engine" in text
    assert status == 255


def test_text_of_diagnostics_is_not_simulated(host: Host) -> None:
    assert host.dcgmi("diag -r 1") == ("", dcgmi.NOT_SIMULATED)
