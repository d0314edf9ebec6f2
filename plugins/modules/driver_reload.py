#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load the installed NVIDIA driver."""

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_reload
short_description: Load the installed NVIDIA driver without a reboot
version_added: 1.0.0
description:
  - Compares the kernel modules that are loaded with those on disk. Where they differ, in version or in kind, it unloads
    the old ones and loads the new ones, if nothing uses them.
  - The services that use the GPUs permanently (persistence daemon, the MPS daemon of M(gpu.fleet.gpu_state), Fabric
    Manager, IMEX, DCGM and its exporters) are stopped before and started again afterwards, also after a failure. An MPS
    daemon that has clients is not stopped, and the module fails with their names.
  - Processes are never killed. If anything uses the driver, nothing is unloaded, RV(blockers) has the names, and
    RV(reboot_required) is true.
  - Needs no C(nvidia-smi), which fails while driver and libraries differ.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - Whether the kernel accepts the module is only known after loading it.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  services:
    description:
      - Additional units to stop while the modules are replaced, such as units of jobs. They are started again.
    type: list
    elements: str
    default: []
  parameters:
    description:
      - Parameters that the loaded driver has to have, by names such as C(NVreg_EnableGpuFirmware). Where it was loaded
        with other ones, it is reloaded. They have to be configured in C(/etc/modprobe.d) before.
      - Only those that C(/proc/driver/nvidia/params) shows are compared.
    type: dict
    default: {}
  timeout:
    description:
      - Timeout of one call of C(modprobe) in seconds.
      - From 0.1 to 86400.
    type: float
    default: 120
seealso:
  - module: gpu.fleet.cuda_facts
"""

EXAMPLES = r"""
- name: Load the driver that was just installed
  gpu.fleet.driver_reload:
  register: driver

- name: Reboot where something uses the previous one
  ansible.builtin.reboot:
  when: driver.reboot_required
"""

RETURN = r"""
action:
  description: The action that was required, V(none), V(load) or V(reload).
  returned: always
  type: str
  sample: reload
reason:
  description: Why the driver on disk is not loaded; V(null) when it is.
  returned: always
  type: str
  sample: "python3 (PID 4711) holds /dev/nvidia0"
reboot_required:
  description: Whether loading the driver on disk takes a reboot.
  returned: always
  type: bool
  sample: true
loaded_version_before:
  description: Version of the loaded kernel module before; V(null) for none.
  returned: always
  type: str
  sample: 550.163.01
loaded_version:
  description: Version of the loaded kernel module; V(null) for none.
  returned: always
  type: str
  sample: 580.159.04
installed_version:
  description: Version on disk; V(null) for none.
  returned: always
  type: str
  sample: 580.159.04
users:
  description:
    - Processes and kernel modules that used the loaded driver when the module began, except for the services that it
      stops.
    - In check mode this shows whether GPUs are in use before the packages of the driver are replaced.
  returned: always
  type: list
  elements: dict
  contains: &user
    name:
      description: Name of the process or of the kernel module.
      type: str
      sample: python3
    pid:
      description: Process id; V(null) for a kernel module.
      type: int
      sample: 4711
    device:
      description: Device file or kernel module that it uses.
      type: str
      sample: /dev/nvidia0
    stop:
      description: What to stop, where known.
      type: str
      sample: null
blockers:
  description: Processes and kernel modules that prevented the driver from being unloaded.
  returned: always
  type: list
  elements: dict
  contains: *user
stopped_services:
  description: Units that were stopped and started again, in check mode those that would be.
  returned: always
  type: list
  elements: str
  sample: [nvidia-persistenced.service]
commands:
  description: The calls of modprobe, in order.
  returned: always
  type: list
  elements: str
  sample: [modprobe --remove nvidia_uvm nvidia, modprobe nvidia, modprobe nvidia_uvm]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.reload import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "services": {"type": "list", "elements": "str", "default": []},
    "parameters": {"type": "dict", "default": {}},
    "timeout": {"type": TIMEOUT, "default": 120.0},
}


def main() -> None:
    """Reload and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode)
    except RunError as error:
        module.fail_json(msg=str(error), **error.result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
