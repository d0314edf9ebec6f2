# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tasks count as module runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.callbacks.module_runs import count_module_runs


@pytest.mark.parametrize(
    ("action", "result", "runs"),
    [
        ("ansible.builtin.command", {}, 1),
        ("community.docker.docker_container", {}, 1),
        ("ansible.builtin.copy", {}, 2),
        ("template", {"changed": True}, 2),
        ("ansible.builtin.set_fact", {}, 0),
        ("ansible.legacy.debug", {}, 0),
        ("ansible.builtin.command", {"attempts": 3}, 3),
        ("ansible.builtin.command", {"_ansible_delegated_vars": {"ansible_host": "other"}}, 0),
        ("gpu.fleet.host_facts", {}, 0),
        ("gpu.fleet.role_plan", {"steps": ["install"]}, 0),
        ("gpu.fleet.role_plan", {"steps": ["install"], "ansible_facts": {}}, 1),
        ("gpu.fleet.host_facts", {"ansible_facts": {}}, 1),
        ("gpu.fleet.host_facts", {"failed": True}, 1),
        ("gpu.fleet.host_facts", {"plan": {"modules": ["host_facts", "gpu_health"]}}, 2),
        ("ansible.builtin.package", {"results": ["a line", "another"]}, 1),
    ],
)
def test_module_runs_of_a_task(action: str, result: dict[str, Any], runs: int) -> None:
    assert count_module_runs(action, result, looped=False, check_mode=False) == runs


@pytest.mark.parametrize(
    ("action", "items", "runs"),
    [
        ("ansible.builtin.command", [{}, {"attempts": 2}, {"skip_reason": "no", "skipped": True}], 3),
        ("ansible.builtin.debug", [{}, {}], 0),
        ("ansible.builtin.command", [], 0),
        ("ansible.builtin.copy", [{}, {}], 4),
    ],
)
def test_module_runs_of_a_loop(action: str, items: list[dict[str, Any]], runs: int) -> None:
    assert count_module_runs(action, {"results": items}, looped=True, check_mode=False) == runs


@pytest.mark.parametrize(("changed", "runs"), [(True, 1), (False, 2)])
def test_check_mode_stops_a_copy_that_would_change(changed: bool, runs: int) -> None:
    assert count_module_runs("ansible.builtin.copy", {"changed": changed}, looped=False, check_mode=True) == runs
