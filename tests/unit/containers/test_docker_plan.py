# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role docker, by tables: sources, removals, repositories, logins, users, restarts."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import PLATFORMS
from ansible_collections.gpu.fleet.plugins.module_utils._packages.run import _FORMS
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Plan, RequestError, in_order
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.images import pull_error
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.docker.stages import PLANNER

from tests.conftest import ROOT
from tests.unit.site.known import check, known

DEFAULTS = yaml.safe_load((ROOT / "roles" / "docker" / "defaults" / "main.yml").read_text(encoding="utf-8"))


def _el(distribution: str, version: str) -> dict[str, str]:
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.partition(".")[0],
        "os_family": "RedHat",
    }


BOOKWORM = {"distribution": "Debian", "distribution_version": "12.15", "distribution_major_version": "12"}
TRIXIE = {"distribution": "Debian", "distribution_version": "13.7", "distribution_major_version": "13"}
DROP_IN = "/etc/systemd/system/docker.service.d/gpu-fleet-proxy.conf"
NOBLE = {"distribution": "Ubuntu", "distribution_version": "24.04", "distribution_major_version": "24"}
ROCKY = _el("Rocky", "9.6")

DOCKER_CE = {"docker-ce": "5:28.5.2-1~ubuntu.24.04~noble", "docker-ce-cli": "5:28.5.2-1~ubuntu.24.04~noble"}
DOCKER_IO = {
    "docker.io": "29.1.3-0ubuntu3~24.04.2",
    "containerd": "2.2.1-0ubuntu1~24.04.4",
    "runc": "1.3.4-0ubuntu1~24.04.1",
}
# https://github.com/Azure/azhpc-images, components/install_docker.sh and versions.json of 29 July 2026.
MOBY = dict.fromkeys(("moby-engine", "moby-cli", "moby-buildx"), "29.1.4-ubuntu24.04u1")
KUBERNETES = {"kubelet": "1.33.1-1.1", "containerd.io": "1.7.27-1"}


def stage(
    name: str,
    system: dict[str, str] | None = None,
    packages: dict[str, str] | None = None,
    facts: dict[str, Any] | None = None,
    **variables: Any,
) -> dict[str, Any]:
    """What a stage of the planner finds with the defaults of the role, on a host with these packages and facts."""
    given = facts or {}
    known = {
        **(system or NOBLE),
        "architecture": "x86_64",
        "packages": {package: [{"version": version}] for package, version in (packages or {}).items()},
        "gpu_fleet_managed": {"docker": given["record"]} if "record" in given else {},
    }
    entries = [{"ansible_facts": {"getent_passwd": {user: entry}}} for user, entry in given.get("accounts", {}).items()]
    places = {"/snap/docker/current": given.get("snap", False), DROP_IN: given.get("drop_in", False)}
    found = {
        "offers": {"stdout": given.get("offered", "")},
        "files": {"files": [{"path": path} for path, there in places.items() if there]},
        "accounts": {"results": entries},
        "group": {"ansible_facts": {"getent_group": {"docker": given.get("group")}}},
        **{name: value for name, value in given.items() if name not in ("accounts", "group")},
    }
    try:
        result = PLANNER.stages[name]({**DEFAULTS, **variables}, known, found)
    except RequestError as error:
        result = Plan((str(error),))
    assert isinstance(result, (Plan, dict))
    return result.as_dict() if isinstance(result, Plan) else result


def plan(
    system: dict[str, str] | None = None,
    packages: dict[str, str] | None = None,
    facts: dict[str, Any] | None = None,
    **variables: Any,
) -> dict[str, Any]:
    """The plan of an observed host."""
    return stage("plan", system, packages, {"asks": True, **(facts or {})}, **variables)


@pytest.mark.parametrize(
    ("system", "packages", "variables", "source"),
    [
        pytest.param(NOBLE, {}, {}, "distribution", id="a bare host"),
        pytest.param(ROCKY, {}, {}, "docker_repository", id="EL has none of its own"),
        pytest.param(NOBLE, DOCKER_CE, {}, "docker_repository", id="docker-ce stays"),
        pytest.param(NOBLE, DOCKER_IO, {}, "distribution", id="docker.io stays"),
        pytest.param(NOBLE, KUBERNETES, {}, "docker_repository", id="containerd.io runs Kubernetes"),
        pytest.param(
            NOBLE, {"containerd": "2.2.1", "kubelet": "1.33.1"}, {}, "distribution", id="containerd runs Kubernetes"
        ),
        pytest.param(NOBLE, {}, {"docker_source": "docker_repository"}, "docker_repository", id="requested"),
    ],
)
def test_source(system: dict[str, str], packages: dict[str, str], variables: dict[str, Any], source: str) -> None:
    found = plan(system, packages, **variables)
    assert (found["source"], found["refusals"]) == (source, [])


