# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of nvidia_driver's preflight on output of various hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.change import disk_space, problems
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.host import Host
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.request import Request

from tests.unit.driver.plans import DEBIAN, facts

# Compiler in the kernel configuration of the header packages: gcc 12.3 of Ubuntu's newer kernel, 12.2 of Debian's,
# 11.4 of Rocky's, and a kernel built with clang.
UBUNTU_HWE, DEBIAN_KERNEL, ROCKY, CLANG = (f"CONFIG_GCC_VERSION={number}" for number in (120300, 120200, 110400, 0))

GPU = {"pci_bus_id": "00000000:06:00.0", "device_id": "0x2335", "class_id": "0x030200", "driver": None}
ENROLL = {
    "nvidia_driver_secure_boot": "enroll",
    "nvidia_driver_mok_key": "/k",
    "nvidia_driver_mok_certificate": "/c",
    "nvidia_driver_mok_password": "p",
}


@dataclass(frozen=True)
class Seen:
    """What tasks have read of a host without problems, and variables; `kernel`, `gcc` and `free` are command output."""

    kernel: str = DEBIAN_KERNEL
    gcc: str = "12"
    more: tuple[str, ...] = ()
    free: dict[str, int | None] = field(default_factory=dict)
    is_on: bool = False
    is_trusted: bool = False
    download: dict[str, Any] = field(default_factory=dict)
    distribution: str = "Debian"
    gpus: int = 1
    variables: dict[str, Any] = field(default_factory=dict)


# Variables of the host, and the expected problems: a part of each message.
CASES: dict[str, tuple[Seen, list[str]]] = {
    "nothing": (Seen(), []),
    "no GPU": (Seen(gpus=0), ["no NVIDIA GPU is on the PCI bus"]),
    "an image needs none": (Seen(gpus=0, variables={"nvidia_driver_image_build": True}), []),
    "older compiler": (
        Seen(kernel=UBUNTU_HWE, gcc="11"),
        ["missing: gcc 12"],
    ),
    "same compiler": (Seen(kernel=UBUNTU_HWE, gcc="12"), []),
    "newer compiler": (Seen(kernel=ROCKY, gcc="13"), []),
    "older compiler on Rocky": (Seen(kernel=ROCKY, gcc="8.5.0"), ["missing: gcc 11"]),
    "two digits are a number": (Seen(kernel=DEBIAN_KERNEL, gcc="9"), ["missing: gcc 12"]),
    "no compiler yet": (Seen(kernel=UBUNTU_HWE, gcc=""), []),
    "kernel of another compiler": (Seen(kernel=CLANG), []),
    "another compiler as well": (Seen(kernel=UBUNTU_HWE, gcc="11", more=("gcc-11", "gcc-12")), []),
    "precompiled modules": (
        Seen(gcc="9", variables={"nvidia_driver_module_build": "precompiled"}),
        [],
    ),
    "no headers yet": (Seen(kernel="", gcc="9"), []),
    "full /var": (Seen(free={"/var": 12}), ["/var has 12 MiB free, and 1000 are needed"]),
    "no /boot": (Seen(free={"/boot": None}), []),
    "full /boot and /usr": (
        Seen(free={"/usr": 2999, "/boot": 199}),
        ["/usr has 2999 MiB free, and 3000 are needed", "/boot has 199 MiB free, and 200 are needed"],
    ),
    "Secure Boot": (
        Seen(is_on=True),
        ["Secure Boot is on, and the kernel loads no module that is not signed with an enrolled key; set"],
    ),
    "Secure Boot on Ubuntu": (
        Seen(is_on=True, distribution="Ubuntu"),
        ["with nvidia_driver_module_build precompiled, whose modules Canonical signs, or set"],
    ),
    "Secure Boot on AlmaLinux": (
        Seen(is_on=True, distribution="AlmaLinux"),
        ["use nvidia_driver_source distribution with nvidia_driver_module_build precompiled, whose modules AlmaLinux"],
    ),
    "Secure Boot, trusted": (
        Seen(is_on=True, is_trusted=True),
        [],
    ),
    "Secure Boot, a key": (Seen(is_on=True, variables=ENROLL), []),
    "Secure Boot, a key without its password": (
        Seen(is_on=True, variables={**ENROLL, "nvidia_driver_mok_password": ""}),
        ["set nvidia_driver_mok_password, for which the firmware asks at the next boot"],
    ),
    "Secure Boot, a key for modules of others": (
        Seen(is_on=True, variables={"nvidia_driver_module_build": "precompiled", **ENROLL}),
        ["set nvidia_driver_module_build to dkms"],
    ),
    "download is gone": (
        Seen(
            download={"status": 404, "msg": "HTTP Error 404: Not Found"},
            variables={
                "nvidia_driver_source": "local_repository",
                "nvidia_driver_local_repository": "https://user:secret@mirror.example.org/driver.deb",
            },
        ),
        ["https://***@mirror.example.org/driver.deb cannot be downloaded: HTTP Error 404: Not Found"],
    ),
    "all at once": (
        Seen(gpus=0, gcc="11", free={"/usr": 1}, is_on=True),
        ["no NVIDIA GPU", "gcc 12", "/usr has 1 MiB", "Secure Boot"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong(case: str) -> None:
    seen, parts = CASES[case]
    host = facts({**DEBIAN, "distribution": seen.distribution})
    host["nvidia_smi"]["pci_gpus"] = [GPU] * seen.gpus
    observed = {
        "kernel_options": {"results": [{"stdout": "", "rc": 2}, {"stdout": seen.kernel, "rc": 0}]},
        "gcc": {"stdout": seen.gcc},
        "compilers": {"files": [{"path": f"/usr/bin/{name}"} for name in seen.more]},
    }
    request = Request.read({**RoleData.read().defaults(["nvidia_driver"]), **seen.variables})
    known = Host.of(host).observed(request, observed)
    free = {"/usr": 90000, "/var": 90000, "/boot": 900, **seen.free}
    found = {
        "disks": {
            "results": [
                {"rc": 0, "stdout_lines": ["Avail", f" {free[disk['path']]}"]}
                if free[disk["path"]] is not None
                else {"rc": 1, "stdout_lines": []}
                for disk in disk_space(request)
            ]
        },
        "secure_boot": {"is_on": seen.is_on, "is_trusted": seen.is_trusted},
        "download": seen.download,
    }
    # The plan refuses a compiler that cannot be had, or installs it: tests/unit/driver/test_driver_plan.py.
    reasons = [f"missing: gcc {known.compiler}"] if known.compiler else []
    message = [*problems(request, known, reasons, found)]
    assert [sentence for sentence in message if "\n" in sentence or "  " in sentence] == []
    assert len(message) == len(parts), message
    assert [part for part, sentence in zip(parts, message, strict=True) if part not in sentence] == [], message
