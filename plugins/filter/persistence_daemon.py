# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit file and drop-in of nvidia-persistenced for a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._persistence_daemon import daemon_files


def persistence_daemon(units: Mapping[str, str]) -> dict[str, str]:
    """The filter: `units` has the contents of unit files by path."""
    if not isinstance(units, Mapping) or not all(isinstance(content, str) for content in units.values()):
        raise AnsibleFilterError(
            "gpu.fleet.persistence_daemon takes a dictionary of the contents of unit files by path"
        )
    try:
        return asdict(daemon_files(units))
    except ValueError as error:
        raise AnsibleFilterError(
            f"gpu.fleet.persistence_daemon: ExecStart of {', '.join(units)} cannot be read: {error}"
        ) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"persistence_daemon": persistence_daemon}
