# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Storage of the state: one JSON file next to a lock.

Reading takes no lock and writes nothing, so that it works in a container where the state is mounted read-only: the file
is replaced atomically (temporary file, fsync, rename), so a reader sees the old or the new one.
"""

from __future__ import annotations

import fcntl
import json
import os

from .. import lazy
from . import catalogue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from .shapes import EccCounters, Gpu, GpuDescription, HostDescription, State

FORMAT = 1
MOST_NICS = 16

DEFAULT_HOSTS: dict[str, HostDescription] = {
    "h200x8": {"driver_version": "580.159.04", "gpus": [{"model": "h200", "count": 8}]},
    "a100x2": {"driver_version": "580.159.04", "gpus": [{"model": "a100_40gb", "count": 2}], "virtualization": "None"},
    "t4x1": {"driver_version": "580.159.04", "gpus": [{"model": "t4", "count": 1}]},
}


class StoreError(Exception):
    """The state or the host description is missing or cannot be used."""


def root_of(root: str | None = None) -> str:
    """Return the directory that stands for ``/``."""
    return root if root is not None else os.environ.get("GPU_SIMULATOR_ROOT") or "/"


def description_path(root: str) -> str:
    """Return the path of the host description."""
    return os.path.join(root, "etc/gpu-simulator/host.json")


def state_path(root: str) -> str:
    """Return the path of the state."""
    return os.path.join(root, "var/lib/gpu-simulator/state.json")


def read(root: str) -> State | None:
    """Read the state without a lock; None when this host has none."""
    try:
        with open(state_path(root), encoding="utf-8") as file:
            state: State = json.load(file)
    except FileNotFoundError:
        return None
    return state


def read_description(root: str) -> HostDescription:
    """Read the host description; raises StoreError."""
    path = description_path(root)
    try:
        with open(path, encoding="utf-8") as file:
            description: HostDescription = json.load(file)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read the host description {path}: {error}") from error
    return description


def write_file(path: str, text: str) -> None:
    """Replace a file atomically: temporary file, fsync, rename, fsync of the directory."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(temporary, 0o644)
    os.rename(temporary, path)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class transaction:  # noqa: N801 (used like a function: `with store.transaction(root) as state`)
    """Hold the lock, yield the state, and write it back if it changed and nothing was raised."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = -1

    def __enter__(self) -> State:
        directory = os.path.dirname(state_path(self._root))
        try:
            self._lock = os.open(os.path.join(directory, "state.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError as error:
            raise StoreError(f"cannot lock the state in {directory}: {error}") from error
        state = read(self._root)
        if state is None:
            self._release()
            raise StoreError(f"there is no state in {directory}: run `gpu-simulator init` first")
        self._before = json.dumps(state)
        self._state = state
        return state

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and json.dumps(self._state) != self._before:
                write_file(state_path(self._root), json.dumps(self._state, indent=1) + "\n")
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def no_errors() -> EccCounters:
    """Return ECC counters that are all zero."""
    return {
        "sram_correctable": 0,
        "sram_uncorrectable_parity": 0,
        "sram_uncorrectable_secded": 0,
        "dram_correctable": 0,
        "dram_uncorrectable": 0,
    }


def new_gpu(given: GpuDescription, slot: int, seed: str, *, persistence: bool) -> Gpu:
    """Make a GPU in factory state; identities that are not given derive from seed and slot."""
    model, identity = catalogue.load(given["model"]), lazy.load("state.identity")
    ecc, mig = model["ecc"], model.get("mig")
    return {
        "model": given["model"],
        "uuid": given.get("uuid", identity.gpu_uuid(seed, slot)),
        "serial": given.get("serial", identity.serial(seed, slot) if model["has_serial"] else "N/A"),
        "bus_id": given.get("bus_id", f"00000000:{6 + slot:02X}:00.0"),
        "minor": given.get("minor", slot),
        "module_id": given.get("module_id", model["module_ids"][slot % len(model["module_ids"])]),
        "pdi": given.get("pdi", identity.pdi(seed, slot)),
        "persistence_mode": given.get("persistence_mode", persistence),
        "accounting_mode": False,
        "compute_mode": "Default",
        "ecc_mode": {"current": ecc["default"], "pending": ecc["default"]} if ecc else None,
        "mig_mode": {"current": False, "pending": False} if mig else None,
        "power_limit_w": model["power"]["default_w"],
        "locked_gpu_clocks": None,
        "locked_memory_clocks": None,
        "deferred_memory_clock": None,
        "applications_clocks": None,
        "gpu_instances": [],
        "processes": [],
        "ecc_errors": {"volatile": no_errors(), "aggregate": no_errors()},
        "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "retired_pages": [],
        "health": "ok",
        "recovery_action": 0,
        "inactive_nvlinks": [],
        "slow_nvlinks": {},
        "nvlink_errors": {},
        "slowdowns": {},
        "overrides": dict(given.get("overrides", {})),
    }


def new_state(description: HostDescription) -> State:
    """Make the initial state of a host from its description; raises StoreError and UnknownModelError."""
    if "driver_version" not in description or "gpus" not in description:
        raise StoreError("a host description needs driver_version and gpus")
    seed = description.get("seed", "gpu-simulator")
    persistence = description.get("persistence_mode", True)
    gpus: list[Gpu] = []
    for given in description["gpus"]:
        for _unused in range(given.get("count", 1)):
            gpus.append(new_gpu(given, len(gpus), seed, persistence=persistence))
    for key in ("uuid", "bus_id", "minor"):
        if len({gpu[key] for gpu in gpus}) != len(gpus):
            raise StoreError(f"two GPUs of the description have the same {key}")
    number = description.get("nics", 0)
    if not 0 <= number <= MOST_NICS:
        raise StoreError(f"a host description has 0 to {MOST_NICS} nics, not {number}")
    return {
        "format": FORMAT,
        "driver": {"installed": description["driver_version"], "loaded": description["driver_version"]},
        "host": {
            "fabric": description.get("fabric", len(gpus) > 1),
            "fabric_manager": description.get("fabric_manager", True),
            "virtualization": description.get("virtualization", "Pass-Through"),
            "cpu_affinity": description.get("cpu_affinity", "0-127"),
            "numa_affinity": description.get("numa_affinity", "0"),
        },
        "gpus": gpus,
        "faults": [],
        "call_counts": {},
        "kernel_log": [],
        "dcgm_results": {},
        "nics": lazy.load("host.nics").new(number) if number else [],
    }


def initialise(description: HostDescription, root: str | None = None, device_nodes: bool = False) -> State:
    """Write a host's description and its initial state; ``device_nodes`` also makes plain files for /dev/nvidia*."""
    directory = root_of(root)
    state = new_state(description)
    write_file(description_path(directory), json.dumps(description, indent=1) + "\n")
    write_file(state_path(directory), json.dumps(state, indent=1) + "\n")
    if device_nodes:
        os.makedirs(os.path.join(directory, "dev"), exist_ok=True)
        for gpu in state["gpus"]:
            with open(os.path.join(directory, "dev", "nvidia{}".format(gpu["minor"])), "w", encoding="utf-8"):
                pass
    return state
