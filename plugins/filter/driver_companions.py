# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which companions an NVIDIA driver needs on a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_companions import (
    CompanionError,
    plan_companions,
    read_needs,
)


def driver_companions(needs: Mapping[str, Any]) -> dict[str, Any]:
    """The filter: `needs` has the fields of Needs."""
    try:
        return plan_companions(read_needs(needs)).as_dict()
    except CompanionError as error:
        raise AnsibleFilterError(f"gpu.fleet.driver_companions: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_companions": driver_companions}
