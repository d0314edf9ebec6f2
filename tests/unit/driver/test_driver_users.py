# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a driver may change while it is in use, and which packages pin the kernel: tables."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.driver_users import (
    decide_change,
    removal_refusals,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.kernel_packages import kernel_packages

JOB: dict[str, Any] = {"name": "python3", "pid": 4711, "device": "/dev/nvidia0", "stop": None}
PLUGIN = {"name": "nvidia-device-p", "pid": 12, "device": "/dev/nvidiactl", "stop": "the Kubernetes device plugin"}
MODULE = {"name": "gdrdrv", "pid": None, "device": "nvidia", "stop": "what uses it, then modprobe -r gdrdrv"}
JOB_TEXT = "python3 (PID 4711) holds /dev/nvidia0"
PACKAGES = ["nvidia-utils-580-server"]


@pytest.mark.parametrize("when_busy", ["fail", "proceed", "defer"])
@pytest.mark.parametrize(
    ("replaced", "users", "may_reboot", "named"),
    [
        (PACKAGES, [], False, []),
        (PACKAGES, [JOB], False, [JOB_TEXT]),
        # A reboot would end the job.
        (PACKAGES, [JOB], True, [JOB_TEXT]),
        (
            PACKAGES,
            [JOB, PLUGIN],
            False,
            [JOB_TEXT, "nvidia-device-p (PID 12) holds /dev/nvidiactl (stop the Kubernetes device plugin)"],
        ),
        # A kernel module is no job; it prevents a reload, which a reboot replaces.
        (
            PACKAGES,
            [MODULE],
            False,
            ["kernel module gdrdrv holds nvidia (stop what uses it, then modprobe -r gdrdrv)"],
        ),
        (PACKAGES, [MODULE], True, []),
        # Packages are only added, or pins change.
        ([], [JOB], False, []),
    ],
)
def test_a_change_of_a_driver_in_use(
    when_busy: str, replaced: list[str], users: list[dict[str, Any]], may_reboot: bool, named: list[str]
) -> None:
    action = when_busy if named else "proceed"
    assert decide_change(replaced, users, when_busy, may_reboot).as_dict() == {"action": action, "users": named}


def test_of_many_processes_the_first_are_named() -> None:
    jobs = [{**JOB, "pid": pid} for pid in range(100, 164)]
    named = decide_change(PACKAGES, jobs, "fail", may_reboot=False).users
    assert len(named) == 11
    assert named[-1] == "54 more"


@pytest.mark.parametrize(
    ("users", "containers", "named"),
    [
        ([], [], ""),
        # The reboot after a removal ends it.
        ([MODULE], [], ""),
        ([JOB, MODULE], [], JOB_TEXT),
        # A container has GPUs and uses none at present.
        ([], [{"engine": "docker", "name": "training"}], "docker container training"),
        ([JOB], [{"engine": "podman", "name": "a"}], f"{JOB_TEXT}; podman container a"),
    ],
)
def test_nothing_is_removed_below_a_job(
    users: list[dict[str, Any]], containers: list[dict[str, Any]], named: str
) -> None:
    refusal = f"GPUs are in use, and nothing was removed: {named}; stop what uses them, then run the playbook again"
    assert removal_refusals(users, containers) == ((refusal,) if named else ())


# Names of real hosts: Ubuntu 24.04 and 22.04, Debian 12, EL 9 with the kernels of RHEL, 64k pages and Oracle.
NOBLE = [
    "linux-generic",
    "linux-headers-6.8.0-151",
    "linux-headers-6.8.0-151-generic",
    "linux-headers-generic",
    "linux-image-6.8.0-151-generic",
    "linux-image-generic",
    "linux-modules-6.8.0-151-generic",
    "linux-modules-extra-6.8.0-151-generic",
    "linux-modules-nvidia-580-server-open-6.8.0-151-generic",
    "linux-modules-nvidia-580-server-open-generic",
]
JAMMY_AWS = [
    "linux-aws",
    "linux-aws-6.8-headers-6.8.0-1070",
    "linux-headers-6.8.0-1070-aws",
    "linux-headers-aws",
    "linux-image-6.8.0-1070-aws",
    "linux-image-aws",
    "linux-modules-6.8.0-1070-aws",
]
NOBLE_HWE = [
    "linux-generic-hwe-24.04",
    "linux-headers-generic-hwe-24.04",
    "linux-image-generic-hwe-24.04",
    "linux-image-unsigned-6.11.0-29-generic",
]
BOOKWORM = [
    "linux-headers-6.1.0-38-amd64",
    "linux-headers-6.1.0-38-common",
    "linux-headers-amd64",
    "linux-image-6.1.0-38-amd64",
    "linux-image-amd64",
]
EL9 = [
    "kernel",
    "kernel-64k-core",
    "kernel-64k-devel",
    "kernel-core",
    "kernel-devel",
    "kernel-devel-matched",
    "kernel-modules",
    "kernel-modules-core",
    "kernel-modules-extra",
    "kernel-uek-core",
    "kernel-uek-devel",
]
# Flavours of several parts share the headers of the release.
NVIDIA_64K = [
    "linux-headers-6.8.0-1020-nvidia-64k",
    "linux-headers-nvidia-64k",
    "linux-image-6.8.0-1020-nvidia-64k",
    "linux-image-nvidia-64k",
    "linux-modules-6.8.0-1020-nvidia-64k",
    "linux-nvidia-64k",
    "linux-nvidia-headers-6.8.0-1020",
]
DEBIAN_CLOUD = [
    "linux-headers-6.12.43+deb13-cloud-arm64",
    "linux-headers-6.12.43+deb13-common",
    "linux-headers-cloud-arm64",
    "linux-image-6.12.43+deb13-cloud-arm64",
    "linux-image-cloud-arm64",
    "linux-kbuild-6.12.43+deb13",
]
OTHERS = [
    "linux-libc-dev",
    "linux-firmware",
    "linux-base",
    "linux-doc",
    "linux-tools-generic",
    "linux-tools-6.8.0-151-generic",
    "linux-cloud-tools-azure",
    "linux-image-6.8.0-31-generic",
    "linux-modules-6.8.0-31-generic",
    "linux-headers-6.1.0-30-amd64",
    "util-linux",
    "selinux-utils",
    "kernel-tools",
    "kernel-headers",
    "kernel-srpm-macros",
    "nvidia-utils-580-server",
    "nvidia-kernel-common-580",
]


@pytest.mark.parametrize(
    ("packages", "kernels"),
    [
        (NOBLE, ["6.8.0-151-generic"]),
        (JAMMY_AWS, ["6.8.0-1070-aws"]),
        (NOBLE_HWE, ["6.11.0-29-generic"]),
        (BOOKWORM, ["6.1.0-38-amd64"]),
        # The running one, and the one that boots next.
        ([*BOOKWORM, "linux-image-6.1.0-40-amd64"], ["6.1.0-38-amd64", "6.1.0-40-amd64"]),
        (EL9, ["5.14.0-570.12.1.el9_6.x86_64"]),
        (NVIDIA_64K, ["6.8.0-1020-nvidia-64k"]),
        (DEBIAN_CLOUD, ["6.12.43+deb13-cloud-arm64"]),
        ([], []),
    ],
)
def test_what_pins_the_kernel(packages: list[str], kernels: list[str]) -> None:
    assert kernel_packages([*OTHERS, *packages], kernels) == sorted(packages)
    assert kernel_packages(dict.fromkeys(packages, "1"), kernels) == sorted(packages)
