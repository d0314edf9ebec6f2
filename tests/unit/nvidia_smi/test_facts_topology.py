# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of `topo -m`, NVLinks, and messages about single GPUs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import messages
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.topology import (
    NvLink,
    parse_nvlinks,
    parse_topology,
)

from tests.unit.nvidia_smi.facts_support import H200X8

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_0
"""
WITH_NICS = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tPXB\tSYS\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tPIX\t32-63,96-127\t1\t\t1\n"
    "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tPIX\tSYS\t X \t\t\t\t\n" + LEGEND
)
OLD = (
    "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\n"
    "GPU0\t X \tPHB\tPIX\t0-15\n"
    "GPU1\tPHB\t X \tSYS\t0-15\n"
    "mlx5_0\tPIX\tSYS\t X \t\n"
)


def test_eight_gpus_of_one_fabric() -> None:
    devices = parse_topology(H200X8.output("topo -m"))
    labels = [f"GPU{number}" for number in range(8)]
    assert [device.label for device in devices] == labels
    for device in devices:
        assert dict(device.links) == {label: "NV18" for label in labels if label != device.label}
        assert (device.cpu_affinity, device.numa_affinity, device.gpu_numa_id) == ("0-127", "0", None)


def test_network_cards_with_their_legend() -> None:
    gpu0, gpu1, nic0, nic1 = parse_topology(WITH_NICS)
    assert dict(gpu0.links) == {"GPU1": "NV12", "NIC0": "PXB", "NIC1": "SYS"}
    assert (gpu1.cpu_affinity, gpu1.numa_affinity, gpu1.gpu_numa_id) == ("32-63,96-127", "1", "1")
    assert (nic0.name, nic1.name) == ("mlx5_0", "mlx5_bond_0")
    assert dict(nic1.links) == {"GPU0": "SYS", "GPU1": "PIX", "NIC0": "SYS"}
    assert (nic1.cpu_affinity, nic1.numa_affinity, nic1.gpu_numa_id) == (None, None, None)


def test_an_old_driver_names_cards_and_has_no_numa_columns() -> None:
    gpu0, _gpu1, card = parse_topology(OLD)
    assert (gpu0.cpu_affinity, gpu0.numa_affinity) == ("0-15", None)
    assert (card.label, card.name, dict(card.links)) == ("mlx5_0", "mlx5_0", {"GPU0": "PIX", "GPU1": "SYS"})


def test_blanks_for_tabs_give_the_same() -> None:
    assert parse_topology(OLD.expandtabs(12)) == parse_topology(OLD)
    assert parse_topology(WITH_NICS.replace("\n", "\r\n")) == parse_topology(WITH_NICS)


@pytest.mark.parametrize(
    "text", ["", "ERROR: Option -m is missing its value\n", "No devices were found\n", "\x1b[4m\x1b[0m\n", LEGEND]
)
def test_no_matrix(text: str) -> None:
    assert parse_topology(text) == ()


def test_topologies_of_other_hosts(corpus: Path | None) -> None:
    """Hosts with one GPU each: only its affinity, compared with the GPU's line itself."""
    matrices = {"8 x H200": H200X8.output("topo -m")}
    if corpus:
        matrices = {path.name: path.read_text() for path in sorted((corpus / "text").glob("*-topo.txt"))}
    assert matrices
    for origin, text in matrices.items():
        first = parse_topology(text)[0]
        row = next(line for line in text.splitlines() if line.startswith("GPU0"))
        assert re.search(rf"\t{re.escape(first.cpu_affinity or '')}\t{first.numa_affinity}\t\tN/A$", row), origin


def test_nvlinks() -> None:
    links = parse_nvlinks(H200X8.output("nvlink -s"))
    assert list(links) == re.findall(r"UUID: (GPU-[^)]+)", H200X8.output("-L"))
    assert {len(found) for found in links.values()} == {18}
    assert {link.speed_gb_per_second for found in links.values() for link in found} == {26.562}


def test_inactive_nvlinks_and_diagnostics_between_them() -> None:
    text = (
        "GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"
        "GPU 1: NVIDIA A100 (UUID: GPU-2)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"
    )
    assert parse_nvlinks(text) == {"GPU-1": (NvLink(0, True, 25.0), NvLink(1, False, None)), "GPU-2": ()}
    assert parse_nvlinks("") == {}


LOST = "GPU is lost.  Reboot the system to recover this GPU"


@pytest.mark.parametrize(
    ("line", "index", "address"),
    [
        (f"Unable to determine the device handle for GPU 0000:05:00.0: {LOST}", None, "0000:05:00.0"),
        (f"Unable to determine the device handle for GPU0000:91:00.0: {LOST}", None, "0000:91:00.0"),
        (f"Unable to determine the device handle for GPU1: 0000:34:00.0: {LOST}", 1, "0000:34:00.0"),
        (f"Unable to determine the device handle for gpu 0000:05:00.0: {LOST}", None, "0000:05:00.0"),
        (f"Unable to determine the device handle for GPU1: {LOST}", 1, None),
        (f"Unable to determine the device handle for gpu 1: {LOST}", 1, None),
        (f"Unable to determine the device handle for GPU 00000000:C5:00.0: {LOST}", None, "00000000:C5:00.0"),
        (f"Unable to determine the device handle for GPU 000:BA:00.0: {LOST}", None, "000:BA:00.0"),
        (f"Problem with GPU 1: {LOST}", 1, None),
        (f"Problem with GPU 00000000:C5:00.0: {LOST}", None, "00000000:C5:00.0"),
    ],
)
def test_spellings_of_a_failed_gpu(line: str, index: int | None, address: str | None) -> None:
    text = f"GPU 0: NVIDIA H200 (UUID: GPU-1)\n{line}\n\n"
    assert messages.failed_gpus(text) == (messages.FailedGpu(index, address, LOST),)
    assert messages.failed_gpus(text.replace(line, "")) == ()


def test_a_malformed_address_is_no_address() -> None:
    text = f"Unable to determine the device handle for GPU1: 0:0.0: {LOST}\nWARNING: infoROM is corrupted at gpu ::.0\n"
    assert messages.failed_gpus(text) == (messages.FailedGpu(1, None, f"0:0.0: {LOST}"),)
    assert messages.corrupted_inforoms(text) == ()


def test_corrupted_inforoms(corpus: Path | None) -> None:
    assert messages.corrupted_inforoms("WARNING: infoROM is corrupted at gpu 0008:00:00.0\n") == ("0008:00:00.0",)
    assert messages.corrupted_inforoms("all is well\n") == ()
    for path in (corpus / "text").glob("*inforom*") if corpus else ():
        assert messages.corrupted_inforoms(path.read_text()) == ("0008:00:00.0",)
