# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known escapes from containers that a version of the container toolkit does not fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.vulnerabilities import FIXED_IN
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.container_toolkit import known_vulnerabilities


def toolkit_vulnerabilities(version: str | None) -> list[dict[str, str]]:
    """The vulnerabilities of a version; see the filter's documentation."""
    return [{"name": name, "fixed_in": FIXED_IN[name]} for name in known_vulnerabilities(version or "")]


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"toolkit_vulnerabilities": toolkit_vulnerabilities}
