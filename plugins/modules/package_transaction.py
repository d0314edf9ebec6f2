#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install and remove packages in one transaction, with rollback."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_transaction
short_description: Install and remove packages in one transaction, with rollback
version_added: 1.0.0
description:
  - Made for the roles P(gpu.fleet.docker#role), P(gpu.fleet.gpu_workload#role) and P(gpu.fleet.nvidia_driver#role) of
    this collection; its options may change in any version.
  - Installs and removes packages in one transaction of apt or dnf, for example to replace one driver by another.
    M(ansible.builtin.apt) and M(ansible.builtin.dnf) install or remove, but not both at once.
  - Plans the transaction, downloads the packages, and only then changes anything. A plan that removes packages which
    are not in O(remove) is refused with their names.
  - A package of another architecture than the host's is another package, as V(libnvidia-gl-580:i386) with apt and
    V(nvidia-driver-libs.i686) with dnf.
  - Reads the installed packages afterwards, and succeeds only when they are as requested.
  - Returns the options of the transaction that rolls this one back.
  - Does not update the package lists of apt; after a repository was added, that has to be done first.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
    details:
      - The content of a stream of dnf that is not enabled is not known in check mode. Removals of unrelated packages by
        a change of the stream are therefore refused only in a real run, before any package is changed.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  install:
    description:
      - Packages to install, as V(name) or V(name=version). The version may have wildcards; with dnf, epoch and release
        may be left out.
      - An older version than the installed one is a downgrade, and allowed.
    type: list
    elements: str
    default: []
  remove:
    description:
      - Packages to remove, unless packages of O(install) need them. Packages that are not installed are ignored.
      - Dependencies that nothing needs any more stay.
    type: list
    elements: str
    default: []
  purge:
    description:
      - Whether apt also removes the configuration of removed packages. Packages of Docker in Debian and Ubuntu delete
        all images and containers with it.
    type: bool
    default: true
  stream:
    description: The stream of a module of dnf to enable first, as V(module:stream). Empty leaves streams unchanged.
    type: str
    default: ""
  module:
    description: The module of dnf whose stream is reset when O(stream) is empty.
    type: str
    default: ""
  release_holds:
    description:
      - Packages whose hold may be ignored. Others on hold are refused. Version locks of dnf are always ignored.
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
    description: Whether to continue although packages are half installed, to repair them.
    type: bool
    default: false
  rollback:
    description:
      - What to do before a change so that it can be rolled back. With apt, packages that are replaced or removed are
        downloaded in their installed version. Those that no repository has any more are saved from their installed
        files by C(dpkg-repack), which is installed for that.
      - V(required) refuses the change, before anything else is changed, where a package can neither be downloaded nor
        saved. V(if_possible) goes on. V(ignore) saves nothing.
      - With dnf nothing is saved; the repositories of NVIDIA keep previous versions.
    type: str
    choices: [required, if_possible, ignore]
    default: ignore
  save_directory:
    description:
      - Directory for the saved packages. Packages of an earlier change are deleted.
    type: path
    default: /var/lib/gpu-fleet/packages
  sources:
    description:
      - Package files that are available in addition to the repositories, absolute paths of C(.deb) files.
    type: list
    elements: path
    default: []
  preferences:
    description:
      - Records of apt's preferences that the plan is made with, in place of the file O(preferences_file). Nothing is
        written there. Where the records are to stay, write them first.
      - Without O(preferences_file), the plan is made with what is on the host.
    type: str
    default: ""
  preferences_file:
    description: The file in C(/etc/apt/preferences.d) that O(preferences) are planned for.
    type: str
    default: ""
  lock_timeout:
    description:
      - Seconds to wait for another package manager.
      - From 0 to 86400.
    type: int
    default: 120
  timeout:
    description:
      - Timeout of one command in seconds, including the build of kernel modules.
      - From 1 to 86400.
    type: int
    default: 3600
seealso:
  - module: ansible.builtin.apt
  - module: ansible.builtin.dnf
"""

EXAMPLES = r"""
- name: Replace one package by another
  gpu.fleet.package_transaction:
    install: [mawk]
    remove: [gawk]
  register: replaced

- name: Roll back
  gpu.fleet.package_transaction:
    install: "{{ replaced.undo.install }}"
    remove: "{{ replaced.undo.remove }}"
    release_holds: "{{ replaced.undo.release_holds }}"
    sources: "{{ replaced.undo.sources | default([]) }}"
    repair: true
"""

RETURN = r"""
installed:
  description: Versions of the packages that were installed, or would be in check mode, by name.
  returned: always
  type: dict
removed:
  description: Versions of the packages that were removed, or would be in check mode, by name.
  returned: always
  type: dict
unavailable:
  description: Packages that change and that no repository has in their installed version. Only with O(rollback).
  returned: always
  type: list
  elements: str
undo:
  description:
    - The options O(install), O(remove), O(stream), O(release_holds) and O(repair) that roll the change back.
    - With saved packages O(sources), too.
  returned: always
  type: dict
begun:
  description: Whether a failed change had begun, and has to be rolled back.
  returned: failure
  type: bool
refused:
  description:
    - Whether the host's own packages rule the change out, such as those on hold, half installed, or without a rollback.
      Nothing was changed then.
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
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import ROLLBACKS
from ansible_collections.gpu.fleet.plugins.module_utils._packages.run import run

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "install": {"type": "list", "elements": "str", "default": []},
    "remove": {"type": "list", "elements": "str", "default": []},
    "purge": {"type": "bool", "default": True},
    "stream": {"type": "str", "default": ""},
    "module": {"type": "str", "default": ""},
    "release_holds": {"type": "list", "elements": "str", "default": []},
    "upgrade": {"type": "bool", "default": False},
    "repair": {"type": "bool", "default": False},
    "rollback": {"type": "str", "choices": list(ROLLBACKS), "default": "ignore"},
    "save_directory": {"type": "path", "default": "/var/lib/gpu-fleet/packages"},
    "sources": {"type": "list", "elements": "path", "default": []},
    "preferences": {"type": "str", "default": ""},
    "preferences_file": {"type": "str", "default": ""},
    "lock_timeout": {"type": WHOLE_WAIT, "default": 120},
    "timeout": {"type": WHOLE_TIMEOUT, "default": 3600},
}


def main() -> None:
    """Plan, apply and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    try:
        result = run(module.params, module.check_mode, HOST)
    except RunError as error:
        module.fail_json(msg=str(error), **error.result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
