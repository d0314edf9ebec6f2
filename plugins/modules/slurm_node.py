#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain a node of Slurm and return it to service
version_added: 1.0.0
description:
  - Drains a node, reports whether jobs are on it, and returns it to service. Without O(state) it only reads.
  - A node that is drained or down for another reason, as by an operator, is never changed; RV(own) is V(false) then.
  - Runs on any host that has C(scontrol), C(squeue) and C(scancel) and may change nodes, such as the host of slurmctld.
    It does not wait; a task can do so with C(until) and RV(idle) or RV(responding).
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description: Name of the node, C(NodeName) in C(slurm.conf). One node, not an expression for several.
    type: str
    required: true
  state:
    description:
      - V(drained) lets the node take no new jobs; those on it go on.
      - V(in_service) resumes the node where O(owner) has drained it.
    type: str
    choices: [drained, in_service]
  owner:
    description:
      - Begins the reason of the drain, and distinguishes it from drains of others. Required with O(state).
    type: str
    default: ""
  reason:
    description:
      - Why the node is drained. Another reason replaces the reason of an earlier drain of the same O(owner).
    type: str
    default: ""
  jobs:
    description:
      - What happens to the jobs on a node with O(state=drained). V(cancel) cancels all of them, of any user.
    type: str
    choices: [keep, cancel]
    default: keep
  take_over:
    description:
      - The id of another run of this collection whose drain counts as a drain of O(owner), as after its controller was
        lost. It is the second word of the reason, before the colon.
    type: str
    default: ""
  directory:
    description:
      - The directory that Slurm is installed in, an absolute path such as V(/opt/slurm), with its commands in C(bin).
      - Without it they are looked up in E(PATH).
    type: path
  timeout:
    description:
      - Seconds after which each of Slurm's commands is ended. From 0.1 to 86400.
    type: float
    default: 60
seealso:
  - name: Slurm's documentation of scontrol
    description: The states of nodes.
    link: https://slurm.schedmd.com/scontrol.html
"""

EXAMPLES = r"""
- name: Drain a node
  gpu.fleet.slurm_node:
    name: gpu1
    state: drained
    owner: maintenance 42
    reason: new driver
  delegate_to: slurm-controller

- name: Wait until its jobs have ended
  gpu.fleet.slurm_node:
    name: gpu1
  delegate_to: slurm-controller
  register: node
  until: node.idle
  retries: 120
  delay: 30

- name: Return it to service
  gpu.fleet.slurm_node:
    name: gpu1
    state: in_service
    owner: maintenance 42
  delegate_to: slurm-controller
"""

RETURN = r"""
commands:
  description: The commands that were run, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: list
  sample: [[scontrol, update, NodeName=gpu1, State=RESUME]]
states:
  description: The state of the node, and the flags on top of it.
  returned: success
  type: list
  elements: str
  sample: [MIXED, DRAIN]
reason:
  description:
    - Why it takes no jobs, empty where it may take some. Without a drain that is its state, as
      V(its state is INVALID_REG).
  returned: success
  type: str
  sample: "maintenance 42: new driver"
in_service:
  description:
    - Whether it may take jobs. A node with a state or flag that is not known to take any, such as V(INVALID_REG), is
      not in service.
  returned: success
  type: bool
responding:
  description: Whether its slurmd responds, which takes some seconds after a reboot.
  returned: success
  type: bool
own:
  description: Whether O(owner) has taken it out of service.
  returned: success
  type: bool
refusal:
  description:
    - Why nothing is done with O(state=drained), where another run of this collection has drained the node; empty where
      none has. Only for an O(owner) of the form V(gpu.fleet RUN).
  returned: success
  type: str
idle:
  description: Whether no job is on it.
  returned: success
  type: bool
jobs:
  description:
    - The jobs on it, also those that are being cleaned up, without their names, which users write.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: Id, with the task id in an array.
      returned: always
      type: str
      sample: "4711_3"
    state:
      description: State.
      returned: always
      type: str
      sample: RUNNING
    user:
      description: User.
      returned: always
      type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._slurm.run import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "in_service"]},
    "owner": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "jobs": {"type": "str", "choices": ["keep", "cancel"], "default": "keep"},
    "take_over": {"type": "str", "default": ""},
    "directory": {"type": "path"},
    "timeout": {"type": TIMEOUT, "default": 60},
}


def main() -> None:
    """Drain or resume, and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
