# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module managed_facts, run as any module. What counts is that Ansible loads this file in its main process.

Each task of each host runs in a fork of that process. A fork that uses one filter of a collection imports all of them,
for itself only, which was most of the controller's time. Every role reads what it manages, so with this import all
forks inherit the filters. The same goes for the options that ssh, its shell and sudo declare in hundreds of lines of
YAML: each fork would parse them for its one connection.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ansible import constants
from ansible.plugins.action.normal import ActionModule as NormalActionModule
from ansible.plugins.loader import become_loader, connection_loader, shell_loader
from ansible_collections.gpu.fleet.plugins import filter as filters
from ansible_collections.gpu.fleet.plugins import test as tests

for _package in (filters, tests):
    for _module in pkgutil.iter_modules(_package.__path__):
        import_module(f"{_package.__name__}.{_module.name}")
for _loader, _name in (
    (connection_loader, constants.DEFAULT_TRANSPORT),
    (shell_loader, "sh"),
    (become_loader, constants.DEFAULT_BECOME_METHOD),
):
    _loader.get(_name, class_only=True)


class ActionModule(NormalActionModule):  # type: ignore[misc]  # ansible-core has no types
    """Run the module on the host."""
