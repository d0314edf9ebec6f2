# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of supported distributions: the row of each host, and none for unknown hosts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.platform import RETURN, platform
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import PLATFORMS

from tests.unit.conftest import ROOT

KNOWN = ["Debian 12", "Debian 13", "Ubuntu 22.04", "Ubuntu 24.04", "Ubuntu 26.04", "EL 9", "EL 10", "Amazon Linux 2023"]


def facts(distribution: str, version: str, family: str) -> dict[str, str]:
    """The facts that Ansible gathers about a distribution."""
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.split(".", maxsplit=1)[0],
        "os_family": family,
    }


@pytest.mark.parametrize(
    ("distribution", "version", "family", "name", "manager"),
    [
        ("Debian", "12.11", "Debian", "Debian 12", "apt"),
        ("Debian", "13", "Debian", "Debian 13", "apt"),
        ("Ubuntu", "22.04", "Debian", "Ubuntu 22.04", "apt"),
        ("Ubuntu", "24.04", "Debian", "Ubuntu 24.04", "apt"),
        ("Ubuntu", "26.04", "Debian", "Ubuntu 26.04", "apt"),
        ("Rocky", "9.6", "RedHat", "EL 9", "dnf"),
        ("AlmaLinux", "10.0", "RedHat", "EL 10", "dnf"),
        ("OracleLinux", "9.5", "RedHat", "EL 9", "dnf"),
        ("CentOS", "10", "RedHat", "EL 10", "dnf"),
        ("Amazon", "2023", "RedHat", "Amazon Linux 2023", "dnf"),
    ],
)
def test_supported(distribution: str, version: str, family: str, name: str, manager: str) -> None:
    found = platform(facts(distribution, version, family))
    assert (found["supported"], found["name"], found["manager"]) == (True, name, manager)


@pytest.mark.parametrize(
    ("distribution", "version", "family", "name"),
    [
        ("Debian", "11.9", "Debian", "Debian 11"),
        ("Ubuntu", "20.04", "Debian", "Ubuntu 20.04"),
        ("Ubuntu", "24.10", "Debian", "Ubuntu 24.10"),
        ("Linux Mint", "22", "Debian", "Linux Mint 22"),
        # Red Hat's family, with different version numbers.
        ("Fedora", "42", "RedHat", "Fedora 42"),
        ("Amazon", "2", "RedHat", "Amazon 2"),
        ("CentOS", "7.9", "RedHat", "CentOS 7"),
        ("Slackware", "15.0", "Slackware", "Slackware 15"),
        # Another family with the same version number is not the same platform.
        ("SLES", "12", "Suse", "SLES 12"),
    ],
)
def test_not_supported(distribution: str, version: str, family: str, name: str) -> None:
    found = platform(facts(distribution, version, family))
    assert (found["supported"], found["name"], found["known"]) == (False, name, KNOWN)
    assert not any(value for key, value in found.items() if key not in ("name", "known"))


@pytest.mark.parametrize("distribution", ["RedHat", "Rocky", "AlmaLinux", "OracleLinux"])
def test_enterprise_linux_8_is_refused_with_the_reason(distribution: str) -> None:
    found = platform(facts(distribution, "8.10", "RedHat"))
    assert (found["supported"], found["manager"]) == (False, "")
    assert "Python 3.6" in found["reason"] and "upgrade the host to EL 9 or 10" in found["reason"]


def test_no_role_claims_enterprise_linux_8() -> None:
    for meta in sorted(ROOT.glob("roles/*/meta/main.yml")):
        platforms = yaml.safe_load(meta.read_text(encoding="utf-8"))["galaxy_info"].get("platforms", [])
        assert not [row for row in platforms if row["name"] == "EL" and "8" in row["versions"]], meta
    for text in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("roles/*/README.md")]:
        assert not re.findall(r"(?<!not )(?:EL|Enterprise Linux) 8", text.read_text(encoding="utf-8")), text


def test_a_host_without_facts_is_not_supported() -> None:
    assert platform({})["supported"] is False


@pytest.mark.parametrize("value", ["Debian 12", None, ["Debian"]])
def test_something_else_than_facts_is_refused(value: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="takes ansible_facts"):
        platform(value)


@pytest.mark.parametrize(("distribution", "directory"), [("RedHat", "rhel"), ("Rocky", "centos"), ("CentOS", "centos")])
def test_docker_has_a_repository_of_its_own_for_rhel(distribution: str, directory: str) -> None:
    assert platform(facts(distribution, "9", "RedHat"))["docker_repository"] == directory


def test_the_table_is_complete() -> None:
    assert [row.name for row in PLATFORMS] == KNOWN
    for row in PLATFORMS:
        assert row.cuda_repository and row.cuda_key and row.gcc, row.name
        assert row.docker_repository or row.docker_packages, row.name
        # Columns for apt only, and for repositories of Debian and Ubuntu only.
        assert bool(row.docker_suite) == bool(row.cuda_version) == (row.manager == "apt")
        assert row.docker_packages or row.manager == "dnf"


def test_the_documentation_has_every_field() -> None:
    documented = yaml.safe_load(RETURN)["_value"]["contains"]
    assert documented.keys() == platform({}).keys()
