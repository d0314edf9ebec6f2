# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report of a fleet shows of one host, made small where it is read. Private to this collection.

All facts of a host with 8 GPUs are 200 kB; the controller holds the facts of all hosts at the same time.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, Collection, Mapping, Sequence

from .._common.host_files import HostFiles
from .._common.runner import find_executable
from .._common.runner import run as run_program
from .._common.services import IMEX_STATE, parse_imex_domain
from .._cuda import facts as cuda_facts
from .._health import history
from .._nvidia_smi import facts as smi_facts
from .nics import read_nics

_SUBSETS = frozenset(smi_facts.SUBSETS) - {"supported_clocks", "vgpu", "clocks"}
_MOST_PROCESSES = 32
_LONGEST_NAME = 120
_PENDING = ("ecc_mode", "mig_mode", "operation_mode", "dram_encryption_mode")
# By name in the result: the reading of nvidia_smi_facts.
_READINGS = {
    "index": "index",
    "uuid": "uuid",
    "serial": "serial",
    "pci_bus_id": "pci_bus_id",
    "name": "name",
    "error": "error",
    "vbios_version": "vbios_version",
    "memory_total_mib": "memory_total_mib",
    "memory_used_mib": "memory_used_mib",
    "power_draw_w": "power_draw_w",
    "power_limit_w": "power_limit_enforced_w",
    "temperature_c": "temperature_gpu_c",
    "utilization_percent": "utilization_gpu_percent",
    "persistence_mode": "persistence_mode",
    "ecc_mode": "ecc_mode_current",
    "mig_mode": "mig_mode_current",
    "remapped_rows_correctable": "remapped_rows_correctable",
    "remapped_rows_uncorrectable": "remapped_rows_uncorrectable",
    "remapped_rows_pending": "remapped_rows_pending",
    "remapped_rows_failure": "remapped_rows_failure",
    "fabric_cluster_uuid": "fabric_cluster_uuid",
    "fabric_clique_id": "fabric_clique_id",
}
_CHANNELS = "/dev/nvidia-caps-imex-channels"
_IMEX_SECONDS = 10.0
_OS_RELEASE = "/etc/os-release"
_REBOOT_REQUIRED = "/run/reboot-required"


def gather(executable: str, timeout: float, files: HostFiles) -> dict[str, Any]:
    """The facts; never raises for failures of nvidia-smi."""
    # With `explain`, for then all readings are there.
    gpus = smi_facts.gather(
        smi_facts.FactsRequest(executable=executable, subsets=_SUBSETS, timeout=timeout, explain=True)
    )
    cuda = cuda_facts.gather(cuda_facts.CudaFactsRequest(executable=executable, timeout=timeout), files)
    return condensed(gpus, cuda, files)


def condensed(smi: Mapping[str, Any], cuda: Mapping[str, Any], files: HostFiles) -> dict[str, Any]:
    """What the report shows out of the facts of nvidia_smi_facts and cuda_facts."""
    driver = cuda["driver"]
    return {
        "available": smi["available"],
        "message": smi["message"],
        "system": {
            "distribution": _distribution(files),
            "kernel": (files.read("/proc/sys/kernel/osrelease") or "").strip() or None,
        },
        "driver_version": smi["driver_version"] or driver["loaded_version"],
        "driver_kind": driver["loaded_kind"],
        "cuda_version": smi["cuda_version"],
        "container_toolkit_version": cuda["container_toolkit"]["version"],
        "reboot_reasons": _reboot_reasons(smi["gpus"], driver, files),
        "imex": _imex(cuda["services"]["imex"], files),
        "pci_gpu_count": len(smi["pci_gpus"]),
        "gpus": [_gpu(gpu) for gpu in _identified(smi["gpus"], files)],
        "nics": [{**asdict(nic), "names": list(nic.names)} for nic in read_nics(files)],
        "topology": _topology(
            smi["topology"] or (), {f"GPU{gpu['index']}" for gpu in smi["gpus"] if gpu["error"] is not None}
        ),
    }


def _imex(service: Mapping[str, Any], files: HostFiles) -> dict[str, Any]:
    """The service with what it knows of its domain, and the device nodes of its channels."""
    status: str | None = None
    waiting: dict[str, str] = {}
    if service["state"] == "active":
        result = run_program((find_executable(IMEX_STATE[0]), *IMEX_STATE[1:]), _IMEX_SECONDS)
        status, waiting = parse_imex_domain(result.text if result.rc == 0 else "")
    return {
        **{name: service[name] for name in ("installed", "version", "state", "enabled")},
        "domain_status": status,
        "nodes_not_ready": waiting,
        "channels": len(files.names(_CHANNELS)),
    }


