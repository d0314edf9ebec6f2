# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of a host that lies: an honest one with another value, name or number of elements at a place of it."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LEVELS = 300
_MISSING, _RENAMED, _REPEATED = "missing", "renamed", "repeated"


def _deep(levels: int) -> Any:
    value: Any = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"x": value}
    return value


LIES: dict[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "below zero": -1,
    "a fraction": 0.5,
    "more than 64 bits": 2**64,
    "400 digits": 10**400,
    "400 digits below zero": -(10**400),
    "nearly infinite": 1.7e308,
    "nearly zero": 5e-324,
    "infinite": math.inf,
    "no number": math.nan,
    "empty text": "",
    "text": "much",
    "a number in text": "10",
    "half a character": "580.\udc80",
    "control characters": "\x1b[2J\x00\n\r\u202e\u2028",
    "a template": "{{ lookup('pipe', 'id') }}",
    "long text": "x" * 100_000,
    "very long text": "y" * 5_000_000,
    "an empty list": [],
    "a list of null": [None],
    "a list of a number": [1],
    "a list of text": ["a", "a"],
    "a list of half a character": ["\udc80"],
    "nested lists": [[[["x"]]]],
    "a long list": [0] * 20_000,
    "an empty dictionary": {},
    "a dictionary": {"a": 1},
    "a dictionary of half a character": {"\udc80": "\udc80"},
    "a dictionary of numbers": {1: 2, None: 3},
    "deep": _deep(_LEVELS),
    _MISSING: None,
    _RENAMED: None,
    _REPEATED: None,
}
"""By name; the last three change what a value is in."""


@dataclass(frozen=True)
class Lie:
    """A document with a lie at a place."""

    place: tuple[Any, ...]
    kind: str
    document: Any

    @property
    def name(self) -> str:
        """For a message of a test."""
        return f"{'.'.join(map(str, self.place))}: {self.kind}"


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value can be replaced, of a list in its first and its last element."""
    yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*place, key))
    elif isinstance(value, list):
        for number in sorted({0, len(value) - 1} if value else ()):
            yield from places(value[number], (*place, number))


def lies(document: Any, number: int, seed: int = 1) -> list[Lie]:
    """So many different lies: each place at least once, as far as the number goes, and each kind equally often."""
    source = random.Random(seed)
    where = list(places(document))
    source.shuffle(where)
    kinds = list(LIES)
    pairs = [
        (place, kinds[(turn + index) % len(kinds)]) for turn in range(len(kinds)) for index, place in enumerate(where)
    ]
    found: list[Lie] = []
    for place, kind in pairs:
        if len(found) == number:
            break
        made = _with(document, place, kind)
        if made is not _MISSING:
            found.append(Lie(place, kind, made))
    assert len(found) == number, f"only {len(found)} lies"
    return found


def _with(document: Any, place: tuple[Any, ...], kind: str) -> Any:
    """The document with this lie; _MISSING where it has no such place."""
    if not place:
        return _MISSING if kind in (_MISSING, _RENAMED, _REPEATED) else LIES[kind]
    made = copy.copy(document)
    inside = made
    for key in place[:-1]:
        inside[key] = copy.copy(inside[key])
        inside = inside[key]
    last = place[-1]
    if kind == _REPEATED:
        if not isinstance(inside[last], list) or not inside[last]:
            return _MISSING
        inside[last] = inside[last] * 5000
    elif kind in (_MISSING, _RENAMED):
        value = inside.pop(last)
        if kind == _RENAMED and isinstance(inside, dict):
            inside[f"{last}\u202e"] = value
    else:
        inside[last] = LIES[kind]
    return made
