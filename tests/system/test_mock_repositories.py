# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mock vendor repositories and distributions behave like the real ones, as far as other tests rely on them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import settings
from testbed.mock_repositories import container, faults
from tests.system.support import Result, playbook, run

_INVENTORY = "tests/system/mock_repositories/hosts.yml"
_NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"
# Last parts of the hosts' IP addresses.
_CLIENTS = (".41", ".42", ".43", ".44")
# Directory in NVIDIA's repository, file name of its key there, name of that key in the test testbed.
_APT = {
    "v-deb12": ("debian12", "3bf863cc.pub", "cuda-ubuntu"),
    "v-deb13": ("debian13", "8793F200.pub", "cuda-debian13"),
    "v-ubuntu24": ("ubuntu2404", "3bf863cc.pub", "cuda-ubuntu"),
}
_FACTS = {
    "v-deb12": ("Debian", "12", "bookworm", "Debian", "apt"),
    "v-deb13": ("Debian", "13", "trixie", "Debian", "apt"),
    "v-ubuntu24": ("Ubuntu", "24", "noble", "Debian", "apt"),
    "v-el9": ("Rocky", "9", "Blue Onyx", "RedHat", "dnf"),
}

# Every host has a Python with certificates; not every one has curl.
_FETCH = "import sys, urllib.request as u; sys.stdout.buffer.write(u.urlopen(sys.argv[1]).read())"
# Only NVIDIA's source, with separate package lists: the host's other sources do not matter here.
_APT_UPDATE = """
mkdir -p /tmp/apt/lists/partial
[ -e /tmp/apt/key.asc ] || python3 -c "$FETCH" "$1/$2" >/tmp/apt/key.asc
echo "deb [signed-by=/tmp/apt/key.asc] $1/ /" >/tmp/apt/sources.list
apt-get -o Dir::Etc::sourcelist=/tmp/apt/sources.list -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists=/tmp/apt/lists -o Acquire::Retries=0 --error-on=any update
"""
_DNF_REPOSITORY = """
set -e
python3 -c "$FETCH" "$1/D42D0685.pub" >/etc/pki/rpm-gpg/cuda
cat >/etc/yum.repos.d/cuda.repo <<END
[cuda]
name=cuda
baseurl=$1
gpgcheck=1
repo_gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/cuda
END
"""
_INSTALL_KEYRING = """
set -e
python3 -c "$FETCH" "$1" >/tmp/keyring.deb
sha256sum /tmp/keyring.deb
dpkg --install /tmp/keyring.deb
apt-get update
"""
_LOCAL = """
set -e
python3 -c "$FETCH" "$1" >/tmp/local-package
sha256sum /tmp/local-package
"""
_LOCAL_APT = f"""{_LOCAL}
dpkg --install /tmp/local-package
cp "/var/$2"/*-keyring.gpg /usr/share/keyrings/
apt-get --error-on=any -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/nvidia-driver-local-debian13-580.159.04.list \
    -o Dir::Etc::sourceparts=/dev/null update
echo offered:
apt-cache policy nvidia-driver-cuda
"""
_LOCAL_DNF = f"""{_LOCAL}
rpm --install --nosignature /tmp/local-package
dnf --assumeyes --disablerepo='*' --enablerepo='nvidia-driver-local-*' module enable nvidia-driver:580-open
echo offered:
dnf --assumeyes --disablerepo='*' --enablerepo='nvidia-driver-local-*' list nvidia-driver-cuda
"""
_DNF = "dnf --assumeyes --disablerepo='*' --enablerepo=cuda --setopt=retries=1"


def _ssh(host: str, script: str, *words: str) -> Result:
    """Run a bash script on a host."""
    argv = ["env", f"FETCH={_FETCH}", "bash", "-c", script, "bash", *words]
    return run(["ssh", "-F", str(settings.SSH_CONFIG), host, shlex.join(argv)])


def _fetch(host: str, url: str) -> Result:
    return _ssh(host, 'python3 -c "$FETCH" "$1"', url)


def _apt_update(host: str) -> Result:
    """Run `apt-get update` for NVIDIA's repository, with the key that the first call fetched."""
    directory, key, _name = _APT[host]
    return _ssh(host, _APT_UPDATE, f"{_NVIDIA}/{directory}/x86_64", key)


