# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a driver from what repositories offer: version, stream, specifications, compiler."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.real_indexes.test_branches import planned

_UPSTREAM = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64  Packages"
_VERSIONS = [
    "570.172.08-1",
    "580.95.05-1",
    "580.159.04-1",
    "580.105.08-1",
    "610.57.04-1",
    "595.71.05~rc1-1",
    "nonsense",
]
_DEBIAN = {"source": "cuda_repository"}
_ON_DEBIAN = {"system": "Debian", "release": "12"}


def offers(
    versions: list[str], names: tuple[str, ...] = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
) -> dict[str, Any]:
    """What apt lists where NVIDIA's repository has these versions of the driver."""
    rows = [f"{name} | {version} | {_UPSTREAM}" for name in names for version in versions]
    return {"shown": "", "listed": "\n".join(rows), "is_complete": True}


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        ("newest", "610.57.04"),
        ("580", "580.159.04"),  # not .95, which is greater as a string
        ("580.95.05", "580.95.05"),
        ("580.105.08", "580.105.08"),
        ("595", "595.71.05"),
    ],
)
def test_the_newest_that_fits(desired: str, expected: str) -> None:
    plan = planned({**_DEBIAN, "version": desired}, _ON_DEBIAN, offers(_VERSIONS))
    assert (plan["version"], plan["reasons"], plan["branch"]) == (expected, [], expected[:3])


@pytest.mark.parametrize("desired", ["580.1", "620", "535.54.03"])
def test_what_no_version_fits_is_refused_with_those_that_there_are(desired: str) -> None:
    packages = ("nvidia-driver", "nvidia-smi", "nvidia-driver-cuda", "nvidia-kernel-open-dkms")
    request = {**_DEBIAN, "version": desired, "headless": desired[:3] != "535"}
    (reason,) = planned(request, _ON_DEBIAN, offers(_VERSIONS, packages))["reasons"]
    assert f"has no driver {desired}" in reason
    assert "available: 570.172.08-1, 580.95.05-1" in reason


@pytest.mark.parametrize(
    ("desired", "installed", "upgrade", "expected"),
    [
        ("newest", "580.95.05-1", False, "580.95.05"),
        ("580", "580.95.05-1", False, "580.95.05"),
        ("580", "570.172.08-1", False, "580.159.04"),
        ("580.95.05", "580.159.04-1", False, "580.95.05"),  # a downgrade
        ("580", "580.82.07-1", False, "580.82.07"),  # no longer in the repository, still valid
        ("580", "580.95.05-1", True, "580.159.04"),
        ("580", "580.200.01-1", True, "580.200.01"),  # newer than the repository's versions
        ("newest", "580.95.05-1", True, "610.57.04"),
    ],
)
def test_an_installed_version_stays_while_it_fits(desired: str, installed: str, upgrade: bool, expected: str) -> None:
    packages = {"nvidia-driver-cuda": installed, "nvidia-kernel-open-dkms": installed}
    facts = {**_ON_DEBIAN, "installed": packages, "recorded_source": "cuda_repository", "driver": installed[:-2]}
    plan = planned({**_DEBIAN, "version": desired, "upgrade": upgrade}, facts, offers(_VERSIONS))
    assert plan["version"] == expected
    exact = f"{expected}-1"
    assert plan["install"] == [f"nvidia-driver-cuda={exact}", f"nvidia-kernel-open-dkms={exact}"]


@pytest.mark.parametrize(
    ("recommended", "branch", "reason"),
    [
        ("nvidia-driver-580-server-open, (kernel modules provided by linux-modules-nvidia-580-server-open)", "580", ""),
        ("", "", "`ubuntu-drivers list --recommended` names no NVIDIA driver"),
        ("nothing", "", "`ubuntu-drivers list --recommended` names no NVIDIA driver"),
    ],
)
def test_what_ubuntu_drivers_recommends(recommended: str, branch: str, reason: str) -> None:
    names = ("nvidia-utils", "libnvidia-compute", "nvidia-dkms")
    rows = [
        f"{name}-{version[:3]}-server{'-open' if 'dkms' in name else ''} | {version}-0ubuntu1 | http://archive.ubuntu.com"
        for name in names
        for version in ("580.95.05", "615.71.09")
    ]
    found = {"listed": "\n".join(rows), "recommended": recommended}
    assert planned({"version": "recommended"}, {}, found)["reasons"] == []
    plan = planned({"version": "recommended"}, {}, {**found, "is_complete": True})
    assert plan["branch"] == branch
    assert [one[:58] for one in plan["reasons"]] == ([reason] if reason else [])


