#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of the fleet. It is made on the controller, see plugins/action/fleet_report.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Write the report of the fleet as a page, CSV and JSON
version_added: 1.0.0
description:
  - Writes C(report.html), C(report.csv) and C(report.json) on the controller, about all hosts of the play, from what
    earlier tasks have registered on them. Hosts that could not be reached or read are in the report, with the reason.
  - The page is one file that needs no network. It compares the fleet with the C(report.json) that it replaces.
  - The playbook C(gpu.fleet.report) does all of this.
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
      - A report is not a change, and differs at each run at least by its time.
options:
  directory:
    description:
      - Directory on the controller, which is created where it is missing.
    type: path
    required: true
  facts:
    description:
      - Name of the variable in which each host has registered M(gpu.fleet.report_facts).
    type: str
    required: true
  health:
    description:
      - Name of the variable in which each host has registered M(gpu.fleet.gpu_health).
    type: str
    required: true
notes:
  - Of each host it reads the variables C(gpu_fleet_rack), the name of its rack, C(gpu_fleet_rack_power_budget_kw), by
    default 20, and C(gpu_health_expected), what is declared for it.
  - Run it once, after tasks with C(ignore_unreachable) and C(failed_when=false).
seealso:
  - module: gpu.fleet.report_facts
  - module: gpu.fleet.gpu_health
"""

EXAMPLES = r"""
- name: Read what the report shows
  gpu.fleet.report_facts:
  register: example_facts
  ignore_unreachable: true
  failed_when: false

- name: Judge the health of the GPUs
  gpu.fleet.gpu_health:
  check_mode: true
  register: example_health
  ignore_unreachable: true
  failed_when: false
  when: example_facts is not unreachable

- name: Write the report
  gpu.fleet.fleet_report:
    directory: report
    facts: example_facts
    health: example_health
  run_once: true
"""

RETURN = r"""
html:
  description: Path of the page.
  returned: always
  type: str
  sample: /srv/gpu-fleet-report/report.html
csv:
  description: Path of the table, a line for each GPU.
  returned: always
  type: str
json:
  description: Path of all data.
  returned: always
  type: str
summary:
  description: The fleet in numbers, as in the JSON.
  returned: always
  type: dict
  contains:
    hosts:
      description: Hosts.
      returned: always
      type: int
    gpus:
      description: GPUs.
      returned: always
      type: int
    hosts_by_status:
      description: Numbers of hosts by status.
      returned: always
      type: dict
    gpus_by_verdict:
      description: Numbers of GPUs by verdict.
      returned: always
      type: dict
    hosts_by_remedy:
      description: Numbers of hosts by remedy.
      returned: always
      type: dict
    healthy_hosts:
      description: Hosts with nothing to do.
      returned: always
      type: int
    hosts_needing_action:
      description: Hosts with a problem, or that could not be read.
      returned: always
      type: int
    gpus_needing_action:
      description: GPUs with a problem.
      returned: always
      type: int
    memory_used_mib:
      description: GPU memory in use in MiB.
      returned: always
      type: int
    memory_total_mib:
      description: GPU memory in MiB.
      returned: always
      type: int
    power_draw_w:
      description: Power that the GPUs draw, in watts.
      returned: always
      type: float
    power_limit_w:
      description: Power that their limits allow, in watts.
      returned: always
      type: float
changes:
  description: Number of differences from the last report.
  returned: always
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "directory": {"type": "path", "required": True},
    "facts": {"type": "str", "required": True},
    "health": {"type": "str", "required": True},
}


def main() -> None:
    """Refuse: Ansible runs the action of the same name instead."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="fleet_report runs on the controller, as a task of a play")


if __name__ == "__main__":
    main()
