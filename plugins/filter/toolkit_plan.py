# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the container toolkit of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import container_toolkit as plans


def toolkit_plan(request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for `request`; see the filter's documentation."""
    try:
        return plans.toolkit_plan(plans.read_request(request), plans.read_facts(facts)).as_dict()
    except KeyError as error:
        raise AnsibleFilterError(f"gpu.fleet.toolkit_plan: {error} is missing") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"toolkit_plan": toolkit_plan}
