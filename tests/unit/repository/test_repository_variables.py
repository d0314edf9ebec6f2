# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's table of repositories and keys, and its plans for various hosts and user variables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.distributions import PLATFORMS
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Plan, command
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_repository import Host, Request, define, plan

from tests.unit.conftest import ROOT

# (distribution, version, architecture) of hosts.
DEBIAN12, DEBIAN13 = ("Debian", "12.11", "x86_64"), ("Debian", "13.1", "x86_64")
UBUNTU22, UBUNTU24 = ("Ubuntu", "22.04", "x86_64"), ("Ubuntu", "24.04", "x86_64")
ROCKY9 = ("Rocky", "9.6", "x86_64")
FAMILIES = {"Debian": "Debian", "Ubuntu": "Debian"}
RELEASES = {"12": "bookworm", "13": "trixie", "22.04": "jammy", "24.04": "noble"}
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"
UBUNTU_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
RPM_KEY = "610C7B14E068A878070DA4E99CD0A493D42D0685"


def facts_of(host: tuple[str, str, str]) -> dict[str, Any]:
    """Ansible's facts of a host, on which the roles have done nothing."""
    distribution, version, architecture = host
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.split(".")[0],
        "distribution_release": RELEASES.get(version, RELEASES.get(version.split(".")[0], "")),
        "os_family": FAMILIES.get(distribution, "RedHat"),
        "architecture": architecture,
        "gpu_fleet_managed": {},
    }


def _variables(role: str) -> dict[str, Any]:
    files = [ROOT / "roles" / role / part / "main.yml" for part in ("defaults", "vars")]
    loaded = [DataLoader().load_from_file(str(path), trusted_as_template=True) for path in files]
    return {name: value for variables in loaded for name, value in variables.items()}


VARIABLES = _variables("nvidia_repository")
KEYS = VARIABLES["__nvidia_repository_keys"]


def planned(host: tuple[str, str, str], name: str = "cuda", **variables: Any) -> Plan:
    """The plan of a repository on a host, with a user's variables."""
    return plan(Request.read({**VARIABLES, **variables}, name), Host.of(facts_of(host)), KEYS)


def defined(host: tuple[str, str, str], name: str = "cuda", **variables: Any) -> dict[str, Any]:
    """The definition of a repository on a host, with a user's variables."""
    return define(Request.read({**VARIABLES, **variables}, name), Host.of(facts_of(host)), KEYS)


@pytest.mark.parametrize(
    ("host", "name", "url", "key_url", "fingerprints"),
    [
        (DEBIAN12, "cuda", f"{CUDA}/debian12/x86_64/", "3bf863cc.pub", [UBUNTU_KEY]),
        (DEBIAN13, "cuda", f"{CUDA}/debian13/x86_64/", "8793F200.pub", ["02182E60104FCDC26EAE1B8597A5D4CB8793F200"]),
        (UBUNTU22, "cuda", f"{CUDA}/ubuntu2204/x86_64/", "3bf863cc.pub", [UBUNTU_KEY]),
        (UBUNTU24, "cuda", f"{CUDA}/ubuntu2404/x86_64/", "3bf863cc.pub", [UBUNTU_KEY]),
        (("Ubuntu", "24.04", "aarch64"), "cuda", f"{CUDA}/ubuntu2404/sbsa/", "3bf863cc.pub", [UBUNTU_KEY]),
        (
            ("Ubuntu", "26.04", "x86_64"),
            "cuda",
            f"{CUDA}/ubuntu2604/x86_64/",
            "60DF8A40.pub",
            ["14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"],
        ),
        (("RedHat", "9.6", "x86_64"), "cuda", f"{CUDA}/rhel9/x86_64/", "D42D0685.pub", [RPM_KEY]),
        (("AlmaLinux", "9.5", "aarch64"), "cuda", f"{CUDA}/rhel9/sbsa/", "D42D0685.pub", [RPM_KEY]),
        (("OracleLinux", "10.0", "x86_64"), "cuda", f"{CUDA}/rhel10/x86_64/", "CDF6BA43.pub", []),
        (("Fedora", "42", "x86_64"), "cuda", "", "", []),
        (("Ubuntu", "20.04", "x86_64"), "cuda", "", "", []),
        (("Ubuntu", "24.04", "ppc64le"), "cuda", "", "3bf863cc.pub", [UBUNTU_KEY]),
    ],
)
def test_the_cuda_repository_of_each_host(
    host: tuple[str, str, str], name: str, url: str, key_url: str, fingerprints: list[str]
) -> None:
    definition = defined(host, name)
    assert definition["url"] == url
    assert definition["key_url"] == f"{url}{key_url}"
    assert list(definition["fingerprints"]) == fingerprints


