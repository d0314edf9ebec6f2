# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The row of a host in the table of distributions. Pure: no Ansible, no file access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...module_utils._knowledge.distributions import IMPOSSIBLE, PLATFORMS, Platform

EL_FAMILY = "RedHat"
EL = "EL"
# Ansible's name, and its name in the table: of EL's family, and no rebuild of it.
_OTHERS = {"Amazon": "Amazon Linux"}
RHEL = "RedHat"
_BY_NAME = {platform.name: platform for platform in PLATFORMS}
WINDOWS = "on Windows only the role gpu.fleet.windows_gpu works; run gpu.fleet.windows for this host"


def platform_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a host by Ansible's facts, with `supported` and the names of all supported platforms.

    Debian is identified by its major version, Ubuntu by the whole one, and every rebuild of Enterprise Linux, such as
    Rocky Linux, by its family and major version. A host that is not in the table has its own name and, of the
    other fields, only `reason`: why no role can work there, where that is known.
    """
    distribution, version, major = (
        str(facts.get(name, "")) for name in ("distribution", "distribution_version", "distribution_major_version")
    )
    family = EL if facts.get("os_family") == EL_FAMILY else distribution
    system, release = _OTHERS.get(distribution, family), major
    if distribution == "Ubuntu":
        release = version
    found = _BY_NAME.get(f"{system} {release}")
    row = asdict(found or Platform(f"{distribution} {release}".strip(), "", "", "", ""))
    del row["source"]
    reason = WINDOWS if facts.get("os_family") == "Windows" else IMPOSSIBLE.get(f"{system} {release}", "")
    if found and distribution == RHEL:
        row["docker_repository"] = "rhel"
    lists = {"docker_packages": list(row["docker_packages"]), "known": list(_BY_NAME)}
    return {**row, **lists, "supported": bool(found), "reason": reason}
