# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts x releases x branches x kernel modules on real indexes: apt does what the role predicts, no removal is unnamed.

The role's transaction, with its versions, removals and preferences, on hosts whose driver it has not installed; more
hosts on Debian's live archive: tests/live_archive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackagePlan
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import family as driver_family

from tests.conftest import COUNT, EFFORT
from tests.unit.real_indexes.apt_root import AptRoot, field_of
from tests.unit.real_indexes.test_branches import ask, cases, plan_on, planned
from tests.unit.real_indexes.test_hosts import HOSTS as UBUNTU_HOSTS
from tests.unit.real_indexes.test_hosts import sources

Roots = Callable[[str], AptRoot]

DEBIAN_HOSTS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "driver with X": ("nvidia-driver",),
    "driver without X": ("nvidia-smi", "libcuda1", "nvidia-kernel-dkms", "nvidia-persistenced"),
    "driver and CUDA of the distribution": ("nvidia-driver", "nvidia-cuda-toolkit"),
    "CUDA of the distribution alone": ("nvidia-cuda-toolkit",),
    "firmware alone": ("firmware-nvidia-gsp",),
}
# The driver of the long-term branch, which Debian keeps under names of its own.
TESLA: dict[str, tuple[str, ...]] = {"tesla driver": ("nvidia-tesla-535-driver",)}
HOSTS = {"noble": UBUNTU_HOSTS, "jammy": UBUNTU_HOSTS, "bookworm": {**DEBIAN_HOSTS, **TESLA}, "trixie": DEBIAN_HOSTS}
# The newest kernel of each release, and the one before with its modules and driver, which has left the archive.
KERNELS = {"noble": "6.8.0-151", "jammy": "5.15.0-204"}
BEHIND = {
    "noble": {"6.8.0-151": "6.8.0-150", "580.178.04": "580.159.04"},
    "jammy": {"5.15.0-204": "5.15.0-203", "580.178.04": "580.159.04"},
}
RELEASES = {
    "noble": ("Ubuntu", "24"),
    "jammy": ("Ubuntu", "22"),
    "bookworm": ("Debian", "12"),
    "trixie": ("Debian", "13"),
}
LIBRARIES = r"libnvidia-compute-.*|libcuda1"
MODULES = r"nvidia-(?:dkms|open-kernel|kernel-dkms|kernel-open)|linux-modules-nvidia-\d"
OLD_KERNEL = "precompiled modules for a kernel one version behind"


@dataclass(frozen=True)
class Case:
    """A host and a request. `permitted`: nvidia_driver_replace_unmanaged, so that the role may remove packages."""

    release: str
    host: str
    name: str
    version: str
    kind: str
    permitted: bool
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.release}, {self.host}, {self.name}{', may replace' if self.permitted else ''}"


def all_cases() -> Iterator[Case]:
    """Every release, host and real branch with all kinds of modules, with and without permission to remove."""
    for release, hosts in HOSTS.items():
        for host in (*hosts, *([OLD_KERNEL] if release in BEHIND else [])):
            for name, request in requests(release):
                for permitted in (False, True):
                    yield Case(release, host, name, permitted=permitted, **request)


