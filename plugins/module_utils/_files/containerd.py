# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A containerd drop-in that adds a runtime and changes nothing else. Pure. Private to this collection.

containerd 1.x takes the section of a plugin as a whole from the last file that has it (mergeConfig in
https://github.com/containerd/containerd/blob/v1.7.24/services/server/config/config.go): a drop-in with one runtime
would drop all other settings of the CRI plugin. The drop-in therefore repeats the effective settings from
`containerd config dump`. containerd 2 merges the tables of all files: there the drop-in has the runtime alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Sequence

from .toml_tables import NOTE, STRING, ConfigurationError, TomlTable, render, tables, unquoted

_MERGED_DEEPLY = 3
"""The version of the configuration that containerd 2 prints."""

_DISABLED = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
"""Names in disabled_plugins that disable the runtimes of the CRI plugin."""

# Brackets in strings and comments end no list, and a comment has no strings.
_ITEM = r"\"((?:\\.|[^\"\\\n])*)\"|'([^'\n]*)'|#[^\n]*"
_IMPORTS = re.compile(
    rf"^[ \t]*[\"']?imports[\"']?[ \t]*=[ \t]*\[(?P<items>(?:[^\]\"'#]|{_ITEM})*)\][ \t]*(?P<note>#[^\r\n]*)?\r?\n?",
    re.MULTILINE,
)
_WAS_EMPTY = "# gpu.fleet: was empty"
"""Behind imports of ours in a list that a user had left empty: newer versions import files where there is no list."""
_VERSION = re.compile(r"^[ \t]*version\s*=\s*(\d+)", re.MULTILINE)


def config_version(text: str) -> int:
    """The version of a configuration, 1 where it states none: so does containerd."""
    found = _VERSION.search(_top(text))
    return int(found[1]) if found else 1


@dataclass(frozen=True)
class Runtime:
    """The runtime to add: a copy of the default one with the program `binary`.

    `cdi` enables CDI specifications in the plugin, where it supports them (1.7 and newer).
    """

    name: str
    binary: str
    cdi: bool
    default: bool


def default_runtime(text: str) -> str:
    """The default runtime that a dump or a drop-in names, empty where it names none."""
    names = [table.value("default_runtime_name") for table in tables(text) if table.name[-1:] == ("containerd",)]
    return next((unquoted(name) for name in names if name), "")


def drop_in(dump: str, config: str, runtime: Runtime) -> str:
    """The content of the drop-in that adds a runtime to `dump`, the effective configuration.

    `config` is the content of config.toml, empty where it does not exist.
    """
    version = config_version(dump)
    root = _cri_root(dump)
    everything = tables(dump)
    if set(_disabled_plugins(everything)) & set(_DISABLED) or all(table.name[:2] != root for table in everything):
        raise ConfigurationError(
            "has its plugin cri disabled, which Kubernetes needs; take cri out of disabled_plugins in config.toml"
        )
    ours = (*root, "containerd", "runtimes", runtime.name)
    kept = [table for table in everything if table.name[:2] == root and table.name[: len(ours)] != ours]
    model = _default_runtime(kept, root, runtime.name)
    settings = _settings(kept, root, runtime.name if runtime.default else model, runtime.cdi)
    added = _like(kept, (*root, "containerd", "runtimes", model), ours, runtime.binary)
    if version < _MERGED_DEEPLY:
        if config_version(config) == 1 and _names_plugins_shortly(tables(config)):
            raise ConfigurationError(
                "reads no drop-in next to a config.toml of version 1 that names plugins; write it in version 2, with"
                ' `version = 2` at its top and full names such as plugins."io.containerd.grpc.v1.cri"'
            )
        changed = {table.name: table for table in settings}
        return _document(version, [*(changed.get(table.name, table) for table in kept), *added])
    # Before containerd 2.3 the last file decides the version of all: a drop-in that is newer than config.toml would put
    # the settings of config.toml out of effect. Since 2.3 it is refused.
    if config_version(config) > 1:
        version = config_version(config)
    only = [*(replace(table, lines=table.lines[-1:]) for table in settings), *added]
    return _document(version, [replace(table, name=(*_root(version), *table.name[2:])) for table in only])


def _disabled_plugins(everything: Sequence[TomlTable]) -> tuple[str, ...]:
    value = everything[0].value("disabled_plugins") or ""
    return tuple("".join(parts) for parts in STRING.findall(value))


def _names_plugins_shortly(everything: Sequence[TomlTable]) -> bool:
    """Whether a configuration of version 1 has plugins by names that version 2 does not know."""
    named = [table.name[1] for table in everything if table.name[:1] == ("plugins",) and len(table.name) > 1]
    return any("." not in name for name in (*named, *_disabled_plugins(everything)))


def _settings(kept: list[TomlTable], root: tuple[str, ...], default: str, cdi: bool) -> list[TomlTable]:
    """The tables that choose the default runtime and CDI, a changed value last."""
    found = []
    for table in kept:
        if table.name == root and cdi and table.value("enable_cdi") == "false":
            found.append(table.having("enable_cdi", "true"))
        elif table.name == (*root, "containerd") and unquoted(table.value("default_runtime_name")) != default:
            found.append(table.having("default_runtime_name", f'"{default}"'))
    return found


def _root(version: int) -> tuple[str, str]:
    """The table of the CRI plugin that has the runtimes, in a configuration of this version."""
    return ("plugins", "io.containerd.cri.v1.runtime" if version >= _MERGED_DEEPLY else "io.containerd.grpc.v1.cri")


def _cri_root(dump: str) -> tuple[str, str]:
    """The table of the CRI plugin in a dump: containerd 2 still prints the table of 1.x, for streaming alone."""
    return _root(config_version(dump))


def _document(version: int, written: list[TomlTable]) -> str:
    return f"{NOTE}version = {version}\n\n" + "\n".join(map(render, written))


def _default_runtime(kept: list[TomlTable], root: tuple[str, ...], runtime: str) -> str:
    """The runtime that ours is copied from."""
    named = [table.value("default_runtime_name") for table in kept if table.name == (*root, "containerd")]
    name = unquoted(named[0]) if named else ""
    return name if name and name != runtime else "runc"


def _like(kept: list[TomlTable], model: tuple[str, ...], ours: tuple[str, ...], binary: str) -> list[TomlTable]:
    """The tables of our runtime: the tables of `model` with our binary, or the minimum that containerd needs."""
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


def has_runtime(dump: str, runtime: str, binary: str) -> bool:
    """Whether a runtime with this binary is in effect."""
    options = (*_cri_root(dump), "containerd", "runtimes", runtime, "options")
    return any(table.name == options and unquoted(table.value("BinaryName")) == binary for table in tables(dump))


def imports(text: str) -> tuple[str, ...]:
    """The files and patterns that a configuration imports."""
    match = _IMPORTS.search(_top(text))
    items = re.finditer(_ITEM, match["items"]) if match else ()
    return tuple((item[1] or "") + (item[2] or "") for item in items if not item[0].startswith("#"))


def with_imports(text: str, desired: tuple[str, ...], version: int) -> str:
    """The configuration with exactly these imports and otherwise unchanged; created where it is empty."""
    top = _top(text)
    rest = text[len(top) :]
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    listed = f"imports = [{', '.join(map(_quote, desired))}]"
    line = listed + end_of_line if desired else ""
    if not text.strip():
        return f"{NOTE}version = {version}\n{line}" if desired else ""
    found = _IMPORTS.search(top)
    if found:
        note = found["note"] or ""
        was_empty = note.endswith(_WAS_EMPTY)
        if was_empty and not desired:
            note = note[: -len(_WAS_EMPTY)]
        elif desired and not imports(text) and not was_empty:
            note = f"{note} {_WAS_EMPTY}"
        line = f"{listed} {note.strip()}".rstrip() + end_of_line if desired or was_empty else ""
        return top[: found.start()] + line + top[found.end() :] + rest
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
    match = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    # A nested array would match as well, but containerd has none at the top level.
    return text[: match.start()] if match else text