REMOVALS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, Any], list[str]]] = {
    "docker.io on a node with containerd.io": (
        NOBLE,
        KUBERNETES,
        {"docker_source": "distribution"},
        [
            "docker.io would remove containerd.io, with the containers of Kubernetes",
            "docker_source to docker_repository",
        ],
    ),
    "docker-ce on a node with containerd": (
        TRIXIE,
        {"kubelet": "1.33.1-1.1", "containerd": "1.7.24", "runc": "1.1.15"},
        {"docker_source": "docker_repository"},
        ["docker-ce would remove containerd, runc, with the containers of Kubernetes", "docker_source to distribution"],
    ),
    "docker-ce over docker.io": (
        NOBLE,
        DOCKER_IO,
        {"docker_source": "docker_repository"},
        ["docker-ce would remove docker.io, containerd, runc;", "docker_replace"],
    ),
    "docker.io over docker-ce": (
        NOBLE,
        {**DOCKER_CE, "containerd.io": "1.7.27-1"},
        {"docker_source": "distribution"},
        ["docker.io would remove docker-ce, docker-ce-cli, containerd.io;"],
    ),
    "podman on Ubuntu": (
        NOBLE,
        {"podman": "4.9.3", "podman-docker": "4.9.3"},
        {},
        ["docker.io would remove podman-docker;"],
    ),
    "runc of EL": (
        ROCKY,
        {"podman": "5.4.0-1.el9", "buildah": "1.39.4-1.el9", "runc": "4:1.2.5-2.el9"},
        {},
        ["docker-ce would remove runc; nothing was changed; remove what you do not need"],
    ),
    "podman-docker of EL": (ROCKY, {"podman-docker": "5.4.0-1.el9"}, {}, ["docker-ce would remove podman-docker;"]),
    "another engine": (
        NOBLE,
        MOBY,
        {"docker_source": "distribution"},
        ["docker.io would remove moby-engine, moby-cli;", "set docker_source to auto, which keeps moby-engine,"],
    ),
}


@pytest.mark.parametrize("name", REMOVALS)
def test_an_installation_that_removes_packages_is_refused_by_their_names(name: str) -> None:
    system, packages, variables, messages = REMOVALS[name]
    refusals = plan(system, packages, **variables)["refusals"]
    assert len(refusals) == 1
    assert [text for text in messages if text not in refusals[0]] == []


# Conflicts of docker-ce and docker-ce-cli 28 and Obsoletes of containerd.io in the specs of their rpm packages, and
# podman-docker, which has /usr/bin/docker too.
EL_RELATIONS = (
    "docker",
    "docker-io",
    "docker-ee",
    "docker-ee-cli",
    "docker-engine",
    "containerd",
    "runc",
    "podman-docker",
)
# What EL has around containers and docker-ce leaves alone: podman and buildah run with crun as well.
EL_NEIGHBOURS = dict.fromkeys(("podman", "buildah", "skopeo", "crun", "containers-common", "container-selinux"), "1-1")


@pytest.mark.parametrize("name", EL_RELATIONS)
def test_what_docker_ce_replaces_on_el_is_refused_by_name_or_allowed(name: str) -> None:
    installed = {**EL_NEIGHBOURS, name: "1-1"}
    (refusal,) = plan(ROCKY, installed)["refusals"]
    assert refusal.startswith(f"docker-ce would remove {name};")
    allowed = plan(ROCKY, installed, docker_replace=[name])
    assert (allowed["refusals"], allowed["replace"]) == ([], [name])


def test_podman_and_buildah_of_el_are_no_reason_against_docker_ce() -> None:
    found = plan(ROCKY, EL_NEIGHBOURS)
    assert (found["refusals"], found["replace"]) == ([], [])
    assert {"docker-ce", "containerd.io"} <= set(found["install"])


def test_what_may_be_replaced_is_named_by_the_user() -> None:
    given: dict[str, Any] = {"docker_source": "docker_repository", "docker_replace": ["containerd", "runc", "podman"]}
    found = plan(NOBLE, {"containerd": "2.2.1", "runc": "1.3.4"}, **given)
    assert (found["refusals"], found["replace"]) == ([], ["containerd", "runc"])
    # An installed Docker replaces nothing any more.
    everything = dict.fromkeys(found["packages"], "1-1")
    assert plan(NOBLE, {**everything, "runc": "1.3.4"}, **given)["replace"] == []


def test_moby_of_an_image_stays_and_gets_what_the_modules_need() -> None:
    found = plan(NOBLE, MOBY)
    assert (found["refusals"], found["source"], found["has_engine"]) == ([], "moby-engine", True)
    assert (found["install"], found["missing"]) == (["python3-requests"], ["python3-requests"])
    # A version applies to it, and its removal is not the role's.
    assert "moby-engine=28.5.*" in plan(NOBLE, MOBY, docker_version="28.5")["install"]
    assert plan(NOBLE, MOBY, docker_state="absent")["kept"] == ["moby-engine"]
    assert plan(ROCKY, MOBY)["refusals"] == []


def test_what_is_installed_is_no_reason_against_docker_that_is_installed_too() -> None:
    packages = dict.fromkeys(plan(NOBLE, {})["packages"], "1-1")
    assert plan(NOBLE, {**packages, "podman-docker": "4.9.3"})["refusals"] == []


@pytest.mark.parametrize(
    ("system", "url", "suite"),
    [
        (BOOKWORM, "https://download.docker.com/linux/debian", "bookworm"),
        (TRIXIE, "https://download.docker.com/linux/debian", "trixie"),
        (NOBLE, "https://download.docker.com/linux/ubuntu", "noble"),
        (ROCKY, "https://download.docker.com/linux/centos/9/$basearch/stable", ""),
        (_el("AlmaLinux", "10.1"), "https://download.docker.com/linux/centos/10/$basearch/stable", ""),
        (_el("OracleLinux", "9.5"), "https://download.docker.com/linux/centos/9/$basearch/stable", ""),
        # dnf has "9.4" for $releasever where a host is locked to a minor release.
        (_el("RedHat", "9.4"), "https://download.docker.com/linux/rhel/9/$basearch/stable", ""),
        (_el("CentOS", "10"), "https://download.docker.com/linux/centos/10/$basearch/stable", ""),
    ],
)
def test_the_directory_of_dockers_repository(system: dict[str, str], url: str, suite: str) -> None:
    repository = stage("secrets", system)["repository"]
    assert (repository["url"], repository["suite"], repository["component"]) == (url, suite, "stable")


