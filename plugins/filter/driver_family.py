# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose the packages of NVIDIA drivers out of the installed ones, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._driver_packages import family, owners


def driver_family(installed: Any, sources: Any = None, of_version: Any = None) -> list[str]:
    """The names of `installed`, a list or the keys of a dictionary, that belong to a driver; see the documentation."""
    if isinstance(installed, str) or not isinstance(sources or {}, Mapping):
        raise AnsibleFilterError("gpu.fleet.driver_family: takes names of packages and a dictionary of their sources")
    if of_version is None:
        return family(installed, sources or {})
    if not isinstance(installed, Mapping):
        raise AnsibleFilterError(
            "gpu.fleet.driver_family: of_version takes versions of packages by name, not names alone"
        )
    return owners(installed, sources or {}, str(of_version))


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_family": driver_family}
