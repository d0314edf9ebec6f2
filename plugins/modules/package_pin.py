#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep packages at their version, or release them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_pin
short_description: Keep packages at their version
version_added: 1.0.0
description:
  - Made for the roles P(gpu.fleet.cuda#role), P(gpu.fleet.cudnn#role), P(gpu.fleet.docker#role),
    P(gpu.fleet.nvidia_container_toolkit#role), P(gpu.fleet.nvidia_dcgm#role) and P(gpu.fleet.nvidia_driver#role) of
    this collection; its options may change in any version.
  - With apt it writes a file of preferences, and holds packages. With dnf it locks versions, and installs the plugin
    for that where the host lacks it.
  - Holds, locks and preferences of others stay; those about the same packages are returned by name.
  - It reads the host again after a change, and fails where a version is not kept, as where dnf's plugin is disabled.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - A package of O(hold) that is not installed yet is no error.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(absent) releases O(hold) and O(pins), too, and removes O(preferences_file).
    type: str
    choices: [present, absent]
    default: present
  host:
    description: The host in error messages, which begin with it.
    type: str
    default: ""
  role:
    description: The role that pins the packages, for the first line of O(preferences_file).
    type: str
    default: ""
  hold:
    description:
      - Installed packages that stay at their version. apt holds them, and has a preference for that version where
        O(preferences_file) is given. dnf locks it, in place of an earlier version.
    type: list
    elements: str
    default: []
  pins:
    description: The only versions of packages that are installed from now on; the packages may not be there yet.
    type: list
    elements: dict
    default: []
    suboptions:
      packages:
        description: Names of packages, for apt also with wildcards, with spaces between them.
        type: str
        required: true
      version:
        description: The version, which may have an epoch, for dnf else 0, and wildcards.
        type: str
        required: true
      priority:
        description:
          - The priority of apt. dnf locks versions of any priority above 0.
          - From -32768 to 32767.
        type: int
        default: 1000
  release:
    description:
      - Packages that earlier runs have held or locked, or their locks of dnf as they are in its list. They are released
        unless O(hold) or O(pins) has them.
    type: list
    elements: str
    default: []
  preferences_file:
    description:
      - The file of apt's preferences, in C(/etc/apt/preferences.d). Without O(hold) and O(pins) it is removed.
    type: str
    default: ""
seealso:
  - module: ansible.builtin.dpkg_selections
  - module: community.general.dnf_versionlock
"""

EXAMPLES = r"""
- name: Keep Docker at its version
  gpu.fleet.package_pin:
    role: example
    hold: [docker-ce, docker-ce-cli, containerd.io]
    preferences_file: /etc/apt/preferences.d/example-docker

- name: Allow only one version of a package
  gpu.fleet.package_pin:
    pins:
      - packages: cuda-toolkit-config-common
        version: 13.0.*
    preferences_file: /etc/apt/preferences.d/example-cuda

- name: Release Docker
  gpu.fleet.package_pin:
    state: absent
    hold: [docker-ce, docker-ce-cli, containerd.io]
    preferences_file: /etc/apt/preferences.d/example-docker
"""

RETURN = r"""
pinned:
  description: The versions of the packages of O(hold) that are held or locked. In check mode those that are already.
  returned: success
  type: dict
  sample: {docker-ce: 5:28.5.1-1~debian.13~trixie}
held:
  description: Packages that were put on hold, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [docker-ce, docker-ce-cli]
released:
  description: Packages whose hold was released, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [containerd.io]
written:
  description: Files that were written, or would be in check mode. Locks of dnf are lines of such a file.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [/etc/apt/preferences.d/gpu-fleet-docker]
removed:
  description: Files that were removed, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: []
installed:
  description: Packages that were installed to lock versions, or would be in check mode.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [python3-dnf-plugin-versionlock]
others:
  description: Holds of others, and their locks and preferences about the same packages. They stay.
  returned: success, and a failure after changes
  type: list
  elements: str
  sample: [hold of linux-image-amd64, "/etc/apt/preferences.d/site: docker-*, version 5:27*, priority 990"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import Number
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, result_of
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._packages.pins import PRIORITY
from ansible_collections.gpu.fleet.plugins.module_utils._packages.pins_run import run

HOST = HostFiles()
_TEXT: dict[str, Any] = {"type": "str", "default": ""}
_LIST: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    **dict.fromkeys(("host", "role", "preferences_file"), _TEXT),
    **dict.fromkeys(("hold", "release"), _LIST),
    "pins": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            **{name: {"type": "str", "required": True} for name in ("packages", "version")},
            "priority": {"type": Number("int", -32_768, 32_767), "default": PRIORITY},
        },
    },
}


def main() -> None:
    """Pin or release the packages and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, HOST)
    except ChangeError as error:
        module.fail_json(msg=str(error), **result_of(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