# Directories that Docker builds: docker-ce-packaging, mid 2026.
BUILT = {"debian": {"bookworm", "trixie"}, "ubuntu": {"jammy", "noble", "resolute"}, "centos": {"9", "10"}}


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.name)
def test_every_supported_platform_has_a_directory_that_docker_builds(platform: Any) -> None:
    if not platform.docker_repository:
        assert platform.docker_packages
        return
    assert (platform.docker_suite or platform.name.rpartition(" ")[2]) in BUILT[platform.docker_repository]


AMAZON = _el("Amazon", "2023")


def test_amazon_linux_has_docker_of_its_own_and_no_directory_of_dockers() -> None:
    found = plan(AMAZON)
    assert (found["refusals"], found["source"]) == ([], "distribution")
    assert (found["install"], found["offers_command"]) == (["docker", "python3-requests"], [])
    given: dict[str, Any] = {"docker_source": "docker_repository"}
    (refusal,) = plan(AMAZON, **given)["refusals"]
    assert refusal.startswith("Docker has no repository for Amazon Linux 2023; set docker_source to distribution")
    assert plan(AMAZON, docker_add_repo=False, **given)["refusals"] == []
    record = {"inputs": "", "data": {"installed": ["docker"]}}
    removed = plan(AMAZON, {"docker": "25.0.8-1"}, {"record": record}, docker_state="absent")
    assert (removed["removable"], removed["kept"]) == (["docker"], [])
    assert plan(AMAZON, {"docker": "25.0.8-1"}, docker_state="absent")["kept"] == ["docker"]


def test_channel_and_mirror() -> None:
    mirror: dict[str, Any] = {"docker_repository_url": "https://mirror.example/docker/", "docker_channel": "test"}
    apt, dnf = (stage("secrets", system, **mirror)["repository"] for system in (NOBLE, ROCKY))
    assert (apt["url"], apt["component"]) == ("https://mirror.example/docker/ubuntu", "test")
    assert apt["key_url"] == "https://mirror.example/docker/ubuntu/gpg"
    assert dnf["url"] == "https://mirror.example/docker/centos/9/$basearch/test"
    for entry in (
        "https://mirror.example/docker/ubuntu noble stable",
        "https://download.docker.com/linux/debian trixie",
    ):
        assert re.search(apt["old_line"], f"deb [signed-by=/k] {entry}")
        assert re.search(apt["old_line"], f"URIs: {entry}")
        assert not re.search(apt["old_line"], f"# deb {entry}")
    assert not re.search(apt["old_line"], "deb https://mirror.example/debian trixie main")


def test_without_add_repo_no_repository_is_touched() -> None:
    found = plan(ROCKY, docker_add_repo=False)
    assert "repository" not in [one["name"] for one in found["changes"]] and "docker-ce" in found["install"]
    record = plan(ROCKY, docker_add_repo=False)["record"]
    assert (record["files"], record["absent_lines"], record["data"]["repository"]) == ([], {}, [])
    assert [name for name in record["packages"] if name.startswith("gpg-pubkey")] == []
    record = plan(ROCKY)["record"]
    assert record["data"]["repository"] == record["files"] and "gpg-pubkey-621e9f35" in record["packages"]


