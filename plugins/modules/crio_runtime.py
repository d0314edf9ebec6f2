#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configure a runtime of CRI-O in a drop-in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: crio_runtime
short_description: Add a runtime to CRI-O in a drop-in
version_added: 1.0.0
description:
  - Made for the role P(gpu.fleet.nvidia_container_toolkit#role) of this collection; its options may change in any
    version.
  - Writes a drop-in with a runtime for CRI-O. The runtime is a copy of the default one, with its C(monitor_path), as
    C(crio config) prints it. CRI-O otherwise looks for C(conmon) in C(PATH), where upstream packages do not have it.
  - The new configuration is validated with C(crio config) before it is written, and so are the programs of the runtime
    and of its monitor. What CRI-O checks at its start alone is found by the restart.
  - CRI-O is not restarted.
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
  name:
    description: Name of the runtime.
    type: str
    default: nvidia
  binary:
    description: Path of its program.
    type: path
    default: /usr/bin/nvidia-container-runtime
  state:
    description: V(absent) removes the drop-in.
    type: str
    choices: [present, absent]
    default: present
  cdi:
    description:
      - Whether CRI-O reads CDI specifications in C(/etc/cdi) and C(/var/run/cdi), which is its default. Other
        directories in its configuration are kept.
    type: bool
    default: true
  default:
    description: Whether it is the default runtime.
    type: bool
    default: false
  config:
    description: Path of CRI-O's main file, which need not exist.
    type: path
    default: /etc/crio/crio.conf
  drop_in:
    description: Path of the drop-in. CRI-O reads all files of its directory.
    type: path
    default: /etc/crio/crio.conf.d/99-nvidia.conf
  executable:
    description: Name or path of CRI-O.
    type: str
    default: crio
seealso:
  - module: gpu.fleet.unit_restart
"""

EXAMPLES = r"""
- name: Add NVIDIA's runtime
  gpu.fleet.crio_runtime:
  register: crio_runtime

- name: Restart CRI-O if it has not read its configuration
  gpu.fleet.unit_restart:
    name: crio.service
    started_after: [/etc/crio/crio.conf, /etc/crio/crio.conf.d/*]
    previous: "{{ crio_runtime.previous }}"
"""

RETURN = r"""
files:
  description: Files that were written or removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [/etc/crio/crio.conf.d/99-nvidia.conf]
previous:
  description: The content that these files had, null for one that did not exist, for M(gpu.fleet.unit_restart).
  returned: success
  type: dict
  sample: {/etc/crio/crio.conf.d/99-nvidia.conf: null}
program:
  description:
    - Path of the program of the runtime that was copied, which NVIDIA's runtime does not find in E(PATH).
    - Empty where it does, with O(state=absent), and where CRI-O has no runtime to copy.
  returned: success
  type: str
  sample: /usr/libexec/crio/crun
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._files.crio_run import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "default": "nvidia"},
    "binary": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "cdi": {"type": "bool", "default": True},
    "default": {"type": "bool", "default": False},
    "config": {"type": "path", "default": "/etc/crio/crio.conf"},
    "drop_in": {"type": "path", "default": "/etc/crio/crio.conf.d/99-nvidia.conf"},
    "executable": {"type": "str", "default": "crio"},
}


def main() -> None:
    """Converge the drop-in and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module)
    except ChangeError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
