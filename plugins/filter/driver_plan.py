# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan an NVIDIA driver from what the repositories of a host offer, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_packages import DriverRequestError, read_request
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_plan import parse_offers, plan_driver


def driver_plan(
    request: Mapping[str, Any], table: Sequence[Mapping[str, Any]], offered: str = "", installed: str = ""
) -> dict[str, Any]:
    """The plan for `request`; `table` as for driver_packages, `offered` the output of `apt-cache show`."""
    try:
        return plan_driver(read_request(request), parse_offers(offered), table, installed).as_dict()
    except DriverRequestError as error:
        raise AnsibleFilterError(f"gpu.fleet.driver_plan: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_plan": driver_plan}
