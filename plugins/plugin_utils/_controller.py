# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collections of others that the controller needs. Private to this collection."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import cache


def missing_collections(names: Iterable[str]) -> list[str]:
    """A refusal where the controller lacks one of these collections; a role would stop in its middle."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return []
    plural = "s" if len(missing) > 1 else ""
    refusal = (
        f"the controller lacks the collection{plural} {' and '.join(missing)}, which tasks of the roles use; run "
        f"`ansible-galaxy collection install {' '.join(missing)}`, or correct ANSIBLE_COLLECTIONS_PATH"
    )
    return [refusal]


@cache
def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(f"ansible_collections.{name}") is not None
    except ModuleNotFoundError:
        return False