def _identified(gpus: Sequence[Mapping[str, Any]], files: HostFiles) -> list[Mapping[str, Any]]:
    """The GPUs; one that does not respond has UUID, serial and name of the GPU last seen at its address."""
    if all(gpu["error"] is None for gpu in gpus):
        return list(gpus)
    try:
        known = history.parse(files.read(f"{history.DIRECTORY}/{history.FILE}"))
    except ValueError:
        return list(gpus)
    present = {gpu["uuid"] for gpu in gpus}
    return [gpu if gpu["error"] is None else _last_seen(gpu, known, present) for gpu in gpus]


def _last_seen(gpu: Mapping[str, Any], known: history.History, present: Collection[Any]) -> Mapping[str, Any]:
    uuid = gpu["uuid"] or known.uuid_at(gpu["pci_bus_id"] or "")
    # One that responds in another slot is not lost.
    if not uuid or (not gpu["uuid"] and uuid in present):
        return gpu
    before = known.gpu(uuid)
    identity = {"uuid": uuid, "serial": before.serial, "name": before.name}
    return {**gpu, **{key: gpu[key] or value for key, value in identity.items()}}


def _distribution(files: HostFiles) -> str | None:
    found = re.search(r"^PRETTY_NAME=[\"']?(.*?)[\"']?$", files.read(_OS_RELEASE) or "", re.MULTILINE)
    return found[1] if found else None


def _reboot_reasons(gpus: Sequence[Mapping[str, Any]], driver: Mapping[str, Any], files: HostFiles) -> list[str]:
    reasons = []
    if driver["reboot_required"]:
        installed = driver["module_version"] or driver["library_version"]
        reasons.append(f"driver {driver['loaded_version']} is loaded, {installed} is installed")
    for gpu in gpus:
        for name in _PENDING:
            current, pending = gpu.get(f"{name}_current"), gpu.get(f"{name}_pending")
            if current is not None and pending not in (None, current):
                reasons.append(f"GPU {gpu['index']}: {name.replace('_', ' ')} {current} -> {pending}")
    if files.exists(_REBOOT_REQUIRED):
        packages = sorted(set((files.read(f"{_REBOOT_REQUIRED}.pkgs") or "").split()))
        reasons.append(f"the distribution requests it{' for ' + ', '.join(packages[:5]) if packages else ''}")
    return reasons


def _gpu(gpu: Mapping[str, Any]) -> dict[str, Any]:
    volatile, aggregate = gpu["ecc_errors_volatile"], gpu["ecc_errors_aggregate"]
    links = [link["active"] for link in gpu["nvlinks"] if link["active"] is not None]
    return {
        **{name: gpu[reading] for name, reading in _READINGS.items()},
        "ecc_volatile_corrected": volatile["corrected_total"],
        "ecc_volatile_uncorrected": volatile["uncorrected_total"],
        "ecc_aggregate_corrected": aggregate["corrected_total"],
        "ecc_aggregate_uncorrected": aggregate["uncorrected_total"],
        "nvlinks_active": sum(links),
        "nvlinks": len(links),
        "instances": None if gpu["gpu_instances"] is None else [_instance(gpu, item) for item in gpu["gpu_instances"]],
        "processes": [_process(process) for process in (gpu["processes"] or ())[:_MOST_PROCESSES]],
        "process_count": None if gpu["processes"] is None else len(gpu["processes"]),
    }


def _instance(gpu: Mapping[str, Any], instance: Mapping[str, Any]) -> dict[str, Any]:
    """A GPU instance, with the memory that its MIG devices use."""
    number = instance["gpu_instance_id"]
    devices = [device for device in gpu["mig_devices"] if device["gpu_instance_id"] == number]
    return {
        "gpu_instance_id": number,
        "profile": instance["profile"],
        "placement_start": instance["placement_start"],
        "placement_size": instance["placement_size"],
        "compute_instances": [item["profile"] for item in instance["compute_instances"]],
        # The compute instances of one GPU instance share its memory.
        "memory_total_mib": max((device["memory_total_mib"] or 0 for device in devices), default=None),
        "memory_used_mib": max((device["memory_used_mib"] or 0 for device in devices), default=None),
    }


def _process(process: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "pid": process["pid"],
        "name": (process["name"] or "")[:_LONGEST_NAME],
        "memory_used_mib": process["memory_used_mib"],
        "gpu_instance_id": process["gpu_instance_id"],
    }


def _topology(devices: Sequence[Mapping[str, Any]], lost: Collection[str]) -> list[dict[str, Any]]:
    """The devices without the links of GPUs that do not respond, which the driver still lists."""
    return [
        {
            **{name: device[name] for name in ("label", "name", "numa_affinity")},
            "links": {other: link for other, link in device["links"].items() if not {device["label"], other} & {*lost}},
        }
        for device in devices
    ]
