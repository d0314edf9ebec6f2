# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The current MIG state of a host as input of mig_profile, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mig_layouts
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: The present MIG layout of a host as input of mig_profile
description:
  - Makes the option O(gpu.fleet.mig_profile#module:layouts) out of the facts of M(gpu.fleet.nvidia_smi_facts).
    Given back to M(gpu.fleet.mig_profile), it changes nothing as long as the GPUs are as they were, and restores them
    later.
  - M(gpu.fleet.mig_profile) returns the same as RV(gpu.fleet.mig_profile#module:layouts).
  - Fails where the MIG state of a GPU is not known, for instance when the facts were gathered without root.
options:
  _input:
    description:
      - The facts of M(gpu.fleet.nvidia_smi_facts), a host's facts that have them, or their list of GPUs. They are
        gathered with V(mig) in O(gpu.fleet.nvidia_smi_facts#module:gather_subset).
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Keep the present layout of a host on the controller
  ansible.builtin.copy:
    content: "{{ ansible_facts['nvidia_smi'] | gpu.fleet.mig_layouts | to_nice_yaml }}"
    dest: "layouts/{{ inventory_hostname }}.yml"
    mode: "0644"
  delegate_to: localhost

- name: Give the host that layout again
  gpu.fleet.mig_profile:
    layouts: "{{ lookup('ansible.builtin.file', 'layouts/' ~ inventory_hostname ~ '.yml') | from_yaml }}"
"""

RETURN = r"""
_value:
  description:
    - An entry for each GPU that has MIG, with V(gpus), V(enabled) and V(profiles), each profile with its start. GPUs
      are named by their UUIDs.
    - V(0c.3g.71gb) is a GPU instance that has no compute instance.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._mig.export import export_layouts
from ansible_collections.gpu.fleet.plugins.plugin_utils._mig_facts import FactsError, present_gpus


def mig_layouts(data: Any) -> list[dict[str, Any]]:
    """The option `layouts` of mig_profile that describes the current state; see the filter's documentation."""
    try:
        gpus = present_gpus(data)
    except FactsError as error:
        raise AnsibleFilterError(f"gpu.fleet.mig_layouts: {error}") from None
    return export_layouts(gpus)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"mig_layouts": mig_layouts}