VERSIONS: dict[str, tuple[dict[str, str], dict[str, Any], str, str]] = {
    "docker-ce, a release": (
        NOBLE,
        {"docker_source": "docker_repository"},
        "28.5.1",
        "docker-ce=5:28.5.1[-+~]*[0-9a-z]",
    ),
    "docker-ce, a branch": (NOBLE, {"docker_source": "docker_repository"}, "28.5", "docker-ce=5:28.5.*"),
    "docker.io": (NOBLE, {}, "29.1.3", "docker.io=29.1.3[-+~]*[0-9a-z]"),
    "EL, a release": (ROCKY, {}, "28.5.1", "docker-ce=28.5.1-*"),
    "EL, a branch": (ROCKY, {}, "28", "docker-ce=28.*"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_version(name: str) -> None:
    system, variables, version, specification = VERSIONS[name]
    install = plan(system, docker_version=version, **variables)["install"]
    assert specification in install
    # The module that installs it takes no argument of apt-get or dnf but this form.
    form, _words = _FORMS["install"]
    assert [item for item in install if not form.fullmatch(item)] == []


@pytest.mark.parametrize("text", ["docker-ce=28 5", "docker-ce=$(id)", "docker-ce=28;id", "docker-ce=28/noble"])
def test_another_form_is_not_taken(text: str) -> None:
    assert _FORMS["install"][0].fullmatch(text) is None


@pytest.mark.parametrize(
    ("version", "others"),
    [
        ("28.5.2", []),
        ("28.5", []),
        ("28", []),
        ("28.5.1", ["docker-ce 5:28.5.2-1~ubuntu.24.04~noble", "docker-ce-cli 5:28.5.2-1~ubuntu.24.04~noble"]),
        ("8.5", ["docker-ce 5:28.5.2-1~ubuntu.24.04~noble", "docker-ce-cli 5:28.5.2-1~ubuntu.24.04~noble"]),
        ("", []),
    ],
)
def test_only_another_version_is_installed_again(version: str, others: list[str]) -> None:
    found = plan(NOBLE, DOCKER_CE, docker_version=version)
    refusals = plan(NOBLE, DOCKER_CE, {"is_installed": True}, docker_version=version)["refusals"]
    assert [f"docker_version is {version}, but {', '.join(others)} was installed;" in text for text in refusals] == (
        [True] if others else []
    )
    assert found["changes_packages"] is bool(others)
    engine = [item.partition("=")[0] for item in found["install"] if item.startswith("docker-ce")]
    assert engine == [other.partition(" ")[0] for other in others]


MADISON = """\
docker-buildx | 0.30.1-0ubuntu1~24.04.1 | https://archive.example/ubuntu noble-updates/universe amd64 Packages
docker-buildx | 0.12.1-0ubuntu2 | https://archive.example/ubuntu noble/universe amd64 Packages
docker-compose-v2 | 2.40.3+ds1-0ubuntu1~24.04.1 | https://archive.example/ubuntu noble-updates/universe amd64 Packages
docker-compose | 1.29.2-6ubuntu1 | https://archive.example/ubuntu noble/universe amd64 Packages
"""
BOOKWORMS = "docker-compose | 1.29.2-3 | https://archive.example/debian bookworm/main amd64 Packages\n"
TRIXIES = """\
docker-compose |   2.26.1-4 | https://archive.example/debian trixie/main amd64 Packages
docker-buildx | 0.13.1+ds1-3 | https://archive.example/debian trixie/main amd64 Packages
"""


@pytest.mark.parametrize(
    ("system", "offered", "optional"),
    [
        (NOBLE, MADISON, ["docker-buildx", "docker-compose-v2"]),
        (BOOKWORM, BOOKWORMS, []),
        (TRIXIE, TRIXIES, ["docker-buildx", "docker-compose"]),
        (NOBLE, "", []),
    ],
    ids=["noble", "bookworm has compose 1 only", "trixie", "nothing offered"],
)
def test_compose_and_buildx_where_they_are_packaged(system: dict[str, str], offered: str, optional: list[str]) -> None:
    assert plan(system, facts={"offered": offered})["optional"] == optional
    assert set(optional) <= set(plan(system, facts={"offered": offered})["install"])


def test_compose_and_buildx_of_the_last_run_are_known_before_the_lists_are_read() -> None:
    found = plan(NOBLE, DOCKER_IO, {"record": {"data": {"optional": ["docker-buildx"]}}})
    assert found["optional"] == ["docker-buildx"]
    assert "docker-buildx" in found["missing"]


def test_dockers_own_packages_bring_both() -> None:
    assert {"docker-buildx-plugin", "docker-compose-plugin", "containerd.io"} <= set(plan(ROCKY)["install"])


REMOVABLE: dict[str, tuple[dict[str, Any] | None, bool, dict[str, str], list[str], list[str]]] = {
    "what the role installed": ({"installed": ["docker.io", "runc"]}, False, DOCKER_IO, ["docker.io"], []),
    "an engine that was there before": ({"installed": ["docker-buildx"]}, False, DOCKER_IO, [], ["docker.io"]),
    "no record": (None, False, DOCKER_IO, [], ["docker.io"]),
    "all of it": (None, True, {**DOCKER_CE, "containerd.io": "1.7.27-1"}, [*DOCKER_CE, "containerd.io"], []),
    "all of it on a node of Kubernetes": (None, True, {**DOCKER_CE, **KUBERNETES}, [*DOCKER_CE], []),
    "podman is not Docker": ({"installed": []}, True, {"podman": "4", "containerd": "2", "docker-doc": "1"}, [], []),
}


@pytest.mark.parametrize("name", REMOVABLE)
def test_only_our_packages_are_removed(name: str) -> None:
    recorded, purge, packages, removable, kept = REMOVABLE[name]
    found = plan(NOBLE, packages, {"record": {"data": recorded}}, docker_state="absent", docker_purge=purge)
    assert (found["removable"], found["kept"], found["refusals"]) == (removable, kept, [])


def test_what_is_installed_now_is_ours_and_what_was_there_is_not() -> None:
    found = plan(NOBLE, DOCKER_IO, {"offered": MADISON})
    assert "docker-compose-v2" in found["installed"]
    assert "docker.io" not in found["installed"]
    assert plan(NOBLE, {}, {"record": {"data": {"installed": ["docker.io"]}}})["installed"].count("docker.io") == 1


def test_absent_undoes_everything_of_the_last_run() -> None:
    recorded = {"registries": ["nvcr.io"], "users": ["alice"], "certificates": ["/etc/docker/certs.d/r/ca.crt"]}
    given = {"docker_users": ["alice"], "docker_registries": [{"registry": "nvcr.io", "password": "key"}]}
    gone = plan(NOBLE, DOCKER_IO, {"record": {"data": recorded}}, docker_state="absent", **given)
    stays = plan(NOBLE, DOCKER_IO, {"record": {"data": recorded}}, **given)
    assert (gone["logouts"], gone["old_users"]) == (["nvcr.io"], ["alice"])
    assert (stays["logouts"], stays["old_users"]) == ([], [])
    assert gone["old_authorities"] == stays["old_authorities"] == ["/etc/docker/certs.d/r/ca.crt"]
    assert gone["old_files"][-1] == "/etc/docker/certs.d/r/ca.crt"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("docker.io", "https://index.docker.io/v1/"),
        ("index.docker.io", "https://index.docker.io/v1/"),
        ("registry-1.docker.io", "https://index.docker.io/v1/"),
        ("nvcr.io", "nvcr.io"),
        ("registry.example.com:5000", "registry.example.com:5000"),
    ],
)
def test_a_login_has_the_key_that_the_client_looks_up(name: str, key: str) -> None:
    given = [{"registry": name, "username": "robot", "password": "word"}]
    found = plan(docker_registries=given, facts={"record": {"data": {"registries": ["docker.io"]}}})
    assert found["logins"] == [{"registry": name, "key": key, "username": "robot"}]
    # Recorded by another name of the same registry.
    assert found["logouts"] == ["docker.io"]


