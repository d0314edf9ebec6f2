# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run that is killed in a transaction has installed is recorded already, so that a removal knows it.

As the tasks of the roles have it, in their order. What Docker and the toolkit leave is tried in tests/unit/containers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

INSTALLS: Mapping[str, str] = {
    "nvidia_driver": "install/change.yml",
    "cuda": "install.yml",
    "cudnn": "install.yml",
    "docker": "install.yml",
    "nvidia_container_toolkit": "install.yml",
    "nvidia_dcgm": "install.yml",
    "gpu_monitoring": "install.yml",
}
"""The roles that install packages which they remove again, each with the file that begins the change."""
RECORD, TRANSACTION = "record", "transaction"
_TRANSACTION = "gpu.fleet.package_transaction"
_PACKAGES = (_TRANSACTION, *(f"ansible.builtin.{name}" for name in ("apt", "dnf", "package")))
_INCLUDES = ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks")


class Order:
    """Which of both the tasks of a role are, with those of the files that they include."""

    def __init__(self, role: str) -> None:
        self.tasks = ROOT / "roles" / role / "tasks"
        # Headers and compilers, which other packages of the host may need meanwhile, stay.
        self.packages = (_TRANSACTION,) if role == "nvidia_driver" else _PACKAGES
        self.seen: set[Path] = set()

    def of_file(self, file: Path) -> Iterator[str]:
        if file in self.seen:
            return
        self.seen.add(file)
        for task in yaml.safe_load(file.read_text(encoding="utf-8")):
            yield from self._of_task(task, file)

    def _of_task(self, task: Mapping[str, Any], file: Path) -> Iterator[str]:
        for part in ("block", "always"):
            for inner in task.get(part, ()):
                yield from self._of_task(inner, file)
        if task.get("gpu.fleet.managed_record", {"state": "absent"}).get("state") != "absent":
            yield RECORD
        for name in self.packages:
            given = task.get(name)
            if given and given.get("state") != "absent" and {"name", "install"} & {*given}:
                yield TRANSACTION
        for name in (str(task[kind]) for kind in _INCLUDES if kind in task):
            yield from self._included(name.replace("{{ role_path }}/tasks/", ""), file)

    def _included(self, name: str, file: Path) -> Iterator[str]:
        if name.startswith("{{"):
            # Whatever the plan has chosen.
            yield TRANSACTION
            return
        pattern = f"{name.partition('{{')[0]}*{name.rpartition('}}')[2]}" if "{{" in name else name
        found = [*file.parent.glob(pattern)] or [*self.tasks.glob(pattern)]
        for one in sorted(found):
            if not one.name.startswith("remove_"):
                yield from self.of_file(one)


@pytest.mark.parametrize("role", INSTALLS)
def test_the_record_comes_before_the_transaction(role: str) -> None:
    found = Order(role)
    order = list(found.of_file(found.tasks / INSTALLS[role]))
    assert TRANSACTION in order and order[0] == RECORD, order
