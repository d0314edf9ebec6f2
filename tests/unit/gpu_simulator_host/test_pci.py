# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated PCI devices as lspci and drivers read them, compared with a real host's."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_simulator.host import pci
from gpu_simulator.state import catalogue, store

from tests.unit.gpu_simulator_host.support import H200X8

# Offset and size in the type 0 header, from the PCI Local Bus Specification 3.0, figure 6-1.
HEADER = {
    "vendor": (0x00, 2),
    "device": (0x02, 2),
    "revision": (0x08, 1),
    "class": (0x09, 3),
    "subsystem_vendor": (0x2C, 2),
    "subsystem_device": (0x2E, 2),
}


def devices(description: list[dict[str, object]]) -> list[pci.PciDevice]:
    state = store.new_state({"driver_version": "580.159.04", "gpus": description})  # type: ignore[typeddict-item]
    return [pci.PciDevice(gpu, catalogue.load(gpu["model"])) for gpu in state["gpus"]]


def test_attributes_are_those_of_the_recorded_host() -> None:
    recorded: dict[str, dict[str, str]] = {}
    for path, text in H200X8.files.items():
        directory, _slash, name = path.rpartition("/")
        if directory.startswith("/sys/bus/pci/devices/"):
            recorded.setdefault(directory.rpartition("/")[2], {})[name] = text
    gpus = {address: files for address, files in recorded.items() if files["vendor"] == "0x10de\n"}
    names = ("vendor", "device", "class", "subsystem_device", "numa_node")
    shown = {
        device.address: {name: device.files()[name].decode() for name in names}
        for device in devices(H200X8.host["gpus"])
    }
    assert len(gpus) == 8
    assert shown == gpus


@pytest.mark.parametrize("model", catalogue.names())
def test_configuration_space_states_the_same_as_the_files(model: str) -> None:
    [device] = devices([{"model": model}])
    files, space = device.files(), device.config_space()
    assert len(space) == 256
    for name, (offset, size) in HEADER.items():
        assert int.from_bytes(space[offset : offset + size], "little") == int(files[name], 16), name
    assert space[0x0E] == 0, "an ordinary device, no bridge"


@pytest.mark.parametrize("model", catalogue.names())
def test_every_model_is_a_display_or_3d_controller_of_nvidia(model: str) -> None:
    [device] = devices([{"model": model}])
    assert device.vendor == 0x10DE
    assert device.files()["class"].decode().strip() in ("0x030000", "0x030200")


def test_modalias_is_the_one_that_drivers_match() -> None:
    [device] = devices([{"model": "h200"}])
    # The alias that the nvidia module declares for display controllers of the vendor, and the fields of an H200.
    assert device.files()["modalias"] == b"pci:v000010DEd00002335sv000010DEsd000018BFbc03sc02i00\n"


def test_address_is_the_kernels_form_of_the_bus_id(tmp_path: Path) -> None:
    [device] = devices([{"model": "t4", "bus_id": "0000000F:AB:1E.0"}])
    assert device.address == "000f:ab:1e.0"
    assert device.uevent("nouveau")[0] == "DRIVER=nouveau"
    assert device.uevent(None)[-1] == "PCI_SLOT_NAME=000f:ab:1e.0"