@pytest.mark.parametrize(
    ("registry", "is_refused"),
    [
        ({"registry": "nvcr.io", "password": "key"}, False),
        ({"registry": "r.example", "username": "u", "password": "p"}, False),
        ({"registry": "r.example", "ca": "PEM"}, False),
        ({"registry": "r.example", "password": "s3cret"}, True),
        ({"registry": "r.example", "username": "u"}, True),
        ({"registry": "nvcr.io"}, True),
    ],
)
def test_a_registry_without_a_login_is_refused(registry: dict[str, str], is_refused: bool) -> None:
    refusals = plan(docker_registries=[registry])["refusals"]
    assert [f"nor ca for {registry['registry']};" in text for text in refusals] == [True] * is_refused
    assert "s3cret" not in str(refusals)


PROXY = {"http-proxy": "http://robot:s3cret@proxy.example:3128"}


def test_only_the_stage_with_secrets_has_a_password_or_a_digest_that_depends_on_it() -> None:
    stages = ("plan", "restart", "images")
    nothing = {"preview": {"differs": False}, "state": {"reason": ""}, "reload": {}, "drop_in": {"stat": {}}}
    found = {**NO_CHANGE, "asks": True, "changes_proxy": True, "listing": {"rc": 1}, "shims": {"rc": 1}}

    def given(name: str, password: str) -> dict[str, Any]:
        return stage(
            name,
            ROCKY,
            facts={**found, **nothing, "images": []},
            docker_registries=[{"registry": "r.example", "username": "robot", "password": password}],
            docker_daemon_options={"proxies": {"http-proxy": f"http://robot:{password}@proxy.example"}, "debug": True},
            docker_proxy={"https": f"http://robot:{password}@proxy.example"},
        )

    for name in stages:
        assert given(name, "s3cret") == given(name, "another")
        assert "s3cret" not in str(given(name, "s3cret"))
    secrets = given("secrets", "s3cret")
    assert secrets["passwords"] == {"r.example": "s3cret"}
    for name in ("secrets", "drop_in"):
        assert "s3cret" in secrets[name] and secrets[name] != given("secrets", "another")[name]
    assert given("plan", "s3cret")["needs_secrets"] is True
    assert given("plan", "s3cret")["record"]["data"]["daemon_options"]["proxies"] == {
        "http-proxy": "http://***@proxy.example"
    }
    assert stage("secrets", docker_daemon_options={"debug": True})["secrets"] == ""


def test_a_password_in_the_address_of_a_mirror_is_in_the_stage_with_secrets_alone() -> None:
    mirror: dict[str, Any] = {"docker_repository_url": "https://robot:s3cret@mirror.example/docker"}
    assert "s3cret" not in str(plan(ROCKY, **mirror))
    repository = stage("secrets", ROCKY, **mirror)["repository"]
    assert repository["url"].startswith("https://robot:s3cret@mirror.example/docker/centos/9/")
    for user in ("", "robot:s3cret@", "other@"):
        assert re.search(repository["old_line"], f"baseurl=https://{user}mirror.example/docker/centos/9")
    assert not re.search(repository["old_line"], "baseurl=https://other.mirror.example/docker/centos/9")


def test_another_certificate_of_a_registry_is_work() -> None:
    login = {"registry": "nvcr.io", "password": "key"}
    entries = [login, {**login, "ca": "PEM"}, {**login, "ca": "MEP"}]
    assert len({plan(docker_registries=[entry])["inputs"] for entry in entries}) == len(entries)


def test_the_proxy_is_a_drop_in_of_the_unit() -> None:
    proxy = {"https": 'http://robot:p%40"s\\s@proxy.example:3128', "no_proxy": "localhost,.example.com", "http": ""}
    assert stage("secrets", docker_proxy=proxy)["drop_in"].splitlines()[1:] == [
        "[Service]",
        'Environment="HTTPS_PROXY=http://robot:p%%40\\"s\\\\s@proxy.example:3128"',
        'Environment="NO_PROXY=localhost,.example.com"',
    ]
    assert DROP_IN in plan(docker_proxy=proxy)["record"]["files"]
    assert plan(docker_proxy=proxy)["has_proxy"] is True
    assert (stage("secrets")["drop_in"], plan()["has_proxy"]) == ("", False)
    assert "docker_proxy has a value of several lines" in plan(docker_proxy={"http": "a\nb"})["refusals"][0]


@pytest.mark.parametrize(
    ("facts", "variables", "expected"),
    [
        ({"is_new": True}, {}, ["start"]),
        # An engine that was there before may run with older options.
        ({}, {}, ["daemon_options", "start"]),
        (
            {"is_new": True},
            {"docker_proxy": {"https": "http://proxy.example:3128"}},
            ["proxy", "daemon_options", "start"],
        ),
        # Of a run that failed before its record: the proxy may have been why.
        ({"is_new": True, "drop_in": True}, {}, ["proxy", "daemon_options", "start"]),
        ({"is_new": True}, {"docker_daemon_options": {"debug": True}}, ["daemon_options", "start"]),
        ({"is_new": True, "record": {"data": {"daemon_options": {"debug": True}}}}, {}, ["daemon_options", "start"]),
        ({"is_new": True, "record": {"data": {"users": ["alice"]}}}, {}, ["start", "group"]),
        ({"is_new": True, "record": {"data": {"registries": ["r.example"]}}}, {}, ["start", "registries"]),
        (
            {"is_new": True},
            {"docker_image_exports": [{"image": "a:1", "path": "/srv/a.tar"}]},
            ["start", "exports"],
        ),
    ],
)
def test_what_is_configured_in_which_order(
    facts: dict[str, Any], variables: dict[str, Any], expected: list[str]
) -> None:
    found = plan(packages={"docker.io": "26.1", "containerd": "1.7"}, facts=facts, **variables)
    assert found["configuration"] == in_order(expected)