def requests(release: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each branch, kind of modules, series and build of a release, by a name."""
    if release not in KERNELS:
        for version in ("newest", *(["535.261.03"] if release == "bookworm" else [])):
            for kind, headless in product(("open", "proprietary"), (True, False)):
                name = f"{kind}{'' if version == 'newest' else f' {version}'}{'' if headless else ' with X'}"
                yield name, {"version": version, "kind": kind, "options": {"headless": headless}}
        return
    for name, (branch, kind, server, headless) in cases().items():
        # Branch 470, and X: in test_branches, on an empty host.
        if headless and branch != "470":
            series = {"ubuntu_series": "server" if server else "desktop"}
            yield name, {"version": branch, "kind": kind, "options": series}
            if server:
                options = {**series, "module_build": "precompiled"}
                yield f"{name} precompiled", {"version": branch, "kind": kind, "options": options}


class Prepared:
    """Each host, made on first use, and what apt prints there."""

    def __init__(self, roots: Roots, directory: Path) -> None:
        self._roots = roots
        self._directory = directory
        self.host = cache(self._host)
        self._ask = cache(self._asked)

    def _host(self, release: str, host: str) -> AptRoot:
        directory = self._directory / f"{release} {host}".replace(" ", "-")
        directory.mkdir()
        root = self._roots(release).host(directory)
        if host == OLD_KERNEL:
            root.install_older(UBUNTU_HOSTS["as ubuntu-drivers installs it"], BEHIND[release])
        else:
            root.install(*HOSTS[release][host])
        return root

    def _asked(self, release: str, host: str, queries: tuple[str, ...]) -> dict[str, Any]:
        return ask(self.host(release, host), queries)

    def plan(self, case: Case) -> dict[str, Any]:
        """The role's plan, which takes the driver for one that was there before."""
        root = self.host(case.release, case.host)
        system, release = RELEASES[case.release]
        family = driver_family(root.installed, sources(root))
        modules = [name for name in root.installed if re.match(MODULES, name)]
        facts: dict[str, Any] = {
            **{"system": system, "release": release, "kernel": f"{KERNELS.get(case.release, '6.1.0-38')}-generic"},
            **{"installed": root.installed, "family": family, "unmanaged": [] if case.permitted else family},
            "driver": driver_of(root.installed).partition("-")[0],
            "driver_kind": ("open" if any("open" in name for name in modules) else "proprietary") if modules else "",
            "is_part": not modules,
        }
        request: dict[str, Any] = {"version": case.version, "kernel_modules": case.kind, **case.options}
        request |= {"companions": ["persistence_daemon"], "replace_unmanaged": case.permitted}
        queries = planned(request, {**facts, "driver": "", "installed": {}})["queries"]
        return planned(request, facts, self._ask(case.release, case.host, tuple(queries)))


def driver_of(installed: Mapping[str, str]) -> str:
    """The version of the driver's libraries, empty for none."""
    return next((one for name, one in installed.items() if re.fullmatch(LIBRARIES, name)), "")


@pytest.fixture(scope="module")
def prepared(roots: Roots, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(roots, tmp_path_factory.mktemp("matrix"))


def outcome(case: Case, prepared: Prepared) -> tuple[PackagePlan | str, dict[str, Any], dict[str, str], dict[str, str]]:
    """The prediction, or why the role changes nothing; its plan; what apt would install and remove."""
    plan = prepared.plan(case)
    if plan["existing"] in ("kept", "refused") or plan["reasons"]:
        return "; ".join(plan["reasons"]) or f"{plan['existing']} {plan['version']}", plan, {}, {}
    root = prepared.host(case.release, case.host)
    found, installed, removed = root.transaction(plan["install"], plan["removals"], plan["preferences"])
    return found, plan, installed, removed


@pytest.mark.parametrize("case", list(all_cases())[:: 5 if EFFORT == "quick" else 1], ids=str)
def test_no_removal_is_unnamed(
    case: Case, prepared: Prepared, record_property: Callable[[str, dict[str, int]], None]
) -> None:
    root = prepared.host(case.release, case.host)
    before = root.installed
    found, plan, installed, removed = outcome(case, prepared)
    named = set(plan["removals"])
    if isinstance(found, str):
        unnamed = set(removed) - named - set(re.findall(r"[a-z0-9][a-z0-9+.-]+", found))
    else:
        unnamed = set(removed) - named
        assert (dict(found.install), set(found.remove)) == (installed, set(removed))
        assert case.permitted or not removed
    record_property(
        f"{COUNT}real indexes",
        {
            "cases": 1,
            "planned": int(not isinstance(found, str)),
            "kept or refused": int(isinstance(found, str)),
            "unnamed removals": len(unnamed),
        },
    )
    assert unnamed == set()
    if isinstance(found, PackagePlan):
        after = {name: version for name, version in {**before, **installed}.items() if name not in removed}
        asked = dict(item.partition("=")[::2] for item in plan["install"])
        assert all(after[name] == (version or after[name]) for name, version in asked.items())
        one_driver(case, root, after)
        # The distribution's CUDA stays whatever becomes of the driver.
        assert "nvidia-cuda-toolkit" not in before or after["nvidia-cuda-toolkit"] == before["nvidia-cuda-toolkit"]


def one_driver(case: Case, root: AptRoot, after: dict[str, str]) -> None:
    """After the change the host has libraries and modules of one driver, of the requested branch."""
    libraries = {name: version for name, version in after.items() if re.fullmatch(LIBRARIES, name)}
    assert len(libraries) == 1, libraries
    (version,) = libraries.values()
    assert case.version in ("newest", version.split(".")[0], version.split("-")[0])
    providers = {
        field_of(stanza, "Package")
        for stanza in root.stanzas
        if re.search(
            r"nvidia-kernel-common-[0-9]{3}(?:-server)?-[0-9.]+|nvidia-kernel-[0-9.]+", field_of(stanza, "Provides")
        )
    }
    assert len({after[name].split("-")[0] for name in providers & set(after)} | {version.split("-")[0]}) == 1


EXPECTED: dict[tuple[str, str, str, bool], str] = {
    # Nothing on the host: the branch comes, and nothing else.
    ("noble", "nothing", "580 open server", False): "580.178.04",
    ("noble", "nothing", "595 open server", False): "595.91.07",
    ("noble", "nothing", "595 open desktop", False): "595.99.02",
    ("noble", "nothing", "615 open server", False): "615.71.09",
    ("jammy", "nothing", "580 proprietary server", False): "580.178.04",
    # Debian 12 has no open modules for its driver.
    ("bookworm", "nothing", "open", False): "set nvidia_driver_version to 535.261.03",
    ("bookworm", "nothing", "proprietary", False): "535.309.01",
    ("bookworm", "nothing", "open 535.261.03 with X", False): "535.261.03",
    ("bookworm", "nothing", "proprietary 535.261.03 with X", False): "535.261.03",
    # Another kind of modules: of the installed 535.309.01 there are no open ones.
    ("bookworm", "driver with X", "open", True): "set nvidia_driver_version to 535.261.03",
    ("trixie", "nothing", "open", False): "550.163.01",
    ("trixie", "nothing", "proprietary", False): "550.163.01",
    # What is there stays, and another driver in its place is refused.
    ("noble", "server driver", "580 open server", False): "580.178.04",
    ("noble", "server driver", "595 open server", False): "refused 580.178.04",
    ("noble", "server driver", "595 open server", True): "595.91.07",
    ("noble", "desktop driver", "580 open server", False): "kept 580.178.04",
    ("noble", "driver and CUDA of the distribution", "595 open server", True): "595.91.07",
    (
        "noble",
        "CUDA of the distribution alone",
        "595 open server",
        False,
    ): "libnvidia-compute-580-server, nvidia-kernel-common",
    ("trixie", "CUDA of the distribution alone", "proprietary", False): "550.163.01",
    ("trixie", "driver with X", "proprietary", False): "550.163.01",
    ("bookworm", "tesla driver", "proprietary", True): "535.309.01",
    # The modules of the old kernel are of the old driver: they would have to go with it.
    ("noble", OLD_KERNEL, "580 open server", False): "kept 580.159.04",
    (
        "noble",
        OLD_KERNEL,
        "580 open server precompiled",
        False,
    ): "linux-modules-nvidia-580-server-open-6.8.0-150-generic",
    ("noble", OLD_KERNEL, "580 open server precompiled", True): "580.178.04",
    ("jammy", OLD_KERNEL, "580 open server precompiled", True): "580.178.04",
}


@pytest.mark.parametrize("expected", EXPECTED, ids=str)
def test_what_comes_or_why_not(expected: tuple[str, str, str, bool], prepared: Prepared) -> None:
    (case,) = [case for case in all_cases() if (case.release, case.host, case.name, case.permitted) == expected]
    found, _plan, installed, removed = outcome(case, prepared)
    # A version comes; anything else is a reason.
    assert isinstance(found, PackagePlan) is bool(re.fullmatch(r"[0-9.]+", EXPECTED[expected])), found
    if isinstance(found, str):
        assert EXPECTED[expected] in found
    else:
        before = prepared.host(case.release, case.host).installed
        after = {name: version for name, version in {**before, **installed}.items() if name not in removed}
        assert EXPECTED[expected] in driver_of(after)


def test_the_package_of_debian_for_a_gpu_that_its_driver_has_dropped_is_named(prepared: Prepared) -> None:
    root = prepared.host("bookworm", "nothing")
    found = plan_on(root, {"kernel_modules": "auto"}, {"system": "Debian", "release": "12", "gpus": ["Tesla K80"]})
    assert "Debian has nvidia-tesla-470-driver for these GPUs" in "; ".join(found["reasons"])
