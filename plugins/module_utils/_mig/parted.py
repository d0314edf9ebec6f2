# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse mig-parted's configuration document, as strictly as mig-parted does. Private to this collection.

The rules are those of `api/spec/v1/spec.go` and `pkg/types` in NVIDIA/mig-parted 0.15.0: unknown fields are refused,
and the last of several entries for one GPU takes precedence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .._common.errors import ChangeError
from .request import Item, parse_layout

VERSION = "v1"
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[0-9]{1,10}")


@dataclass(frozen=True)
class DeviceFilter:
    """PCI ids of a GPU model, and of its board where given: each is device id, then vendor id, 16 bits each.

    `device` is None for a string without ids: like mig-parted, accept it and match nothing.
    """

    text: str
    device: int | None
    subsystem: int | None


@dataclass(frozen=True)
class PartedEntry:
    """One entry of a configuration, at `where`. `filters` empty means any model, `indexes` None means all GPUs."""

    filters: tuple[DeviceFilter, ...]
    indexes: tuple[int, ...] | None
    enabled: bool
    items: tuple[Item, ...]
    where: str = ""

    def matches(self, index: int, device: int | None, subsystem: int | None) -> bool:
        """Whether the entry applies to a GPU with this index and these PCI ids."""
        if self.indexes is not None and index not in self.indexes:
            return False
        return not self.filters or any(
            item.device is not None and item.device == device and item.subsystem in (None, subsystem)
            for item in self.filters
        )


def parse_config(document: object, selected: str | None) -> tuple[PartedEntry, ...]:
    """The entries of the configuration `selected`, optional where there is only one. Raises ChangeError."""
    fields = _mapping(document, "the document")
    _refuse_unknown(fields, ("version", "mig-configs"), "the document")
    if "version" not in fields:
        raise ChangeError("mig-parted document: the field 'version' is missing")
    if fields["version"] != VERSION:
        raise ChangeError(f"mig-parted document: version {fields['version']!r} is unknown; {VERSION!r} is supported")
    configs = _mapping(fields.get("mig-configs", {}), "mig-configs")
    if "mig-configs" in fields and not configs:
        raise ChangeError("mig-parted document: mig-configs has no entry")
    # Like mig-parted, check all of them: an error in one makes the document invalid.
    entries = {name: _parse_entries(name, entries) for name, entries in configs.items()}
    names = ", ".join(map(str, entries)) or "none"
    if selected is None:
        if len(entries) != 1:
            raise ChangeError(f"mig-parted document: select a configuration with the option selected; it has {names}")
        return next(iter(entries.values()))
    if selected not in entries:
        raise ChangeError(f"mig-parted document: it has no configuration {selected!r}; it has {names}")
    return entries[selected]


def _parse_entries(name: object, value: object) -> tuple[PartedEntry, ...]:
    entries = _sequence(value)
    if not entries:
        raise ChangeError(f"mig-parted document: {name} is to be a list of at least one entry")
    return tuple(_parse_entry(f"{name}[{place}]", entry) for place, entry in enumerate(entries))


def _parse_entry(where: str, entry: object) -> PartedEntry:
    fields = _mapping(entry, where)
    _refuse_unknown(fields, ("device-filter", "devices", "mig-enabled", "mig-devices"), where)
    for required in ("devices", "mig-enabled"):
        if required not in fields:
            raise ChangeError(f"mig-parted document: {where}: the field {required!r} is missing")
    enabled = fields["mig-enabled"]
    if not isinstance(enabled, bool):
        raise ChangeError(f"mig-parted document: {where}: mig-enabled is true or false, not {enabled!r}")
    devices = fields.get("mig-devices")
    if enabled and devices is None:
        raise ChangeError(f"mig-parted document: {where}: the field 'mig-devices' is missing while mig-enabled is true")
    if not enabled and devices:
        raise ChangeError(f"mig-parted document: {where}: mig-devices while mig-enabled is false")
    return PartedEntry(
        filters=_parse_filters(where, fields.get("device-filter")),
        indexes=_parse_indexes(where, fields["devices"]),
        enabled=enabled,
        items=_parse_devices(where, _mapping(devices or {}, f"{where}: mig-devices")),
        where=where,
    )


def _parse_devices(where: str, devices: Mapping[object, object]) -> tuple[Item, ...]:
    for count in devices.values():
        if isinstance(count, bool) or not isinstance(count, int):
            raise ChangeError(f"mig-parted document: {where}: counts in mig-devices are whole numbers, not {count!r}")
    if any(":" in str(name) for name in devices):
        raise ChangeError(f"mig-parted document: {where}: mig-devices names profiles, without a start after a colon")
    try:
        items = parse_layout(devices)
    except ChangeError as error:
        raise ChangeError(f"mig-parted document: {where}: {error}") from error
    if any(item.name.compute == 0 for item in items):
        raise ChangeError(f"mig-parted document: {where}: mig-parted has no names that begin with 0c")
    if devices and not items:
        raise ChangeError(f"mig-parted document: {where}: all counts in mig-devices are 0")
    return items


def _parse_indexes(where: str, value: object) -> tuple[int, ...] | None:
    if value == "all":
        return None
    indexes = _sequence(value)
    if indexes is None or any(isinstance(index, bool) or not isinstance(index, int) for index in indexes):
        raise ChangeError(f"mig-parted document: {where}: devices is 'all' or a list of indexes, not {value!r}")
    return tuple(indexes)


def _parse_filters(where: str, value: object) -> tuple[DeviceFilter, ...]:
    strings = [value] if isinstance(value, str) and value else _sequence(value or ())
    if strings is None or any(not isinstance(text, str) for text in strings):
        raise ChangeError(f"mig-parted document: {where}: device-filter is a PCI id or a list of them, not {value!r}")
    return tuple(_parse_filter(text) for text in strings)


def _parse_filter(text: str) -> DeviceFilter:
    """Parse `0xDDDDVVVV` or `0xDDDDVVVV:0xSSSSVVVV`."""
    device, colon, subsystem = text.partition(":")
    if not _NUMBER.fullmatch(device) or (colon and not _NUMBER.fullmatch(subsystem)):
        return DeviceFilter(text, None, None)
    return DeviceFilter(text, _number(device), _number(subsystem) if colon else None)


def _number(text: str) -> int:
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


def _mapping(value: object, where: str) -> Mapping[object, object]:
    if not isinstance(value, Mapping):
        raise ChangeError(f"mig-parted document: {where} is to be a mapping, not {value!r}")
    return value


def _sequence(value: object) -> Sequence[Any] | None:
    return value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else None


def _refuse_unknown(fields: Mapping[object, object], known: Sequence[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise ChangeError(f"mig-parted document: {where}: unexpected field {name!r}; known are {', '.join(known)}")
