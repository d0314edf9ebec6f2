# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a record with the host. Pure. Private to this collection."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Iterable

from .._common.json_text import parse_json
from .._common.masking import masked
from .observe import Observed
from .record import Claims, PathState, Pin, Record, UnitClaim
from .start import Unit, other_start, stale_start

# In these states systemd starts a unit at boot or as a dependency: there is nothing to enable.
_ENABLED = ("enabled", "static", "alias", "indirect", "generated")


@dataclass(frozen=True)
class Drift:
    """One difference from the record.

    `kind` is one of file, link, directory, absent, line, json, package, version, hold, unit, start, member, secret.
    """

    kind: str
    name: str
    message: str


def drift(record: Record, observed: Observed) -> tuple[Drift, ...]:
    """All differences from the record, in its order; empty when the host is as the role left it."""
    return (
        *(item for path, state in record.paths.items() for item in _path(path, state, observed.paths.get(path))),
        *_absent(record, observed),
        *(item for path, lines in record.lines.items() for item in _lines(path, lines, observed.contents.get(path))),
        *_absent_lines(record, observed),
        *(
            item
            for path, value in record.json_values.items()
            for item in _json(path, value, observed.contents.get(path))
        ),
        *(item for name in record.packages for item in _package(name, observed)),
        *(item for name, pin in record.pins.items() for item in _pin(name, pin, observed)),
        *(item for name, claim in record.units.items() for item in _unit(name, claim, observed.units.get(name))),
        *_starts(record, observed),
        *_members(record, observed),
    )


def record_of(claims: Claims, observed: Observed, secrets: str = "") -> tuple[Record, tuple[Drift, ...]]:
    """The record of the claims with this digest of their secrets, and each claim that does not hold."""
    missing = [
        Drift("file", pattern, f"{pattern} is missing") for pattern in claims.files if not observed.matches[pattern]
    ]
    matching = dict.fromkeys(path for pattern in claims.files for path in observed.matches[pattern])
    states = {path: observed.paths[path] for path in matching}
    missing += [Drift("file", path, f"{path} cannot be read") for path, state in states.items() if state is None]
    pins: dict[str, Pin] = {}
    for name in dict.fromkeys((*claims.pinned_packages, *claims.held_packages)):
        package = observed.packages[name]
        missing += _package(name, observed)
        if package.version is not None:
            pins[name] = Pin(package.version, package.held)
            if name in claims.held_packages and not package.held:
                missing.append(Drift("hold", name, f"{name} is not held at its version {package.version}"))
    record = Record(
        inputs=claims.inputs,
        paths={path: state for path, state in states.items() if state is not None},
        absent=claims.absent,
        lines=claims.lines,
        absent_lines=claims.absent_lines,
        json_values=masked(claims.json_values),
        packages=claims.packages,
        pins=pins,
        units={name: _with_start(claim, observed.units.get(name)) for name, claim in claims.units.items()},
        group_members=claims.group_members,
        data=masked(claims.data),
        secrets=secrets,
    )
    # A start that is not known is recorded as such; it differs from any that is found later.
    asserted = replace(record, units={name: replace(unit, same_start=False) for name, unit in record.units.items()})
    return record, tuple(dict.fromkeys((*missing, *drift(asserted, observed))))


def _with_start(claim: UnitClaim, unit: Unit | None) -> UnitClaim:
    return replace(claim, started=unit.started) if claim.same_start and unit is not None else claim


def _path(path: str, recorded: PathState, found: PathState | None) -> Iterable[Drift]:
    kind = recorded.kind
    if found is None:
        yield Drift(kind, path, f"{path} is missing")
    elif found.kind != kind:
        yield Drift(kind, path, f"{path} is a {found.kind}, not a {kind}")
    elif kind == "link":
        if found.content != recorded.content:
            yield Drift(kind, path, f"{path} leads to {found.content}, not to {recorded.content}")
    else:
        if found.content != recorded.content:
            yield Drift(kind, path, f"{path} was changed")
        if found.mode != recorded.mode:
            yield Drift(kind, path, f"{path} has mode {found.mode}, not {recorded.mode}")
        if (found.uid, found.gid) != (recorded.uid, recorded.gid):
            owners = f"{found.uid}:{found.gid}, not to {recorded.uid}:{recorded.gid}"
            yield Drift(kind, path, f"{path} belongs to {owners}")


