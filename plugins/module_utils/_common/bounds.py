# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Range-checked numbers in options. Private to this collection.

Ansible's own types accept nan, inf, non-ASCII digits and any magnitude: a timeout of nan never expires, an integer of
`1e999999999` exhausts memory, and one of `inf` ends in a traceback.
"""

from __future__ import annotations

import math
import re
from typing import Any, Collection

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_QUOTE = 60
_MOST_NAMES = 20


class Number(str):
    """A number type with a range, usable as a callable `type` in an argument spec.

    Its string value is the name of Ansible's own type, `int` or `float`, to match the documentation.
    """

    # With defaults, because copies are made from the string alone.
    def __new__(cls, name: str, lowest: float = -math.inf, highest: float = math.inf, unit: str = "") -> Number:
        """`name` is `int` or `float`; both bounds are inclusive."""
        self = super().__new__(cls, name)
        self.lowest, self.highest, self.unit = lowest, highest, unit
        # Ansible names a type in an error message by this attribute.
        self.__name__ = str(name)
        return self

    lowest: float
    highest: float
    unit: str
    __name__: str

    @property
    def description(self) -> str:
        """The accepted range, for error messages."""
        kind = "a whole number" if self == "int" else "a number"
        return f"{kind}{self.unit and ' of ' + self.unit} from {_plain(self.lowest)} to {_plain(self.highest)}"

    def __call__(self, value: Any) -> Any:
        """Convert `value`, a number or its ASCII spelling; raises TypeError, as Ansible expects of a type."""
        number = _read(value)
        # False for nan, too.
        if number is None or not self.lowest <= number <= self.highest or (self == "int" and number != int(number)):
            raise TypeError(f"it has to be {self.description}, not {shown(value)}")
        return int(number) if self == "int" else number


def shown(value: object) -> str:
    """A value as quoted in an error message, truncated."""
    if isinstance(value, (str, bytes)):
        value = value[: _LONGEST_QUOTE + 1]
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to format integers of thousands of digits.
        return "a number of thousands of digits"
    except RecursionError:
        return "a value nested thousands of levels deep"
    return _clip(text)


def listed(names: Collection[object], most: int = _MOST_NAMES) -> str:
    """Names as listed in an error message, without quotes: each, and their number, truncated; "none" for none.

    Long names, as UUIDs, are quickly too many: `most` is then lower.
    """
    more = len(names) - most
    some = [name for name, _place in zip(names, range(most))]
    quoted = [_clip(name) if isinstance(name, str) else shown(name) for name in some]
    return ", ".join(quoted + ([f"{more} more"] if more > 0 else [])) or "none"


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST_QUOTE else text[:_LONGEST_QUOTE] + "…"


def _read(value: object) -> float | None:
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if isinstance(value, str) and _DECIMAL.fullmatch(value.strip(" ")):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


TIMEOUT = Number("float", 0.1, 86_400, "seconds")
WHOLE_TIMEOUT = Number("int", 1, 86_400, "seconds")
"""Timeout of programs."""

WAIT = Number("float", 0, 86_400, "seconds")
WHOLE_WAIT = Number("int", 0, 86_400, "seconds")
"""Time to wait for other runs; 0 does not wait."""

COUNT = Number("int", 0, 1_000_000)
"""GPUs, events, and numbers of events."""

HOURS = Number("float", 0, 1_000_000, "hours")

RETRIES = Number("int", 0, 10)
"""Each pause is twice as long as the one before: ten of them add up to more than eight minutes."""

CLOCK = Number("int", 1, 100_000, "MHz")
"""Wider than any GPU accepts; the GPU's own range is narrower."""
