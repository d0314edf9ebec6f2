# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check all variables of all roles that will run, before anything on a host is changed. Private to this collection.

Pure: variables and what is known about the host in, refusals out, each one line in the words of the variables. The
planners of the roles read the variables of theirs, so that a request is refused here as they would refuse it later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ._gpu_operator import OnHost, host_refusals
from ._roles import (
    backend_ai_agent,
    container_toolkit,
    container_toolkit_stages,
    cuda,
    cudnn,
    docker,
    enroot,
    gpu_containers,
    gpu_health,
    gpu_monitoring,
    gpu_state,
    gpu_workload,
    kubernetes_node,
    nvidia_repository,
    room,
    slurm_gres,
)
from ._roles.contract import RequestError, is_true
from ._roles.nvidia_driver import request as driver
from ._roles.registry import DEFAULT_ROLES, GPU_ROLES, REMOVED_ROLES, ROLES, WITH_PLAN, variables_of
from ._variable_forms import Spec, form_refusals, is_list, shown

SKIP, FAIL = "skip", "fail"
DEFAULT, REMOVED, NONE = "default", "removed", "none"
_SETS: Mapping[str, tuple[str, ...]] = {DEFAULT: DEFAULT_ROLES, REMOVED: REMOVED_ROLES, NONE: ()}


@dataclass(frozen=True)
class PreflightHost:
    """What is known about a host; `missing_users` do not exist on it.

    `packages` are as in ansible_facts, None where they cannot be read.
    """

    platform: Mapping[str, Any]
    architecture: str = "x86_64"
    release: str = ""
    packages: Mapping[str, Any] | None = None
    missing_users: Sequence[str] = ()
    records: Mapping[str, Any] = field(default_factory=dict)
    gpu_count: int = 0
    has_driver: bool = False
    operator: OnHost = field(default_factory=OnHost)

    @property
    def has_docker(self) -> bool:
        """Whether any Docker is installed."""
        return has_docker(self.packages or ())


def has_docker(packages: Iterable[str]) -> bool:
    """Whether any Docker is among these packages."""
    return bool({*packages} & {*container_toolkit.ENGINE_PACKAGES["docker"]})


def has_driver(driver: Mapping[str, Any]) -> bool:
    """Whether a driver is installed or loaded; `driver` is that of the facts of CUDA."""
    return any(driver[name] for name in ("library_version", "module_version", "loaded_version"))


def room_of(observed: Mapping[str, Any]) -> room.Found:
    """What the module host_facts has found of the room on the host, and of what is installed already."""
    facts = observed["ansible_facts"]
    there = [role for role in facts.get("gpu_fleet_managed", ()) if role in WITH_PLAN]
    there += ["nvidia_driver"] if "cuda" in facts and has_driver(facts["cuda"]["driver"]) else []
    there += ["docker"] if has_docker(facts.get("packages") or ()) else []
    versions = [str(toolkit["version"]) for toolkit in (facts.get("cuda") or {}).get("toolkits", ())]
    return room.Found(observed["file_systems"], int(observed["initramfs_mib"]), there, versions)


@dataclass(frozen=True)
class Tables:
    """What roles keep as data: argument specifications by role, packages of CUDA and cuDNN, keys of repositories."""

    specs: Mapping[str, Mapping[str, Spec]]
    cuda: Mapping[str, Any]
    cudnn: Mapping[str, Any]
    keys: Mapping[str, Any]


class _NeedsRepository(Protocol):
    """A request of a role that may need a repository: its name, empty for none."""

    @property
    def repository(self) -> str: ...


@dataclass(frozen=True)
class Preflight:
    """The roles to run, in their order, and all that is wrong; `without_gpu` are those left out for lack of a GPU."""

    roles: tuple[str, ...] = ()
    without_gpu: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


def requested_roles(value: object) -> tuple[tuple[str, ...], str]:
    """The roles in gpu_fleet_roles, in their order, and a refusal of another value than a list of them.

    Playbooks name sets of roles: `default` are those that run without this variable, `removed` those of decommission;
    with `none` a playbook plans no role.
    """
    known = ", ".join(ROLES)
    if isinstance(value, str) and value in _SETS:
        return _SETS[value], ""
    if not is_list(value) or not all(isinstance(name, str) for name in value):
        found = "null" if value is None else shown(value)
        return (), f"gpu_fleet_roles is {found}; it takes a list of: {known}"
    unknown = [name for name in value if name not in ROLES]
    if unknown:
        hint = "; windows_gpu runs by gpu.fleet.windows" if "windows_gpu" in unknown else ""
        return (), f"gpu_fleet_roles has {', '.join(unknown)[:100]}; it can have {known}{hint}"
    twice = [name for name in ROLES if value.count(name) > 1]
    if twice:
        return (), f"gpu_fleet_roles has {', '.join(twice)} more than once; name each role once"
    return tuple(name for name in ROLES if name in value), ""


