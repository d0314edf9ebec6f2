# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles of the collection, in the order in which playbooks run them. Private to this collection."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .._roles.backend_ai_agent import PLANNER as BACKEND_AI_AGENT
from .._roles.cuda.plan import PLANNER as CUDA
from .._roles.cudnn import PLANNER as CUDNN
from .._roles.docker.stages import PLANNER as DOCKER
from .._roles.enroot import PLANNER as ENROOT
from .._roles.gpu_containers.stages import PLANNER as GPU_CONTAINERS
from .._roles.gpu_health.plan import PLANNER as GPU_HEALTH
from .._roles.gpu_monitoring import PLANNER as GPU_MONITORING
from .._roles.gpu_state import PLANNER as GPU_STATE
from .._roles.gpu_workload import PLANNER as GPU_WORKLOAD
from .._roles.kubernetes_node.stages import PLANNER as KUBERNETES_NODE
from .._roles.nvidia_container_toolkit.stages import PLANNER as NVIDIA_CONTAINER_TOOLKIT
from .._roles.nvidia_dcgm import PLANNER as NVIDIA_DCGM
from .._roles.nvidia_driver.stages import PLANNER as NVIDIA_DRIVER
from .._roles.nvidia_repository import PLANNER as NVIDIA_REPOSITORY
from .._roles.slurm_gres import PLANNER as SLURM_GRES
from .._roles.windows_gpu import PLANNER as WINDOWS_GPU
from .contract import RolePlanner

REGISTRY: tuple[RolePlanner, ...] = (
    NVIDIA_DRIVER,
    GPU_STATE,
    SLURM_GRES,
    CUDA,
    CUDNN,
    DOCKER,
    NVIDIA_CONTAINER_TOOLKIT,
    NVIDIA_DCGM,
    GPU_HEALTH,
    GPU_MONITORING,
    GPU_WORKLOAD,
    GPU_CONTAINERS,
    ENROOT,
    BACKEND_AI_AGENT,
    KUBERNETES_NODE,
)
PLANNERS: Mapping[str, RolePlanner] = {one.name: one for one in (*REGISTRY, NVIDIA_REPOSITORY, WINDOWS_GPU)}
"""All roles but common, which others include, and gpu_simulator, which makes hosts for tests."""

ROLES = tuple(role.name for role in REGISTRY)
DEFAULT_ROLES = tuple(role.name for role in REGISTRY if role.runs_by_default)
GPU_ROLES = tuple(role.name for role in REGISTRY if role.needs_gpu)
DISRUPTIVE_ROLES = tuple(role.name for role in REGISTRY if role.is_disruptive)
REMOVED_ROLES = tuple(role.name for role in REGISTRY if role.is_removed)
WITHOUT_PLAN = tuple(role.name for role in REGISTRY if not role.has_plan)
WITH_PLAN = tuple(role.name for role in REGISTRY if role.has_plan)

REPOSITORY_ROLE = NVIDIA_REPOSITORY.name
"""The role that the others include, and that no playbook runs for itself."""
WINDOWS_ROLE = WINDOWS_GPU.name
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
    needs_repository = any(PLANNERS[role].repository for role in roles)
    return (*roles, REPOSITORY_ROLE) if needs_repository else tuple(roles)
