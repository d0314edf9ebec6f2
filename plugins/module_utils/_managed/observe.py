# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the state of everything that records name, in one pass. Private to this collection."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from typing import Callable, Iterable, Mapping, Sequence

from .._common.distribution import uses_dpkg
from .._common.host_files import HostFiles
from .._common.regular_file import read_bytes
from .._common.runner import CommandResult, find_executable, run_all
from .packages import RPM_FORMAT, Package, parse_rpm, read_dpkg, read_version_locks
from .record import Claims, PathState, Record
from .start import STARTED, Unit, started_at

BIG_BYTES = 8 << 20
"""Larger files are identified by size and modification time: hashing a directory of libraries takes seconds."""

TIMEOUT_SECONDS = 60.0
_PROPERTIES = f"LoadState,ActiveState,UnitFileState,{STARTED}"

Runner = Callable[[Sequence[Sequence[str]]], Sequence[CommandResult]]


@dataclass(frozen=True)
class Observed:
    """The state of everything that was queried. Units that do not exist are left out, paths are None."""

    paths: Mapping[str, PathState | None] = field(default_factory=dict)
    matches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    contents: Mapping[str, str | None] = field(default_factory=dict)
    packages: Mapping[str, Package] = field(default_factory=dict)
    units: Mapping[str, Unit] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    modified: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Times of modification of the files that match a wildcard, in seconds since 1970."""


@dataclass(frozen=True)
class Queries:
    """What to read: paths, wildcards, contents of files, contents of matching files, packages, units, groups.

    Of `modified`, also wildcards, the times of modification.
    """

    paths: frozenset[str] = frozenset()
    wildcards: frozenset[str] = frozenset()
    contents: frozenset[str] = frozenset()
    text_wildcards: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    modified: frozenset[str] = frozenset()


def queries(of: Iterable[Claims | Record]) -> Queries:
    """What has to be read to record these claims, or to compare with these records."""
    found = tuple(of)
    claims = [item for item in found if isinstance(item, Claims)]
    records = [item for item in found if isinstance(item, Record)]
    return Queries(
        paths=frozenset(path for record in records for path in record.paths),
        wildcards=frozenset(
            [path for item in found for path in item.absent] + [path for claim in claims for path in claim.files]
        ),
        contents=frozenset(path for item in found for path in (*item.lines, *item.json_values)),
        text_wildcards=frozenset(path for item in found for path in item.absent_lines),
        packages=frozenset(
            [name for item in found for name in item.packages]
            + [name for claim in claims for name in (*claim.pinned_packages, *claim.held_packages)]
            + [name for record in records for name in record.pins]
        ),
        units=frozenset(name for item in found for name in item.units),
        groups=frozenset(name for item in found for name in item.group_members),
        modified=frozenset(path for item in found for unit in item.units.values() for path in unit.started_after),
    )


def run_bounded(commands: Sequence[Sequence[str]]) -> Sequence[CommandResult]:
    """Run programs in parallel, for at most TIMEOUT_SECONDS."""
    return run_all(commands, TIMEOUT_SECONDS)


def observe(requested: Queries, files: HostFiles, run: Runner = run_bounded) -> Observed:
    """Read the state, with at most one call each of rpm and systemctl, in parallel."""
    rpm = bool(requested.packages) and not uses_dpkg(files)
    names, units = sorted(requested.packages), sorted(requested.units)
    commands = []
    if rpm:
        commands.append([find_executable("rpm"), "-q", "--queryformat", RPM_FORMAT, "--", *names])
    if units:
        commands.append(_show_units(units))
    results = list(run(commands)) if commands else []
    if rpm:
        packages = parse_rpm(results.pop(0).text, names, read_version_locks(files))
    else:
        packages = read_dpkg(files, names) if names else {}
    matches = {wildcard: files.matching(wildcard) for wildcard in requested.wildcards | requested.text_wildcards}
    matching = [path for wildcards in matches.values() for path in wildcards]
    searched = [path for wildcard in requested.text_wildcards for path in matches[wildcard]]
    return Observed(
        paths={path: path_state(files, path) for path in {*requested.paths, *matching}},
        matches=matches,
        contents={path: files.read(path) for path in {*requested.contents, *searched}},
        packages=packages,
        units=_units(units, results[0], run) if units else {},
        groups=_groups(files.read("/etc/group") or "") if requested.groups else {},
        modified=modified(files, requested.modified),
    )


def modified(files: HostFiles, wildcards: Iterable[str]) -> dict[str, dict[str, float]]:
    """Times of modification of the existing files that match each wildcard."""
    times = {wildcard: {path: files.modified(path) for path in files.matching(wildcard)} for wildcard in wildcards}
    return {
        wildcard: {path: time for path, time in found.items() if time is not None} for wildcard, found in times.items()
    }


def path_state(files: HostFiles, path: str) -> PathState | None:
    """State of one path, without following links; None when it does not exist or cannot be read."""
    real = files.real(path)
    try:
        status = os.lstat(real)
        kind, content = "other", ""
        if stat.S_ISLNK(status.st_mode):
            kind, content = "link", os.readlink(real)
        elif stat.S_ISDIR(status.st_mode):
            kind = "directory"
        elif stat.S_ISREG(status.st_mode):
            kind, content = "file", _content(real, status)
    except OSError:
        return None
    return PathState(kind, f"{stat.S_IMODE(status.st_mode):04o}", status.st_uid, status.st_gid, content)


def _content(path: str, status: os.stat_result) -> str:
    if status.st_size > BIG_BYTES:
        return f"stamp:{status.st_size}:{status.st_mtime_ns}"
    return f"sha256:{hashlib.sha256(read_bytes(path)).hexdigest()}"


def _show_units(units: Sequence[str]) -> list[str]:
    return [find_executable("systemctl"), "show", f"--property={_PROPERTIES}", "--", *units]


def show_units(names: Sequence[str], run: Runner = run_bounded) -> dict[str, Unit]:
    """The existing units of these names."""
    return _units(names, run([_show_units(names)])[0], run)


def _units(names: Sequence[str], shown: CommandResult, run: Runner) -> dict[str, Unit]:
    """The units from `systemctl show`, which prints one block for each, in order."""
    blocks = [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in shown.text.strip("\n").split("\n\n")
    ]
    if len(blocks) == len(names) and all("LoadState" in block for block in blocks):
        return {
            name: Unit(
                name,
                block.get("UnitFileState", ""),
                block.get("ActiveState", ""),
                started_at(block.get(STARTED, ""), block.get("ActiveState", "")),
            )
            for name, block in zip(names, blocks)
            if block["LoadState"] != "not-found"
        }
    # Without a running systemd, as in a chroot, is-enabled works on the unit files alone.
    reported = run([[find_executable("systemctl"), "is-enabled", "--", name] for name in names])
    states = {name: result.text.strip() for name, result in zip(names, reported)}
    return {name: Unit(name, state, None) for name, state in states.items() if state not in ("", "not-found")}


def _groups(text: str) -> dict[str, tuple[str, ...]]:
    rows = [line.split(":") for line in text.splitlines()]
    return {row[0]: tuple(filter(None, row[3].split(","))) for row in rows if len(row) == 4}
