# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chip of each GPU: the PCI ID Repository, the simulator's models, and recorded documents."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.gpus import ARCHITECTURES, CHIPS, PRODUCT_CHIPS
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.cores import chip_of_id
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import chip_of_name, read_gpus

ROOT = Path(__file__).resolve().parents[3]
# Architecture by the first letters of a chip's code name: https://nouveau.freedesktop.org/CodeNames.html
CODE_NAMES = {
    "GF": "Fermi",
    "GK": "Kepler",
    "GM": "Maxwell",
    "GP": "Pascal",
    "GV": "Volta",
    "TU": "Turing",
    "GA": "Ampere",
    "GH": "Hopper",
    "AD": "Ada Lovelace",
    "GB": "Blackwell",
}
PCI_IDS = [
    line.split(maxsplit=1)
    for line in (Path(__file__).parent / "pci_ids.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
MODELS = sorted((ROOT / "roles" / "gpu_simulator" / "files" / "gpu_simulator" / "data" / "gpus").glob("*.json"))


def test_every_gpu_of_the_pci_id_repository_has_its_architecture() -> None:
    found = {device: getattr(chip_of_id(f"0x{device}"), "architecture", None) for device, _name in PCI_IDS}
    assert found == {device: CODE_NAMES[name[:2]] for device, name in PCI_IDS}
    assert len(found) > 800


# GRID and OEM cards were sold under names of other generations: only the device ID identifies their chip.
AMBIGUOUS = {"GK107 [GeForce GT 1030]", "GK106 [GeForce GTX 750 Ti]"}


def test_no_product_name_leads_to_another_architecture() -> None:
    known = 0
    for _device, name in PCI_IDS:
        for product in re.sub(r"^[^[]*\[?|\]$", "", name).split(" / "):
            chip = chip_of_name(product)
            if chip is not None and name not in AMBIGUOUS:
                known += 1
                assert chip.architecture == CODE_NAMES[name[:2]], name
    assert known > 400


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_simulated_models_are_known_by_id_and_by_name(path: Path) -> None:
    model = json.loads(path.read_text(encoding="utf-8"))
    desired = {"ada": "Ada Lovelace"}.get(model["architecture"].lower(), model["architecture"])
    # The device ID as in nvidia-smi and as in sysfs, and the name as written by users.
    for text in (f"0x{model['pci']['device_id']}", f"0x{model['pci']['device_id'][:4].lower()}", model["name"]):
        (gpu,) = read_gpus([text])
        assert gpu.chip is not None
        assert gpu.chip.architecture == desired
        if text != model["name"]:
            assert gpu.chip.compute_capability == model["compute_capability"]


# https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
CAPABILITIES = [
    ("0x1db6", "7.0"),  # Tesla V100
    ("0x1eb8", "7.5"),  # T4
    ("0x1f82", "7.5"),  # GTX 1650
    ("0x20b0", "8.0"),  # A100
    ("0x2235", "8.6"),  # A40
    ("0x25b6", "8.6"),  # A2
    ("0x26b9", "8.9"),  # L40S
    ("0x2330", "9.0"),  # H100
    ("0x2342", "9.0"),  # GH200
    ("0x2901", "10.0"),  # B200
    ("0x3021", "10.7"),  # GR100
    ("0x3182", "10.3"),  # B300
    ("0x2b85", "12.0"),  # RTX 5090
    ("0x2e12", "12.1"),  # GB10
    ("0x15f8", "6.0"),  # P100
    ("0x1b38", "6.1"),  # P40
    ("0x17fd", "5.2"),  # M40
    ("0x102d", "3.5"),  # K80: really 3.7, with the same last driver and CUDA version
    ("0x118f", "3.0"),  # K10
]


@pytest.mark.parametrize(("device", "capability"), CAPABILITIES)
def test_compute_capability(device: str, capability: str) -> None:
    chip = chip_of_id(device)
    assert chip is not None
    assert chip.compute_capability == capability


NAMES = [
    ("NVIDIA H200", "Hopper"),
    ("NVIDIA GH200 480GB", "Hopper"),
    ("NVIDIA A100-SXM4-40GB", "Ampere"),
    ("NVIDIA A10G", "Ampere"),
    ("NVIDIA A30", "Ampere"),
    ("NVIDIA RTX A6000", "Ampere"),
    ("NVIDIA GeForce RTX 3080", "Ampere"),
    ("NVIDIA RTX 6000 Ada Generation", "Ada Lovelace"),
    ("NVIDIA L4", "Ada Lovelace"),
    ("NVIDIA L40S", "Ada Lovelace"),
    ("NVIDIA GeForce RTX 4090", "Ada Lovelace"),
    ("Tesla V100-SXM2-32GB", "Volta"),
    ("NVIDIA TITAN V", "Volta"),
    ("Tesla T4", "Turing"),
    ("Quadro RTX 8000", "Turing"),
    ("NVIDIA TITAN RTX", "Turing"),
    ("Tesla P100-PCIE-16GB", "Pascal"),
    ("Tesla P4", "Pascal"),
    ("NVIDIA GeForce GTX 1080 Ti", "Pascal"),
    ("NVIDIA TITAN Xp", "Pascal"),
    ("Quadro P4000", "Pascal"),
    ("Tesla M60", "Maxwell"),
    ("NVIDIA GeForce GTX TITAN X", "Maxwell"),
    ("Tesla K80", "Kepler"),
    ("Tesla K40m", "Kepler"),
    ("NVIDIA B200", "Blackwell"),
    ("NVIDIA GB200", "Blackwell"),
    ("NVIDIA B300 SXM6 AC", "Blackwell"),
    ("NVIDIA GB10", "Blackwell"),
    ("NVIDIA VR200", "Rubin"),
    ("NVIDIA R200", "Rubin"),
    ("NVIDIA GeForce RTX 5090", "Blackwell"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell"),
    ("volta", "Volta"),
    ("Ada", "Ada Lovelace"),
    ("Hopper", "Hopper"),
]


@pytest.mark.parametrize(("name", "architecture"), NAMES)
def test_product_name(name: str, architecture: str) -> None:
    chip = chip_of_name(name)
    assert chip is not None
    assert chip.architecture == architecture


@pytest.mark.parametrize(
    "text", ["", "0x0000", "0xffff", "0x3fff", "10de:9999", "2335", "NVIDIA R100", "Radeon", "a GPU"]
)
def test_other_strings_name_no_chip(text: str) -> None:
    assert chip_of_id(text) is None
    assert chip_of_name(text) is None


def test_both_lists_of_the_facts_are_understood() -> None:
    place = "00000000:06:00.0"
    (on_bus,) = read_gpus([{"pci_bus_id": place, "device_id": "0x2335", "class_id": "0x030200", "driver": None}])
    (driven,) = read_gpus([{"pci_bus_id": place, "pci_device_id": "0x233510de", "name": "NVIDIA H200", "index": 0}])
    assert on_bus.chip == driven.chip
    assert (on_bus.name, driven.name) == (f"GH100 at {place}", f"NVIDIA H200 at {place}")


def test_device_id_counts_before_the_name() -> None:
    (gpu,) = read_gpus([{"name": "NVIDIA H200", "device_id": "0x1db4", "pci_bus_id": "00000000:06:00.0"}])
    assert gpu.architecture is ARCHITECTURES["Volta"]
    assert gpu.name == "NVIDIA H200 at 00000000:06:00.0"


def test_recorded_documents(corpus: Path | None) -> None:
    """Name, device ID and architecture in real documents agree with the tables; older drivers print no architecture."""
    shipped = ROOT / "tests" / "unit" / "nvidia_smi" / "fixtures"
    documents = [path for directory in (shipped, *([corpus] if corpus else [])) for path in directory.rglob("*.xml")]
    known = 0
    for path in documents:
        text = path.read_text(encoding="utf-8", errors="replace")
        for name, device in re.findall(
            r"<product_name>([^<]+)</product_name>.*?<pci_device_id>([^<]+)</pci_device_id>", text, re.DOTALL
        ):
            by_id, by_name = chip_of_id(f"0x{device.removeprefix('0x')}"), chip_of_name(name)
            # Some documents are anonymized, and a driver older than its GPU prints "Graphics Device".
            assert by_id is not None or not device.upper().endswith("10DE"), (path, name, device)
            assert by_name is not None or name == "Graphics Device", (path, name)
            if by_id and by_name:
                assert by_id.architecture == by_name.architecture, (path, name)
                known += 1
        for architecture, device in re.findall(
            r"<product_architecture>([^<]+)</product_architecture>.*?<pci_device_id>([^<]+)</pci_device_id>",
            text,
            re.DOTALL,
        ):
            chip = chip_of_id(f"0x{device.removeprefix('0x')}")
            assert chip is None or chip.architecture.split()[0] == architecture.split()[0], (path, device)
    assert known >= 2


def test_chips_do_not_overlap_and_belong_to_known_architectures() -> None:
    ordered = sorted(CHIPS, key=lambda chip: chip.first_id)
    assert all(one.last_id < two.first_id for one, two in itertools.pairwise(ordered))
    assert {chip.architecture for chip in CHIPS} == ARCHITECTURES.keys()
    assert {name for _pattern, name in PRODUCT_CHIPS} <= {chip.name for chip in CHIPS}
