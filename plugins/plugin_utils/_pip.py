# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How pip is configured, and why it fails, for roles that run it. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Where pip cannot reach the index, its error is that there is no such package, and the reason is above it.
_PIP_ERROR = re.compile(
    r"ERROR: THESE PACKAGES DO NOT MATCH THE HASHES.*\n\s*(?P<package>\S+) from"
    r"|ERROR: (?!Could not find a version)(?P<error>.+)"
    r"|(?P<fetch>Could not fetch URL \S+: [^:\n]+)"
)
_MOST = 3


def pip_configuration(role: str, options: Sequence[tuple[str, str]]) -> str:
    """pip.conf of a virtual environment: what may not be an argument, which every user can read while pip runs.

    options: names of pip's options without dashes, each with a value; a name may come more than once.
    """
    values = {option: [value for name, value in options if name == option] for option, _value in options}
    lines = (f"{option} = " + "\n    ".join(some) + "\n" for option, some in values.items())
    return f"# Written by the role gpu.fleet.{role}; changes are overwritten.\n[install]\n{''.join(lines)}"


def pip_errors(output: str, requirements: str = "the requirements") -> tuple[str, ...]:
    """Why `pip install` failed; the last three reasons. `requirements` is what the user knows their file as."""
    found = (
        f"{match['package']} has another hash than the one in {requirements}"
        if match["package"]
        else (match["fetch"] or match["error"])[:200]
        for match in _PIP_ERROR.finditer(output)
    )
    return tuple(dict.fromkeys(found))[-_MOST:]
