# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turn nvidia-smi's texts into values with a unit, or into the reason why there is none. Private to this collection."""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from typing import Any, Callable, Mapping

Kind = Callable[[str], Any]
"""Converts a text that is known to be a value; raises ValueError when it is none."""

FAILED = "failed"
BROKEN = "broken_xml"
"""The reason of readings that were lost with a damaged part of the document."""
DAMAGED = "[damaged]"
"""What stands in place of such a part."""
# Why a reading has no value. Spellings seen in drivers 340 to 615; XML has them bare, CSV in brackets.
REASONS: Mapping[str, str] = {
    "": "empty",
    "n/a": "not_available",
    "not available": "not_available",
    "no data": "not_available",
    "not supported": "not_supported",
    "function not found": "not_supported",
    "not found": "not_found",
    "requested functionality has been deprecated": "deprecated",
    "the requested functionality has been deprecated": "deprecated",
    "deprecated": "deprecated",
    "insufficient permissions": "denied",
    "the operating system has blocked the request": "denied",
    "gpu access blocked by the operating system": "denied",
    "gpu is lost": "lost",
    "gpu requires reset": "reset_required",
    "gpu requires restart": "reset_required",
    "corrupted inforom": "inforom_corrupted",
    "inforom is corrupted": "inforom_corrupted",
    "err!": FAILED,
    DAMAGED.strip("[]"): BROKEN,
    # The rest of what nvmlErrorString() returns; the bindings for Python spell some of it differently.
    **dict.fromkeys(
        (
            "uninitialized",
            "invalid argument",
            "already initialized",
            "insufficient size",
            "insufficient external power",
            "driver not loaded",
            "timeout",
            "interrupt request issue",
            "nvml shared library not found",
            "driver/library version mismatch",
            "rm has detected an nvml/rm version mismatch",
            "in use by another client",
            "the gpu is currently in use",
            "an operation cannot be performed because the gpu is currently in use",
            "insufficient memory",
            "vgpu ecc not supported",
            "the requested vgpu operation is not available on target device, because ecc is enabled",
            "the requested vgpu operation is not available on target device, becasue ecc is enabled",
            "insufficient resources",
            "ran out of critical resources, other than memory",
            "frequency not supported",
            "the requested frequency is not supported",
            "argument version mismatch",
            "the provided version is invalid/unsupported",
            "system is not in ready state",
            "not ready",
            "gpu not found",
            "no gpus were found",
            "invalid state",
            "reset type not supported",
            "unknown error",
        ),
        FAILED,
    ),
}
ABSENT = "absent"
UNREADABLE = "unreadable"
VAGUE = frozenset((UNREADABLE, FAILED))
"""Reasons that do not say all that the text says, which is therefore kept."""

_NUMBER = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(.*)", re.DOTALL)
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9A-Fa-f]+)")
_BUS_ID = re.compile(r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
# `GPU is lost.  Reboot the system to recover this GPU`, `NVML_ERROR_TIMEOUT`, `ERROR: ...`.
_BEGINNINGS = (
    ("gpu is lost", "lost"),
    ("gpu requires reset", "reset_required"),
    ("nvml_error_", FAILED),
    ("error: ", FAILED),
    # Since driver 610 `Deprecated, see "KMD version" instead` stands in old places.
    ("deprecated, see ", "deprecated"),
    ("deprecated; ", "deprecated"),
)
# Since driver 610 old places may keep their value: `610.43.02 [Deprecated; ... Use KMD Version instead]`.
_DEPRECATION = re.compile(r"\s+\[Deprecated[;,][^\]]*\]", re.IGNORECASE)
_TRUE = frozenset(("1", "yes", "true", "active", "on", "enabled", "supported"))
_FALSE = frozenset(("0", "no", "false", "not active", "off", "disabled"))


# Eight GPUs of one host say mostly the same.
@lru_cache(maxsize=4096)
def interpret(text: str | None, kind: Kind) -> tuple[Any, str | None]:
    """Give `(value, None)`, or `(None, reason)` where the text is no value: unknown is never zero.

    Reasons: those of REASONS, `absent` (no such element) and `unreadable` (a text that does not fit the kind).
    """
    if text is None:
        return None, ABSENT
    text = _DEPRECATION.sub("", text.strip())
    reason = _reason(text)
    if reason is not None:
        return None, reason
    try:
        return kind(text), None
    except (ValueError, OverflowError):
        # Number fields say None where others say N/A; a field of words has it as a word of its own.
        return None, "not_available" if text == "None" else UNREADABLE


def _reason(text: str) -> str | None:
    """Why a text is no value, whatever kind of reading it stands for; None where it may be one."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    words = " ".join(bare.lower().split())
    reason = REASONS.get(words.rstrip("."))
    return reason or next((reason for beginning, reason in _BEGINNINGS if words.startswith(beginning)), None)


def never(text: str) -> None:
    """No text is a value here: an element that should have children instead."""
    raise ValueError(text)


def plain(text: str) -> str:
    """The text as it stands."""
    return text


def enum(text: str) -> str:
    """A word of a fixed set, lower-case and joined by underscores: `Exclusive_Process`, `Not Active`."""
    return re.sub(r"[^a-z0-9+.]+", "_", text.lower()).strip("_")


def flag(text: str) -> bool:
    """Yes or no, in each spelling that nvidia-smi has for it."""
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def words(text: str) -> tuple[str, ...]:
    """Blank-separated words; `None` is the empty list."""
    return () if text == "None" else tuple(text.split())


def hexadecimal(text: str) -> str:
    """A hexadecimal number as lower-case text with its prefix."""
    match = _HEXADECIMAL.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return "0x" + match[1].lower()


def bus_id(text: str) -> str:
    """A PCI bus id as nvidia-smi has it since driver 384, in lower case: `00000000:0d:00.0`.

    Takes the four-digit domain of older drivers and of the kernel, and no domain at all.
    """
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return f"{match[1] or '':0>8}:{match[2]}".lower()


def quantity(units: Mapping[str, float], whole: bool = True) -> Kind:
    """A number with one of `units`, each with its factor to the unit of the reading."""

    def convert(text: str) -> float | int:
        match = _NUMBER.fullmatch(text)
        if match is None or match[2] not in units:
            raise ValueError(text)
        if whole and units[match[2]] == 1:
            return int(match[1])
        value = float(match[1]) * units[match[2]]
        if not isfinite(value):
            raise ValueError(text)
        return round(value) if whole else value

    return convert


# CSV with `nounits` leaves the unit out, so each kind takes a bare number as well.
count = quantity({"": 1, "bank(s)": 1, "x": 1})
mib = quantity({"": 1, "MiB": 1, "MB": 1, "GiB": 1024, "KiB": 1 / 1024})
watt = quantity({"": 1, "W": 1, "mW": 0.001}, whole=False)
mhz = quantity({"": 1, "MHz": 1})
celsius = quantity({"": 1, "C": 1})
percent = quantity({"": 1, "%": 1}, whole=False)
seconds = quantity({"": 1, "s": 1, "seconds": 1})
milliseconds = quantity({"": 1, "ms": 1})
microseconds = quantity({"": 1, "us": 1, "ms": 1000})
kb_per_second = quantity({"": 1, "KB/s": 1, "MB/s": 1000})
millivolt = quantity({"": 1, "mV": 1, "V": 1000}, whole=False)
gb_per_second = quantity({"": 1, "GB/s": 1, "MB/s": 0.001}, whole=False)
