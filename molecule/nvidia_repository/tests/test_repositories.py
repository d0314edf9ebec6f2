# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories as apt and dnf see them, and removal of the old entries."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def uses_apt(host: Any) -> bool:
    return not host.file("/etc/redhat-release").exists


def test_the_package_manager_takes_packages_from_both(host: Any, uses_apt: bool) -> None:
    if uses_apt:
        policy = host.check_output("apt-cache policy cuda-toolkit-13-0 nvidia-container-toolkit")
        assert "https://developer.download.nvidia.com/compute/cuda/repos/" in policy
        assert "https://nvidia.github.io/libnvidia-container/stable/deb" in policy
    else:
        listed = host.check_output("dnf -q list --available cuda-toolkit-13-0 nvidia-container-toolkit")
        assert {line.split()[-1] for line in listed.splitlines()[1:]} == {
            "cuda-rhel9-x86_64",
            "nvidia-container-toolkit",
        }


def test_each_repository_has_one_entry_and_one_key(host: Any, uses_apt: bool) -> None:
    if uses_apt:
        # apt refuses to read any source when two entries for one repository name different keys.
        entries = host.check_output("apt-get indextargets --format '$(SITE)/ $(SIGNED_BY)' 'Created-By: Packages'")
        assert len({line for line in entries.splitlines() if "nvidia" in line}) == 2, entries
        for name in ("nvidia-cuda", "nvidia-container-toolkit"):
            # The format in which apt itself prints the key differs between versions.
            text = host.file(f"/etc/apt/sources.list.d/{name}.sources").content_string
            assert f"Signed-By: /etc/apt/keyrings/{name}.asc\n" in text
    else:
        repositories = host.check_output("dnf -q repolist --all").splitlines()[1:]
        assert sum("nvidia" in line.lower() for line in repositories) == 2
        for name in ("nvidia-cuda", "nvidia-container-toolkit"):
            text = host.file(f"/etc/yum.repos.d/{name}.repo").content_string
            assert f"gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-{name}\n" in text
            assert {"gpgcheck=1", "repo_gpgcheck=1", "enabled=1"} <= set(text.splitlines())


def test_old_entries_are_gone_and_those_of_others_are_not(host: Any, uses_apt: bool) -> None:
    if uses_apt:
        directory = "/etc/apt/sources.list.d"
        gone = ["nvidia-docker.list"]
        gone += [f"cuda-{name}-x86_64.list" for name in ("debian12", "debian13", "ubuntu2404")]
        kept = {"mixed.list": "https://mirror.testbed.invalid/download.docker.com/", "mixed.sources": "kept/too"}
        assert not host.package("cuda-keyring").is_installed
        assert not host.file("/etc/apt/preferences.d/cuda-repository-pin-600").exists
    else:
        directory, gone, kept = "/etc/yum.repos.d", ["cuda-rhel9.repo"], {"mixed.repo": "[kept]"}
    assert [name for name in gone if host.file(f"{directory}/{name}").exists] == []
    for name, text in kept.items():
        content = host.file(f"{directory}/{name}").content_string
        assert text in content
        assert "nvidia" not in content


def test_the_revoked_key_is_not_trusted_any_more(host: Any, uses_apt: bool) -> None:
    if uses_apt:
        assert not host.file("/etc/apt/trusted.gpg.d/cuda_debian_prod.asc").exists
        listed = host.check_output("gpg --show-keys --with-colons /etc/apt/trusted.gpg.d/two.gpg")
        assert listed.count("pub:") == 1
        assert "container-toolkit" in listed
        assert host.file("/etc/apt/trusted.gpg.d/two.gpg").mode == 0o644
    else:
        assert "rotated" not in host.check_output("rpm -q gpg-pubkey --queryformat '%{SUMMARY}\n'")


def test_excluded_packages_do_not_come_from_the_repository(host: Any, uses_apt: bool) -> None:
    if uses_apt:
        assert 'Package: mft*\nPin: origin "developer.download.nvidia.com"\nPin-Priority: -1\n' in (
            host.file("/etc/apt/preferences.d/nvidia-cuda").content_string
        )
    else:
        assert "excludepkgs=mft* kernel-mft*\n" in host.file("/etc/yum.repos.d/nvidia-cuda.repo").content_string
