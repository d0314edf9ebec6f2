# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts about the system of host_facts are those of Ansible's own collectors, on each distribution."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import distro
from ansible.module_utils.facts.system import distribution as ansible_distribution
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._host import system

OS_RELEASE = "/etc/os-release"
REDHAT = "/etc/redhat-release"
LINK = "-> "


def os_release(**fields: str) -> str:
    """A file of os-release(5)."""
    return "".join(f'{name}="{value}"\n' for name, value in fields.items())


def enterprise_linux(name: str, identity: str, version: str, release: str, **more: str) -> dict[str, str]:
    """The files of a rebuild of Enterprise Linux."""
    pretty = f"{name} {version} ({release})"
    text = os_release(NAME=name, VERSION=f"{version} ({release})", ID=identity, VERSION_ID=version, PRETTY_NAME=pretty)
    return {OS_RELEASE: text, REDHAT: f"{name} release {version} ({release})\n", **more}


def debian(version: str, codename: str, patch: str) -> dict[str, str]:
    """The files of Debian; a version that is not released has none."""
    name = "Debian GNU/Linux"
    numbers = {"VERSION_ID": version, "VERSION": f"{version} ({codename})"} if version else {}
    pretty = f"{name} {version} ({codename})" if version else f"{name} {codename}/sid"
    text = os_release(PRETTY_NAME=pretty, NAME=name, **numbers, VERSION_CODENAME=codename, ID="debian")
    return {OS_RELEASE: text, "/etc/debian_version": f"{patch}\n"}


def relative(name: str, identity: str, version: str, codename: str, **more: str) -> dict[str, str]:
    """The files of a relative of Debian."""
    fields = {"VERSION_ID": version, "VERSION": f"{version} ({codename.title()})", "VERSION_CODENAME": codename, **more}
    text = os_release(PRETTY_NAME=f"{name} {version}", NAME=name, **fields, ID=identity, ID_LIKE="debian")
    return {OS_RELEASE: text, "/etc/debian_version": "trixie/sid\n"}


def suse(name: str, identity: str, version: str, pretty: str, **more: str) -> dict[str, str]:
    """The files of a distribution of SUSE."""
    fields = {"NAME": name, "VERSION": version, "ID": identity, "ID_LIKE": "suse", "VERSION_ID": version, **more}
    return {OS_RELEASE: os_release(**fields, PRETTY_NAME=pretty)}


