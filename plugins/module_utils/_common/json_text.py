# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read JSON that another program or a user may have written or damaged. Private to this collection."""

from __future__ import annotations

import json
from typing import Any, Iterable

_DEEPEST = 100
"""Levels. Newer versions of Python read thousands, with which functions that call themselves fail later."""


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError, also for one that is nested too deeply.

    A byte order mark at its beginning is none of it, as for json.loads in bytes, and for dockerd 23 and newer.
    """
    try:
        value = json.loads(text[1:] if isinstance(text, str) and text.startswith("\ufeff") else text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level = [value]
    for _level in range(_DEEPEST):
        level = [item for each in level if isinstance(each, (dict, list)) for item in _items(each)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _items(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
