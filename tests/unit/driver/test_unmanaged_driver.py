# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role reports about where an unmanaged driver comes from."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.host import Host
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import family as driver_family
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.request import Request
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.selection import _removals

from tests.unit.driver.plans import DEBIAN, EL, UBUNTU, chosen, facts, removed

# Installed packages as dpkg-query shows them: name, version, source package. The first host is a real H200 host with
# CUDA 13.0 for Ubuntu 24.04, whose driver 580.159.04 came without packages.
_CUDA_IMAGE = """
cuda-compat-13-0 580.95.05-0ubuntu1 nvidia-graphics-drivers-580
cuda-cudart-13-0 13.0.96-1 cuda-cudart
cuda-driver-dev-13-0 13.0.96-1 cuda-cudart
cuda-nvml-dev-13-0 13.0.87-1 cuda-nvml-dev
cuda-toolkit-13-0-config-common 13.0.96-1 cuda-cudart
libcudnn9-cuda-13 9.14.0.64-1 cudnn
libnccl2 2.28.3-1+cuda13.0 nccl
libxnvctrl0 510.47.03-0ubuntu4.24.04.1 nvidia-settings
"""
# Of the very version of the driver.
_FORWARD_COMPATIBILITY = "cuda-compat-13-0 580.159.04-0ubuntu1 nvidia-graphics-drivers-580"
# They come as packages for a driver of a runfile, too, and have its version.
_COMPANIONS = """
libnvidia-nscq 580.159.04-1 nscq
libnvsdm 580.159.04-1 nvsdm
nvidia-fabricmanager 580.159.04-1 fabricmanager
nvidia-imex 580.159.04-1 imex
nvidia-modprobe 580.159.04-1 nvidia-modprobe
nvidia-persistenced 580.159.04-1 nvidia-persistenced
nvidia-prime 0.8.17.2 nvidia-prime
nvidia-settings 580.159.04-1 nvidia-settings
nvidia-xconfig 580.159.04-1 nvidia-xconfig
nvlsm 2025.06.6-1 nvlsm
"""
# What CUDA of the distribution needs of a driver.
_ANOTHER_VERSION = "libnvidia-compute-535 535.288.01-0ubuntu0.24.04.1 nvidia-graphics-drivers-535"
_UBUNTU = f"""{_CUDA_IMAGE}
libnvidia-compute-580-server 580.159.04-0ubuntu0.24.04.1 nvidia-graphics-drivers-580-server
nvidia-utils-580-server 580.159.04-0ubuntu0.24.04.1 nvidia-graphics-drivers-580-server
linux-modules-nvidia-580-server-generic 6.8.0-151.151 linux-restricted-modules
linux-modules-nvidia-535-server-generic 6.8.0-151.151 linux-restricted-modules
"""
_DEBIAN = """
glx-diversions 1.2.2 glx-alternatives
libcuda1 580.159.04-1 nvidia-graphics-drivers
libnvidia-ml1 580.159.04-1 nvidia-graphics-drivers
nvidia-driver-libs 580.159.04-1 nvidia-graphics-drivers
nvidia-kernel-dkms 580.159.04-1 nvidia-graphics-drivers
nvidia-smi 580.159.04-1 nvidia-graphics-drivers
"""
# rpm: by name.
_ENTERPRISE_LINUX = """
kmod-nvidia-open-dkms 580.159.04
nvidia-driver-cuda 580.159.04
nvidia-driver-cuda-libs 580.159.04
nvidia-persistenced 580.159.04
"""
_DRIVER = "580.159.04"
_NO_PACKAGE = "a runfile or by the builder of the image (no package has it)"
# The origin that is reported of the driver.
_ORIGINS: dict[str, tuple[str, str]] = {
    "CUDA image": (_CUDA_IMAGE, _NO_PACKAGE),
    "forward compatibility": (_FORWARD_COMPATIBILITY, _NO_PACKAGE),
    "companions": (_COMPANIONS, _NO_PACKAGE),
    "another version": (_ANOTHER_VERSION, _NO_PACKAGE),
    "Ubuntu": (
        _UBUNTU,
        "the packages libnvidia-compute-580-server, linux-modules-nvidia-580-server-generic, nvidia-utils-580-server",
    ),
    "Debian": (_DEBIAN, "the packages libcuda1, libnvidia-ml1, nvidia-driver-libs, nvidia-kernel-dkms and others"),
    "Enterprise Linux": (
        _ENTERPRISE_LINUX,
        "the packages kmod-nvidia-open-dkms, nvidia-driver-cuda, nvidia-driver-cuda-libs",
    ),
}


@pytest.mark.parametrize("case", _ORIGINS)
def test_the_origin_names_the_packages_of_the_driver_itself(case: str) -> None:
    packages, origin = _ORIGINS[case]
    rows = [line.split() for line in packages.strip().splitlines() if line]
    system = facts(UBUNTU, _DRIVER, packages={row[0]: [{"version": row[1]}] for row in rows})
    request = Request.read(RoleData.read().defaults(["nvidia_driver"]))
    sources = [f"{row[0]}\t{row[2]}" for row in rows if len(row) == 3]
    host = Host.of(system).observed(request, {"sources": sources})
    assert (host.origin, host.is_of_runfile) == (origin, origin == _NO_PACKAGE)


def test_what_needs_no_driver_is_not_removed_with_one() -> None:
    """Programs such as hwloc need libxnvctrl0, and CUDA's forward compatibility is of CUDA."""
    sources = {row[0]: row[2] for row in map(str.split, _CUDA_IMAGE.strip().splitlines())}
    assert driver_family(sources, sources) == []


