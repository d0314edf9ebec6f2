# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of docs/driver.md claims what the tests have, platform by source by architecture, and README no more."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import PLATFORMS, Platform
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import (
    DriverRequest,
    DriverRequestError,
    packages_for,
)

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("cuda_repository", "distribution", "ppa", "local_repository", "runfile")
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}
# The machines on which the tests run, and the indexes.
TESTED = "x86_64"
TABLE = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/packages.yml").read_text(encoding="utf-8"))[
    "__nvidia_driver_package_table"
]
REALITY = yaml.safe_load((ROOT / "tests/unit/mock_repositories/reality.yml").read_text(encoding="utf-8"))

Combination = tuple[str, str, str]
"""A platform, a source and an architecture."""


def read(path: str) -> Any:
    """A YAML file of the project."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def platform_of(suite: str) -> str:
    """The platform that a host image stands for; `noble` and `ubuntu2404` are both Ubuntu 24.04, `el9` is EL 9."""
    (found,) = [
        row.name
        for row in PLATFORMS
        if suite in (row.docker_suite, row.cuda_repository, row.name.lower().replace(" ", ""))
    ]
    return found


def suites(inventory: Any) -> dict[str, str]:
    """The host images of an inventory by host."""
    found: dict[str, str] = {}
    if isinstance(inventory, dict):
        for name, value in inventory.items():
            if isinstance(value, dict) and "testbed_suite" in value:
                found[name] = value["testbed_suite"]
            found |= suites(value)
    return found


def offered(platform: Platform, source: str, architecture: str) -> bool:
    """Whether the role has packages, and NVIDIA serves the architecture."""
    if source == "runfile":
        return True
    if source == "cuda_repository":
        directory = REALITY["directories"].get(platform.cuda_repository, {})
        served = [*directory.get("architectures", ARCHITECTURES.values()), *directory.get("unknown", ())]
        if ARCHITECTURES[architecture] not in served:
            return False
    system = "RedHat" if platform.manager == "dnf" else platform.name.split()[0]
    # Enterprise Linux's own are of some of its distributions, and never built on the host.
    of_some = [("precompiled", "RedHat"), ("precompiled", "AlmaLinux")] if platform.name.startswith("EL ") else []
    for build, distribution in (("dkms", ""), *of_some):
        request = DriverRequest(source, system, architecture, "580", "open", build, distribution=distribution)
        with suppress(DriverRequestError):
            return bool(packages_for(request, TABLE))
    return False


def on_a_real_system() -> set[Combination]:
    """Real packages of the distribution that a test installs and builds."""
    hosts = suites(read("tests/full/hosts.yml"))
    test = (ROOT / "tests/full/test_nvidia_driver_debian_build.py").read_text(encoding="utf-8")
    (host,) = re.findall(r'^_HOST = "(.*)"$', test, re.MULTILINE)
    return {(platform_of(hosts[host]), "distribution", TESTED)}


def on_real_metadata() -> set[Combination]:
    """Distributions whose index is in the tests."""
    found = (ROOT / "tests/unit/real_indexes").glob("*.Packages.xz")
    return {(platform_of(path.name.partition(".")[0]), "distribution", TESTED) for path in found}


def on_mocks() -> set[Combination]:
    """The scenario nvidia_driver with its change to a runfile, and the tests of sources and of distributions."""
    inventory = read("molecule/inventory/hosts.yml")
    images = suites(inventory)
    groups = inventory["all"]["children"]["testbed_hosts"]["children"]
    scenario = [images[host] for host in groups["vendor_hosts"]["hosts"]]
    default = read("roles/nvidia_driver/defaults/main.yml")["nvidia_driver_source"]
    (runfile,) = [
        task for task in read("molecule/nvidia_driver/side_effect.yml")[0]["tasks"] if "tasks/runfile.yml" in str(task)
    ]
    without = re.findall(r"testbed_suite != '(\w+)'", str(runfile.get("when", "")))
    found = {(suite, default) for suite in scenario} | {
        (suite, "runfile") for suite in scenario if suite not in without
    }
    found |= {(suite, default) for suite in suites(read("tests/system/distributions/hosts.yml")).values()}
    hosts = suites(read("tests/system/driver_sources/hosts.yml"))
    test = (ROOT / "tests/system/test_nvidia_driver_sources.py").read_text(encoding="utf-8")
    for host, source in re.findall(
        r'_install\(\s*("[\w-]+"|host), nvidia_driver_source="(\w+)"', re.sub(r"\n\s+", " ", test)
    ):
        found |= {(suite, source) for name, suite in hosts.items() if host in ("host", f'"{name}"')}
    return {(platform_of(suite), source, TESTED) for suite, source in found}


def expected() -> list[list[str]]:
    """The rows of the table."""
    known = {"tried": on_a_real_system(), "metadata": on_real_metadata(), "mock": on_mocks()}

    def state(platform: Platform, source: str, architecture: str) -> str:
        if not offered(platform, source, architecture):
            return "not offered"
        tests = (word for word, found in known.items() if (platform.name, source, architecture) in found)
        return next(tests, "untried")

    return [
        [row.name, architecture, *(state(row, source, architecture) for source in SOURCES)]
        for row in PLATFORMS
        for architecture in ARCHITECTURES
    ]


def test_the_table_claims_what_the_tests_have() -> None:
    section = (ROOT / "docs/driver.md").read_text(encoding="utf-8").partition("\n## What has been tried\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["system", "architecture", *SOURCES]
    assert [row for row in rows[1:] if len(row) == len(rows[0]) and not set("".join(row)) <= set("- ")] == expected()


def test_every_test_is_in_the_table() -> None:
    named = {state for row in expected() for state in row[2:]}
    assert named == {"tried", "metadata", "mock", "untried", "not offered"}
    offers = {
        (row[0], source, row[1]): state for row in expected() for source, state in zip(SOURCES, row[2:], strict=True)
    }
    for combination in on_a_real_system() | on_real_metadata() | on_mocks():
        assert offers[combination] in ("tried", "metadata", "mock")


def test_the_readme_claims_no_more() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Where it has been tried\n")[2].partition("\n## ")[0]
    assert "(docs/driver.md#what-has-been-tried)" in section
    text = re.sub(
        r"(Debian|Ubuntu) ([\d.]*\d) and ([\d.]*\d)", r"\1 \2, \1 \3", section.replace("Enterprise Linux", "EL")
    )
    claimed = set(re.findall(r"(?:Debian|Ubuntu|EL) [\d.]*\d", text))
    used = {row[0] for row in expected() if {"tried", "metadata", "mock"} & set(row[2:])}
    assert claimed
    assert claimed <= used
