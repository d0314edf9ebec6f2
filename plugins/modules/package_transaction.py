#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install and remove packages in one transaction, with rollback."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_transaction
short_description: Install and remove packages together, with a way back
version_added: 0.1.0
description:
  - Made for the role P(gpu.fleet.nvidia_driver#role) of this collection; its options may change in any version.
  - Changes packages of a host in one transaction of apt or dnf, such as one driver for another. M(ansible.builtin.apt)
    and M(ansible.builtin.dnf) install or remove, but not both at once.
  - Looks first, downloads what is needed, and only then changes anything. What would have to be removed and is not in
    O(remove) is refused by name.
  - Looks again afterwards, and succeeds only when all packages are as asked for.
  - Returns the options of the transaction that undoes this one.
  - Package lists of apt are not read again; a repository that was just added needs that first.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - What a stream of dnf's that is not enabled holds cannot be seen in check mode.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  install:
    description:
      - Packages to be there, as V(name) or V(name=version). The version may have wildcards; with dnf it may leave out
        epoch and release.
      - Older versions than those installed are installed, too.
    type: list
    elements: str
    default: []
  remove:
    description:
      - Packages to be gone, unless those of O(install) need them. What is not installed does not matter.
      - With apt their configuration goes, too.
    type: list
    elements: str
    default: []
  stream:
    description: The stream of a module of dnf to enable first, as V(module:stream). Empty leaves streams alone.
    type: str
    default: ""
  module:
    description: The module of dnf of which no stream is to stay enabled, when O(stream) is empty.
    type: str
    default: ""
  release_holds:
    description: Packages whose hold may be overcome. Others on hold are refused. Locks of dnf's are always overcome.
    type: list
    elements: str
    default: []
  upgrade:
    description:
      - Whether packages of O(install) that are installed move to the newest version that O(install) allows, as with
        V(name=580.*). With dnf a version that is installed and allowed stays otherwise; apt always takes the newest.
    type: bool
    default: false
  repair:
    description: Whether to go on although packages are only half installed, to bring them in order.
    type: bool
    default: false
  lock_timeout:
    description:
      - Seconds to wait for another package manager.
      - From 0 to 86400.
    type: int
    default: 120
  timeout:
    description:
      - Seconds that one command may take. Building kernel modules is part of it.
      - From 1 to 86400.
    type: int
    default: 3600
seealso:
  - module: ansible.builtin.apt
  - module: ansible.builtin.dnf
"""

EXAMPLES = r"""
- name: Exchange one tool for another
  gpu.fleet.package_transaction:
    install: [mawk]
    remove: [gawk]
  register: exchanged

- name: Go back
  gpu.fleet.package_transaction:
    install: "{{ exchanged.undo.install }}"
    remove: "{{ exchanged.undo.remove }}"
    release_holds: "{{ exchanged.undo.release_holds }}"
    repair: true
"""

RETURN = r"""
installed:
  description: What was or would be installed, versions by name.
  returned: always
  type: dict
removed:
  description: What was or would be removed, versions by name.
  returned: always
  type: dict
undo:
  description: The options O(install), O(remove), O(stream), O(release_holds) and O(repair) that undo the change.
  returned: always
  type: dict
begun:
  description: Whether a change that failed had begun, so that it is to be undone.
  returned: failure
  type: bool
commands:
  description: The commands that were run.
  returned: always
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import WHOLE_TIMEOUT, WHOLE_WAIT
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._packages.run import run

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "install": {"type": "list", "elements": "str", "default": []},
    "remove": {"type": "list", "elements": "str", "default": []},
    "stream": {"type": "str", "default": ""},
    "module": {"type": "str", "default": ""},
    "release_holds": {"type": "list", "elements": "str", "default": []},
    "upgrade": {"type": "bool", "default": False},
    "repair": {"type": "bool", "default": False},
    "lock_timeout": {"type": WHOLE_WAIT, "default": 120},
    "timeout": {"type": WHOLE_TIMEOUT, "default": 3600},
}


def main() -> None:
    """Plan, apply and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, HOST)
    except RunError as error:
        module.fail_json(msg=str(error), exception=error, **error.result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
