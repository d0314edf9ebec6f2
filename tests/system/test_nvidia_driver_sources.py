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
_LISTED = {
    "s-ubuntu24": "dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\\n' | sed -n 's/^hi *//p'",
    "s-el9": "dnf -q versionlock list | sed 's/[.][*]$//'",
}


def _play(name: str, *words: str, **variables: object) -> Result:
    return run(
        ["ansible-playbook", "-i", _INVENTORY, name, *words, "--extra-vars", json.dumps(variables)],
        env={"GPU_FLEET_TESTBED_INVENTORY": "driver_sources"},
    )


def _on_host(host: str, script: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script]).output.strip()


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
