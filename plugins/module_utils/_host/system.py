# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the roles need to know of the system, as ansible.builtin.setup names it. Private to this collection.

Ansible's own collectors of these few facts bring all others with them, 170 KiB to each host in each run. A test holds
that these facts are the same. Only Linux is read here; another system has its own name and nothing more.
"""

from __future__ import annotations

import getpass
import os
import platform
import pwd
import re
import socket
import struct
from typing import Any

from ansible.module_utils.common.sys_info import (
    get_distribution,
    get_distribution_codename,
    get_distribution_version,
)

from .._common.host_files import HostFiles

_UNKNOWN = "NA"
_OS_RELEASE = "/etc/os-release"
_QUOTES = "'\"\\"

# Files whose first word is the name where this text is not in them.
_NAMED_BY_TEXT = {"Altlinux": "ALT", "OracleLinux": "Oracle Linux", "RedHat": "Red Hat"}
# By name: the first file decides that is about the distribution of its name.
_FILES = (
    ("/etc/altlinux-release", "Altlinux"),
    ("/etc/oracle-release", "OracleLinux"),
    ("/etc/centos-release", "CentOS"),
    ("/etc/redhat-release", "RedHat"),
    (_OS_RELEASE, "Amazon"),
    ("/etc/system-release", "Amazon"),
    ("/etc/alpine-release", "Alpine"),
    ("/etc/arch-release", "Archlinux"),
    (_OS_RELEASE, "Archlinux"),
    (_OS_RELEASE, "SUSE"),
    (_OS_RELEASE, "Debian"),
    ("/etc/lsb-release", "Debian"),
    (_OS_RELEASE, "Flatcar"),
    (_OS_RELEASE, _UNKNOWN),
)
_DEBIAN, _UBUNTU, _KALI, _DEVUAN, _CUMULUS, _MINT = "Debian", "Ubuntu", "Kali", "Devuan", "Cumulus Linux", "Linux Mint"
# Words in the file of a relative of Debian, in this order, and its name.
_RELATIVES = (
    ("Debian", _DEBIAN),
    ("Raspbian", _DEBIAN),
    ("Ubuntu", _UBUNTU),
    ("SteamOS", "SteamOS"),
    ("Kali", _KALI),
    ("Parrot", "Parrot"),
    ("Devuan", _DEVUAN),
    ("Cumulus", _CUMULUS),
    ("Mint", _MINT),
    ("UOS", "Uos"),
    ("Uos", "Uos"),
    ("uos", "Uos"),
    ("Deepin", "Deepin"),
    ("deepin", "Deepin"),
    ("LMDE", "Linux Mint Debian Edition"),
)
_SUSE_VARIANTS = {"server-sap": "SLES_SAP", "sles-sap": "SLES_SAP", "transactional": "SL-Micro"}
_SUSE_PRODUCTS = {"SLES_SAP.prod": "SLES_SAP", "SL-Micro.prod": "SL-Micro"}
_FAMILIES = {
    "RedHat": (
        *("RedHat", "RHEL", "Fedora", "CentOS", "Scientific", "SLC", "Ascendos", "CloudLinux", "PSBM", "OracleLinux"),
        *("OVS", "OEL", "Amazon", "Amzn", "Virtuozzo", "XenServer", "Alibaba", "EulerOS", "openEuler", "AlmaLinux"),
        *("Rocky", "TencentOS", "EuroLinux", "Kylin Linux Advanced Server", "MIRACLE"),
    ),
    "Debian": (
        *("Debian", "Ubuntu", "Raspbian", "Neon", "KDE neon", "Linux Mint", "SteamOS", "Devuan", "Kali"),
        *("Cumulus Linux", "Pop!_OS", "Parrot", "Pardus GNU/Linux", "Uos", "Deepin", "OSMC"),
        "Linux Mint Debian Edition",
    ),
    "Suse": (
        *("SuSE", "SLES", "SLED", "openSUSE", "openSUSE Tumbleweed", "SLES_SAP", "SUSE_LINUX", "openSUSE Leap"),
        *("ALP-Dolomite", "SL-Micro", "openSUSE MicroOS"),
    ),
    "Archlinux": ("Archlinux", "Antergos", "Manjaro"),
    "Gentoo": ("Gentoo", "Funtoo"),
}


def system_facts(files: HostFiles) -> dict[str, Any]:
    """The facts of ansible.builtin.setup about platform, distribution and user, with its prefix `ansible_`."""
    facts = {**_platform(files), **distribution(files), **_user()}
    return {f"ansible_{name}": value for name, value in facts.items()}


def _platform(files: HostFiles) -> dict[str, Any]:
    machine, fqdn, bits = platform.machine(), socket.getfqdn(), str(struct.calcsize("P") * 8)
    found = {
        "system": platform.system(),
        "kernel": platform.release(),
        "kernel_version": platform.version(),
        "machine": machine,
        "python_version": platform.python_version(),
        "fqdn": fqdn,
        "hostname": platform.node().split(".")[0],
        "nodename": platform.node(),
        "domain": ".".join(fqdn.split(".")[1:]),
        "userspace_bits": bits,
        "architecture": machine,
    }
    is_i386 = re.search("i([3456]86|86pc)", machine) is not None
    if is_i386:
        found["architecture"] = "i386"
    if is_i386 or machine == "x86_64":
        found["userspace_architecture"] = "x86_64" if bits == "64" else "i386"
    for path in ("/var/lib/dbus/machine-id", "/etc/machine-id"):
        text = (files.read(path) or "").strip()
        if text:
            found["machine_id"] = text.splitlines()[0]
            break
    return found


def _user() -> dict[str, Any]:
    name = getpass.getuser()
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        user = pwd.getpwuid(os.getuid())
    return {
        "user_id": name,
        "user_uid": user.pw_uid,
        "user_gid": user.pw_gid,
        "user_gecos": user.pw_gecos,
        "user_dir": user.pw_dir,
        "user_shell": user.pw_shell,
        "real_user_id": os.getuid(),
        "effective_user_id": os.geteuid(),
        "real_group_id": os.getgid(),
        # As Ansible has it.
        "effective_group_id": os.getgid(),
    }


def distribution(files: HostFiles) -> dict[str, Any]:
    """The facts about the distribution, by the file that Ansible takes them from."""
    system = platform.system()
    if system != "Linux":
        return {
            "distribution": system,
            "distribution_release": platform.release(),
            "distribution_version": platform.version(),
            "os_family": system,
        }
    codename = get_distribution_codename()
    facts: dict[str, Any] = {
        "distribution": get_distribution() or _UNKNOWN,
        "distribution_version": get_distribution_version() or _UNKNOWN,
        "distribution_release": _UNKNOWN if codename is None else codename,
    }
    facts["distribution_major_version"] = facts["distribution_version"].split(".")[0] or _UNKNOWN
    for path, name in _FILES:
        text = (files.read(path) or "").strip()
        if name == "Archlinux" and path != _OS_RELEASE and files.exists(path):
            # Its content has no meaning.
            facts.update(distribution=name, distribution_file_path=path, distribution_file_variety=name)
            break
        found = _parsed(text.strip(_QUOTES), path, name, facts, files) if text else None
        if found is not None:
            variety = {"distribution_file_path": path, "distribution_file_variety": name}
            facts.update({"distribution": name, **variety, "distribution_file_parsed": True, **found})
            break
    name = facts["distribution"]
    facts["os_family"] = next((family for family, names in _FAMILIES.items() if name in names), name)
    return facts


def _parsed(text: str, path: str, name: str, guess: dict[str, Any], files: HostFiles) -> dict[str, Any] | None:
    """What a file has about the distribution; None where it is not about the one of this name."""
    if name in _NAMED_BY_TEXT:
        sought = _NAMED_BY_TEXT[name]
        if sought in text:
            return {"distribution": name, "distribution_file_search_string": sought}
        return {"distribution": text.split(maxsplit=1)[0]}
    if name == "CentOS":
        if "CentOS Stream" in text:
            return {"distribution_release": "Stream"}
        return {"distribution": "TencentOS"} if "TencentOS Server" in text else None
    if name == "Amazon":
        return _amazon(text, path) if "Amazon" in text else None
    if name == "Alpine":
        return {"distribution_version": text}
    if name == "Archlinux":
        return {} if "Arch Linux" in text else None
    if name == "SUSE":
        return _suse(text, files) if "suse" in text.lower() else None
    if name == "Debian":
        relative = next((known for word, known in _RELATIVES if word in text), None)
        return None if relative is None else {"distribution": relative, **_relative(text, relative, files)}
    if name == "Flatcar":
        version = _first("VERSION=(.*)", text).strip('"')
        if str(get_distribution()).lower() != "flatcar":
            return None
        return {"distribution_major_version": version.split(".")[0], "distribution_version": version} if version else {}
    found = {"distribution": _first("^NAME=(.*)", text).strip('"')}
    if guess["distribution_version"] == _UNKNOWN:
        found["distribution_version"] = _first("^VERSION=(.*)", text).strip('"')
    return {key: value for key, value in found.items() if value}


def _amazon(text: str, path: str) -> dict[str, Any]:
    if path != _OS_RELEASE:
        return {"distribution_version": next((word for word in text.split() if word.isdigit()), _UNKNOWN)}
    version = _first('VERSION_ID="(.*)"', text)
    if not version:
        return {}
    major, _dot, minor = version.partition(".")
    return {
        "distribution_version": version,
        "distribution_major_version": major,
        "distribution_minor_version": minor or _UNKNOWN,
    }


def _suse(text: str, files: HostFiles) -> dict[str, Any]:
    found = {}
    name, version = _first("^NAME=(.*)", text).strip('"'), _first(r'^VERSION_ID="?([0-9]+\.?[0-9]*)"?', text)
    if name:
        found["distribution"] = name
    if version:
        major, _dot, minor = version.partition(".")
        found.update(distribution_version=version, distribution_major_version=major)
        if "open" in text.lower():
            found["distribution_release"] = minor
        elif "enterprise" in text.lower():
            found["distribution_release"] = minor or "0"
    variant = re.search(r'^VARIANT_ID="?([^"\n]*)"?', text, re.MULTILINE)
    if variant:
        special = _SUSE_VARIANTS.get(variant[1])
    else:
        product = "/etc/products.d/baseproduct"
        special = _SUSE_PRODUCTS.get(files.resolve(product).rpartition("/")[2]) if files.is_link(product) else None
    if special:
        found["distribution"] = special
    return found


def _relative(text: str, name: str, files: HostFiles) -> dict[str, Any]:
    """What a file has about Debian or a relative of it; of those without a case the guess is right."""
    found = {}
    if name == _DEBIAN:
        found = {
            "distribution_release": _first(r"PRETTY_NAME=[^(]+ \(?([^)]+?)\)", text),
            "distribution_minor_version": _first(r"\d+\.(\d+)", files.read("/etc/debian_version") or ""),
        }
    elif name in (_KALI, "Parrot"):
        found = {"distribution_release": _first("DISTRIB_RELEASE=(.*)", text)}
    elif name == _DEVUAN:
        version = _first('VERSION_ID="(.*)"', text)
        release = _first(r"PRETTY_NAME=\"?[^(\"]+ \(?([^) \"]+)\)?", text)
        found = {"distribution_release": release, "distribution_version": version}
        found["distribution_major_version"] = version
    elif name == _CUMULUS:
        version = _first("VERSION_ID=(.*)", text)
        found = {"distribution_release": _first('VERSION="(.*)"', text), "distribution_version": version}
        found["distribution_major_version"] = version.split(".")[0]
    elif name in (_MINT, "Uos", "Deepin"):
        version = _first('VERSION_ID="(.*)"', text)
        found = {"distribution_version": version, "distribution_major_version": version.split(".")[0]}
        if name != _MINT:
            found["distribution_release"] = _first(r"VERSION_CODENAME=\"?([^\"]+)\"?", text)
    return {key: value for key, value in found.items() if value}


def _first(pattern: str, text: str) -> str:
    """The group of the first match, with lines for `^`; empty where there is none."""
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""
