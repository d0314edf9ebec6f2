# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the monitoring of GPUs, made on the controller.

A filter and no stage of role_plan, as a registered result would keep the program once for each host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import gpu_monitoring


def health_exporter_files(
    health: Mapping[str, Any], textfile: str, interval: int, python: str, max_drained: str
) -> dict[str, dict[str, str]]:
    """The files of the exporter; see the documentation."""
    try:
        return gpu_monitoring.exporter_files(textfile, interval, python, health, max_drained=max_drained)
    except ChangeError as error:
        raise AnsibleFilterError(f"gpu.fleet.health_exporter_files: {error}") from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"health_exporter_files": health_exporter_files}