def check_forms(roles: Collection[str], given: Mapping[str, Any], tables: Tables) -> tuple[str, ...]:
    """What is wrong with the form of the variables in `given`, which are those that a user has set."""
    converted = set(gpu_state.STATE_OPTIONS.values())
    return tuple(
        refusal
        for role in variables_of(roles)
        for name, spec in tables.specs[role].items()
        if name in given
        for refusal in form_refusals(name, given[name], spec, name in converted)
    )


def check_site(roles: Sequence[str], variables: Mapping[str, Any], host: PreflightHost, tables: Tables) -> Preflight:
    """Which roles run on a host, and what is wrong. `variables` has all of theirs, in the documented form."""
    run, without = _roles_for(roles, variables, host)
    checks: Mapping[str, Callable[[Mapping[str, Any], PreflightHost, Tables], Iterator[str]]] = {
        "nvidia_driver": _driver_refusals,
        "slurm_gres": lambda variables, *_known: iter(slurm_gres.Request.read(variables).refusals),
        "enroot": lambda variables, *_known: iter(enroot.Request.read(variables).refusals),
        "gpu_state": lambda variables, *_known: iter(gpu_state.Request.read(variables).refusals),
        "cuda": _cuda_refusals,
        "cudnn": _cudnn_refusals,
        "gpu_health": lambda variables, *_known: iter(gpu_health.Request.read(variables).refusals),
        "gpu_monitoring": lambda variables, *_known: iter(gpu_monitoring.Request.read(variables).refusals),
        "gpu_workload": _workload_refusals,
        "gpu_containers": _container_refusals,
        "backend_ai_agent": lambda variables, *_known: iter(backend_ai_agent.Request.read(variables).refusals),
        # What fits its GPUs is known when its turn comes.
        "kubernetes_node": lambda variables, *_known: iter(kubernetes_node.Request.read(variables).refusals),
    }
    found: list[str] = []
    for role in run:
        try:
            found += checks[role](variables, host, tables) if role in checks else ()
        except RequestError as error:
            found.append(str(error))
    found += _engine_refusals(run, variables, host)
    found += host_refusals([role for role in run if variables.get(f"{role}_state") == "present"], host.operator)
    for name, role in _repositories(run, variables, host, tables).items():
        found += _repository_refusals(name, role, variables, host, tables)
    refusals = (*_count_refusals(without, variables, host), *found)
    return Preflight(tuple(run), tuple(without), tuple(dict.fromkeys(refusals)))


# Hosts without a GPU


def _roles_for(roles: Sequence[str], variables: Mapping[str, Any], host: PreflightHost) -> tuple[list[str], list[str]]:
    """The roles to run on the host, and those to leave out because it has no GPU."""
    is_possible = host.gpu_count or variables.get("nvidia_driver_image_build")
    without = [] if is_possible else [name for name in roles if name in GPU_ROLES and _needs_gpu(name, variables)]
    return [name for name in roles if name not in without], without


def _count_refusals(without: Sequence[str], variables: Mapping[str, Any], host: PreflightHost) -> Iterator[str]:
    """What is wrong with the number of GPUs, where the roles `without` would be left out."""
    given, decision = variables.get("gpu_fleet_expected_gpus"), variables.get("gpu_fleet_hosts_without_gpu", SKIP)
    # -e name=8 gives text.
    expected = int(given) if isinstance(given, str) and given.isascii() and given.isdigit() else given
    lost = [name for name in ("nvidia_driver", "nvidia_container_toolkit") if name in host.records and name in without]
    if decision not in (SKIP, FAIL):
        yield f"gpu_fleet_hosts_without_gpu is {shown(decision)}; use {SKIP} or {FAIL}"
    if expected is not None:
        if isinstance(expected, bool) or not isinstance(expected, int) or expected < 0:
            yield f"gpu_fleet_expected_gpus is {shown(expected)}; it takes a whole number from 0"
        elif expected != host.gpu_count:
            yield (
                f"the host has {host.gpu_count or 'no'} NVIDIA GPU{'' if host.gpu_count == 1 else 's'}, and "
                f"gpu_fleet_expected_gpus is {expected}: see `lspci -d 10de:` and dmesg, or correct the number"
            )
    elif lost:
        yield (
            f"no NVIDIA GPU is on the PCI bus, but an earlier run set up {' and '.join(lost)} here: see `lspci -d "
            "10de:` and dmesg; where the GPUs were taken out, set gpu_fleet_expected_gpus to 0, or "
            f"{lost[0]}_state to absent"
        )
    elif without and decision == FAIL:
        yield (
            "no NVIDIA GPU is on the PCI bus, and gpu_fleet_hosts_without_gpu is fail: see `lspci -d 10de:`, set it to "
            f"skip, or take {', '.join(without)} out of gpu_fleet_roles for this host"
        )


