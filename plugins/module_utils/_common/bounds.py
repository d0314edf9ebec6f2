# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers in options, and the ranges that they are checked against. Private to this collection.

Ansible's own types take nan, inf, digits of other scripts and any magnitude: a timeout of nan never ends, an integer
of `1e999999999` takes all memory, and one of `inf` ends in a traceback.
"""

from __future__ import annotations

import math
import re
from typing import Any

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_QUOTE = 60


class Number(str):
    """The type of a number in a range: for an argument spec, which takes anything that can be called, or to call.

    As a text it is the name of Ansible's own type, `int` or `float`, as the documentation has it.
    """

    # With defaults, because copies are made from the text alone.
    def __new__(cls, name: str, lowest: float = -math.inf, highest: float = math.inf, unit: str = "") -> Number:
        """`name` is `int` or `float`; both bounds belong to the range."""
        self = super().__new__(cls, name)
        self.lowest, self.highest, self.unit = lowest, highest, unit
        # How Ansible names a type in an error message.
        self.__name__ = str(name)
        return self

    lowest: float
    highest: float
    unit: str
    __name__: str

    @property
    def description(self) -> str:
        """What is accepted, for error messages."""
        kind = "a whole number" if self == "int" else "a number"
        return f"{kind}{self.unit and ' of ' + self.unit} from {_plain(self.lowest)} to {_plain(self.highest)}"

    def __call__(self, value: Any) -> Any:
        """The number that `value` is or spells, in ASCII; raises TypeError, as Ansible expects of a type."""
        number = _read(value)
        # Comparisons with nan are false.
        if number is None or not self.lowest <= number <= self.highest or (self == "int" and number != int(number)):
            raise TypeError(f"it has to be {self.description}, not {shown(value)}")
        return int(number) if self == "int" else number


def shown(value: object) -> str:
    """A value as an error message quotes it: of anything long the beginning."""
    if isinstance(value, (str, bytes)):
        value = value[: _LONGEST_QUOTE + 1]
    try:
        text = repr(value)
    except ValueError:
        # Python does not spell integers of thousands of digits.
        return "a number of thousands of digits"
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
"""How long programs may take."""

WAIT = Number("float", 0, 86_400, "seconds")
WHOLE_WAIT = Number("int", 0, 86_400, "seconds")
"""How long to wait for others; 0 does not wait."""

RETRIES = Number("int", 0, 10)
"""Each pause is twice as long as the one before: ten of them are more than eight minutes."""

WATTS = Number("float", 0, 100_000, "watts")
PERCENT = Number("float", 0, 1_000, "percent")
CLOCK = Number("int", 1, 100_000, "MHz")
"""Beyond what any GPU takes; the ranges of a GPU itself are narrower."""