def test_a_version_of_which_a_companion_is_missing_is_not_taken() -> None:
    found = offers(["580.95.05-1", "580.159.04-1"])
    found["listed"] += "".join(
        f"\n{name} | 580.95.05-1 | {_UPSTREAM}" for name in ("nvidia-fabricmanager", "libnvidia-nscq")
    )
    request = {**_DEBIAN, "version": "580", "companions": ["fabric_manager"]}
    assert planned(request, _ON_DEBIAN, found)["version"] == "580.95.05"


def test_the_vendors_pin_is_installed_where_it_is_offered_and_pins_are_requested() -> None:
    found = offers(_VERSIONS)
    assert "nvidia-driver-pinning-580" not in planned({**_DEBIAN, "version": "580"}, _ON_DEBIAN, found)["install"]
    found["listed"] += f"\nnvidia-driver-pinning-580 | 580-1 | {_UPSTREAM}"
    for pin in (True, False):
        plan = planned({**_DEBIAN, "version": "580", "pin": pin}, _ON_DEBIAN, found)
        assert ("nvidia-driver-pinning-580" in plan["install"]) is pin


# Enterprise Linux: versions in disabled streams are not visible, so dnf takes the newest of the branch.
@pytest.mark.parametrize(
    ("version", "installed", "upgrade", "specification", "stream"),
    [
        ("580", "", False, "nvidia-driver-cuda=580.*", "nvidia-driver:580-open"),
        ("580.95.05", "", False, "nvidia-driver-cuda=580.95.05", "nvidia-driver:580-open"),
        ("580.95.05", "580.95.05-1.el9", True, "nvidia-driver-cuda=580.95.05", "nvidia-driver:580-open"),
        ("newest", "", False, "nvidia-driver-cuda", "nvidia-driver:open-dkms"),
        ("newest", "580.95.05-1.el9", False, "nvidia-driver-cuda=580.95.05", "nvidia-driver:580-open"),
        ("newest", "580.95.05-1.el9", True, "nvidia-driver-cuda", "nvidia-driver:open-dkms"),
        ("580", "580.95.05-1.el9", False, "nvidia-driver-cuda=580.95.05", "nvidia-driver:580-open"),
        ("580", "580.95.05-1.el9", True, "nvidia-driver-cuda=580.*", "nvidia-driver:580-open"),
    ],
)
def test_enterprise_linux(version: str, installed: str, upgrade: bool, specification: str, stream: str) -> None:
    facts: dict[str, Any] = {"system": "RedHat", "release": "9", "recorded_source": "cuda_repository"}
    facts["installed"] = {"nvidia-driver-cuda": f"3:{installed}"} if installed else {}
    plan = planned({**_DEBIAN, "version": version, "upgrade": upgrade}, facts, {"is_complete": True})
    assert (plan["install"][0], plan["stream"], plan["pins"], plan["reasons"]) == (specification, stream, [], [])
    assert planned({**_DEBIAN, "version": version}, {**facts, "release": "10"})["stream"] == ""


# NVIDIA's precompiled modules of Enterprise Linux: kmod-nvidia-<driver>-<kernel>-<release>, without the distribution.
_KMODS = "".join(
    f"kmod-nvidia-{driver}-{kernel} {driver}\n"
    for driver in ("580.95.05", "580.159.04", "595.71.05")
    for kernel in ("5.14.0-503.11.1", "5.14.0-503.14.1")
    if (driver, kernel) != ("580.159.04", "5.14.0-503.11.1")
)


@pytest.mark.parametrize(
    ("kernel", "version", "expected"),
    [
        ("5.14.0-503.14.1.el9_5.x86_64", "580", "580.159.04"),
        ("5.14.0-503.14.1.el9_5.x86_64", "580.95.05", "580.95.05"),
        # The newest driver has no modules for this kernel.
        ("5.14.0-503.11.1.el9_5.x86_64", "580", "580.95.05"),
        ("5.14.0-503.11.1.el9_5.x86_64", "newest", "595.71.05"),
    ],
)
def test_precompiled_modules_of_enterprise_linux(kernel: str, version: str, expected: str) -> None:
    request = {**_DEBIAN, "version": version, "kernel_modules": "proprietary", "module_build": "precompiled"}
    facts = {"system": "RedHat", "release": "9", "kernel": kernel}
    assert planned(request, facts)["queries"] == ["kmod-nvidia-*-*"]
    plan = planned(request, facts, {"listed": _KMODS, "is_complete": True})
    modules = f"kmod-nvidia-{expected}-{kernel.partition('.el')[0]}={expected}"
    assert (plan["install"], plan["reasons"]) == ([f"nvidia-driver-cuda={expected}", modules], [])
    assert plan["stream"] == f"nvidia-driver:{expected[:3]}"


