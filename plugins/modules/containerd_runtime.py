#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configure a runtime of containerd in a drop-in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_runtime
short_description: Add a runtime to containerd in a drop-in
version_added: 1.0.0
description:
  - Made for the role P(gpu.fleet.nvidia_container_toolkit#role) of this collection; its options may change in any
    version.
  - Writes a drop-in with a runtime for containerd's CRI plugin, which Kubernetes uses, and adds its import to
    C(config.toml). Everything else in C(config.toml) is kept, other imports too.
  - containerd 1.x takes the whole section of a plugin from the last file that has it. The drop-in therefore repeats the
    effective configuration of the CRI plugin. It is generated again when that has changed.
  - containerd 2 merges the tables of all files, so the drop-in has the runtime alone, in the version of C(config.toml).
    A drop-in of a newer version would put the CRI settings of C(config.toml) out of effect, or be refused.
  - A containerd whose CRI plugin is disabled, as by the package C(containerd.io), is refused, and so is a
    C(config.toml) of version 1 that names plugins under containerd 1.x.
  - The new configuration is validated with C(containerd config dump). When containerd refuses it, or a file cannot be
    written, all files are restored, and the backup of C(config.toml) is removed.
  - A C(config.toml) that is a symbolic link stays one.
  - containerd is not restarted.
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
    description: Path of its program. Otherwise the runtime is a copy of the default one.
    type: path
    default: /usr/bin/nvidia-container-runtime
  state:
    description: V(absent) removes the drop-in, and its import when no other file needs it.
    type: str
    choices: [present, absent]
    default: present
  cdi:
    description: Whether the plugin reads CDI specifications. Supported since containerd 1.7.
    type: bool
    default: true
  default:
    description:
      - Whether it is the default runtime. Where containerd's own configuration has chosen it, V(false) is refused, as
        pods without a RuntimeClass would lose their GPUs.
    type: bool
    default: false
  config:
    description: Path of containerd's configuration, which is created if it is missing.
    type: path
    default: /etc/containerd/config.toml
  drop_in:
    description: Path of the drop-in.
    type: path
    default: /etc/containerd/conf.d/99-nvidia.toml
  executable:
    description: Name or path of containerd.
    type: str
    default: containerd
"""

EXAMPLES = r"""
- name: Add NVIDIA's runtime for Kubernetes
  gpu.fleet.containerd_runtime:
  register: containerd_runtime

- name: Restart containerd if it has not read its configuration
  gpu.fleet.unit_restart:
    name: containerd.service
    started_after: [/etc/containerd/config.toml, /etc/containerd/conf.d/*.toml]
    previous: "{{ containerd_runtime.previous }}"

- name: Remove the runtime
  gpu.fleet.containerd_runtime:
    state: absent
"""

RETURN = r"""
files:
  description: Files that were written or removed, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [/etc/containerd/conf.d/99-nvidia.toml]
previous:
  description: The content that these files had, null for one that did not exist, for M(gpu.fleet.unit_restart).
  returned: success, and a failure after changes
  type: dict
  sample: {/etc/containerd/conf.d/99-nvidia.toml: null}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._files.containerd_run import run

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "default": "nvidia"},
    "binary": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "cdi": {"type": "bool", "default": True},
    "default": {"type": "bool", "default": False},
    "config": {"type": "path", "default": "/etc/containerd/config.toml"},
    "drop_in": {"type": "path", "default": "/etc/containerd/conf.d/99-nvidia.toml"},
    "executable": {"type": "str", "default": "containerd"},
}


def main() -> None:
    """Converge the files and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
