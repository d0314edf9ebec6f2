# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages with the headers of kernels, by what `uname -r` prints there."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver import change
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.host import Host
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.kernel_packages import (
    headers_package as kernel_headers,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.kernel_packages import (
    kernel_packages,
    parts_of,
)

from tests.unit.driver.plans import AMAZON, DEBIAN, EL, UBUNTU, driver, facts

KERNELS = {
    # Enterprise Linux: https://docs.redhat.com, kernel packages.
    "5.14.0-503.11.1.el9_5.x86_64": "kernel-devel-5.14.0-503.11.1.el9_5.x86_64",
    "5.14.0-503.11.1.el9_5.aarch64+64k": "kernel-64k-devel-5.14.0-503.11.1.el9_5.aarch64",
    "6.12.0-55.9.1.el10_0.aarch64+64k": "kernel-64k-devel-6.12.0-55.9.1.el10_0.aarch64",
    "5.14.0-503.11.1.el9_5.aarch64+64k-debug": "kernel-64k-debug-devel-5.14.0-503.11.1.el9_5.aarch64",
    "5.14.0-503.11.1.el9_5.x86_64+debug": "kernel-debug-devel-5.14.0-503.11.1.el9_5.x86_64",
    "5.14.0-503.11.1.el9_5.x86_64+rt": "kernel-rt-devel-5.14.0-503.11.1.el9_5.x86_64",
    "5.14.0-503.11.1.el9_5.aarch64+rt-64k": "kernel-rt-64k-devel-5.14.0-503.11.1.el9_5.aarch64",
    "5.14.0-284.30.1.rt14.315.el9_2.x86_64": "kernel-rt-devel-5.14.0-284.30.1.rt14.315.el9_2.x86_64",
    # Oracle's Unbreakable Enterprise Kernel.
    "5.15.0-306.177.4.el9uek.x86_64": "kernel-uek-devel-5.15.0-306.177.4.el9uek.x86_64",
    "6.12.0-1.23.3.2.el9uek.aarch64": "kernel-uek-devel-6.12.0-1.23.3.2.el9uek.aarch64",
    "6.12.0-1.23.3.2.el10uek.aarch64+64k": "kernel-uek64k-devel-6.12.0-1.23.3.2.el10uek.aarch64",
    "5.15.0-306.177.4.el9uek.x86_64+debug": "kernel-uek-debug-devel-5.15.0-306.177.4.el9uek.x86_64",
}
AMAZON_KERNELS = {
    "6.1.134-152.225.amzn2023.x86_64": "kernel-devel-6.1.134-152.225.amzn2023.x86_64",
    "6.12.37-61.105.amzn2023.x86_64": "kernel6.12-devel-6.12.37-61.105.amzn2023.x86_64",
    "6.18.35-68.127.amzn2023.aarch64": "kernel6.18-devel-6.18.35-68.127.amzn2023.aarch64",
}
PROXMOX = "6.8.12-4-pve"
APT_KERNELS = ("6.1.0-38-amd64", "6.12.43+deb13-cloud-arm64", "6.8.0-1020-nvidia-64k", "6.8.0-151-generic")


def headers(host: dict[str, Any], *kernels: str) -> dict[str, Any]:
    """The packages for kernels without headers."""
    return change.headers(Host.of(host), kernels)


@pytest.mark.parametrize("kernel", KERNELS)
def test_enterprise_linux(kernel: str) -> None:
    assert kernel_headers(kernel, "dnf") == KERNELS[kernel]


@pytest.mark.parametrize("kernel", AMAZON_KERNELS)
def test_amazon_linux_has_them_and_further_modules_by_the_kernel(kernel: str) -> None:
    assert kernel_headers(kernel, "dnf") == AMAZON_KERNELS[kernel]
    found = headers(facts(AMAZON), kernel)
    assert found["packages"] == [AMAZON_KERNELS[kernel], AMAZON_KERNELS[kernel].replace("-devel-", "-modules-extra-")]


# What `pveversion -v` of hosts prints, as they are published: kernels, and what has a similar name.
_PROXMOX = (
    *("proxmox-ve", "pve-manager", "pve-firmware", "proxmox-kernel-helper", "proxmox-default-kernel"),
    *("proxmox-kernel-6.17", "proxmox-kernel-6.17.2-2-pve-signed", "proxmox-kernel-6.14"),
    *("proxmox-kernel-6.14.11-4-pve-signed", "proxmox-kernel-6.14.8-2-pve-signed", "pve-qemu-kvm", "linux-base"),
)


def test_proxmox_has_names_of_its_own() -> None:
    assert kernel_headers(PROXMOX, "apt") == f"proxmox-headers-{PROXMOX}"


@pytest.mark.parametrize(
    ("installed", "metapackages"),
    [
        (_PROXMOX, ["proxmox-default-headers"]),
        ((*_PROXMOX, "proxmox-default-headers"), []),
        # A host of one series, as `proxmox-boot-tool kernel pin` and older releases have it.
        (("proxmox-kernel-6.14",), ["proxmox-headers-6.14"]),
    ],
)
def test_proxmox_gets_the_headers_of_its_next_kernels(installed: tuple[str, ...], metapackages: list[str]) -> None:
    there = {name: [{"version": "1"}] for name in installed}
    found = headers(facts(DEBIAN, packages=there), "6.17.2-2-pve")
    assert found["packages"] == ["proxmox-headers-6.17.2-2-pve", *metapackages]


def test_the_kernel_of_proxmox_is_held() -> None:
    installed = (*_PROXMOX, "proxmox-headers-6.17.2-2-pve", "proxmox-headers-6.17", "proxmox-default-headers")
    assert kernel_packages(installed, ["6.17.2-2-pve"]) == [
        "proxmox-default-headers",
        "proxmox-default-kernel",
        "proxmox-headers-6.17",
        "proxmox-headers-6.17.2-2-pve",
        "proxmox-kernel-6.14",
        "proxmox-kernel-6.17",
        "proxmox-kernel-6.17.2-2-pve-signed",
    ]


def test_a_driver_on_a_host_of_proxmox_is_planned_and_explained() -> None:
    host = facts(DEBIAN, kernel="6.17.2-2-pve", gpu_fleet_machine={"virtualization": "proxmox"})
    found = driver(host)
    assert (found["refusals"], found["steps"][0]) == ([], "install")
    (note,) = found["notes"]
    assert note.startswith("this is a host of Proxmox VE")
    loaded = {**facts(DEBIAN, "580.95.05"), "gpu_fleet_machine": {"virtualization": "proxmox"}}
    assert not [one for one in driver(loaded)["notes"] if "Proxmox" in one]


@pytest.mark.parametrize("kernel", APT_KERNELS)
def test_debian_and_ubuntu(kernel: str) -> None:
    assert kernel_headers(kernel, "apt") == f"linux-headers-{kernel}"


@pytest.mark.parametrize(
    ("kernel", "parts"),
    [
        ("6.8.0-151-generic", ("6.8.0-151", "generic")),
        ("6.8.0-1020-nvidia-64k", ("6.8.0-1020", "nvidia-64k")),
        ("6.1.0-38-cloud-amd64", ("6.1.0-38", "cloud-amd64")),
        ("6.12.43+deb13-amd64", ("6.12.43+deb13", "amd64")),
        ("6.1.0-0.deb11.13-amd64", ("6.1.0-0.deb11.13", "amd64")),
        ("5.14.0-503.11.1.el9_5.aarch64+64k", ("5.14.0-503.11.1.el9_5.aarch64+64k", "")),
    ],
)
def test_release_and_flavour(kernel: str, parts: tuple[str, str]) -> None:
    assert parts_of(kernel) == parts


@pytest.mark.parametrize(("system", "kernels"), [(EL, tuple(KERNELS)), (DEBIAN, APT_KERNELS)])
def test_the_role_installs_them(system: dict[str, str], kernels: tuple[str, ...]) -> None:
    found = headers(facts(system), *kernels)
    expected = [KERNELS[kernel] if system == EL else f"linux-headers-{kernel}" for kernel in kernels]
    assert found == {"kernels": list(kernels), "packages": expected}


def test_metapackages_of_kernels_have_those_of_headers() -> None:
    names = ("linux-image-generic", "linux-image-unsigned-6.8.0-1", "linux-image-6.8.0-1-generic", "linux-image-kvm")
    there = {name: [{"version": "1"}] for name in (*names, "linux-headers-kvm")}
    found = headers(facts(UBUNTU, packages=there))
    assert found["packages"] == ["linux-headers-generic"]
