# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what the health of a host depends on besides its GPUs. Private to this collection."""

from __future__ import annotations

import os
import re
from datetime import datetime, timezone
from typing import Any, Container, Mapping

from .._common.errors import ChangeError
from .._common.file_systems import MIB, mounts_of
from .._common.gpu_clients import MPS
from .._common.host_files import HostFiles
from .._common.json_text import parse_json
from .._common.runner import find_executable
from .._common.services import IMEX_UNIT
from .._common.systemd import Systemd, Unit
from .._cuda.containers import cdi_specifications
from .._nvidia_smi.nvlink_fabric import imex_domain
from .._nvidia_smi.values import bus_id
from .kernel_log_sources import KernelLog, Run, is_container
from .readings import Declared, DeclaredGpu, Facts

BOOT_SERVICE = "gpu-fleet-state.service"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
STATE_PLAN = "/var/lib/gpu-fleet/state/plan.json"
_PLAN_VERSION = 1
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
PCI_DEVICES = "/sys/bus/pci/devices"
_CPUS = "/sys/devices/system/cpu"
# What smt/control has where no thread is switched off; before Linux 4.19, and on Arm before 6.14, there is none.
_ALL_THREADS = ("", "on", "notsupported", "notimplemented")
# Where services of a host write. Images of systems that do not change, such as squashfs, are full and not here.
_WRITTEN = ("/", "/tmp", "/var", "/var/lib", "/var/lib/containerd", "/var/lib/docker", "/var/log", "/var/tmp")
_WRITABLE_KINDS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs")
_FULL = 0.01
# Where Slurm has the processes of its jobs, with cgroups of version 2 and 1, and where a login has its own. A container
# that a job has started without root may be elsewhere below its user.
_OF_JOBS = ("/sys/fs/cgroup/system.slice/*slurmstepd.scope", "/sys/fs/cgroup/*/slurm*")
_LOGIN = re.compile(r"(?m)^\d+:[^:\n]*:/user\.slice/user-([1-9]\d{0,9})\.slice/session-\w+\.scope(?:/|$)")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def boot_id(files: HostFiles) -> str:
    """The id of this boot; empty where the kernel has none."""
    return (files.read(_BOOT_ID) or "").strip()


def declared(expected: Mapping[str, Any], files: HostFiles) -> Declared:
    """What is declared: by the option `expected`, and for each GPU also by the plan that gpu_state has saved."""
    mig = expected.get("mig_profiles")
    option = DeclaredGpu(
        persistence_mode=expected.get("persistence_mode"),
        ecc=expected.get("ecc"),
        mig=None if mig is None else tuple(mig),
    )
    return Declared(
        gpu_count=expected.get("gpu_count"),
        nic_count=expected.get("nic_count"),
        gpu_models=tuple(expected.get("gpu_models") or ()),
        driver_version=expected.get("driver_version"),
        every=option,
        gpus={name: _stricter(option, planned) for name, planned in _planned(files).items()},
    )


def _stricter(option: DeclaredGpu, planned: DeclaredGpu) -> DeclaredGpu:
    """The option where it is given, else the plan."""
    return DeclaredGpu(
        persistence_mode=planned.persistence_mode if option.persistence_mode is None else option.persistence_mode,
        ecc=planned.ecc if option.ecc is None else option.ecc,
        mig=planned.mig if option.mig is None else option.mig,
    )


def _planned(files: HostFiles) -> dict[str, DeclaredGpu]:
    """What the plan of gpu_state declares, by UUID; of a plan that it cannot have written nothing.

    The boot service fails because of such a plan, which is reported. The few values are read here, since what checks
    a whole plan knows all settings and the profiles of MIG.
    """
    try:
        plan = parse_json(files.read(STATE_PLAN) or "{}")
        if plan.get("version") != _PLAN_VERSION:
            return {}
        return {str(gpu["uuid"]): _declared_gpu(gpu) for gpu in plan["gpus"]}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _declared_gpu(gpu: Mapping[str, Any]) -> DeclaredGpu:
    persistence = gpu["settings"].get("persistence_mode")
    mig: tuple[str, ...] | None = None
    if gpu["mig"] is not None and not gpu["mig"]["enabled"]:
        mig = ()
    elif gpu["mig"] is not None and gpu["mig"]["profiles"] is not None:
        mig = tuple(profile.partition(":")[0] for profile in gpu["mig"]["profiles"])
    return DeclaredGpu(
        persistence_mode=persistence if isinstance(persistence, bool) else None,
        ecc=gpu["ecc"] if isinstance(gpu["ecc"], bool) else None,
        mig=mig,
    )


