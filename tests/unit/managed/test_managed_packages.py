# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages, holds and version locks: dpkg's status file, rpm's output, dnf's lists."""

from __future__ import annotations

import subprocess

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.distribution import uses_dpkg
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._managed.packages import (
    Package,
    parse_rpm,
    read_dpkg,
    read_version_locks,
)

from tests.unit.managed.conftest import DEBIAN, ROCKY, ManagedHost, Run

RPM = """\
nvidia-driver\t3\t580.95.05\t1.el9\tx86_64
cuda-toolkit-13-0\t0\t13.0.2\t1\tx86_64
kernel-devel\t0\t5.14.0\t570.el9\tx86_64
kernel-devel\t0\t5.14.0\t611.el9\tx86_64
gpg-pubkey\t0\td42d0685\t62589a51\t(none)
package libcudnn9-cuda-13 is not installed
"""
DRIVER = "3:580.95.05-1.el9"


def test_dpkg_is_read_as_dpkg_reads_itself() -> None:
    listed = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Package}\t${Status}\t${Version}\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected: dict[str, set[str]] = {}
    for name, status, version in (line.split("\t") for line in listed.splitlines()):
        if status.endswith(" installed"):
            expected.setdefault(name, set()).add(version)
    found = read_dpkg(HostFiles(), expected)
    assert len(expected) > 50
    assert {name: package.version for name, package in found.items()} == {
        name: ", ".join(sorted(versions)) for name, versions in expected.items()
    }


def test_architectures_of_a_package(host: ManagedHost) -> None:
    host.package("libcuda1", "580-1", "hold ok installed")
    host.package("libcuda1", "580-1", "install ok installed", "i386")
    found = read_dpkg(host.files, ["libcuda1", "libcuda1:amd64", "libcuda1:i386", "libcuda1:arm64"])
    assert found["libcuda1"] == Package("libcuda1", "580-1", None, held=False)
    assert found["libcuda1:amd64"].held
    assert not found["libcuda1:i386"].held
    assert found["libcuda1:arm64"] == Package("libcuda1:arm64", None)


def test_a_name_is_no_prefix_and_no_virtual_package(host: ManagedHost) -> None:
    host.package("cuda-toolkit-13-0", "13.0.1-1")
    found = read_dpkg(host.files, ["cuda-toolkit", "toolkit-13-0", "cuda-toolkit-13-0x"])
    assert {package.version for package in found.values()} == {None}


def test_what_dpkg_has_not_merged_yet_counts(host: ManagedHost) -> None:
    host.package("cuda", "1")
    stanza = "Package: cuda\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 2\n"
    host.write("/var/lib/dpkg/updates/0001", stanza)
    host.write("/var/lib/dpkg/updates/tmp.i", stanza.replace("half-configured", "unpacked"))
    assert read_dpkg(host.files, ["cuda"])["cuda"] == Package("cuda", None, "half-configured")


def test_a_host_without_dpkg_has_no_packages(host: ManagedHost) -> None:
    assert read_dpkg(host.files, ["cuda"])["cuda"] == Package("cuda", None)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        (DEBIAN, True),
        ("ID=ubuntu\nID_LIKE=debian\n", True),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", True),
        (ROCKY, False),
        ("ID=fedora\n", False),
        ('ID="sles"\nID_LIKE="suse"\n', False),
        # An unknown distribution: the existing package database decides.
        ("ID=other\n", True),
    ],
)
def test_the_distribution_states_which_packages_it_has(release: str, expected: bool, host: ManagedHost) -> None:
    # Both package managers exist, as on a host that builds packages for other distributions.
    host.package("rpm", "4")
    host.write("/etc/os-release", release)
    assert uses_dpkg(host.files) is expected


def test_rpm_packages_by_every_form_of_their_name() -> None:
    names = ["nvidia-driver", "cuda-toolkit-13-0", "kernel-devel", "gpg-pubkey-d42d0685", "libcudnn9-cuda-13"]
    names += ["kernel-devel-5.14.0-611.el9", "nvidia-driver.x86_64", f"nvidia-driver-{DRIVER}"]
    found = parse_rpm(RPM, names, ())
    assert {name: package.version for name, package in found.items()} == {
        "nvidia-driver": DRIVER,
        "cuda-toolkit-13-0": "13.0.2-1",
        "kernel-devel": "5.14.0-570.el9, 5.14.0-611.el9",
        "gpg-pubkey-d42d0685": "d42d0685-62589a51",
        "libcudnn9-cuda-13": None,
        "kernel-devel-5.14.0-611.el9": "5.14.0-611.el9",
        "nvidia-driver.x86_64": DRIVER,
        f"nvidia-driver-{DRIVER}": DRIVER,
    }


