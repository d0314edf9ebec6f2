# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases x GPUs x kinds x versions x what is installed on Debian's archive: plans come true, refusals are true."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackagePlan
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.packages import family as driver_family

from tests.conftest import COUNT
from tests.live_archive.archive import SUITES, ArchiveRoot
from tests.unit.real_indexes.apt_root import AptRoot, field_of
from tests.unit.real_indexes.test_branches import ask, planned

# By GPU: the first and the last branch, and the kinds of modules that it takes; NVIDIA's README of each branch.
GPUS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "NVIDIA H100": (525, 999, ("open", "proprietary")),
    "Tesla V100": (384, 580, ("proprietary",)),
    "NVIDIA B200": (570, 999, ("open",)),
    "Tesla K80": (340, 470, ("proprietary",)),
}
COMPUTE = ("nvidia-smi", "libcuda1", "libnvidia-ml1")
DESKTOP = ("nvidia-driver", "nvidia-smi", "libcuda1")
MODULES = {"open": "nvidia-open-kernel-dkms", "proprietary": "nvidia-kernel-dkms"}
# What is installed: libraries, the kind of the modules, and which of the archive's versions, newest first.
HOSTS: dict[str, tuple[tuple[str, ...], str, int]] = {
    "nothing": ((), "", 0),
    "driver without X": ((*COMPUTE, "nvidia-persistenced"), "proprietary", 0),
    "driver with X": (DESKTOP, "proprietary", 0),
    "older driver": (COMPUTE, "proprietary", 1),
    "open modules": (COMPUTE, "open", 0),
}


@dataclass(frozen=True)
class Case:
    """A host and a request. `version` is newest, branch, or a number: of the archive's versions, newest first."""

    suites: str
    host: str
    gpu: str
    kind: str
    version: str
    headless: bool

    def __str__(self) -> str:
        return f"{self.suites}, {self.host}, {self.gpu}, {self.kind} {self.version}{'' if self.headless else ' with X'}"


def all_cases() -> Iterator[Case]:
    """Debian's branches drive neither of the last two GPUs, so these have few cases."""
    for suites in SUITES:
        for number, host in enumerate(HOSTS):
            for gpu, (_first, _last, kinds) in GPUS.items():
                if gpu in ("NVIDIA B200", "Tesla K80"):
                    yield Case(suites, host, gpu, "auto", "newest", headless=True)
                    continue
                for kind in ("auto", *kinds):
                    for version in ("newest", "branch", "0", "1"):
                        headless = (number + len(kind) + len(version)) % 3 != 0
                        yield Case(suites, host, gpu, kind, version, headless)


class Archive:
    """The archive's roots with each host's packages, made on first use; what does not depend on the case is kept."""

    def __init__(self, directory: Path, lists: tuple[Path, str]) -> None:
        self._directory = directory
        self.lists, self.origin = lists
        self.root = cache(self._root)
        self.host = cache(self._host)
        self.revisions = cache(self._revisions)
        self.is_installable = cache(self._is_installable)
        self.shown = cache(self._shown)
        self.transaction = cache(self._transaction)

    def _root(self, suites: str) -> ArchiveRoot:
        return ArchiveRoot(self._directory / suites.replace(" ", "-"), SUITES[suites], self.lists)

    def _revisions(self, suites: str) -> tuple[str, ...]:
        """The versions of the driver in the archive with their revisions, newest first."""
        text = self.root(suites).run(["apt-cache", "policy", "nvidia-smi"]).text
        return tuple(re.findall(r"^ {5}(\S+) \d+$", text, re.MULTILINE))

    def _host(self, suites: str, host: str) -> AptRoot | None:
        """None where the archive has no such driver."""
        directory = self._directory / f"{suites} {host}".replace(" ", "-")
        directory.mkdir()
        root = self.root(suites).host(directory)
        libraries, kind, number = HOSTS[host]
        if not libraries:
            return root
        usable = [one for one in self.revisions(suites) if self.is_installable(suites, "nothing", one, kind, libraries)]
        if len(usable) <= number:
            return None
        pins(root, usable[number])
        root.install(*(one for one in libraries), MODULES[kind])
        pins(root, "")
        return root

    def _is_installable(self, suites: str, host: str, revision: str, kind: str, libraries: tuple[str, ...]) -> bool:
        """Whether apt can install libraries and modules of one version, all else of the driver following."""
        root = self.host(suites, host)
        assert root is not None
        pins(root, revision)
        driver = revision.partition("-")[0]
        argv = ["apt-get", "--simulate", "--no-install-recommends", "--allow-downgrades", "install"]
        exact = [f"{one}={revision}" for one in libraries if one != "nvidia-persistenced"]
        done = root.run([*argv, *exact, f"{MODULES[kind]}={driver}-*"])
        pins(root, "")
        return done.rc == 0

    def _shown(self, suites: str, host: str, queries: tuple[str, ...]) -> dict[str, Any]:
        root = self.host(suites, host)
        assert root is not None
        return ask(root, queries)

    def _transaction(
        self, suites: str, host: str, install: tuple[str, ...], remove: tuple[str, ...], preferences: str
    ) -> tuple[PackagePlan | str, dict[str, str], dict[str, str]]:
        root = self.host(suites, host)
        assert root is not None
        return root.transaction(install, remove, preferences)