@pytest.mark.parametrize(
    ("release", "kernel", "version", "kind", "message"),
    [
        (
            "9",
            "5.14.0-570.1.1.el9_6.x86_64",
            "580",
            "proprietary",
            "there are some for 5.14.0-503.11.1, 5.14.0-503.14.1: boot such a kernel, or set nvidia_driver_module",
        ),
        ("9", "5.14.0-503.11.1.el9_5.x86_64", "580.159.04", "proprietary", "there are some for 5.14.0-503.14.1:"),
        ("9", "5.14.0-503.14.1.el9_5.x86_64", "535", "proprietary", "there are none for any kernel"),
        ("9", "5.14.0-503.14.1.el9_5.x86_64", "580", "open", "no precompiled open packages for RedHat"),
        (
            "10",
            "6.12.0-55.9.1.el10_0.x86_64",
            "580",
            "proprietary",
            "in streams only, and Enterprise Linux 10 has none",
        ),
    ],
)
def test_precompiled_modules_that_are_not_offered(
    release: str, kernel: str, version: str, kind: str, message: str
) -> None:
    request = {**_DEBIAN, "version": version, "kernel_modules": kind, "module_build": "precompiled"}
    facts = {"system": "RedHat", "release": release, "kernel": kernel}
    (reason,) = planned(request, facts, {"listed": _KMODS, "is_complete": True})["reasons"]
    assert message in reason


def test_a_compiler_that_a_kernel_needs_is_installed_or_refused() -> None:
    facts = {**_ON_DEBIAN, "compiler": "12", "host_compiler": "11"}
    found = offers(_VERSIONS)
    (reason,) = planned(_DEBIAN, facts, found)["reasons"]
    assert "built by gcc 12, and the host has gcc 11, which cannot build modules for it; install gcc-12" in reason
    found["listed"] += "\ngcc-12 | 12.2.0-14 | https://mirror.example.com/debian bookworm/main amd64 Packages"
    plan = planned(_DEBIAN, facts, found)
    assert (plan["install"][-1], plan["reasons"]) == ("gcc-12", [])
    # Nothing is known before the package lists were ever read.
    assert planned(_DEBIAN, facts)["reasons"] == []


def test_what_is_only_installed_is_not_offered() -> None:
    """Without the repository, apt shows the installed packages; it does not follow that others do not exist."""
    shown = "Package: nvidia-driver-cuda\nStatus: install ok installed\nVersion: 580.95.05-1\n"
    facts = {**_ON_DEBIAN, "installed": {"nvidia-driver-cuda": "580.95.05-1"}, "recorded_source": "cuda_repository"}
    request = {**_DEBIAN, "version": "580", "companions": ["fabric_manager"]}
    assert planned(request, facts, {"shown": shown})["reasons"] == []
    (reason,) = planned(request, facts, {"shown": shown, "is_complete": True})["reasons"]
    assert "nvidia-fabricmanager does not exist" in reason


# NVIDIA's repositories end the proprietary modules with branch 610; 610 itself has ended, 595 has not.
_CLOSED = {"kernel_modules": "proprietary", **_DEBIAN}
_TODAY = {**_ON_DEBIAN, "today": "2026-11-24"}


@pytest.mark.parametrize(
    ("system", "gpu", "branch"),
    [
        ("Debian", "NVIDIA A100", "595"),
        ("Ubuntu", "NVIDIA A100", "595"),
        ("RedHat", "NVIDIA A100", "595"),
        ("Debian", "Tesla V100", "580"),
        ("Debian", "Tesla P40", "580"),
    ],
)
def test_the_newest_with_proprietary_modules_is_of_a_branch_that_has_them(system: str, gpu: str, branch: str) -> None:
    plan = planned({**_CLOSED, "version": "newest"}, {**_TODAY, "system": system, "gpus": [gpu]})
    assert (plan["requested"], plan["kernel_modules"], plan["reasons"]) == (branch, "proprietary", [])


@pytest.mark.parametrize("system", ["Debian", "Ubuntu", "RedHat"])
def test_proprietary_modules_of_a_branch_without_them_are_refused_by_name(system: str) -> None:
    (reason,) = planned({**_CLOSED, "version": "620"}, {**_TODAY, "system": system})["reasons"]
    assert "cuda_repository has proprietary kernel modules before branch 615 only, not for branch 620" in reason
    assert planned({**_CLOSED, "source": "runfile", "version": "615.71.09"})["reasons"] == []


