#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Merge options into Docker's daemon.json, which several tools write."""

from __future__ import annotations

DOCUMENTATION = r"""
module: daemon_json
short_description: Merge options into Docker's daemon.json
version_added: 1.0.0
description:
  - Made for the roles P(gpu.fleet.docker#role) and P(gpu.fleet.nvidia_container_toolkit#role) of this collection; its
    options may change in any version.
  - Merges options into the file and keeps every other key, at every depth. A file that is not a JSON object is refused
    and left unchanged. A byte order mark is dropped with the next change.
  - The new content is validated by C(dockerd --validate), which Docker 23 and newer have, in check mode as well, and
    with the arguments that C(docker.service) gives it, then written atomically. A
    backup is kept next to it. A change that another process makes in the meantime is read and kept.
  - A file with user and password in a URL, such as the URL of a proxy, gets the mode C(0600); the result has C(***)
    there.
  - A file that is left without any option is removed.
  - Docker is not restarted.
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
      - C(data-root) and C(exec-root) have to be absolute paths.
    type: dict
    default: {}
  earlier:
    description:
      - Options that an earlier run merged. Those that are no longer in O(options) are removed where they still have
        this value. User and password of a URL may be C(***) here.
    type: dict
    default: {}
  on_conflict:
    description:
      - What to do about an option with another value than in O(options). A value of O(earlier) is no conflict.
      - V(ours) replaces the value.
      - V(fail) fails with the names of these options, and leaves the file unchanged.
    type: str
    choices: [ours, fail]
    default: ours
  path:
    description:
      - Path of the file. Symbolic links are followed.
    type: path
    default: /etc/docker/daemon.json
  executable:
    description:
      - Name or path of the engine that validates the file. Without one, or with one that is too old, the file is not
        validated.
    type: str
    default: dockerd
"""

EXAMPLES = r"""
- name: Keep containers running while Docker restarts
  gpu.fleet.daemon_json:
    options:
      live-restore: true

- name: Set a mirror, unless another one is configured
  gpu.fleet.daemon_json:
    options:
      registry-mirrors: [https://mirror.example.com]
    on_conflict: fail

- name: Remove an option of an earlier run
  gpu.fleet.daemon_json:
    earlier:
      live-restore: true
"""

RETURN = r"""
options:
  description: All options of the file, including unmanaged ones, with C(***) for user and password in URLs.
  returned: success
  type: dict
  sample: {"live-restore": true}
conflicts:
  description: Dotted paths of options that had another value.
  returned: success
  type: list
  elements: str
  sample: []
differs:
  description: Whether the file differed from what is requested, as C(changed), also in a task with C(changed_when).
  returned: success
  type: bool
  sample: true
created:
  description: Whether the file was created.
  returned: success
  type: bool
  sample: false
backup_file:
  description: Backup of the previous file.
  returned: when an existing file was changed, also in a failure after that
  type: str
  sample: /etc/docker/daemon.json.4711.2026-01-31@12:00:00~
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
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
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
