# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compatibility of drivers, CUDA, GPUs and cuDNN; expected values from NVIDIA's published matrices, not our tables."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.compatibility import compatibility
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.driver import cuda_of_branch
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.cuda import DRIVER_OF_CUDA
from ansible_collections.gpu.fleet.plugins.test.compatible import compatible

# https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html
# GPU, first CUDA, last CUDA (None: ongoing), last driver branch (None: ongoing)
MATRIX = [
    ("NVIDIA B200", "12.8", None, None),
    ("NVIDIA GeForce RTX 5090", "12.8", None, None),
    ("NVIDIA H100 80GB HBM3", "11.8", None, None),
    ("NVIDIA L40S", "11.8", None, None),
    ("NVIDIA A100-SXM4-40GB", "11.0", None, None),
    ("Tesla T4", "10.0", None, None),
    ("Tesla V100-SXM2-16GB", "9.0", "12.9", 580),
    ("Tesla P100-PCIE-16GB", "8.0", "12.9", 580),
    ("Tesla P40", "8.0", "12.9", 580),
    ("Tesla K80", "7.0", "11.8", 470),
    ("Tesla K10", "7.0", "10.2", 470),
]
SERIES = ["8.0", "9.0", "9.2", "10.0", "10.2", "11.0", "11.8", "12.0", "12.8", "12.9", "13.0", "13.3"]


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize(("gpu", "first", "last", "branch"), MATRIX)
def test_cuda_and_driver_of_architectures(gpu: str, first: str, last: str | None, branch: int | None) -> None:
    for cuda in SERIES:
        fits = number(first) <= number(cuda) and (last is None or number(cuda) <= number(last))
        assert compatible({"gpus": [gpu], "cuda": cuda}) is fits, cuda
    for driver in (470, 580, 590, 610):
        newest = branch is None or driver <= branch
        # The first supporting branch is in another table.
        if not newest:
            found = compatibility({"gpus": [gpu], "driver": driver})
            assert not found["compatible"]
            assert f"the last branch with it is {branch}" in found["reasons"][0]
    assert compatible({"gpus": [gpu], "driver": branch or 610})


# https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/ "CUDA Toolkit and Minimum Required Driver Version for CUDA
# Minor Version Compatibility" and, for the versions before 11, "CUDA Toolkit and Corresponding Driver Versions"
DRIVERS = [
    ("13.3", "580.65.06", True),
    ("13.0", "580", True),
    ("13.0", "580.65.05", False),
    ("13.0", "575.57.08", False),
    ("13.0", "535", False),
    ("12.9", "525.60.13", True),
    ("12.0", "525.60.12", False),
    ("12.6", "535.309.01", True),
    ("12.0", "520", False),
    ("11.8", "450.80.02", True),
    ("11.8", "450.51.05", False),
    ("11.0", "450.51.05", True),
    ("11.4", "418", False),
    ("10.2", "440.33", True),
    ("10.2", "418.39", False),
    ("10.1", "418.39", True),
    ("9.0", "384.81", True),
    ("9.0", "375", False),
    ("8.0", "610", True),  # backward compatibility
    ("9.2", "580.159.04", True),
]


@pytest.mark.parametrize(("cuda", "driver", "fits"), DRIVERS)
def test_driver_of_cuda(cuda: str, driver: str, fits: bool) -> None:
    assert compatible({"cuda": cuda, "driver": driver}) is fits


# https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html, rows and columns of its table; the rest
# of a row is "N/A" and "X": the driver is as new as the package or newer and needs none.
FORWARD = {
    "13.4": (535, 570, 580, 590, 595, 610),
    "13.3": (535, 570, 580, 590, 595),
    "13.0": (535, 570),
    "12.9": (535, 570),
    "12.8": (535,),
    "12.4": (535,),
}


@pytest.mark.parametrize("cuda", FORWARD)
def test_forward_compatibility_packages(cuda: str) -> None:
    for branch in FORWARD[cuda]:
        request = {"cuda": cuda, "driver": branch, "gpus": ["NVIDIA H100"], "forward_compatibility": True}
        found = compatibility(request)
        assert found["compatible"]
        # Within the major version the driver needs no package.
        needed = number(cuda)[0] == 13 and branch < 580
        assert found["forward_compatibility_package"] == (f"cuda-compat-{cuda.replace('.', '-')}" if needed else None)


