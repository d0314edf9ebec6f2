#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restart a unit that has not read its configuration."""

from __future__ import annotations

DOCUMENTATION = r"""
module: unit_restart
short_description: Restart a systemd service that was started before its configuration was written
version_added: 1.0.0
description:
  - Made for the roles P(gpu.fleet.backend_ai_agent#role), P(gpu.fleet.docker#role), P(gpu.fleet.enroot#role),
    P(gpu.fleet.nvidia_container_toolkit#role), P(gpu.fleet.nvidia_dcgm#role) and P(gpu.fleet.slurm_gres#role) of this
    collection; its options may change in any version.
  - Restarts a running service when one of its files was changed after systemd started its process, and one that has
    failed. A stopped service is left stopped, as it reads its files when it is started.
  - Unlike a handler it also finds the restart that an interrupted run has left out.
  - A service that does not start is reported with the output of C(systemctl). Its previous files are restored and it is
    restarted with them where O(previous) has them.
  - In check mode, or with C(check_mode) of the task, it reports whether a restart is needed.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - A file that an earlier task would write in check mode is unchanged yet.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description: Full name of the service.
    type: str
    required: true
  started_after:
    description:
      - Files that the running process has to have read, absolute paths with V(*) and V(?) in any component. Files that
        do not exist, and those with a time in the future, are ignored.
      - A directory stands for the addition and removal of its entries.
    type: list
    elements: str
    required: true
  previous:
    description: Previous content by path of the files that were changed, null for a file that did not exist.
    type: dict
    default: {}
seealso:
  - module: gpu.fleet.managed_record
"""

EXAMPLES = r"""
- name: Restart containerd if it has not read its configuration
  gpu.fleet.unit_restart:
    name: containerd.service
    started_after: [/etc/containerd/config.toml, /etc/containerd/conf.d/*.toml]

- name: Find whether Docker has to be restarted
  gpu.fleet.unit_restart:
    name: docker.service
    started_after: [/etc/docker/daemon.json]
  check_mode: true
  register: docker_restart_needed
"""

RETURN = r"""
reason:
  description: Why it was restarted, or would be in check mode; empty where it was not.
  returned: success, and a failure after changes
  type: str
  sample: docker.service was started before the last change of /etc/docker/daemon.json
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._managed.restart import run

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "started_after": {"type": "list", "elements": "str", "required": True},
    "previous": {"type": "dict", "default": {}},
}


def main() -> None:
    """Restart where needed and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, HOST)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
