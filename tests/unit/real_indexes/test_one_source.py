# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver comes from one repository, although NVIDIA's and Ubuntu's have packages of the same names up to branch 580.

NVIDIA's has no index here: it is made of Ubuntu's own packages of the desktop series, with NVIDIA's versions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.real_indexes.apt_root import AptRoot, stanzas_of
from tests.unit.real_indexes.test_branches import plan_on

UBUNTU = "580.178.04-0ubuntu0.24.04.1"
PLACE = "compute/cuda/repos/ubuntu2404/x86_64"


def packages_of_nvidia(stanzas: list[str], version: str) -> list[str]:
    """Ubuntu's desktop packages of branch 580 with another version, and a package of the persistence daemon."""
    upstream = version.partition("-")[0]
    of_driver = [
        stanza
        for stanza in stanzas
        if f"\nVersion: {UBUNTU}\n" in stanza
        and "-server" not in stanza.partition("\n")[0]
        and "linux-" not in stanza.partition("\n")[0]
    ]
    assert len(of_driver) > 20
    renamed = [
        # Ubuntu's upper bound is below NVIDIA's revision.
        stanza.replace(UBUNTU, version)
        .replace("580.178.04", upstream)
        .replace(f"<= {upstream}-1)", f"<= {upstream}-2)")
        for stanza in of_driver
    ]
    # The package of its own takes the daemon out of nvidia-compute-utils.
    renamed = [re.sub(r"(?m)^(Provides|Conflicts|Replaces): (.*)$", _without_daemon, stanza) for stanza in renamed]
    daemon = f"Package: nvidia-persistenced\nVersion: {version}\nArchitecture: amd64\nDepends: libnvidia-compute-580"
    return [*renamed, daemon]


def _without_daemon(field: re.Match[str]) -> str:
    names = [name for name in field[2].split(", ") if not name.startswith("nvidia-persistenced")]
    return f"{field[1]}: {', '.join(names)}" if names else f"X-{field[1]}: -"


@pytest.fixture(params=["580.159.04-1ubuntu1", "580.178.04-1ubuntu1", "580.200.01-1ubuntu1"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[AptRoot, str]:
    """A host with both repositories, and the version in NVIDIA's: older than Ubuntu's, the same, or newer."""
    root = AptRoot(tmp_path / "root", stanzas_of("noble"))
    directory = tmp_path / "root" / PLACE
    directory.mkdir(parents=True)
    stanzas = packages_of_nvidia(root.stanzas, request.param)
    digest = f"Size: 1\nSHA256: {0:064d}"
    (directory / "Packages").write_text(
        "".join(f"{one}\nFilename: ./{n}.deb\n{digest}\n\n" for n, one in enumerate(stanzas))
    )
    with (root.root / "etc/sources.list").open("a") as sources:
        sources.write(f"deb [trusted=yes] file:{directory} ./\n")
    assert root.run(["apt-get", "update"]).rc == 0
    return root, request.param


def installed_by(root: AptRoot, plan: dict[str, Any]) -> dict[str, str]:
    """What apt installs for a plan with its preferences, of the driver."""
    records = "\n".join(
        f"Package: {pin['packages']}\nPin: {pin['pin']}\nPin-Priority: {pin['priority']}\n" for pin in plan["pins"]
    )
    (root.preferences / "driver").write_text(records)
    found = root.simulate(*plan["install"])
    return {name: version for name, version in found.items() if re.search(r"nvidia.*-580|nvidia-persistenced", name)}


def install_of_ubuntu(root: AptRoot, *names: str) -> dict[str, str]:
    """Install packages as they were before NVIDIA's repository was added."""
    sources = root.root / "etc/sources.list"
    both = sources.read_text()
    sources.write_text(both.splitlines()[0] + "\n")
    assert root.run(["apt-get", "update"]).rc == 0
    installed = root.install(*names)
    sources.write_text(both)
    assert root.run(["apt-get", "update"]).rc == 0
    return installed


@pytest.mark.parametrize("headless", [True, False])
def test_all_packages_are_of_nvidias_repository(host: tuple[AptRoot, str], headless: bool) -> None:
    root, version = host
    request = {
        "source": "cuda_repository",
        "version": "580",
        "headless": headless,
        "companions": ["persistence_daemon"],
    }
    plan = plan_on(root, request)
    assert plan["reasons"] == []
    assert plan["version"] == version.partition("-")[0]
    found = installed_by(root, plan)
    assert set(found.values()) == {version}
    assert {"libnvidia-compute-580", "nvidia-kernel-common-580", "nvidia-persistenced"} <= set(found)


@pytest.mark.parametrize("headless", [True, False])
def test_all_packages_are_of_ubuntus_archive(host: tuple[AptRoot, str], headless: bool) -> None:
    root, _version = host
    plan = plan_on(root, {"version": "580", "ubuntu_series": "desktop", "headless": headless})
    assert (plan["reasons"], plan["version"]) == ([], "580.178.04")
    assert set(installed_by(root, plan).values()) == {UBUNTU}


def test_an_installed_driver_of_ubuntu_makes_room_for_nvidias(host: tuple[AptRoot, str]) -> None:
    root, version = host
    packages = ("libnvidia-compute-580", "nvidia-utils-580", "nvidia-dkms-580-open")
    installed = install_of_ubuntu(root, *packages)
    facts = {"driver": "580.178.04", "driver_kind": "open", "recorded_source": "distribution"}
    plan = plan_on(root, {"source": "cuda_repository", "version": "580"}, {**facts, "installed": installed})
    assert plan["install"] == [f"{name}={version}" for name in packages]


def test_a_driver_of_another_source_is_not_adopted(host: tuple[AptRoot, str]) -> None:
    root, _version = host
    installed = install_of_ubuntu(root, "nvidia-driver-580-open", "nvidia-utils-580")
    facts = {"driver": "580.178.04", "driver_kind": "open", "installed": installed, "family": list(installed)}
    assert plan_on(root, {"source": "cuda_repository"}, facts)["existing"] == "kept"
    assert plan_on(root, {"ubuntu_series": "desktop"}, facts)["existing"] == "adopted"
