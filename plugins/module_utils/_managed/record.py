# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record of what a role installed and configured on a host. Private to this collection."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, TypeVar

from .._common.host_files import HostFiles
from .._common.json_text import parse_json

DIRECTORY = "/var/lib/gpu-fleet/managed"
"""Directory with one file for each record, `<name>.json`."""

FORMAT = 1
NAME = re.compile(r"[a-z][a-z0-9_.-]*")

T = TypeVar("T")


class RecordError(Exception):
    """A record cannot be read, or a claim to record does not hold; the message is for the user."""


@dataclass(frozen=True)
class PathState:
    """One path: `kind` is `file`, `link`, `directory` or `other`; `mode` has four octal digits.

    `content` is `sha256:DIGEST` of a file, `stamp:BYTES:MTIME_NS` of a large one, the target of a link, else empty.
    """

    kind: str
    mode: str
    uid: int
    gid: int
    content: str


@dataclass(frozen=True)
class Pin:
    """The version at which a package is pinned, and whether by a hold or a version lock."""

    version: str
    held: bool


@dataclass(frozen=True)
class UnitClaim:
    """The desired state of a unit; None where it does not matter.

    `started_after` are files that its running process must have read: paths, which may have wildcards. With
    `same_start` its process must stay the one of the record, which was `started` then, in seconds since 1970.
    """

    enabled: bool | None = None
    active: bool | None = None
    started_after: tuple[str, ...] = ()
    same_start: bool = False
    started: float | None = None


@dataclass(frozen=True)
class Claims:
    """A role's claims about the host, named as managed_record's options; `files` may have wildcards."""

    inputs: str = ""
    files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent_lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    json_values: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    pinned_packages: tuple[str, ...] = ()
    held_packages: tuple[str, ...] = ()
    units: Mapping[str, UnitClaim] = field(default_factory=dict)
    group_members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    secrets: str = ""


@dataclass(frozen=True)
class Record:
    """The claims of a role, with the state of what they name at the time the role had converged.

    `secrets` is the keyed digest of secret inputs, empty without any.
    """

    inputs: str
    paths: Mapping[str, PathState]
    absent: tuple[str, ...]
    lines: Mapping[str, tuple[str, ...]]
    absent_lines: Mapping[str, tuple[str, ...]]
    json_values: Mapping[str, Any]
    packages: tuple[str, ...]
    pins: Mapping[str, Pin]
    units: Mapping[str, UnitClaim]
    group_members: Mapping[str, tuple[str, ...]]
    data: Mapping[str, Any]
    secrets: str


def render(record: Record) -> str:
    """The content of a record's file."""
    return json.dumps({"format": FORMAT, **asdict(record)}, indent=1, sort_keys=True) + "\n"


def parse(text: str) -> Record:
    """Parse a record's file; raises RecordError when it is invalid or has another format version."""
    try:
        fields = parse_json(text)
        if fields.pop("format") != FORMAT:
            raise RecordError("it has a format that this version does not know")
        return Record(
            inputs=_typed(fields.pop("inputs"), str),
            paths={path: _path_state(state) for path, state in _mapping(fields.pop("paths")).items()},
            absent=_strings(fields.pop("absent")),
            lines=_lists(fields.pop("lines")),
            absent_lines=_patterns(fields.pop("absent_lines")),
            json_values=_mapping(fields.pop("json_values")),
            packages=_strings(fields.pop("packages")),
            pins={
                name: Pin(_typed(pin["version"], str), _typed(pin["held"], bool))
                for name, pin in _mapping(fields.pop("pins")).items()
            },
            units={name: _unit_claim(unit) for name, unit in _mapping(fields.pop("units")).items()},
            group_members=_lists(fields.pop("group_members")),
            data=_mapping(fields.pop("data")),
            secrets=_typed(fields.pop("secrets"), str),
        )
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as error:
        raise RecordError("it is damaged") from error


def record_path(name: str) -> str:
    """The path of a record's file."""
    return f"{DIRECTORY}/{name}.json"


def read_records(files: HostFiles) -> tuple[dict[str, Record], dict[str, str]]:
    """All valid records of a host by name, and why each of the others cannot be used."""
    records: dict[str, Record] = {}
    unusable: dict[str, str] = {}
    for file in files.names(DIRECTORY):
        name, dot, suffix = file.rpartition(".")
        if not dot or suffix != "json" or not NAME.fullmatch(name):
            continue
        try:
            records[name] = parse(files.read(record_path(name)) or "")
        except RecordError as error:
            unusable[name] = f"the record {record_path(name)} is not used: {error}"
    return records, unusable


def _typed(value: object, kind: type[T]) -> T:
    """`value`, checked to be of this type; bool does not pass as int."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(kind.__name__)
    return value


def _mapping(value: object) -> dict[str, Any]:
    mapping: dict[str, Any] = _typed(value, dict)
    return mapping


def _strings(value: object) -> tuple[str, ...]:
    return tuple(_typed(item, str) for item in _typed(value, list))


def _lists(value: object) -> dict[str, tuple[str, ...]]:
    return {name: _strings(items) for name, items in _mapping(value).items()}


def _patterns(value: object) -> dict[str, tuple[str, ...]]:
    found = _lists(value)
    for pattern in (pattern for patterns in found.values() for pattern in patterns):
        re.compile(pattern)
    return found


def _path_state(value: object) -> PathState:
    fields = _mapping(value)
    strings = {name: _typed(fields[name], str) for name in ("kind", "mode", "content")}
    return PathState(uid=_typed(fields["uid"], int), gid=_typed(fields["gid"], int), **strings)


def _unit_claim(value: object) -> UnitClaim:
    fields = _mapping(value)
    started = fields["started"]
    return UnitClaim(
        _maybe_bool(fields["enabled"]),
        _maybe_bool(fields["active"]),
        _strings(fields["started_after"]),
        _typed(fields["same_start"], bool),
        None if started is None else _typed(started, float),
    )


def _maybe_bool(value: object) -> bool | None:
    return None if value is None else _typed(value, bool)
