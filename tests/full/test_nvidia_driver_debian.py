# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's own driver packages, the real ones: a real DKMS build, and two that really fail."""

from __future__ import annotations

import json

import pytest

from bed import settings
from tests.bed.support import Result, run
from tests.full.conftest import INVENTORY

PLAYBOOK = "tests/full/nvidia_driver/install.yml"


def _on_host(host: str, script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.CHECKOUT_ID}-{host}", "sh", "-c", script]).output.strip()


def _play(host: str, **variables: object) -> Result:
    return run(["ansible-playbook", "-i", INVENTORY, PLAYBOOK, "--extra-vars", json.dumps({"host": host, **variables})])


def _kernel(host: str) -> str:
    """Install headers of Debian's kernel, which is the one that an image of this host would boot."""
    script = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq -y install linux-headers-amd64"
    _on_host(host, f"({script}) >/dev/null 2>&1")
    return _on_host(host, "ls /lib/modules | grep -- -amd64 | tail -n 1")


def test_debian_12_builds_its_proprietary_driver() -> None:
    host = "full-deb12"
    kernel = _kernel(host)
    asked = {"nvidia_driver_boot_kernel": kernel, "nvidia_driver_kernel_modules": "proprietary"}

    result = _play(host, **asked)

    assert result.status == 0, result.output[-6000:]
    assert f"{kernel}, x86_64: installed" in _on_host(host, "dkms status")
    assert _on_host(host, "apt-mark showhold").split().count("nvidia-kernel-dkms") == 1
    again = _play(host, **asked)
    assert (again.status, again.changed[host]) == (0, 0), again.output[-6000:]
    gone = _play(host, nvidia_driver_state="absent", **asked)
    assert gone.status == 0, gone.output[-6000:]
    assert _on_host(host, "dkms status") == ""


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        # Debian 12: the firmware that it asks for has been replaced by a newer one.
        ("full-deb12", "firmware-nvidia-gsp"),
        # Debian 13: it does not compile against the kernel of today.
        ("full-deb13", "pci_resize_resource"),
    ],
)
def test_the_open_driver_fails_and_the_host_is_left_as_it_was(host: str, reason: str) -> None:
    kernel = _kernel(host)
    before = _on_host(host, "dpkg-query -W -f '${Package} ${Status}\\n' | grep -i nvidia | grep -v deinstall")

    result = _play(host, nvidia_driver_boot_kernel=kernel, nvidia_driver_kernel_modules="open")

    assert result.status != 0
    assert reason in " ".join(result.output.split())
    assert _on_host(host, "dpkg-query -W -f '${Package} ${Status}\\n' | grep -i nvidia | grep -v deinstall") == before
    assert _on_host(host, "dpkg --audit") == ""
