# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages with the headers of kernels, by what `uname -r` prints there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.kernel_headers import kernel_headers

from tests.conftest import ROOT
from tests.unit.plays import run_play

pytestmark = pytest.mark.plays

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
APT_KERNELS = ("6.1.0-38-amd64", "6.12.43+deb13-cloud-arm64", "6.8.0-1020-nvidia-64k", "6.8.0-151-generic")


@pytest.mark.parametrize("kernel", KERNELS)
def test_enterprise_linux(kernel: str) -> None:
    assert kernel_headers(kernel, "dnf") == KERNELS[kernel]


@pytest.mark.parametrize("kernel", APT_KERNELS)
def test_debian_and_ubuntu(kernel: str) -> None:
    assert kernel_headers(kernel, "apt") == f"linux-headers-{kernel}"


@pytest.mark.parametrize(("kernel", "manager"), [("", "dnf"), (None, "dnf"), ("6.1.0-38-amd64", "zypper")])
def test_bad_input(kernel: str, manager: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r"gpu\.fleet\.kernel_headers"):
        kernel_headers(kernel, manager)


@pytest.mark.parametrize(("family", "kernels"), [("RedHat", tuple(KERNELS)), ("Debian", APT_KERNELS)])
def test_the_role_installs_them(family: str, kernels: tuple[str, ...], tmp_path: Path) -> None:
    missing = [{"item": kernel, "stat": {"exists": False}} for kernel in kernels]
    there = {"item": "1.2.3-there", "stat": {"exists": True}}
    variables = {
        "ansible_facts": {"distribution": family, "os_family": family, "packages": {}},
        "ansible_python_interpreter": sys.executable,
        "__nvidia_driver_headers": {"results": [*missing, there]},
    }
    file = {"dest": str(tmp_path / "found.json"), "mode": "0644"}
    write = {"ansible.builtin.copy": {"content": "{{ __nvidia_driver_header_packages | to_json }}", **file}}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROOT / "roles/nvidia_driver" / name) for name in ("defaults/main.yml", "vars/main.yml")],
        "vars": variables,
        "tasks": [write],
    }
    run_play(tmp_path, play)
    expected = [KERNELS[kernel] if family == "RedHat" else f"linux-headers-{kernel}" for kernel in kernels]
    assert json.loads((tmp_path / "found.json").read_text()) == expected
