# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the bytecode of what is imported from zip archives.

Ansible sends each module as an archive of sources, which Python compiles again each time: a third of the processor time
of a module that has little to do. A .pth file imports this at each start of Python in the hosts of the tests and in
.cache/venv. Where the directory cannot be written, sources are compiled as ever.
"""

from __future__ import annotations

import _frozen_importlib_external
import _imp
import marshal
import os
import sys
import zipimport
from collections.abc import Callable
from types import CodeType

_DIRECTORY = "/run/testbed-bytecode" if sys.prefix == sys.base_prefix else os.path.join(sys.prefix, "zip-bytecode")
_KEY = int.from_bytes(_frozen_importlib_external.MAGIC_NUMBER, "little")
_compile: Callable[[str, bytes], CodeType] = zipimport._compile_source  # type: ignore[attr-defined]


def _compiled(path: str, source: bytes) -> CodeType:
    """Bytecode of the source, by the hash that Python itself takes for files of bytecode."""
    file = os.path.join(_DIRECTORY, _imp.source_hash(_KEY, source).hex())
    try:
        with open(file, "rb") as kept:
            code: CodeType = marshal.load(kept)
            return code
    except (OSError, EOFError, ValueError, TypeError):
        code = _compile(path, source)
    partial = f"{file}.{os.getpid()}"
    try:
        os.makedirs(_DIRECTORY, exist_ok=True)
        with open(partial, "wb") as new:
            marshal.dump(code, new)
        os.rename(partial, file)
    except OSError:
        pass
    return code


zipimport._compile_source = _compiled  # type: ignore[attr-defined]
