# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The platform of a host from its facts, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.platforms import platform_of


def platform(facts: Any) -> dict[str, Any]:
    """Return the platform for `ansible_facts`; see the filter's documentation."""
    if not isinstance(facts, Mapping):
        raise AnsibleFilterError("gpu.fleet.platform: takes ansible_facts, a dictionary")
    return platform_of(facts)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"platform": platform}
