# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the roles with work find room and write access on a host. Private to this collection. Pure.

A disk that is full in the middle of a package leaves a host half installed. The need is counted as the least that
the roles write; a host with a little more may still lack room, which its package manager finds later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...module_utils._common.file_systems import read_only_mounts
from ...module_utils._knowledge.room import CUDA, CUDNN, DOCKER, DRIVER, Room
from .._roles.nvidia_container_toolkit.plan import ENGINE_PACKAGES
from .._roles.nvidia_driver.host import has_driver
from .registry import WITH_PLAN

_DOCKER_ROOT = "/var/lib/docker"
_BOOT, _CACHE, _STATE, _FILES, _LOCAL, _SETTINGS = "/boot", "/var/cache", "/var/lib", "/usr", "/usr/local", "/etc"
_WRITING = (*WITH_PLAN, "gpu_state")
"""Roles whose work is known to write to the host; of others only the role itself knows whether it has any."""
_OWN_MIB = 5
"""Of records, settings and lists of packages."""
_LEAST_INODES = 100


@dataclass(frozen=True)
class Found:
    """What is known of a host: file systems by directory and the largest initramfs, both as host_facts has them.

    is_there: the roles whose software is installed, in whatever version. toolkits: versions of CUDA.
    """

    file_systems: Mapping[str, Mapping[str, Any]]
    initramfs_mib: int = 0
    is_there: Collection[str] = ()
    toolkits: Collection[str] = ()

    @classmethod
    def of(cls, observed: Mapping[str, Any]) -> Found:
        """What the module host_facts has found."""
        facts = observed["ansible_facts"]
        cuda, packages = facts.get("cuda") or {}, facts.get("packages") or {}
        there = [role for role in facts.get("gpu_fleet_managed", ()) if role in WITH_PLAN]
        there += ["nvidia_driver"] if cuda and has_driver(cuda["driver"]) else []
        there += ["docker"] if {*packages} & {*ENGINE_PACKAGES["docker"]} else []
        versions = [str(toolkit["version"]) for toolkit in cuda.get("toolkits", ())]
        return cls(observed["file_systems"], int(observed["initramfs_mib"]), there, versions)


@dataclass(frozen=True)
class _Need:
    """What is written to a directory."""

    directory: str
    mib: int
    what: str


def directories(variables: Mapping[str, Any]) -> list[str]:
    """The directories that roles write to, by their variables."""
    return [_BOOT, _CACHE, _STATE, _FILES, _LOCAL, _SETTINGS, _docker_root(variables)]


def refusals(work: Collection[str], variables: Mapping[str, Any], found: Found) -> tuple[str, ...]:
    """What these roles, which have work, lack: one text for each file system."""
    needs = [need for role in work if role in _WRITING for need in _needs(role, variables, found)]
    needed = {need.directory for need in needs}
    systems = {directory: system for directory, system in found.file_systems.items() if directory in needed}
    read_only = read_only_mounts(systems)
    wrong = [
        f"{mount} is mounted read-only, and the roles write to {', '.join(places)}; mount it writable (dmesg has why, "
        "where the kernel did it after an error of the disk), then run again"
        for mount, places in read_only.items()
    ]
    writable = {directory: system for directory, system in systems.items() if system["mount"] not in read_only}
    for device in dict.fromkeys(system["device"] for system in writable.values()):
        of_it = {directory: system for directory, system in writable.items() if system["device"] == device}
        wrong += _lacking(of_it, [need for need in needs if need.directory in of_it])
    return tuple(wrong)


def _lacking(of_it: Mapping[str, Mapping[str, Any]], needs: Collection[_Need]) -> Iterator[str]:
    """What is wrong with one file system, which these directories are on, maybe by several mounts."""
    system, *_others = of_it.values()
    mounts = list(dict.fromkeys(system["mount"] for system in of_it.values()))
    name, listed = " and ".join(mounts), " ".join(mounts)
    amounts: dict[str, int] = {}
    for need in needs:
        amounts[need.what] = amounts.get(need.what, 0) + need.mib
    needed = sum(amounts.values())
    # Neither is known of a remote file system.
    if system["available_mib"] is not None and system["available_mib"] < needed:
        parts = ", ".join(f"{what} {mib}" for what, mib in amounts.items())
        yield (
            f"{name} has {system['available_mib']} MiB free, and at least {needed} MiB are needed ({parts}); make "
            f"room there (df -h {listed}), then run again"
        )
    elif needed and system["free_inodes"] is not None and system["free_inodes"] < _LEAST_INODES:
        yield (
            f"{name} has {system['free_inodes']} inodes free, so no files can be created; delete files there (df -i "
            f"{listed}), then run again"
        )


def _needs(role: str, variables: Mapping[str, Any], found: Found) -> Iterator[_Need]:
    is_present = variables.get(f"{role}_state") == "present"
    for directory in (_SETTINGS, _FILES, _STATE):
        # A removal is how a full disk gets room again.
        yield _Need(directory, _OWN_MIB if is_present else 0, "files of the roles")
    if not is_present:
        return
    if role == "nvidia_driver":
        yield _Need(_BOOT, found.initramfs_mib, "the new initramfs")
    for room in _installed(role, variables, found):
        yield _Need(_CACHE, room.download_mib, f"packages of {room.what}")
        is_local = room is CUDA and variables["cuda_source"] != "distribution"
        yield _Need(_LOCAL if is_local else _FILES, room.installed_mib, room.what)
    if role == "docker":
        yield _Need(_docker_root(variables), _OWN_MIB, "files of the engine")


def _installed(role: str, variables: Mapping[str, Any], found: Found) -> Iterator[Room]:
    """What the role installs that is not there; how much a newer version is larger, only its package manager knows."""
    if role == "nvidia_driver" and role not in found.is_there and variables["nvidia_driver_source"] != "runfile":
        yield DRIVER
    if role == "docker" and role not in found.is_there:
        yield DOCKER
    if role == "cuda" and "toolkit" in variables["cuda_components"]:
        requested = [str(version) for version in variables["cuda_versions"]]
        missing = [
            name for name in requested if not any(f"{there}.".startswith(f"{name}.") for there in found.toolkits)
        ]
        yield from [CUDA] * (len(missing) if requested else not (found.toolkits or role in found.is_there))
    if role == "cudnn" and role not in found.is_there:
        yield from [CUDNN] * sum(
            not (isinstance(entry, Mapping) and entry.get("archive")) for entry in variables["cudnn_versions"]
        )


def _docker_root(variables: Mapping[str, Any]) -> str:
    options = variables.get("docker_daemon_options")
    root = options.get("data-root") if isinstance(options, Mapping) else None
    return root if isinstance(root, str) and root.startswith("/") else _DOCKER_ROOT
