# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wrong values of each public variable, refused by the playbook site and by the role alone: in the same words.

By the role alone is what its first role_plan refuses, and what the repository that it adds refuses. What a role reads
before that is read-only. Where Ansible's own check of a role's arguments refuses a value it does so before the first
task, in its own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpu.fleet.plugins.action.role_plan import planned
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import Ask, Needs, Plan, RequestError
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import options_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import check_forms
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import (
    PLANNERS,
    REPOSITORY_ROLE,
    ROLES,
    WINDOWS_ROLE,
    variables_of,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import nvidia_repository
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_containers import plan as gpu_containers

from tests.conftest import ROOT
from tests.unit.mistakes.test_mistakes import MISTAKES
from tests.unit.site.known import read
from tests.unit.site.mock_host import NO_DRIVER, MockHost
from tests.unit.site.test_variables import FILES, NEEDED, VALUES, host, preflight

PLANNED = [role for role in ROLES if role in PLANNERS]
"""The others, and those that are for no GPU host of the playbook, are not refused in two places."""
_LONG, _SPACED = 10**9, "x y"
WRONG: Mapping[str, Sequence[object]] = {
    "str": [1.5, ["x"], {"a": 1}, None, "", _SPACED, True, -1],
    "path": ["relative", ["x"], None, 1.5],
    "int": ["many", -1, 0, _LONG, 1.5, None, [1], True],
    "float": ["x", -1],
    "bool": ["maybe", "", None, 2, []],
    "dict": ["text", ["x"], None, {_SPACED: None}, {"a": "b"}, {"a": {"b": None}}, 5],
    "list": ["text", {"a": 1}, None, [None], [{}], [_SPACED], [1.5], 5, [[]], "[]"],
    "raw": [None, {"a": 1}, [1], "text", 1.5, True],
}
PAIRS: Mapping[str, Mapping[str, Any]] = {
    "GPUs in two places": {"gpu_state_gpus": [0], "gpu_state_mig": {"gpus": [1], "profiles": []}},
    "a default that is not installed": {"cuda_versions": ["12.9"], "cuda_default": "13.0"},
    "two packages of one major": {
        "cudnn_versions": [{"version": "9.14", "cuda": "13"}, {"version": "9.10", "cuda": "12"}]
    },
    "a version of the archive": {"cuda_source": "distribution", "cuda_versions": ["13.0"]},
    "a runfile without its hash": {"nvidia_driver_source": "runfile", "nvidia_driver_version": "580.95.05"},
    "a PPA on Debian": {"nvidia_driver_source": "ppa"},
    "no repository package": {"nvidia_driver_source": "local_repository"},
    "a repository package without a hash": {
        "nvidia_driver_source": "local_repository",
        "nvidia_repository_local": [{"source": "relative.deb", "sha256": "12"}],
    },
    "one of two keys": {"backend_ai_agent_keypair": "pair"},
    "a user without a password": {"backend_ai_agent_etcd_user": "agent"},
    "a setting of another variable": {"backend_ai_agent_settings": {"etcd": {"addr": 1}}},
    "a version of DCGM 3": {"nvidia_dcgm_version": "3.3.9"},
    "two sources of enroot": {
        "enroot_packages": [{"url": f"https://example.com/{name}.tar.gz", "sha256": "5" * 64} for name in "ab"]
    },
    "a parameter that the role writes": {
        "slurm_gres_node_parameters": {"Gres": "gpu:2"},
        "slurm_gres_types": {"a": "B"},
    },
    "a relative directory": {"slurm_gres_directory": "opt/slurm", "slurm_gres_node": "two nodes"},
    "no kernel log": {"gpu_health_kernel_log": "syslog", "gpu_monitoring_kernel_log": "syslog"},
    "no vulnerability": {"gpu_health_ignore_vulnerabilities": ["CVE-1"]},
    "a problem of no row": {"gpu_health_ignore": ["ecc_mode_pendign"]},
    "a key without https": {
        "nvidia_repository_container_toolkit": {"url": "https://m.example/", "key_url": "http://m.example/key"}
    },
    "an archive without a hash": {"cudnn_versions": [{"version": "9.14", "cuda": "13", "archive": "/a.tar.xz"}]},
    "a test in a virtual environment of no path": {
        "gpu_workload_tests": [{"framework": "pytorch", "virtualenv": "torch", "requirements": ["torch"]}]
    },
    "a registry without a login": {"docker_registries": [{"registry": "r.example"}]},
    "GPUs that the device plugin shares and does not offer": {
        "kubernetes_node_gpus_by": "dra_driver",
        "kubernetes_node_time_slicing": {"nvidia.com/gpu": 2},
    },
    "two MPS daemons": {
        "kubernetes_node_mps": {"nvidia.com/gpu": 2},
        "gpu_state_mps": {"active_thread_percentage": 50},
        "gpu_state_compute_mode": "default",
    },
    "the removal of no taint": {
        "kubernetes_node_state": "absent",
        "kubernetes_node_apply": True,
        "kubernetes_node_taint": "nvidia.com/gpu",
    },
}
_DRIVER = {"driver_version": "580.95.05", "cuda_version": "13.0"}
_HOST = MockHost(packages={"docker.io": "99.0"}, nvidia_smi={**NO_DRIVER, **_DRIVER})
FACTS: Mapping[str, Any] = {
    name.removeprefix("ansible_"): value for name, value in _HOST.modules()["host_facts"]["ansible_facts"].items()
}
FIRST: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **dict.fromkeys(("backend_ai_agent", "enroot"), ("plan", {"readings": {}, "check_mode": False})),
    "kubernetes_node": ("request", {"host": "gpu1"}),
    WINDOWS_ROLE: ("request", {}),
    "gpu_health": ("plan", {"check_mode": False, "facts_are_read": True, "is_converged": False, "toolkit": {}}),
    "slurm_gres": ("plan", {"gpus": {}, "files": {"results": [{}, {}]}}),
}
"""The first stage of roles that need more than their variables and facts, and what tasks give it."""
READING = {
    *("ansible.builtin.command", "ansible.builtin.slurp", "ansible.builtin.stat", "ansible.builtin.meta"),
    *("ansible.builtin.include_role", "gpu.fleet.host_facts", "gpu.fleet.nvidia_smi_facts"),
}


