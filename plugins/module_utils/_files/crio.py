# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A CRI-O drop-in that adds a runtime and changes nothing else. Pure. Private to this collection.

CRI-O takes the table of a runtime as a whole from the last file that has it, and starts no container of a runtime whose
conmon it does not find: upstream packages have conmon, crun and runc in /usr/libexec/crio, which is not in PATH. The
runtime is therefore a copy of the default one, as `crio config` prints it.
"""

from __future__ import annotations

import re

from .containerd import Runtime
from .toml_tables import NOTE, STRING, TomlTable, render, tables, unquoted

_RUNTIME = ("crio", "runtime")
_RUNTIMES = (*_RUNTIME, "runtimes")
_CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
# What belongs to the program of the copied runtime, not to the way in which CRI-O starts it.
_OF_THE_PROGRAM = (
    "runtime_path",
    "runtime_type",
    "runtime_config_path",
    "inherit_default_runtime",
    "platform_runtime_paths",
)


def drop_in(dump: str, runtime: Runtime) -> str:
    """The content of the drop-in that adds a runtime to `dump`, what `crio config` prints without it."""
    everything = tables(dump)
    general: list[str] = []
    directories = _strings(everything, "cdi_spec_dirs")
    missing = [path for path in _CDI_DIRECTORIES if not {path, path.replace("/var/run/", "/run/")} & {*directories}]
    if runtime.cdi and directories and missing:
        general.append(f"cdi_spec_dirs = [{', '.join(_quoted(path) for path in (*directories, *missing))}]")
    if runtime.default:
        general.append(f"default_runtime = {_quoted(runtime.name)}")
    model = _model(everything, runtime.name)
    copied = [line for line in model.lines if _is_copied(line)] if model is not None else []
    added = TomlTable(
        (*_RUNTIMES, runtime.name), (f"runtime_path = {_quoted(runtime.binary)}", 'runtime_type = "oci"', *copied)
    )
    return NOTE + "\n".join(map(render, [TomlTable(_RUNTIME, tuple(general)), added] if general else [added]))


def program(dump: str, name: str) -> str:
    """The path or name of the program that the copied runtime starts, empty where there is none to copy."""
    model = _model(tables(dump), name)
    return (unquoted(model.value("runtime_path")) or model.name[-1]) if model is not None else ""


def runtime_path(dump: str, name: str) -> str:
    """The program of a runtime in effect, empty where there is no such runtime."""
    found = _runtime(tables(dump), name)
    return unquoted(found.value("runtime_path")) if found is not None else ""


def monitor_path(dump: str, name: str) -> str:
    """The path or name of the monitor of a runtime in effect: its own, the one of all runtimes, or conmon in PATH."""
    everything = tables(dump)
    own = _runtime(everything, name)
    of_all = [unquoted(table.value("conmon")) for table in everything if table.name == _RUNTIME]
    return "".join(of_all) or (unquoted(own.value("monitor_path")) if own is not None else "") or "conmon"


def _model(everything: tuple[TomlTable, ...], name: str) -> TomlTable | None:
    """The runtime to copy: the default one, or another that starts programs by conmon as ours is."""
    chosen = "".join(unquoted(table.value("default_runtime")) for table in everything if table.name == _RUNTIME)
    candidates = [_runtime(everything, candidate) for candidate in (chosen, "crun", "runc") if candidate != name]
    return next((table for table in candidates if table and unquoted(table.value("runtime_type")) in ("", "oci")), None)


def _runtime(everything: tuple[TomlTable, ...], name: str) -> TomlTable | None:
    return next((table for table in everything if table.name == (*_RUNTIMES, name)), None)


def _is_copied(line: str) -> bool:
    key, _equals, value = (part.strip() for part in line.partition("="))
    return key not in _OF_THE_PROGRAM and value != '""' and not key.startswith("#")


def _strings(everything: tuple[TomlTable, ...], key: str) -> tuple[str, ...]:
    """The strings of a list in [crio.runtime], which CRI-O prints on several lines; empty where it is the default."""
    lines = "\n".join(line for table in everything if table.name == _RUNTIME for line in table.lines)
    found = re.search(rf"^[ \t]*{re.escape(key)}\s*=\s*\[(.*?)\]", lines, re.MULTILINE | re.DOTALL)
    return tuple("".join(parts) for parts in STRING.findall(found[1])) if found else ()


def _quoted(value: str) -> str:
    return f'"{value}"'