@pytest.mark.parametrize(
    ("host", "url"),
    [
        (DEBIAN12, "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/"),
        (("Debian", "13", "aarch64"), "https://nvidia.github.io/libnvidia-container/stable/deb/arm64/"),
        (ROCKY9, "https://nvidia.github.io/libnvidia-container/stable/rpm/x86_64/"),
        (("Rocky", "9", "aarch64"), "https://nvidia.github.io/libnvidia-container/stable/rpm/aarch64/"),
    ],
)
def test_the_container_toolkit_repository_of_each_host(host: tuple[str, str, str], url: str) -> None:
    definition = defined(host, "container_toolkit")
    assert definition["url"] == url
    assert definition["key_url"] == "https://nvidia.github.io/libnvidia-container/gpgkey"


def test_the_ppa_has_a_suite_and_a_component() -> None:
    definition = defined(UBUNTU24, "graphics_drivers")
    assert (definition["suite"], definition["component"]) == ("noble", "main")
    assert definition["key_url"].endswith("search=0x2388FF3BE10A76F638F80723FCAE110B1118213C")


def test_every_key_states_where_its_fingerprint_was_read() -> None:
    for name, key in KEYS.items():
        assert key["source"], name
        assert isinstance(key["verified"], bool), name
        for fingerprint in key["fingerprints"]:
            assert re.fullmatch("[0-9A-F]{40}", fingerprint), name
            # NVIDIA names a key's file after the end of its fingerprint.
            assert fingerprint.endswith(key.get("file", "").removesuffix(".pub").upper()), name
    assert {platform.cuda_key for platform in PLATFORMS} <= KEYS.keys()


def test_a_mirror_has_the_key_below_its_url_unless_another_is_given() -> None:
    mirror = {"url": "https://mirror.example.com/cuda"}
    definition = defined(DEBIAN12, nvidia_repository_cuda=mirror)
    assert definition["url"] == "https://mirror.example.com/cuda/"
    assert definition["key_url"] == "https://mirror.example.com/cuda/3bf863cc.pub"
    other = defined(DEBIAN12, nvidia_repository_cuda={**mirror, "key_url": "file:///srv/key.asc"})
    assert other["key_url"] == "file:///srv/key.asc"


def test_fingerprints_may_be_written_as_gpg_prints_them() -> None:
    message = {"fingerprints": ["eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc"]}
    assert list(defined(DEBIAN12, nvidia_repository_cuda=message)["fingerprints"]) == [UBUNTU_KEY]


@pytest.mark.parametrize(
    "changes", [{"exclude": ["mft*"]}, {"priority": 600}, {"url": "https://x/"}, {"gpgcheck": False}]
)
def test_what_a_user_changes_changes_the_inputs(changes: dict[str, Any]) -> None:
    assert planned(ROCKY9).inputs == planned(ROCKY9).inputs
    assert planned(ROCKY9, nvidia_repository_cuda=changes).inputs != planned(ROCKY9).inputs


@pytest.mark.parametrize(
    ("host", "name", "variables"),
    [
        (DEBIAN12, "cuda", {}),
        (ROCKY9, "container_toolkit", {}),
        (UBUNTU24, "graphics_drivers", {}),
        (ROCKY9, "cuda", {"nvidia_repository_cuda": {"url": "https://mirror.example.com/cuda", "priority": None}}),
        (DEBIAN13, "local", {"nvidia_repository_local": [{"source": "/x.deb", "sha256": "0" * 64}]}),
    ],
)
def test_a_repository_as_recorded_is_no_work(host: tuple[str, str, str], name: str, variables: dict[str, Any]) -> None:
    request = Request.read({**VARIABLES, "nvidia_repository_needed_by": "cuda", **variables}, name)
    inputs = plan(request, Host.of({**facts_of(host), "gpu_fleet_managed": {}}), KEYS).inputs
    record = {"inputs": inputs, "drift": [], "data": {"needed_by": ["cuda"]}}
    facts = {**facts_of(host), "gpu_fleet_managed": {f"nvidia_repository.{name}": record}}
    found = plan(request, Host.of(facts), KEYS)
    assert (found.has_work, found.refusals) == (False, ())
    other = Request.read({**VARIABLES, "nvidia_repository_needed_by": "cudnn", **variables}, name)
    assert plan(other, Host.of(facts), KEYS).steps == ("install" if name == "local" else "record_users",)


def test_a_plan_has_no_password_of_a_mirror() -> None:
    mirror = {"url": "https://ops:hunter2@mirror.example.com/cuda", "key_url": "ftp://ops:hunter2@mirror.example.com/k"}
    record = {
        "inputs": "",
        "drift": [],
        "data": {"needed_by": ["cuda"], "url": "https://ops:hunter2@mirror.example.com/x"},
    }
    facts = {**facts_of(DEBIAN13), "gpu_fleet_managed": {"nvidia_repository.cuda": record}}
    found = plan(Request.read({**VARIABLES, "nvidia_repository_cuda": mirror}, "cuda"), Host.of(facts), KEYS)
    assert found.refusals[0].startswith('nvidia_repository_cuda.key_url is "ftp://***@mirror.example.com/k"')
    assert "hunter2" not in json.dumps(found.as_dict())
    assert "hunter2" in json.dumps(defined(DEBIAN13, nvidia_repository_cuda=mirror))


