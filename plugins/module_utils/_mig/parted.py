# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse mig-parted's configuration document, as strictly as mig-parted does. Private to this collection.

The rules come from `api/spec/v1/spec.go` and `pkg/types` in NVIDIA/mig-parted 0.15.0: unknown fields are refused,
and the last of several entries for one GPU takes precedence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .._common.bounds import listed, shown
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
        raise _refusal("the field 'version' is missing")
    if fields["version"] != VERSION:
        raise _refusal(f"version {shown(fields['version'])} is unknown; {VERSION!r} is supported")
    configs = _mapping(fields.get("mig-configs", {}), "mig-configs")
    if "mig-configs" in fields and not configs:
        raise _refusal("mig-configs has no entry")
    # Like mig-parted, check all of them: an error in one makes the document invalid.
    entries = {name: _parse_entries(listed([name]), entries) for name, entries in configs.items()}
    names = listed(entries)
    if selected is None:
        if len(entries) != 1:
            raise _refusal(f"select a configuration with the option selected; it has {names}")
        return next(iter(entries.values()))
    if selected not in entries:
        raise _refusal(f"it has no configuration {shown(selected)}; it has {names}")
    return entries[selected]


def _parse_entries(name: str, value: object) -> tuple[PartedEntry, ...]:
    entries = _sequence(value)
    if not entries:
        raise _refusal(f"{name} has to be a list of at least one entry")
    return tuple(_parse_entry(f"{name}[{place}]", entry) for place, entry in enumerate(entries))


def _parse_entry(where: str, entry: object) -> PartedEntry:
    fields = _mapping(entry, where)
    _refuse_unknown(fields, ("device-filter", "devices", "mig-enabled", "mig-devices"), where)
    for required in ("devices", "mig-enabled"):
        if required not in fields:
            raise _refusal(f"the field {required!r} is missing", where)
    enabled = fields["mig-enabled"]
    if not isinstance(enabled, bool):
        raise _refusal(f"mig-enabled is true or false, not {shown(enabled)}", where)
    devices = fields.get("mig-devices")
    if enabled and devices is None:
        raise _refusal("the field 'mig-devices' is missing while mig-enabled is true", where)
    counts = _mapping({} if devices is None else devices, f"{where}: mig-devices")
    if not enabled and counts:
        raise _refusal("mig-devices while mig-enabled is false", where)
    return PartedEntry(
        filters=_parse_filters(where, fields.get("device-filter")),
        indexes=_parse_indexes(where, fields["devices"]),
        enabled=enabled,
        items=_parse_devices(where, counts),
        where=where,
    )


def _parse_devices(where: str, devices: Mapping[object, object]) -> tuple[Item, ...]:
    for count in devices.values():
        if isinstance(count, bool) or not isinstance(count, int):
            raise _refusal(f"counts in mig-devices are whole numbers, not {shown(count)}", where)
    if any(":" in str(name) for name in devices):
        raise _refusal("mig-devices names profiles, without a start after a colon", where)
    try:
        items = parse_layout(devices)
    except ChangeError as error:
        raise _refusal(str(error), where) from error
    if any(item.name.compute == 0 for item in items):
        raise _refusal("mig-parted has no names that begin with 0c", where)
    if devices and not items:
        raise _refusal("all counts in mig-devices are 0", where)
    return items


def _parse_indexes(where: str, value: object) -> tuple[int, ...] | None:
    if value == "all":
        return None
    indexes = _sequence(value)
    if indexes is None or any(isinstance(index, bool) or not isinstance(index, int) for index in indexes):
        raise _refusal(f"devices is 'all' or a list of indexes, not {shown(value)}", where)
    return tuple(indexes)


def _parse_filters(where: str, value: object) -> tuple[DeviceFilter, ...]:
    """No filters, and so any model, only for a field that is missing or null, an empty string and an empty list."""
    strings = () if value is None or value == "" else [value] if isinstance(value, str) else _sequence(value)
    if strings is None or any(not isinstance(text, str) for text in strings):
        raise _refusal(f"device-filter is a PCI id or a list of them, not {shown(value)}", where)
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
        raise _refusal(f"{where} has to be a mapping, not {shown(value)}")
    return value


def _sequence(value: object) -> Sequence[Any] | None:
    return value if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else None


def _refuse_unknown(fields: Mapping[object, object], known: Sequence[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise _refusal(f"unexpected field {shown(name)}; known are {', '.join(known)}", where)


def _refusal(message: str, where: str = "") -> ChangeError:
    return ChangeError(f"mig-parted document: {where + ': ' if where else ''}{message}")
