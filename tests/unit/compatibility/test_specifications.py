# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores and bandwidths of GPUs, and what lies beyond the tables.

Newer drivers, kernels and GPUs are named unknown, never refused.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.filter.compatibility import compatibility
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.kernels import KERNEL_FAILURES
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.specifications import MULTIPROCESSORS, PRODUCTS
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.cores import chip_of_id, cores_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import chip_of_name, kernel_failure

from tests.unit.driver.plans import driver_plan

# From NVIDIA's pages on the architectures and data sheets: product, multiprocessors, CUDA cores, tensor cores.
PUBLISHED = [
    ("0x15f8", 56, 3584, 0),  # P100
    ("0x1db5", 80, 5120, 640),  # V100
    ("0x1eb8", 40, 2560, 320),  # T4
    ("0x20b2", 108, 6912, 432),  # A100
    ("0x2235", 84, 10752, 336),  # A40
    ("0x27b8", 58, 7424, 232),  # L4
    ("0x26b9", 142, 18176, 568),  # L40S
    ("0x2330", 132, 16896, 528),  # H100 SXM
    ("0x2331", 114, 14592, 456),  # H100 PCIe
    ("0x2335", 132, 16896, 528),  # H200
    ("0x2bb5", 188, 24064, None),  # RTX PRO 6000 Blackwell Server Edition
    # Not NVIDIA's: the clusters that a program found on each, of two multiprocessors (the source of their rows).
    ("0x2901", 2 * sum((10, 10, 10, 9, 9, 9, 9, 5, 1, 1, 1)), 18944, None),  # B200
    ("0x2941", 2 * sum((10, 10, 10, 10, 10, 9, 9, 6, 1, 1)), 19456, None),  # GB200
    ("0x3182", 2 * sum((10, 10, 10, 9, 9, 9, 9, 5, 1, 1, 1)), 18944, 592),  # B300
]


@pytest.mark.parametrize(("device", "multiprocessors", "cuda_cores", "tensor_cores"), PUBLISHED)
def test_cores(device: str, multiprocessors: int, cuda_cores: int, tensor_cores: int | None) -> None:
    expected = {"multiprocessors": multiprocessors, "cuda_cores": cuda_cores, "tensor_cores": tensor_cores}
    for written in (device, f"10de:{device[2:]}", f"{device}10DE", {"pci_device_id": f"{device}10de", "name": "x"}):
        (gpu,) = compatibility({"gpus": [written]}, with_fits=False)["gpus"]
        assert expected.items() <= gpu.items()


def test_a_name_counts_where_there_is_no_device_id() -> None:
    gpus: list[Any] = ["NVIDIA H200", {"name": "NVIDIA H200"}, {"name": "NVIDIA H200", "pci_device_id": "0x25b610de"}]
    found = compatibility({"gpus": gpus}, with_fits=False)["gpus"]
    assert [gpu["multiprocessors"] for gpu in found] == [132, 132, None]


@pytest.mark.parametrize("device", ["", "0x25b6", "0xffff", "2335", "0x2335 ", "0x23351234"])
def test_what_no_source_names_stays_unknown(device: str) -> None:
    assert set(asdict(cores_of(device)).values()) == {None}


# From NVIDIA's product pages and data sheets, in GB/s: product, memory, NVLink.
BANDWIDTHS = [
    ("0x15f8", None, None),  # P100
    ("0x1db5", 900, 300.0),  # V100 SXM2
    ("0x1db6", 900, 0.0),  # V100 PCIe
    ("0x1eb8", 320, 0.0),  # T4
    ("0x20b0", 1555, 600.0),  # A100 SXM4 40GB
    ("0x20b2", 2039, 600.0),  # A100 SXM4 80GB
    ("0x20b5", 1935, 600.0),  # A100 PCIe 80GB
    ("0x20b7", 933, 200.0),  # A30
    ("0x2235", 696, 112.5),  # A40
    ("0x2236", 600, 0.0),  # A10
    ("0x27b8", 300, 0.0),  # L4
    ("0x26b5", 864, 0.0),  # L40
    ("0x2330", 3350, 900.0),  # H100 SXM
    ("0x2331", 2000, 600.0),  # H100 PCIe
    ("0x2321", 3900, 600.0),  # H100 NVL
    ("0x2335", 4800, 900.0),  # H200
    ("0x233b", 4800, 900.0),  # H200 NVL
    ("0x2342", 4000, None),  # GH200: its NVLink-C2C leads to the CPU
    ("0x2901", 8000, 1800.0),  # B200
    ("0x3182", 8000, 1800.0),  # B300
    ("0x2bb5", 1597, 0.0),  # RTX PRO 6000 Blackwell Server Edition
]


@pytest.mark.parametrize(("device", "memory", "nvlink"), BANDWIDTHS)
def test_bandwidths(device: str, memory: int | None, nvlink: float | None) -> None:
    (gpu,) = compatibility({"gpus": [device]}, with_fits=False)["gpus"]
    assert (gpu["memory_bandwidth_gb_per_second"], gpu["nvlink_bandwidth_gb_per_second"]) == (memory, nvlink)


def test_a_product_may_have_bandwidths_without_cores() -> None:
    (gpu,) = compatibility({"gpus": ["NVIDIA GB300"]}, with_fits=False)["gpus"]
    assert (gpu["multiprocessors"], gpu["cuda_cores"], gpu["tensor_cores"]) == (None, None, None)
    assert gpu["memory_bandwidth_gb_per_second"] == 8000