def _absent(record: Record, observed: Observed) -> Iterable[Drift]:
    for wildcard in record.absent:
        for path in observed.matches.get(wildcard, ()):
            of_wildcard = "" if path == wildcard else f" ({wildcard})"
            yield Drift("absent", path, f"{path} exists and must not{of_wildcard}")


def _lines(path: str, lines: Iterable[str], text: str | None) -> Iterable[Drift]:
    there = {line.strip() for line in (text or "").splitlines()}
    for line in lines:
        if line.strip() not in there:
            yield Drift("line", path, f"{path} lacks the line: {line.strip()}")


def _absent_lines(record: Record, observed: Observed) -> Iterable[Drift]:
    for wildcard, patterns in record.absent_lines.items():
        for path in observed.matches.get(wildcard, ()):
            if path in record.paths:
                continue
            for line in (observed.contents.get(path) or "").splitlines():
                if any(re.search(pattern, line) for pattern in patterns):
                    yield Drift("line", path, f"{path} has the line, but must not: {line.strip()}")


def _json(path: str, desired: Any, text: str | None) -> Iterable[Drift]:
    try:
        found = parse_json(text or "{}")
    except ValueError:
        yield Drift("json", path, f"{path} is not JSON")
        return
    # Recorded values have no passwords.
    for place, expected, actual in _differences("", masked(desired), masked(found)):
        yield Drift("json", path, f"{path} has {actual} at {place or 'its top'}, not {expected}")


def _differences(place: str, desired: Any, found: Any) -> Iterable[tuple[str, str, str]]:
    """Where `found` differs from `desired`; keys that only `found` has are unmanaged and ignored."""
    if isinstance(desired, dict) and isinstance(found, dict):
        for key, value in desired.items():
            below = f"{place}.{key}" if place else str(key)
            if key not in found:
                yield below, json.dumps(value), "nothing"
            else:
                yield from _differences(below, value, found[key])
    # In Python 1 == True, in JSON they differ.
    elif json.dumps(desired, sort_keys=True) != json.dumps(found, sort_keys=True):
        yield place, json.dumps(desired), json.dumps(found)


def _package(name: str, observed: Observed) -> Iterable[Drift]:
    package = observed.packages.get(name)
    if package is None or package.version is None:
        status = f", but {package.status}" if package is not None and package.status else ""
        yield Drift("package", name, f"{name} is not installed{status}")


def _pin(name: str, pin: Pin, observed: Observed) -> Iterable[Drift]:
    yield from _package(name, observed)
    package = observed.packages.get(name)
    if package is None or package.version is None:
        return
    if package.version != pin.version:
        yield Drift("version", name, f"{name} has version {package.version}, not {pin.version}")
    if pin.held and not package.held:
        yield Drift("hold", name, f"{name} is no longer held at its version")


def _unit(name: str, claim: UnitClaim, unit: Unit | None) -> Iterable[Drift]:
    if unit is None:
        # A unit that does not exist is neither enabled nor active.
        if claim.enabled or claim.active:
            yield Drift("unit", name, f"{name} does not exist")
        return
    if claim.enabled is not None and (unit.enabled in _ENABLED) != claim.enabled and unit.enabled != "static":
        yield Drift("unit", name, f"{name} is {unit.enabled or 'not enabled'}, not {_enabled(claim.enabled)}")
    if claim.active is not None and (unit.active == "active") != claim.active:
        state = unit.active or "not known to be active, as systemd does not run here"
        yield Drift("unit", name, f"{name} is {state}, not {'active' if claim.active else 'inactive'}")


def _starts(record: Record, observed: Observed) -> Iterable[Drift]:
    for name, claim in record.units.items():
        unit = observed.units.get(name)
        if unit is not None:
            message = stale_start(unit, claim.started_after, observed.modified)
            if message:
                yield Drift("start", name, message)
        if claim.same_start:
            message = other_start(name, claim.started, None if unit is None else unit.started)
            if message:
                yield Drift("start", name, message)


def _enabled(claimed: bool) -> str:
    return "enabled" if claimed else "disabled"


def _members(record: Record, observed: Observed) -> Iterable[Drift]:
    for group, members in record.group_members.items():
        for member in members:
            if member not in observed.groups.get(group, ()):
                yield Drift("member", group, f"{member} is not in the group {group}")
