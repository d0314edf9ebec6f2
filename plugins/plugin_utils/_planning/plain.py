# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values and facts without what Ansible adds to them. Private to this collection. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """A value without Ansible's lazy containers and tags."""
    if isinstance(value, Mapping):
        return {str(key) if isinstance(key, str) else key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def named(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts as a module returns them, by the names that they have in ansible_facts."""
    return {name.removeprefix("ansible_"): value for name, value in facts.items()}
