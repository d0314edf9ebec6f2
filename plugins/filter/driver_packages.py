# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name the packages of an NVIDIA driver by its origin and branch, from a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_packages import (
    DriverRequestError,
    packages_for,
    read_request,
)


def driver_packages(request: Mapping[str, Any], table: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The filter: `request` has the fields of DriverRequest, `table` the rows of vars/packages.yml."""
    try:
        return packages_for(read_request(request), table).as_dict()
    except DriverRequestError as error:
        raise AnsibleFilterError(f"gpu.fleet.driver_packages: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_packages": driver_packages}
