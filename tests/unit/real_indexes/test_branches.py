# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Branches of Ubuntu's own driver as its index has them: real ones are planned, transitional ones are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.driver.plans import driver_plan
from tests.unit.real_indexes.apt_root import AptRoot

Roots = Callable[[str], AptRoot]
ROOT = Path(__file__).resolve().parents[3]
TABLE = yaml.safe_load((ROOT / "roles/nvidia_driver/vars/packages.yml").read_text(encoding="utf-8"))[
    "__nvidia_driver_package_table"
]
KERNELS = {"Ubuntu": "6.8.0-151-generic", "Debian": "6.12.0-1-amd64", "RedHat": "5.14.0-503.14.1.el9_5.x86_64"}


def planned(
    request: Mapping[str, Any], facts: Mapping[str, Any] | None = None, offered: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The plan for a request of Ubuntu's own packages, by default, on a host without anything."""
    host: dict[str, Any] = {"system": "Ubuntu", "release": "24", "architecture": "x86_64", **(facts or {})}
    asked = {"source": "distribution", "version": "newest", "kernel_modules": "open", **request}
    found = dict(offered or {})
    if "|" in found.get("listed", ""):
        found["listed"] = as_policy(found["listed"])
    return driver_plan(asked, {"kernel": KERNELS[host["system"]], **host}, found, TABLE)


def as_policy(rows: str) -> str:
    """What `apt-cache policy` prints for rows of name, version and place, separated by `|`."""
    cells = [[cell.strip() for cell in row.split("|")] for row in rows.splitlines() if row.count("|") == 2]
    return "".join(
        f"{name}:\n  Version table:\n     {version} 500\n        500 {place} suite/main amd64 Packages\n"
        for name, version, place in cells
    )


def ask(root: AptRoot, queries: Sequence[str]) -> dict[str, Any]:
    """What the role reads of apt for these queries, when all repositories are configured."""
    shown = root.run(["apt-cache", "show", *queries]).text
    names = dict.fromkeys(re.findall(r"(?m)^Package: (.+)$", shown))
    return {"shown": shown, "listed": root.run(["apt-cache", "policy", *names]).text, "is_complete": True}


def plan_on(root: AptRoot, request: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The plan of the role on this host: it asks apt about the packages of all branches."""
    host = {"installed": root.installed, **(facts or {})}
    return planned(request, host, ask(root, planned(request, host)["queries"]))


def plan(root: AptRoot, version: str, kind: str = "open", **other: Any) -> dict[str, Any]:
    """As plan_on, for an empty host. `other`: server, kernel, system, parts, and fields of the request."""
    facts: dict[str, Any] = {name: other.pop(name) for name in ("kernel", "system") if name in other}
    series = "server" if other.pop("server", True) else "desktop"
    parts = other.pop("parts", ["persistence_daemon"])
    request = {"version": version, "kernel_modules": kind, "ubuntu_series": series, "companions": parts, **other}
    return plan_on(root, request, {**facts, "installed": {}})


def real(kind: str, server: bool) -> str:
    """The branches that Ubuntu really has."""
    return {
        ("open", True): "580, 595, 615",
        ("open", False): "580, 595, 615",
        ("proprietary", True): "470, 580, 595",
        ("proprietary", False): "470, 580, 595",
    }[kind, server]


@pytest.mark.parametrize("release", ["noble", "jammy"])
@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize("kind", ["open", "proprietary"])
@pytest.mark.parametrize(
    ("branch", "becomes"),
    [("535", "580"), ("550", "580"), ("570", "580"), ("575", "580"), ("590", "595")],
)
def test_a_transitional_branch_is_refused(
    branch: str, becomes: str, *, kind: str, server: bool, release: str, roots: Roots
) -> None:
    found = plan(roots(release), branch, kind, server=server)
    utils = "nvidia-utils-{}-server" if server else "nvidia-utils-{}"
    (refusal,) = found["reasons"]
    assert f"{utils.format(branch)} installs {utils.format(becomes)}" in refusal
    listed = refusal.rpartition(f"with {kind} kernel modules it has the branches ")[2]
    expected = real(kind, server)
    assert [name for name in expected.split(", ") if name not in listed.split(", ")] == []
    assert branch not in listed


@pytest.mark.parametrize("release", ["noble", "jammy"])
@pytest.mark.parametrize(
    ("version", "kind", "server", "message"),
    [
        ("610", "open", False, "nvidia-utils-610 installs nvidia-utils-615"),
        ("610", "open", True, "nvidia-utils-610-server does not exist"),
        ("615", "proprietary", True, "nvidia-dkms-615-server installs nvidia-dkms-615-server-open"),
        ("535.309.01", "open", True, "nvidia-utils-535-server installs nvidia-utils-580-server"),
        ("470", "open", True, "nvidia-dkms-470-server-open does not exist"),
        ("999", "open", True, "nvidia-utils-999-server does not exist"),
    ],
)
def test_what_is_not_there_is_refused(
    version: str, kind: str, *, server: bool, message: str, release: str, roots: Roots
) -> None:
    assert message in "".join(plan(roots(release), version, kind, server=server)["reasons"])


@pytest.mark.parametrize("release", ["noble", "jammy"])
@pytest.mark.parametrize("server", [True, False])
@pytest.mark.parametrize(("kind", "newest"), [("open", "615"), ("proprietary", "595")])
def test_newest_is_the_highest_real_branch(kind: str, newest: str, server: bool, release: str, roots: Roots) -> None:
    found = plan(roots(release), "newest", kind, server=server)
    assert (found["branch"], found["reasons"]) == (newest, [])


def cases() -> Mapping[str, tuple[str, str, bool, bool]]:
    """Every real branch with each kind of modules, series and desktop."""
    return {
        f"{branch} {kind} {'server' if server else 'desktop'}{'' if headless else ' with X'}": (
            branch,
            kind,
            server,
            headless,
        )
        for kind in ("open", "proprietary")
        for server in (True, False)
        for headless in (True, False)
        for branch in real(kind, server).split(", ")
    }


@pytest.mark.parametrize("release", ["noble", "jammy"])
@pytest.mark.parametrize("case", cases())
def test_a_real_branch_installs_its_own_packages(case: str, release: str, roots: Roots) -> None:
    branch, kind, server, headless = cases()[case]
    root = roots(release)
    found = plan(root, branch, kind, server=server, headless=headless)
    assert found["reasons"] == []
    installed = root.simulate(*found["packages"]["driver"])
    assert set(found["packages"]["driver"]) <= set(installed)
    of_driver = {name: version for name, version in installed.items() if f"-{branch}" in name}
    assert {version.split(".")[0] for version in of_driver.values()} == {branch}


@pytest.mark.parametrize("release", ["noble", "jammy"])
@pytest.mark.parametrize("case", cases())
def test_the_persistence_daemon_has_the_library_that_it_loads(case: str, release: str, roots: Roots) -> None:
    """nvidia-persistenced does not start without libnvidia-cfg.so.1, on which its package does not depend."""
    branch, kind, server, headless = cases()[case]
    root = roots(release)
    library = f"libnvidia-cfg1-{branch}-server" if server else f"libnvidia-cfg1-{branch}"
    found = plan(root, branch, kind, server=server, headless=headless)
    assert library in root.simulate(*found["packages"]["driver"])
    without = plan(root, branch, kind, server=server, headless=headless, parts=[])
    assert (library in root.simulate(*without["packages"]["driver"])) is not headless


@pytest.mark.parametrize(
    ("depends", "becomes"),
    [
        ("nvidia-utils-580-server", "nvidia-utils-580-server"),
        ("nvidia-utils-580-server (>= 580)", ""),
        ("nvidia-utils-580-server, libc6", ""),
        ("libnvidia-compute-580-server", ""),
        ("", ""),
    ],
)
def test_only_one_unversioned_dependency_of_the_same_kind_is_a_transition(depends: str, becomes: str) -> None:
    shown = f"Package: nvidia-utils-535-server\nVersion: 535.309.01-0ubuntu0.24.04.2\nDepends: {depends}\n"
    reasons = planned({"version": "535"}, {}, {"shown": shown})["reasons"]
    assert (f"nvidia-utils-535-server installs {becomes}" in "".join(reasons)) is bool(becomes)


def test_without_offers_nothing_is_refused() -> None:
    assert planned({"version": "535"})["reasons"] == []
    assert planned({"version": "newest"})["branch"] == ""
    assert planned({"version": "newest"})["unknowns"] != []


@pytest.mark.parametrize(
    ("release", "number", "kind", "version"),
    [("bookworm", "12", "proprietary", "2.13.5~11.8.0-5~deb12u1"), ("trixie", "13", "proprietary", "2.19.7~12.4.1-2")],
)
def test_gpudirect_storage_of_debian_comes_with_the_driver(
    release: str, number: str, kind: str, version: str, roots: Roots
) -> None:
    root = roots(release)
    facts = {"system": "Debian", "release": number}
    request = {"version": "newest", "kernel_modules": kind, "companions": ["persistence_daemon", "storage"]}
    found = plan_on(root, request, {**facts, "installed": {}})
    assert (found["reasons"], found["gpudirect"]) == ([], ["nvidia-fs-dkms"])
    (root.preferences / "driver").write_text(found["preferences"])
    installed = root.simulate(*found["install"])
    (root.preferences / "driver").unlink()
    assert installed["nvidia-fs-dkms"] == version
    assert found["version"] in installed["nvidia-kernel-dkms"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"module_build": "precompiled", "companions": ["gdrcopy"]}, "gdrcopy of nvidia_driver_gpudirect are built"),
        ({"kernel_modules": "proprietary", "companions": ["storage"]}, "needs the open kernel modules"),
        ({"source": "distribution", "companions": ["gdrcopy"]}, "distribution has no gdrcopy packages for Ubuntu"),
    ],
)
def test_gpudirect_that_cannot_be_built_is_refused(request_: dict[str, Any], message: str) -> None:
    asked = {"source": "cuda_repository", "version": "580", **request_}
    assert message in "; ".join(planned(asked)["reasons"])
