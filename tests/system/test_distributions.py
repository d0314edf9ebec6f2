# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml and decommission.yml on distributions that stand in no scenario: Ubuntu 26.04 and Amazon Linux 2023."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from testbed import settings
from tests.system.support import Result, run

INVENTORY = "tests/system/distributions/hosts.yml"
DECLARED = yaml.safe_load((settings.ROOT / INVENTORY).read_text(encoding="utf-8"))
UBUNTU, AMAZON = HOSTS = tuple(DECLARED["all"]["children"]["testbed_hosts"]["hosts"])
PACKAGES = {
    UBUNTU: "dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\\n' | sed -n 's/^[hi]i //p' | sort",
    AMAZON: "rpm -qa --qf '%{NAME} %{EPOCH}:%{VERSION}-%{RELEASE}\\n' | sed 's/(none)://' | sort",
}
HELD = {UBUNTU: "apt-mark showhold", AMAZON: "dnf -q versionlock list | sed 's/[.][*]$//'"}
SOURCES = {
    UBUNTU: "cat /etc/apt/sources.list.d/nvidia-cuda.sources",
    AMAZON: "cat /etc/yum.repos.d/nvidia-cuda.repo",
}
APT_KEY, DNF_KEY = "/etc/apt/keyrings/nvidia-cuda.asc", "/etc/pki/rpm-gpg/RPM-GPG-KEY-nvidia-cuda"
DRIVER = {UBUNTU: "595.71.05", AMAZON: "610.57.04"}


def play(name: str, *words: str, **variables: Any) -> Result:
    extra = ["--extra-vars", json.dumps(variables)] if variables else []
    return run(
        ["ansible-playbook", "-i", INVENTORY, name, *words, *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "distributions"},
    )


def on_host(host: str, script: str) -> str:
    done = run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", "sh", "-c", script])
    assert done.status == 0, done.output[-4000:]
    return done.output.strip()


def on_hosts(scripts: Mapping[str, str]) -> dict[str, str]:
    return {host: on_host(host, script) for host, script in scripts.items()}


def boots(host: str) -> str:
    """The kernel of the release, besides that of the machine."""
    found = DECLARED["all"]["children"]["testbed_hosts"]["hosts"][host]["nvidia_driver_boot_kernel"]
    return str(found)


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    play("testbed/playbooks/destroy.yml")
    for name in ("create", "simulate"):
        made = play(f"testbed/playbooks/{name}.yml")
        assert made.status == 0, made.output[-4000:]
    yield
    play("testbed/playbooks/destroy.yml")


@pytest.fixture(scope="module")
def bare(_hosts: None) -> dict[str, str]:
    return on_hosts(PACKAGES)


def test_1_check_mode_on_a_bare_host_changes_nothing(bare: dict[str, str]) -> None:
    shown = play("playbooks/site.yml", "--check")
    assert shown.status == 0, shown.output[-8000:]
    assert all(shown.changed[host] > 0 for host in HOSTS)
    assert on_hosts(PACKAGES) == bare


def test_2_what_a_distribution_does_not_have_is_refused_by_name() -> None:
    refused = play("playbooks/site.yml", nvidia_driver_version="580", docker_source="docker_repository")
    assert refused.status != 0
    output = " ".join(refused.output.split())
    assert "Docker has no repository for Amazon Linux 2023; set docker_source to distribution" in output
    assert "nvidia-dkms-580-open does not exist" in output
    installed = on_hosts(PACKAGES)
    assert [
        line for lines in installed.values() for line in lines.splitlines() if re.search("nvidia|docker", line)
    ] == []


def test_3_a_bare_host_converges() -> None:
    converged = play("playbooks/site.yml")
    assert converged.status == 0, converged.output[-10000:]
    for host in HOSTS:
        assert f"{host} " in converged.output and " 2 (cdi)" in converged.output, converged.output[-2000:]


def test_4_a_second_run_and_check_mode_change_nothing() -> None:
    for words in ((), ("--check",)):
        again = play("playbooks/site.yml", *words)
        assert again.status == 0, again.output[-8000:]
        assert again.changed == dict.fromkeys(HOSTS, 0), again.output[-8000:]