def ports(facts: Facts, files: HostFiles) -> dict[str, tuple[str, ...]]:
    """The PCI ports above GPUs, with the GPUs below each; both without function, as the kernel log is read."""
    found: dict[str, tuple[str, ...]] = {}
    for gpu in facts["pci_gpus"]:
        for name in device_path(gpu["pci_bus_id"], files)[:-1]:
            if _ADDRESS.fullmatch(name):
                port = bus_id(name[:-1] + "0")
                found[port] = (*found.get(port, ()), gpu["pci_bus_id"])
    return found


def slot_lanes(facts: Facts, files: HostFiles) -> dict[str, int]:
    """The PCIe lanes that the slot of each GPU can have, as far as its port is visible."""
    found = {}
    for gpu in facts["pci_gpus"]:
        path = device_path(gpu["pci_bus_id"], files)
        port = "/".join(("", *path[:-1]))
        lanes = files.read(f"{port}/max_link_width") if _ADDRESS.fullmatch(path[-2] if len(path) > 1 else "") else None
        # A port that does not know reports 0 or 255.
        if lanes is not None and lanes.strip().isdigit() and 0 < int(lanes) <= 32:
            found[gpu["pci_bus_id"]] = int(lanes)
    return found


def device_path(pci_bus_id: str, files: HostFiles) -> list[str]:
    """The directories of a device in sysfs; those above it are its ports."""
    domain, _colon, rest = pci_bus_id.partition(":")
    return files.resolve(f"{PCI_DEVICES}/{domain[-4:]}:{rest}").strip("/").split("/")


def units(systemd: Systemd) -> dict[str, Unit]:
    """The services that the health of a host depends on, as far as they exist."""
    try:
        return systemd.show((BOOT_SERVICE, IMEX_UNIT, MPS, FABRIC_MANAGER))
    except ChangeError:
        return {}


def fabric_manager_started(units: Mapping[str, Unit], boot_time: float | None, now: float) -> float:
    """When the Fabric Manager that runs was started, in seconds since 1970; 0 where that is not known."""
    unit = units.get(FABRIC_MANAGER, Unit(FABRIC_MANAGER))
    started = (boot_time or 0.0) + unit.started
    # After a jump of the clock a later time proves nothing.
    return started if boot_time and unit.started and unit.active == "active" and started <= now else 0.0


def host_messages(
    facts: Facts, log: KernelLog, files: HostFiles, units: Mapping[str, Unit], run_program: Run
) -> dict[str, str]:
    """The readings of the host that are messages: empty where all is well or nothing is known."""
    failed, missed = _boot_service(units.get(BOOT_SERVICE, Unit(BOOT_SERVICE)))
    mps_inactive, mps_faults = _mps(units.get(MPS, Unit(MPS)), run_program)
    full, read_only = _file_systems(files)
    inactive, unready = _imex(units.get(IMEX_UNIT, Unit(IMEX_UNIT)), run_program)
    return {
        "kernel_log_unknown": f"the kernel log cannot be read: {log.reason}" if log.source is None else "",
        "kernel_log_incomplete": ""
        if log.is_complete
        else f"the kernel log begins at {utc(log.since)}, not at the boot",
        "cdi_stale": _cdi(facts, files),
        "boot_service_failed": failed,
        "boot_service_missed": missed,
        "imex_inactive": inactive,
        "imex_unready": unready,
        "mps_inactive": mps_inactive,
        "mps_client_fault": mps_faults,
        "clock_unsynchronized": _clock(run_program),
        "cpus_offline": _cpus(files),
        "gpu_unscheduled": _unscheduled(facts, files),
        "file_system_full": full,
        "file_system_read_only": read_only,
    }


def _cdi(facts: Facts, files: HostFiles) -> str:
    stale = [
        f"{specification.path} ({', '.join(specification.stale)})"
        for specification in cdi_specifications(files, facts["driver_version"])
        if specification.stale
    ]
    return f"generated for another driver or other GPUs: {', '.join(stale)}" if stale else ""


def _boot_service(unit: Unit) -> tuple[str, str]:
    """Why the boot service failed, and why it has not run."""
    if not unit.is_loaded:
        return "", ""
    if unit.active == "failed":
        return f"{BOOT_SERVICE} failed at boot: {unit.status or f'it ended with {unit.result}'}", ""
    if unit.enabled == "enabled" and unit.active == "inactive":
        return "", f"{BOOT_SERVICE} is enabled and has not run since the boot"
    return "", ""


def _imex(unit: Unit, run_program: Run) -> tuple[str, str]:
    """Why IMEX does not run where it is enabled, and what it knows of its domain that is not up."""
    if not unit.is_loaded or unit.enabled != "enabled":
        return "", ""
    if not unit.is_active:
        return f"{IMEX_UNIT} is enabled and {unit.active}", ""
    found = imex_domain(run_program)
    return "", "" if found in ("", "unknown") else f"IMEX does not reach all nodes of its domain, which is {found}"


