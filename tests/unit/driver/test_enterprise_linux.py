# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signed kernel modules of Enterprise Linux: of RHEL's extensions, and AlmaLinux's own.

The lists are composed after what is public of these repositories (vars/packages.yml of the role names the sources): on
RHEL, the kernel is in the package's name; on AlmaLinux, in the directory of its files, and a version has releases. What
dnf installs of the mock repositories: tests/system/test_nvidia_driver_sources.py.
"""

from __future__ import annotations

import platform
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.offers import QUERY_FORMATS, parse_dnf

from tests.unit.mock_repositories.test_contract import places
from tests.unit.real_indexes.test_branches import planned

REQUEST: dict[str, Any] = {"source": "distribution", "module_build": "precompiled", "kernel_modules": "auto"}
RHEL = {"system": "RedHat", "distribution": "RedHat", "release": "10", "kernel": "6.12.0-211.51.1.el10_2.x86_64"}
ALMA = {"system": "RedHat", "distribution": "AlmaLinux", "release": "9", "kernel": "5.14.0-687.15.1.el9_8.x86_64"}


def kmod(name: str, version: str, kernel: str) -> str:
    """A package with its modules in the form that dnf 4.14 prints of such a package."""
    place = f"/lib/modules/{kernel}"
    files = (
        place,
        f"{place}/extra/nvidia-open",
        *(f"{place}/extra/nvidia-open/{one}.ko" for one in ("nvidia", "nvidia-uvm")),
    )
    return "\n".join((f"{name} {version}", *files, f"/usr/share/licenses/{name}/COPYING", "", ""))


def rhel_kmod(driver: str, kernel: str, variant: str = "", arch: str = "x86_64") -> str:
    name = f"kmod{variant}-nvidia-open-{driver}-{kernel}"
    return kmod(name, f"{driver}-3.el10_2", f"{kernel}.el10_2.{arch}{variant.replace('-', '+')}")


RHEL_LIST = "".join(
    rhel_kmod(driver, kernel)
    for driver, kernel in (
        ("580.105.08", "6.12.0-124.20.1"),
        ("580.178.04", "6.12.0-211.50.1"),
        ("580.178.04", "6.12.0-211.51.1"),
        ("595.71.05", "6.12.0-211.51.1"),
        ("615.71.09", "6.12.0-211.60.1"),
    )
) + "".join(f"nvidia-driver-cuda {one}-3.el10_2\n" for one in ("580.178.04", "595.71.05", "615.71.09"))
ALMA_LIST = (
    kmod("kmod-nvidia-open", "610.43.02-1.el9", "5.14.0-687.12.1.el9_8.x86_64")
    + kmod("kmod-nvidia-open", "610.43.02-2.el9", "5.14.0-687.15.1.el9_8.x86_64")
    + kmod("kmod-nvidia-open", "610.57.04-1.el9", "5.14.0-687.20.1.el9_8.x86_64")
    + "nvidia-driver-cuda 610.43.02-1.el9\nnvidia-driver-cuda 610.57.04-1.el9\n"
)


def plan(facts: dict[str, Any], listed: str, **asked: Any) -> dict[str, Any]:
    return planned({**REQUEST, **asked}, facts, {"listed": listed, "is_complete": True})


@pytest.mark.parametrize(
    ("version", "expected"),
    [("newest", "595.71.05"), ("580", "580.178.04"), ("580.178.04", "580.178.04")],
)
def test_rhel_has_modules_of_a_kernel_by_name(version: str, expected: str) -> None:
    found = plan(RHEL, RHEL_LIST, version=version, companions=["persistence_daemon"])
    modules = f"kmod-nvidia-open-{expected}-6.12.0-211.51.1"
    assert found["install"] == [
        f"nvidia-driver-cuda={expected}",
        f"{modules}={expected}-3.el10_2",
        f"nvidia-persistenced={expected}",
    ]
    assert (found["reasons"], found["kernel_modules"], found["stream"]) == ([], "open", "")
    # No compiler, no DKMS, no key of the host's own.
    assert not [name for name in found["packages"]["driver"] if "dkms" in name or name.startswith("gcc")]


@pytest.mark.parametrize(
    ("place", "facts", "version", "modules"),
    [
        ("cuda/rhel10-extensions", RHEL, "580.159.04", "kmod-nvidia-open-580.159.04-KERNEL=580.159.04-3.el10_2"),
        ("cuda/rhel9-almalinux", ALMA, "610.43.02", "kmod-nvidia-open=610.43.02-2.el9"),
    ],
)
def test_the_mock_repositories_have_modules_for_the_running_kernel(
    place: str, facts: dict[str, Any], version: str, modules: str
) -> None:
    packages = [one for one in places()[place].packages if one.name.startswith(("kmod-nvidia-open", "nvidia-driver-"))]
    listed = "".join(
        "\n".join((f"{one.name} {one.version.rpartition(':')[2]}", *one.files, "", "")) for one in packages
    )
    running = {**facts, "kernel": platform.release()}
    found = plan(running, listed, version=version.partition(".")[0])
    assert (found["version"], found["kernel_modules"], found["reasons"]) == (version, "open", [])
    assert modules.replace("KERNEL", platform.release()) in found["install"]
    newest = "610.57.04"
    (reason,) = plan(running, listed, version=newest)["reasons"]
    assert f"{platform.release()}; there are some for " in reason


def test_what_dnf_is_asked() -> None:
    first = planned({**REQUEST}, RHEL)
    assert first["queries"] == ["kmod-nvidia-open-*-*", "nvidia-driver-cuda"]
    assert planned({**REQUEST}, ALMA)["queries"] == ["kmod-nvidia-open", "nvidia-driver-cuda"]
    assert (first["query_format"], first["reasons"]) == (QUERY_FORMATS[True], [])
    assert planned({**REQUEST, "source": "cuda_repository"}, RHEL)["query_format"] == QUERY_FORMATS[False]


def test_the_release_of_almalinux_whose_files_are_for_the_kernel() -> None:
    found = plan(ALMA, ALMA_LIST)
    assert found["install"] == [
        "nvidia-driver-cuda=610.43.02",
        "kmod-nvidia-open=610.43.02-2.el9",
        "nvidia-open-kmod=610.43.02",
    ]
    assert (found["reasons"], found["stream"]) == ([], "nvidia-driver:610-open")
    assert plan({**ALMA, "release": "10"}, ALMA_LIST)["stream"] == ""


@pytest.mark.parametrize(
    ("facts", "listed", "asked", "message"),
    [
        (
            {**RHEL, "kernel": "6.12.0-211.55.1.el10_2.x86_64"},
            RHEL_LIST,
            {"version": "580"},
            "55.1.el10_2.x86_64; there are some for 6.12.0-124.20.1, 6.12.0-211.50.1, 6.12.0-211.51.1: boot",
        ),
        (
            {**RHEL, "kernel": "6.12.0-211.51.1.el10_2.aarch64+64k", "architecture": "aarch64"},
            RHEL_LIST,
            {},
            "(RHEL 10.1 and newer has them: `subscription-manager repos --enable=rhel-10-for-aarch64-extensions-rpms",
        ),
        ({**RHEL, "kernel": "6.12.0-124.20.1.el10_1.x86_64"}, RHEL_LIST, {}, "and nvidia-driver-cuda of 580.178.04"),
        (
            RHEL,
            RHEL_LIST,
            {"kernel_modules": "proprietary"},
            "RedHat and the newest version, but precompiled open ones",
        ),
        (RHEL, RHEL_LIST, {"module_build": "dkms"}, "no dkms open packages for RedHat"),
        ({**RHEL, "gpus": ["Tesla V100-SXM2-32GB"]}, RHEL_LIST, {}, "no precompiled proprietary packages for RedHat"),
        (
            {**ALMA, "kernel": "5.14.0-687.30.1.el9_8.x86_64"},
            ALMA_LIST,
            {},
            "687.12.1, 5.14.0-687.15.1, 5.14.0-687.20.1:",
        ),
        (ALMA, "", {}, "none for any kernel (`dnf install almalinux-release-nvidia-driver` adds their repositories)"),
        (
            {**RHEL, "distribution": "Rocky"},
            RHEL_LIST,
            {},
            "distribution has no driver for Rocky, only for AlmaLinux, Debian, RedHat, Ubuntu",
        ),
    ],
)
def test_what_a_distribution_does_not_have_is_refused_by_name(
    facts: dict[str, Any], listed: str, asked: dict[str, Any], message: str
) -> None:
    assert message in "; ".join(plan(facts, listed, **asked)["reasons"])


def test_kernels_with_large_pages_have_modules_of_their_own() -> None:
    listed = (
        rhel_kmod("580.178.04", "6.12.0-211.51.1", "-64k", "aarch64")
        + rhel_kmod("595.71.05", "6.12.0-211.51.1", "", "aarch64")
        + "nvidia-driver-cuda 580.178.04-1.el10_2\nnvidia-driver-cuda 595.71.05-1.el10_2\n"
    )
    facts = {**RHEL, "kernel": "6.12.0-211.51.1.el10_2.aarch64+64k", "architecture": "aarch64"}
    assert plan(facts, listed)["packages"]["driver"][-1] == "kmod-64k-nvidia-open-580.178.04-6.12.0-211.51.1"
    facts["kernel"] = "6.12.0-211.51.1.el10_2.aarch64"
    assert plan(facts, listed)["packages"]["driver"][-1] == "kmod-nvidia-open-595.71.05-6.12.0-211.51.1"


def test_an_installed_driver_stays_with_its_modules_for_other_kernels() -> None:
    names = [f"kmod-nvidia-open-580.178.04-6.12.0-211.{one}.1" for one in (50, 51)]
    installed = {"nvidia-driver-cuda": "3:580.178.04-1.el10_2", **dict.fromkeys(names, "580.178.04-3.el10_2")}
    facts = {
        **RHEL,
        "installed": installed,
        "family": list(installed),
        "driver": "580.178.04",
        "driver_kind": "open",
        "recorded_source": "distribution",
    }
    found = plan(facts, RHEL_LIST)
    assert (found["version"], found["removals"], found["reasons"]) == ("580.178.04", [], [])
    found = plan(facts, RHEL_LIST, upgrade=True)
    assert (found["version"], found["removals"]) == ("595.71.05", names)


def test_modules_of_which_no_file_is_known() -> None:
    """Without lists of files the kernel of AlmaLinux's modules is not known, which is no refusal."""
    listed = "kmod-nvidia-open 610.43.02-2.el9\nnvidia-driver-cuda 610.43.02-1.el9\n"
    found = plan(ALMA, listed)
    assert (found["reasons"], found["version"]) == ([], "610.43.02")
    assert "the kernel that kmod-nvidia-open 610.43.02-2.el9 has modules for is not known" in found["unknowns"]


def test_hostile_lists_of_files() -> None:
    """A list begins with files, names other directories, or has none at all."""
    listed = "/lib/modules/1/nvidia.ko\nkmod-nvidia-open 1-1\n/lib/modules/../../etc/x.ko\n/etc/passwd\n(none)\n"
    (one,) = parse_dnf(listed)
    assert (one.name, one.kernels) == ("kmod-nvidia-open", ("..",))
