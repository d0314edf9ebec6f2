# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the result of gpu_health as metrics for node_exporter, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: health_metrics
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Write the health of a host as metrics for Prometheus
description:
  - The metrics are in the text format that the textfile collector of node_exporter reads.
options:
  _input:
    description:
      - The result of M(gpu.fleet.gpu_health).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Judge the health of the GPUs
  gpu.fleet.gpu_health:
  register: health

- name: Publish it
  ansible.builtin.copy:
    content: "{{ health | gpu.fleet.health_metrics }}"
    dest: /var/lib/node_exporter/textfile_collector/gpu_health.prom
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The metrics.
  type: str
"""

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
