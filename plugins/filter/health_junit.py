# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the result of gpu_health as a JUnit report, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: health_junit
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: Write the health of a host as a JUnit report
description:
  - The report has a test case for the host and one for each GPU.
positional: host, fail_on
options:
  _input:
    description:
      - The result of M(gpu.fleet.gpu_health).
    type: dict
    required: true
  host:
    description:
      - Name of the host in the report.
    type: str
    required: true
  fail_on:
    description:
      - The best verdict that is a failure, V(fail) or V(warn), or V(never).
    type: str
    default: fail
"""

EXAMPLES = r"""
- name: Judge the health of the GPUs
  gpu.fleet.gpu_health:
  register: health

- name: Report it to the pipeline
  ansible.builtin.copy:
    content: "{{ health | gpu.fleet.health_junit(inventory_hostname) }}"
    dest: "reports/{{ inventory_hostname }}.xml"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description: The report, an XML document.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.documents import FormError, health_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._health_reports import junit


def health_junit(health: Mapping[str, Any], host: str, fail_on: str = "fail") -> str:
    """The filter: `health` is the result of the module gpu_health."""
    try:
        return junit(health_of(health), host, fail_on)
    except FormError as error:
        raise AnsibleFilterError(f"gpu.fleet.health_junit takes the result of gpu.fleet.gpu_health: {error}") from error


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"health_junit": health_junit}
