# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rolling upgrade: CPU time of its plan and of the decision before each batch, and of upgrade.yml on mock hosts."""

from __future__ import annotations

import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import gate, plan_run

from tests.benchmark.report import Table
from tests.benchmark.site import SETTINGS, own_process, used
from tests.conftest import ROOT
from tests.unit.site.mock_host import run_site
from tests.unit.upgrade.test_rolling_plan import fleet
from tests.unit.upgrade.test_upgrade_playbook import host

PLANNED = (200, 1000, 10_000)
_OPTIONS = {"gpu_fleet_upgrade_batch": "5%", "gpu_fleet_upgrade_max_unavailable": 4}
_PLAN_COLUMNS = ("hosts", "to be changed", "batches", "plan, CPU s", "decision before a batch, CPU s", "plan.json, MB")
_RUN_COLUMNS = ("hosts", "CPU s", "CPU s a host", "module runs a host", "largest process, MiB")


def plan(size: int) -> tuple[Any, ...]:
    """The row of a fleet of this size, two thirds of which are to be changed."""
    entries = {one.name: {"needs": list(one.needs), "group": one.group, "unit": one.unit} for one in fleet(size)}
    began = time.process_time()
    document = plan_run(entries, _OPTIONS, [], {}, "2026-05-04T09:00:00Z")
    planned = time.process_time()
    gate(document, _OPTIONS, list(document["states"].values()), document["batches"][1])
    decided = time.process_time()
    written = len(json.dumps(document, indent=4)) / 1e6
    sizes = len(document["order"]), len(document["batches"])
    return size, *sizes, planned - began, decided - planned, written


def run(directory: Path, size: int) -> tuple[Any, ...]:
    """The row of mock hosts all of which are changed, with nothing to drain them."""
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(directory / "states"),
        "gpu_fleet_upgrade_batch": "25%",
    }
    hosts = {f"node{number}": (host(True), variables) for number in range(size)}
    own_process(directory)
    before, _peak = used()
    done = run_site(directory, hosts, playbook=ROOT / "playbooks" / "upgrade.yml", env=SETTINGS)
    if done.rc != 0:
        raise SystemExit(done.output[-3000:])
    seconds, peak = used()
    return size, seconds - before, (seconds - before) / size, max(map(len, done.modules.values())), peak


def tables(arguments: Namespace) -> Iterator[Table]:
    """The plan of fleets, and a row for each number of hosts that is changed."""
    yield Table("Plan of a rolling upgrade", _PLAN_COLUMNS, tuple(map(plan, PLANNED)))
    rows = []
    for size in sorted(arguments.sizes):
        with tempfile.TemporaryDirectory() as name:
            rows.append(run(Path(name), size))
    yield Table("upgrade.yml on mock hosts", _RUN_COLUMNS, tuple(rows))
