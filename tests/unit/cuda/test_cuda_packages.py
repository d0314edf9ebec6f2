# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package names from the roles' tables, compared with names in NVIDIA's and the distributions' repositories."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import RequestError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cuda.packages import (
    CudaPackage,
    Offer,
    driver_changes,
    is_offered,
    packages_for,
    parse_changes,
    parse_offers,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.cuda.plan import OF_TOOLKITS, REPOSITORY, TABLES

ROLES = Path(__file__).resolve().parents[3] / "roles"


def _variables(role: str) -> dict[str, Any]:
    variables: dict[str, Any] = yaml.safe_load((ROLES / role / "vars/main.yml").read_text(encoding="utf-8"))
    return variables


CUDA = _variables("cuda")[TABLES][REPOSITORY]
CUDNN = _variables("cudnn")


def _list(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]


def _names(part: object, version: object, manager: str = "apt") -> list[str]:
    return [
        package.name
        for one_version in _list(version)
        for one_part in _list(part)
        for package in packages_for(one_part, one_version, "", CUDA, manager)
    ]


@pytest.mark.parametrize(
    ("part", "version", "manager", "expected"),
    [
        ("toolkit", "13.0", "apt", ["cuda-toolkit-13-0"]),
        ("toolkit", ["12.9", "13.0"], "dnf", ["cuda-toolkit-12-9", "cuda-toolkit-13-0"]),
        ("compiler", "12.4", "apt", ["cuda-minimal-build-12-4"]),
        (["runtime", "libraries"], "13.2", "apt", ["cuda-cudart-13-2", "cuda-libraries-13-2"]),
        ("development", "12.9", "apt", ["cuda-libraries-dev-12-9"]),
        ("development", "12.9", "dnf", ["cuda-libraries-devel-12-9"]),
        # nvprof ended with CUDA 12, Nsight began with 10.1, compute-sanitizer with 11.
        (
            "profilers",
            "12.9",
            "apt",
            ["cuda-cupti-12-9", "cuda-nsight-compute-12-9", "cuda-nsight-systems-12-9", "cuda-nvprof-12-9"],
        ),
        ("profilers", "13.0", "apt", ["cuda-cupti-13-0", "cuda-nsight-compute-13-0", "cuda-nsight-systems-13-0"]),
        ("profilers", "10.0", "apt", ["cuda-cupti-10-0", "cuda-nvprof-10-0"]),
        ("debugger", "10.2", "apt", ["cuda-gdb-10-2"]),
        ("forward_compatibility", "13.0", "apt", ["cuda-compat-13-0"]),
        ("toolkit", [], "apt", []),
    ],
)
def test_packages_of_a_toolkit(part: object, version: object, manager: str, expected: list[str]) -> None:
    assert _names(part, version, manager) == expected


@pytest.mark.parametrize(
    ("request_", "manager", "expected"),
    [
        (
            {"part": "cudnn", "version": "9.14.0.64", "cuda": "13"},
            "apt",
            {
                "libcudnn9-cuda-13": "9.14.0.64-*",
                "libcudnn9-dev-cuda-13": "9.14.0.64-*",
                "libcudnn9-headers-cuda-13": "9.14.0.64-*",
            },
        ),
        (
            {"part": "cudnn", "version": "9.14", "cuda": "12.9"},
            "dnf",
            {
                "libcudnn9-cuda-12": "9.14.*-*",
                "libcudnn9-devel-cuda-12": "9.14.*-*",
                "libcudnn9-headers-cuda-12": "9.14.*-*",
            },
        ),
        (
            {"part": "cudnn", "version": "8.9.7.29", "cuda": "12"},
            "apt",
            {"libcudnn8": "8.9.7.29-*+cuda12.*", "libcudnn8-dev": "8.9.7.29-*+cuda12.*"},
        ),
        (
            {"part": "nccl", "version": "2.27.5", "cuda": "12.9"},
            "dnf",
            {"libnccl": "2.27.5-*+cuda12.9", "libnccl-devel": "2.27.5-*+cuda12.9"},
        ),
    ],
)
def test_packages_of_a_library_and_the_versions_that_will_do(
    request_: dict[str, str], manager: str, expected: dict[str, str]
) -> None:
    found = packages_for(request_["part"], request_["version"], request_["cuda"], CUDNN["__cudnn_table"], manager)
    assert {package.name: package.version for package in found} == expected


