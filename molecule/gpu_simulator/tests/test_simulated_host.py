# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPU discovery programs report on a simulated host."""

from __future__ import annotations

import re
from typing import Any

import pytest

_HOSTS = {"m-deb12": ("550.163.01", "10de:20b0"), "m-deb13": ("580.159.04", "10de:2335")}


@pytest.fixture
def expected(host: Any) -> tuple[str, str]:
    """The driver version of the host, and the PCI IDs of its two GPUs."""
    return _HOSTS[host.check_output("hostname")]


def test_lspci_shows_the_gpus_next_to_the_hosts_own_devices(host: Any, expected: tuple[str, str]) -> None:
    lines = host.check_output("lspci -n").splitlines()
    assert [line.split()[0] for line in lines if expected[1] in line] == ["06:00.0", "07:00.0"]
    assert len(lines) > 2


def test_the_driver_shows_its_version_everywhere(host: Any, expected: tuple[str, str]) -> None:
    version = expected[0]
    assert host.file("/sys/module/nvidia/version").content_string.strip() == version
    assert f"  {version}  " in host.file("/proc/driver/nvidia/version").content_string.splitlines()[0]
    assert re.search(rf"Driver Version: {version} ", host.check_output("nvidia-smi"))


def test_each_gpu_has_its_node_and_its_information(host: Any) -> None:
    uuids = re.findall(r"UUID: (GPU-[^)]*)", host.check_output("nvidia-smi -L"))
    assert len(uuids) == 2
    for minor, uuid in enumerate(uuids):
        node = host.check_output(f"stat -c '%F %t %T %a' /dev/nvidia{minor}")
        assert node == f"character special file c3 {minor} 666"
        information = host.file(f"/proc/driver/nvidia/gpus/0000:0{6 + minor}:00.0/information").content_string
        assert re.search(rf"^GPU UUID: \t {uuid}$", information, re.MULTILINE)


def test_the_host_came_up_without_a_failed_unit(host: Any) -> None:
    assert host.check_output("systemctl is-system-running") == "running"
    service = host.service("gpu-simulator")
    assert service.is_enabled
    assert service.is_running


def test_modprobe_loads_and_unloads_the_driver(host: Any) -> None:
    assert host.run("nvidia-smi -pm 0").rc == 0
    assert host.run("modprobe -r nvidia").rc == 0
    assert host.run("nvidia-smi -L").rc == 9
    assert not host.file("/dev/nvidia0").exists
    assert host.run("modprobe nvidia").rc == 0
    assert host.run("nvidia-smi -L").rc == 0


def test_ordinary_users_can_read_and_cannot_change(host: Any) -> None:
    assert host.run("su -s /bin/sh nobody -c 'nvidia-smi -L'").rc == 0
    assert "Insufficient Permissions" in host.run("su -s /bin/sh nobody -c 'nvidia-smi -pm 1'").stdout