@pytest.mark.parametrize(
    ("host", "place", "key_file"), [(UBUNTU, "ubuntu2604", APT_KEY), (AMAZON, "amzn2023", DNF_KEY)]
)
def test_5_nvidias_repository_is_signed_by_its_key(host: str, place: str, key_file: str) -> None:
    source = on_host(host, SOURCES[host])
    assert f"https://developer.download.nvidia.com/compute/cuda/repos/{place}/x86_64/" in source
    assert (f"Signed-By: {key_file}" if host == UBUNTU else f"gpgkey=file://{key_file}") in source
    assert host == UBUNTU or "gpgcheck=1\nrepo_gpgcheck=1" in source
    facts = json.loads((settings.MOCK_REPOSITORIES / "vendors.json").read_text(encoding="utf-8"))
    shown = on_host(host, f"gpg --show-keys --with-colons {key_file}")
    key = DECLARED["all"]["children"]["testbed_hosts"]["hosts"][host]["testbed_cuda_key"]
    assert f":{facts['fingerprints'][key]}:" in shown


def test_6_the_driver_is_held_with_its_kernel_and_has_modules_for_that_and_the_next() -> None:
    loaded = "nvidia-smi --query-gpu=driver_version --format=csv,noheader | uniq"
    assert on_hosts(dict.fromkeys(HOSTS, loaded)) == DRIVER
    held = {host: {*names.splitlines()} for host, names in on_hosts(HELD).items()}
    headers = {UBUNTU: "linux-headers-7.0.0-14-generic", AMAZON: "kernel6.12-devel-0:6.12.37-61.105.amzn2023"}
    ours = {
        UBUNTU: {"libnvidia-cfg1", "libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced"},
        AMAZON: {
            f"{name}-3:610.57.04-1.amzn2023"
            for name in ("kmod-nvidia-open-dkms", "libnvidia-ml", "nvidia-driver-cuda", "nvidia-kmod-common")
        },
    }
    for host in HOSTS:
        assert held[host] >= {*ours[host], headers[host]}, held[host]
        for kernel in (platform.release(), boots(host)):
            assert f"/{DRIVER[host]}, {kernel}, x86_64: installed" in on_host(host, "dkms status")
    stream = on_host(AMAZON, "cat /etc/dnf/modules.d/nvidia-driver.module").splitlines()
    assert {"stream=open-dkms", "state=enabled"} <= {*stream}
    # drm, which nvidia-drm needs.
    assert "kernel6.12-modules-extra 6.12.37-61.105.amzn2023" in on_host(AMAZON, PACKAGES[AMAZON]).splitlines()


def test_7_docker_is_the_distributions() -> None:
    installed = on_hosts(PACKAGES)
    assert "docker.io 29.1.3-0ubuntu3" in installed[UBUNTU].splitlines()
    assert "docker 25.0.8-1.amzn2023.0.6" in installed[AMAZON].splitlines()
    # Its unit has options of its own.
    started = on_host(AMAZON, "systemctl show --property=InvocationID docker.service")
    limits = {"nofile": {"Name": "nofile", "Soft": 1024, "Hard": 4096}}
    refused = play("playbooks/site.yml", "--limit", AMAZON, docker_daemon_options={"default-ulimits": limits})
    assert refused.status != 0
    assert "specified both as a flag and in the configuration file: default-ulimits" in " ".join(refused.output.split())
    assert on_host(AMAZON, "systemctl show --property=InvocationID docker.service") == started


def test_8_decommissioned_hosts_have_nothing_of_it(bare: dict[str, str]) -> None:
    for words in (("--check",), ()):
        gone = play("playbooks/decommission.yml", *words, gpu_fleet_decommission_confirm=True)
        assert gone.status == 0, gone.output[-8000:]
        assert all(gone.changed[host] > 0 for host in HOSTS)
    for host, installed in on_hosts(PACKAGES).items():
        left = {line.split()[0] for line in installed.splitlines()} - {
            line.split()[0] for line in bare[host].splitlines()
        }
        assert [name for name in left if re.search("nvidia|cuda|cudnn|^docker", name)] == []
        assert on_host(host, HELD[host]) == ""
    again = play("playbooks/decommission.yml", gpu_fleet_decommission_confirm=True)
    assert again.status == 0, again.output[-8000:]
    assert again.changed == dict.fromkeys(HOSTS, 0), again.output[-8000:]
