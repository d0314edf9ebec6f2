#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time in a directory. It is locked on the controller, see plugins/action/run_lock.py."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_lock
short_description: Have only one run at a time use a directory of the controller
version_added: 1.0.0
description:
  - Fails while another run of C(ansible-playbook) has the directory, and names its process and machine.
  - The lock belongs to the whole run. It ends with O(state=absent), or with the process of the run, however that ends,
    so that a run that was killed leaves nothing to clean up. On a file system that several controllers share, whether a
    process on another machine still runs is not known, and its lock counts.
  - The playbook C(gpu.fleet.upgrade) locks the directory of its plan and states so.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode nothing is locked, and a lock of another run is no failure.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - A lock is not a change.
options:
  directory:
    description:
      - Directory on the controller, which is created, for its owner only, where it is missing. The lock is its file
        C(lock).
    type: path
    required: true
  state:
    description:
      - V(present) locks the directory, also where this run has it already; V(absent) unlocks it where this run has it.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Refuse a second run of this playbook
  gpu.fleet.run_lock:
    directory: ~/.local/state/example
  run_once: true

- name: Allow the next run, also from another container
  gpu.fleet.run_lock:
    directory: ~/.local/state/example
    state: absent
  run_once: true
"""

RETURN = r"""
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "directory": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def main() -> None:
    """Refuse: Ansible runs the action of the same name instead."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="run_lock runs on the controller, as a task of a play")


if __name__ == "__main__":
    main()
