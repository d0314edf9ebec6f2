# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Obstacles to a driver installation with a real apt: a one-line error with the remedy, and no change to the host."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from testbed import settings
from testbed.mock_repositories import faults
from tests.system.support import Result, run

_HOST = "f-deb13"
_CLIENT = ".65"  # last part of its IP address
_INVENTORY = "tests/system/driver_faults/hosts.yml"
_VENDOR = "https://developer.download.nvidia.com/"


def _ansible(*words: str) -> Result:
    return run([*words], env={"GPU_FLEET_TESTBED_INVENTORY": "driver_faults"})


def _play(name: str, **variables: object) -> Result:
    return _ansible("ansible-playbook", "-i", _INVENTORY, name, "--extra-vars", json.dumps(variables))


def _replace(**options: object) -> Result:
    return _ansible(
        *("ansible", _HOST, "-i", _INVENTORY, "-m", "gpu.fleet.package_transaction", "-a", json.dumps(options))
    )


def _on_host(script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{_HOST}", "sh", "-c", script]).output.strip()


def _output(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture(scope="module", autouse=True)
def _host_with_repository() -> Iterator[None]:
    _play("testbed/playbooks/destroy.yml")
    for name in ("testbed/playbooks/create.yml", "testbed/playbooks/simulate.yml"):
        made = _play(name)
        assert made.status == 0, made.output[-4000:]
    yield
    _play("testbed/playbooks/destroy.yml")


def test_1_a_repository_that_is_down_is_named() -> None:
    with faults.fault(_VENDOR, "unavailable", clients=[_CLIENT]):
        result = _play("tests/system/driver_faults/driver.yml", nvidia_repository_attempts=1)
    assert result.status != 0
    assert "503" in _output(result)
    assert _VENDOR in _output(result)
    assert _on_host("dpkg-query -W -f '${Package}\\n' | grep nvidia") == ""


def test_2_a_kernel_without_headers_is_named() -> None:
    result = _play("tests/system/driver_faults/driver.yml", nvidia_driver_boot_kernel="6.1.0-99-amd64")
    assert result.status != 0
    assert "no headers for kernel" in _output(result)
    assert "6.1.0-99-amd64" in _output(result)
    assert _on_host("dpkg-query -W -f '${Package}\\n' | grep ^nvidia") == ""


def test_3_a_hold_of_another_admin_is_respected() -> None:
    first = _replace(install=["nvidia-driver-pinning-580"])
    assert first.status == 0, first.output
    _on_host("apt-mark hold nvidia-driver-pinning-580")
    result = _replace(install=["nvidia-driver-pinning-610"], remove=["nvidia-driver-pinning-580"])
    assert "nvidia-driver-pinning-580 is on hold, and not by this role" in _output(result)
    allowed = _replace(
        install=["nvidia-driver-pinning-610"],
        remove=["nvidia-driver-pinning-580"],
        release_holds=["nvidia-driver-pinning-580"],
    )
    assert allowed.status == 0, allowed.output
    assert _on_host("ls /etc/apt/preferences.d | grep pinning") == "nvidia-driver-pinning-610"


def test_4_the_lock_of_another_apt_is_waited_for_and_then_named() -> None:
    lock = "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    # Until it is stopped: on a busy machine a minute passes before the module asks for the lock.
    blocker = f"import fcntl, time; {lock}; time.sleep(600)"
    _on_host(f'systemd-run --unit=blocker python3 -c "{blocker}"; sleep 2')
    result = _replace(install=["nvidia-driver-pinning-580"], remove=["nvidia-driver-pinning-610"], lock_timeout=2)
    _on_host("systemctl stop blocker")
    assert "holds apt's lock; wait until it has ended" in _output(result)
    assert _on_host("ls /etc/apt/preferences.d | grep pinning") == "nvidia-driver-pinning-610"


def test_5_half_installed_packages_are_named_and_can_be_brought_in_order() -> None:
    # 590.44.01 does not compile: its package stays half-installed, as a real one does.
    broken = _replace(install=["nvidia-kernel-open-dkms=590.44.01-*"])
    assert "nvidia-kernel-open-dkms is only half installed" in _output(broken)
    later = _replace(install=["nvidia-driver-pinning-580"], remove=["nvidia-driver-pinning-610"])
    assert (
        "nvidia-kernel-open-dkms is only half installed (iF in `dpkg -l`); run `dpkg --configure -a` on the host"
        in _output(later)
    )
    repaired = _replace(remove=["nvidia-kernel-open-dkms"], repair=True)
    assert repaired.status == 0, repaired.output
    assert _on_host("dpkg --audit") == ""
