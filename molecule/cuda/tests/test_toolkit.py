# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA toolkit and its libraries as shells, the dynamic loader and package managers see them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def uses_apt(host: Any) -> bool:
    return not host.file("/etc/redhat-release").exists


def test_a_login_shell_finds_the_compiler(host: Any) -> None:
    assert "release 12.9, V12.9.86" in host.check_output("bash --login -c 'nvcc --version'")
    assert host.check_output("bash --login -c 'echo $CUDA_HOME'") == "/usr/local/cuda"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_path_does_not_grow(host: Any, shell: str) -> None:
    script = ". /etc/profile.d/cuda.sh; . /etc/profile.d/cuda.sh; echo $PATH"
    path = host.check_output(f"{shell} -c '{script}'").split(":")
    assert path.count("/usr/local/cuda/bin") == 1
    assert len(path) == len(set(path))


def test_the_default_is_an_alternative(host: Any) -> None:
    assert host.file("/usr/local/cuda").linked_to == "/usr/local/cuda-12.9"
    assert host.check_output("readlink /usr/local/cuda") == "/etc/alternatives/cuda"


def test_no_package_of_a_driver_came_in(host: Any, uses_apt: bool) -> None:
    names = host.check_output(
        "dpkg-query -W -f '${Package}\\n'" if uses_apt else "rpm -qa --queryformat '%{NAME}\\n'"
    ).split()
    assert "cuda-nvcc-12-9" in names
    drivers = ("cuda-drivers", "cuda-runtime", "nvidia-", "libnvidia", "libcuda1", "kmod-nvidia")
    assert [name for name in names if name.startswith(drivers)] == []


def test_what_is_one_package_for_all_versions_is_of_this_one(host: Any, uses_apt: bool) -> None:
    """The repository also has version 13.0 of these packages, which any toolkit would accept."""
    assert host.package("cuda-toolkit-config-common").version.startswith("12.9.79")
    if uses_apt:
        policy = host.check_output("apt-cache policy cuda-toolkit-config-common")
        assert "13.0.96" in policy and "Candidate: 12.9.79" in policy
    else:
        assert "13.0" not in host.check_output("dnf -q list --available cuda-toolkit-config-common || true")


@pytest.mark.parametrize(
    ("library", "function", "version"),
    [
        ("libcudnn.so.8", "cudnnGetVersion", 8907),
        ("libcudnn.so.9", "cudnnGetVersion", 91301),
        ("libnvinfer.so.10", "getInferLibVersion", 101303),
    ],
)
def test_a_program_finds_the_libraries_side_by_side(host: Any, library: str, function: str, version: int) -> None:
    program = f"import ctypes; print(ctypes.CDLL('{library}').{function}())"
    assert host.check_output(f'python3 -c "{program}"') == str(version)


def test_an_archive_lies_in_a_directory_of_its_own(host: Any) -> None:
    directory = "/usr/local/cudnn-8.9.7.29-cuda12"
    assert host.file("/usr/local/cudnn").linked_to == directory
    assert host.check_output("ldconfig -p | grep 'libcudnn.so.8 '").endswith(f"=> {directory}/lib/libcudnn.so.8")
    assert host.file(f"{directory}/include/cudnn_version.h").contains("CUDNN_MAJOR 8")
    assert host.check_output("ls -A /usr/local | grep '^[.]' || true") == ""


def test_the_packages_are_pinned_to_their_versions(host: Any, uses_apt: bool) -> None:
    name = "libcudnn9-cuda-12"
    assert host.package(name).version.startswith("9.13.1.26")
    upgraded = host.run(f"apt-get --simulate install {name}" if uses_apt else f"dnf -q --assumeno upgrade {name}")
    assert "9.14.0" not in upgraded.stdout