@pytest.mark.parametrize(
    ("gpu", "driver", "part"),
    [
        ("NVIDIA GeForce RTX 4090", "535", "is not a data center GPU"),
        ("NVIDIA H100", "525", "branch 525 is not one of those it works on (535, 570,"),
        ("NVIDIA H100", "550", "branch 550 is not one of those"),
    ],
)
def test_forward_compatibility_is_refused(gpu: str, driver: str, part: str) -> None:
    found = compatibility({"cuda": "13.0", "driver": driver, "gpus": [gpu], "forward_compatibility": True})
    assert part in found["reasons"][0]


def test_forward_compatibility_must_be_asked_for() -> None:
    found = compatibility({"cuda": "13.0", "driver": "535", "gpus": ["NVIDIA H100"]})
    (reason,) = found["reasons"]
    assert reason.startswith("CUDA 13.0 needs driver 580.65.06 or newer, not 535; ")
    assert reason.endswith("the package cuda-compat-13-0 can stand in for it")


def test_forward_compatibility_does_not_bring_back_a_dropped_gpu() -> None:
    request = {"cuda": "13.0", "driver": "535", "gpus": ["Tesla V100-SXM2-16GB"], "forward_compatibility": True}
    assert "no support for Tesla V100-SXM2-16GB (Volta)" in compatibility(request)["reasons"][0]


def test_minor_version_compatibility_is_noted() -> None:
    found = compatibility({"cuda": "12.8", "driver": "535"})
    assert found["compatible"]
    assert "minor version compatibility" in found["notes"][0]
    assert compatibility({"cuda": "12.2", "driver": "535"})["notes"] == []
    assert "minor version compatibility" in compatibility({"cuda": "13.5", "driver": "615"})["notes"][0]
    assert compatibility({"cuda": "13.5", "driver": "620"})["notes"] == []


# https://docs.nvidia.com/cuda/archive/<version>/cuda-installation-guide-linux/ "Host Compiler Support Policy"
# For 13.4 and 13.5 crt/host_config.h of nvidia-cuda-crt 13.4.92 and 13.5.37 on PyPI.
COMPILERS = [
    ("13.5", "gcc 16", True),
    ("13.5", "gcc 17", False),
    ("13.4", "gcc 16", True),
    ("13.3", "gcc 16", False),
    ("13.0", "gcc 15", True),
    ("13.0", "gcc 16", False),
    ("12.9", "gcc 14.2", True),
    ("12.8", "gcc 15", False),
    ("12.6", "gcc 13", True),
    ("12.4", "gcc 14", False),
    ("12.1", "gcc 12", True),
    ("12.1", "g++-13", False),
    ("11.8", "gcc-11", True),
    ("11.8", "gcc 12.2.0", False),
    ("10.2", "gcc 9", False),
]


@pytest.mark.parametrize(("cuda", "compiler", "fits"), COMPILERS)
def test_host_compiler(cuda: str, compiler: str, fits: bool) -> None:
    assert compatible({"cuda": cuda, "compiler": compiler}) is fits


def test_another_compiler_is_unknown() -> None:
    found = compatibility({"cuda": "12.4", "compiler": "clang 99"})
    assert (found["compatible"], found["certain"]) == (True, False)


# https://docs.nvidia.com/deeplearning/cudnn/archives/, the support matrix of each version, and 9.17.0:
# https://docs.nvidia.com/deeplearning/cudnn/backend/v9.17.0/reference/support-matrix.html
CUDNN = [
    ("9.17", "13.1", "NVIDIA H100", True),
    ("9.17.0.29", "12.0", "NVIDIA H100", True),
    ("9.17", "11.8", "NVIDIA H100", False),
    ("9.17", "12.9", "Tesla V100-SXM2-16GB", False),
    ("9.10.2", "12.9", "Tesla V100-SXM2-16GB", True),
    ("9.10.2", "11.8", "Tesla P40", True),
    ("9.10.2", "13.0", "NVIDIA H100", False),
    ("9.0", "12.3", "Tesla P100-PCIE-16GB", True),
    ("8.9", "12.1", "NVIDIA H100", True),
    ("8.2", "11.4", "Tesla K80", True),
    ("8.2", "12.0", "Tesla V100-SXM2-16GB", False),
    ("8.2", "10.2", "Tesla V100-SXM2-16GB", True),
    ("8.2", "11.8", "NVIDIA H100", False),
    ("7.6", "10.0", "Tesla T4", True),
    ("7.6", "9.1", "Tesla P40", False),
    ("9.1", "12.8", "NVIDIA B200", False),
    ("9.7", "12.8", "NVIDIA B200", True),
]


