# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ubuntu's precompiled modules: of the kernel at hand, and of the next one by the metapackage of its flavour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.real_indexes.apt_root import AptRoot
from tests.unit.real_indexes.test_branches import plan_on

Roots = Callable[[str], AptRoot]
REQUEST = {"version": "580", "module_build": "precompiled", "companions": ["persistence_daemon"]}
# Release, metapackage of the kernel, running kernel; metapackage of the modules.
HOSTS = [
    ("noble", "linux-image-generic", "6.8.0-151-generic", "generic"),
    ("noble", "linux-image-generic-hwe-24.04", "7.0.0-43-generic", "generic-hwe-24.04"),
    ("noble", "linux-image-aws", "7.0.0-1018-aws", "aws"),
    ("noble", "linux-image-azure", "7.0.0-1020-azure", "azure"),
    ("noble", "linux-image-gcp", "7.0.0-1018-gcp", "gcp"),
    # Without a metapackage of a kernel: the one whose modules are for this kernel.
    ("noble", "", "6.8.0-151-generic", "generic"),
    ("noble", "", "7.0.0-43-generic", "generic-hwe-24.04"),
    ("jammy", "linux-image-generic", "5.15.0-204-generic", "generic"),
    ("jammy", "linux-image-generic-hwe-22.04", "6.8.0-149-generic", "generic-hwe-22.04"),
    ("jammy", "linux-image-aws", "6.8.0-1070-aws", "aws"),
]


@pytest.mark.parametrize("kind", ["open", "proprietary"])
@pytest.mark.parametrize("host", HOSTS, ids=str)
def test_the_next_kernel_gets_its_modules(host: tuple[str, str, str, str], kind: str, roots: Roots) -> None:
    release, image, kernel, flavour = host
    root = roots(release)
    installed = {image: "1"} if image else {}
    plan = plan_on(root, {**REQUEST, "kernel_modules": kind}, {"kernel": kernel, "installed": installed})
    names = f"linux-modules-nvidia-580-server{'-open' if kind == 'open' else ''}"
    assert plan["reasons"] == []
    assert plan["packages"]["others"] == [f"{names}-{kernel}", f"{names}-{flavour}"]
    found = root.simulate(*plan["install"])
    assert {f"{names}-{kernel}", f"{names}-{flavour}"} <= set(found)
    # What precompiled modules are for: no compiler, no DKMS.
    assert not [name for name in found if "dkms" in name or name.startswith("gcc")]


def test_the_kernel_of_virtual_machines_is_the_generic_one(roots: Roots) -> None:
    installed = {"linux-image-virtual": "1", "linux-image-6.8.0-151-generic": "1"}
    plan = plan_on(roots("noble"), REQUEST, {"kernel": "6.8.0-151-generic", "installed": installed})
    assert plan["packages"]["others"][1:] == ["linux-modules-nvidia-580-server-open-generic"]


@pytest.mark.parametrize(
    ("kernel", "listed"),
    [
        (
            "6.8.0-150-generic",
            "for 6.8.0-151-generic, 7.0.0-43-generic: boot such a kernel, or set nvidia_driver_module_",
        ),
        ("7.0.0-1017-aws", "for 7.0.0-1018-aws: boot such a kernel"),
        ("6.8.0-1020-raspi", "there are none for any kernel, or set nvidia_driver_module_build to dkms"),
    ],
)
def test_a_kernel_without_modules_is_refused_with_those_that_have_them(kernel: str, listed: str, roots: Roots) -> None:
    (reason,) = plan_on(roots("noble"), REQUEST, {"kernel": kernel})["reasons"]
    assert f"linux-modules-nvidia-580-server-open-{kernel} does not exist" in reason
    assert listed in reason


def test_modules_of_a_kernel_that_left_the_archive_stay(roots: Roots) -> None:
    kernel = "6.8.0-150-generic"
    names = ("nvidia-utils", "libnvidia-compute", "nvidia-compute-utils", "libnvidia-cfg1")
    installed = dict.fromkeys((f"{name}-580-server" for name in names), "580.159.04-0ubuntu0.24.04.1")
    installed[f"linux-modules-nvidia-580-server-open-{kernel}"] = "6.8.0-150.150"
    facts: dict[str, Any] = {"kernel": kernel, "installed": installed, "recorded_source": "distribution"}
    plan = plan_on(roots("noble"), REQUEST, facts)
    assert (plan["version"], plan["reasons"]) == ("580.159.04", [])
    # The modules of the next kernel are of a newer driver, which goes with them.
    newer = plan_on(roots("noble"), REQUEST, {**facts, "kernel": "6.8.0-151-generic"})
    assert (newer["version"], newer["reasons"]) == ("580.178.04", [])


def test_modules_of_another_driver_than_requested_are_refused(roots: Roots) -> None:
    kernel = "6.8.0-151-generic"
    installed = dict.fromkeys(
        ("nvidia-utils-580-server", "libnvidia-compute-580-server"), "580.159.04-0ubuntu0.24.04.1"
    )
    facts = {"kernel": kernel, "installed": installed, "recorded_source": "distribution"}
    request = {**REQUEST, "version": "580.159.04", "companions": []}
    (reason,) = plan_on(roots("noble"), request, facts)["reasons"]
    assert f"the precompiled modules of kernel {kernel} are of driver 580.178.04, not of 580.159.04" in reason


def test_the_compiler_of_jammys_newer_kernel_is_installed(roots: Roots) -> None:
    """Its 6.8 kernels were built by gcc 12, and jammy has gcc 11: dkms brings gcc-12, an older dkms does not."""
    root = roots("jammy")
    assert "gcc-12" in root.simulate("dkms")
    facts = {"kernel": "6.8.0-149-generic", "compiler": "12", "host_compiler": "11"}
    plan = plan_on(root, {"version": "580"}, facts)
    assert plan["reasons"] == []
    assert "gcc-12" in root.simulate(*plan["install"])
    assert "gcc-12" in plan["install"]