INSTALLED = {"docker.io": "26.1", "containerd": "1.7", "python3-requests": "2.31"}
PINNED = {"data": {"version": "26.1", "installed": ["docker.io"]}, "inputs": "", "drift": []}
REMOVED = {"docker_state": "absent"}
IMAGE = {"docker_images": [{"name": "alpine:3"}]}


@pytest.mark.parametrize(
    ("packages", "facts", "variables", "task_files", "changes"),
    [
        ({}, {}, {}, ["install"], ["packages", "configure"]),
        ({}, {"check_mode": True}, IMAGE, ["install"], []),
        ({}, {}, IMAGE, ["install", "images"], ["packages", "configure"]),
        (INSTALLED, {}, {}, ["install"], ["configure"]),
        (INSTALLED, {"check_mode": True}, IMAGE, ["install", "images"], ["configure"]),
        # Pinned at the installed version, at another one, and no longer.
        (INSTALLED, {}, {"docker_version": "26.1"}, ["install"], ["pin present", "configure"]),
        (
            *(INSTALLED, {"record": PINNED}, {"docker_version": "27.0"}, ["install"]),
            ["pin absent", "packages", "pin present", "configure"],
        ),
        (INSTALLED, {"record": PINNED}, {}, ["install"], ["pin absent", "configure"]),
        (INSTALLED, {"record": PINNED, "check_mode": True}, {}, ["install"], ["configure"]),
        ({}, {}, {"docker_source": "docker_repository"}, ["install"], ["repository", "packages", "configure"]),
        ({}, {"check_mode": True}, {"docker_source": "docker_repository"}, ["install"], []),
        (INSTALLED, {"record": PINNED}, {**REMOVED, **IMAGE}, ["remove"], None),
        ({}, {}, {**REMOVED, **IMAGE}, [], None),
    ],
)
def test_tasks_that_there_is_work_for(
    packages: dict[str, str],
    facts: dict[str, Any],
    variables: dict[str, Any],
    task_files: list[str],
    changes: list[str] | None,
) -> None:
    found = plan(packages=packages, facts=facts, **variables)
    assert found["task_files"] == in_order(task_files)
    if changes is not None:
        assert [" ".join([one["name"], *([one["pin"]] if "pin" in one else [])]) for one in found["changes"]] == changes


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("packages", "record", "is_predicted"),
    [
        ({}, {}, True),
        (INSTALLED, {}, False),
        (INSTALLED, {**PINNED, "drift": [{"message": "the unit is not enabled"}]}, True),
    ],
)
def test_check_mode_predicts_packages_and_repairs(
    packages: dict[str, str], record: dict[str, Any], is_predicted: bool, check_mode: bool
) -> None:
    found = plan(packages=packages, facts={"record": record, "check_mode": check_mode})
    assert found["is_predicted"] is (is_predicted and check_mode)
    assert ("Would install docker.io" in found["report"]) is (check_mode and not packages)


def test_users_of_a_directory_service() -> None:
    found = plan(facts={"accounts": {"alice": ["x", "1000"], "bob": None}}, docker_users=["alice", "bob", "carol"])
    assert len(found["refusals"]) == 1
    assert "docker_users has bob," in found["refusals"][0]
    members = plan(facts={"group": ["x", "995", "alice,root"]}, docker_users=["alice", "carol"])
    assert members["new_users"] == ["carol"]


@pytest.mark.parametrize(
    ("variables", "facts", "text"),
    [
        ({}, {"snap": True}, "snap remove docker"),
        ({"docker_version": "latest"}, {}, "docker_version is latest"),
        ({"docker_proxy": {"ftp": "x"}}, {}, "docker_proxy has ftp"),
    ],
)
def test_other_refusals(variables: dict[str, Any], facts: dict[str, Any], text: str) -> None:
    refusals = plan(facts=facts, **variables)["refusals"]
    assert [text in refusal for refusal in refusals] == [True]


def test_platforms() -> None:
    assert "Fedora 42 is not supported" in plan(_el("Fedora", "42"))["refusals"][0]
    assert "set docker_source to docker_repository" in plan(ROCKY, docker_source="distribution")["refusals"][0]


IMAGES = ["debian:13", "nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04", "me/tool:latest"]


@pytest.mark.parametrize(
    ("name", "is_missing"),
    [
        ("debian:13", False),
        ("docker.io/library/debian:13", False),
        ("docker.io/me/tool", False),
        ("me/tool", False),
        ("nvcr.io/nvidia/cuda:12.9.1-base-ubuntu24.04", False),
        ("nvcr.io/nvidia/cuda", True),
        ("registry.example:5000/tool", True),
    ],
)
def test_missing_images(name: str, is_missing: bool) -> None:
    found = {"images": [{"RepoTags": IMAGES}, {"RepoTags": None}]}
    archived = {"name": name, "archive": "/srv/a.tar"}
    assert stage("images", facts=found, docker_images=[{"name": name}, archived]) == {
        "pull": [name] * is_missing,
        "load": [archived] * is_missing,
    }