# "Client {PID: 736, Context: 1} encountered a fatal GPU error.": a line of the server of 580.159.04, on an H100, for an
# illegal address in a kernel. Clients can write into this log as well, so it is no reason to touch the host.
_MPS_FAULT = re.compile(r"Server +\d+\] Client \{PID: \d+, Context(?: ID)?: \d+\} encountered a fatal GPU error")


def _mps(unit: Unit, run_program: Run) -> tuple[str, str]:
    """Why the MPS daemon does not run where gpu_state has set it up, and how often a client had a fault."""
    if not unit.is_loaded or unit.enabled != "enabled":
        return "", ""
    if not unit.is_active:
        return f"{MPS} is enabled and {unit.active}, so only one process can use each of its GPUs", ""
    words = ("--unit", MPS, "--since=-24h", "--output=cat", "--no-pager", "--quiet", "--grep=encountered a fatal GPU")
    result = run_program((find_executable("journalctl"), *words), 30.0)
    count = len(_MPS_FAULT.findall(result.text)) if result.rc == 0 else 0
    return "", f"{count} times within 24 hours, see journalctl -u {MPS}" if count else ""


def _clock(run_program: Run) -> str:
    result = run_program((find_executable("timedatectl"), "show", "--property=NTPSynchronized", "--value"), 10.0)
    return "the clock is not synchronized" if result.rc == 0 and result.text.strip() == "no" else ""


def _cpus(files: HostFiles) -> str:
    """CPUs that are there and do not run. Threads that the administrator has switched off are no fault, and a container
    may see only its own."""
    present, online = (_numbers(files.read(f"{_CPUS}/{name}")) for name in ("present", "online"))
    offline = sorted(present - online) if online else []
    control = (files.read(f"{_CPUS}/smt/control") or "").strip()
    if not offline or control not in _ALL_THREADS or is_container(files):
        return ""
    shown = ", ".join(map(str, offline[:8])) + (", ..." if len(offline) > 8 else "")
    return f"{len(online)} of {len(present)} CPUs are online, without {shown}"


def _unscheduled(facts: Facts, files: HostFiles) -> str:
    """The processes that users run on GPUs from a login, next to the jobs of Slurm. Their names are not read: users
    choose them."""
    if is_container(files) or not any(map(files.matching, _OF_JOBS)):
        return ""
    found = []
    for gpu in facts["gpus"]:
        for process in gpu.get("processes") or ():
            login = _LOGIN.search(files.read(f"/proc/{process['pid']}/cgroup") or "")
            if login:
                found.append(f"PID {process['pid']} of user {login[1]} on GPU {gpu['index']}")
    more = f" and {len(found) - 8} more" if len(found) > 8 else ""
    return f"used from a login, outside of Slurm's jobs: {', '.join(found[:8])}{more}" if found else ""


def _file_systems(files: HostFiles) -> tuple[str, str]:
    """The file systems that services write to and that are full, and those that an error made read-only. Nothing looks
    at a remote one, whose server may be gone; a container has the file system of its image."""
    mounts = {} if is_container(files) else mounts_of(files)
    remote = {place for place, mount in mounts.items() if mount.is_remote}
    places = {_mount_point(files.resolve(directory, remote), mounts) for directory in _WRITTEN}
    full, read_only = [], []
    for place in sorted(place for place in places if place in mounts and mounts[place].kind in _WRITABLE_KINDS):
        if mounts[place].turned_read_only:
            read_only.append(f"{place} ({mounts[place].kind})")
        elif not mounts[place].read_only:
            full += _what_is_full(place, files)
    return ", ".join(full), f"{', '.join(read_only)}: mounted read-write, but read-only now" if read_only else ""


def _mount_point(path: str, mounts: Container[str]) -> str:
    while path not in mounts and path != "/":
        path = os.path.dirname(path)
    return path


def _what_is_full(place: str, files: HostFiles) -> list[str]:
    try:
        found = os.statvfs(files.real(place) or "/")
    except OSError:
        return []
    if found.f_bavail < _FULL * found.f_blocks:
        size, room = (count * found.f_frsize // MIB for count in (found.f_blocks, found.f_bavail))
        return [f"{place} has {room} of {size} MiB free"]
    # Some have no fixed number of inodes.
    if found.f_files and found.f_favail < _FULL * found.f_files:
        return [f"{place} has {found.f_favail} of {found.f_files} inodes free"]
    return []


def _numbers(text: str | None) -> set[int]:
    """The numbers in `0-3,7`."""
    found = [re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part) for part in (text or "").strip().split(",")]
    return {number for part in found if part for number in range(int(part[1]), int(part[2] or part[1]) + 1)}


def utc(time: float | None) -> str | None:
    """A time in seconds since 1970 as text."""
    return None if time is None else datetime.fromtimestamp(int(time), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
