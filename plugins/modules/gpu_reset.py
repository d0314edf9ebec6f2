#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reset GPUs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_reset
short_description: Reset NVIDIA GPUs that nothing uses
version_added: 1.0.0
description:
  - Resets GPUs by C(nvidia-smi --gpu-reset), and reads them again. This is an action and no state, so each run resets;
    the playbook C(gpu.fleet.remediate) decides when.
  - The services that use the GPUs permanently (persistence daemon, DCGM and its exporters) are stopped before and
    started again afterwards, also after a failure. Nothing else is ended; a GPU that a process uses is refused, with
    its name.
  - GPUs that C(nvidia-smi) resets only together are reset together only where all of them are in O(gpus).
  - A GPU in MIG mode is refused, since a reset destroys its instances.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
  - gpu.fleet.nvidia_smi
attributes:
  check_mode:
    support: full
    details:
      - Whether the GPUs are in use is only known once the services have let go of them.
  diff_mode:
    support: none
  idempotent:
    support: none
options:
  gpus:
    description:
      - GPUs to reset, each by index, UUID or PCI bus id, or V(all). Each must match a GPU of the host.
      - Required without O(fabric). An empty list is refused, as it names no GPU.
    type: list
    elements: str
  fabric:
    description:
      - Whether all GPUs of the host are reset with one call, so that NVSwitches are reset as well. The Fabric Manager
        is stopped meanwhile.
    type: bool
    default: false
  clients:
    description:
      - Further units that hold GPUs, and have to let go of them meanwhile.
    type: list
    elements: str
    default: []
  lock_timeout:
    description:
      - Seconds to wait for another run on the same host to end.
      - From 0 to 86400.
    type: float
    default: 300
seealso:
  - module: gpu.fleet.gpu_health
"""

EXAMPLES = r"""
- name: Reset a GPU whose memory rows wait for it
  gpu.fleet.gpu_reset:
    gpus: ["0"]

- name: Reset all GPUs and NVSwitches together
  gpu.fleet.gpu_reset:
    fabric: true
"""

RETURN = r"""
gpus:
  description: UUIDs of the GPUs that were to be reset.
  returned: always
  type: list
  elements: str
  sample: [GPU-5ee00000-0000-4000-8000-000000000000]
reset:
  description:
    - UUIDs of the GPUs that were reset, or would be in check mode. After a failure it also has those that may have been
      reset, as when C(nvidia-smi) did not respond.
  returned: always
  type: list
  elements: str
  sample: [GPU-5ee00000-0000-4000-8000-000000000000]
blockers:
  description: Processes that use one of the GPUs, so that it was not reset.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description: Name of the process.
      returned: always
      type: str
      sample: python3
    pid:
      description: Process id.
      returned: always
      type: int
      sample: 4711
    device:
      description: Device file that it has open.
      returned: always
      type: str
      sample: /dev/nvidia0
    stop:
      description: What to stop, where known.
      returned: always
      type: str
      sample: null
stopped_services:
  description:
    - Units that were stopped and started again, in check mode those that would be.
    - After a failure this alone is a change.
  returned: always
  type: list
  elements: str
  sample: [nvidia-persistenced.service]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._change.reset_run import run
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import TIMEOUT, WAIT
from ansible_collections.gpu.fleet.plugins.module_utils._common.result import run_module

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "gpus": {"type": "list", "elements": "str"},
    "fabric": {"type": "bool", "default": False},
    "clients": {"type": "list", "elements": "str", "default": []},
    "executable": {"type": "str", "default": "nvidia-smi"},
    "timeout": {"type": TIMEOUT, "default": 60.0},
    "lock_timeout": {"type": WAIT, "default": 300.0},
}


def main() -> None:
    """Reset and return."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        required_if=[("fabric", False, ("gpus",))],
        supports_check_mode=True,
    )
    run_module(module, run)


if __name__ == "__main__":
    main()
