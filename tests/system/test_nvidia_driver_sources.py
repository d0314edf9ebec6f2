# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver sources that no molecule scenario uses: each replaces the previous one without leftovers."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator

import pytest

from testbed import settings
from tests.system.support import Result, run

_INVENTORY = "tests/system/driver_sources/hosts.yml"
_KERNEL = platform.release()
# A distribution that signs the modules of its kernels: its name, its repository, and of which driver it has modules for
# the machine's kernel, with the name of the package and the directory of its files.
_SIGNING = {
    "almalinux": (
        "AlmaLinux release 9.8 (Olive Jaguar)",
        "https://nvidia.repo.almalinux.org/cuda/9/x86_64",
        "610.43.02",
        "kmod-nvidia-open",
        "nvidia-open",
    ),
    "rhel": (
        "Red Hat Enterprise Linux release 10.2 (Coughlan)",
        "https://cdn.redhat.com/content/dist/rhel10/10/x86_64/extensions/os",
        "580.159.04",
        f"kmod-nvidia-open-580.159.04-{_KERNEL}",
        "nvidia",
    ),
}
_BECOME = r"""
set -e
name=${2% release *} version=$(echo "$2" | sed 's/.*release \([0-9.]*\).*/\1/')
printf 'NAME="%s"\nID="%s"\nID_LIKE="rhel fedora"\nVERSION_ID="%s"\nVERSION="%s"\nPRETTY_NAME="%s %s"\n' \
    "$name" "$1" "$version" "$version" "$name" "$version" >/usr/lib/os-release
rm -f /etc/rocky-release /etc/redhat-release
echo "$2" >/etc/redhat-release
rm -f /etc/yum.repos.d/signed.repo
printf '[signed]\nname=signed\nbaseurl=%s\ngpgcheck=1\ngpgkey=%s/RPM-GPG-KEY\n' "$3" "$3" >/etc/yum.repos.d/signed.repo
curl --silent --show-error --fail "$3/RPM-GPG-KEY" >/tmp/signed.key
rpm --import /tmp/signed.key
# EL 10 has no streams.
rm -rf /etc/dnf/modules.d/nvidia-driver.module /var/lib/dnf/modulefailsafe
dnf --quiet clean all
# Secure Boot is on, and no program is there that could enroll a key.
mkdir -p /tmp/efi
printf '\006\000\000\000\001' >/tmp/efi/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
rm -f /usr/bin/mokutil
"""
_LISTED = {
    "s-ubuntu24": "dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\\n' | sed -n 's/^hi *//p'",
    "s-el9": "dnf -q versionlock list | sed 's/[.][*]$//'",
}


def _play(name: str, *words: str, **variables: object) -> Result:
    return run(
        ["ansible-playbook", "-i", _INVENTORY, name, *words, "--extra-vars", json.dumps(variables)],
        env={"GPU_FLEET_TESTBED_INVENTORY": "driver_sources"},
    )


