# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the MIG state of a host with the minimum of calls. Private to this collection."""

from __future__ import annotations

import contextlib
from dataclasses import astuple, dataclass, replace
from typing import Callable, Iterator, Mapping, Sequence, TypeVar

from .._common.boot_cache import BootCache
from .._common.errors import ChangeError, HostError
from .._nvidia_smi import listing
from .._nvidia_smi.client import LOST, Smi
from .._nvidia_smi.gpu import Gpu
from .._nvidia_smi.listing import GpuInstance, Listing, ListingError
from .._nvidia_smi.messages import failed_gpus
from .._nvidia_smi.xml import DocumentError, parse_document
from . import evidence as mig_evidence
from . import profiles as mig_profiles
from .cache_keys import DEVICES, TABLES, devices_expected, devices_seen, host_key
from .layout import ComputeInstance, Instance
from .plan import Divisions
from .profiles import Profile, Table
from .state import GpuState, Host

_WITHOUT_PLACEMENT = 450

Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class _Reading:
    """One reading of a host. `contradicts` and `is_incomplete` are possibly transient."""

    host: Host
    contradicts: bool
    is_incomplete: bool = False


class Observer:
    """Reads a host. `used_cache`: some of the output came from the cache.

    No single call is trusted: what one lists, or omits, another has to confirm. Contradictory readings are repeated
    according to the retry policy; a contradiction that remains becomes the `doubt` of a GPU.
    """

    def __init__(self, smi: Smi, cache: BootCache) -> None:
        self.used_cache = False
        self._smi = smi
        self._cache = cache
        self._key: object = None
        self._instances = ""
        self._devices = ""

    def observe(self) -> Host:
        """Modes, instances and processes of all GPUs. Raises HostError."""
        return self._settle(self._observe)

    def _settle(self, read: Callable[[bool], _Reading]) -> Host:
        """Read until there is no contradiction; incomplete output may be garbled, and is read once more.

        `read` takes whether it is the first attempt.
        """
        pauses = (0.0, *self._smi.retry_policy.pauses())
        for attempt, pause in enumerate(pauses):
            try:
                reading = read(attempt == 0)
            except _UnreadableError:
                pass
            else:
                if not reading.contradicts and not (reading.is_incomplete and attempt == 0):
                    return reading.host
            self._smi.sleep(pause)
        return read(False).host

    def _observe(self, may_use_cache: bool) -> _Reading:
        document_text, self._instances = self._smi.read(("-q", "-x"), ("mig", "-lgi"), accept=(LOST,))
        document = self._smi.document(document_text)
        if failed_gpus(self._instances):
            # The document has named the lost GPU, and the others can be asked without it.
            (self._instances,) = self._smi.read(("mig", "-lgi"))
        rows = _parse(listing.list_gpu_instances, self._instances)
        self._key = host_key(self._smi.executable, document.driver_version, document.gpus)
        seen = {gpu.basics.uuid: devices_seen(gpu.mig_devices) for gpu in document.gpus}
        key = self._devices_key(seen, rows)
        cached = self._cache.get((DEVICES,), key) if may_use_cache else None
        self.used_cache |= cached is not None
        self._devices = ""
        if cached is not None:
            (self._devices,) = cached
        elif rows.rows or not all(map(mig_evidence.is_confirmed_by_document, document.gpus)):
            # A document without MIG devices does not confirm that there are none.
            (self._devices,) = self._smi.read(("-L",), accept=(LOST,))
        reading = self._join(document.driver_version, document.gpus, rows)
        if cached is None and not reading.contradicts and not reading.is_incomplete and _all_whole(reading.host):
            self._cache.put((DEVICES,), key, (self._devices,))
        return reading

    def observe_again(self) -> Host:
        """Observe without the cache."""
        self._cache.invalidate((DEVICES, *TABLES))
        self.used_cache = False
        return self.observe()

    def read_again(self, host: Host, made: Mapping[str, Mapping[int, int]]) -> Host:
        """Read the instances after a change. If two calls suffice, modes and processes are taken over from `host`.

        `made` has, by GPU identity and GPU instance id, the ids of compute instances reported as created.
        """
        self._instances, self._devices = self._smi.read(("mig", "-lgi"), ("-L",), accept=(LOST,))
        with contextlib.suppress(_UnreadableError):
            rows = _parse(listing.list_gpu_instances, self._instances)
            listed = {item.index: item for item in _parse(listing.parse_devices, self._devices)}
            found = [
                mig_evidence.judge_after(gpu, made.get(gpu.identity, {}), rows, listed.get(gpu.index))
                for gpu in host.gpus
            ]
            states = tuple(state for state in found if state is not None)
            if len(states) == len(found):
                return Host(host.driver_version, states)
        return self.observe()

    def put(self, host: Host, tables: Mapping[str, Table]) -> None:
        """Cache what read_again read, under the predicted key of the next run."""
        seen = {}
        rows = _parse(listing.list_gpu_instances, self._instances)
        indexes = {
            device.uuid: device.index
            for gpu in _parse(listing.parse_devices, self._devices)
            for device in gpu.mig_devices
        }
        for gpu in host.gpus:
            expected = devices_expected(gpu.instances, tables.get(gpu.identity, Table(())), indexes)
            # A GPU that was not changed still shows the same devices.
            seen[gpu.gpu.basics.uuid] = devices_seen(gpu.gpu.mig_devices) if expected is None else expected
        if _all_whole(host):
            self._cache.put((DEVICES,), self._devices_key(seen, rows), (self._devices,))

    def tables(self, gpus: Sequence[GpuState]) -> dict[str, Table]:
        """Profiles and places by GPU identity. Before driver 535 they are listed only for GPUs in MIG mode."""
        cached = self._cache.get(TABLES, self._key)
        self.used_cache |= cached is not None
        known = _tables(*cached) if cached is not None else {}
        if any(gpu.index not in known for gpu in gpus):
            listings = self._smi.read(("mig", "-lgip"), ("mig", "-lgipp"))
            known = _tables(*listings)
            if not _is_consistent(known):
                # One of them may be truncated between two rows.
                listings = self._smi.read(("mig", "-lgip"), ("mig", "-lgipp"))
                known = _tables(*listings)
            self._cache.put(TABLES, self._key, listings)
        return {gpu.identity: known[gpu.index] for gpu in gpus if gpu.index in known}

    def instances(self, gpu: GpuState) -> tuple[Instance, ...]:
        """The instances of one GPU with the places of their compute instances, but without UUIDs; raises ChangeError.

        Changes and rollbacks depend on it, so nothing comes from the cache, and doubt is an error.
        """
        try:
            (state,) = self._settle(lambda _is_first: self._read_one(gpu)).gpus
        except HostError as error:
            raise ChangeError(str(error)) from error
        if state.doubt is not None:
            raise ChangeError(f"{gpu.label}: {state.doubt}")
        return state.instances

    def _read_one(self, gpu: GpuState) -> _Reading:
        chosen = ("-i", gpu.identity)
        document_text, rows_text, compute_text = self._smi.read(
            ("-q", "-x", *chosen), ("mig", *chosen, "-lgi"), ("mig", *chosen, "-lci"), accept=(LOST,)
        )
        try:
            document = parse_document(document_text)
        except DocumentError as error:
            raise _UnreadableError(f"nvidia-smi -q -x -i {gpu.identity}: {error}") from error
        shown = next((item for item in document.gpus if item.identity == gpu.identity), None)
        if shown is None:
            raise ChangeError(f"{gpu.label} is not there any more")
        # In a document of one GPU its position is not its index.
        shown = replace(shown, index=gpu.gpu.index)
        rows = _parse(listing.list_gpu_instances, rows_text)
        computes = _parse(listing.list_compute_instances, compute_text)
        listed = None
        if not mig_evidence.is_confirmed_by_document(shown):
            (text,) = self._smi.read(("-L",), accept=(LOST,))
            listed = {item.index: item for item in _parse(listing.parse_devices, text)}.get(gpu.index)
        state = mig_evidence.judge(shown, rows, computes, listed) or GpuState(shown)
        return _Reading(Host(document.driver_version, (state,)), state.doubt is not None)

    def compute_profiles(self, gpu: GpuState, gpu_instance_id: int) -> dict[int, int]:
        """Profile ids, by slices, of the compute instances that a GPU instance can hold."""
        (text,) = self._smi.read(("mig", "-i", gpu.identity, "-gi", str(gpu_instance_id), "-lcip"))
        found: dict[int, int] = {}
        for row in _parse(listing.parse_compute_instance_profiles, text):
            # Some sizes exist twice, with more or fewer multiprocessors; the first is the standard one.
            sizes = listing.sizes_of(row.name)
            if sizes is not None:
                found.setdefault(sizes[0], row.profile_id)
        return found

    def divisions(self, gpu: GpuState) -> Divisions:
        """Places of compute instances in the GPU instances of one GPU; empty where the driver does not list them."""
        try:
            profiles_text, places_text = self._smi.read(
                ("mig", "-i", gpu.identity, "-lcip"), ("mig", "-i", gpu.identity, "-lcipp")
            )
        except ChangeError:
            return {}
        places = {
            (item.gpu_instance_id, item.profile_id): item for item in _parse(listing.parse_placements, places_text)
        }
        found: dict[int, dict[str, Profile]] = {}
        for row in _parse(listing.parse_compute_instance_profiles, profiles_text):
            place = places.get((row.gpu_instance_id, row.profile_id))
            sizes = listing.sizes_of(row.name)
            if place is not None and sizes is not None:
                name = str(sizes[0])
                profile = Profile(name, row.profile_id, row.total, place.starts, place.size, 1)
                found.setdefault(row.gpu_instance_id, {}).setdefault(name, profile)
        return {gpu_instance_id: Table(tuple(rows.values())) for gpu_instance_id, rows in found.items()}

    def _devices_key(self, seen: object, rows: Listing[GpuInstance]) -> object:
        """Cache key of the list of devices."""
        return [self._key, seen, sorted(list(astuple(row)) for row in rows.rows)]

    def _join(self, driver_version: str | None, gpus: Sequence[Gpu], rows: Listing[GpuInstance]) -> _Reading:
        """Combine the lists; `mig -lci` is read only where the others are not enough."""
        listed = {item.index: item for item in _parse(listing.parse_devices, self._devices)}
        computes = None
        found = [mig_evidence.judge(gpu, rows, computes, listed.get(_index(gpu))) for gpu in gpus]
        if None in found:
            (text,) = self._smi.read(("mig", "-lci"))
            computes = _parse(listing.list_compute_instances, text)
            found = [mig_evidence.judge(gpu, rows, computes, listed.get(_index(gpu))) for gpu in gpus]
        states = tuple(state for state in found if state is not None)
        unread = {*rows.unread, *(computes.unread if computes is not None else ())}
        strange = sorted({row.gpu for row in rows.rows} - {_index(gpu) for gpu in gpus})
        if strange:
            # The indexes of the document's GPUs may be wrong, too.
            doubt = f"nvidia-smi mig -lgi lists instances of GPU {strange[0]}, which nvidia-smi -q -x does not show"
            states = tuple(replace(state, instances=(), doubt=doubt) for state in states)
        return _Reading(
            Host(driver_version, states),
            contradicts=any(state.doubt is not None and state.index not in unread for state in states),
            is_incomplete=bool(unread) or any(item.uuid is None for item in _computes(states)),
        )