@pytest.mark.parametrize(("cudnn", "cuda", "gpu", "fits"), CUDNN)
def test_cudnn(cudnn: str, cuda: str, gpu: str, fits: bool) -> None:
    assert compatible({"cudnn": cudnn, "cuda": cuda, "gpus": [gpu]}) is fits


@pytest.mark.parametrize(
    "asked",
    [
        {"gpus": ["0x3f00"], "driver": "610", "cuda": "13.0"},
        {"gpus": ["NVIDIA F400"], "driver": "340"},
        {"driver": "999", "gpus": ["NVIDIA H200"]},
        {"cuda": "14.1", "driver": "610"},
        {"cuda": "13.9", "driver": "610"},
        {"cuda": "13.9", "gpus": ["NVIDIA H200"]},
        {"cuda": "13.0", "cudnn": "11.0"},
        {"cuda": "99.9", "compiler": "gcc 99"},
    ],
)
def test_what_is_unknown_is_no_reason(asked: dict[str, Any]) -> None:
    found = compatibility(asked)
    assert found["compatible"]
    assert not found["certain"]
    assert found["unknown"]


def test_what_is_known_of_a_newer_version_still_counts() -> None:
    assert not compatible({"gpus": ["Tesla V100-SXM2-16GB"], "driver": "999"})
    assert not compatible({"gpus": ["Tesla V100-SXM2-16GB"], "cuda": "14.0"})


def test_nothing_asked_is_compatible_and_certain() -> None:
    found = compatibility({"gpus": [], "driver": "", "cuda": None})
    assert (found["compatible"], found["certain"]) == (True, True)


def test_what_fits() -> None:
    fits = compatibility({"gpus": ["Tesla V100-SXM2-16GB"], "compiler": "gcc 12"})["fits"]
    assert fits["driver"][-1] == "580"
    assert fits["kernel_modules"] == ["proprietary"]
    assert fits["cuda"] == ["12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.8", "12.9"]
    assert fits["cudnn"][-1] == "9.10"
    assert "535" in compatibility({"cuda": "12.9"})["fits"]["driver"]
    assert compatibility({"cuda": "12.9"})["fits"]["compiler"][-1] == "gcc 14"


def test_what_fits_is_left_out_where_nobody_reads_it() -> None:
    request = {"gpus": ["Tesla V100-SXM2-16GB"], "driver": "535", "cuda": "12.9"}
    whole = compatibility(request)
    assert compatibility(request, with_fits=False) == {name: value for name, value in whole.items() if name != "fits"}


def test_numbers_of_yaml_are_taken() -> None:
    assert compatible({"driver": 580, "cuda": 12.9})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"gpu": []}, "'gpu' is not a known key: use gpus, driver"),
        ({"driver": "latest"}, "driver is 'latest', which is not a version: write it as in '580'"),
        ({"cuda": "13"}, "cuda is '13', which is not a version: write it as in '13.0'"),
        ({"cudnn": "9"}, "cudnn is '9'"),
        ({"kernel_modules": "free"}, "use open, proprietary or auto"),
        ({"compiler": "13"}, "write its name and version"),
        ({"gpus": "all"}, "gpus takes a list of GPUs, but got str"),
        ({"gpus": [7]}, "a GPU is a string or a dictionary, but got int"),
        ("13.0", "takes a dictionary, but got str"),
    ],
)
def test_what_cannot_be_understood_is_refused(asked: Any, message: str) -> None:
    for plugin in (compatible, compatibility):
        with pytest.raises(AnsibleFilterError, match=r"gpu\.fleet\.compatib") as caught:
            plugin(asked)
        assert message in str(caught.value)


def test_facts_and_tables_report_the_same_cuda_version_of_a_branch() -> None:
    """cuda_facts has its own table, for hosts where nvidia-smi does not work."""
    for cuda, driver in DRIVER_OF_CUDA.items():
        if number(cuda) >= (11, 0):
            assert cuda_of_branch(driver) == cuda
