# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""State of a host after site.yml."""

from __future__ import annotations

import json
from typing import Any

import pytest

_GPUS = {"m-deb12": ("NVIDIA A100-SXM4-40GB", 2), "m-deb13": ("NVIDIA H200", 2)}
_DRIVER = {"m-deb12": "550.163.01", "m-deb13": "580.95.05"}
_CUDA = {"m-deb12": "12.9", "m-deb13": "13.0"}
_IMAGE = "localhost/gpu-fleet/demo:latest"


def _uuids(listing: str) -> list[str]:
    return [line.split("UUID: ")[1].rstrip(")") for line in listing.splitlines()]


@pytest.fixture
def listing(host: Any) -> str:
    return host.check_output("nvidia-smi -L")


def test_docker_runs_now_and_after_a_reboot(host: Any) -> None:
    docker = host.service("docker")
    assert docker.is_running
    assert docker.is_enabled


def test_the_host_has_its_gpus(host: Any, listing: str) -> None:
    name, count = _GPUS[host.check_output("hostname")]
    assert [line.split(": ")[1].split(" (")[0] for line in listing.splitlines()] == [name] * count


def test_the_driver_is_the_hosts_own_or_the_one_that_the_role_installed(host: Any) -> None:
    name = host.check_output("hostname")
    versions = host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split()
    assert versions == [_DRIVER[name]] * 2
    installed = host.run("dpkg-query --show --showformat '${Status}' nvidia-kernel-open-dkms")
    assert installed.stdout == ("hold ok installed" if name == "m-deb13" else "")


def test_the_toolkit_is_the_hosts_own_or_a_package(host: Any) -> None:
    owned = host.run("dpkg --search /usr/bin/nvidia-ctk").succeeded
    assert owned is (host.check_output("hostname") == "m-deb13")


def test_the_declared_power_limit_is_in_force_now_and_after_a_reboot(host: Any) -> None:
    printed = host.check_output("nvidia-smi --query-gpu=power.limit,power.default_limit --format=csv,noheader,nounits")
    limits = [tuple(float(number) for number in line.split(", ")) for line in printed.splitlines()]
    assert len(limits) == 2
    assert all(limit == pytest.approx(0.8 * default) for limit, default in limits)


def test_the_compiler_is_the_one_that_was_asked_for(host: Any) -> None:
    version = _CUDA[host.check_output("hostname")]
    assert f"release {version}" in host.check_output("/usr/local/cuda/bin/nvcc --version")


def test_the_loader_finds_cudnn(host: Any) -> None:
    assert "libcudnn.so.9" in host.check_output("ldconfig --print-cache")


def test_a_container_sees_all_gpus_of_the_host(host: Any, listing: str) -> None:
    request = "--device nvidia.com/gpu=all" if _has_cdi(host) else "--gpus all"
    inside = host.check_output(f"docker run --rm --network none {request} {_IMAGE} nvidia-smi -L")
    assert _uuids(inside) == _uuids(listing)


def test_a_container_sees_only_the_gpu_that_was_asked_for(host: Any, listing: str) -> None:
    request = "--device nvidia.com/gpu=1" if _has_cdi(host) else "--gpus device=1"
    inside = host.check_output(f"docker run --rm --network none {request} {_IMAGE} nvidia-smi -L")
    assert _uuids(inside) == _uuids(listing)[1:]


def test_a_container_without_a_request_sees_none(host: Any) -> None:
    inside = host.run(f"docker run --rm --network none {_IMAGE} nvidia-smi -L")
    assert inside.rc != 0


def _has_cdi(host: Any) -> bool:
    version = json.loads(host.check_output("docker version --format '{{json .Server.Version}}'"))
    return int(version.split(".")[0]) >= 25
