# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table "Where to add" of docs/architecture.md, done: a distribution and a source of drivers that do not exist.

Of the row "a role" each file that it has names each role.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import Platform
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning import platforms
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import options_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import DEFAULT_ROLES, REMOVED_ROLES, ROLES
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import nvidia_repository
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver import offers, sources

from tests.conftest import ROOT
from tests.unit.driver.plans import DEBIAN, EL, UBUNTU, chosen, driver, driver_plan, facts
from tests.unit.site.test_variables import FILES, host, preflight

NEW_DEBIAN = {**DEBIAN, "distribution_version": "14", "distribution_major_version": "14", "distribution_release": "new"}
NEW_UBUNTU = {**UBUNTU, "distribution_version": "28.04", "distribution_major_version": "28"}
NEW_EL = {**EL, "distribution_version": "11.0", "distribution_major_version": "11"}
ROWS = {
    "Debian 14": (NEW_DEBIAN, Platform("Debian 14", "apt", "debian14", "8793F200", "debian", "new", ("docker.io",))),
    "Ubuntu 28.04": (NEW_UBUNTU, Platform("Ubuntu 28.04", "apt", "ubuntu2804", "60DF8A40", "ubuntu", "u28")),
    "EL 11": (NEW_EL, Platform("EL 11", "dnf", "rhel11", "CDF6BA43", "centos", gcc="15")),
}


def _add(monkeypatch: pytest.MonkeyPatch, row: Platform) -> None:
    monkeypatch.setitem(platforms._BY_NAME, row.name, row)


def _refusals(system: Mapping[str, Any], roles: tuple[str, ...]) -> tuple[str, ...]:
    return preflight({}, host(system), roles).refusals


@pytest.mark.parametrize("name", ROWS)
def test_a_distribution_is_a_row_for_all_roles(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    system, row = ROWS[name]
    # Enroot's packages are given by URL, and Slurm and Kubernetes are there.
    refused = _refusals(system, DEFAULT_ROLES)
    assert any(one.startswith(f"{name.replace('EL', 'Rocky')} is not supported by the role") for one in refused)
    _add(monkeypatch, row)
    assert _refusals(system, ROLES) == ()


@pytest.mark.parametrize("name", ROWS)
def test_its_repository_and_its_driver_follow_from_the_row(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    system, row = ROWS[name]
    _add(monkeypatch, row)
    on = nvidia_repository.Host(platforms.platform_of(system), "x86_64", row.manager, "new", {})
    asked = nvidia_repository.Request(nvidia_repository.CUDA)
    assert nvidia_repository.plan(asked, on, FILES.tables.keys).refusals == ()
    assert f"/repos/{row.cuda_repository}/x86_64" in str(nvidia_repository.define(asked, on, FILES.tables.keys))
    assert driver(facts(system)).get("steps") == ["install", "activate"]
    assert chosen(facts(system), with_companions=True, nvidia_driver_version="580")["refusals"] == []


SOURCE = sources.Source("vendor_pool", "cuda", re.compile(r"//drivers\.example\.com/"))
PACKAGES = [
    {
        "origins": [SOURCE.name],
        "systems": ["Ubuntu"],
        "probe": "vendor-gpu-<branch>",
        "compute": ["vendor-gpu-<branch>"],
        "dkms_open": ["vendor-gpu-dkms-<branch><open>"],
    }
]
OFFERED = {
    "shown": "".join(
        f"Package: {name}\nVersion: {version}\n\n"
        for name in ("vendor-gpu-580", "vendor-gpu-dkms-580-open")
        for version in ("580.95.05-1", "580.90.01-1")
    ),
    "listed": "".join(
        f"{name}:\n  Installed: (none)\n  Candidate: 580.95.05-1\n  Version table:\n"
        "     580.95.05-1 500\n        500 https://other.example.com/pool ./ Packages\n"
        "     580.90.01-1 500\n        500 https://drivers.example.com/pool ./ Packages\n"
        for name in ("vendor-gpu-580", "vendor-gpu-dkms-580-open")
    ),
    "is_complete": True,
}


def test_each_source_is_a_choice_of_the_role() -> None:
    assert options_of("nvidia_driver")["nvidia_driver_source"]["choices"] == [one.name for one in sources.SOURCES]


def test_a_source_of_drivers_is_a_row_and_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOURCES", (*sources.SOURCES, SOURCE))
    planned = driver(facts(UBUNTU), nvidia_driver_source=SOURCE.name)
    assert planned["source_repository"] == SOURCE.repository
    assert sources.source_named(SOURCE.name) == SOURCE
    assert offers.source_of("https://drivers.example.com/pool ./", {}) == SOURCE.name
    asked = {"source": SOURCE.name, "version": "580"}
    known = {"system": "Ubuntu", "release": "24.04", "architecture": "x86_64", "kernel": UBUNTU["kernel"]}
    plan = driver_plan(asked, known, OFFERED, PACKAGES)
    assert plan["reasons"] == []
    # The newer one is in the archive of another site.
    assert plan["install"] == ["vendor-gpu-580=580.90.01-1", "vendor-gpu-dkms-580-open=580.90.01-1"]
    assert [pin["priority"] for pin in plan["pins"]] == [offers.PINNED]


NAMED = {
    "plugins/plugin_utils/_planning/registry.py": ROLES,
    "plugins/modules/role_plan.py": ROLES,
    "plugins/modules/host_facts.py": ROLES,
    "playbooks/site.yml": ROLES,
    "docs/site.md": ROLES,
    "playbooks/decommission.yml": tuple(f"{role}_state" for role in REMOVED_ROLES),
    "playbooks/decommission_tasks/refuse.yml": tuple(f"{role}_state" for role in REMOVED_ROLES),
}
"""The files of the row "a role", and what each of them names."""


@pytest.mark.parametrize("path", NAMED)
def test_each_role_is_named_where_the_row_has_it(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    assert [name for name in NAMED[path] if not re.search(rf"(?<!\w){name}(?!\w)", text)] == []
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if line.startswith("| a role |"))
    assert Path(path).name.removesuffix(".py") in row
