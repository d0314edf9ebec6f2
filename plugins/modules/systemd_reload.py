#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reload systemd, and name the running containers with GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: systemd_reload
short_description: Reload systemd where a unit has changed, and name the running containers with GPUs
version_added: 1.0.0
description:
  - Made for the roles P(gpu.fleet.docker#role), P(gpu.fleet.nvidia_container_toolkit#role) and
    P(gpu.fleet.nvidia_driver#role) of this collection; its options may change in any version.
  - A reload has systemd set the device rules of running containers again. Containers that got their GPUs by a hook and
    not by CDI lose them. A warning names the running containers with GPUs, if there are any.
  - Nothing is reloaded where none of O(units) has changed, and where systemd does not run.
  - In check mode, or with C(check_mode) of the task, it only warns.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - A unit that an earlier task would write in check mode is unchanged yet.
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - Without O(units) each run reloads.
options:
  units:
    description:
      - Units of which one has to differ from what systemd has read, with its drop-ins. Without any, systemd is reloaded
        in any case.
    type: list
    elements: str
    default: []
seealso:
  - module: gpu.fleet.unit_restart
"""

EXAMPLES = r"""
- name: Reload systemd for the drop-ins of Docker
  gpu.fleet.systemd_reload:
    units: [docker.service]

- name: Name the containers that a reload by a package can take the GPUs from
  gpu.fleet.systemd_reload:
  check_mode: true
  register: example_reload
  changed_when: false # a preview
"""

RETURN = r"""
containers:
  description:
    - Running containers with GPUs whose cgroups systemd manages, those with CDI among them. Empty where nothing is
      reloaded.
  returned: success
  type: list
  elements: dict
  contains:
    engine:
      description: Its engine, V(docker), V(podman), V(nerdctl), V(containerd) or V(CRI-O).
      type: str
      sample: docker
    name:
      description:
        - Its name, of a pod V(NAMESPACE/POD/CONTAINER), or the beginning of its ID where the engine reports none.
      type: str
      sample: training
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._managed.reload import reload

HOST = HostFiles()
# systemctl itself reports where systemd does not run.
SYSTEMD = Systemd(booted="/")
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "units": {"type": "list", "elements": "str", "default": []},
}


def main() -> None:
    """Reload where needed and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = reload(module.params["units"], module.check_mode, HOST, SYSTEMD)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    for warning in result.pop("warnings"):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