@pytest.fixture(scope="module", autouse=True)
def hosts() -> Iterator[None]:
    """The four hosts, bare, with the vendor repositories in their default state."""
    _testbed("destroy")
    try:
        _testbed("create")
        yield
    finally:
        _testbed("destroy")


def _testbed(what: str) -> None:
    done = playbook(
        f"testbed/playbooks/{what}.yml", inventory=_INVENTORY, env={"GPU_FLEET_TESTBED_INVENTORY": "vendors"}
    )
    assert done.status == 0, done.output[-4000:]


@pytest.fixture(scope="module")
def trusted(hosts: None) -> None:
    """The hosts have NVIDIA's source and its regular signing key."""
    for host in _APT:
        updated = _apt_update(host)
        assert updated.status == 0, updated.output
    written = _ssh("v-el9", _DNF_REPOSITORY, f"{_NVIDIA}/rhel9/x86_64")
    assert written.status == 0, written.output


@pytest.fixture
def known() -> dict[str, Any]:
    """The test testbed's data about the vendor repositories."""
    document: dict[str, Any] = json.loads((settings.MOCK_REPOSITORIES / "vendors.json").read_text())
    return document


def test_ansible_takes_each_host_for_its_distribution() -> None:
    reported = run(
        ["ansible", "-i", _INVENTORY, "all", "--one-line", "-m", "ansible.builtin.setup", "-a", "gather_subset=!all"]
    )
    assert reported.status == 0, reported.output
    found = {}
    for line in reported.output.splitlines():
        if match := re.match(r"(\S+) \| SUCCESS => (\{.*)", line):
            facts = json.loads(match[2])["ansible_facts"]
            names = ("distribution", "distribution_major_version", "distribution_release", "os_family", "pkg_mgr")
            found[match[1]] = tuple(facts[f"ansible_{name}"] for name in names)
    assert found == _FACTS


def test_packages_of_the_el_host_are_rpm_packages_to_ansible() -> None:
    reported = run(["ansible", "-i", _INVENTORY, "v-el9", "--one-line", "-m", "ansible.builtin.package_facts"])
    packages = json.loads(reported.output.split("=>", 1)[1])["ansible_facts"]["packages"]
    assert {entry["source"] for entries in packages.values() for entry in entries} == {"rpm"}
    assert "rocky-release" in packages
    assert "base-files" not in packages


def test_the_hosts_come_up_without_a_failed_unit() -> None:
    assert {host: _ssh(host, "systemctl is-system-running --wait").output.strip() for host in _FACTS} == dict.fromkeys(
        _FACTS, "running"
    )


@pytest.mark.parametrize("host", _APT)
def test_apt_takes_a_package_from_the_repository_it_trusts(trusted: None, host: str, known: dict[str, Any]) -> None:
    directory, _key, name = _APT[host]
    trusted_key = _ssh(host, "gpg --show-keys --with-colons /tmp/apt/key.asc").output
    assert f":{known['fingerprints'][name]}:" in trusted_key
    url = f"{_NVIDIA}/{directory}/x86_64/cuda-keyring_1.1-1_all.deb"
    installed = _ssh(host, _INSTALL_KEYRING, url)
    assert installed.status == 0, installed.output
    assert known["sha256"][url] in installed.output
    assert f"{_NVIDIA}/{directory}/x86_64" in installed.output
    offered = _ssh(host, "apt-cache policy cuda-keyring").output
    assert re.search(
        r"Candidate: 1\.1-1\n.*release .*developer\.download|1\.1-1 \d+\n.*https://developer", offered, re.S
    )


def test_dnf_takes_metadata_and_packages_that_are_signed(trusted: None) -> None:
    made = _ssh("v-el9", f"{_DNF} makecache && {_DNF} module list")
    assert made.status == 0, made.output
    assert "nvidia-driver" in made.output
    installed = _ssh("v-el9", "dnf --assumeyes install make && rpm --query --info make")
    assert installed.status == 0, installed.output
    assert re.search(r"^Signature +: RSA/SHA", installed.output, re.MULTILINE), installed.output


