#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has drifted on a host since roles converged it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_facts
short_description: Find what has drifted since roles converged a host
version_added: 1.0.0
description:
  - Compares what M(gpu.fleet.managed_record) has recorded for each role with the host, for all roles in one run.
  - A role decides from these facts whether anything has to be done, without running another module.
  - Takes no lock of a package manager and uses no network. Besides reading files it runs C(rpm) and C(systemctl) at
    most once each.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes.facts
options:
  secrets:
    description:
      - Secret inputs of roles by the name of the record, as given to M(gpu.fleet.managed_record). A difference is drift
        of the kind V(secret). Secrets of other roles are not compared.
    type: dict
    default: {}
seealso:
  - module: gpu.fleet.managed_record
"""

EXAMPLES = r"""
- name: Read what has drifted
  gpu.fleet.managed_facts:

- name: Converge when something differs from what was recorded, or something else is requested
  ansible.builtin.include_tasks: install.yml
  vars:
    example_record: "{{ ansible_facts['gpu_fleet_managed']['example'] | default({'inputs': '', 'drift': []}) }}"
    example_inputs: "{{ {'version': example_version} | to_json | hash('sha256') }}"
  when: example_record['inputs'] != example_inputs or example_record['drift'] | length > 0
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to C(ansible_facts).
  returned: always
  type: dict
  contains:
    gpu_fleet_managed:
      description:
        - Recorded data and drift by the name of the record, which is the name of the role.
        - A role without a record is missing, and so is one whose record is damaged, for which there is a warning.
      returned: always
      type: dict
      sample:
        cuda:
          inputs: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
          data: {}
          drift:
            - kind: file
              name: /etc/profile.d/cuda.sh
              message: /etc/profile.d/cuda.sh was changed
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._managed.run import gather

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {"secrets": {"type": "dict", "default": {}, "no_log": True}}


def main() -> None:
    """Compare and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    managed, warnings = gather(HOST, {name: str(text) for name, text in module.params["secrets"].items()})
    for warning in warnings:
        module.warn(warning)
    module.exit_json(ansible_facts={"gpu_fleet_managed": managed})


if __name__ == "__main__":
    main()
