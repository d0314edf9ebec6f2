#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about the GPUs of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_smi_facts
short_description: Gather facts about NVIDIA GPUs
description:
  - Reads everything that nvidia-smi knows of a host's GPUs into typed facts, with any driver from branch 340 on.
  - Succeeds without a GPU and without a driver too, with RV(ansible_facts.nvidia_smi.available=false) and the reason.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
  - gpu.fleet.nvidia_smi
options:
  gather_subset:
    description:
      - Parts to gather, as in M(ansible.builtin.setup). A part with V(!) before it is left out.
      - V(min) is always gathered and costs one CSV query when it is all that is asked for.
      - V(!all) leaves nothing but V(min).
    type: list
    elements: str
    default: [all]
    choices:
      - all
      - min
      - hardware
      - memory
      - ecc
      - power
      - clocks
      - supported_clocks
      - temperature
      - utilization
      - mig
      - processes
      - fabric
      - nvlink
      - topology
      - "!all"
      - "!hardware"
      - "!memory"
      - "!ecc"
      - "!power"
      - "!clocks"
      - "!supported_clocks"
      - "!temperature"
      - "!utilization"
      - "!mig"
      - "!processes"
      - "!fabric"
      - "!nvlink"
      - "!topology"
  gpus:
    description:
      - GPUs to return, each by index, UUID, PCI bus id (with or without domain), or product name with V(*) and V(?).
      - One that is not there is reported in RV(ansible_facts.nvidia_smi.warnings).
    type: list
    elements: str
    default: [all]
"""

EXAMPLES = r"""
- name: Know everything about the GPUs
  gpu.fleet.nvidia_smi_facts:

- name: Know what GPUs there are, with one quick query
  gpu.fleet.nvidia_smi_facts:
    gather_subset: [min]
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._facts import SUBSETS, Request, chosen_subsets, gather

ARGUMENT_SPEC = {
    "gather_subset": {
        "type": "list",
        "elements": "str",
        "default": ["all"],
        "choices": ["all", *SUBSETS, "!all", *("!" + name for name in SUBSETS if name != "min")],
    },
    "gpus": {"type": "list", "elements": "str", "default": ["all"]},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": "float", "default": 60.0},
}


def main() -> None:
    """Gather and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    facts = gather(
        Request(
            executable=module.params["executable"],
            subsets=chosen_subsets(module.params["gather_subset"]),
            gpus=tuple(module.params["gpus"]),
            timeout=module.params["timeout"],
        )
    )
    module.exit_json(ansible_facts={"nvidia_smi": facts})


if __name__ == "__main__":
    main()
