# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role docker plans to install, resolved by real apt on the real indexes: versions, plugins, removals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, PackageRequest
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.host import Host, parse_offered
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.plan import plan as plan_docker
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.request import Request

from tests.conftest import ROOT
from tests.unit.real_indexes.apt_root import AptRoot, stanzas_of

DEFAULTS = yaml.safe_load((ROOT / "roles" / "docker" / "defaults" / "main.yml").read_text(encoding="utf-8"))
RELEASES = {
    "noble": {"distribution": "Ubuntu", "distribution_version": "24.04", "distribution_major_version": "24"},
    "jammy": {"distribution": "Ubuntu", "distribution_version": "22.04", "distribution_major_version": "22"},
    "bookworm": {"distribution": "Debian", "distribution_version": "12.15", "distribution_major_version": "12"},
}
# The relations of Docker's packages, as in the control files of docker-ce-packaging and containerd-packaging.
CONTAINERD_IO = """\
Package: containerd.io
Version: 1.7.27-1
Architecture: amd64
Provides: containerd, runc
Conflicts: containerd, runc
Replaces: containerd, runc"""
DOCKER_CE = """\
Package: docker-ce
Version: {version}
Architecture: amd64
Depends: containerd.io (>= 1.7.27), docker-ce-cli
Conflicts: docker.io

Package: docker-ce-cli
Version: {version}
Architecture: amd64
Conflicts: docker.io"""
# Of no interest here, and in no excerpt.
HELPERS = ("apparmor", "ca-certificates", "python3-requests", "docker-buildx-plugin", "docker-compose-plugin")
HELPER = "Package: {name}\nVersion: 1-1\nArchitecture: all"
DOCKER_VERSIONS = ("5:28.5.1-1~ubuntu.24.04~noble", "5:28.5.10-1~ubuntu.24.04~noble")


@pytest.fixture(scope="module", params=sorted(RELEASES))
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, AptRoot]:
    """A release with Docker's repository."""
    stanzas = [*stanzas_of(request.param), CONTAINERD_IO]
    stanzas += [stanza for version in DOCKER_VERSIONS for stanza in DOCKER_CE.format(version=version).split("\n\n")]
    known = {line for stanza in stanzas for line in stanza.splitlines() if line.startswith("Package: ")}
    stanzas += [HELPER.format(name=name) for name in HELPERS if f"Package: {name}" not in known]
    return request.param, AptRoot(tmp_path_factory.mktemp(request.param), stanzas)


@pytest.fixture
def host(root: tuple[str, AptRoot], tmp_path: Path) -> tuple[str, AptRoot]:
    """A host with none of its packages."""
    return root[0], root[1].host(tmp_path)


def plan(host: tuple[str, AptRoot], **variables: Any) -> dict[str, Any]:
    """The role's plan for this host, with what its package lists offer."""
    release, machine = host
    offered = machine.run(["apt-cache", "madison", "docker-buildx", "docker-compose-v2", "docker-compose"]).text
    packages = {name: [{"version": version}] for name, version in machine.installed.items()}
    known = Host.of({**RELEASES[release], "packages": packages, "gpu_fleet_managed": {}})
    known = replace(known, offered=parse_offered(offered) if offered else None)
    return plan_docker(Request.read({**DEFAULTS, **variables}), known).as_dict()


def resolved(host: tuple[str, AptRoot], found: dict[str, Any]) -> dict[str, str]:
    """What package_transaction would install for a plan."""
    request = PackageRequest(install=tuple(found["install"]), remove=tuple(found["replace"]))
    return dict(apt.plan(request, host[1].run).install)


def test_the_distributions_docker_comes_with_compose_and_buildx(host: tuple[str, AptRoot]) -> None:
    installed = resolved(host, plan(host))
    assert "docker.io" in installed
    plugins = {"docker-buildx", "docker-compose-v2"} if host[0] != "bookworm" else set()
    assert {name for name in installed if name.startswith(("docker-b", "docker-co"))} == plugins


def test_a_version_is_none_that_begins_like_it(host: tuple[str, AptRoot]) -> None:
    installed = resolved(host, plan(host, docker_source="docker_repository", docker_version="28.5.1"))
    assert installed["docker-ce"] == installed["docker-ce-cli"] == DOCKER_VERSIONS[0]
    newest = resolved(host, plan(host, docker_source="docker_repository", docker_version="28.5"))
    assert newest["docker-ce"] == DOCKER_VERSIONS[1]


def test_a_node_with_containerd_io_keeps_it(host: tuple[str, AptRoot]) -> None:
    host[1].set_installed({"containerd.io": "1.7.27-1"})
    found = plan(host)
    assert (found["source"], found["refusals"]) == ("docker_repository", [])
    assert "containerd" not in resolved(host, found)


@pytest.mark.parametrize(
    ("packages", "source"),
    [
        (("containerd.io",), "distribution"),
        (("docker.io",), "docker_repository"),
        (("containerd",), "docker_repository"),
    ],
)
def test_what_apt_would_remove_is_in_the_refusal(
    packages: tuple[str, ...], source: str, host: tuple[str, AptRoot]
) -> None:
    host[1].install(*packages)
    found = plan(host, docker_source=source)
    with pytest.raises(PackageError) as refused:
        resolved(host, found)
    named, _text, rest = str(refused.value).partition(" would have to be removed")
    assert len(found["refusals"]) == 1
    # Where apt finds no way at all it names one conflict.
    removed = named.split(", ") if rest else list(packages)
    assert [name for name in removed if name not in found["refusals"][0]] == []


def test_podman_stays_where_containerd_io_replaces_its_runc(host: tuple[str, AptRoot]) -> None:
    if host[0] == "bookworm":
        pytest.skip("the excerpt has no podman")
    host[1].install("podman", "runc")
    found = plan(host, docker_source="docker_repository", docker_replace=["containerd", "runc"])
    assert (found["refusals"], found["replace"]) == ([], ["runc"])
    request = PackageRequest(install=tuple(found["install"]), remove=tuple(found["replace"]))
    assert list(apt.plan(request, host[1].run).remove) == ["runc"]