def test_an_exact_version_with_proprietary_modules_comes_though_the_newest_has_none() -> None:
    """The way down from 610 with the open ones, as in the scenario of the role."""
    packages = {"nvidia-driver-cuda": "610.57.04-1", "nvidia-kernel-open-dkms": "610.57.04-1"}
    facts = {**_TODAY, "installed": packages, "driver": "610.57.04", "driver_kind": "open"}
    there = offers(_VERSIONS, ("nvidia-driver-cuda", "nvidia-kernel-dkms"))
    plan = planned({**_CLOSED, "version": "580.159.04"}, {**facts, "recorded_source": "cuda_repository"}, there)
    assert (plan["version"], plan["reasons"]) == ("580.159.04", [])


def test_an_installed_branch_is_not_exchanged_for_an_older_one() -> None:
    facts = {**_TODAY, "driver": "610.57.04", "driver_kind": "proprietary", "recorded_source": "cuda_repository"}
    assert planned({**_CLOSED, "version": "newest", "upgrade": True}, facts)["requested"] == "610"


def test_volta_stays_on_its_last_branch_with_the_reason() -> None:
    plan = planned({**_CLOSED, "version": "620"}, {**_TODAY, "gpus": ["Tesla V100"]})
    assert any("Tesla V100" in one and "580" in one for one in plan["reasons"])


def test_priorities_of_apt_decide_between_repositories_and_its_own_pins_do_not_count() -> None:
    def row(priority: str, place: str, version: str) -> str:
        return f"     {version} {priority}\n        {place}\n"

    names = ("nvidia-smi", "libcuda1", "libnvidia-ml1", "nvidia-kernel-dkms")
    backports = "100 http://archive.example/debian trixie-backports/non-free amd64 Packages"
    release = "500 http://archive.example/debian trixie/non-free amd64 Packages"
    facts = {"system": "Debian", "release": "13"}
    own = [{"packages": "nvidia-* lib*", "pin": "version 550.163.01-4*", "priority": 1001}]
    # By the record of a run, and where an interrupted run has recorded none.
    for pinned, pins in (("100", []), ("1001", own), ("1001", None)):
        listed = "".join(
            f"{name}:\n  Version table:\n{row(pinned, backports, '550.163.01-4~bpo13+1')}"
            f"{row('500', release, '550.163.01-2')}"
            for name in names
        )
        plan = planned({"kernel_modules": "auto"}, facts, {"listed": listed, "is_complete": True, "pins": pins})
        assert {one.partition("=")[2] for one in plan["install"]} == {"550.163.01-2"}
        assert (plan["kernel_modules"], plan["reasons"]) == ("proprietary", [])
    # A site's own, of the same priority: of other packages than the role has pinned, or where it has pinned nothing.
    for pins in ([], [{**own[0], "packages": "docker*"}]):
        plan = planned({"kernel_modules": "auto"}, facts, {"listed": listed, "is_complete": True, "pins": pins})
        assert {one.partition("=")[2] for one in plan["install"]} == {"550.163.01-4~bpo13+1"}
        denied = listed.replace(" 1001\n", " -1\n")
        out = {"listed": denied, "is_complete": True, "pins": pins}
        plan = planned({"kernel_modules": "auto"}, facts, out)
        assert {one.partition("=")[2] for one in plan["install"]} == {"550.163.01-2"}
        assert "Pin: version 550.163.01-4~bpo13+1\nPin-Priority: -1\n" in plan["preferences"]
        out["listed"] = denied.replace(" 500\n", " -1\n")
        (reason,) = planned({"kernel_modules": "auto"}, facts, out)["reasons"]
        assert "the host's apt preferences exclude 550.163.01-4~bpo13+1, 550.163.01-2" in reason


def test_gpus_of_an_ended_generation_stay_on_their_last_branch_with_the_reason() -> None:
    facts = {**_ON_DEBIAN, "gpus": ["Tesla V100-SXM2-32GB", "Tesla V100-SXM2-32GB", "NVIDIA A100"]}
    plan = planned({**_DEBIAN, "kernel_modules": "auto"}, facts, offers(_VERSIONS))
    assert (plan["branch"], plan["kernel_modules"]) == ("580", "proprietary")
    assert "the newest driver here is of branch 580, the last one with Tesla V100-SXM2-32GB (Volta)" in plan["notes"]
    plan = planned({**_DEBIAN, "kernel_modules": "auto"}, {**_ON_DEBIAN, "gpus": ["NVIDIA A100"]}, offers(_VERSIONS))
    assert not any("the newest driver here" in note for note in plan["notes"])
