# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and outputs of commands that planners of roles ask for. Private to this collection."""

from __future__ import annotations

import hashlib
from typing import Any, Mapping, Sequence

from .._common.regular_file import open_regular
from .._common.runner import find_executable, run_all

_TIMEOUT = 60.0
_LONGEST_OUTPUT = 1 << 20
_CHUNK = 1 << 20


def read(requested: Mapping[str, Any]) -> dict[str, Any]:
    """The `files` that exist, by path, and the output of `commands`, which only read."""
    return {
        "files": {path: _file(path) for path in requested["files"]},
        "commands": _outputs([tuple(map(str, argv)) for argv in requested["commands"] if argv]),
    }


def _file(path: str) -> str | None:
    """The SHA-256 of a file, empty for anything but a regular file, None without one or where it cannot be read."""
    try:
        with open_regular(path) as file:
            found = hashlib.sha256()
            while chunk := file.read(_CHUNK):
                found.update(chunk)
            return found.hexdigest()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError:
        return ""


def _outputs(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    commands = [argv for argv in commands if not any("\0" in word for word in argv)]
    results = run_all([(find_executable(argv[0]), *argv[1:]) for argv in commands], _TIMEOUT, _LONGEST_OUTPUT)
    return [
        {"argv": [*argv], "rc": one.rc, "stdout": one.text, "stderr": one.error_text}
        for argv, one in zip(commands, results)
    ]