@pytest.mark.parametrize(
    ("part", "version", "manager", "words"),
    [
        ("samples", "13.0", "apt", ["samples", "toolkit"]),
        ("toolkit", "latest", "apt", ["latest", "13.0"]),
        ("toolkit", "13.0", "zypper", ["zypper", "dnf"]),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_by_name(
    part: str, version: str, manager: str, words: list[str]
) -> None:
    with pytest.raises(RequestError) as refused:
        list(packages_for(part, version, "", CUDA, manager))
    assert [word for word in words if word not in str(refused.value)] == []


# Names and releases of NVIDIA's rpms: cuDNN 8 and TensorRT with a dot before cuda, NCCL with a plus sign.
@pytest.mark.parametrize(
    ("part", "version", "cuda", "name", "release"),
    [
        ("cudnn", "8.9.7.29", "12", "libcudnn8", "8.9.7.29-1.cuda12.2"),
        ("cudnn", "8.9", "12.2", "libcudnn8-devel", "8.9.7.29-1.cuda12.2"),
        ("tensorrt", "10.13.3.9", "12.9", "libnvinfer10", "10.13.3.9-1.cuda12.9"),
        ("tensorrt", "10", "12.9", "libnvinfer-devel", "10.13.3.9-1.cuda12.9"),
        ("nccl", "2.27.5", "12.9", "libnccl", "2.27.5-1+cuda12.9"),
        ("cudnn", "9.14.0.64", "13", "libcudnn9-cuda-13", "9.14.0.64-1"),
    ],
)
def test_the_rpm_of_a_library_is_found(part: str, version: str, cuda: str, name: str, release: str) -> None:
    packages = {one.name: one for one in packages_for(part, version, cuda, CUDNN["__cudnn_table"], "dnf")}
    assert is_offered(packages[name], [Offer(name, release)])
    other = release.replace("cuda12", "cuda11").replace("9.14.0", "9.13.0")
    assert not is_offered(packages[name], [Offer(name, other)])


def test_offers_of_both_package_managers() -> None:
    madison = " cuda-toolkit-13-0 | 13.0.2-1 | https://x/ubuntu2404/x86_64  Packages\n" * 2
    assert parse_offers(madison) == parse_offers("cuda-toolkit-13-0 | 13.0.2-1\n")
    assert parse_offers("Error: Cache-only enabled but no cache for 'cuda'\n") == ()
    assert is_offered(CudaPackage("cuda-toolkit-13-0"), parse_offers(madison))


@pytest.mark.parametrize("manager", ["apt", "dnf"])
@pytest.mark.parametrize("version", ["11.8", "12.0", "12.9", "13.0", "13.4"])
def test_no_component_names_a_package_that_depends_on_a_driver(version: str, manager: str) -> None:
    """NVIDIA's cuda, cuda-13-0, cuda-runtime-13-0, cuda-demo-suite-13-0 and cuda-drivers do."""
    names = _names(list(CUDA), version, manager)
    assert [name for name in names if re.match(r"cuda(-\d|-runtime|-demo-suite|-drivers|$)", name)] == []


def _words(text: str) -> list[str]:
    return text.split()


# Names from the package lists of Debian, Ubuntu and NVIDIA's repositories for ubuntu2404 and rhel9.
DRIVERS = _words("""
    cuda-drivers cuda-drivers-580 cuda-drivers-fabricmanager-580 nvidia-open nvidia-open-580 nvidia-driver
    nvidia-driver-580-open nvidia-driver-cuda nvidia-driver-pinning-580 nvidia-dkms-580 nvidia-headless-580-server
    nvidia-kernel-dkms nvidia-open-kernel-dkms nvidia-kernel-common-580 libnvidia-compute-580 libnvidia-compute
    libnvidia-ml1 libnvidia-gl-580 libcuda1 nvidia-utils-580 kmod-nvidia-open-dkms kmod-nvidia-latest-dkms
    linux-modules-nvidia-580-generic nvidia-persistenced nvidia-fabricmanager-580 nvidia-fabric-manager
    nvidia-firmware-580-580.95.05 nvidia-compute-utils-580 xserver-xorg-video-nvidia libnvidia-ptxjitcompiler1
    nvidia-alternative nvidia-legacy-390xx-driver
""")
TOOLKIT = _words("""
    cuda-toolkit-13-0 cuda-nvcc-13-0 cuda-driver-dev-13-0 cuda-driver-devel-13-0 cuda-cudart-13-0 libcublas-13-0
    gds-tools-13-0 cuda-toolkit-config-common cuda-toolkit-13-config-common nsight-compute-2025.3.1
    nsight-systems-2025.3.2 nvidia-cuda-toolkit nvidia-cuda-dev nvidia-profiler libcudart12 libcublaslt12 libnppc12
    libnvrtc12 libnvjitlink-13-0 libnvfatbin-13-0 cuda-compat-13-0 libcusolvermg11 libcupti12 nvidia-cuda-gdb libnvvm4
    libnvtoolsext1 libcufile-13-0
""")
OTHERS = _words("""
    g++ gcc-12 libc6-dev libcudnn9-cuda-13 cudnn9-cuda-13 libnccl2 libcuda1 docker.io nvidia-modprobe cuda-keyring
    nvidia-container-toolkit libnvidia-container1 libnvinfer10
""")


def _driver_changes(name: str) -> list[tuple[str, ...]]:
    """The package as a new one of apt and of dnf."""
    new = {"apt": f"Inst {name} (1:2.3-1 Ubuntu:24.04/noble [amd64])", "dnf": f"Installed: {name}-1:2.3-1.el9.x86_64"}
    changes = [parse_changes([line], manager) for manager, line in new.items()]
    return [driver_changes(change, "", libraries_allowed=False) for change in changes]


@pytest.mark.parametrize(
    ("line", "driver", "touched"),
    [
        # A host without a driver gets the libraries; one with a driver only missing ones of its own version.
        ("Inst libcuda1 (550.163.01-2 Debian:13.1/stable [amd64])", "", False),
        ("Inst libcuda1 (550.163.01-2 Debian:13.1/stable [amd64])", "550.163.01", False),
        ("Inst libcuda1 (550.163.01-2 Debian:13.1/stable [amd64])", "580.159.04", True),
        ("Inst libcuda1 [535.1-1] (550.163.01-2 Debian:13.1/stable [amd64])", "550.163.01", True),
        ("Remv libcuda1 [550.163.01-2]", "", True),
        ("Inst nvidia-firmware-580-580.178.04 (580.178.04-0ubuntu0.24.04.1 Ubuntu:24.04 [amd64])", "", False),
        ("Inst nvidia-kernel-common-580 (580.178.04-0ubuntu0.24.04.1 Ubuntu:24.04 [amd64])", "", False),
        ("Inst nvidia-kernel-dkms (550.163.01-2 Debian:13.1/stable [amd64])", "", True),
        ("Conf libcuda1 (580.159.04-1 NVIDIA [amd64])", "550.163.01", False),
    ],
)
def test_the_libraries_of_a_driver_come_with_the_distributions_toolkit(line: str, driver: str, touched: bool) -> None:
    changes = parse_changes([line], "apt")
    assert bool(driver_changes(changes, driver, libraries_allowed=True)) is touched


@pytest.mark.parametrize("name", DRIVERS)
def test_a_package_of_a_driver_is_known_as_one(name: str) -> None:
    assert _driver_changes(name) == [(name,), (name,)]
    assert not OF_TOOLKITS.match(name)


@pytest.mark.parametrize("name", TOOLKIT)
def test_a_package_of_a_toolkit_is_no_drivers(name: str) -> None:
    assert _driver_changes(name) == [(), ()]


@pytest.mark.parametrize("name", TOOLKIT)
def test_a_package_that_a_toolkit_brought_goes_with_it(name: str) -> None:
    assert OF_TOOLKITS.match(name)


@pytest.mark.parametrize("name", OTHERS)
def test_a_package_of_others_stays(name: str) -> None:
    assert not OF_TOOLKITS.match(name)
