# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the monitoring of GPUs, made on the controller.

A filter and no stage of role_plan, as a registered result would keep the program once for each host.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: health_exporter_files
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: A systemd timer that writes the health of a host's GPUs for node_exporter
description:
  - Made for the role P(gpu.fleet.gpu_monitoring#role) of this collection; its arguments may change in any version.
  - The program is a copy of what M(gpu.fleet.gpu_health) runs.
positional: textfile, interval, python, max_drained
options:
  _input:
    description:
      - Options of M(gpu.fleet.gpu_health), with C(expected), C(policy), C(kernel_log) and C(history), and optionally
        C(ignore).
    type: dict
    required: true
  textfile:
    description:
      - The file in the directory of node_exporter's textfile collector.
    type: str
    required: true
  interval:
    description:
      - Seconds between two checks.
    type: int
    required: true
  python:
    description:
      - The interpreter on the host.
    type: str
    required: true
  max_drained:
    description:
      - How many nodes of Slurm may be out of service by verdicts, a number or a percentage.
    type: str
    required: true
"""

EXAMPLES = r"""
- ansible.builtin.set_fact:
    files: >-
      {{ {'expected': {}, 'policy': [], 'kernel_log': 'auto', 'history': ''}
         | gpu.fleet.health_exporter_files('/var/lib/prometheus/node-exporter/gpu.prom',
                                           300, '/usr/bin/python3', '10%') }}
"""

RETURN = r"""
_value:
  description: C(files) and C(programs), each the content by path, for M(gpu.fleet.file_set).
  type: dict
"""

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
