# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the bytecode of what is imported from zip archives.

Ansible sends each module as an archive of sources, which Python reads and compiles again each time: a good third of the
processor time of a module that has little to do. A .pth file imports this at each start of Python in the hosts of the
tests and in .cache/venv. Where the directory cannot be written, sources are compiled as ever.
"""

from __future__ import annotations

import marshal
import os
import sys
import zipimport
from types import CodeType

_DIRECTORY = "/run/testbed-bytecode" if sys.prefix == sys.base_prefix else os.path.join(sys.prefix, "zip-bytecode")
_read = zipimport._get_module_code  # type: ignore[attr-defined]
# Of what the archive's directory has of a file: its path, its size and its checksum.
_PATH, _SIZE, _CRC = 0, 3, 7
_LOADED: dict[str, CodeType] = {}
"""What is in the directory, for a process whose forks import it, by the path of the file."""


def load() -> None:
    """Load what has come into the directory."""
    try:
        for name in os.listdir(_DIRECTORY):
            file = os.path.join(_DIRECTORY, name)
            if file not in _LOADED and name.endswith(f".{sys.implementation.cache_tag}"):
                with open(file, "rb") as kept:
                    _LOADED[file] = marshal.loads(kept.read())
    except (OSError, EOFError, ValueError, TypeError):
        pass  # those that import it read or compile it


def _code(importer: zipimport.zipimporter, name: str) -> tuple[CodeType, bool, str]:
    """Bytecode of a module, whether it is a package, and its path.

    The source is not even read: a file of the same name, size and checksum is the same one.
    """
    path = zipimport._get_module_path(importer, name)  # type: ignore[attr-defined]
    files = importer._get_files() if hasattr(importer, "_get_files") else importer._files  # type: ignore[attr-defined]
    is_package = f"{path}{os.sep}__init__.py" in files
    entry = files.get(f"{path}{os.sep}__init__.py" if is_package else f"{path}.py")
    if entry is None:
        found: tuple[CodeType, bool, str] = _read(importer, name)
        return found
    file = os.path.join(_DIRECTORY, f"{name}-{entry[_SIZE]:x}-{entry[_CRC]:x}.{sys.implementation.cache_tag}")
    if file in _LOADED:
        return _LOADED[file], is_package, entry[_PATH]
    try:
        with open(file, "rb") as kept:
            # Not marshal.load, which reads a few bytes at a time.
            return marshal.loads(kept.read()), is_package, entry[_PATH]
    except (OSError, EOFError, ValueError, TypeError):
        found = _read(importer, name)
    partial = f"{file}.{os.getpid()}"
    try:
        os.makedirs(_DIRECTORY, exist_ok=True)
        with open(partial, "wb") as new:
            marshal.dump(found[0], new)
        os.rename(partial, file)
    except OSError:
        pass
    return found


zipimport._get_module_code = _code  # type: ignore[attr-defined]
