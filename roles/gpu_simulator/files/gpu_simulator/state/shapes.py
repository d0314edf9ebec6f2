# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shapes of the simulator's JSON documents.

Imported by type checkers only: a call of nvidia-smi must not pay for importing ``typing``.
"""

from __future__ import annotations

from typing import Any, Dict, Tuple, TypedDict

Reply = Tuple[str, int]
"""A verb's standard output and exit status."""

Version = Tuple[int, ...]


class Pending(TypedDict):
    """A mode that takes effect later: the current one and the one after a reset or a reboot."""

    current: bool
    pending: bool


class ComputeInstance(TypedDict):
    """One compute instance; start and size count compute slices within its GPU instance."""

    id: int
    profile_id: int
    start: int
    size: int


class GpuInstance(TypedDict):
    """One GPU instance; start and size count memory units of the GPU."""

    id: int
    profile_id: int
    start: int
    size: int
    compute_instances: list[ComputeInstance]


class Process(TypedDict):
    """A process that uses a GPU; type is ``C``, ``G`` or ``C+G``; the instance ids are null outside MIG mode."""

    pid: int
    name: str
    type: str
    used_memory_mib: int
    gpu_instance_id: int | None
    compute_instance_id: int | None


class EccCounters(TypedDict):
    """ECC error counts, of one lifetime (volatile or aggregate)."""

    sram_correctable: int
    sram_uncorrectable_parity: int
    sram_uncorrectable_secded: int
    dram_correctable: int
    dram_uncorrectable: int


class EccErrors(TypedDict):
    """Volatile counters are lost at a reboot, aggregate counters are kept in the InfoROM."""

    volatile: EccCounters
    aggregate: EccCounters


class RemappedRows(TypedDict):
    """Row remapping of Ampere and newer GPUs."""

    correctable: int
    uncorrectable: int
    pending: bool
    failure: bool


class RetiredPage(TypedDict):
    """One retired page of a GPU older than Ampere; cause is ``single`` or ``double``."""

    address: str
    cause: str
    timestamp: str


class Gpu(TypedDict):
    """One GPU of the host: identity, settings, and events.

    ``ecc_mode`` and ``mig_mode`` are null where the GPU has no such mode. ``health`` is ``ok``, ``lost`` (no NVML
    handle), ``missing`` (on the PCI bus, but not in nvidia-smi), ``passthrough`` (vfio-pci has it) or ``inforom``
    (warning after the table, exit status 14). ``recovery_action`` is NVML's number of the driver's recovery action
    (recovery.py). ``inactive_nvlinks`` are the numbers of links that are down, ``slow_nvlinks`` has the GB/s of slow
    ones, ``nvlink_errors`` the errors of ``3 Replay``, a link and a counter of it; ``slowdowns`` maps a reason for
    lowered clocks (slowdowns.py) to the time since when, in seconds since the epoch. ``overrides`` maps a path of the
    document (``fan_speed``, ``gpu_power_readings/instant_power_draw``) to the text to print there instead.
    """

    model: str
    uuid: str
    serial: str
    bus_id: str
    minor: int
    module_id: int
    pdi: str
    persistence_mode: bool
    accounting_mode: bool
    compute_mode: str
    ecc_mode: Pending | None
    mig_mode: Pending | None
    power_limit_w: float | None
    locked_gpu_clocks: list[int] | None
    locked_memory_clocks: list[int] | None
    deferred_memory_clock: int | None
    applications_clocks: list[int] | None
    gpu_instances: list[GpuInstance]
    processes: list[Process]
    ecc_errors: EccErrors
    remapped_rows: RemappedRows
    retired_pages: list[RetiredPage]
    health: str
    recovery_action: int
    inactive_nvlinks: list[int]
    slow_nvlinks: dict[str, str]
    nvlink_errors: dict[str, int]
    slowdowns: dict[str, float]
    overrides: dict[str, str]


class Driver(TypedDict):
    """``installed`` is the version of the libraries on disk, ``loaded`` the version of the kernel module, or null."""

    installed: str
    loaded: str | None


class Host(TypedDict):
    """Properties of the whole host; ``fabric`` is whether NVSwitches connect its GPUs.

    ``fabric_manager`` is whether a Fabric Manager runs, without which GPUs of Ampere are only reset together.
    """

    fabric: bool
    fabric_manager: bool
    virtualization: str
    cpu_affinity: str
    numa_affinity: str


class Nic(TypedDict):
    """One InfiniBand adapter with its port: ``faults`` are faults of nics.py that last."""

    name: str
    address: str
    guid: str
    faults: list[str]
    counters: dict[str, int]


class KernelLine(TypedDict):
    """A line of the kernel log: seconds since the epoch, seconds since the boot, and the text."""

    time: float
    since_boot: float
    text: str


class State(TypedDict):
    """The document with everything that can change.

    ``kernel_log`` is what was logged since the boot; ``dcgm_results`` maps a test of ``dcgmi diag`` to the results that
    were set for it, by index of the GPU.
    """

    format: int
    driver: Driver
    host: Host
    gpus: list[Gpu]
    faults: list[dict[str, Any]]
    call_counts: dict[str, int]
    kernel_log: list[KernelLine]
    dcgm_results: dict[str, dict[str, dict[str, str]]]
    nics: list[Nic]


class GpuDescription(TypedDict, total=False):
    """One entry of a host description; only ``model`` is required, ``count`` excludes identities."""

    model: str
    count: int
    uuid: str
    serial: str
    bus_id: str
    minor: int
    module_id: int
    pdi: str
    persistence_mode: bool
    overrides: dict[str, str]


class HostDescription(TypedDict, total=False):
    """/etc/gpu-simulator/host.json; ``driver_version`` and ``gpus`` are required."""

    driver_version: str
    seed: str
    fabric: bool
    fabric_manager: bool
    virtualization: str
    cpu_affinity: str
    numa_affinity: str
    persistence_mode: bool
    nics: int
    gpus: list[GpuDescription]


Model = Dict[str, Any]
"""A file of data/gpus, as read."""

Readings = Dict[str, Any]
"""Path in the GPU's document -> printed text, or a list of Readings where the document repeats a block."""
