# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the version of an NVIDIA driver from those that a repository has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ansible.errors import AnsibleFilterError

# The driver's version in a package version: after an epoch, before a packager's revision.
_UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+)+)(?=$|[-+~])")


def driver_version(
    available: Iterable[str], desired: str = "newest", installed: str | None = None, upgrade: bool = False
) -> str:
    """Return the version that the host is to have: the installed one if it fits `desired`, else the newest that fits.

    `available` and `installed` are package versions, such as `580.159.04-1`. Empty when nothing fits. With `upgrade` a
    newer version replaces the installed one.
    """
    if isinstance(available, str):
        raise AnsibleFilterError("gpu.fleet.driver_version takes a list of versions, but got a string")
    offered = {version for version in map(_upstream, available) if version and fits(version, desired)}
    present = _upstream(installed or "")
    if present and fits(present, desired):
        offered = {present, *offered} if upgrade else {present}
    return max(offered, key=_key, default="")


def fits(version: str, desired: str) -> bool:
    """Return whether an exact version satisfies the request: `newest`, a branch or an exact version."""
    return desired in ("newest", "recommended", "") or version == desired or version.startswith(f"{desired}.")


def _upstream(version: str) -> str | None:
    found = _UPSTREAM.match(version)
    return found[1] if found else None


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_version": driver_version}
