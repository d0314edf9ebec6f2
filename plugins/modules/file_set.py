#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Manage a set of text files on a host as one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: file_set
short_description: Manage a set of text files in one module run
version_added: 1.0.0
description:
  - Made for the role P(gpu.fleet.gpu_simulator#role) and others of this collection; its options may change in any
    version.
  - Writes the files of a set that differ, and removes those that an earlier run of the same set wrote and that the set
    no longer has.
  - For many small files that belong together. With M(ansible.builtin.copy) each of them takes two module runs, even
    when nothing has changed; this module is one run for all of them. M(ansible.builtin.unarchive) does not remove
    the files of an earlier archive, and in check mode fails on a host that does not have the directory yet.
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
      - Content of the files by absolute path. They get mode C(0644); missing directories are created.
      - With neither O(files) nor O(programs) all files of the set are removed.
    type: dict
    default: {}
  programs:
    description:
      - Content of the executable files by absolute path. They get mode C(0755).
    type: dict
    default: {}
  run_by_root:
    description:
      - Programs that root runs by the files of the set, such as an interpreter in a unit. Refused before anything is
        written where users other than root could change one of them, a directory above it, or what a link leads to.
    type: list
    elements: path
    default: []
  record:
    description:
      - Path of the file with the list of what the module wrote for this set. It belongs to the set.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Install a service
  gpu.fleet.file_set:
    record: /var/lib/example/files.json
    files:
      /etc/systemd/system/example.service: "{{ lookup('ansible.builtin.template', 'example.service.j2') }}"
      /etc/example.conf: |
        colour = green
    programs:
      /usr/local/bin/example: "{{ lookup('ansible.builtin.file', 'example.sh', rstrip=false) }}"

- name: Remove the files of the set
  gpu.fleet.file_set:
    record: /var/lib/example/files.json
"""

RETURN = r"""
written:
  description: Files that were written, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [/etc/example.conf]
removed:
  description: Files that were removed, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._files.file_set import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "files": {"type": "dict", "default": {}},
    "programs": {"type": "dict", "default": {}},
    "run_by_root": {"type": "list", "elements": "path", "default": []},
    "record": {"type": "path", "required": True},
}


def main() -> None:
    """Converge the set and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
