#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance of a cluster. It is made on the controller, see plugins/action/fleet_acceptance.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_acceptance
short_description: Plan and judge all-reduces over the hosts of a play
version_added: 1.0.0
description:
  - Plans rounds in which pairs of hosts compute all-reduces at the same time, and one of all hosts; judges what the
    hosts have returned, each by comparison with the other pairs.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode no file is written.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - It changes no host.
options:
  stage:
    description:
      - V(plan) returns the rounds, and fails where no host can take part.
      - V(judge) returns the verdict, and writes the report.
    type: str
    choices: [plan, judge]
    required: true
  gpus:
    description:
      - Name of the variable in which each host has registered M(gpu.fleet.nvidia_smi_facts) with its processes.
    type: str
    required: true
  nics:
    description:
      - Name of the variable in which each host has registered M(gpu.fleet.report_facts), for the rates of its adapters.
    type: str
    default: ""
  rounds:
    description:
      - The rounds that were planned, with O(stage=judge).
    type: list
    elements: dict
    default: []
  results:
    description:
      - Name of the variable in which each host has a list with the result of each round.
    type: str
    default: ""
  tests:
    description:
      - Name of the variable in which each host that is to run tests has registered M(gpu.fleet.gpu_health) with them.
    type: str
    default: ""
notes:
  - Of each host it reads the variables C(gpu_fleet_accept_*), and C(ansible_host) for its address.
seealso:
  - module: gpu.fleet.nvidia_smi_facts
  - module: gpu.fleet.report_facts
"""

EXAMPLES = r"""
- name: Plan the rounds
  gpu.fleet.fleet_acceptance:
    stage: plan
    gpus: example_gpus
  run_once: true
  register: planned
"""

RETURN = r"""
rounds:
  description: The rounds in their order.
  returned: with O(stage=plan)
  type: list
  elements: dict
  contains:
    name:
      description: Such as C(pairs 1), or C(all).
      type: str
      returned: always
    text:
      description: The name, and which hosts run together.
      type: str
      returned: always
    groups:
      description: Hosts that run together.
      type: list
      elements: list
      returned: always
    argv:
      description: The command of each host.
      type: dict
      returned: always
tests:
  description:
    - With O(stage=plan) the tests that each host is to run on its own GPUs, with O(stage=judge) what each of them has
      measured, as text.
  returned: always
  type: dict
limit_s:
  description: Seconds after which a program is killed that has not ended itself.
  returned: with O(stage=plan)
  type: int
attempts:
  description: How often the end of a program is looked for, each 2 s.
  returned: with O(stage=plan)
  type: int
accepted:
  description: Whether all sums were right, and no host was slow.
  returned: with O(stage=judge)
  type: bool
median_gb_s:
  description: The median bus bandwidth of all pairs in GB/s.
  returned: with O(stage=judge)
  type: float
best_gb_s:
  description: The bus bandwidth of the best pair of each host in GB/s.
  returned: with O(stage=judge)
  type: dict
reasons:
  description: Why each host that is not accepted is not.
  returned: with O(stage=judge)
  type: dict
problems:
  description: Problems of each of these hosts itself.
  returned: with O(stage=judge)
  type: dict
common:
  description: Problems of no single host.
  returned: with O(stage=judge)
  type: list
  elements: str
runs:
  description:
    - Each all-reduce with its hosts, its bus bandwidth in GB/s, what its slowest link carries, and the reasons of a
      failure.
  returned: with O(stage=judge)
  type: list
  elements: dict
json:
  description: Path of the results.
  returned: with O(stage=judge)
  type: str
picture:
  description: Path of the matrix, an SVG file.
  returned: with O(stage=judge)
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "stage": {"type": "str", "choices": ["plan", "judge"], "required": True},
    "gpus": {"type": "str", "required": True},
    "nics": {"type": "str", "default": ""},
    "rounds": {"type": "list", "elements": "dict", "default": []},
    "results": {"type": "str", "default": ""},
    "tests": {"type": "str", "default": ""},
}


def main() -> None:
    """Refuse: Ansible runs the action of the same name instead."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="fleet_acceptance runs on the controller, as a task of a play")


if __name__ == "__main__":
    main()
