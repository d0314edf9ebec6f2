# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of driver packages in NVIDIA's guide and in Ubuntu's and Debian's archives, by branch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import (
    DriverRequest,
    DriverRequestError,
    packages_for,
)

_ROOT = Path(__file__).resolve().parents[3]
_TABLE = yaml.safe_load((_ROOT / "roles/nvidia_driver/vars/packages.yml").read_text(encoding="utf-8"))[
    "__nvidia_driver_package_table"
]


def _packages(origin: str, system: str, version: str, kind: str = "open", **other: Any) -> dict[str, Any]:
    parts = tuple(other.pop("parts", ()))
    request = DriverRequest(origin, system, "x86_64", version, kind, "dkms", parts=parts)
    return packages_for(replace(request, **other), _TABLE).as_dict()


# The compute-only commands of NVIDIA's guide, and of Ubuntu's and Debian's archives.
@pytest.mark.parametrize(
    ("origin", "system", "version", "kind", "expected"),
    [
        ("cuda_repository", "Ubuntu", "570", "open", "libnvidia-compute-570 nvidia-utils-570 nvidia-dkms-570-open"),
        ("cuda_repository", "Ubuntu", "580", "proprietary", "libnvidia-compute-580 nvidia-utils-580 nvidia-dkms-580"),
        ("cuda_repository", "Ubuntu", "589.1", "open", "libnvidia-compute-589 nvidia-utils-589 nvidia-dkms-589-open"),
        ("cuda_repository", "Ubuntu", "590", "open", "libnvidia-compute nvidia-dkms-open"),
        ("cuda_repository", "Ubuntu", "610.57.04", "proprietary", "libnvidia-compute nvidia-dkms"),
        ("cuda_repository", "Ubuntu", "newest", "open", "libnvidia-compute nvidia-dkms-open"),
        ("local_repository", "Ubuntu", "610", "open", "libnvidia-compute nvidia-dkms-open"),
        ("cuda_repository", "Debian", "580", "open", "nvidia-driver-cuda nvidia-kernel-open-dkms"),
        ("cuda_repository", "Debian", "610", "proprietary", "nvidia-driver-cuda nvidia-kernel-dkms"),
        ("cuda_repository", "RedHat", "580", "open", "nvidia-driver-cuda kmod-nvidia-open-dkms"),
        ("cuda_repository", "RedHat", "610", "proprietary", "nvidia-driver-cuda kmod-nvidia-latest-dkms"),
        (
            "distribution",
            "Ubuntu",
            "580",
            "open",
            "libnvidia-compute-580-server nvidia-utils-580-server nvidia-dkms-580-server-open",
        ),
        (
            "distribution",
            "Ubuntu",
            "595",
            "proprietary",
            "libnvidia-compute-595-server nvidia-utils-595-server nvidia-dkms-595-server",
        ),
        ("ppa", "Ubuntu", "610", "open", "libnvidia-compute-610 nvidia-utils-610 nvidia-dkms-610-open"),
        ("distribution", "Debian", "535", "proprietary", "nvidia-smi libcuda1 libnvidia-ml1 nvidia-kernel-dkms"),
        ("distribution", "Debian", "550", "open", "nvidia-smi libcuda1 libnvidia-ml1 nvidia-open-kernel-dkms"),
    ],
)
def test_driver_without_desktop(origin: str, system: str, version: str, kind: str, expected: str) -> None:
    assert _packages(origin, system, version, kind)["driver"] == expected.split()


@pytest.mark.parametrize(
    ("origin", "system", "version", "kind", "expected"),
    [
        ("cuda_repository", "Ubuntu", "580", "open", "nvidia-driver-580-open nvidia-dkms-580-open"),
        ("cuda_repository", "Ubuntu", "590", "open", "nvidia-driver-open nvidia-dkms-open"),
        ("cuda_repository", "Ubuntu", "590", "proprietary", "nvidia-driver nvidia-dkms"),
        ("distribution", "Ubuntu", "580", "open", "nvidia-driver-580-server-open nvidia-dkms-580-server-open"),
        ("cuda_repository", "RedHat", "610", "open", "nvidia-driver nvidia-driver-cuda kmod-nvidia-open-dkms"),
        ("cuda_repository", "Debian", "550", "open", "nvidia-driver nvidia-smi nvidia-kernel-open-dkms"),
        ("cuda_repository", "Debian", "560", "open", "nvidia-driver nvidia-driver-cuda nvidia-kernel-open-dkms"),
    ],
)
def test_driver_with_desktop(origin: str, system: str, version: str, kind: str, expected: str) -> None:
    assert _packages(origin, system, version, kind, headless=False)["driver"] == expected.split()


# The table of the NVSwitch family in NVIDIA/gpu-driver-container's install scripts.
@pytest.mark.parametrize(
    ("system", "version", "part", "expected"),
    [
        ("Ubuntu", "570", "fabric_manager", "nvidia-fabricmanager-570 libnvidia-nscq-570"),
        ("Ubuntu", "580", "fabric_manager", "nvidia-fabricmanager libnvidia-nscq"),
        ("Debian", "610", "fabric_manager", "nvidia-fabricmanager libnvidia-nscq"),
        ("RedHat", "575", "fabric_manager", "nvidia-fabric-manager libnvidia-nscq-575"),
        ("RedHat", "580", "fabric_manager", "nvidia-fabricmanager libnvidia-nscq"),
        ("Ubuntu", "550", "imex", "nvidia-imex-550"),
        ("RedHat", "570", "imex", "nvidia-imex-570"),
        ("RedHat", "580", "imex", "nvidia-imex"),
        ("Ubuntu", "570", "nvlink5", "libnvsdm-570"),
        ("RedHat", "610", "nvlink5", "libnvsdm"),
    ],
)
def test_companions_have_the_version_of_the_driver(system: str, version: str, part: str, expected: str) -> None:
    without = _packages("cuda_repository", system, version)["driver"]
    assert _packages("cuda_repository", system, version, parts=[part])["driver"] == without + expected.split()


