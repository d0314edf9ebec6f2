# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The current MIG state of a host as a mig-parted document, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
name: mig_parted
version_added: 1.0.0
author:
  - gpu.fleet contributors (@gpu-fleet)
short_description: The present MIG layout of a host as a document of mig-parted
description:
  - Makes a document out of the facts of M(gpu.fleet.nvidia_smi_facts) that mig-parted and the option
    O(gpu.fleet.mig_profile#module:config) take.
  - Such a document knows neither places nor GPU instances without compute instances. Use
    P(gpu.fleet.mig_layouts#filter) to keep these too.
  - M(gpu.fleet.mig_profile) returns the same as RV(gpu.fleet.mig_profile#module:mig_parted).
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
- name: Write the present layout of a host as a document of mig-parted
  ansible.builtin.copy:
    content: "{{ ansible_facts['nvidia_smi'] | gpu.fleet.mig_parted | to_nice_yaml }}"
    dest: "mig-parted/{{ inventory_hostname }}.yml"
    mode: "0644"
  delegate_to: localhost
"""

RETURN = r"""
_value:
  description:
    - A document with the one configuration V(current). GPUs are named by their indexes, and those that are alike share
      an entry. GPUs without MIG are in an entry with V(mig-enabled=false).
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.module_utils._mig.export import export_mig_parted
from ansible_collections.gpu.fleet.plugins.plugin_utils._mig_facts import FactsError, present_gpus


def mig_parted(data: Any) -> dict[str, Any]:
    """A mig-parted document that describes the current state; see the filter's documentation."""
    try:
        gpus = present_gpus(data)
    except FactsError as error:
        raise AnsibleFilterError(f"gpu.fleet.mig_parted: {error}") from None
    if not gpus:
        raise AnsibleFilterError("gpu.fleet.mig_parted: these facts have no GPU, and mig-parted has no empty document")
    return export_mig_parted(gpus)


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"mig_parted": mig_parted}
