# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's own open driver packages: older than its driver on one release, and not compiling on the other."""

from __future__ import annotations

import json

import pytest

from testbed import settings
from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

# Enable all components, as Debian's installer can, in the source that has main.
_ENABLE = "sed -i 's/ main$/ main contrib non-free non-free-firmware/' /etc/apt/sources.list"


def _on_host(host: str, script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script]).output.strip()


def _play(host: str, **variables: object) -> Result:
    playbook = "tests/full/driver_debian/install.yml"
    return run(["ansible-playbook", "-i", INVENTORY, playbook, "--extra-vars", json.dumps({"host": host, **variables})])


def _kernel(host: str) -> str:
    """Install headers of Debian's kernel, which an image of this host would boot."""
    script = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq -y install linux-headers-amd64"
    _on_host(host, f"({script}) >/dev/null 2>&1")
    return _on_host(host, "ls /lib/modules | grep -- -amd64 | tail -n 1")


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        # Its security updates have a newer driver, without open modules: refused before a change.
        ("full-deb12", "which is installed or offered without them"),
        # It does not compile with the current kernel.
        ("full-deb13", "pci_resize_resource"),
    ],
)
def test_the_open_driver_fails_and_the_host_is_left_as_it_was(host: str, reason: str) -> None:
    _on_host(host, _ENABLE)
    assert "-security main contrib non-free" in _on_host(host, "cat /etc/apt/sources.list")
    kernel = _kernel(host)
    before = _on_host(host, "dpkg-query -W -f '${Package} ${Status}\\n' | grep -i nvidia | grep -v deinstall")

    result = _play(host, nvidia_driver_boot_kernel=kernel, nvidia_driver_kernel_modules="open")

    assert result.status != 0
    assert reason in " ".join(result.output.split())
    assert _on_host(host, "dpkg-query -W -f '${Package} ${Status}\\n' | grep -i nvidia | grep -v deinstall") == before
    assert _on_host(host, "dpkg --audit") == ""
    assert _on_host(host, "ls /etc/apt/preferences.d") == ""