_LIBRARIES = {"libcuda1": "550.163.01-2", "libnvidia-ml1": "550.163.01-2", "nvidia-cuda-toolkit": "12.4.131-2"}
_MODULE = {"module_version": "550.163.01", "module_kind": "proprietary"}
_RUNFILE: dict[str, str] = {}
# Packages, what differs from libraries of 550.163.01 alone, why nvidia-smi shows nothing, and the outcome with a part
# of the message about it.
_NOT_WHOLE: dict[str, tuple[dict[str, str], dict[str, Any], str, str, str]] = {
    "libraries for CUDA": (
        _LIBRARIES,
        {},
        "no_driver",
        "none",
        "lacks a kernel module for 6.12.48+deb13-amd64, nvidia",
    ),
    "broken DKMS": (
        {**_LIBRARIES, "nvidia-smi": "550.163.01-2"},
        {},
        "not_loaded",
        "none",
        "libnvidia-ml1, nvidia-smi",
    ),
    "runfile without module": (_RUNFILE, {}, "not_loaded", "refused", "lacks a kernel module for 6.12.48+deb13-amd64;"),
    "two versions": (
        _LIBRARIES,
        {"module_version": "550.1"},
        "version_mismatch",
        "refused",
        "of its kernel module, 550.1; repair",
    ),
    "no nvidia-smi": (_LIBRARIES, _MODULE, "no_driver", "refused", "is broken: it lacks nvidia-smi; repair it"),
    "whole, not loaded": (_LIBRARIES, _MODULE, "not_loaded", "kept", ""),
    "driver container": (
        _RUNFILE,
        {"library_version": None, "loaded_version": "550.163.01", "loaded": True},
        *("no_nvidia_smi", "kept", ""),
    ),
}


@pytest.mark.parametrize("case", _NOT_WHOLE)
def test_parts_of_a_driver_are_no_driver(case: str) -> None:
    packages, own, reason, existing, message = _NOT_WHOLE[case]
    system = facts(DEBIAN, packages={name: [{"version": version}] for name, version in packages.items()})
    system["cuda"]["driver"].update({"library_version": "550.163.01", **own})
    system["nvidia_smi"]["reason"] = reason
    found = chosen(system)
    assert (found["existing"], message in "; ".join([*found["notes"], *found["refusals"]])) == (existing, True), found
    assert found["removals"] == []
    assert ("nvidia-driver-cuda" in " ".join(found["install"])) == (existing == "none")
    image = chosen(system, nvidia_driver_image_build=True)
    # The running kernel is not the one of the image.
    assert (image["existing"] == "kept") == (reason in ("not_loaded", "version_mismatch") or existing == "kept")


def test_a_broken_driver_of_the_roles_own_packages_is_repaired() -> None:
    names = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
    system = facts(DEBIAN, packages={name: [{"version": "580.159.04-1"}] for name in names})
    system["cuda"]["driver"].update({"module_version": "580.159.04", "module_kind": "open"})
    found = chosen(system)
    assert (found["existing"], found["refusals"]) == ("adopted", []), found


def test_libraries_of_32_bits_are_packages_of_their_own() -> None:
    def entries(version: str, *architectures: str) -> list[dict[str, str]]:
        return [{"version": version, "arch": one} for one in architectures]

    packages = {
        "dpkg": entries("1.22", "amd64"),
        "libnvidia-gl-570": entries("570.1-1", "amd64", "i386"),
        "libcuda1": entries("580.159.04-1", "amd64", "i386"),
        "bash": entries("5", "amd64"),
    }
    host = Host.of(facts(DEBIAN, packages=packages))
    assert host.family == ["libcuda1", "libcuda1:i386", "libnvidia-gl-570", "libnvidia-gl-570:i386"]
    assert _removals(
        host.facts(
            Request.read(RoleData.read().defaults(["nvidia_driver"]) | {"nvidia_driver_replace_unmanaged": True})
        ),
        ["libcuda1"],
    ) == (
        "libnvidia-gl-570",
        "libnvidia-gl-570:i386",
    )
    rpm = facts(EL, packages={"nvidia-driver-libs": entries("580.1", "x86_64", "i686")})
    assert Host.of(rpm).family == ["nvidia-driver-libs", "nvidia-driver-libs.i686"]


@pytest.mark.parametrize(("record", "releasable"), [({}, []), ({"inputs": "", "data": {}}, ["nvidia-smi"])])
def test_holds_of_a_site_stay_and_what_is_half_installed_goes(record: dict[str, Any], releasable: list[str]) -> None:
    """Only a driver of the role has its holds; what dpkg did not finish has no version, and goes with the others."""
    managed = {"gpu_fleet_managed": {"nvidia_driver": record} if record else {}}
    unfinished = {"gpu_fleet_unfinished_packages": ["libc6", "libcuda1", "nvidia-cuda-toolkit"]}
    system = facts(DEBIAN, _DRIVER, packages={"nvidia-smi": [{"version": f"{_DRIVER}-1"}]}, **managed, **unfinished)
    lines = ["libcuda1\tnvidia-graphics-drivers", "nvidia-cuda-toolkit\tnvidia-cuda-toolkit"]
    read = {"sources": {"stdout_lines": lines}, "in_use": {"users": []}, "containers": {"containers": []}}
    found = removed(system, read, nvidia_driver_replace_unmanaged=True)
    assert (found["packages"], found["releasable"]) == (["nvidia-smi", "libcuda1"], releasable)
