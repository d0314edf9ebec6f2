# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known against a version of NVIDIA's driver. Private to this collection."""

from __future__ import annotations

from typing import Collection

from .._knowledge.vulnerabilities import DRIVER, known


def of_driver(version: str | None, accepted: Collection[str] = ()) -> str:
    """What is known against a version of the driver, without what is `accepted`; empty where nothing is known."""
    branch, dot, _minor = (version or "").partition(".")
    against = known(DRIVER, version or "", branch, accepted)
    if not (dot and against.found):
        return ""
    return (
        f"driver {version} has known vulnerabilities (NVIDIA's security {against.text}); {against.fixed_in} has none "
        "of them: set nvidia_driver_version, or accept them by name or bulletin (gpu_health_ignore_vulnerabilities)"
    )
