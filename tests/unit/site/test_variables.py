# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of all variables of all roles, before anything on a host is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import (
    Preflight,
    check_forms,
    requested_roles,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import (
    DEFAULT_ROLES,
    GPU_ROLES,
    REMOVED_ROLES,
    ROLES,
    first_in_loop,
    in_loop,
    variables_of,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_state import in_words_of_the_role

from tests.conftest import ROOT
from tests.unit.site.known import check, known

FILES = RoleData.read()
MESSAGE_LENGTH = 300
# Variables without a default that the role could run with.
NEEDED: dict[str, Any] = {
    "backend_ai_agent_version": "26.9.6",
    "backend_ai_agent_address": "10.0.0.7",
    "backend_ai_agent_etcd_addresses": ["etcd1:2379"],
    "enroot_packages": [{"url": "https://example.com/enroot.deb", "sha256": "5" * 64}],
}


def system(distribution: str, version: str, family: str = "Debian") -> dict[str, Any]:
    return {
        "distribution": distribution,
        "distribution_version": version,
        "distribution_major_version": version.split(".", maxsplit=1)[0],
        "distribution_release": "",
        "os_family": family,
    }


DEBIAN = system("Debian", "12.11")
UBUNTU = system("Ubuntu", "24.04")
ROCKY_10 = system("Rocky", "10.0", "RedHat")
UBUNTU_26 = system("Ubuntu", "26.04")
AMAZON = system("Amazon", "2023", "RedHat")


def host(of: Mapping[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    packages = {name: [{"version": "99.0"}] for name in given.pop("packages", ())}
    return known(of or DEBIAN, packages=packages, **given)


def preflight(
    given: Mapping[str, Any], on: Mapping[str, Any] | None = None, roles: tuple[str, ...] = ROLES
) -> Preflight:
    refusals = check_forms(roles, given, FILES.tables)
    if refusals:
        return Preflight(refusals=refusals)
    found = on or host()
    values = {**FILES.defaults(variables_of(roles)), **NEEDED, **given}
    if found["ansible_facts"]["ansible_os_family"] == "RedHat" and "enroot_packages" not in given:
        values["enroot_packages"] = [{**NEEDED["enroot_packages"][0], "url": "https://example.com/enroot.rpm"}]
    return check(roles, values, found)


@pytest.mark.parametrize(
    "found", [DEBIAN, UBUNTU, system("Debian", "13"), system("Rocky", "9.4", "RedHat"), ROCKY_10, AMAZON]
)
def test_defaults_are_in_order(found: dict[str, Any]) -> None:
    checked = preflight({}, host(found))
    assert (checked.roles, checked.refusals) == (ROLES, ())


GPUS_OF_LAYOUTS = (
    [{"gpus": [1], "profiles": {"1g.18gb": 7}}],
    {"gpus": "1", "enabled": False},
    "half",
)


@pytest.mark.parametrize("mig", GPUS_OF_LAYOUTS)
def test_gpus_are_named_in_one_place(mig: object) -> None:
    layouts = {"half": [{"gpus": ["*H200*"], "profiles": {"3g.71gb": 2}}]}
    given = {"gpu_state_mig": mig, "gpu_state_mig_layouts": layouts}
    assert preflight(given).refusals == ()
    [refusal] = preflight({**given, "gpu_state_gpus": [0]}).refusals
    assert refusal.startswith("gpu_state_gpus is [0], and gpu_state_mig has gpus of its own")


@pytest.mark.parametrize("mig", [{"profiles": {"1g.18gb": 7}}, ["3g.71gb"], False])
def test_layouts_without_gpus_are_for_those_of_the_declaration(mig: object) -> None:
    assert preflight({"gpu_state_mig": mig, "gpu_state_gpus": [0]}).refusals == ()


def test_a_role_is_named_once_in_the_tags_that_site_refuses_and_in_what_a_user_lists() -> None:
    [play] = yaml.safe_load((ROOT / "playbooks" / "site.yml").read_text(encoding="utf-8"))
    assert play["tasks"][-1]["tags"] == ["never", *ROLES]
    assert requested_roles(["docker", "cuda", "docker"]) == (
        (),
        "gpu_fleet_roles has docker more than once; name each role once",
    )


VALUES: dict[str, tuple[Mapping[str, Any], tuple[str, ...]]] = {
    "the example of the issue": (
        {"gpu_state_power_limit": 65, "docker_version": "latest"},
        ("docker_version is latest; it has to be a version such as 28.5.1",),
    ),
    "an agent of no release": (
        {"backend_ai_agent_version": "", "backend_ai_agent_address": ""},
        (
            'backend_ai_agent_version is ""; set it to the release',
            'backend_ai_agent_address is ""; set it to the address',
        ),
    ),
    "all roles in one message": (
        {
            "nvidia_driver_version": "latest",
            "gpu_state_power_limit": "900 W",
            "cuda_versions": ["13"],
            "cudnn_versions": [{"version": 9, "cuda": "13"}],
            "docker_version": "v28",
            "nvidia_container_toolkit_version": "1.18",
        },
        (
            "nvidia_driver_version is latest; it has to be newest, a branch",
            "gpu_state_power_limit is a number of watts, a percentage like 80%, or default, not '900 W'",
            'cuda_versions has "13"; write each version as major.minor',
            "cudnn_versions has the version 9 without quotes",
            "docker_version is v28",
            "nvidia_container_toolkit_version is 1.18; it has to be a version such as 1.18.0",
        ),
    ),
    "text for a list": ({"docker_users": "ops"}, ('docker_users is "ops"; it takes a list: docker_users: [text]',)),
    "text for a dictionary in a list": (
        {"docker_images": ["alpine:3"]},
        ('docker_images has "alpine:3", and takes a dictionary with name (required), archive for each entry',),
    ),
    "an unknown suboption": (
        {"docker_images": [{"name": "alpine:3", "tag": "3"}]},
        ("docker_images[0] has tag, which it does not take; it takes name (required), archive",),
    ),
    "a suboption that is missing": ({"docker_images": [{"archive": "/a.tar"}]}, ("docker_images[0] has no name",)),
    "an unknown suboption of a repository": (
        {"nvidia_repository_cuda": {"uri": "https://mirror.example"}},
        ("nvidia_repository_cuda has uri, which it does not take; it takes url, key_url",),
    ),
    "null": ({"docker_version": None}, ("docker_version is null; it takes text; leave it out for its default",)),
    "a version without quotes": ({"docker_version": 28.1}, ("docker_version is 28.1 without quotes",)),
    "text for a boolean": (
        {"nvidia_driver_pin": "enabled", "gpu_state_persistence_mode": "enabled"},
        (
            'nvidia_driver_pin is "enabled"; it takes true or false',
            'gpu_state_persistence_mode is "enabled"; it takes true or false',
        ),
    ),
    "a relative directory of Docker": (
        {"docker_daemon_options": {"data-root": "docker"}},
        ('docker_daemon_options: data-root is "docker"; it has to be an absolute path',),
    ),
    "a choice": ({"docker_source": "snap"}, ('docker_source is "snap"; use auto, distribution or docker_repository',)),
    "one of many choices": (
        {"gpu_health_ignore": ["gpu_lost", "ecc_uncorrected"]},
        ("gpu_health_ignore is", "values, such as ecc_uncorrectable"),
    ),
    "choices of a list": ({"nvidia_container_toolkit_runtimes": ["lxc"]}, ("use docker, containerd, crio, podman",)),
    "a number": ({"nvidia_driver_disk_space_mib": "3 GB"}, ("nvidia_driver_disk_space_mib is", "a whole number")),
    "compute mode": (
        {"gpu_state_compute_mode": "exclusive"},
        ("gpu_state_compute_mode is one of default, prohibited, exclusive_process, not 'exclusive'",),
    ),
    "clocks": ({"gpu_state_gpu_clocks": "1 GHz"}, ("gpu_state_gpu_clocks is a clock in MHz",)),
    "clocks of the memory": ({"gpu_state_memory_clocks": "1500-1000"}, ("gpu_state_memory_clocks: the range",)),
    "two settings": (
        {"gpu_state_gpu_clocks": "fast", "gpu_state_power_limit": "much"},
        ("gpu_state_power_limit is", "gpu_state_gpu_clocks is"),
    ),
    "a layout that is not there": ({"gpu_state_mig": "small"}, ("gpu_state_mig: there is no layout named 'small'",)),
    "a layout with an unknown key": ({"gpu_state_mig": {"profile": ["1g.10gb"]}}, ("gpu_state_mig: ",)),
    "a default toolkit": ({"cuda_default": "12.4"}, ("cuda_default is 12.4, which is not among the versions 13.0",)),
    "a recommended driver on Debian": ({"nvidia_driver_version": "recommended"}, ("source distribution on Ubuntu",)),
    "a runfile without a checksum": (
        {"nvidia_driver_source": "runfile", "nvidia_driver_version": "580.95.05"},
        ("nvidia_driver_runfile_sha256 (64 hexadecimal digits) have to be set",),
    ),
    "options of the kernel module": (
        {"nvidia_driver_module_options": {"debug": 1}},
        ("nvidia_driver_module_options:",),
    ),
    "a registry without a login": (
        {"docker_registries": [{"registry": "r.example"}]},
        ("docker_registries has neither",),
    ),
    "a fingerprint": (
        {"nvidia_repository_cuda": {"url": "https://m.example/", "fingerprints": ["3BF863CC"]}},
        ("in nvidia_repository_cuda.fingerprints (these are not fingerprints: 3BF863CC)",),
    ),
    "a URL": (
        {"nvidia_repository_container_toolkit": {"url": "mirror.example"}},
        ("nvidia_repository_container_toolkit.url",),
    ),
    "a fingerprint of Docker's mirror": (
        {"docker_repository_key_fingerprint": "0EBFCD88"},
        ("docker_repository_key_fingerprint",),
    ),
    "attempts": ({"nvidia_repository_attempts": 0}, ("nvidia_repository_attempts has to be 1 to 5, and is 0",)),
    "the GPUs of a container": (
        {"gpu_containers_declared": [{"name": "notebook", "image": "torch", "gpus": 7}]},
        ("gpu_containers_declared[0]: gpus is 7; it takes all, none, or a list",),
    ),
    "podman in legacy mode": (
        {"nvidia_container_toolkit_runtimes": ["docker"], "nvidia_container_toolkit_mode": "both"},
        ("nvidia_container_toolkit_mode is",),
    ),
}


@pytest.mark.parametrize("case", VALUES)
def test_a_wrong_value_is_refused_in_words_of_its_variable(case: str) -> None:
    given, parts = VALUES[case]
    refusals = preflight(given).refusals
    for part in parts:
        assert any(part in refusal for refusal in refusals), refusals
    for refusal in refusals:
        assert len(refusal) < MESSAGE_LENGTH
        assert "\n" not in refusal
        assert any(name in refusal for name in given) or "runfile" in refusal


@pytest.mark.parametrize(
    "given",
    [
        {"gpu_state_ecc": "true", "gpu_state_persistence_mode": "yes"},
        {"gpu_state_gpus": "0,1", "gpu_state_mig": False},
        {"gpu_state_mig": {"1g.10gb": 2}, "gpu_state_power_limit": "80%"},
        {"gpu_state_gpu_clocks": [1000, 1500], "gpu_state_memory_clocks": "default"},
        {"gpu_state_power_limit": None, "gpu_state_mig": None, "gpu_state_compute_mode": None},
        {"nvidia_driver_version": 580, "nvidia_driver_disk_space_mib": "4000"},
        {"docker_images": [{"name": "alpine:3", "archive": None}], "docker_users": []},
        {"cuda_versions": ["12.9", "13.0"], "cuda_default": "12.9"},
        {"docker_registries": [{"registry": "nvcr.io", "password": "secret"}]},
        {"nvidia_repository_cuda": {"priority": None, "exclude": ["*"]}},
    ],
    ids=str,
)
def test_a_right_value_passes(given: dict[str, Any]) -> None:
    assert preflight(given).refusals == ()


def test_no_secret_is_printed() -> None:
    of_agent = [f"backend_ai_agent_{name}" for name in ("etcd_password", "keypair")]
    lists = {name: ["hunter2"] for name in ("docker_registries", "nvidia_driver_mok_password", *of_agent)}
    cluster = {"kubernetes_node_kubeconfig": {"users": [{"user": {"token": "hunter2"}}]}}
    kubeconfigs = ("apiVersion: v1\nusers:\n- user: {token: hunter2}\n", '{"users": [{"user": {"token": "hunter2"}}]}')
    cases = [*lists.items(), *cluster.items(), *(("kubernetes_node_kubeconfig", one) for one in kubeconfigs)]
    for name, value in cases:
        refusals = preflight({name: value}).refusals
        assert len(refusals) == 1 and name in refusals[0]
        assert "hunter2" not in refusals[0]
    nested = preflight({"docker_registries": [{"registry": "r.example", "password": ["hunter2"]}]}).refusals
    assert nested == ("docker_registries[0].password has a value of a wrong type; it takes text",)


@pytest.mark.parametrize("value", [None, "docker", {"docker": True}, ["docker", "podman"], [["docker"]], 5], ids=str)
def test_the_choice_of_roles_is_a_list_of_them(value: object) -> None:
    roles, refusal = requested_roles(value)
    assert roles == ()
    assert refusal.startswith("gpu_fleet_roles ")
    assert (
        "nvidia_driver, gpu_state, slurm_gres, cuda, cudnn, docker, nvidia_container_toolkit, nvidia_dcgm, " in refusal
    )
    assert len(refusal) < MESSAGE_LENGTH


def test_roles_run_in_their_order() -> None:
    assert requested_roles(["docker", "nvidia_driver"]) == (("nvidia_driver", "docker"), "")


def test_playbooks_name_sets_of_roles() -> None:
    assert requested_roles("default") == (DEFAULT_ROLES, "")
    assert requested_roles("removed") == (REMOVED_ROLES, "")


@pytest.mark.parametrize(
    ("reads_gpus", "first", "then"),
    [
        (True, ("nvidia_driver", "gpu_state", "slurm_gres"), ("cudnn", "docker", "gpu_health", "kubernetes_node")),
        # In check mode: its GPUs cannot be read.
        (False, ("nvidia_driver",), ("cudnn", "docker", "gpu_health")),
    ],
)
def test_roles_run_in_the_order_of_the_registry_whatever_that_of_the_user_is(
    reads_gpus: bool, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    roles = {"gpu_health", "slurm_gres", "kubernetes_node", "docker", "cudnn", "gpu_state", "nvidia_driver"}
    assert (first_in_loop(roles, reads_gpus), in_loop(roles, reads_gpus)) == (first, then)


def test_variables_of_roles_that_do_not_run_are_not_checked() -> None:
    given = {"docker_version": "latest", "cuda_versions": "13.0", "nvidia_repository_cuda": "mirror"}
    assert preflight(given, roles=("gpu_state",)).refusals == ()
    assert len(preflight(given, roles=("gpu_state", "docker")).refusals) == 1


# The host


def test_users_that_do_not_exist() -> None:
    refusals = preflight({"docker_users": ["ops"]}, host(missing_users=("ops",))).refusals
    assert refusals == ("docker_users has ops, who do not exist on the host; create them first",)


@pytest.mark.parametrize(
    ("runtimes", "roles", "installed", "missing"),
    [
        (["docker", "podman"], ROLES, (), "podman"),
        (["docker", "podman"], ROLES, ("podman",), ""),
        (["containerd"], ROLES, (), ""),
        (["docker"], ("nvidia_container_toolkit",), (), "Docker"),
        (["docker"], ("nvidia_container_toolkit",), ("docker-ce",), ""),
        (["k3s", "rke2"], ROLES, (), ""),
        (["containerd", "crio"], ("nvidia_container_toolkit",), ("containerd.io",), "CRI-O"),
    ],
)
def test_runtimes_are_installed_or_will_be(
    runtimes: list[str], roles: tuple[str, ...], installed: tuple[str, ...], missing: str
) -> None:
    given = {"nvidia_container_toolkit_runtimes": runtimes}
    refusals = preflight(given, host(packages=installed), roles).refusals
    assert [refusal.partition(" is not installed")[0] for refusal in refusals] == ([missing] if missing else [])


def test_a_repository_whose_key_is_not_known_needs_its_fingerprint() -> None:
    assert preflight({}, host(UBUNTU_26)).refusals == ()
    given: dict[str, Any] = {"nvidia_repository_cuda": {"fingerprints": []}}
    refusals = preflight(given, host(UBUNTU_26)).refusals
    assert len(refusals) == 1
    assert "nvidia_repository_cuda.fingerprints" in refusals[0]
    # An unmanaged driver is kept, and nothing is downloaded for it.
    kept = ("nvidia_driver", "gpu_state")
    assert preflight(given, host(UBUNTU_26, has_driver=True), kept).refusals == ()
    assert len(preflight(given, host(UBUNTU_26), kept).refusals) == 1


def test_a_repository_of_ubuntu() -> None:
    assert preflight({"nvidia_driver_source": "ppa"}, host(UBUNTU)).refusals == ()
    assert "PPA is for Ubuntu" in preflight({"nvidia_driver_source": "ppa"}).refusals[0]


# Hosts without a GPU

REST = tuple(role for role in ROLES if role not in GPU_ROLES)


@pytest.mark.parametrize("expected", [None, 0])
def test_a_host_without_a_gpu_leaves_the_parts_for_gpus_out(expected: int | None) -> None:
    found = preflight({"gpu_fleet_expected_gpus": expected}, host(gpu_count=0))
    assert (found.roles, found.without_gpu, found.refusals) == (REST, GPU_ROLES, ())
    assert REST == ("cuda", "cudnn", "docker", "enroot")


def test_a_host_without_a_gpu_is_refused_where_it_should_have_some() -> None:
    refused = preflight({"gpu_fleet_hosts_without_gpu": "fail"}, host(gpu_count=0))
    assert len(refused.refusals) == 1
    assert "gpu_fleet_hosts_without_gpu is fail" in refused.refusals[0]
    for count, words in ((0, "no NVIDIA GPUs, and"), (1, "1 NVIDIA GPU, and"), (7, "7 NVIDIA GPUs, and")):
        refused = preflight({"gpu_fleet_expected_gpus": 8}, host(gpu_count=count))
        assert [words in text and "gpu_fleet_expected_gpus is 8" in text for text in refused.refusals] == [True]
    for eight in (8, "8"):
        assert preflight({"gpu_fleet_expected_gpus": eight}, host(gpu_count=8)).refusals == ()


def test_a_host_that_lost_its_gpus_is_not_one_without() -> None:
    records = {"nvidia_driver": {"inputs": "", "data": {}, "drift": []}}
    refused = preflight({}, host(gpu_count=0, records=records))
    assert len(refused.refusals) == 1
    assert "an earlier run set up nvidia_driver" in refused.refusals[0]
    assert preflight({"gpu_fleet_expected_gpus": 0}, host(gpu_count=0, records=records)).refusals == ()


def test_what_is_removed_needs_no_gpu() -> None:
    given = {"nvidia_driver_state": "absent", "nvidia_container_toolkit_state": "absent"}
    found = preflight(given, host(gpu_count=0))
    assert found.without_gpu == (
        *("gpu_state", "slurm_gres", "nvidia_dcgm"),
        *("gpu_health", "gpu_monitoring", "gpu_workload", "gpu_containers", "backend_ai_agent", "kubernetes_node"),
    )
    assert "nvidia_driver" in found.roles


def test_an_image_is_built_without_a_gpu() -> None:
    assert preflight({"nvidia_driver_image_build": True}, host(gpu_count=0)).roles == ROLES


@pytest.mark.parametrize(
    "given",
    [{"gpu_fleet_hosts_without_gpu": "ignore"}, {"gpu_fleet_expected_gpus": "eight"}, {"gpu_fleet_expected_gpus": -1}],
)
def test_variables_of_the_fleet_are_checked(given: dict[str, Any]) -> None:
    (refusal,) = preflight(given).refusals
    assert refusal.startswith(next(iter(given)))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("GPU 0: power_limit_w 900 is above 700", "GPU 0: gpu_state_power_limit 900 is above 700"),
        ("set on_unsupported to skip", "set gpu_state_on_unsupported to skip"),
        ("mig: there is no layout in mig_layouts", "gpu_state_mig: there is no layout in gpu_state_mig_layouts"),
        ("a layout has gpus, enabled", "a layout has gpus, enabled"),
        ("gpu_state_compute_mode is wrong", "gpu_state_compute_mode is wrong"),
    ],
)
def test_options_of_the_module_are_named_as_variables_of_the_role(message: str, expected: str) -> None:
    assert in_words_of_the_role(message) == expected


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"gpu_workload_tests": [{"framework": "pytorch", "requirements": ["torch"]}]}, "virtualenv and requirements"),
        ({"gpu_monitoring_policy": [{"id": "new"}]}, "gpu_monitoring_policy: the new row new needs one of reading"),
        ({"gpu_monitoring_policy": [{"verdict": "ok"}]}, "gpu_monitoring_policy[0] has no id; it takes id (required),"),
        ({"gpu_health_policy": [{"id": "a", "verdit": "ok"}]}, "gpu_health_policy[0] has verdit, which it does not"),
        ({"gpu_monitoring_policy": [{"id": "a", "verdict": "critical"}]}, '[0].verdict is "critical"; use ok, info,'),
        ({"gpu_health_policy": [{"id": "a", "xids": [-1]}]}, "[0].xids has -1, and takes a whole number from 0 to"),
        ({"gpu_health_expected": {"gpu_cuont": 8}}, "gpu_health_expected has gpu_cuont, which it does not take"),
        ({"gpu_monitoring_expected": {"ecc": "maybe"}}, 'gpu_monitoring_expected.ecc is "maybe"; it takes true or'),
    ],
)
def test_frameworks_and_monitoring_are_refused_before_anything_is_changed(given: dict[str, Any], refusal: str) -> None:
    (found,) = preflight(given).refusals
    assert refusal in found


@pytest.mark.parametrize("replace", [True, False])
def test_the_repository_of_an_unmanaged_driver_is_checked_where_it_is_replaced(replace: bool) -> None:
    given = {"nvidia_driver_source": "ppa", "nvidia_driver_replace_unmanaged": replace}
    refusals = preflight(given, host(has_driver=True), ("nvidia_driver",)).refusals
    assert ["the graphics-drivers PPA is for Ubuntu" in one for one in refusals] == [True] * replace