NO_CHANGE = {"options": {}, "changes_proxy": False, "removes_proxy": False, "changes_packages": False}
REASONS = ["daemon.json changes", "docker.service was started before"]
RESTARTS: dict[str, tuple[str, list[str], list[str], bool, tuple[bool, int, int]]] = {
    # policy, reasons, containers, live-restore: now, notes, refusals
    "no reason": ("always", [], ["job"], False, (False, 0, 0)),
    "idle": ("when_idle", REASONS, [], False, (True, 0, 0)),
    "busy": ("when_idle", REASONS, ["job", "web"], False, (False, 0, 1)),
    "busy with live-restore": ("when_idle", REASONS, ["job"], True, (True, 0, 0)),
    "busy, always": ("always", REASONS, ["job", "web"], False, (True, 1, 0)),
    "idle, always": ("always", REASONS, [], False, (True, 0, 0)),
    "idle, never": ("never", REASONS, [], False, (False, 1, 0)),
    "busy, never": ("never", REASONS, ["job"], False, (False, 1, 0)),
    "never without a reason": ("never", [], ["job"], False, (False, 0, 0)),
}


def restart(policy: str, reasons: list[str], listing: Any, shims: Any, live_restore: bool = False) -> dict[str, Any]:
    """The plan of a restart for these reasons."""
    live = {"rc": 0, "stdout": str(live_restore).lower() + "\n"}
    because = {"preview": {"differs": bool(reasons)}, "state": {"reason": "".join(reasons[1:])}}
    found = {**NO_CHANGE, **because, "listing": listing, "shims": shims, "live_restore": live}
    return stage("restart", facts=found, docker_restart=policy)


@pytest.mark.parametrize("name", RESTARTS)
def test_a_restart_stops_no_container_without_leave(name: str) -> None:
    policy, reasons, containers, live_restore, expected = RESTARTS[name]
    found = restart(policy, reasons, {"rc": 0, "stdout_lines": containers}, {}, live_restore)
    assert (found["now"], len(found["warnings"]), len(found["refusals"])) == expected
    assert found["is_due"] is (policy == "never" and reasons != [])
    for text in (*found["warnings"], *found["refusals"]):
        assert "; ".join(reasons) in text
    if containers and not live_restore and policy != "never" and reasons:
        assert all(", ".join(containers) in text for text in (*found["warnings"], *found["refusals"]))


DOWN = {"rc": 1, "stdout_lines": [], "stderr": "Cannot connect to the Docker daemon. Is the docker daemon running?"}


@pytest.mark.parametrize("policy", ["when_idle", "always", "never"])
@pytest.mark.parametrize(
    ("listing", "shims", "reason"),
    [
        (DOWN, {"rc": 0, "stdout_lines": ["41", "42"]}, "(Cannot connect to the Docker daemon. Is the docker daemon"),
        ({"rc": 124, "stdout_lines": []}, {"rc": 0, "stdout_lines": ["41"]}, "(no response in time), and 1 run"),
        ({"rc": 2, "msg": "Error executing command."}, {"rc": 2, "msg": "no pgrep"}, "(Error executing command.)"),
        (DOWN, {}, "Is the docker daemon running?)"),
    ],
)
def test_containers_that_are_not_known_are_not_none(policy: str, listing: Any, shims: Any, reason: str) -> None:
    found = restart(policy, REASONS, listing, shims)
    assert found["now"] is (policy == "always")
    messages: list[str] = [*found["refusals"], *found["warnings"]]
    (message,) = messages
    assert (reason in message) is (policy != "never")
    assert bool(found["refusals"]) is (policy == "when_idle")


@pytest.mark.parametrize("listing", [DOWN, {"rc": 124}, {"rc": 127}])
def test_an_engine_without_a_process_of_a_container_has_none(listing: Any) -> None:
    shims = {"rc": 1, "stdout_lines": []}
    found = restart("when_idle", REASONS, listing, shims)
    assert (found["now"], found["refusals"], found["warnings"]) == (True, [], [])
    assert stage("containers", facts={"listing": listing, "shims": shims})["containers"] == []


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        (DOWN, "Cannot connect to the Docker daemon. Is the docker daemon running?"),
        ({"rc": 124}, "no response within 60 s"),
        ({"rc": 2, "msg": "no docker"}, "no reason given"),
    ],
)
def test_containers_that_may_run_are_not_removed_unseen(listing: Any, reason: str) -> None:
    found = stage("containers", facts={"listing": listing, "shims": {"rc": 0, "stdout_lines": ["41"]}})
    (refusal,) = found["refusals"]
    assert refusal.startswith("Docker does not list its containers") and f": {reason}; see" in refusal
    listed = stage("containers", facts={"listing": {"rc": 0, "stdout_lines": ["a"]}, "shims": {"skipped": True}})
    assert listed["containers"] == ["a"]


def reasons(changes: dict[str, Any], **variables: Any) -> tuple[str, bool]:
    """Why Docker has to be restarted, and whether systemd is reloaded before it."""
    nothing = {"preview": {"differs": False}, "state": {"reason": ""}, "reload": {"failed": True, "msg": "reloads"}}
    known = {**NO_CHANGE, **nothing, **changes}
    reloads = stage("restart", facts={**known, "listing": {"rc": 0}, "live_restore": {}}, **variables)["refusals"]
    found = {**known, "reload": {}, "listing": {"rc": 0}, "live_restore": {}}
    text = "".join(stage("restart", facts=found, docker_restart="never", **variables)["warnings"])
    return text.partition(" has to be restarted (")[2].partition("), and")[0], reloads == ["reloads"]


@pytest.mark.parametrize(
    ("changes", "because", "reloads"),
    [
        ({"reload": {}}, "", False),
        ({"reload": {}, "preview": {"differs": True}}, "daemon.json changes", False),
        ({"reload": {}, "state": {"reason": "it was started before"}}, "it was started before", False),
        ({"changes_packages": True}, "its packages change", True),
        # Its file is gone, and Docker was started with it.
        ({"reload": {}, "removes_proxy": True}, "its proxy changes", False),
        ({"changes_proxy": True, "drop_in": {"stat": {"checksum": "0" * 64}}}, "its proxy changes", True),
        ({"changes_proxy": True, "drop_in": {"stat": {"exists": False}}}, "its proxy changes", True),
    ],
)
def test_reasons_of_a_restart(changes: dict[str, Any], because: str, reloads: bool) -> None:
    assert reasons(changes, docker_proxy={"http": "http://proxy:3128"}) == (because, reloads)


