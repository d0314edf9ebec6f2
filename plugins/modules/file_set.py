#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a set of text files on a host as one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_set
short_description: Make a whole set of text files be as declared
version_added: 0.1.0
description:
  - Made for the role P(gpu.fleet.gpu_simulator#role) of this collection; its options may change in any version.
  - Writes the files of a set that differ, leaves those that do not, and removes what an earlier run of the same set
    wrote and the set no longer has.
  - For many small files that belong together. With M(ansible.builtin.copy) each of them costs two module runs, even
    when nothing is to do; this module is one run for all of them. M(ansible.builtin.unarchive) leaves the files that an
    earlier archive had, and in check mode fails on a host that does not have the directory yet.
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
  files:
    description:
      - The files of the set, absolute path to content. They get mode C(0644); folders that are missing are made.
      - With neither O(files) nor O(programs) everything that the set had is removed.
    type: dict
    default: {}
  programs:
    description:
      - Files of the set that can be executed, absolute path to content. They get mode C(0755).
    type: dict
    default: {}
  record:
    description:
      - Where the module keeps the list of what it wrote for this set. The file belongs to the set.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Lay out a service
  gpu.fleet.file_set:
    record: /var/lib/example/files.json
    files:
      /etc/systemd/system/example.service: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"
      /etc/example.conf: |
        colour = green
    programs:
      /usr/local/bin/example: "{{ lookup('ansible.builtin.file', 'example.sh', rstrip=false) }}"

- name: Remove what the set had
  gpu.fleet.file_set:
    record: /var/lib/example/files.json
"""

RETURN = r"""
written:
  description: The files that were written, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/example.conf]
removed:
  description: The files that were removed, or would be.
  returned: success
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._files.file_set import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "files": {"type": "dict", "default": {}},
    "programs": {"type": "dict", "default": {}},
    "record": {"type": "path", "required": True},
}


def main() -> None:
    """Converge the set and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode)
    except ChangeError as error:
        module.fail_json(msg=str(error), exception=error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