def test_a_repository_goes_with_the_last_role_that_needs_it() -> None:
    record = {"inputs": "", "drift": [], "data": {"needed_by": ["cuda", "cudnn"]}}

    def steps(needed_by: str, needed: list[str]) -> tuple[str, ...]:
        records = {"nvidia_repository.cuda": {**record, "data": {"needed_by": needed}}}
        variables = {**VARIABLES, "nvidia_repository_state": "absent", "nvidia_repository_needed_by": needed_by}
        facts = {**facts_of(DEBIAN12), "gpu_fleet_managed": records}
        return plan(Request.read(variables, "cuda"), Host.of(facts), KEYS).steps

    assert steps("cudnn", ["cuda", "cudnn"]) == ("install",)
    assert steps("cudnn", ["cudnn"]) == ("remove",)
    assert steps("", ["cuda", "cudnn"]) == ("remove",)
    assert planned(DEBIAN12, nvidia_repository_state="absent").steps == ()


OURS = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"


def test_a_mirror_given_by_the_user_is_an_old_entry_elsewhere() -> None:
    line = defined(DEBIAN12, nvidia_repository_cuda={"url": "https://mirror.example.com/cuda"})["old_line"]
    assert re.search(line, "deb [trusted=yes] https://mirror.example.com/cuda /")
    assert re.search(line, f"deb {OURS} /")
    assert not re.search(line, "deb https://mirror.example.com/cudnn /")
    assert not re.search(defined(DEBIAN12)["old_line"], "deb https://mirror.example.com/cuda /")


def test_only_without_fingerprints_is_a_key_known_by_its_checksum() -> None:
    el10 = ("Rocky", "10.0", "x86_64")
    assert len(defined(el10)["key_sha256"]) == 64
    assert defined(el10, nvidia_repository_cuda={"fingerprints": [UBUNTU_KEY]})["key_sha256"] == ""
    assert defined(ROCKY9)["key_sha256"] == ""


@pytest.mark.parametrize(("needed", "source"), [(None, "/own.deb"), ("present", "/driver.deb")])
def test_the_package_of_a_local_repository_is_that_of_the_driver_where_it_needs_one(
    needed: str | None, source: str
) -> None:
    of_driver = {"nvidia_driver_local_repository": "/driver.deb", "nvidia_driver_local_repository_sha256": "1" * 64}
    own = {
        "nvidia_repository_repositories": ["local"],
        "nvidia_repository_local": [{"source": "/own.deb", "sha256": ""}],
    }
    asked = {"state": needed, "repositories": ["local"], "needed_by": "nvidia_driver"}
    found = PLANNERS["nvidia_repository"].stages["definitions"](
        {**VARIABLES, **own, **of_driver}, facts_of(UBUNTU24), {"needed": asked if needed else {}}
    )
    assert isinstance(found, Mapping)
    assert [package["source"] for package in found["local"]] == [source]


NAME = "nvidia-driver-local-repo-ubuntu2404-580.95.05"
LOCAL_FILES = [
    "/.",
    "/etc/apt/sources.list.d/nvidia-driver-local-ubuntu2404-580.95.05.list",
    f"/var/{NAME}/nvidia-driver-local-2A8C0B27-keyring.gpg",
    f"/var/{NAME}/Packages.gz",
]


def test_files_of_repository_packages_are_listed_and_sorted() -> None:
    sort = PLANNERS["nvidia_repository"].stages["packages"]
    asked = sort({}, facts_of(UBUNTU24), {"names": [NAME]})
    assert isinstance(asked, Ask) and asked.readings == {"listed": command("dpkg-query", "--listfiles", NAME)}
    listed = {"rc": 0, "stdout": "\n".join(LOCAL_FILES)}
    assert sort({}, facts_of(UBUNTU24), {"names": [NAME], "listed": listed}) == {
        "keyrings": [LOCAL_FILES[2]],
        "files": [LOCAL_FILES[1], "/usr/share/keyrings/nvidia-driver-local-2A8C0B27-keyring.gpg"],
        "sources": [LOCAL_FILES[1]],
    }
    failed = {"failed": True, "rc": 1, "stderr": f"dpkg-query: package '{NAME}' is not installed\n"}
    refused = sort({}, facts_of(UBUNTU24), {"names": [NAME], "listed": failed})
    assert isinstance(refused, Plan)
    assert refused.refusals == (f"the files of {NAME} cannot be listed: dpkg-query: package '{NAME}' is not installed",)
