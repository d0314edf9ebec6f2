# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts the module runs of each host. For tests and benchmarks, not a part of the collection."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import of_task

DOCUMENTATION = r"""
name: module_runs
type: aggregate
short_description: Count the module runs of each host
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Writes the number of module runs by host, as a JSON object, to the file that E(GPU_FLEET_MODULE_RUNS) names; without
    it, nothing.
  - A task counts one, for each item of its loop and each of its attempts; P(ansible.builtin.copy#module) and
    P(ansible.builtin.template#module) count two, because they look at the file first, but one where check mode stops
    them after that look. Skipped tasks, delegated tasks and what runs on the controller alone (debug, assert, set_fact,
    includes and the like) count nothing. A module that ended without doing anything because of check mode counts, for
    it was run.
"""

VARIABLE = "GPU_FLEET_MODULE_RUNS"

# Actions that run no module on the host.
_CONTROLLER_ACTIONS = frozenset(
    {
        "add_host",
        "assert",
        "debug",
        "fail",
        "group_by",
        "import_playbook",
        "import_role",
        "import_tasks",
        "include_role",
        "include_tasks",
        "include_vars",
        "meta",
        "pause",
        "set_fact",
        "set_stats",
        "validate_argument_spec",
    }
)
# Actions that run stat on the host before the module that changes the file.
_READING_ACTIONS = frozenset({"copy", "template"})
# Runs several modules where it plans roles, and returns which.
_PLANNING_ACTION = "gpu.fleet.host_facts"
# Runs one where it observes the host for a role, and returns its facts.
_OBSERVING_ACTION = "gpu.fleet.role_plan"


def count_module_runs(action: str, result: Mapping[str, Any], looped: bool, check_mode: bool) -> int:
    """Module runs on the host of one task that was not skipped as a whole.

    action: its name, with or without collection. result: as passed to callbacks. looped: the task has a loop.
    """
    name = action.removeprefix("ansible.builtin.").removeprefix("ansible.legacy.")
    if name in _CONTROLLER_ACTIONS or "_ansible_delegated_vars" in result:
        return 0
    items = (result.get("results") or []) if looped else [result]
    return sum(_runs_of_item(name, item, check_mode) for item in items if "skip_reason" not in item)


def _runs_of_item(name: str, item: Mapping[str, Any], check_mode: bool) -> int:
    stopped_after_preview = check_mode and bool(item.get("changed"))
    if name == _OBSERVING_ACTION:
        return int("ansible_facts" in item)
    if name == _PLANNING_ACTION and "plan" in item:
        return len(item["plan"]["modules"])
    if name == _PLANNING_ACTION and "ansible_facts" not in item and not item.get("failed"):
        return 0  # of roles: none
    runs = 2 if name in _READING_ACTIONS and not stopped_after_preview else 1
    return runs * int(item.get("attempts", 1))


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Counts module runs during a playbook run, and writes the counts at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "module_runs"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._runs: Counter[str] = Counter()

    def v2_runner_on_ok(self, result: Any) -> None:
        self._count(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._count(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        # Without a skip reason the module itself ran in check mode and reported "skipped".
        if "skip_reason" not in of_task(result, "result"):
            self._count(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        if path := os.environ.get(VARIABLE):
            Path(path).write_text(json.dumps(self._runs), encoding="utf-8")

    def _count(self, result: Any) -> None:
        task = of_task(result, "task")
        self._runs[of_task(result, "host").get_name()] += count_module_runs(
            task.action, of_task(result, "result"), task.loop is not None, task.check_mode is True
        )