class _UnreadableError(HostError):
    """Output that is not the expected list, or is truncated."""


def _index(gpu: Gpu) -> int:
    return -1 if gpu.index is None else gpu.index


def _computes(states: Sequence[GpuState]) -> Iterator[ComputeInstance]:
    return (compute for state in states for instance in state.instances for compute in instance.compute)


def can_place(driver_version: str | None) -> bool:
    """Whether nvidia-smi accepts a start with a profile; since driver 460."""
    major = (driver_version or "").partition(".")[0]
    return not (major.isdigit() and int(major) <= _WITHOUT_PLACEMENT)


def _tables(profiles: str, placements: str) -> dict[int, Table]:
    return mig_profiles.tables(
        _parse(listing.parse_gpu_instance_profiles, profiles), _parse(listing.parse_placements, placements)
    )


def _is_consistent(tables: Mapping[int, Table]) -> bool:
    """Whether each profile has at least one place."""
    return all(profile.starts for table in tables.values() for profile in table.profiles)


def _all_whole(host: Host) -> bool:
    return all(item.compute_sizes == (item.slices,) for gpu in host.gpus for item in gpu.instances)


def _parse(parse: Callable[[str], Parsed], text: str) -> Parsed:
    try:
        return parse(text)
    except ListingError as error:
        raise _UnreadableError(f"nvidia-smi's list is not understood: {error}") from error
