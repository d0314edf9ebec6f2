# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the passwords in URLs, such as URLs of proxies, out of output and records. Private to this collection."""

from __future__ import annotations

import re
from typing import Any

_USERINFO = re.compile(r"(?<=://)[^/\s\"'<>]+(?=@)")


def masked(value: Any) -> Any:
    """A JSON value, or any text, with `***` instead of user and password of each URL."""
    if isinstance(value, str):
        return _USERINFO.sub("***", value)
    if isinstance(value, dict):
        return {name: masked(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value
