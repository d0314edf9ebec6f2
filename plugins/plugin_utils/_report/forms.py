# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host returned, held to the documentation of the module that it is from. Private to this collection.

A host may return anything, and the report is of all hosts: what one of them returns must neither end it nor take long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES, VERDICTS
from ansible_collections.gpu.fleet.plugins.modules import gpu_health, report_facts

Documented = Mapping[str, Any]

_TYPES: Mapping[str, Any] = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": Mapping}
_WORDS = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false", "list": "a list"}
# Lists and dictionaries are never null, but for those whose documentation has it; of other values only these.
_NEVER_NULL = frozenset(
    (
        *("pci_gpu_count", "nics.rdma", "topology.label"),
        *("instances.profile", "instances.placement_start", "instances.placement_size"),
        *("verdict", "remedy", "gpus.verdict", "gpus.remedy", "changes.time", "changes.verdict"),
        *("findings.row", "findings.verdict", "findings.remedy", "findings.message", "xids.code", "xids.count"),
        *("error_history.time", "error_history.kind", "error_history.count"),
    )
)
_CHOICES: Mapping[str, Sequence[str]] = {"verdict": VERDICTS, "remedy": tuple(REMEDIES)}
_MOST = {"gpus": 256, "topology": 256, "nics": 1024, "instances": 64, "processes": 1024}
_MOST_ELEMENTS = 10_000
_MOST_LINKS = 512
_MOST_VALUES = 200_000
_MOST_TEXT = 4 << 20
_LONGEST_TEXT, _LONGEST_VERSION, _LONGEST_LINK = 16_384, 64, 64
_LARGEST = 1 << 62
# A GPU has 8 slices of memory.
_LARGEST_SLICE = 64


class FormError(ValueError):
    """What is wrong, and where."""


class _Budget:
    """What one host may return at most; each part of it is within its own bounds."""

    def __init__(self) -> None:
        self.values, self.text = _MOST_VALUES, _MOST_TEXT

    def take(self, text: int = 0) -> None:
        self.values, self.text = self.values - 1, self.text - text
        if self.values < 0 or self.text < 0:
            raise FormError(f"there are more than {_MOST_VALUES} values or {_MOST_TEXT >> 20} MiB of text")


def facts_of(host: object) -> dict[str, Any]:
    """The facts of report_facts; raises FormError."""
    found: dict[str, Any] = _value("", host, _returned()[0]["host"], _Budget())
    return found


def health_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result of gpu_health without what Ansible adds to it; raises FormError."""
    found: dict[str, Any] = _value("", result, {"type": "dict", "contains": _returned()[1]}, _Budget())
    return found


@cache
def _returned() -> tuple[Documented, Documented]:
    return yaml.safe_load(report_facts.RETURN), yaml.safe_load(gpu_health.RETURN)


def _value(path: str, value: object, documented: Documented, budget: _Budget) -> Any:
    budget.take(len(value) if isinstance(value, str) else 0)
    kind = documented["type"]
    if value is None and not _never_null(path, documented):
        return None
    # In Python true is a number.
    if not isinstance(value, _TYPES[kind]) or isinstance(value, bool) is not (kind == "bool"):
        raise FormError(f"{path or 'it'} is {_shown(value)}, not {_WORDS.get(kind, 'a dictionary')}")
    if isinstance(value, Mapping):
        contains = documented.get("contains")
        return dict(_links(path, value, budget) if contains is None else _members(path, value, contains, budget))
    if isinstance(value, list):
        most = _MOST.get(_name(path), _MOST_ELEMENTS)
        if len(value) > most:
            raise FormError(f"{path} has {len(value)} elements, more than {most}")
        element = {**documented, "type": documented["elements"], "description": ""}
        return [_element(f"{path}[{place}]", item, element, budget) for place, item in enumerate(value)]
    wrong = _wrong(_name(path), value)
    if wrong:
        raise FormError(f"{path} is {_shown(value)}, {wrong}")
    return value


def _element(path: str, value: object, documented: Documented, budget: _Budget) -> Any:
    if value is None:
        raise FormError(f"{path} is null")
    return _value(path, value, documented, budget)


def _members(
    path: str, value: Mapping[Any, object], contains: Documented, budget: _Budget
) -> Iterator[tuple[str, Any]]:
    """What is documented; whatever else there is, Ansible's own keys among it, is left out."""
    for name, documented in contains.items():
        inner = f"{path}.{name}" if path else name
        if name not in value:
            raise FormError(f"{inner} is missing")
        yield name, _value(inner, value[name], documented, budget)


def _links(path: str, value: Mapping[Any, object], budget: _Budget) -> Iterator[tuple[str, str]]:
    """A dictionary whose names are not documented, which are those of devices: text by text."""
    if len(value) > _MOST_LINKS:
        raise FormError(f"{path} has {len(value)} elements, more than {_MOST_LINKS}")
    for name, text in value.items():
        for part in (name, text):
            budget.take()
            if not isinstance(part, str) or len(part) > _LONGEST_LINK or _is_no_unicode(part):
                raise FormError(f"{path} has {_shown(part)}, not text of up to {_LONGEST_LINK} characters")
        yield name, str(text)


def _never_null(path: str, documented: Documented) -> bool:
    if documented["type"] in ("list", "dict"):
        return "V(null)" not in str(documented.get("description"))
    names = "".join(part.partition("[")[0] + "." for part in path.split(".")).rstrip(".")
    return ".".join(names.split(".")[-2:]) in _NEVER_NULL


def _name(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0]


def _wrong(name: str, value: object) -> str:
    """What is wrong with a value of the right type, empty for nothing."""
    if isinstance(value, str):
        return _wrong_text(name, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if name.startswith("placement_") and not 0 <= value <= _LARGEST_SLICE:
            return f"not a slice of up to {_LARGEST_SLICE}"
        # NaN is not within them either.
        if not -_LARGEST <= value <= _LARGEST:
            return "which nothing can have"
    return ""


def _wrong_text(name: str, value: str) -> str:
    longest = _LONGEST_VERSION if name.endswith("version") else _LONGEST_TEXT
    if len(value) > longest:
        return f"which has {len(value)} characters, more than {longest}"
    if _is_no_unicode(value):
        return "which is not Unicode"
    if name in _CHOICES and value not in _CHOICES[name]:
        return f"not one of {', '.join(_CHOICES[name])}"
    return "not a time with its zone" if name == "time" and not _is_time(value) else ""


def _is_no_unicode(value: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in value)


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).utcoffset() is not None
    except ValueError:
        return False


def _shown(value: object) -> str:
    """A value of a host in a message: one short line without control characters."""
    if isinstance(value, str):
        return ascii(value[:40]) + ("..." if len(value) > 40 else "")
    if isinstance(value, (int, float)) and not (isinstance(value, int) and abs(value) > 1 << 80):
        return repr(value)
    return "null" if value is None else "a number" if isinstance(value, int) else f"a {type(value).__name__}"
