# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planners of roles, by role. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping

from .backend_ai_agent import PLANNER as BACKEND_AI_AGENT
from .contract import Planner
from .cuda.plan import PLANNER as CUDA
from .cudnn import PLANNER as CUDNN
from .docker import PLANNER as DOCKER
from .enroot import PLANNER as ENROOT
from .gpu_containers.stages import PLANNER as GPU_CONTAINERS
from .gpu_health.plan import PLANNER as GPU_HEALTH
from .gpu_monitoring import PLANNER as GPU_MONITORING
from .gpu_state import PLANNER as GPU_STATE
from .gpu_workload import PLANNER as GPU_WORKLOAD
from .kubernetes_node.stages import PLANNER as KUBERNETES_NODE
from .nvidia_container_toolkit.stages import PLANNER as NVIDIA_CONTAINER_TOOLKIT
from .nvidia_dcgm import PLANNER as NVIDIA_DCGM
from .nvidia_driver.stages import PLANNER as NVIDIA_DRIVER
from .nvidia_repository import PLANNER as NVIDIA_REPOSITORY
from .slurm_gres import PLANNER as SLURM_GRES
from .windows_gpu import PLANNER as WINDOWS_GPU

PLANNERS: Mapping[str, Planner] = {
    "backend_ai_agent": BACKEND_AI_AGENT,
    "cuda": CUDA,
    "cudnn": CUDNN,
    "docker": DOCKER,
    "enroot": ENROOT,
    "gpu_containers": GPU_CONTAINERS,
    "gpu_health": GPU_HEALTH,
    "gpu_monitoring": GPU_MONITORING,
    "gpu_state": GPU_STATE,
    "gpu_workload": GPU_WORKLOAD,
    "kubernetes_node": KUBERNETES_NODE,
    "nvidia_container_toolkit": NVIDIA_CONTAINER_TOOLKIT,
    "nvidia_dcgm": NVIDIA_DCGM,
    "nvidia_driver": NVIDIA_DRIVER,
    "nvidia_repository": NVIDIA_REPOSITORY,
    "slurm_gres": SLURM_GRES,
    "windows_gpu": WINDOWS_GPU,
}
"""All roles but common, which others include, and gpu_simulator, which makes hosts for tests."""
