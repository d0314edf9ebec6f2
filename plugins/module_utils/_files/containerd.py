# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A containerd drop-in that adds a runtime and changes nothing else. Pure. Private to this collection.

containerd 1.x takes the section of a plugin as a whole from the last file that has it (mergeConfig in
https://github.com/containerd/containerd/blob/v1.7.24/services/server/config/config.go): a drop-in with one runtime
would drop all other settings of the CRI plugin. The drop-in therefore repeats the effective settings from
`containerd config dump`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_CRI_PLUGINS = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
"""The plugin that has the runtimes, in configuration version 2 and in version 3 (containerd 2)."""

_HEADER = re.compile(r"^\s*\[\[?(.+?)\]?\]\s*$")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")
_IMPORTS = re.compile(r"^imports\s*=\s*\[(.*?)\][ \t]*(?:#[^\n]*)?\n?", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_VERSION = re.compile(r"^version\s*=\s*(\d+)", re.MULTILINE)
NOTE = "# Written by gpu.fleet.\n"


class ConfigurationError(Exception):
    """containerd's configuration cannot be extended; the message is for the user."""


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


def drop_in(dump: str, runtime: str, binary: str, cdi: bool, default: bool) -> str:
    """The content of the drop-in: the CRI plugin as in `dump`, with one more runtime.

    The runtime is a copy of the default one with another binary. `cdi` enables CDI specifications in the plugin, where
    it supports them (1.7 and newer).
    """
    everything = tables(dump)
    plugin = next((name for name in _CRI_PLUGINS for table in everything if table.name[:2] == ("plugins", name)), None)
    if plugin is None:
        raise ConfigurationError("has its plugin cri disabled; take it out of disabled_plugins in config.toml")
    root = ("plugins", plugin)
    ours = (*root, "containerd", "runtimes", runtime)
    kept = [table for table in everything if table.name[:2] == root and table.name[: len(ours)] != ours]
    model = _default_runtime(kept, root, runtime)
    result = []
    for table in kept:
        if table.name == root and cdi and table.value("enable_cdi") is not None:
            result.append(table.having("enable_cdi", "true"))
        elif table.name == (*root, "containerd"):
            result.append(table.having("default_runtime_name", f'"{runtime if default else model}"'))
        else:
            result.append(table)
    result += _like(kept, (*root, "containerd", "runtimes", model), ours, binary)
    version = _VERSION.search(dump)
    return f"{NOTE}version = {version[1] if version else 2}\n\n" + "\n".join(map(_render, result))


def _default_runtime(kept: list[TomlTable], root: tuple[str, ...], runtime: str) -> str:
    """The runtime that ours is copied from."""
    named = [table.value("default_runtime_name") for table in kept if table.name == (*root, "containerd")]
    name = (named[0] or "").strip("\"'") if named else ""
    return name if name and name != runtime else "runc"


def _like(kept: list[TomlTable], model: tuple[str, ...], ours: tuple[str, ...], binary: str) -> list[TomlTable]:
    """The tables of our runtime: those of `model` with our binary, or the minimum that containerd needs."""
    copied = [
        TomlTable(ours + table.name[len(model) :], table.lines) for table in kept if table.name[: len(model)] == model
    ]
    if not copied:
        copied = [TomlTable(ours, ('runtime_type = "io.containerd.runc.v2"',))]
    if all(table.name != (*ours, "options") for table in copied):
        copied.append(TomlTable((*ours, "options"), ()))
    return [
        table.having("BinaryName", f'"{binary}"') if table.name == (*ours, "options") else table for table in copied
    ]


def _render(table: TomlTable) -> str:
    name = ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in table.name)
    return "".join(f"{line.strip()}\n" for line in (f"[{name}]", *table.lines))


def has_runtime(dump: str, runtime: str, binary: str) -> bool:
    """Whether a runtime with this binary is in effect."""
    return any(
        table.name[:2] in [("plugins", plugin) for plugin in _CRI_PLUGINS]
        and table.name[2:] == ("containerd", "runtimes", runtime, "options")
        and (table.value("BinaryName") or "").strip("\"'") == binary
        for table in tables(dump)
    )


def imports(text: str) -> tuple[str, ...]:
    """The files and patterns that a configuration imports."""
    match = _IMPORTS.search(_top(text))
    return tuple("".join(parts) for parts in _STRING.findall(match[1])) if match else ()


def with_imports(text: str, desired: tuple[str, ...], version: int) -> str:
    """The configuration with exactly these imports and otherwise unchanged; created where it is empty."""
    top = _top(text)
    rest = text[len(top) :]
    line = f"imports = [{', '.join(map(_quote, desired))}]\n" if desired else ""
    if not text.strip():
        return f"{NOTE}version = {version}\n{line}" if desired else ""
    if _IMPORTS.search(top):
        return _IMPORTS.sub(lambda _match: line, top, count=1) + rest
    found = _VERSION.search(top)
    end = top.find("\n", found.end()) + 1 if found else 0
    return top[:end] + line + top[end:] + rest


def is_ours(text: str) -> bool:
    """Whether a configuration is one that with_imports created, with nothing but its version left."""
    return bool(re.fullmatch(rf"{re.escape(NOTE)}version = \d+\n", text))


def _quote(value: str) -> str:
    return f'"{value}"'


def _top(text: str) -> str:
    """The part before the first table, where the top-level keys are."""
    match = re.search(r"^\s*\[", text, re.MULTILINE)
    # A nested array would match as well, but containerd has none at the top level.
    return text[: match.start()] if match else text
