# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of the TOML documents that container engines print. Pure. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

NOTE = "# Written by gpu.fleet.\n"
STRING = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_HEADER = re.compile(r"^\s*\[\[?(.+?)\]?\]\s*$")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


class ConfigurationError(Exception):
    """An engine's configuration cannot be extended; the message is for the user."""


@dataclass(frozen=True)
class TomlTable:
    """One table of a TOML document: the parts of its name, and its lines without the header."""

    name: tuple[str, ...]
    lines: tuple[str, ...]

    def value(self, key: str) -> str | None:
        """The raw value of a key, None when the table does not have it."""
        found = (re.match(rf"\s*{re.escape(key)}\s*=\s*(.*)$", line) for line in self.lines)
        return next((match[1].strip() for match in found if match), None)

    def having(self, key: str, value: str) -> TomlTable:
        """The table with this raw value for the key."""
        rest = tuple(line for line in self.lines if not re.match(rf"\s*{re.escape(key)}\s*=", line))
        return replace(self, lines=(*rest, f"{key} = {value}"))


def tables(text: str) -> tuple[TomlTable, ...]:
    """The tables of a document as printed by `containerd config dump`, which puts every value on one line."""
    found: list[tuple[tuple[str, ...], list[str]]] = [((), [])]
    for line in text.splitlines():
        header = _HEADER.match(line) if "=" not in line.partition("]")[0] else None
        if header:
            found.append((tuple("".join(parts) for parts in _PART.findall(header[1])), []))
        elif line.strip():
            found[-1][1].append(line)
    return tuple(TomlTable(name, tuple(lines)) for name, lines in found)


def render(table: TomlTable) -> str:
    """The table as a part of a document."""
    name = ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in table.name)
    return "".join(f"{line.strip()}\n" for line in (f"[{name}]", *table.lines))


def unquoted(value: str | None) -> str:
    """The string in a raw value, empty for None."""
    return (value or "").strip("\"'")
