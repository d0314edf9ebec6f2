# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's own driver with a real build of its modules for one kernel: some minutes on two cores."""

from __future__ import annotations

import json

from testbed import settings
from tests.full.conftest import INVENTORY
from tests.system.support import Result, run

_HOST = "full-deb12"


def _play(**variables: object) -> Result:
    playbook, asked = "tests/full/driver_debian/install.yml", json.dumps({"host": _HOST, **variables})
    return run(["ansible-playbook", "-i", INVENTORY, playbook, "--extra-vars", asked])


def _on_host(script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{_HOST}", "sh", "-c", script]).output.strip()


def _installed() -> set[str]:
    """Packages of the driver in any state other than removed."""
    query = "dpkg-query -W -f '${Package} ${Status}\\n' | grep -E 'nvidia|libcuda|^glx' | grep -v deinstall"
    return {line.split()[0] for line in _on_host(query).splitlines()}


def test_debian_12_builds_its_proprietary_driver() -> None:
    # Headers of Debian's kernel, which an image of this host would boot.
    install = "export DEBIAN_FRONTEND=noninteractive; apt-get -qq update && apt-get -qq -y install linux-headers-amd64"
    _on_host(f"({install}) >/dev/null 2>&1")
    kernel = _on_host("ls /lib/modules | grep -- -amd64 | tail -n 1")
    asked = {"nvidia_driver_boot_kernel": kernel, "nvidia_driver_kernel_modules": "proprietary"}

    result = _play(**asked)

    assert result.status == 0, result.output[-6000:]
    assert f"{kernel}, x86_64: installed" in _on_host("dkms status")
    version = _on_host("dpkg-query -W -f '${Version}' nvidia-kernel-dkms").split("-", maxsplit=1)[0]
    assert _on_host(f"modinfo -k {kernel} -F version nvidia-current") == version
    assert "nvidia-kernel-dkms" in _on_host("apt-mark showhold").split()
    again = _play(**asked)
    assert (again.status, again.changed[_HOST]) == (0, 0), again.output[-6000:]

    # A missing library is reinstalled with the packages that depend on it, and no other package changes.
    complete = _installed()
    _on_host("apt-get -qq -y --allow-change-held-packages remove nvidia-persistenced libnvidia-cfg1 2>&1")
    assert _installed() < complete
    repaired = _play(**asked)
    assert repaired.status == 0, repaired.output[-6000:]
    assert _installed() == complete

    gone = _play(nvidia_driver_state="absent", **asked)
    assert gone.status == 0, gone.output[-6000:]
    assert _on_host("dkms status") == ""
    assert _installed() == set()
