# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Convert the strings of nvidia-smi to values with a unit, or to the reason for none. Private to this collection."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Callable, Mapping

Kind = Callable[[str], Any]
"""Converts a text; raises ValueError when it is not a value of this kind."""

FAILED = "failed"
BROKEN = "broken_xml"
"""The reason for readings that were lost with a damaged part of the document."""
DAMAGED = "[damaged]"
"""The text in place of such a part."""
# Why a reading has no value. Spellings of drivers 340 to 615; bare in XML, in brackets in CSV.
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
    # Other results of nvmlErrorString(); the Python bindings spell some of them differently.
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
MISSING = frozenset((ABSENT, "not_available", "not_supported", "deprecated"))
"""Reasons of readings that this GPU does not have with this driver, as opposed to those that could not be read."""
VAGUE = frozenset((UNREADABLE, FAILED))
"""Reasons that do not convey the whole text, which is therefore kept."""

# Converting thousands of digits is slow, or an error.
_NUMBER = re.compile(r"([+-]?[0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(.*)", re.DOTALL)
_HEXADECIMAL = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,32})")
_BUS_ID = re.compile(r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
# `GPU is lost.  Reboot the system to recover this GPU`, `NVML_ERROR_TIMEOUT`, `ERROR: ...`.
_BEGINNINGS = (
    ("gpu is lost", "lost"),
    ("gpu requires reset", "reset_required"),
    ("nvml_error_", FAILED),
    ("error: ", FAILED),
    # Since driver 610 deprecated fields have `Deprecated, see "KMD version" instead`.
    ("deprecated, see ", "deprecated"),
    ("deprecated; ", "deprecated"),
)
# Since driver 610 deprecated fields may keep their value: `610.43.02 [Deprecated; ... Use KMD Version instead]`.
_DEPRECATION = re.compile(r"(?<!\s)\s+\[Deprecated[;,][^\]]*\]", re.IGNORECASE)
_TRUE = frozenset(("1", "yes", "true", "active", "on", "enabled", "supported"))
_FALSE = frozenset(("0", "no", "false", "not active", "off", "disabled"))


# The GPUs of a host have mostly the same strings.
@lru_cache(maxsize=4096)
def interpret(text: str | None, kind: Kind) -> tuple[Any, str | None]:
    """Give `(value, None)`, or `(None, reason)` where the text is not a value: unknown is never zero.

    Reasons: REASONS, `absent` (no such element) and `unreadable` (a text that does not fit the kind, or a
    number outside of its bounds).
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
        # Number fields have None for N/A; in a field of words it is a word of its own.
        return None, "not_available" if text == "None" else UNREADABLE


def _reason(text: str) -> str | None:
    """Why a text is not a value of any kind of reading; None where it may be one."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    words = " ".join(bare.lower().split())
    reason = REASONS.get(words.rstrip("."))
    return reason or next((reason for beginning, reason in _BEGINNINGS if words.startswith(beginning)), None)


def never(text: str) -> None:
    """The kind of an element that should have children instead: no text is a value."""
    raise ValueError(text)


def plain(text: str) -> str:
    """The text unchanged."""
    return text


def enum(text: str) -> str:
    """A word of a fixed set, in lower case with underscores: `Exclusive_Process`, `Not Active`."""
    return re.sub(r"[^a-z0-9+.]+", "_", text.lower()).strip("_")


def flag(text: str) -> bool:
    """Yes or no, in any of nvidia-smi's spellings."""
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
    """A PCI bus id as nvidia-smi prints it since driver 384, in lower case: `00000000:0d:00.0`.

    Accepts the four-digit domain of older drivers and of the kernel, and a missing domain.
    """
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return f"{match[1] or '':0>8}:{match[2]}".lower()


def quantity(units: Mapping[str, float], lowest: float, highest: float, whole: bool = True) -> Kind:
    """A number with one of `units`, which map to the factor to the reading's unit; `lowest` and `highest` are in it."""

    def convert(text: str) -> float | int:
        match = _NUMBER.fullmatch(text)
        if match is None or match[2] not in units:
            raise ValueError(text)
        factor = units[match[2]]
        # Adding zero makes zero of minus zero.
        value = int(match[1]) if whole and factor == 1 else float(match[1]) * factor + 0.0
        # 5 KiB is not 0 MiB.
        if not lowest <= value <= highest or (whole and 0 < abs(value) < 1):
            raise ValueError(text)
        return round(value) if whole else value

    return convert


# Wider than any GPU of the next ten years needs. NVML's number for unknown, which has all bits set, is out of bounds.
# CSV with `nounits` omits the unit, so each kind accepts a bare number as well.
_CENTURY = 36_525 * 86_400
# JSON's readers keep whole numbers up to it.
count = quantity({"": 1}, 0, 2**53)
# Numbers of 32 bits: process ids, ids given by a driver, small counters.
number = quantity({"": 1, "bank(s)": 1}, 0, 2**32 - 2)
# Indexes, ids within a GPU or a board, slices, engines.
small = quantity({"": 1}, 0, 2**16 - 2)
# The generation or the lanes of a PCI link.
link = quantity({"": 1, "x": 1}, 0, 64)
mib = quantity({"": 1, "MiB": 1, "MB": 1, "GiB": 1024, "KiB": 1 / 1024}, 0, 2**30)
gib = quantity({"": 1}, 0, 2**20, whole=False)
watt = quantity({"": 1, "W": 1, "mW": 0.001}, 0, 100_000, whole=False)
mhz = quantity({"": 1, "MHz": 1}, 0, 100_000)
# T.Limit readings are below zero.
celsius = quantity({"": 1, "C": 1}, -273, 1000)
# Fans may turn faster than their rated speed.
percent = quantity({"": 1, "%": 1}, 0, 1000, whole=False)
seconds = quantity({"": 1, "s": 1, "seconds": 1}, 0, _CENTURY)
milliseconds = quantity({"": 1, "ms": 1}, 0, _CENTURY * 10**3)
microseconds = quantity({"": 1, "us": 1, "ms": 1000}, 0, _CENTURY * 10**6)
kb_per_second = quantity({"": 1, "KB/s": 1, "MB/s": 1000}, 0, 10**11)
millivolt = quantity({"": 1, "mV": 1, "V": 1000}, 0, 100_000, whole=False)
gb_per_second = quantity({"": 1, "GB/s": 1, "MB/s": 0.001}, 0, 100_000, whole=False)
