# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State of a host with the driver: nvidia-smi works, kernel modules are built, upgrades do not change the version."""

from __future__ import annotations

import re
from typing import Any

import pytest

_VERSION = "580.95.05"


@pytest.fixture
def uses_apt(host: Any) -> bool:
    return not host.file("/etc/redhat-release").exists


def test_the_gpus_reply(host: Any) -> None:
    versions = host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split()
    assert versions == [_VERSION, _VERSION]


def test_the_module_is_built_for_the_kernel(host: Any) -> None:
    kernel = host.check_output("uname -r")
    assert f"nvidia/{_VERSION}, {kernel}, x86_64: installed" in host.check_output("dkms status")
    assert host.check_output("modinfo -F version nvidia") == _VERSION


def test_nothing_moves_the_driver(host: Any, uses_apt: bool) -> None:
    if uses_apt:
        assert "nvidia-fabricmanager" in host.check_output("apt-mark showhold")
        moved = re.findall(r"(?m)^(?:Inst|Remv) (\S+)", host.check_output("apt-get --simulate dist-upgrade"))
        # unattended-upgrades has its own exclusion list; on EL, dnf-automatic honours the version lock.
        assert '"nvidia-"' in host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    else:
        assert "nvidia-fabricmanager" in host.check_output("dnf -q versionlock list")
        moved = re.findall(r"(?m)^ (\S+) ", host.run("dnf --assumeno upgrade").stdout)
    assert [name for name in moved if "nvidia" in name] == []


def test_services_start_with_the_driver(host: Any) -> None:
    for name in ("nvidia-persistenced", "nvidia-fabricmanager"):
        assert host.service(name).is_enabled
        assert host.service(name).is_running


def test_nouveau_stays_away(host: Any) -> None:
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/gpu-fleet-nouveau.conf").content_string
