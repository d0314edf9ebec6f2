# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the MIG state of a host with the fewest calls that tell it. Private to this collection."""

from __future__ import annotations

from dataclasses import astuple
from typing import Callable, Mapping, Sequence, TypeVar

from . import _mig_listing, _mig_profiles, _mig_state
from ._errors import ChangeError
from ._gpu import Gpu
from ._memory import Memory
from ._mig_layout import Instance
from ._mig_listing import ListingError
from ._mig_memory import DEVICES, TABLES, devices_expected, devices_seen, host_key
from ._mig_plan import Divisions
from ._mig_profiles import Profile, Table
from ._mig_state import GpuState, Host
from ._smi import LOST, Smi

_WITHOUT_PLACEMENT = 450

Parsed = TypeVar("Parsed")


class Observer:
    """Reads a host. `has_recalled` says that something of its answers was remembered, not read."""

    def __init__(self, smi: Smi, memory: Memory) -> None:
        self.has_recalled = False
        self._smi = smi
        self._memory = memory
        self._key: object = None
        self._instances = ""
        self._devices = ""

    def observe(self) -> Host:
        """Modes, instances and processes of all GPUs. Raises ChangeError."""
        document_text, self._instances = self._smi.read(("-q", "-x"), ("mig", "-lgi"), accept=(LOST,))
        document = self._smi.document(document_text)
        self._key = host_key(self._smi.executable, document.driver_version, document.gpus)
        seen = {gpu.basics.uuid: devices_seen(gpu.mig_devices) for gpu in document.gpus}
        key = self._devices_key(seen)
        recalled = self._memory.recall((DEVICES,), key)
        self.has_recalled |= recalled is not None
        if recalled is not None:
            (self._devices,) = recalled
        elif _parse(_mig_listing.parse_gpu_instances, self._instances):
            (self._devices,) = self._smi.read(("-L",))
        host = self._join(document.driver_version, document.gpus, {})
        if recalled is None and _all_whole(host):
            self._memory.remember((DEVICES,), key, (self._devices,))
        return host

    def afresh(self) -> Host:
        """Observe without recalling anything."""
        self._memory.forget((DEVICES, *TABLES))
        self.has_recalled = False
        return self.observe()

    def look_again(self, host: Host, made: Mapping[str, Mapping[int, int]]) -> Host:
        """Read the instances after a change. Modes and processes stay those of `host`.

        `made` has, by GPU identity and GPU instance id, the ids of compute instances that nvidia-smi said it made.
        """
        self._instances, self._devices = self._smi.read(("mig", "-lgi"), ("-L",))
        ids = {
            gpu.index: {
                **{item.gpu_instance_id: item.compute[0].compute_instance_id for item in gpu.instances if item.compute},
                **made.get(gpu.identity, {}),
            }
            for gpu in host.gpus
        }
        return self._join(host.driver_version, [gpu.gpu for gpu in host.gpus], ids)

    def remember(self, host: Host, tables: Mapping[str, Table]) -> None:
        """Keep what look_again read, under what the next run will see of it."""
        seen = {}
        for gpu in host.gpus:
            expected = devices_expected(gpu.instances, tables.get(gpu.identity, Table(())))
            # A GPU that was left alone still shows what it showed.
            seen[gpu.gpu.basics.uuid] = devices_seen(gpu.gpu.mig_devices) if expected is None else expected
        if _all_whole(host):
            self._memory.remember((DEVICES,), self._devices_key(seen), (self._devices,))

    def tables(self, gpus: Sequence[GpuState]) -> dict[str, Table]:
        """Profiles and places by GPU identity. Until driver 535 they are listed only of GPUs in MIG mode."""
        recalled = self._memory.recall(TABLES, self._key)
        self.has_recalled |= recalled is not None
        known = _tables(*recalled) if recalled is not None else {}
        if any(gpu.index not in known for gpu in gpus):
            texts = self._smi.read(("mig", "-lgip"), ("mig", "-lgipp"))
            self._memory.remember(TABLES, self._key, texts)
            known = _tables(*texts)
        return {gpu.identity: known[gpu.index] for gpu in gpus if gpu.index in known}

    def instances(self, gpu: GpuState) -> tuple[Instance, ...]:
        """The instances of one GPU with the places of their compute instances, but without UUIDs."""
        rows_text, compute_text = self._smi.read(
            ("mig", "-i", gpu.identity, "-lgi"), ("mig", "-i", gpu.identity, "-lci")
        )
        rows = _parse(_mig_listing.parse_gpu_instances, rows_text)
        computes = _mig_state.compute_from_rows(_parse(_mig_listing.parse_compute_instances, compute_text))
        return _mig_state.join(rows, computes, None)

    def compute_profiles(self, gpu: GpuState, gpu_instance_id: int) -> dict[int, int]:
        """Profile ids of the compute instances that a GPU instance can hold, by slices."""
        (text,) = self._smi.read(("mig", "-i", gpu.identity, "-gi", str(gpu_instance_id), "-lcip"))
        found: dict[int, int] = {}
        for row in _parse(_mig_listing.parse_compute_instance_profiles, text):
            # Some sizes come twice, with more or fewer multiprocessors; the first is the plain one.
            found.setdefault(_mig_profiles.parse_name(row.name).compute, row.profile_id)
        return found

    def divisions(self, gpu: GpuState) -> Divisions:
        """Where compute instances can lie in the GPU instances of one GPU; nothing from drivers that do not tell."""
        try:
            profiles_text, places_text = self._smi.read(
                ("mig", "-i", gpu.identity, "-lcip"), ("mig", "-i", gpu.identity, "-lcipp")
            )
        except ChangeError:
            return {}
        places = {
            (item.gpu_instance_id, item.profile_id): item for item in _parse(_mig_listing.parse_placements, places_text)
        }
        found: dict[int, dict[str, Profile]] = {}
        for row in _parse(_mig_listing.parse_compute_instance_profiles, profiles_text):
            place = places.get((row.gpu_instance_id, row.profile_id))
            name = str(_mig_profiles.parse_name(row.name).compute)
            if place is not None:
                profile = Profile(name, row.profile_id, row.total, place.starts, place.size, 1)
                found.setdefault(row.gpu_instance_id, {}).setdefault(name, profile)
        return {gpu_instance_id: Table(tuple(rows.values())) for gpu_instance_id, rows in found.items()}

    def _devices_key(self, seen: object) -> object:
        """What the list of devices depends on."""
        rows = _parse(_mig_listing.parse_gpu_instances, self._instances)
        return [self._key, seen, sorted(list(astuple(row)) for row in rows)]

    def _join(self, driver_version: str | None, gpus: Sequence[Gpu], ids: Mapping[int, Mapping[int, int]]) -> Host:
        """Put the lists together. `ids` is for look_again; without it the document tells which device is where."""
        rows_by_gpu: dict[int, list[_mig_listing.GpuInstance]] = {}
        for row in _parse(_mig_listing.parse_gpu_instances, self._instances):
            rows_by_gpu.setdefault(row.gpu, []).append(row)
        listed = {item.index: item for item in _parse(_mig_listing.parse_devices, self._devices)}
        found: dict[int, tuple[_mig_state.Compute, ...] | None] = {}
        for gpu in gpus:
            index = -1 if gpu.index is None else gpu.index
            rows, devices = rows_by_gpu.get(index, []), listed.get(index)
            if not rows:
                found[index] = ()
            elif devices is None:
                found[index] = None
            elif index in ids:
                found[index] = _mig_state.compute_of_whole(rows, devices, ids[index])
            else:
                found[index] = _mig_state.compute_from_document(gpu, devices)
        if any(computes is None for computes in found.values()):
            (text,) = self._smi.read(("mig", "-lci"))
            all_rows = _parse(_mig_listing.parse_compute_instances, text)
            found = {
                index: _mig_state.compute_from_rows(row for row in all_rows if row.gpu == index) for index in found
            }
        states = []
        for gpu in gpus:
            index = -1 if gpu.index is None else gpu.index
            instances = _mig_state.join(rows_by_gpu.get(index, []), found[index] or (), listed.get(index))
            states.append(GpuState(gpu, instances, _mig_state.busy_instances(gpu, instances)))
        return Host(driver_version, tuple(states))


def can_place(driver_version: str | None) -> bool:
    """Whether nvidia-smi takes a start with a profile; it does since driver 460."""
    major = (driver_version or "").partition(".")[0]
    return not (major.isdigit() and int(major) <= _WITHOUT_PLACEMENT)


def _tables(profiles: str, placements: str) -> dict[int, Table]:
    return _mig_profiles.tables(
        _parse(_mig_listing.parse_gpu_instance_profiles, profiles), _parse(_mig_listing.parse_placements, placements)
    )


def _all_whole(host: Host) -> bool:
    return all(item.compute_sizes == (item.slices,) for gpu in host.gpus for item in gpu.instances)


def _parse(parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ListingError as error:
        raise ChangeError(f"nvidia-smi's list is not understood: {error}") from error
