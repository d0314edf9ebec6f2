# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts x releases x branches x kernel modules on real indexes: what apt would do, and that no removal is unnamed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.filter.driver_family import driver_family
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, PackagePlan, PackageRequest

from tests.conftest import COUNT, EFFORT
from tests.unit.real_indexes.apt_root import AptRoot, field_of
from tests.unit.real_indexes.test_branches import cases, plan
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
        for kind in ("open", "proprietary"):
            for headless in (True, False):
                options = {"system": "Debian", "headless": headless}
                yield f"{kind}{'' if headless else ' with X'}", {"version": "newest", "kind": kind, "options": options}
        return
    for name, (branch, kind, server, headless) in cases().items():
        # Branch 470, and X: in test_branches, on an empty host.
        if headless and branch != "470":
            yield name, {"version": branch, "kind": kind, "options": {"server": server}}
            if server:
                options = {"server": server, "module_build": "precompiled", "kernel": f"{KERNELS[release]}-generic"}
                yield f"{name} precompiled", {"version": branch, "kind": kind, "options": options}


class Prepared:
    """Each host, made on first use, and the packages of each request, which do not depend on the host."""

    def __init__(self, roots: Roots, directory: Path) -> None:
        self._roots = roots
        self._directory = directory
        self._hosts: dict[tuple[str, str], AptRoot] = {}
        self._plans: dict[tuple[str, str], dict[str, Any]] = {}

    def host(self, case: Case) -> AptRoot:
        """The host of a case, with its packages installed."""
        key = (case.release, case.host)
        if key not in self._hosts:
            directory = self._directory / str(len(self._hosts))
            directory.mkdir()
            root = self._hosts[key] = self._roots(case.release).host(directory)
            if case.host == OLD_KERNEL:
                root.install_older(UBUNTU_HOSTS["as ubuntu-drivers installs it"], BEHIND[case.release])
            else:
                root.install(*HOSTS[case.release][case.host])
        return self._hosts[key]

    def plan(self, case: Case) -> dict[str, Any]:
        """What the role would do for a case; its preferences are those of the host from then on."""
        root, key = self.host(case), (case.release, case.name)
        if key not in self._plans:
            (root.preferences / "driver").unlink(missing_ok=True)
            self._plans[key] = plan(root, case.version, case.kind, **case.options)
        (root.preferences / "driver").write_text(self._plans[key]["preferences"])
        return self._plans[key]


@pytest.fixture(scope="module")
def prepared(roots: Roots, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(roots, tmp_path_factory.mktemp("matrix"))


def removed(root: AptRoot, install: tuple[str, ...], gone: tuple[str, ...] = ()) -> set[str]:
    """What apt itself would remove."""
    argv = ["apt-get", "--simulate", "--no-install-recommends", "--allow-downgrades", "install", *install]
    text = root.run([*argv, *(f"{name}-" for name in gone)]).text
    return {name.partition(":")[0] for name in re.findall(r"^(?:Remv|Purg) (\S+)", text, re.MULTILINE)}


def outcome(case: Case, prepared: Prepared) -> tuple[PackagePlan | str, tuple[str, ...], set[str]]:
    """The plan or the error message, the packages that the role names for removal, and what apt would remove."""
    root, planned = prepared.host(case), prepared.plan(case)
    if planned["reasons"]:
        return "; ".join(planned["reasons"]), (), set()
    install = tuple(planned["install"])
    family = driver_family(root.installed, sources(root))
    remove = tuple(name for name in family if name not in install) if case.permitted else ()
    try:
        found = apt.plan(PackageRequest(install=install, remove=remove, release_holds=remove), root.run)
    except PackageError as error:
        return str(error), remove, removed(root, install, remove)
    return found, remove, removed(root, (*install, *found.along), tuple(found.remove))


@pytest.mark.parametrize("case", list(all_cases())[:: 5 if EFFORT == "quick" else 1], ids=str)
def test_no_removal_is_unnamed(
    case: Case, prepared: Prepared, record_property: Callable[[str, dict[str, int]], None]
) -> None:
    root = prepared.host(case)
    before = root.installed
    found, named, gone = outcome(case, prepared)
    if isinstance(found, str):
        unnamed = {
            name for name in gone if name not in named and name not in re.findall(r"[a-z0-9][a-z0-9+.-]+", found)
        }
    else:
        unnamed = (gone | set(found.remove)) - set(named)
        assert gone == set(found.remove)
        assert case.permitted or not gone
    record_property(
        f"{COUNT}real indexes",
        {
            "cases": 1,
            "planned": int(not isinstance(found, str)),
            "refused": int(isinstance(found, str)),
            "unnamed removals": len(unnamed),
        },
    )
    assert unnamed == set()
    if isinstance(found, PackagePlan):
        after = {name: version for name, version in {**before, **found.install}.items() if name not in found.remove}
        one_driver(case, root, after)
        # The distribution's CUDA stays whatever becomes of the driver.
        assert "nvidia-cuda-toolkit" not in before or after["nvidia-cuda-toolkit"] == before["nvidia-cuda-toolkit"]


def one_driver(case: Case, root: AptRoot, after: dict[str, str]) -> None:
    """After the change the host has libraries and modules of one driver, of the requested branch."""
    libraries = {
        name: version for name, version in after.items() if re.fullmatch(r"libnvidia-compute-.*|libcuda1", name)
    }
    assert len(libraries) == 1, libraries
    (version,) = libraries.values()
    assert case.version in ("newest", version.split(".")[0])
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
    ("trixie", "nothing", "open", False): "550.163.01",
    ("trixie", "nothing", "proprietary", False): "550.163.01",
    # What is there stays, and another driver in addition to it is refused by the names that would have to go.
    ("noble", "server driver", "580 open server", False): "580.178.04",
    ("noble", "server driver", "595 open server", False): "xserver-xorg-video-nvidia-580-server",
    ("noble", "server driver", "595 open server", True): "595.91.07",
    ("noble", "desktop driver", "580 open server", False): "libnvidia-compute-580",
    ("noble", "driver and CUDA of the distribution", "595 open server", True): "595.91.07",
    ("noble", "CUDA of the distribution alone", "595 open server", False): "libnvidia-compute-580-server",
    ("trixie", "driver with X", "proprietary", False): "550.163.01",
    ("bookworm", "tesla driver", "proprietary", True): "535.309.01",
    # The modules of the old kernel are of the old driver: they would have to go with it.
    ("noble", OLD_KERNEL, "580 open server", False): "linux-modules-nvidia-580-server-open-6.8.0-150-generic",
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
    root = prepared.host(case)
    found, _named, _gone = outcome(case, prepared)
    if isinstance(found, str):
        assert EXPECTED[expected] in found
    else:
        after = {**root.installed, **found.install}
        probe = next(
            name for name in after if re.match(r"libnvidia-compute-|libcuda1$", name) and name not in found.remove
        )
        assert EXPECTED[expected] in after[probe]
