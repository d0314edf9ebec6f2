# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml over SSH on hosts of the testbed with 8 simulated GPUs each: the first run, and runs that change nothing.

A run that changes nothing is measured between two sweeps of the ping over the same hosts. Needs root and podman; a host
takes some 150 MiB of memory.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed import ansible_caches, settings
from tests.benchmark.measure import Cost, run
from tests.benchmark.report import Table
from tests.callbacks import module_runs

SWEEPS, MODULE_RUNS = 6, 4
"""Goals: ping sweeps that a run may cost, and module runs a host."""
FIRST_OCTET = 20
DIRECTORY = settings.CACHE / "benchmark" / "inventory"
_DEMO = settings.ROOT / "inventories" / "demo"
_HOST = {
    "testbed_suite": "bookworm",
    "gpu_simulator_gpus": [{"model": "h200", "count": 8}],
    "gpu_simulator_driver_version": "580.159.04",
    # Of the demo's, and the bulletins to come: a finding costs three more tasks.
    "gpu_health_policy": [
        {"id": "clock_unsynchronized", "verdict": "ok", "remedy": "none"},
        {"id": "driver_vulnerable", "verdict": "ok", "remedy": "none"},
    ],
}
_NO_CHANGE = (
    *("hosts", "ping before, s", "site.yml, s", "ping after, s", "sweeps", "module runs a host"),
    *("CPU s a host", "largest process, MiB"),
)


def inventory(count: int) -> dict[str, Any]:
    """The inventory of `count` hosts; their roles' variables are those of the demo."""
    hosts = {f"bench{number}": {**_HOST, "testbed_octet": FIRST_OCTET + number} for number in range(count)}
    return {"all": {"children": {"testbed_hosts": {"hosts": hosts}}}}


def write_inventory(directory: Path, count: int) -> None:
    """Write it, with the demo's group variables next to it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "hosts.yml").write_text(json.dumps(inventory(count)), encoding="utf-8")
    variables = directory / "group_vars"
    if not variables.is_symlink():
        variables.symlink_to(_DEMO / "group_vars")


def no_change_row(count: int, before: Cost, site: Cost, after: Cost, runs: Mapping[str, int]) -> tuple[Any, ...]:
    """A row of the table of runs without changes; `runs` are the module runs by host, of which the most count."""
    return (
        *(count, before.seconds, site.seconds, after.seconds),
        site.seconds / ((before.seconds + after.seconds) / 2),
        max(runs.values()),
        site.cpu_seconds / count,
        site.peak_mib,
    )


def tables(arguments: Namespace) -> Iterator[Table]:
    """Two tables: first runs and runs without changes, a row for each number of hosts."""
    first_runs, no_changes, missed = [], [], []
    for count in arguments.sizes:
        first, row = _measure(count)
        first_runs.append((count, first.seconds, first.cpu_seconds / count, first.peak_mib))
        no_changes.append(row)
        if row[5] > MODULE_RUNS:
            missed.append(f"{count} hosts: {row[5]} module runs a host, the goal is {MODULE_RUNS}")
    yield Table(
        "First run of site.yml", ("hosts", "seconds", "CPU s a host", "largest process, MiB"), tuple(first_runs)
    )
    yield Table(f"Run without changes (goal: {SWEEPS} sweeps)", _NO_CHANGE, tuple(no_changes), tuple(missed))


def _measure(count: int) -> tuple[Cost, tuple[Any, ...]]:
    """Cost of the first run on `count` fresh hosts, and the row of one that changes nothing."""
    write_inventory(DIRECTORY, count)
    counts = DIRECTORY.parent / "module-runs.json"
    environment = {
        **settings.environment(),
        ansible_caches.DIRECTORY: "",  # a user's run has none
        "GPU_FLEET_TESTBED_INVENTORY": "benchmark",
        "ANSIBLE_FORKS": "20",
        module_runs.VARIABLE: str(counts),
    }

    def playbook(path: str) -> Cost:
        argv: list[str | Path] = [settings.VENV / "bin" / "ansible-playbook", "-i", DIRECTORY, settings.ROOT / path]
        return run(argv, environment, settings.ROOT)

    def ping() -> Cost:
        program = settings.VENV / "bin" / "ansible"
        return run(
            [program, "-i", DIRECTORY, "testbed_hosts", "-m", "ansible.builtin.ping"], environment, settings.ROOT
        )

    playbook("testbed/playbooks/destroy.yml")
    try:
        playbook("testbed/playbooks/create.yml")
        playbook("testbed/playbooks/simulate.yml")
        first = playbook("playbooks/site.yml")
        playbook("playbooks/site.yml")  # so that nothing is left to do, whatever the first run could not see
        before, site = ping(), playbook("playbooks/site.yml")
        runs: dict[str, int] = json.loads(counts.read_text(encoding="utf-8"))
        return first, no_change_row(count, before, site, ping(), runs)
    finally:
        playbook("testbed/playbooks/destroy.yml")
