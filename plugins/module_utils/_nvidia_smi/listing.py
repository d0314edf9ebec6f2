# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the lists of `nvidia-smi mig -l…` and `nvidia-smi -L`, of any driver. Private to this collection.

Tables are parsed by words, not by column: their width changed in drivers 470 and 575. "There are none" gives an empty
result; any other message in place of a table raises ListingError. Exit statuses are left to the caller: the same
"none" has been 0 and 6.

Names are taken as listed: real drivers have compute instances that are in no table of NVIDIA's guide.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Callable, Generic, Iterator, Mapping, TypeVar

from .values import gib, interpret, small


class ListingError(Exception):
    """The text is not the expected list; the message quotes the line that cannot be parsed."""


@dataclass(frozen=True)
class GpuInstanceProfile:
    """One row of `-lgip`. `gpu` is nvidia-smi's index, `name` is without "MIG "; None is a cell without a number.

    `free` is how many more fit next to the existing instances; drivers before 580 may print 0 while MIG is off.
    """

    gpu: int
    name: str
    profile_id: int
    free: int
    total: int
    memory_gib: float | None
    multiprocessors: int | None
    decoders: int | None
    encoders: int | None
    copy_engines: int | None
    jpegs: int | None
    ofas: int | None


@dataclass(frozen=True)
class Placements:
    """One line of `-lgipp` or `-lcipp` (there with `gpu_instance_id`): possible starts of a profile's instances."""

    gpu: int
    gpu_instance_id: int | None
    profile_id: int
    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class GpuInstance:
    """One row of `-lgi`: an existing GPU instance, `size` memory slices from `start`."""

    gpu: int
    name: str
    profile_id: int
    gpu_instance_id: int
    start: int
    size: int


@dataclass(frozen=True)
class ComputeInstanceProfile:
    """One row of `-lcip`; `default` is the one that `-C` creates."""

    gpu: int
    gpu_instance_id: int
    name: str
    profile_id: int
    default: bool
    free: int
    total: int
    multiprocessors: int | None


@dataclass(frozen=True)
class ComputeInstance:
    """One row of `-lci`; its name lacks suffixes such as `+me`. The first 450 drivers print no placement."""

    gpu: int
    gpu_instance_id: int
    name: str
    profile_id: int
    compute_instance_id: int
    start: int | None
    size: int | None


@dataclass(frozen=True)
class MigDevice:
    """A MIG line of `-L`. The instance ids are known where the UUID contains them, as until driver 460."""

    index: int
    name: str
    uuid: str
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@dataclass(frozen=True)
class ListedGpu:
    """A GPU of `-L` with its MIG devices, ordered by index."""

    index: int
    name: str
    uuid: str
    mig_devices: tuple[MigDevice, ...]


Built = TypeVar("Built")
Row = TypeVar("Row", GpuInstance, ComputeInstance)


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """A list of instances. `unread` has, by GPU index, a row that could not be parsed.

    `none` is nvidia-smi's message that there are none; without it a list has rows.
    """

    rows: tuple[Row, ...]
    unread: Mapping[int, str]
    none: str | None = None


# Patterns are text, so that patterns of unread lists are not compiled: each takes up to a millisecond.
_NONE = r"(?i)No MIG-(?:enabled|supported) devices found\.?|No (?:GPU|compute) instances found: Not Found"
# Warnings about infoROM or persistence mode can accompany any output.
_LONGEST_LINE = 200
# A real one has a hundred characters. Some patterns need minutes for a row of 100,000 digits.
_LONGEST_ROW = 1000
_DIAGNOSTIC = r"(?i)warning:"
# A long name can be adjacent to the id after it.
_GPU_INSTANCE_PROFILE = r"(\d+)\s+MIG\s+(\S+?)\s*(\d+)\s+(\d+)/(\d+)\s+(\S+)\s+\S+\s+(\S+)\s+(\S+)\s+(\S+)"
_GPU_INSTANCE = r"(\d+)\s+MIG\s+(\S+?)\s*(\d+)\s+(\d+)\s+(\d+):(\d+)"
_COMPUTE_INSTANCE_PROFILE = r"(\d+)\s+(\d+)\s+MIG\s+(\S+)\s+(\d+)\s*(\*?)\s+(\d+)/(\d+)\s+(\S+)(?:\s+\S+)*"
_COMPUTE_INSTANCE = r"(\d+)\s+(\d+)\s+MIG\s+(\S+)\s+(\d+)\s+(\d+)(?:\s+(\d+):(\d+))?"
_ENGINES = r"(\S+)\s+(\S+)(?:\s+(\S+))?"
_PLACEMENTS = r"GPU\s+(\d+)(?:\s+GI\s+(\d+))?\s+Profile ID\s+(\d+)\s+Placements?\s*:\s*\{([\d,\s]*)\}\s*:\s*(\d+)"
_PLACEMENTS_OF = r"GPU\s+\d+\s"
_GPU_LINE = r"GPU\s+(\d+):\s*(.*?)\s*\(UUID:\s*([^\s)]+)\s*\)"
_MIG_LINE = r"MIG\s+(\S+)\s+Device\s+(\d+):\s*\(UUID:\s*([^\s)]+)\s*\)"
_SIZES = r"(?:([0-9]{1,3})c\.)?([0-9]{1,3})g\.\S+"
_LEADING_INDEX = r"[0-9]{1,4}(?=\s)"
_IDS_IN_UUID = r"MIG-GPU-[^/]+/(\d+)/(\d+)"