def test_a_proxy_that_is_as_requested_is_no_reason() -> None:
    proxy = {"docker_proxy": {"http": "http://proxy:3128"}}
    drop_in = stage("secrets", **proxy)["drop_in"]
    there = {"stat": {"exists": True, "checksum": hashlib.sha256(drop_in.encode()).hexdigest()}}
    known = {"changes_proxy": True, "reload": {}}
    assert reasons({**known, "drop_in": there}, **proxy)[0] == ""
    assert reasons({**known, "drop_in": {"stat": {"exists": False}}})[0] == ""
    assert reasons({**known, "drop_in": there})[0] == "its proxy changes"


@pytest.mark.parametrize("name", ["preview", "state"])
def test_a_reading_that_fails_is_the_refusal_without_a_password(name: str) -> None:
    failed = {"failed": True, "msg": "http://robot:s3cret@proxy is no option"}
    found = stage("restart", facts={**NO_CHANGE, "preview": {}, "state": {}, name: failed})
    assert found["refusals"] == ["http://***@proxy is no option"]


RESTORED: list[tuple[dict[str, Any], str]] = [
    ({"status": {}}, "runs with it"),
    ({}, "does not start with that one either"),
]
JOURNAL = ["Error of an image", "failed to start daemon: no such driver", "invalid state of container 1", "bye"]


@pytest.mark.parametrize(
    ("journal", "reason"),
    [
        (JOURNAL, "failed to start daemon: no such driver"),
        ([JOURNAL[0], *JOURNAL[2:]], "invalid state of container 1"),
        (["bye"], "no reason given"),
        ([], "no reason given"),
    ],
)
def test_why_docker_does_not_start(journal: list[str], reason: str) -> None:
    (message,) = stage("failed", facts={"journal": journal, "restored": {"skipped": True}})["refusals"]
    assert message == f"Docker does not start: {reason}; see `journalctl -u docker` on the host"
    for restored, end in RESTORED:
        (message,) = stage("failed", facts={"journal": journal, "restored": restored})["refusals"]
        assert message.startswith(f"Docker does not start with the new /etc/docker/daemon.json: {reason}; the previous")
        assert f"and Docker {end}; correct docker_daemon_options" in message


def test_the_message_of_nvcr_io_to_docker_29_is_recognised() -> None:
    message = (
        'Error pulling image nvcr.io/nvidia/cuda:12.9.1 - 400 Client Error: Bad Request ("Incorrect Repository Format")'
    )
    result = {"msg": "One or more items failed", "results": [{"failed": False}, {"failed": True, "msg": message}]}
    assert message in pull_error(result)
    assert "features: {containerd-snapshotter: false}" in pull_error(result)
    assert pull_error({"failed": True, "msg": "no route to host"}) == "no route to host"


def _recorded(inputs: str, *drift: str) -> dict[str, Any]:
    return {"record": {"inputs": inputs, "data": {}, "drift": [{"message": text} for text in drift]}}


CHANGES: list[dict[str, Any]] = [
    {"docker_version": "28.5"},
    {"docker_source": "docker_repository"},
    {"docker_repository_url": "https://mirror.example/docker"},
    {"docker_repository_key_url": "https://mirror.example/key"},
    {"docker_repository_key_fingerprint": "9" * 40},
    {"docker_add_repo": False},
    {"docker_channel": "test"},
    {"docker_replace": ["podman-docker"]},
    {"docker_users": ["ops"]},
    {"docker_daemon_options": {"log-driver": "journald"}},
    {"docker_proxy": {"http": "http://proxy:3128"}},
    {"docker_registries": [{"registry": "r.example", "ca": "PEM"}]},
    {"docker_image_exports": [{"image": "a", "path": "/srv/a.tar"}]},
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_variable_is_work_on_a_converged_host(change: dict[str, Any]) -> None:
    record = _recorded(plan()["inputs"])
    packages = dict.fromkeys(plan()["packages"], "28.5.1")
    assert plan(packages=packages, facts=record)["steps"] == []
    found = plan(packages=packages, facts=record, **change)
    assert found["steps"] == ["install"] and found["reasons"]


def test_what_has_drifted_is_work_and_its_reason() -> None:
    packages = dict.fromkeys(plan()["packages"], "28.5.1")
    found = plan(packages=packages, facts=_recorded(plan()["inputs"], "daemon.json was edited"))
    assert (found["steps"], found["reasons"]) == (["install"], ["daemon.json was edited"])


def test_a_password_in_the_proxy_is_compared_by_each_run() -> None:
    given = {"docker_proxy": {"http": "http://u:pw@proxy:3128"}}
    packages = dict.fromkeys(plan()["packages"], "28.5.1")
    assert plan(packages=packages, facts=_recorded(plan(**given)["inputs"]), **given)["steps"] == ["images"]


@pytest.mark.parametrize("password", ["", None])
def test_an_empty_password_is_refused_by_the_role_and_the_playbook(password: str | None) -> None:
    registry = {"registry": "r.example", "username": "ops", "password": password}
    given: dict[str, Any] = {"docker_registries": [registry]}
    (refusal,) = plan(**given)["refusals"]
    assert refusal.startswith("docker_registries has neither username and password nor ca for r.example;")
    assert check(["docker"], {**DEFAULTS, **given}, known(NOBLE, packages={})).refusals == (refusal,)
