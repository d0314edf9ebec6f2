#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a role has installed and configured."""

from __future__ import annotations

DOCUMENTATION = r"""
module: managed_record
short_description: Record what a role has installed and configured on a host
version_added: 1.0.0
description:
  - Written at the end of a role that has converged. M(gpu.fleet.managed_facts) then finds what differs from it, in one
    run for all roles, so that a role with nothing to do need not run any module.
  - Reads the state of everything that is to be recorded, and fails with the names of what does not match.
  - The record is a file in C(/var/lib/gpu-fleet/managed) that only root can read. User and password in URLs, as in URLs
    of proxies, are left out of it.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode nothing that the role would install exists yet, so nothing is refused.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  role:
    description:
      - The name of the record, which is the name of the role. A role that can be used several times on a host adds a
        suffix for each use, as in V(nvidia_repository.cuda).
    type: str
    required: true
  state:
    description: V(absent) removes the record, and its directories when they are empty.
    type: str
    choices: [present, absent]
    default: present
  inputs:
    description:
      - The request to the role, as one string, usually a hash of its variables. The role compares it with the string of
        the next run.
    type: str
    default: ""
  files:
    description:
      - Files, links and directories that must not change, absolute paths with V(*) and V(?) in any component. Each must
        match something.
      - Recorded are content, mode, owner and group of a file, mode, owner and group of a directory, the target of a
        link. A file of more than 8 MiB is recorded by size and modification time.
    type: list
    elements: str
    default: []
  absent:
    description: Paths that must not exist, in the format of O(files).
    type: list
    elements: str
    default: []
  lines:
    description: Lines that a shared file must have, by its path. Leading and trailing space is ignored.
    type: dict
    default: {}
  absent_lines:
    description:
      - Regular expressions that no line may match, by paths with V(*) and V(?). Files of O(files) are excluded.
    type: dict
    default: {}
  json_values:
    description:
      - Values that a shared JSON file must have, by its path. Other keys of a mapping may have any value, at any depth.
    type: dict
    default: {}
  packages:
    description:
      - Packages that must stay installed, in any version. Virtual packages are not accepted.
      - A key in the keyring of C(rpm) is a package, too, as in V(gpg-pubkey-d42d0685).
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
      - Required states of systemd units by their full names, C(enabled) and C(active), each true or false. A state that
        is left out may be either.
      - C(started_after) is a list of files, in the format of O(files), that the running process has to have read. A
        start before the last change of one of them is drift. A unit that does not run reads them when it is started.
      - C(same_start), true or false, claims that the process stays the one that runs now. A restart is drift, and so is
        a start that is not known, as without systemd.
    type: dict
    default: {}
  group_members:
    description: Users that must be in a group of the host, by its name.
    type: dict
    default: {}
  secrets:
    description:
      - Secret inputs of the role, as one string. Recorded is a digest of it with a key that never leaves the host;
        M(gpu.fleet.managed_facts) compares it with the next run.
    type: str
    default: ""
  data:
    description: Additional data of the role, returned in the facts.
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
      example.service: {enabled: true, active: true, started_after: [/etc/example.conf]}

- name: Remove the record
  gpu.fleet.managed_record:
    role: example
    state: absent
"""

RETURN = r"""
record:
  description: Path of the record.
  returned: always
  type: str
  sample: /var/lib/gpu-fleet/managed/example.json
unmet:
  description: What does not match the options. The module fails because of it, except in check mode.
  returned: always
  type: list
  elements: dict
  contains:
    kind:
      description: Kind, as in the facts of M(gpu.fleet.managed_facts).
      type: str
      sample: package
    name:
      description: Name of the file, package, unit or group.
      type: str
      sample: example
    message:
      description: What does not match.
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
    "secrets": {"type": "str", "default": "", "no_log": True},
    **{name: {"type": "list", "elements": "str", "default": []} for name in LISTS},
    **{name: {"type": "dict", "default": {}} for name in DICTS},
}


def main() -> None:
    """Record and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, HOST)
    except RunError as error:
        module.fail_json(msg=str(error), **error.result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
