# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known against a version of NVIDIA's driver. Private to this collection."""

from __future__ import annotations

from typing import Collection

from .._knowledge.vulnerabilities import BULLETINS


def of_driver(version: str | None, accepted: Collection[str] = ()) -> str:
    """What is known against a version of the driver, without what is `accepted`; empty where nothing is known."""
    numbers = _numbers(version or "")
    branch = (version or "").partition(".")[0]
    if numbers is None:
        return ""
    found: dict[str, list[str]] = {}
    newest = ""
    for bulletin in BULLETINS:
        fixed = bulletin.fixed_in.get(branch)
        if fixed is None or numbers >= (_numbers(fixed) or ()):
            continue
        names = [name for name, without in bulletin.names.items() if branch not in without and name not in accepted]
        if names:
            newest = fixed
            found[f"bulletin {bulletin.number} of {bulletin.date}"] = names
    if not found:
        return ""
    which = "; ".join(f"{bulletin}: {', '.join(names)}" for bulletin, names in found.items())
    return (
        f"driver {version} has known vulnerabilities (NVIDIA's security {which}); {newest} has none of them: set "
        "nvidia_driver_version, or accept them by name (gpu_health_ignore_vulnerabilities)"
    )


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        return None
    return tuple(map(int, parts))
