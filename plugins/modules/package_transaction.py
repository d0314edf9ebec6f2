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

import os
import re
import shlex
from typing import Any, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.arguments import shortened
from ansible_collections.gpu.fleet.plugins.module_utils._common.bounds import WHOLE_TIMEOUT, WHOLE_WAIT
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult, run_all
from ansible_collections.gpu.fleet.plugins.module_utils._managed.packages import uses_dpkg
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt, dnf
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, Plan, Request, Run

HOST = HostFiles()
ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "install": {"type": "list", "elements": "str", "default": []},
    "remove": {"type": "list", "elements": "str", "default": []},
    "stream": {"type": "str", "default": ""},
    "module": {"type": "str", "default": ""},
    "release_holds": {"type": "list", "elements": "str", "default": []},
    "repair": {"type": "bool", "default": False},
    "lock_timeout": {"type": WHOLE_WAIT, "default": 120},
    "timeout": {"type": WHOLE_TIMEOUT, "default": 3600},
}
# Arguments of apt-get and dnf, run by root: none may be parsed as an option, as two arguments or as a removal (`name-`
# for apt-get).
_PACKAGE = r"[A-Za-z0-9](?:[A-Za-z0-9+._:-]*[A-Za-z0-9+._])?"
_STREAM = r"[A-Za-z0-9][A-Za-z0-9+._-]*"
_FORMS = {
    "install": re.compile(rf"{_PACKAGE}(?:=[A-Za-z0-9*?][A-Za-z0-9+._:~^*?-]*)?"),
    "remove": re.compile(_PACKAGE),
    "release_holds": re.compile(_PACKAGE),
    "stream": re.compile(rf"(?:{_STREAM}:{_STREAM})?"),
    "module": re.compile(rf"(?:{_STREAM})?"),
}
_MEANT = {
    "install": "a package as name or name=version",
    "remove": "the name of a package",
    "release_holds": "the name of a package",
    "stream": "a module and its stream as module:stream",
    "module": "the name of a module",
}


def plan_of(request: Request, module: str, run: Run) -> Plan:
    """The changes that the request means on this host."""
    if uses_dpkg(HOST):
        return apt.plan(request, run)
    name = request.stream.partition(":")[0] or module
    enabled = dnf.parse_stream(HOST.read(f"/etc/dnf/modules.d/{name}.module") or "", name) if name else ""
    return dnf.plan(request, run, enabled, reset=bool(module))


def apply(request: Request, found: Plan, run: Run) -> dict[str, str]:
    """Apply the changes; returns the installed versions by package."""
    return apt.apply(request, found, run) if uses_dpkg(HOST) else dnf.apply(request, found, run)


def main() -> None:
    """Plan, apply and return."""
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    for option, form in _FORMS.items():
        values = module.params[option]
        for text in values if isinstance(values, list) else [values]:
            if not form.fullmatch(text):
                module.fail_json(msg=f"{option}: {shortened(text)} is not {_MEANT[option]}")
    request = Request(
        install=tuple(module.params["install"]),
        remove=tuple(module.params["remove"]),
        stream=module.params["stream"],
        release_holds=tuple(module.params["release_holds"]),
        repair=module.params["repair"],
        lock_timeout=module.params["lock_timeout"],
    )
    commands: list[str] = []
    # Maintainer scripts must not prompt.
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"

    def run(argv: Sequence[str]) -> CommandResult:
        commands.append(" ".join(map(shlex.quote, argv)))
        return run_all([argv], module.params["timeout"])[0]

    result: dict[str, Any] = {"commands": commands, "installed": {}, "removed": {}, "undo": {}}
    try:
        found = plan_of(request, module.params["module"], run)
        result.update(installed=dict(found.install), removed=dict(found.remove), undo=found.undo())
        after = dict(found.before)
        if found.changes and not module.check_mode:
            after = apply(request, found, run)
            new = {name: version for name, version in after.items() if found.before.get(name) != version}
            there = {**found.remove, **found.before}
            old = {name: version for name, version in there.items() if name not in after}
            done = Plan(new, old, found.before, found.stream, found.stream_before)
            result.update(installed=new, removed=old, undo=done.undo())
    except PackageError as error:
        module.fail_json(msg=str(error), exception=error, begun=error.begun, changed=error.begun, **result)
    touched = sorted({*result["installed"], *result["removed"]})
    result["diff"] = {
        "before": "".join(f"{name} {found.before[name]}\n" for name in touched if name in found.before),
        "after": "".join(
            f"{name} {result['installed'].get(name, '')}\n" for name in touched if name in result["installed"]
        ),
    }
    module.exit_json(changed=found.changes, **result)


if __name__ == "__main__":
    main()