@pytest.mark.parametrize(("host", "install"), [("v-deb13", _LOCAL_APT), ("v-el9", _LOCAL_DNF)])
def test_a_local_repository_package_is_a_repository_on_the_host(host: str, install: str, known: dict[str, Any]) -> None:
    distribution = {"v-deb13": "debian13", "v-el9": "rhel9"}[host]
    name = f"nvidia-driver-local-repo-{distribution}-580.159.04"
    url = next(url for url in known["sha256"] if f"/{name}" in url)
    with faults.fault(_NVIDIA, "unavailable", clients=_CLIENTS):
        used = _ssh(host, install, url, name)
    assert used.status == 0, used.output
    assert known["sha256"][url] in used.output
    assert re.search(r"nvidia-driver-cuda.*\n?.*580\.159\.04", used.output.split("offered:")[1], re.DOTALL), used.output


@pytest.mark.parametrize("host", _APT)
def test_apt_refuses_a_rotated_key(trusted: None, host: str, known: dict[str, Any]) -> None:
    directory, key, _name = _APT[host]
    with faults.fault(f"{_NVIDIA}/{directory}/", "rotated", clients=_CLIENTS):
        refused = _apt_update(host)
        new_key = _fetch(host, f"{_NVIDIA}/{directory}/x86_64/{key}").output
    assert refused.status != 0
    assert known["fingerprints"]["rotated"][-16:] in refused.output
    assert new_key != _ssh(host, "cat /tmp/apt/key.asc").output
    assert "BEGIN PGP PUBLIC KEY" in new_key
    again = _apt_update(host)
    assert again.status == 0, again.output


def test_dnf_refuses_a_rotated_key_that_it_cannot_fetch(trusted: None) -> None:
    with faults.fault(f"{_NVIDIA}/rhel9/", "rotated", clients=_CLIENTS):
        refused = _ssh("v-el9", f"{_DNF} clean all; {_DNF} makecache")
    assert refused.status != 0
    assert "signature" in refused.output.lower() or "gpg" in refused.output.lower(), refused.output
    again = _ssh("v-el9", f"{_DNF} clean all; {_DNF} makecache")
    assert again.status == 0, again.output


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unavailable", "503"),
        ("missing", "404"),
        ("closed", "InRelease"),
        ("truncated", "InRelease"),
        ("damaged", "InRelease"),
    ],
)
def test_each_fault_is_one_to_apt_too_and_passes(trusted: None, kind: faults.Fault, words: str) -> None:
    with faults.fault(f"{_NVIDIA}/debian13/", kind, clients=_CLIENTS):
        failed = _apt_update("v-deb13")
    assert failed.status != 0, failed.output
    assert words in failed.output
    again = _apt_update("v-deb13")
    assert again.status == 0, again.output


def test_a_slow_vendor_replies_in_the_end(trusted: None) -> None:
    with faults.fault(f"{_NVIDIA}/debian13/", "slow", clients=_CLIENTS, seconds=3):
        replied = _ssh("v-deb13", 'time python3 -c "$FETCH" "$1" >/dev/null', f"{_NVIDIA}/debian13/x86_64/8793F200.pub")
    assert replied.status == 0, replied.output
    seconds = re.search(r"real\t0m(\d+)", replied.output)
    assert seconds
    assert int(seconds[1]) >= 3


def test_requests_report_what_was_asked_and_what_never_was() -> None:
    url = f"{_NVIDIA}/debian12/x86_64/3bf863cc.pub"
    with faults.requests() as asked:
        assert _fetch("v-deb12", url).status == 0
    assert [(entry["method"], entry["url"], entry["status"]) for entry in asked if entry["client"].endswith(".41")] == [
        ("GET", url, 200)
    ]
    with faults.requests() as asked:
        assert _ssh("v-deb12", "hostname").status == 0
    assert [entry for entry in asked if entry["client"].endswith(".41")] == []


def test_a_mirror_has_the_same_under_one_name() -> None:
    path = "developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub"
    mirrored = _fetch("v-deb12", f"https://mirror.testbed.invalid/{path}")
    assert mirrored.status == 0, mirrored.output
    assert mirrored.output == _fetch("v-deb12", f"https://{path}").output


def test_what_has_not_changed_is_not_made_again() -> None:
    def written() -> dict[str, int]:
        return {
            str(path): path.stat().st_mtime_ns
            for path in (settings.MOCK_REPOSITORIES / "www").rglob("*")
            if path.name in ("InRelease", "repomd.xml")
        }

    container.generate()
    before = written()
    assert before
    container.generate()
    assert written() == before
