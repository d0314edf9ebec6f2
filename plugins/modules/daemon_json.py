#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge options into Docker's daemon.json, which several tools write."""

from __future__ import annotations

DOCUMENTATION = r"""
module: daemon_json
short_description: Merge options into Docker's daemon.json
version_added: 0.1.0
description:
  - Made for the roles P(gpu.fleet.docker#role) and P(gpu.fleet.nvidia_container_toolkit#role) of this collection; its
    options may change in any version.
  - Merges options into the file and leaves every other key as it is, at every depth. A file that is not a JSON object
    is refused and left untouched.
  - The new text is checked by C(dockerd --validate), where the engine has that (23 and newer), then written atomically.
    A backup is kept next to it. What another process writes in between is read again and kept.
  - Docker itself is not restarted.
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
  options:
    description:
      - The options, as in C(daemon.json). Objects are merged, lists and values replaced.
    type: dict
    default: {}
  earlier:
    description:
      - The options that an earlier run has merged. Those that are no longer in O(options) are taken out again, where
        they still have this value.
    type: dict
    default: {}
  on_conflict:
    description:
      - What to do where somebody else has set another value than O(options). A value of O(earlier) is no conflict.
      - V(ours) replaces it.
      - V(fail) names it, and leaves the file untouched.
    type: str
    choices: [ours, fail]
    default: ours
  path:
    description:
      - The file. Links are followed.
    type: path
    default: /etc/docker/daemon.json
  executable:
    description:
      - The engine that checks the file. One that is not there, or too old to check, is not asked.
    type: str
    default: dockerd
"""

EXAMPLES = r"""
- name: Let containers run on while Docker restarts
  gpu.fleet.daemon_json:
    options:
      live-restore: true

- name: Set a mirror, but do not fight over it
  gpu.fleet.daemon_json:
    options:
      registry-mirrors: [https://mirror.example.com]
    on_conflict: fail

- name: Take an option out again
  gpu.fleet.daemon_json:
    earlier:
      live-restore: true
"""

RETURN = r"""
options:
  description: All options of the file, those of others too.
  returned: success
  type: dict
  sample: {"live-restore": true}
conflicts:
  description: Where somebody else had set another value, dotted.
  returned: success
  type: list
  elements: str
  sample: []
created:
  description: Whether there was no file before.
  returned: success
  type: bool
  sample: false
backup_file:
  description: The file as it was before.
  returned: when a file was there and has changed
  type: str
  sample: /etc/docker/daemon.json.4711.2026-01-31@12:00:00~
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._files.daemon_json_run import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "options": {"type": "dict", "default": {}},
    "earlier": {"type": "dict", "default": {}},
    "on_conflict": {"type": "str", "choices": ["ours", "fail"], "default": "ours"},
    "path": {"type": "path", "default": "/etc/docker/daemon.json"},
    "executable": {"type": "str", "default": "dockerd"},
}


def main() -> None:
    """Merge the options and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module)
    except ChangeError as error:
        module.fail_json(msg=str(error), exception=error)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
