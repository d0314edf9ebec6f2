# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the result of gpu_health as metrics for node_exporter, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._health.metrics import metrics
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.documents import FormError, health_of


def health_metrics(health: Mapping[str, Any]) -> str:
    """The filter: `health` is the result of the module gpu_health."""
    try:
        return metrics(health_of(health))
    except FormError as error:
        raise AnsibleFilterError(
            f"gpu.fleet.health_metrics takes the result of gpu.fleet.gpu_health: {error}"
        ) from error


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"health_metrics": health_metrics}
