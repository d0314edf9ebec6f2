# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles in playbooks of others, on mock hosts on which nothing is to be done: docs/playbooks.md states the same.

One run of Ansible has a play for each case: strategies, serial, facts gathered or not. All of it with a tag, a limit,
old facts in a cache, and without pipelining. An ordinary user becomes root in tests/system/test_ops_team.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment

from tests.conftest import ROOT
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import DEBIAN_12, run_site

pytestmark = pytest.mark.plays
ROLES = ("nvidia_driver", "docker", "gpu_health")
PLAYS: Mapping[str, Mapping[str, Any]] = {
    "linear": {},
    "free": {"strategy": "free"},
    "pinned": {"strategy": "host_pinned", "serial": 1},
    "gathered": {"gather_facts": True},
}
STALE: Mapping[str, Any] = {
    "nvidia_smi": {"available": False, "gpus": [], "pci_gpus": [], "unhealthy": []},
    "packages": {},
    "cuda": {},
    "gpu_fleet_managed": {},
}
"""Facts of an earlier run in Ansible's cache, from before the driver and Docker were installed."""


def _cached() -> dict[str, Any]:
    return {name.removeprefix("ansible_"): value for name, value in DEBIAN_12.items()}


def _playbook(directory: Path) -> Path:
    """A play for each case, whose roles have the tag gpu, and a task without it that has to be left out."""
    roles = [{"role": f"gpu.fleet.{role}", "tags": ["gpu"]} for role in ROLES]
    other = [{"ansible.builtin.fail": {"msg": "a task with another tag has run"}}]
    plays = [
        {"hosts": f"{name}*", "gather_facts": False, "roles": roles, "tasks": other, **play}
        for name, play in PLAYS.items()
    ]
    path = directory / "playbook.json"
    path.write_text(json.dumps(plays))
    return path


def test_the_roles_in_any_play_read_the_host_and_change_nothing(tmp_path: Path) -> None:
    given = {**WITHOUT_CONTAINER, "ansible_pipelining": False}
    names = ["linear1", "free1", "pinned1", "pinned2", "gathered1", "linear2"]
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in names:
        (cache / name).write_text(json.dumps({**_cached(), **STALE}))
    env = {
        "ANSIBLE_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_CACHE_PLUGIN_CONNECTION": str(cache),
        "ANSIBLE_REMOTE_TMP": str(tmp_path / "remote"),
    }
    hosts = dict.fromkeys(names, (converged(WITHOUT_CONTAINER), given))
    limit = f"--limit={','.join(names[:-1])}"
    done = run_site(tmp_path, hosts, "--tags=gpu", limit, playbook=_playbook(tmp_path), env=env)
    assert done.rc == 0, done.output[-4000:]
    assert "changed=1" not in done.output
    # Each role reads the host again, whatever is in the cache; only the driver's role reads the system.
    each = {"host_facts": len(ROLES), "gpu_health": 1}
    expected = {**dict.fromkeys(names[:-1], each), "gathered1": {**each, "setup": 1}, "linear2": {}}
    assert {name: Counter(modules) for name, modules in done.modules.items()} == expected


def test_a_playbook_with_tasks_for_all_hosts_together_has_the_strategy_that_knows_them() -> None:
    """Another strategy in ansible.cfg runs such a task for each host, before the others are read."""
    plays = [
        (path.name, play)
        for path in sorted((ROOT / "playbooks").glob("*.yml"))
        for play in yaml.safe_load(path.read_text())
        if _has_run_once(play, path.parent)
    ]
    assert {name for name, _play in plays} >= {"report.yml", "upgrade.yml"}
    assert [f"{name}: {play['name']}" for name, play in plays if play.get("strategy") != "ansible.builtin.linear"] == []


def _has_run_once(value: Any, directory: Path) -> bool:
    """Whether a task in a play or below it, or in a task file that it includes, is run for one host only."""
    if isinstance(value, list):
        return any(_has_run_once(item, directory) for item in value)
    if not isinstance(value, dict):
        return False
    included = [
        value[name] for name in ("ansible.builtin.include_tasks", "ansible.builtin.import_tasks") if name in value
    ]
    paths = [directory / (item["file"] if isinstance(item, dict) else item) for item in included]
    return (
        "run_once" in value
        or any(_has_run_once(yaml.safe_load(path.read_text()), path.parent) for path in paths if path.is_file())
        or any(_has_run_once(item, directory) for item in value.values())
    )


@pytest.mark.parametrize("role", ["docker", "cuda", "cudnn", "nvidia_container_toolkit"])
def test_the_first_use_of_apt_waits_for_the_apt_get_of_another_run(role: str) -> None:
    """Two runs at once on a bare Debian 12: `E: Could not get lock /var/lib/apt/lists/lock. It is held by process 243`.

    The module apt waits by itself, but not where it installs python3-apt with apt-get before.
    """
    tasks = [task for path in (ROOT / "roles" / role / "tasks").rglob("*.yml") for task in _tasks(path)]
    refreshing = [
        task
        for task in tasks
        for of_apt in (task, task.get("module_defaults", {}))
        if of_apt.get("ansible.builtin.apt", {}).get("update_cache")
    ]
    assert refreshing
    for task in refreshing:
        failed = {"msg": "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 243 (apt-get)"}
        goes_on = Environment().compile_expression(task["until"])
        assert [goes_on(**{task["register"]: result}) for result in (failed, {"msg": "E: 404"}, {})] == [
            False,
            True,
            True,
        ]
        assert task["retries"] * task["delay"] == 60


def _tasks(path: Path) -> list[dict[str, Any]]:
    """The tasks of a file, with those of its blocks."""
    tasks = yaml.safe_load(path.read_text())
    return [one for task in tasks for one in (task, *task.get("block", ()))]