SLES = ("SLES", "sles", "15.6", "SUSE Linux Enterprise Server 15 SP6")
ORACLE = {"/etc/oracle-release": "Oracle Linux Server release 9.6\n"}
STREAM = {"/etc/centos-release": "CentOS Stream release 10 (Coughlan)\n"}
DISTRIBUTIONS: dict[str, Mapping[str, str]] = {
    "RedHat 9": enterprise_linux("Red Hat Enterprise Linux", "rhel", "9.6", "Plow"),
    "RedHat 10": enterprise_linux("Red Hat Enterprise Linux", "rhel", "10.0", "Coughlan"),
    "Rocky 9": enterprise_linux("Rocky Linux", "rocky", "9.6", "Blue Onyx"),
    "Rocky 10": enterprise_linux("Rocky Linux", "rocky", "10.0", "Red Quartz"),
    "AlmaLinux 9": enterprise_linux("AlmaLinux", "almalinux", "9.6", "Sage Margay"),
    "AlmaLinux 10": enterprise_linux("AlmaLinux", "almalinux", "10.0", "Purple Lion"),
    "OracleLinux 9": {
        **enterprise_linux("Oracle Linux Server", "ol", "9.6", ""),
        REDHAT: "Red Hat Enterprise Linux release 9.6 (Plow)\n",
        **ORACLE,
    },
    "CentOS Stream 9": {
        **enterprise_linux("CentOS Stream", "centos", "9", ""),
        "/etc/centos-release": "CentOS Stream release 9\n",
    },
    "CentOS Stream 10": {**enterprise_linux("CentOS Stream", "centos", "10", "Coughlan"), **STREAM},
    "CentOS 7": {
        **enterprise_linux("CentOS Linux", "centos", "7", "Core"),
        REDHAT: "CentOS Linux release 7.9.2009 (Core)\n",
        "/etc/centos-release": "CentOS Linux release 7.9.2009 (Core)\n",
    },
    "TencentOS": {
        **enterprise_linux("TencentOS Server", "tencentos", "4.2", ""),
        "/etc/centos-release": "TencentOS Server release 4.2\n",
    },
    "Fedora": enterprise_linux("Fedora Linux", "fedora", "42", "Forty Two", VERSION="42"),
    "CloudLinux": enterprise_linux("CloudLinux", "cloudlinux", "9.6", "Anatoly Levchenko"),
    "EuroLinux": enterprise_linux("EuroLinux", "eurolinux", "9.4", "Olympia"),
    "MIRACLE": enterprise_linux("MIRACLE LINUX", "miraclelinux", "9.4", "Feige"),
    "openEuler": {OS_RELEASE: os_release(NAME="openEuler", VERSION="24.03 (LTS)", ID="openEuler", VERSION_ID="24.03")},
    "Kylin": {
        OS_RELEASE: os_release(NAME="Kylin Linux Advanced Server", VERSION="V10 (Lance)", ID="kylin", VERSION_ID="V10")
    },
    "Amazon 2": {
        OS_RELEASE: os_release(NAME="Amazon Linux", VERSION="2", ID="amzn", VERSION_ID="2"),
        "/etc/system-release": "Amazon Linux release 2 (Karoo)\n",
    },
    "Amazon 2023": {
        OS_RELEASE: os_release(NAME="Amazon Linux", VERSION="2023", ID="amzn", VERSION_ID="2023"),
        "/etc/system-release": "Amazon Linux release 2023.6.20250317 (Amazon Linux)\n",
    },
    "Amazon 2018": {"/etc/system-release": "Amazon Linux AMI release 2018.03\n"},
    "Debian 11": debian("11", "bullseye", "11.11"),
    "Debian 12": debian("12", "bookworm", "12.11"),
    "Debian 13": debian("13", "trixie", "13.1"),
    "Debian testing": debian("", "forky", "forky/sid"),
    "Raspbian": {
        OS_RELEASE: os_release(
            PRETTY_NAME="Raspbian GNU/Linux 12 (bookworm)",
            NAME="Raspbian GNU/Linux",
            VERSION_ID="12",
            VERSION="12 (bookworm)",
            VERSION_CODENAME="bookworm",
            ID="raspbian",
        ),
        "/etc/debian_version": "12.9\n",
    },
    "Ubuntu 22.04": relative("Ubuntu", "ubuntu", "22.04", "jammy", UBUNTU_CODENAME="jammy"),
    "Ubuntu 24.04": relative("Ubuntu", "ubuntu", "24.04", "noble", UBUNTU_CODENAME="noble"),
    "Ubuntu 26.04": relative("Ubuntu", "ubuntu", "26.04", "resolute", UBUNTU_CODENAME="resolute"),
    "Linux Mint": relative("Linux Mint", "linuxmint", "22", "wilma", UBUNTU_CODENAME="noble"),
    "LMDE": relative("LMDE", "linuxmint", "6", "faye"),
    "Pop!_OS": relative("Pop!_OS", "pop", "22.04", "jammy", UBUNTU_CODENAME="jammy"),
    "Kali": relative("Kali GNU/Linux", "kali", "2025.2", "kali-rolling"),
    "Parrot": {
        **relative("Parrot Security", "parrot", "6.3", "lory"),
        "/etc/lsb-release": "DISTRIB_ID=Parrot\nDISTRIB_RELEASE=6.3\nDISTRIB_CODENAME=lory\n",
    },
    "Devuan": {
        OS_RELEASE: os_release(
            PRETTY_NAME="Devuan GNU/Linux 5 (daedalus)", NAME="Devuan GNU/Linux", VERSION_ID="5", ID="devuan"
        )
    },
    "Cumulus": {
        OS_RELEASE: 'NAME="Cumulus Linux"\nVERSION_ID=5.9.0\nVERSION="Cumulus Linux 5.9.0"\nID=cumulus-linux\n'
        'PRETTY_NAME="Cumulus Linux"\n'
    },
    "Deepin": relative("Deepin", "deepin", "23", "beige"),
    "Uos": relative("UOS Desktop", "uos", "20", "eagle"),
    "SteamOS": relative("SteamOS", "steamos", "3.6", "holo"),
    "SLES 12": suse("SLES", "sles", "12.5", "SUSE Linux Enterprise Server 12 SP5"),
    "SLES 15": suse(*SLES),
    "SLES 15 GA": suse("SLES", "sles", "15", "SUSE Linux Enterprise Server 15"),
    "SLES 16": suse("SLES", "sles", "16.0", "SUSE Linux Enterprise Server 16.0"),
    "SLES for SAP by its product": {**suse(*SLES), "/etc/products.d/baseproduct": f"{LINK}SLES_SAP.prod"},
    "SLES by its product": {**suse(*SLES), "/etc/products.d/baseproduct": f"{LINK}SLES.prod"},
    "SLES for SAP by its variant": suse(*SLES, VARIANT_ID="sles-sap"),
    "SL-Micro": suse("SL-Micro", "sl-micro", "6.1", "SUSE Linux Micro 6.1", VARIANT_ID="transactional"),
    "openSUSE Leap": suse("openSUSE Leap", "opensuse-leap", "15.6", "openSUSE Leap 15.6"),
    "openSUSE Tumbleweed": suse("openSUSE Tumbleweed", "opensuse-tumbleweed", "20250911", "openSUSE Tumbleweed"),
    "Archlinux": {OS_RELEASE: 'NAME="Arch Linux"\nID=arch\nPRETTY_NAME="Arch Linux"\n', "/etc/arch-release": ""},
    "Archlinux by its name": {OS_RELEASE: 'NAME="Arch Linux"\nID=arch\nPRETTY_NAME="Arch Linux"\n'},
    "Manjaro": {OS_RELEASE: 'NAME="Manjaro Linux"\nID=manjaro\n', "/etc/arch-release": "Manjaro Linux\n"},
    "Alpine": {
        OS_RELEASE: 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.22.1\nPRETTY_NAME="Alpine Linux v3.22"\n',
        "/etc/alpine-release": "3.22.1\n",
    },
    "Altlinux": {
        OS_RELEASE: 'NAME="ALT SP Server"\nVERSION="10"\nID=altlinux\nVERSION_ID=10\n',
        "/etc/altlinux-release": "ALT SP Server 10 (cliff)\n",
    },
    "Flatcar": {
        OS_RELEASE: 'NAME="Flatcar Container Linux by Kinvolk"\nID=flatcar\nVERSION=4230.2.1\nVERSION_ID=4230.2.1\n'
    },
    "Gentoo": {OS_RELEASE: 'NAME=Gentoo\nID=gentoo\nPRETTY_NAME="Gentoo Linux"\n', "/etc/gentoo-release": "Gentoo 2\n"},
    "NixOS": {OS_RELEASE: 'NAME=NixOS\nID=nixos\nVERSION="25.05 (Warbler)"\nVERSION_ID="25.05"\n'},
    "unknown": {OS_RELEASE: 'NAME="Example"\nID=example\nVERSION="7 (seven)"\n'},
    "nameless": {OS_RELEASE: "ID=example\n"},
    "nothing": {},
}
NAMES = {
    "openEuler": "openEuler",
    "Kylin": "Kylin Linux Advanced Server",
    "Raspbian": "Debian",
    "Linux Mint": "Linux Mint",
    "LMDE": "Linux Mint Debian Edition",
    "Manjaro": "Archlinux",
    "Cumulus": "Cumulus Linux",
    "SLES for SAP by its product": "SLES_SAP",
    "SLES for SAP by its variant": "SLES_SAP",
    "openSUSE Leap": "openSUSE Leap",
    "openSUSE Tumbleweed": "openSUSE Tumbleweed",
    "unknown": "Example",
    "nameless": "NA",
    "nothing": "OtherLinux",
}
"""Where it is not the first word of the case's name."""


