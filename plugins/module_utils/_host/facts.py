# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that the roles decide from, in one run. Private to this collection.

What reads a part is imported where the part is requested: a target compiles all that it imports in each run.
"""

from __future__ import annotations

import pwd
from typing import Any, Collection, Mapping, Sequence

from .._common.host_files import HostFiles

PARTS = ("packages", "gpus", "cuda", "managed")
"""What is gathered where nothing else is requested."""
SYSTEM = "system"
"""A further part, see system.py."""


_OPERATOR = "/run/nvidia"
GPU_SUBSETS = ("min", "ecc", "mig", "fabric")
"""What roles, hooks and the table need of each GPU; `unhealthy` is found in any case."""


def gather(parts: Collection[str], secrets: Mapping[str, str], files: HostFiles) -> tuple[dict[str, Any], list[str]]:
    """The facts of these parts by their names in ansible_facts, and warnings; raises ChangeError for packages.

    `secrets` are compared with the secrets in the records of these names.
    """
    facts: dict[str, Any] = {}
    warnings: list[str] = []
    if "packages" in parts:
        from .packages import read_packages

        facts["packages"], facts["gpu_fleet_unfinished_packages"] = read_packages(files)
    if "gpus" in parts:
        from .._nvidia_smi import facts as gpus
        from .._nvidia_smi.nvlink_fabric import read_fabric

        subsets = gpus.chosen_subsets(GPU_SUBSETS)
        facts["nvidia_smi"] = gpus.gather(gpus.FactsRequest(subsets=subsets, explain=False))
        facts["nvlink_fabric"] = read_fabric(files).as_dict()
    if "cuda" in parts:
        from .._cuda import facts as cuda_facts

        facts["cuda"] = cuda_facts.gather(cuda_facts.CudaFactsRequest(), files)
    if "managed" in parts:
        from .._managed import run as managed
        from .machine import read_machine

        facts["gpu_fleet_managed"], warnings = managed.gather(files, secrets)
        facts["gpu_fleet_machine"] = read_machine(files)
    return facts, warnings


def run(params: Mapping[str, Any], files: HostFiles) -> tuple[dict[str, Any], list[str]]:
    """The result of the module but for the system's facts, and warnings; raises ChangeError for packages."""
    secrets = {name: str(text) for name, text in params["secrets"].items()}
    facts, warnings = gather(params["gather"], secrets, files)
    can_predict = params["gpu_state"] is not None and facts.get("nvidia_smi", {}).get("available")
    result: dict[str, Any] = {
        "ansible_facts": facts,
        "missing_users": missing_users(params["users"]),
        "prediction": _predicted(params["gpu_state"]) if can_predict else None,
        "gpu_operator": gpu_operator(files),
    }
    if params["directories"]:
        from .._common.file_systems import largest_initramfs_mib, read_file_systems

        result["file_systems"] = read_file_systems(params["directories"], files)
        result["initramfs_mib"] = largest_initramfs_mib(files)
    if params["reads"]:
        from .readings import read

        result["readings"] = read(params["reads"])
    return result, warnings


def _predicted(options: Mapping[str, Any]) -> dict[str, Any]:
    from .._state.module import predict

    return predict(options)


def gpu_operator(files: HostFiles) -> dict[str, bool]:
    """Which parts of NVIDIA's GPU Operator run on the host.

    The driver container mounts its root below /run/nvidia, has a file with its process there, and writes another one
    once it is ready; of a driver of the host the operator's validator writes so in its own. The toolkit has a file with
    its process, and the device plugin is validated only where it is the operator's
    (https://github.com/NVIDIA/gpu-operator, assets/state-driver, assets/state-container-toolkit, cmd/nvidia-validator,
    https://github.com/NVIDIA/k8s-driver-manager, cmd/driver-manager/main.go, as of August 2026).
    """
    validations = f"{_OPERATOR}/validations"
    traces = (f"{validations}/.driver-ctr-ready", f"{_OPERATOR}/nvidia-driver.pid", f"{_OPERATOR}/driver/usr/bin")
    of_host = "IS_HOST_DRIVER=true" in (files.read(f"{validations}/driver-ready") or "").splitlines()
    return {
        "driver": not of_host and any(files.exists(path) for path in traces),
        "container_toolkit": files.exists(f"{_OPERATOR}/toolkit/toolkit.pid"),
        "device_plugin": files.exists(f"{validations}/plugin-ready"),
    }


def missing_users(names: Sequence[str]) -> list[str]:
    """Those who do not exist, in whatever database the host looks users up."""
    missing = []
    for name in names:
        try:
            pwd.getpwnam(name)
        except (KeyError, ValueError):  # ValueError: a null byte in the name
            missing.append(name)
    return missing