def test_every_product_has_ids_of_one_capability_and_names_of_its_chip() -> None:
    ids = [number for product in PRODUCTS for number in product.device_ids]
    assert len(ids) == len(set(ids))
    for product in PRODUCTS:
        chips = {chip_of_id(f"0x{number:04x}") for number in product.device_ids}
        assert len(chips) == 1
        (chip,) = chips
        assert chip is not None
        assert chip.compute_capability in MULTIPROCESSORS or product.multiprocessors is None
        for name in product.names:
            named = chip_of_name(name)
            assert named is not None
            assert named.architecture == chip.architecture


def test_every_device_id_is_that_of_the_product_in_the_pci_id_repository() -> None:
    text = (Path(__file__).parent / "pci_ids.txt").read_text(encoding="utf-8")
    names = dict(re.findall(r"^([0-9a-f]{4})  (.+)$", text, re.MULTILINE))
    for product in PRODUCTS:
        model = re.search(r"RTX PRO 6000|[A-Z]{1,2}\d+S?", product.names[0].removeprefix("NVIDIA "))
        assert model
        for number in product.device_ids:
            known = names.get(f"{number:04x}", "")
            # Some ids have the name of the chip alone.
            assert "[" not in known or model[0] in known, (product, known)


# A host with something newer than the tables.


def facts(**changed: Any) -> dict[str, Any]:
    return {"system": "Debian", "release": "12", "architecture": "x86_64", "kernel": "6.1.0-38-amd64", **changed}


def test_a_driver_newer_than_the_tables_is_planned_and_named_unknown() -> None:
    request = {"source": "runfile", "version": "777.11.01"}
    plan = driver_plan(request, facts(gpus=["0x2335"], today="2027-08-01"), {}, [])
    assert plan["reasons"] == []
    assert plan["unknowns"] == [
        "driver 777.11.01 is newer than the tables: its support for 0x2335 (Hopper) is not known"
    ]
    assert plan["requested"] == "777.11.01"


def test_a_driver_newer_than_the_tables_follows_the_rules_of_its_gpu() -> None:
    """What holds for all later drivers is still a reason: a generation that was dropped stays dropped."""
    found = compatibility({"driver": "777", "gpus": ["Tesla V100-SXM2-32GB"]}, with_fits=False)
    assert not found["compatible"]
    found = compatibility(
        {"driver": "777", "cuda": "14.9", "gpus": ["NVIDIA H200", "0x3041"], "today": "2030-01-01"}, with_fits=False
    )
    assert (found["compatible"], found["certain"]) == (True, False)
    assert len(found["unknown"]) >= 3


@pytest.mark.parametrize(
    ("driver", "kernel", "fixed_in"),
    [
        ("580.126.18", "7.0.9-1-amd64", "580.142"),
        ("580.178.04", "7.0.0-34-generic", "none"),
        ("595.45.04", "7.0.0-34-generic", "595.58.03"),
        ("595.91.07", "7.0.0-1014-aws", "none"),
        ("595", "7.0.0-34-generic", "none"),
        ("615.71.09", "7.0.0-1016-aws", "none"),
        ("580.142", "7.0.9-1-amd64", "none"),
        ("580.142", "7.1.0-1-amd64", "580.159.04"),
        ("580.159.04", "7.1.0-1-amd64", "none"),
        # A branch is its newest version.
        ("580", "7.1.0-1-amd64", "none"),
        ("575.57.08", "5.14.0-687.12.1.el9_8.x86_64", None),
        ("575", "5.14.0-687.12.1.el9_8.x86_64", None),
        ("575.57.08", "5.14.0-570.12.1.el9_6.x86_64", "none"),
        ("590.48.01", "7.0.0-1-amd64", None),
        ("590", "7.0.4+deb13-amd64", None),
        ("590.48.01", "6.18.5+deb13-amd64", "none"),
        ("595.58.03", "7.0.4+deb13-amd64", "none"),
        # Unknown kernels and drivers are tried.
        ("580.65.06", "9.9.9-1-amd64", "none"),
        ("777.11.01", "7.1.0-1-amd64", "none"),
        ("580.65.06", "", "none"),
    ],
)
def test_drivers_that_do_not_build(driver: str, kernel: str, fixed_in: str | None) -> None:
    failure = kernel_failure(driver, kernel)
    assert (failure.fixed_in if failure else "none") == fixed_in


def test_a_driver_that_cannot_build_is_refused_before_anything_changes() -> None:
    request = {"source": "runfile", "version": "580.126.18"}
    plan = driver_plan(request, facts(kernel="7.0.9-1-amd64", gpus=["0x2335"]), {}, [])
    (reason,) = plan["reasons"]
    assert (
        "the kernel modules of driver 580.126.18 do not build for kernel 7.0.9-1-amd64 (https://github.com/" in reason
    )
    assert "set nvidia_driver_version to 580.142 or a newer branch, or boot another kernel" in reason
    for kernel in ("6.1.0-38-amd64", "9.9.9-1-amd64"):
        assert driver_plan(request, facts(kernel=kernel, gpus=["0x2335"]), {}, [])["reasons"] == []
    # It is there: it has been built.
    there = facts(kernel="7.0.9-1-amd64", gpus=["0x2335"], driver="580.126.18", recorded_source="runfile")
    assert driver_plan(request, there, {}, [])["reasons"] == []


def test_a_failure_names_an_exact_kernel_or_series_and_a_version_of_its_branch() -> None:
    for failure in KERNEL_FAILURES:
        assert failure.kernel.endswith(".")
        assert failure.fixed_in is None or failure.fixed_in.startswith(f"{failure.branch}.")
