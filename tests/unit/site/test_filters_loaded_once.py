# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's main process imports the filters once, and the options of ssh, or each fork of it would, for each task of
each host."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import COLLECTIONS

ACTION = 'action_loader.get("gpu.fleet.managed_facts", class_only=True)'
PROGRAM = """
import sys
from ansible import constants
from ansible.plugins.loader import action_loader, filter_loader, init_plugin_loader, test_loader

init_plugin_loader([sys.argv[1]])
{before}
plugins = ("connection", "ssh"), ("shell", "sh"), ("become", "sudo")
print(*(name for kind, name in plugins if constants.config.get_configuration_definitions(kind, name)))
known = set(sys.modules)
assert filter_loader.get("gpu.fleet.platform") is not None
assert test_loader.get("gpu.fleet.compatible") is not None
print(*sorted(name for name in set(sys.modules) - known if name.startswith("ansible_collections.gpu.fleet.")))
"""


def known_and_imported(before: str) -> list[list[str]]:
    """Plugins whose options Ansible knows, and modules of the collection that it imports to find a filter."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before), str(COLLECTIONS)],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split() for line in done.stdout.splitlines()]


def test_the_action_of_managed_facts_leaves_nothing_to_read() -> None:
    known, imported = known_and_imported("")
    assert known == [] and len(imported) > 10
    # This is what a strategy does in the main process, for each task before its workers are forked.
    assert known_and_imported(ACTION) == [["ssh", "sh", "sudo"], []]