def alone(role: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """What the role alone refuses before it changes anything."""
    variables = {**FILES.defaults(variables_of([role])), **NEEDED, **given}
    found = _first_plan(role, variables)
    tasks = found.tasks
    name = "cuda" if tasks.get("needs_repository") else tasks.get("source_repository", tasks.get("repository", ""))
    if found.refusals or not name:
        return found.refusals
    needed = {"state": "present", "repositories": [name], "needed_by": role}
    return _first_plan(REPOSITORY_ROLE, variables, {"needed": needed}).refusals


def _first_plan(role: str, variables: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> Plan:
    stage, found = FIRST.get(role, ("plan", given or {}))
    if role in ("backend_ai_agent", "enroot", "slurm_gres"):
        needs = PLANNERS[role].needs(variables) if not check_forms([role], variables, FILES.tables) else Needs()
        found = {**found, "readings": read(needs)}
    try:
        result = planned(role, stage, variables, FACTS, found)
    except RequestError as error:
        return Plan((str(error),))
    assert not isinstance(result, (Ask, Mapping))
    if isinstance(result, Plan):
        return result
    return Plan(tuple(text for one in result for text in one.refusals))


def is_refused_by_ansible(role: str, given: Mapping[str, Any]) -> bool:
    """Whether Ansible's own check of the role's arguments refuses these, before the role's first task."""
    specs = {name: dict(spec) for name, spec in options_of(role).items() if name in given}
    try:
        return bool(ArgumentSpecValidator(specs).validate({name: given[name] for name in specs}).error_messages)
    except TypeError:
        return True  # Of values in lists of dictionaries that it looks into.


def difference(role: str, given: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The refusals of both ways where they are not the same."""
    of_site, of_role = preflight(given, host(packages=_HOST.packages), (role,)).refusals, alone(role, given)
    if is_refused_by_ansible(role, given):
        return None if of_site else (of_site, ("Ansible refuses",))
    # The role stops before it includes the one of the repository, and the playbook names all at once.
    rest = of_site[len(of_role) :]
    is_same = of_site[: len(of_role)] == of_role and all(of_role and REPOSITORY_ROLE in text for text in rest)
    return None if is_same else (of_site, of_role)


@pytest.mark.parametrize("role", PLANNED)
def test_each_wrong_value_of_each_variable_is_refused_in_the_same_words(role: str) -> None:
    refused, differ = set(), {}
    for name, spec in options_of(role).items():
        for value in (*WRONG[spec.get("type", "str")], *(["no choice"] if "choices" in spec else [])):
            found = difference(role, {name: value})
            if found:
                differ[f"{name} = {value!r}"] = found
            if alone(role, {name: value}):
                refused.add(name)
    assert differ == {}
    assert refused == set(options_of(role)), "a variable of which no wrong value is refused"


ADDING: Mapping[str, Mapping[str, Any]] = {
    "cuda": {},
    "nvidia_container_toolkit": {},
    "nvidia_driver": {"nvidia_driver_source": "local_repository"},
}
"""Roles that add each kind of repository, and the variables with which they do."""


@pytest.mark.parametrize("role", ADDING)
def test_so_is_each_wrong_value_of_the_repository_that_a_role_adds(role: str) -> None:
    differ, count = {}, 0
    for name, spec in options_of(REPOSITORY_ROLE).items():
        if name in ("nvidia_repository_repositories", "nvidia_repository_needed_by"):
            continue  # Those are the role's.
        for value in WRONG[spec.get("type", "str")]:
            found = difference(role, {**ADDING[role], name: value})
            count += bool(alone(role, {**ADDING[role], name: value}))
            if found:
                differ[f"{name} = {value!r}"] = found
    assert differ == {}
    assert count > len(options_of(REPOSITORY_ROLE))


def _given() -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = [row for row in MISTAKES if row.playbook == "site" and row.host == "bare" and "{{" not in str(row.variables)]
    yield from ((row.mistake, row.variables) for row in rows)
    yield from ((name, given) for name, (given, _parts) in VALUES.items())
    yield from PAIRS.items()


def _cases() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for name, given in _given():
        for role in PLANNED:
            of = {variable for one in variables_of([role]) for variable in options_of(one)} | {*PLANNERS[role].others}
            # Those of the whole fleet are the playbook's.
            own = {key: value for key, value in given.items() if key in of and not key.startswith("gpu_fleet_")}
            if own:
                yield name, role, own


CASES = list(_cases())


def test_mistakes_of_users_are_refused_in_the_same_words() -> None:
    differ = {(name, role): found for name, role, given in CASES if (found := difference(role, given))}
    assert differ == {}
    assert {role for _name, role, _given in CASES} == {*PLANNED}


@pytest.mark.parametrize("case", PAIRS)
def test_values_that_contradict_each_other_are_refused(case: str) -> None:
    roles = [role for name, role, given in CASES if name == case and alone(role, given)]
    assert roles != []


@pytest.mark.parametrize("role", PLANNED)
def test_what_ansible_takes_for_a_boolean_is_one_both_ways(role: str) -> None:
    """`-e name=false` and an inventory in the INI format give text, and `name=1` in one gives a number."""
    defaults = {**FILES.defaults(variables_of([role])), **NEEDED}
    for name, spec in options_of(role).items():
        if spec.get("type") == "bool":
            for given, value in (
                ("false", False),
                ("No", False),
                ("off", False),
                ("yes", True),
                ("ON", True),
                (1, True),
            ):
                assert _first_plan(role, {**defaults, name: given}) == _first_plan(role, {**defaults, name: value})
                assert check_forms([role], {name: given}, FILES.tables) == ()
                assert FILES.with_truths({name: given}) == {name: value}


def test_so_it_is_in_a_dictionary_and_in_a_list_of_dictionaries() -> None:
    for given, value in (("false", False), ("yes", True), (0, False)):
        url = {"url": "https://mirror.example"}
        of_repository = {**FILES.defaults([REPOSITORY_ROLE]), "nvidia_repository_cuda": {**url, "gpgcheck": given}}
        assert check_forms([REPOSITORY_ROLE], of_repository, FILES.tables) == ()
        assert nvidia_repository.Request.read(of_repository, "cuda").given == {**url, "gpgcheck": value}
        declared = [{"name": "lab", "image": "lab:1", "gpus": "all", "jupyter": given}]
        of_containers = {**FILES.defaults(["gpu_containers"]), "gpu_containers_declared": declared}
        assert check_forms(["gpu_containers"], of_containers, FILES.tables) == ()
        [entry] = gpu_containers.Request.read(of_containers).entries
        assert entry["jupyter"] is value


@pytest.mark.parametrize("role", PLANNERS)
def test_defaults_have_the_form_that_a_role_alone_requires(role: str) -> None:
    assert check_forms([role], FILES.defaults(variables_of([role])) if role != WINDOWS_ROLE else {}, FILES.tables) == ()


@pytest.mark.parametrize("role", PLANNERS)
def test_a_role_alone_reads_only_before_its_first_plan(role: str) -> None:
    found = list(_until_the_plan(ROOT / "roles" / role / "tasks" / "main.yml"))
    assert found.pop() == "gpu.fleet.role_plan"
    assert {*found} <= READING


def _until_the_plan(path: Path) -> Iterator[str]:
    """The modules of a role's tasks up to the first plan of the role."""
    for task in yaml.safe_load(path.read_text(encoding="utf-8")):
        included = task.get("ansible.builtin.import_tasks") or task.get("ansible.builtin.include_tasks")
        # A file that a plan names comes after that plan.
        assert "{{" not in (included or ""), task
        (module,) = [name for name in task if name.startswith(("ansible.builtin.", "gpu.fleet."))] or [""]
        if included:
            *names, last = _until_the_plan(path.parent / included)
            yield from (*names, last)
            if last == "gpu.fleet.role_plan":
                return
        elif module == "ansible.builtin.command":
            assert task["changed_when"] is False
            yield module
        elif module == "ansible.builtin.include_role":
            assert task[module]["name"] == "gpu.fleet.common"
            yield module
        else:
            yield module
            if module == "gpu.fleet.role_plan":
                return
