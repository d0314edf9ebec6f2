#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a role has installed and configured."""

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_record
short_description: Record what a role has installed and configured on a host
version_added: 0.1.0
description:
  - Made for the roles of this collection; its options may change in any version.
  - Written at the end of a role that has converged. M(gpu.fleet.managed_facts) then finds what differs from it, in one
    run for all roles, so that a role with nothing to do need not run any module.
  - Looks at everything that it is to record, and fails by name when something is not so.
  - The record is a file in C(/var/lib/gpu-fleet/managed), with mode C(0644).
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - What the role would have installed is not there yet in check mode, so nothing is refused.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  role:
    description:
      - The name of the record, that of the role. A role that can be used several times on a host adds what tells the
        uses apart, as in V(nvidia_repository.cuda).
    type: str
    required: true
  state:
    description: With V(absent) the record is removed, and its folders when they are empty.
    type: str
    choices: [present, absent]
    default: present
  inputs:
    description:
      - What the role was asked for, as one text, usually a hash over its variables. The role compares it with the next
        run's.
    type: str
    default: ""
  files:
    description:
      - Files, links and directories that are to stay as they are, absolute paths with V(*) and V(?) in any component.
        Each must match something.
      - Recorded are content, mode, owner and group of a file, mode, owner and group of a directory, the target of a
        link. A file of more than 8 MiB is known by its size and time of change.
    type: list
    elements: str
    default: []
  absent:
    description: What must stay away, as O(files).
    type: list
    elements: str
    default: []
  lines:
    description: Lines that a file shared with others has to have, by its path. Space around a line does not count.
    type: dict
    default: {}
  absent_lines:
    description:
      - Regular expressions that no line may match, by paths with V(*) and V(?). Files that O(files) has are left out.
    type: dict
    default: {}
  json_values:
    description:
      - What a JSON file shared with others has to have, by its path. Keys of a mapping that are not named may have any
        value, at any depth.
    type: dict
    default: {}
  packages:
    description:
      - Packages that must stay installed, in any version, by their real names.
      - A key in the keyring of C(rpm) is one too, as in V(gpg-pubkey-d42d0685).
    type: list
    elements: str
    default: []
  pinned_packages:
    description: Packages that must keep their version, and a hold or version lock of it where they have one now.
    type: list
    elements: str
    default: []
  held_packages:
    description:
      - Packages that must keep their version by C(apt-mark hold), or a version lock of C(dnf) for that version.
    type: list
    elements: str
    default: []
  units:
    description:
      - What systemd units are to be, C(enabled) and C(active), each true or false, by their full names. What is not
        named does not matter.
    type: dict
    default: {}
  group_members:
    description: Users that must be in a group of the host, by its name.
    type: dict
    default: {}
  data:
    description: What else the role is to find in the facts.
    type: dict
    default: {}
seealso:
  - module: gpu.fleet.managed_facts
"""

EXAMPLES = r"""
- name: Record what the role has installed
  gpu.fleet.managed_record:
    role: example
    inputs: "{{ {'version': example_version} | to_json | hash('sha256') }}"
    files: [/etc/example.conf, /usr/local/example]
    absent: [/etc/apt/sources.list.d/old-example*.list]
    json_values:
      /etc/docker/daemon.json: {features: {cdi: true}}
    packages: [example-common]
    held_packages: [example]
    units:
      example.service: {enabled: true, active: true}

- name: Forget what was recorded
  gpu.fleet.managed_record:
    role: example
    state: absent
"""

RETURN = r"""
record:
  description: The file of the record.
  returned: always
  type: str
  sample: /var/lib/gpu-fleet/managed/example.json
unmet:
  description: What is not as it is to be recorded. Outside of check mode that is a failure.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: Kind, as in the facts of M(gpu.fleet.managed_facts).
      type: str
      sample: package
    name:
      description: What it is about.
      type: str
      sample: example
    message:
      description: What is not so.
      type: str
      sample: example is not installed
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._managed.run import DICTS, LISTS, run

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "role": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "inputs": {"type": "str", "default": ""},
    **{name: {"type": "list", "elements": "str", "default": []} for name in LISTS},
    **{name: {"type": "dict", "default": {}} for name in DICTS},
}


def main() -> None:
    """Record and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, HOST)
    except RunError as error:
        module.fail_json(msg=str(error), exception=error, **error.result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