# NVIDIA's repository for Ubuntu has a package of the daemon's own from 580 on; before, Ubuntu's, without its library.
@pytest.mark.parametrize(
    ("origin", "version", "expected"),
    [
        ("cuda_repository", "570", "nvidia-compute-utils-570 libnvidia-cfg1-570"),
        ("cuda_repository", "580", "nvidia-persistenced libnvidia-cfg1-580"),
        ("cuda_repository", "595.58.03", "nvidia-persistenced libnvidia-cfg1"),
        ("local_repository", "580", "nvidia-persistenced libnvidia-cfg1-580"),
        ("ppa", "580", "nvidia-compute-utils-580 libnvidia-cfg1-580"),
        ("distribution", "580", "nvidia-compute-utils-580-server libnvidia-cfg1-580-server"),
    ],
)
def test_persistence_daemon_and_its_library(origin: str, version: str, expected: str) -> None:
    without = _packages(origin, "Ubuntu", version)["driver"]
    assert _packages(origin, "Ubuntu", version, parts=["persistence_daemon"])["driver"] == without + expected.split()


def test_the_subnet_manager_has_a_version_of_its_own() -> None:
    found = _packages("cuda_repository", "Ubuntu", "610", parts=["nvlink5"])
    assert found["others"] == ["nvlsm", "infiniband-diags"]


def test_ubuntu_keeps_the_branch_of_the_fabric_manager() -> None:
    found = _packages("distribution", "Ubuntu", "595", parts=["fabric_manager"])["driver"]
    assert found[-2:] == ["nvidia-fabricmanager-595", "libnvidia-nscq-595"]


def test_there_is_no_sensor_library_for_arm() -> None:
    found = _packages("cuda_repository", "Ubuntu", "610", architecture="aarch64", parts=["nvlink5"])
    assert "libnvsdm" not in found["driver"]


@pytest.mark.parametrize(
    ("version", "kind", "build", "stream"),
    [
        ("580", "open", "dkms", "580-open"),
        ("580.159.04", "open", "dkms", "580-open"),
        ("580", "proprietary", "dkms", "580-dkms"),
        ("580", "proprietary", "precompiled", "580"),
        ("newest", "open", "dkms", "open-dkms"),
        ("newest", "proprietary", "precompiled", "latest"),
    ],
)
def test_stream_of_the_module(version: str, kind: str, build: str, stream: str) -> None:
    assert _packages("cuda_repository", "RedHat", version, kind, module_build=build)["stream"] == stream


def test_deb_has_no_stream_and_a_pin_of_the_vendor() -> None:
    found = _packages("cuda_repository", "Debian", "580.159.04")
    assert (found["stream"], found["pinning"]) == (None, ["nvidia-driver-pinning-580"])


def test_older_branches_have_no_pin_of_the_vendor() -> None:
    assert _packages("cuda_repository", "Ubuntu", "570")["pinning"] == []


def test_signed_modules_follow_the_kernel() -> None:
    found = _packages(
        "distribution", "Ubuntu", "580", module_build="precompiled", kernel="6.8.0-85-generic", server=False
    )
    assert found["others"] == ["linux-modules-nvidia-580-open-6.8.0-85-generic"]
    assert found["driver"] == ["libnvidia-compute-580", "nvidia-utils-580"]


def test_the_newest_of_packages_with_the_branch_in_their_names_is_a_pattern() -> None:
    assert _packages("distribution", "Ubuntu", "newest")["probe"] == "nvidia-utils-*-server"
    assert _packages("distribution", "Ubuntu", "recommended")["probe"] == "nvidia-utils-*-server"


@pytest.mark.parametrize(
    ("origin", "system", "version", "other", "message"),
    [
        ("ppa", "Debian", "580", {}, "ppa has no driver for Debian, only for Ubuntu"),
        ("cuda_repository", "Ubuntu", "535", {"parts": ["imex"]}, "imex from branch 550 on, not for branch 535"),
        (
            "cuda_repository",
            "Ubuntu",
            "580",
            {"module_build": "precompiled"},
            "no precompiled open packages for Ubuntu",
        ),
        ("distribution", "Debian", "535", {"parts": ["fabric_manager"]}, "no fabric manager packages for Debian"),
        # Compute-only packages of NVIDIA's repository for Debian begin at 560.
        ("cuda_repository", "Debian", "550", {}, "packages without a desktop from branch 560 on, not for branch 550"),
    ],
)
def test_what_no_package_serves_is_refused_by_name(
    origin: str, system: str, version: str, other: dict[str, Any], message: str
) -> None:
    with pytest.raises(DriverRequestError, match=message):
        _packages(origin, system, version, **other)


def test_every_row_of_the_table_has_known_fields() -> None:
    conditions = {"origins", "systems", "distributions", "architectures", "from", "before"}
    modules = {f"{build}_{kind}" for build in ("dkms", "precompiled") for kind in ("open", "proprietary")}
    parts = {
        "probe",
        "compute",
        "desktop",
        "persistence_daemon",
        "fabric_manager",
        "imex",
        "nvlink5",
        "gdrcopy",
        "storage",
        "pinning",
    }
    for row in _TABLE:
        assert row.keys() <= conditions | modules | parts | {"any_version", "stream", "newest_stream"}, row