def _needs_gpu(role: str, variables: Mapping[str, Any]) -> bool:
    return variables.get(f"{role}_state") != "absent"


# The variables of each role


def _driver_refusals(variables: Mapping[str, Any], host: PreflightHost, tables: Tables) -> Iterator[str]:
    request = driver.Request.read(variables)
    yield from driver.against_variables(request, host.platform, host.architecture)


def _cuda_refusals(variables: Mapping[str, Any], host: PreflightHost, tables: Tables) -> Iterator[str]:
    on = cuda.Host(host.platform, host.records.get("cuda") or {})
    yield from cuda.plan(cuda.Request.read(variables), on, tables.cuda).refusals


def _cudnn_refusals(variables: Mapping[str, Any], host: PreflightHost, tables: Tables) -> Iterator[str]:
    on = cudnn.Host(host.platform, record=host.records.get("cudnn") or {})
    yield from cudnn.plan(cudnn.Request.read(variables, tables.cudnn, host.records), on, tables.cudnn).refusals


def _workload_refusals(variables: Mapping[str, Any], host: PreflightHost, tables: Tables) -> Iterator[str]:
    # Its GPUs may be in another MIG mode when its turn comes.
    yield from gpu_workload.plan(gpu_workload.Request.read(variables), gpu_workload.Host(host.platform)).refusals


def _container_refusals(variables: Mapping[str, Any], host: PreflightHost, tables: Tables) -> Iterator[str]:
    # As for the tests, GPUs are looked for later; the engine may be still to be installed.
    yield from gpu_containers.request_refusals(gpu_containers.Request.read(variables))


def _engine_refusals(roles: Collection[str], variables: Mapping[str, Any], host: PreflightHost) -> Iterator[str]:
    """What Docker and the container toolkit cannot do, by what is installed on the host."""
    coming: tuple[str, ...] = ()
    if "docker" in roles:
        try:
            planned = docker.plan(docker.Request.read(variables), _docker_host(host))
        except RequestError as error:
            yield str(error)
            return
        yield from planned.refusals
        # The role docker brings these engines, or newer ones.
        coming = ("docker", "containerd") if docker.INSTALL in planned.steps else ()
    if "nvidia_container_toolkit" in roles and host.packages is not None:
        facts = {"packages": host.packages, "gpu_fleet_managed": host.records}
        known = {"nvidia_smi": {}, "cuda": {"container_toolkit": {}}, **facts}
        request = container_toolkit.Request.read(variables)
        yield from container_toolkit_stages.plan(request, container_toolkit.HostFacts.of(known, coming=coming)).refusals


def _docker_host(host: PreflightHost) -> docker.Host:
    accounts = dict.fromkeys(host.missing_users, False)
    record = host.records.get("docker") or {}
    return docker.Host(host.platform, host.architecture, host.packages, record, accounts=accounts)


# Repositories


def _repositories(
    roles: Collection[str], variables: Mapping[str, Any], host: PreflightHost, tables: Tables
) -> dict[str, str]:
    """NVIDIA's repositories that the roles add, each with the first of these roles."""
    requests: Mapping[str, Callable[[], _NeedsRepository]] = {
        "nvidia_driver": lambda: driver.Request.read(variables),
        "cuda": lambda: cuda.Request.read(variables),
        "cudnn": lambda: cudnn.Request.read(variables, tables.cudnn),
        "nvidia_container_toolkit": lambda: container_toolkit.Request.read(variables),
    }
    # An unmanaged driver is kept or refused, and needs no repository, unless it is to be replaced.
    replaces = is_true(variables.get("nvidia_driver_replace_unmanaged"))
    is_kept = host.has_driver and "nvidia_driver" not in host.records and not replaces
    found: dict[str, str] = {}
    for role, read in requests.items():
        if role not in roles or (role == "nvidia_driver" and is_kept):
            continue
        try:
            found.setdefault(read().repository, role)
        except RequestError:
            continue  # The role's own check has refused it.
    # A driver without any local package is refused by its own check.
    if not variables.get("nvidia_repository_local"):
        found.pop(nvidia_repository.LOCAL, None)
    return {name: role for name, role in found.items() if name}


def _repository_refusals(
    name: str, role: str, variables: Mapping[str, Any], host: PreflightHost, tables: Tables
) -> Iterator[str]:
    """What is wrong with a repository that the role adds, and with the key that signs it."""
    request = nvidia_repository.Request.of_role(variables, name, role)
    on = nvidia_repository.Host(host.platform, host.architecture, host.platform["manager"], host.release, host.records)
    yield from nvidia_repository.plan(request, on, tables.keys).refusals
