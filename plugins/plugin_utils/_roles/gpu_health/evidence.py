# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of the evidence on a host are fetched to the controller. Private to this collection. Pure: no Ansible.

A host may return any names and sizes: files are written on the controller under the names that gpu_health gives, not
more than it ever keeps.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....module_utils._health.evidence import MOST_BYTES
from ..._planning.contract import Ask, unread

_MOST_FILES = 64
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_STAT = {"get_checksum": False, "get_mime": False, "get_attributes": False}
_DIRECTORY = re.compile(r"(?:/(?!\.\./)[^/\n]+)*/[0-9]{8}T[0-9]{6}Z")


def fetched(_variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any] | Ask:
    """The names of directory and files that are fetched, and what stays of `evidence`, which modules return."""
    evidence = given["evidence"]
    names = [str(name) for name in evidence.get("files") or ()]
    directory = str(evidence.get("directory") or "")
    is_named = _DIRECTORY.fullmatch(directory) is not None
    files = [name for name in names if is_named and _FILE.fullmatch(name)][:_MOST_FILES]
    asked = unread(given, {"found": [("stat", {"path": f"{directory}/{name}", **_STAT}) for name in files]})
    if asked:
        return asked
    results: Sequence[Mapping[str, Any]] = [one.get("stat") or {} for one in given["found"]["results"]]
    regular = {name: int(one["size"]) for name, one in zip(files, results, strict=True) if one.get("isreg") is True}
    left = []
    if len(names) > len(files):
        left.append(
            f"its directory or {len(names) - len(files)} of its files have other names than gpu_health gives, or there "
            f"are more than {_MOST_FILES}"
        )
    if len(regular) < len(files):
        left.append(f"{len(files) - len(regular)} of them are not regular files")
    is_bounded = min(regular.values(), default=0) >= 0 and sum(regular.values()) <= MOST_BYTES
    if not is_bounded:
        left.append(f"they have more than {MOST_BYTES >> 20} MiB together, the most that gpu_health keeps")
    return {
        "name": posixpath.basename(directory) if is_named else "",
        "files": list(regular) if is_bounded else [],
        "left": "; ".join(left),
    }