def pins(root: AptRoot, revision: str) -> None:
    """Make apt prefer all of one version, by the source packages: not the records of the plan. Empty: none."""
    path = root.preferences / "driver"
    path.unlink(missing_ok=True)
    if revision:
        driver = revision.partition("-")[0]
        own = {"nvidia-graphics-drivers": revision, "nvidia-open-gpu-kernel-modules": f"{driver}-*"}
        path.write_text(
            "".join(f"Package: src:{name}\nPin: version {one}\nPin-Priority: 1001\n\n" for name, one in own.items())
        )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, lists: tuple[Path, str]) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"), lists)


def upstream(revision: str) -> str:
    return revision.partition("-")[0]


def plan_of(case: Case, archive: Archive, root: AptRoot) -> tuple[dict[str, Any], str]:
    """The plan, and the version that is requested."""
    known = list(dict.fromkeys(map(upstream, archive.revisions(case.suites))))
    version = {"newest": "newest", "branch": known[0].partition(".")[0]}.get(case.version) or known[
        min(int(case.version), len(known) - 1)
    ]
    kind = HOSTS[case.host][1]
    driver = upstream(root.installed.get("nvidia-smi", ""))
    facts = {
        "system": "Debian",
        "release": "12" if case.suites.startswith("bookworm") else "13",
        "gpus": [case.gpu],
        "today": "2026-11-24",
        "installed": root.installed,
        "driver": driver,
        "driver_kind": kind,
        "recorded_source": "distribution" if driver else "",
        "family": driver_family(root.installed, {field_of(one, "Package"): source(one) for one in root.stanzas}),
    }
    request = {"version": version, "kernel_modules": case.kind, "headless": case.headless}
    queries = planned(request, facts)["queries"]
    return planned(request, facts, archive.shown(case.suites, case.host, tuple(queries))), version


def source(stanza: str) -> str:
    return field_of(stanza, "Source").partition(" ")[0] or field_of(stanza, "Package")


@pytest.mark.parametrize("suites", SUITES)
def test_plans_come_true_and_refusals_are_true(
    suites: str, archive: Archive, record_property: Callable[[str, dict[str, int]], None]
) -> None:
    count = {"cases": 0, "planned": 0, "refused": 0, f"of the {archive.origin}": 0}
    wrong = []
    for case in all_cases():
        root = archive.host(case.suites, case.host) if case.suites == suites else None
        if root is None:
            continue
        plan, version = plan_of(case, archive, root)
        objection = (
            refused(case, archive, plan, version) if plan["reasons"] else made(case, archive, root, plan, version)
        )
        wrong += [f"{case}: {objection}"] if objection else []
        for name in ("cases", "refused" if plan["reasons"] else "planned", f"of the {archive.origin}"):
            count[name] += 1
    record_property(f"{COUNT}Debian's archive", count)
    assert wrong == [], "\n".join(wrong)
    assert count["cases"] >= 60