@pytest.mark.parametrize(
    ("entry", "held"),
    [
        (f"nvidia-driver-{DRIVER}.*", True),  # as `dnf versionlock add` writes it
        (f"nvidia-driver-{DRIVER}.x86_64", True),
        ("nvidia-driver-580.95.05", True),
        ("nvidia-driver-*:580.*", True),
        ("3:nvidia-driver-580.95.05-1.el9.*", True),  # as yum's plugin wrote it
        ("nvidia-driver-3:590.44.01-1.el9.*", False),
        ("nvidia-driver-580.95", False),
        ("nvidia-driver", False),  # no version: does not hold this one
        ("*", False),
        ("nvidia-driver-cuda-3:580.95.05-1.el9.*", False),
    ],
)
def test_a_version_lock_holds_just_its_version(entry: str, held: bool) -> None:
    assert parse_rpm(RPM, ["nvidia-driver"], [entry])["nvidia-driver"].held is held


LIST = "/etc/dnf/plugins/versionlock.list"
CONF = "/etc/dnf/plugins/versionlock.conf"
TOML = """\
version = "1.0"

[[packages]]
name = "nvidia-driver"
comment = "Added by 'versionlock add' command"

[[packages.conditions]]
key = "evr"
comparator = "="
value = "3:580.95.05-1.el10"

[[packages]]
name = "excluded"

[[packages.conditions]]
key = "evr"
comparator = "!="
value = "1-1"
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ()),
        ({LIST: "# Added lock\na-0:1-1.*\n\n!b-0:1-1.*\n"}, ("a-0:1-1.*",)),
        ({LIST: "a-1\n", CONF: "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"}, ("a-1",)),
        ({LIST: "a-1\n", CONF: "[main]\nenabled = 0\n"}, ()),
        ({LIST: "a-1\n", "/etc/dnf/dnf.conf": "[main]\nplugins=False\n"}, ()),
        ({LIST: "a-1\n", "/etc/locks": "b-1\n", CONF: "[main]\nlocklist=/etc/locks\n"}, ("b-1",)),
        ({"/etc/yum/pluginconf.d/versionlock.list": "a-1\n"}, ("a-1",)),
        ({"/etc/dnf/versionlock.toml": TOML}, ("nvidia-driver-3:580.95.05-1.el10",)),
    ],
)
def test_version_locks_that_work(files: dict[str, str], expected: tuple[str, ...], host: ManagedHost) -> None:
    for path, text in files.items():
        host.write(path, text)
    assert read_version_locks(host.files) == expected


def test_a_lock_on_an_rpm_host_is_recorded_and_missed(host: ManagedHost, record: Run, facts: Run) -> None:
    host.write("/etc/os-release", ROCKY)
    host.program("rpm", f"cat <<'END'\n{RPM}END\nexit 1")
    host.write(LIST, f"nvidia-driver-{DRIVER}.*\n")
    assert "failed" not in record(
        held_packages=["nvidia-driver"], packages=["gpg-pubkey-d42d0685"], pinned_packages=["cuda-toolkit-13-0"]
    )
    assert facts()["example"]["drift"] == []
    host.write(LIST, "nvidia-driver-3:590.44.01-1.el9.*\n")
    host.program("rpm", f"cat <<'END'\n{RPM.replace('d42d0685', '12345678').replace('13.0.2', '13.0.3')}END\nexit 1")
    assert [item["message"] for item in facts()["example"]["drift"]] == [
        "gpg-pubkey-d42d0685 is not installed",
        "cuda-toolkit-13-0 has version 13.0.3-1, not 13.0.2-1",
        "nvidia-driver is no longer held at its version",
    ]
    assert {call.partition(" %")[0][:20] for call in host.calls()} == {"rpm -q --queryformat"}
