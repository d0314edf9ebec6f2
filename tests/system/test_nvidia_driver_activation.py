# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loaded and installed driver versions on a host with simulated GPUs: reload, blockers, and the one reboot."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/driver_activation"
INVENTORY = f"{DIRECTORY}/hosts.yml"
FIRST, SECOND, THIRD = "550.163.01", "580.159.04", "610.43.02"
REBOOT_FILE = "/var/lib/gpu-fleet/nvidia_driver.reboot"


def play(name: str, *extra: str, succeeds: bool = True) -> Result:
    """Run one of the playbooks next to the inventory."""
    path = name if "/" in name else f"{DIRECTORY}/{name}"
    result = run(
        ["ansible-playbook", "-i", INVENTORY, path, *extra], env={"GPU_FLEET_TESTBED_INVENTORY": "driver_activation"}
    )
    assert (result.status == 0) is succeeds, result.output
    return result


def on_host(*argv: str, host: str = "a-deb12") -> str:
    """Run a command on a host; return its stdout."""
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv]).output.strip()


def loaded() -> str:
    """The driver version that the kernel reports as loaded."""
    found = re.search(r"NVRM version.*?(\d{3}\.\d+(?:\.\d+)?)", on_host("cat", "/proc/driver/nvidia/version"))
    return found[1] if found else ""


def messages(result: Result) -> str:
    """The output as one line: Ansible folds messages."""
    return " ".join(result.output.split())


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    play("testbed/playbooks/destroy.yml")
    play("testbed/playbooks/create.yml")
    play("testbed/playbooks/simulate.yml")
    play("services.yml")
    yield
    play("testbed/playbooks/destroy.yml")


