# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA facts of a host, as plain data. Private to this collection."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, Sequence

from .._common import services as driver_services
from .._common.host_files import HostFiles
from .._common.runner import CommandResult, find_executable, run_all
from . import containers
from . import toolkits as cuda_toolkits
from .driver import read_driver


@dataclass(frozen=True)
class CudaFactsRequest:
    """What to gather: `timeout` in seconds for all programs together; `toolkit_paths` are additional search paths."""

    executable: str = "nvidia-smi"
    toolkit_paths: tuple[str, ...] = ()
    timeout: float = 30.0


# Each engine's program; some hosts have docker's client without the daemon, and only the daemon counts.
_ENGINE_PROGRAMS = {"docker": "dockerd", "containerd": "containerd", "crio": "crio", "podman": "podman"}
_SBIN = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/sbin")


def gather(request: CudaFactsRequest, files: HostFiles) -> dict[str, Any]:
    """All facts. Where a program is missing, fails or times out, only what it would have reported is unknown."""
    deadline = time.monotonic() + request.timeout
    directories = cuda_toolkits.toolkit_directories(files, request.toolkit_paths)
    compilers = {
        directory: nvcc
        for directory in directories
        if cuda_toolkits.version_in_files(files, directory) is None
        for nvcc in (cuda_toolkits.nvcc_of(files, directory),)
        if nvcc is not None
    }
    found = cuda_toolkits.libraries(files, directories)
    strays = [library.path for library in found if library.origin == "archive"]
    calls: dict[str, Sequence[str]] = {
        "modinfo": ("modinfo", "nvidia"),
        # Debian's name of the module on disk.
        "modinfo of Debian": ("modinfo", "nvidia-current"),
        "nvidia-smi": (request.executable, "--version"),
        "nvidia-ctk": ("nvidia-ctk", "--version"),
        "systemctl": ("systemctl", "show", "--property", driver_services.PROPERTIES, *driver_services.unit_names()),
        **{daemon.name: (daemon.program, "--version") for daemon in driver_services.DAEMONS},
        **{f"nvcc {directory}": (nvcc, "--version") for directory, nvcc in compilers.items()},
    }
    if strays:
        calls["rpm"] = ("rpm", "-qf", "--queryformat", "%{NAME}\\n", *strays)
    outputs = _run(calls, deadline - time.monotonic())
    modinfo = outputs.get("modinfo", "") + "\n" + outputs.get("modinfo of Debian", "")
    driver = read_driver(files, modinfo, outputs.get("nvidia-smi", ""))
    nvcc_outputs = {directory: outputs.get(f"nvcc {directory}", "") for directory in compilers}
    toolkits = cuda_toolkits.toolkits(files, directories, nvcc_outputs)
    found = cuda_toolkits.with_rpm_owners(found, strays, outputs.get("rpm", ""))
    versions = {daemon.name: outputs.get(daemon.name) for daemon in driver_services.DAEMONS}
    services = driver_services.services(
        driver_services.parse_units(outputs.get("systemctl", "")), versions, driver.version
    )
    specifications = containers.cdi_specifications(files, driver.library_version)
    installed = [name for name, program in _ENGINE_PROGRAMS.items() if find_executable(program, _SBIN) != program]
    ctk_version = containers.toolkit_version(outputs.get("nvidia-ctk", ""))
    return {
        "driver": asdict(driver),
        "toolkits": [asdict(toolkit) for toolkit in toolkits],
        "default_toolkit": next((toolkit.path for toolkit in toolkits if toolkit.default), None),
        "alternatives": cuda_toolkits.alternatives(files),
        "libraries": {
            name: [_without_name(library) for library in found if library.name == name]
            for name in ("cudnn", "nccl", "tensorrt")
        },
        "container_toolkit": {
            "installed": "nvidia-ctk" in outputs,
            "version": ctk_version,
            "cdi_specifications": [asdict(specification) for specification in specifications],
            "cdi_stale": any(specification.stale for specification in specifications),
            "runtimes": {engine.name: _without_name(engine) for engine in containers.engines(files, installed)},
        },
        "services": {service.name: _without_name(service) for service in services},
    }


def _without_name(item: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(item).items() if key != "name"}


def _run(calls: dict[str, Sequence[str]], timeout: float) -> dict[str, str]:
    """Each program's output by the name of its call, without programs that did not start or were killed."""
    commands = [(find_executable(program, _SBIN), *arguments) for program, *arguments in calls.values()]
    results = run_all(commands, max(0.0, timeout))
    return {name: _output(result) for name, result in zip(calls, results) if result.rc is not None}


def _output(result: CommandResult) -> str:
    """Standard output and standard error, where some daemons print their version."""
    return result.text + result.error_text
