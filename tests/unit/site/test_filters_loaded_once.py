# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's main process imports the filters once, or each fork of it would, for each task of each host."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.conftest import COLLECTIONS

PROGRAM = """
import sys
from ansible.plugins.loader import action_loader, filter_loader, init_plugin_loader, test_loader

init_plugin_loader([sys.argv[1]])
{before}
known = set(sys.modules)
assert filter_loader.get("gpu.fleet.platform") is not None
assert test_loader.get("gpu.fleet.compatible") is not None
print(*sorted(name for name in set(sys.modules) - known if name.startswith("ansible_collections.gpu.fleet.")))
"""


def imported_by_a_filter(before: str) -> list[str]:
    """Modules of the collection that Ansible imports to find a filter."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before), str(COLLECTIONS)],
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_action_of_managed_facts_leaves_nothing_to_import() -> None:
    assert len(imported_by_a_filter("")) > 10
    # This is what a strategy does in the main process, for each task before its workers are forked.
    assert imported_by_a_filter('action_loader.get("gpu.fleet.managed_facts", class_only=True)') == []
