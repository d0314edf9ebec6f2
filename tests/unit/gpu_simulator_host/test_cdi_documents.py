# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated nvidia-ctk's CDI documents, by version and naming, as the real one writes them.

The facts are those that nvidia-ctk 1.14.6, 1.17.8, 1.18.2 and 1.20.0 wrote on a host with 2 H200, driver 580.159.04;
all four agree but where it is stated. Libraries, hooks and mounts are the simulator's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_simulator import container

from tests.conftest import COUNT
from tests.unit.gpu_simulator_host.support import SimulatedHost

VERSIONS = ("1.14.6", "1.17.8", "1.18.2", "1.20.0")
NODES = {0: ["/dev/nvidia0"], 1: ["/dev/nvidia1"]}
BY_INDEX = {"0": NODES[0], "1": NODES[1]}
BY_UUID = {"GPU 0": NODES[0], "GPU 1": NODES[1]}
ALL = {"all": ["/dev/nvidia0", "/dev/nvidia1"]}
MANAGEMENT = [
    *("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"),
    *("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"),
]
# Arguments; devices, of the versions where these differ; version of CDI.
REAL = {
    "": ({"1.14.6": {**BY_INDEX, **ALL}, "": {**BY_INDEX, **BY_UUID, **ALL}}, "0.5.0"),
    "--device-name-strategy=index": ({"": {**BY_INDEX, **ALL}}, "0.5.0"),
    "--device-name-strategy=uuid": ({"": {**BY_UUID, **ALL}}, "0.3.0"),
    "--device-name-strategy=type-index": ({"": {**ALL, "gpu0": NODES[0], "gpu1": NODES[1]}}, "0.3.0"),
    "--mode=management": ({"": {"all": MANAGEMENT}}, "0.3.0"),
}


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedHost:
    made = SimulatedHost(tmp_path)
    made.run("up")
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_documents_are_those_of_the_version(
    version: str,
    simulated: SimulatedHost,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, dict[str, int]], None],
) -> None:
    monkeypatch.setenv("GPU_SIMULATOR_TOOLKIT_VERSION", version)
    uuids = {gpu["uuid"]: f"GPU {index}" for index, gpu in enumerate(simulated.state()["gpus"])}
    for arguments, (devices, cdi_version) in REAL.items():
        command = ["cdi", "generate", "--format=json", *arguments.split()]
        assert container.main("nvidia-ctk", command, str(simulated.root)) == 0
        document = json.loads(capsys.readouterr().out)
        found = {
            uuids.get(device["name"], device["name"]): [
                node["path"] for node in device["containerEdits"]["deviceNodes"]
            ]
            for device in document["devices"]
        }
        assert found == devices.get(version, devices[""]), arguments
        assert (document["cdiVersion"], document["kind"]) == (cdi_version, "nvidia.com/gpu")
        environment = document["containerEdits"].get("env", [])
        assert environment == ([] if version == "1.14.6" else ["NVIDIA_VISIBLE_DEVICES=void"])
        assert [device["name"] for device in document["devices"]] == sorted(
            device["name"] for device in document["devices"]
        )
    record_property(f"{COUNT}CDI documents", {"versions and namings": len(REAL)})


def test_a_vendor_of_its_own(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cdi", "generate", "--format=json", "--mode=management", "--vendor=management.nvidia.com"]
    assert container.main("nvidia-ctk", command, str(simulated.root)) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "management.nvidia.com/gpu"


def test_an_unknown_naming_is_refused(simulated: SimulatedHost, capsys: pytest.CaptureFixture[str]) -> None:
    assert container.main("nvidia-ctk", ["cdi", "generate", "--device-name-strategy=name"], str(simulated.root)) == 1
    assert "invalid device name strategy: name" in capsys.readouterr().err
