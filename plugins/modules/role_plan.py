#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a role. It is made on the controller, see plugins/action/role_plan.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: role_plan
short_description: Plan a role of this collection
version_added: 1.1.0
description:
  - Made for the roles of this collection; its options may change in any release.
  - Plans the role from its variables and the facts of the host, with the functions that the playbook C(gpu.fleet.site)
    calls before its first change. What the role cannot do fails here, in one message with all that is wrong.
  - A plan has no secret. What may have one, as the URL of a mirror with a password, is a part of its own, and the task
    that asks for it needs C(no_log).
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - It changes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - It changes nothing.
options:
  role:
    description:
      - The role.
    type: str
    choices: [nvidia_repository]
    required: true
  part:
    description:
      - V(plan) is what the role has to do. V(definitions) is what the tasks need to add a repository, with its URLs.
        V(packages) sorts the files of repository packages.
    type: str
    choices: [plan, definitions, packages]
    default: plan
  listed:
    description:
      - With O(part=packages) the files that are in the packages.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Plan the repositories
  gpu.fleet.role_plan:
    role: nvidia_repository
  register: planned
"""

RETURN = r"""
plans:
  description: The plan of each repository.
  returned: with O(part=plan), unless something is refused
  type: list
  elements: dict
definitions:
  description: What the tasks need to add each network repository.
  returned: with O(part=definitions)
  type: dict
keyrings:
  description: The keys among the files of repository packages.
  returned: with O(part=packages)
  type: list
  elements: str
files:
  description: Files of repository packages that must not change.
  returned: with O(part=packages)
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "role": {"type": "str", "choices": ["nvidia_repository"], "required": True},
    "part": {"type": "str", "choices": ["plan", "definitions", "packages"], "default": "plan"},
    "listed": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Refuse: Ansible runs the action of the same name instead."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="role_plan runs on the controller, as a task of a role")


if __name__ == "__main__":
    main()
