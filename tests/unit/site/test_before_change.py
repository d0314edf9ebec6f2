# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each role of a host refuses before the host's first change, and nothing that an earlier role is still to bring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import Preflight
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import ROLES, variables_of

from tests.unit.site.converged import CUDA, NVIDIA_SMI
from tests.unit.site.known import check
from tests.unit.site.mock_host import NO_CUDA, NO_DRIVER, MockHost, run_site
from tests.unit.site.test_variables import FILES, NEEDED

RPM = {"enroot_packages": [{"url": "https://example.com/enroot.rpm", "sha256": "5" * 64}]}
LAB: Mapping[str, Any] = {"name": "lab", "image": "lab:1", "gpus": ["GPU-9"]}
WITHOUT_ENGINE: Mapping[str, Any] = {
    **CUDA,
    "container_toolkit": {**CUDA["container_toolkit"], "runtimes": {"docker": {"installed": False}}},
}
SMI, CLI, SNAP = "/usr/bin/nvidia-smi", "/usr/bin/nvidia-container-cli", "/snap/docker/current"
LATE: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any], str]] = {
    "enroot: of another package manager": ("enroot", RPM, {}, "enroot.rpm is not a package for a host with apt"),
    "enroot: no namespaces": ("enroot", {}, {"sysctl": "user.max_user_namespaces = 0\n"}, "no user can start"),
    "enroot: no container CLI": ("enroot", {}, {"files": [SMI]}, f"there is no {CLI}"),
    "slurm_gres: no slurmd": ("slurm_gres", {}, {"slurmd -C": ""}, "slurmd cannot be run"),
    "slurm_gres: old Slurm": (
        "slurm_gres",
        {"slurm_gres_detection": "nvidia"},
        {"slurmd -V": "slurm 22.05.2"},
        "has no AutoDetect=nvidia",
    ),
    "docker: a snap": ("docker", {}, {"files": [SNAP]}, "Docker is a snap here"),
    "agent: no Python": ("backend_ai_agent", {}, {"ensurepip": ""}, "cannot make virtual environments"),
    "agent: no Docker": ("backend_ai_agent", {}, {"docker info": ""}, "Docker does not respond"),
    "workload: no such GPU": (
        "gpu_workload",
        {"gpu_workload_tests": [{"framework": "pytorch", "gpus": [9]}]},
        {},
        "there is no usable GPU or MIG device 9",
    ),
    "containers: no such GPU": (
        "gpu_containers",
        {"gpu_containers_declared": [LAB]},
        {},
        "there is no GPU or MIG device",
    ),
    "containers: no Docker": ("gpu_containers", {"gpu_containers_declared": [LAB]}, {}, "Docker cannot be reached"),
    "kubernetes: time slices of MIG": (
        "kubernetes_node",
        {"kubernetes_node_time_slicing": {"nvidia.com/mig-1g.18gb": 2}},
        {},
        "nvidia.com/mig-1g.18gb",
    ),
}
"""By the case: the role, its variables, what is read of the host, and a part of the message."""
BARE = MockHost(packages={"dpkg": "1.21.22"})
WORKING = MockHost(nvidia_smi=NVIDIA_SMI, cuda=WITHOUT_ENGINE)


def before_change(
    roles: tuple[str, ...], host: MockHost, given: Mapping[str, Any], read: Mapping[str, Any]
) -> Preflight:
    printed = {name: text for name, text in read.items() if name != "files"}
    values = {**FILES.defaults(variables_of(roles)), **NEEDED, **given}
    return check(roles, values, host.modules()["host_facts"], printed=printed, files=read.get("files", ()))


@pytest.mark.parametrize("case", LATE)
def test_what_a_role_would_refuse_later_is_refused_first(case: str) -> None:
    role, given, read, words = LATE[case]
    found = before_change((role,), WORKING, given, read)
    assert [words in text for text in found.refusals].count(True) == 1, found.refusals


@pytest.mark.parametrize("host", [BARE, MockHost(nvidia_smi=NVIDIA_SMI, cuda=CUDA)], ids=["bare", "with a driver"])
def test_what_earlier_roles_bring_is_no_reason(host: MockHost) -> None:
    # No Docker, no toolkit, no GPU that nvidia-smi lists yet.
    given = {"gpu_containers_declared": [{**LAB, "gpus": "all"}]}
    assert before_change(ROLES, host, given, {"docker info": "", "ensurepip": "3.13.5"}).refusals == ()


def test_a_driver_that_comes_needs_the_container_cli_for_enroot() -> None:
    roles = ("nvidia_driver", "enroot")
    host = MockHost(nvidia_smi=NO_DRIVER, cuda=NO_CUDA)
    (refusal,) = before_change(roles, host, {}, {}).refusals
    assert f"there is no {CLI}" in refusal
    with_toolkit = ("nvidia_driver", "docker", "nvidia_container_toolkit", "enroot")
    assert before_change(with_toolkit, host, {}, {}).refusals == ()


def test_a_gpu_that_does_not_respond_keeps_no_other_role_from_the_host() -> None:
    broken = [{**gpu, "error": "GPU is lost"} for gpu in NVIDIA_SMI["gpus"]]
    host = MockHost(nvidia_smi={**NVIDIA_SMI, "gpus": broken}, cuda=CUDA)
    assert before_change(("slurm_gres", "gpu_health", "kubernetes_node"), host, {}, {}).refusals == ()


@pytest.mark.plays
def test_no_module_of_a_role_runs_on_a_host_that_a_later_role_refuses(tmp_path: Path) -> None:
    given = {"gpu_fleet_roles": ["nvidia_driver", "enroot"], **RPM}
    run = run_site(tmp_path, {"gpu1": (BARE, given)})
    assert "enroot.rpm is not a package for a host with apt" in run.failure("gpu1")
    assert run.modules["gpu1"] == ["host_facts"]