def test_1_the_driver_is_reloaded_where_only_services_hold_it() -> None:
    play("upgrade.yml", "--extra-vars", f"version={SECOND}")
    before = on_host("systemctl", "show", "--property=MainPID", "nvidia-persistenced")

    result = play("activate.yml")

    # Detected although nvidia-smi fails.
    assert f"smi version_mismatch, loaded {FIRST}, installed {SECOND}, due True" in messages(result)
    assert result.changed["a-deb12"] == 1
    assert loaded() == SECOND
    after = on_host("systemctl", "show", "--property=MainPID", "nvidia-persistenced")
    assert after.startswith("MainPID=")
    assert after not in (before, "MainPID=0"), "it was stopped, and runs again"
    assert SECOND in on_host("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    assert play("activate.yml").changed["a-deb12"] == 0


def test_2_a_job_is_named_and_left_alone() -> None:
    play("upgrade.yml", "--extra-vars", f"version={THIRD}")
    on_host("systemctl", "start", "trainer")

    result = play("activate.yml")

    assert re.search(
        rf"driver {SECOND} stays loaded instead of {THIRD}: trainer \(PID \d+\) holds /dev/nvidia0", messages(result)
    )
    assert f"a reboot is needed to load driver {THIRD}" in messages(result)
    assert "nvidia_driver_reboot is never" in messages(result)
    assert loaded() == SECOND
    assert on_host("systemctl", "is-active", "trainer") == "active"
    assert on_host("systemctl", "is-active", "nvidia-persistenced") == "active", "it was restored"
    assert result.changed["a-deb12"] == 0


def test_3_a_local_connection_is_never_rebooted() -> None:
    result = play(f"{DIRECTORY}/local.yml", succeeds=False)
    assert "which is not possible over a local connection" in messages(result)
    assert "Rebooting" not in result.output


def test_4_one_reboot_loads_it() -> None:
    boot = on_host("cat", "/proc/sys/kernel/random/boot_id")

    result = play("activate.yml", "--extra-vars", "nvidia_driver_reboot=if_required")

    assert on_host("cat", "/proc/sys/kernel/random/boot_id") != boot
    assert result.output.count("TASK [gpu.fleet.common : Reboot the host]") == 1, "the host is rebooted once"
    assert loaded() == THIRD
    assert "No such file" in on_host("ls", REBOOT_FILE)
    boot = on_host("cat", "/proc/sys/kernel/random/boot_id")
    assert play("activate.yml", "--extra-vars", "nvidia_driver_reboot=if_required").changed["a-deb12"] == 0
    assert on_host("cat", "/proc/sys/kernel/random/boot_id") == boot


def test_5_a_host_that_came_back_without_the_driver_is_not_rebooted_again() -> None:
    play("upgrade.yml", "--extra-vars", f"version={SECOND}")
    # The state after a reboot that loaded the old driver again.
    play("record.yml", "--extra-vars", f"version={SECOND} path={REBOOT_FILE}")
    boot = on_host("cat", "/proc/sys/kernel/random/boot_id")
    options = ("--extra-vars", "nvidia_driver_reboot=if_required nvidia_driver_reload=never")

    result = play("activate.yml", *options, succeeds=False)

    assert "although the host was rebooted for it" in messages(result)
    assert f"remove {REBOOT_FILE} to allow another reboot" in messages(result)
    assert on_host("cat", "/proc/sys/kernel/random/boot_id") == boot
    assert loaded() == THIRD
    # A reload needs no reboot and loads the installed driver.
    play("activate.yml", "--extra-vars", "nvidia_driver_reboot=if_required")
    assert loaded() == SECOND


def test_6_preflight_names_all_that_is_wrong_at_once_in_check_mode_too() -> None:
    variables = "nvidia_driver_version=550 nvidia_driver_disk_space_mib=900000000"
    for mode in ((), ("--check",)):
        result = play("preflight.yml", *mode, "--extra-vars", f"target=a-deb13 {variables}", succeeds=False)
        message = messages(result)
        assert "the driver cannot be installed, and nothing was changed:" in message
        assert re.search(r"no kernel modules drive all GPUs: GB100 at \S+ \(Blackwell\) needs the open ones", message)
        assert re.search(r"GV100 at \S+ \(Volta\) the proprietary ones", message)
        assert "the first branch with it is 570" in message
        assert re.search(r"/usr has \d+ MiB free, and 900000000 are needed", message)
        assert result.changed["a-deb13"] == 0


def test_7_preflight_lets_a_good_host_pass() -> None:
    assert play("preflight.yml").recap["a-deb12"].failed == 0


def test_8_secure_boot_refuses_modules_that_nobody_signs() -> None:
    play("secure_boot.yml")
    efi = "__nvidia_driver_efi_variables=/tmp/efi"

    refused = play("preflight.yml", "--extra-vars", efi, succeeds=False)

    assert "Secure Boot is on, and the kernel loads no module that is not signed with an enrolled key" in messages(
        refused
    )
    assert "set nvidia_driver_secure_boot to enroll" in messages(refused)
    enroll = f"{efi} nvidia_driver_secure_boot=enroll"
    assert "have to be set" in messages(play("preflight.yml", "--extra-vars", enroll, succeeds=False))
    key = "nvidia_driver_mok_key=/etc/mok/key.priv nvidia_driver_mok_certificate=/etc/mok/key.der"
    play("preflight.yml", "--extra-vars", f"{enroll} {key} nvidia_driver_mok_password=secret-word")


def test_9_a_given_key_signs_and_is_enrolled_once() -> None:
    variables = (
        "__nvidia_driver_efi_variables=/tmp/efi nvidia_driver_secure_boot=enroll "
        "nvidia_driver_mok_key=/etc/mok/key.priv nvidia_driver_mok_certificate=/etc/mok/key.der "
        "nvidia_driver_mok_password=secret-word"
    )
    first = play("sign.yml", "--extra-vars", variables, "-vvv")
    assert "secret-word" not in first.output
    assert 'mok_signing_key="/etc/mok/key.priv"' in on_host("cat", "/etc/dkms/framework.conf.d/gpu-fleet.conf")
    assert on_host("cat", "/tmp/mokutil.imported") == "/etc/mok/key.der secret-word secret-word"
    assert "waits to be enrolled: reboot the host" in messages(first)

    second = play("sign.yml", "--extra-vars", variables)
    assert second.changed["a-deb12"] == 0

    on_host("touch", "/tmp/mokutil.enrolled")
    third = play("sign.yml", "--extra-vars", variables)
    assert "waits to be enrolled" not in messages(third)