def sizes_of(name: str) -> tuple[int, int] | None:
    """The slices of a compute instance and of its GPU instance, from a name listed by nvidia-smi; else None."""
    match = re.fullmatch(_SIZES, name)
    return None if match is None else (int(match[1] or match[2]), int(match[2]))


def list_gpu_instances(text: str) -> Listing[GpuInstance]:
    """Parse `mig -lgi`; a row that cannot be parsed affects only its GPU. Raises ListingError for unexpected output."""
    return _listing(text, "GPU instances", _GPU_INSTANCE, _gpu_instance)


def list_compute_instances(text: str) -> Listing[ComputeInstance]:
    """Parse `mig -lci`; see list_gpu_instances."""
    return _listing(text, "Compute instances", _COMPUTE_INSTANCE, _compute_instance)


def parse_gpu_instance_profiles(text: str) -> tuple[GpuInstanceProfile, ...]:
    """Parse `mig -lgip`: profiles of all GPUs in the order printed, without rows that cannot be parsed."""
    profiles: list[GpuInstanceProfile] = []
    for row, more in _pairs(text, "GPU instance profiles"):
        match, engines = re.fullmatch(_GPU_INSTANCE_PROFILE, row), re.fullmatch(_ENGINES, more)
        if match is None or engines is None:
            continue
        with suppress(ValueError):
            profiles.append(
                GpuInstanceProfile(
                    gpu=small(match[1]),
                    name=match[2],
                    profile_id=small(match[3]),
                    free=small(match[4]),
                    total=small(match[5]),
                    memory_gib=interpret(match[6], gib)[0],
                    multiprocessors=_count(match[7]),
                    decoders=_count(match[8]),
                    encoders=_count(match[9]),
                    copy_engines=_count(engines[1]),
                    jpegs=_count(engines[2]),
                    ofas=_count(engines[3]),
                )
            )
    return tuple(profiles)


def parse_gpu_instances(text: str) -> tuple[GpuInstance, ...]:
    """Parse `mig -lgi`: existing GPU instances in the order printed, which is not the order of their places."""
    return tuple(_row(_GPU_INSTANCE, _gpu_instance, row) for row in _table_rows(text, "GPU instances"))


def _gpu_instance(match: re.Match[str]) -> GpuInstance:
    return GpuInstance(small(match[1]), match[2], small(match[3]), small(match[4]), small(match[5]), small(match[6]))


def parse_compute_instance_profiles(text: str) -> tuple[ComputeInstanceProfile, ...]:
    """Parse `mig -lcip`: profiles in each existing GPU instance, without rows that cannot be parsed."""
    profiles: list[ComputeInstanceProfile] = []
    for row, _more in _pairs(text, "Compute instance profiles"):
        with suppress(ListingError):
            profiles.append(_row(_COMPUTE_INSTANCE_PROFILE, _compute_instance_profile, row))
    return tuple(profiles)


def _compute_instance_profile(match: re.Match[str]) -> ComputeInstanceProfile:
    return ComputeInstanceProfile(
        gpu=small(match[1]),
        gpu_instance_id=small(match[2]),
        name=match[3],
        profile_id=small(match[4]),
        default=match[5] == "*",
        free=small(match[6]),
        total=small(match[7]),
        multiprocessors=_count(match[8]),
    )


def parse_compute_instances(text: str) -> tuple[ComputeInstance, ...]:
    """Parse `mig -lci`: existing compute instances; their starts are relative to their GPU instance."""
    return tuple(_row(_COMPUTE_INSTANCE, _compute_instance, row) for row in _table_rows(text, "Compute instances"))


def _compute_instance(match: re.Match[str]) -> ComputeInstance:
    return ComputeInstance(
        small(match[1]), small(match[2]), match[3], small(match[4]), small(match[5]), _given(match[6]), _given(match[7])
    )