class Module:
    """What Ansible's collector asks of its module: nothing on the host is run."""

    def debug(self, _text: str) -> None:
        """No log."""

    def get_bin_path(self, _name: str) -> None:
        """No program."""


def below(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ansible's code read the files of another root."""
    read, is_there, is_link, real = (
        ansible_distribution.get_file_content,
        ansible_distribution._file_exists,
        os.path.islink,
        os.path.realpath,
    )

    def at(path: str) -> str:
        return path if path.startswith(str(root)) else f"{root}{path}"

    # Ansible's copy, or the package of this name where the Python has it.
    monkeypatch.setattr(sys.modules[distro.id.__module__], "_distro", distro.LinuxDistribution(root_dir=str(root)))
    monkeypatch.setattr(ansible_distribution, "get_file_content", lambda path: read(at(path)))
    monkeypatch.setattr(ansible_distribution, "get_file_lines", lambda path: (read(at(path)) or "").splitlines())
    monkeypatch.setattr(
        ansible_distribution, "_file_exists", lambda path, allow_empty=False: is_there(at(path), allow_empty)
    )
    monkeypatch.setattr(ansible_distribution.os.path, "islink", lambda path: is_link(at(path)))
    monkeypatch.setattr(ansible_distribution.os.path, "realpath", lambda path: real(at(path)))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distribution_is_the_one_that_ansible_finds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, text in DISTRIBUTIONS[name].items():
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith(LINK):
            file.with_name(text[len(LINK) :]).touch()
            file.symlink_to(text[len(LINK) :])
        else:
            file.write_text(text)
    below(tmp_path, monkeypatch)
    expected: dict[str, Any] = ansible_distribution.DistributionFactCollector().collect(module=Module())
    assert system.distribution(HostFiles(str(tmp_path))) == expected
    assert expected["distribution"] == NAMES.get(name, name.partition(" ")[0])


def test_each_family_is_that_of_ansible() -> None:
    ours = {name: family for family, names in system._FAMILIES.items() for name in names}
    theirs = ansible_distribution.Distribution.OS_FAMILY
    assert {name: theirs[name] for name in ours} == ours
    of_linux = {name: family for name, family in theirs.items() if family in system._FAMILIES}
    assert of_linux == ours
