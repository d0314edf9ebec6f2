# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge options into a JSON file that is shared with other tools. Pure. Private to this collection."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Mapping

from .._common.json_text import parse_json
from .._common.masking import masked

Options = Dict[str, Any]
_PATHS = ("data-root", "exec-root")
_REPAIR = "repair or remove it, dockerd cannot start with it either; then run again"


class OptionsError(Exception):
    """The file's content cannot be used; the message is for the user."""


@dataclass(frozen=True)
class Conflict:
    """The dotted path of an option with an unmanaged value that differs from ours."""

    place: str
    theirs: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.place} is {json.dumps(masked(self.theirs))}, but {json.dumps(masked(self.ours))} is requested"


def path_objection(options: Mapping[str, Any]) -> str:
    """What is wrong with directories of the daemon, empty for nothing.

    dockerd takes a relative one from the directory where it runs.
    """
    wrong = [name for name in _PATHS if name in options and not str(options[name]).startswith("/")]
    return f"{wrong[0]} is {json.dumps(options[wrong[0]])[:60]}; it has to be an absolute path" if wrong else ""


def parse(text: str) -> Options:
    """Parse the content of a file; like dockerd, take an empty one for no options."""
    if not text.strip():
        return {}
    try:
        options = parse_json(text)
    except ValueError as error:
        raise OptionsError(f"is not valid JSON ({error}); {_REPAIR}") from error
    if not isinstance(options, dict):
        raise OptionsError(f"is not a JSON object; {_REPAIR}")
    return options


def render(options: Mapping[str, Any]) -> str:
    """The content of a file; the order of keys is kept, so that a diff shows only what has changed."""
    return json.dumps(options, indent=4, ensure_ascii=False) + "\n"


def merge(found: Mapping[str, Any], desired: Mapping[str, Any], earlier: Mapping[str, Any]) -> Options:
    """`found` with the options `desired`, and without options of `earlier` that are no longer declared.

    Objects are merged recursively; lists and other values are replaced. Options of `earlier` are removed only where
    they still have the value that was written then; of URLs user and password may be masked in `earlier`.
    """
    merged = _without(found, earlier, desired)
    for key, value in desired.items():
        present = merged.get(key)
        if isinstance(value, Mapping):
            merged[key] = merge(present if isinstance(present, Mapping) else {}, value, {})
        else:
            merged[key] = value
    return merged


def _without(found: Mapping[str, Any], earlier: Mapping[str, Any], desired: Mapping[str, Any]) -> Options:
    kept = dict(found)
    for key, value in earlier.items():
        if key not in found:
            continue
        if isinstance(value, Mapping) and isinstance(found[key], Mapping):
            still = desired.get(key)
            rest = _without(found[key], value, still if isinstance(still, Mapping) else {})
            # An object that we added is removed as a whole if nothing else was added to it.
            if rest or key in desired:
                kept[key] = rest
            else:
                del kept[key]
        elif key not in desired and same(masked(found[key]), masked(value)):
            del kept[key]
    return kept


def conflicts(found: Mapping[str, Any], desired: Mapping[str, Any], earlier: Mapping[str, Any]) -> tuple[Conflict, ...]:
    """Where `found` has an unmanaged value other than that in `desired`; a value equal to `earlier` is our own."""
    return tuple(_conflicts("", found, desired, earlier))


def _conflicts(
    above: str, found: Mapping[str, Any], desired: Mapping[str, Any], earlier: Mapping[str, Any]
) -> Iterable[Conflict]:
    for key, value in desired.items():
        if key not in found:
            continue
        place, theirs, own = f"{above}{key}", found[key], earlier.get(key)
        if isinstance(value, Mapping) and isinstance(theirs, Mapping):
            yield from _conflicts(f"{place}.", theirs, value, own if isinstance(own, Mapping) else {})
        elif not same(theirs, value) and not (key in earlier and same(masked(theirs), masked(own))):
            yield Conflict(place, theirs, value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON, where true differs from 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