def parse_placements(text: str) -> tuple[Placements, ...]:
    """Parse `mig -lgipp` or `mig -lcipp`, which print lines instead of a table; damaged lines are left out."""
    placements: list[Placements] = []
    for line in _content(text):
        match = re.fullmatch(_PLACEMENTS, line)
        if match is None and re.match(_PLACEMENTS_OF, line):
            continue
        if match is None:
            raise ListingError(f"not understood: {line}")
        with suppress(ValueError):
            starts = tuple(map(small, match[4].replace(",", " ").split()))
            placements.append(Placements(small(match[1]), _given(match[2]), small(match[3]), starts, small(match[5])))
    return tuple(placements)


def parse_devices(text: str) -> tuple[ListedGpu, ...]:
    """Parse `nvidia-smi -L`: GPUs and their MIG devices. Other lines, as about a lost GPU, are left to the caller."""
    gpus: list[ListedGpu] = []
    devices: list[MigDevice] = []
    for line in map(str.strip, text.splitlines()):
        if re.fullmatch(_GPU_LINE, line):
            devices = []
            gpus.append(_row(_GPU_LINE, _listed_gpu, line))
        elif re.fullmatch(_MIG_LINE, line):
            if not gpus:
                raise ListingError(f"a MIG device before any GPU: {line}")
            devices.append(_row(_MIG_LINE, _mig_device, line))
            gpus[-1] = ListedGpu(gpus[-1].index, gpus[-1].name, gpus[-1].uuid, tuple(devices))
    return tuple(gpus)


def _listed_gpu(match: re.Match[str]) -> ListedGpu:
    return ListedGpu(small(match[1]), match[2], match[3], ())


def _mig_device(match: re.Match[str]) -> MigDevice:
    ids = re.fullmatch(_IDS_IN_UUID, match[3])
    instance, compute = (small(ids[1]), small(ids[2])) if ids else (None, None)
    return MigDevice(small(match[2]), match[1], match[3], instance, compute)


def _content(text: str) -> Iterator[str]:
    """The lines with content, without messages that there is nothing to list."""
    for line in map(str.strip, text.splitlines()):
        if line and not re.fullmatch(_NONE, line) and not re.match(_DIAGNOSTIC, line):
            yield line


def _table_rows(text: str, title: str) -> Iterator[str]:
    """The cells of each row of the table `title`, without its frame and its header."""
    in_heading = in_rows = closed = False
    width = 0
    for line in _content(text):
        is_frame = not line.strip("+-")
        width = width or len(line)
        closed = is_frame and len(line) == width
        if is_frame:
            continue
        if not (line.startswith("|") and line.endswith("|") and len(line) <= _LONGEST_ROW):
            raise ListingError(f"expected the table {title!r}, found: {line[:_LONGEST_LINE]}")
        cells = line.strip("|").strip()
        if in_rows:
            yield cells
        elif in_heading:
            in_rows = not cells.strip("=")
        elif cells == title + ":":
            in_heading = True
        else:
            raise ListingError(f"expected the table {title!r}, found: {line[:_LONGEST_LINE]}")
    if width and not (in_rows and closed):
        raise ListingError(f"the table {title!r} is cut off")


def _pairs(text: str, title: str) -> Iterator[tuple[str, str]]:
    """The rows of a table whose rows span two lines."""
    first: str | None = None
    for row in _table_rows(text, title):
        if " MIG " in row:
            if first is not None:
                yield first, ""
            first = row
        elif first is not None:
            yield first, row
            first = None
    if first is not None:
        yield first, ""


def _listing(text: str, title: str, pattern: str, build: Callable[[re.Match[str]], Row]) -> Listing[Row]:
    rows: list[Row] = []
    unread: dict[int, str] = {}
    for cells in _table_rows(text, title):
        with suppress(ListingError):
            row = _row(pattern, build, cells)
            if sizes_of(row.name) is not None:
                rows.append(row)
                continue
        index = re.match(_LEADING_INDEX, cells)
        if index is None:
            raise ListingError(f"not understood: {cells[:_LONGEST_LINE]}")
        unread.setdefault(int(index[0]), cells[:_LONGEST_LINE])
    none = next((line for line in map(str.strip, text.splitlines()) if re.fullmatch(_NONE, line)), None)
    if not rows and not unread and none is None:
        raise ListingError(f"there is neither the table {title!r} nor the text that there are none")
    return Listing(tuple(rows), unread, none)


def _row(pattern: str, build: Callable[[re.Match[str]], Built], text: str) -> Built:
    """Build what a row has; raises ListingError where it has another form or an impossible number."""
    match = re.fullmatch(pattern, text)
    if match is not None:
        with suppress(ValueError):
            return build(match)
    raise ListingError(f"not understood: {text[:_LONGEST_LINE]}")


def _given(text: str | None) -> int | None:
    """The number of an optional part of a row."""
    return None if text is None else small(text)


def _count(text: str | None) -> int | None:
    """The number in a cell; None for one without a number."""
    number: int | None = interpret(text, small)[0]
    return number
