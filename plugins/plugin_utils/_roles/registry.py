# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles that playbooks run, in their order, and what playbooks have to know of each. Private to this collection."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """A role of the collection.

    runs_by_default: without gpu_fleet_roles. needs_gpu: it has nothing to do on a host without a GPU.
    may_need_repository: one of NVIDIA's. has_plan: variables and facts decide whether it has work; of others each run
    has to look. is_disruptive: a job on the host notices its changes, and the health check judges them. is_removed:
    when a host is decommissioned. collections: of others that its tasks use.
    """

    name: str
    runs_by_default: bool = False
    needs_gpu: bool = True
    may_need_repository: bool = False
    has_plan: bool = False
    is_disruptive: bool = False
    is_removed: bool = True
    collections: tuple[str, ...] = ()


_DOCKER, _GENERAL, _PODMAN = "community.docker", "community.general", "containers.podman"


def _installs(name: str, *others: str, needs_gpu: bool = True, may_need_repository: bool = True) -> Role:
    """A role that installs packages; all run by default, and use the collections `others`."""
    return Role(name, True, needs_gpu, may_need_repository, True, is_disruptive=True, collections=others)


REGISTRY = (
    _installs("nvidia_driver", _GENERAL),
    Role("gpu_state", runs_by_default=True, is_disruptive=True),
    # What Slurm has of a node is the operator's.
    Role("slurm_gres", is_removed=False),
    _installs("cuda", _GENERAL, needs_gpu=False),
    _installs("cudnn", needs_gpu=False),
    _installs("docker", _DOCKER, needs_gpu=False, may_need_repository=False),
    _installs("nvidia_container_toolkit"),
    Role("nvidia_dcgm", may_need_repository=True, has_plan=True),
    Role("gpu_health", runs_by_default=True, is_removed=False, collections=(_DOCKER,)),
    Role("gpu_monitoring"),
    Role("gpu_workload", collections=(_DOCKER,)),
    Role("gpu_containers", collections=(_DOCKER, _PODMAN)),
    # As with Slurm itself: jobs of others may use what it installed.
    Role("enroot", needs_gpu=False, is_removed=False),
    Role("backend_ai_agent"),
    Role("kubernetes_node"),
)
ROLES = tuple(role.name for role in REGISTRY)
DEFAULT_ROLES = tuple(role.name for role in REGISTRY if role.runs_by_default)
GPU_ROLES = tuple(role.name for role in REGISTRY if role.needs_gpu)
DISRUPTIVE_ROLES = tuple(role.name for role in REGISTRY if role.is_disruptive)
REMOVED_ROLES = tuple(role.name for role in REGISTRY if role.is_removed)
WITHOUT_PLAN = tuple(role.name for role in REGISTRY if not role.has_plan)
WITH_PLAN = tuple(role.name for role in REGISTRY if role.has_plan)

REPOSITORY_ROLE = "nvidia_repository"
"""The role that the others include, and that no playbook runs for itself."""
WINDOWS_ROLE = "windows_gpu"
"""The role of hosts with Windows, which a playbook of its own runs."""

# Playbooks have tasks of their own for these, because others depend on when they run: the GPUs come first.
_STATE = ("gpu_state", "slurm_gres")
_FIRST = ("nvidia_driver", *_STATE)
# They read the GPUs, which needs the driver: on a bare host check mode has none.
_READ_GPUS = (*_STATE, "nvidia_dcgm", "kubernetes_node")


def first_in_loop(roles: Collection[str], reads_gpus: bool) -> tuple[str, ...]:
    """The `roles` that site.yml runs before all others, in their order."""
    return tuple(name for name in _FIRST if name in roles and (reads_gpus or name not in _READ_GPUS))


def in_loop(roles: Collection[str], reads_gpus: bool) -> tuple[str, ...]:
    """The `roles` that site.yml runs one after the other at the end, in their order."""
    left_out = (*_FIRST, *(() if reads_gpus else _READ_GPUS))
    return tuple(name for name in ROLES if name in roles and name not in left_out)


def removed_in_loop(roles: Collection[str]) -> tuple[str, ...]:
    """The `roles` that are removed one after the other, in the reverse order."""
    return tuple(name for name in reversed(ROLES) if name in roles and name not in _FIRST)


def collections_of(roles: Collection[str]) -> tuple[str, ...]:
    """The collections of others that the tasks of these roles use."""
    return tuple(dict.fromkeys(name for role in REGISTRY if role.name in roles for name in role.collections))


def variables_of(roles: Collection[str]) -> tuple[str, ...]:
    """The roles whose variables count when these roles run."""
    needs_repository = any(role.name in roles and role.may_need_repository for role in REGISTRY)
    return (*roles, REPOSITORY_ROLE) if needs_repository else tuple(roles)