def _on_host(host: str, script: str, *words: str) -> str:
    argv = ["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script, "sh", *words]
    return run(argv).output.strip()


def _install(host: str, **variables: object) -> None:
    """Run twice: the second run changes nothing."""
    for changes in (True, False):
        result = _play("tests/system/driver_sources/driver.yml", "--limit", host, **variables)
        assert result.status == 0, result.output[-6000:]
        assert (result.changed[host] > 0) is changes, result.output[-6000:]


def _held(host: str) -> set[str]:
    return set(_on_host(host, _LISTED[host]).splitlines())


def _sources(host: str) -> set[str]:
    """Names of the apt or dnf entries that the role has added."""
    listed = _on_host(host, "ls /etc/apt/sources.list.d /etc/yum.repos.d 2>/dev/null").splitlines()
    return {name for name in listed if "nvidia" in name or "graphics" in name}


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    _play("testbed/playbooks/destroy.yml")
    for name in ("testbed/playbooks/create.yml", "testbed/playbooks/simulate.yml"):
        made = _play(name)
        assert made.status == 0, made.output[-4000:]
    yield
    _play("testbed/playbooks/destroy.yml")


def test_1_what_ubuntu_drivers_recommends_is_installed_although_there_is_newer() -> None:
    _install("s-ubuntu24", nvidia_driver_source="distribution", nvidia_driver_version="recommended")
    assert _held("s-ubuntu24") == {
        f"{name} 580.178.04-0ubuntu0.24.04.1"
        for name in (
            "libnvidia-cfg1-580-server",
            "libnvidia-compute-580-server",
            "nvidia-compute-utils-580-server",
            "nvidia-dkms-580-server-open",
            "nvidia-firmware-580-server-580.178.04",
            "nvidia-kernel-common-580-server",
            "nvidia-kernel-source-580-server-open",
            "nvidia-utils-580-server",
        )
    }
    assert f"{_KERNEL}, x86_64: installed" in _on_host("s-ubuntu24", "dkms status")


def test_2_precompiled_modules_take_the_place_of_dkms() -> None:
    _install(
        "s-ubuntu24",
        nvidia_driver_source="distribution",
        nvidia_driver_version="580",
        nvidia_driver_module_build="precompiled",
    )
    module = f"modinfo -k {_KERNEL} -F filename nvidia"
    assert _on_host("s-ubuntu24", module).endswith("/kernel/nvidia-580/nvidia.ko")
    assert _on_host("s-ubuntu24", "dkms status") == ""
    assert _on_host("s-ubuntu24", "dpkg-query -W -f '${Package}\\n' | grep nvidia-dkms") == ""


def test_3_the_ppa() -> None:
    _install("s-ubuntu24", nvidia_driver_source="ppa", nvidia_driver_version="580")
    assert _sources("s-ubuntu24") == {"graphics-drivers.sources"}
    assert "ppa.launchpadcontent.net" in _on_host("s-ubuntu24", "apt-cache policy nvidia-utils-580")
    assert "nvidia-utils-580 580.178.04-0ubuntu0.24.04.1" in _held("s-ubuntu24")
    assert _on_host("s-ubuntu24", "dpkg-query -W -f '${Package}\\n' | grep 'nvidia.*-server'") == ""


@pytest.mark.parametrize(
    ("host", "module", "entry"),
    [
        ("s-ubuntu24", "nvidia-dkms-580-open", "nvidia-driver-local-ubuntu2404-580.159.04.list"),
        ("s-el9", "kmod-nvidia-open-dkms", "nvidia-driver-local-rhel9-580.159.04.repo"),
    ],
)
def test_4_a_repository_in_a_package_and_its_removal(host: str, module: str, entry: str) -> None:
    _install(host, nvidia_driver_source="local_repository", nvidia_driver_version="580.159.04")
    assert _sources(host) == {entry}
    assert any(module in name for name in _held(host))
    assert f"{_KERNEL}, x86_64: installed" in _on_host(host, "dkms status")

    gone = _play(
        "tests/system/driver_sources/driver.yml",
        *("--limit", host),
        nvidia_driver_source="local_repository",
        nvidia_driver_state="absent",
    )
    assert gone.status == 0, gone.output[-6000:]
    assert _sources(host) == set()
    assert _on_host(host, "dkms status 2>/dev/null; ls -d /var/nvidia-driver-local-repo-* 2>/dev/null") == ""


@pytest.mark.parametrize("name", _SIGNING)
def test_5_modules_that_the_distribution_signed(name: str) -> None:
    release, url, version, package, directory = _SIGNING[name]
    assert _on_host("s-el9", _BECOME, name, release, url) == ""
    asked: dict[str, object] = {
        "nvidia_driver_source": "distribution",
        "nvidia_driver_module_build": "precompiled",
        "nvidia_driver_version": version.partition(".")[0],
        "nvidia_driver_preflight": True,
        "__nvidia_driver_efi_variables": "/tmp/efi",
    }
    if name == "rhel":
        # A newer driver has modules for another kernel only.
        missing = {**asked, "nvidia_driver_version": "610.57.04"}
    else:
        missing = {**asked, "nvidia_driver_boot_kernel": "5.14.0-687.30.1.el9_8.x86_64"}
    before = _on_host("s-el9", "rpm -qa | sort")
    refused = _play("tests/system/driver_sources/driver.yml", "--limit", "s-el9", **missing)
    kernel = missing.get("nvidia_driver_boot_kernel", _KERNEL)
    assert refused.status != 0
    assert f"kernel {kernel}; there are some for " in refused.output, refused.output[-6000:]
    assert _on_host("s-el9", "rpm -qa | sort") == before

    _install("s-el9", **asked)
    assert package in _on_host("s-el9", "rpm -qa --qf '%{NAME}\\n'").splitlines()
    assert _on_host("s-el9", f"modinfo -k {_KERNEL} -F filename nvidia").endswith(f"/extra/{directory}/nvidia.ko")
    assert _on_host("s-el9", f"modinfo -k {_KERNEL} -F version nvidia") == version
    # The dkms of an earlier test is there: the role removes no package that others may use by now.
    added = {*_on_host("s-el9", "rpm -qa").splitlines()} - {*before.splitlines()}
    assert [one for one in added if "dkms" in one.lower()] == []
    assert _on_host("s-el9", "ls /usr/bin/mokutil 2>/dev/null") == ""

    gone = _play("tests/system/driver_sources/driver.yml", "--limit", "s-el9", **asked, nvidia_driver_state="absent")
    assert gone.status == 0, gone.output[-6000:]
    assert _on_host("s-el9", "rpm -qa 'kmod-nvidia*' 'nvidia-driver*'") == ""
