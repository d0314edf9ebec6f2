# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the NVIDIA driver of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils import _driver_plan as plans
from ansible_collections.gpu.fleet.plugins.plugin_utils._compatibility import CompatibilityError
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_packages import DriverRequestError


def driver_plan(
    request: Mapping[str, Any],
    facts: Mapping[str, Any],
    offered: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The plan for `request`; see the filter's documentation."""
    try:
        host = plans.read_facts(facts)
        return plans.driver_plan(plans.read_request(request), host, plans.read_offered(offered, host), table).as_dict()
    except (DriverRequestError, CompatibilityError) as error:
        raise AnsibleFilterError(f"gpu.fleet.driver_plan: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_plan": driver_plan}