def made(case: Case, archive: Archive, root: AptRoot, plan: dict[str, Any], version: str) -> str:
    """What is wrong with a plan, empty for nothing."""
    install, remove = tuple(plan["install"]), tuple(plan["removals"])
    found, installed, removed = archive.transaction(case.suites, case.host, install, remove, plan["preferences"])
    if isinstance(found, str):
        return f"apt cannot do {install}: {found}"
    if (dict(found.install), set(found.remove)) != (installed, set(removed)):
        return f"predicted {found.install}, {found.remove}; apt does {installed}, {removed}"
    after = {name: one for name, one in {**root.installed, **installed}.items() if name not in removed}
    stanzas = {name: root.stanza(name, one) for name, one in after.items()}
    of_driver = {
        name: one
        for name, one in after.items()
        if re.fullmatch("nvidia-(?:graphics-drivers|open-gpu-kernel-modules)", source(stanzas[name]))
    }
    if {upstream(one) for one in of_driver.values()} != {plan["version"]}:
        return f"not one driver: {of_driver}"
    of_source = {one for name, one in of_driver.items() if source(stanzas[name]) == "nvidia-graphics-drivers"}
    if len(of_source) != 1:
        return f"not one revision: {of_driver}"
    if set(removed) - set(remove):
        return f"removes {removed}, and named {remove}"
    asked = dict(item.partition("=")[::2] for item in install)
    if any(one and after.get(name) != one for name, one in asked.items()):
        return f"not what was asked for: {install}"
    if MODULES[plan["kernel_modules"]] not in after or not set(plan["packages"]["driver"]) <= set(after):
        return f"lacks packages of {plan['packages']['driver']}"
    return older(case, archive, plan, version, *of_source)


def older(case: Case, archive: Archive, plan: dict[str, Any], version: str, revision: str) -> str:
    """That the driver is older than what is installed or what apt prefers, and was not asked for."""
    root = archive.host(case.suites, case.host)
    assert root is not None
    first, last, kinds = GPUS[case.gpu]
    if not first <= int(plan["branch"]) <= last or plan["kernel_modules"] not in kinds:
        return f"{case.gpu} does not take {plan['version']} {plan['kernel_modules']}"
    before = root.installed.get("nvidia-smi", "")
    policy = archive.root(case.suites).run(["apt-cache", "policy", "nvidia-smi"]).text
    candidate = re.findall(r"Candidate: (\S+)", policy)[0]
    if "." not in version and not before and revision != candidate:
        return f"{revision} in place of {candidate}"
    if before and version == "newest" and key(revision) < key(before):
        return f"{revision} in place of the installed {before}"
    if before and key(revision) < key(before) and not any("which is older" in one for one in plan["notes"]):
        return f"{revision} in place of the installed {before}, without a word"
    return ""


def key(revision: str) -> list[int]:
    return [int(part) for part in upstream(revision).split(".")]


def refused(case: Case, archive: Archive, plan: dict[str, Any], version: str) -> str:
    """A version that would do although the request was refused, empty for none: each one is tried."""
    first, last, kinds = GPUS[case.gpu]
    root = archive.host(case.suites, case.host)
    assert root is not None
    policy = archive.root(case.suites).run(["apt-cache", "policy", "nvidia-smi"]).text
    floor = max(
        [re.findall(r"Candidate: (\S+)", policy)[0], *filter(None, [root.installed.get("nvidia-smi")])], key=key
    )
    for revision in archive.revisions(case.suites):
        fits = version in ("newest", upstream(revision)) or upstream(revision).startswith(f"{version}.")
        if not fits or ("." not in version and key(revision) < key(floor)):
            continue
        if not first <= key(revision)[0] <= last:
            continue
        for kind in kinds if case.kind == "auto" else {case.kind} & {*kinds}:
            if archive.is_installable(case.suites, case.host, revision, kind, COMPUTE if case.headless else DESKTOP):
                return f"refused, and {revision} with {kind} modules is there: {plan['reasons']}"
    return ""
