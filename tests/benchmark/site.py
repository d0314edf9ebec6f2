# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on hosts with nothing to do: CPU time of the controller, against sweeps of the ping over the same hosts.

The hosts are mock hosts: a Python that returns fixed results (tests/unit/site/mock_host.py). So this is the cost of
Ansible and of this collection on the controller alone; no nvidia-smi, no SSH and no package manager runs. CPU time, not
elapsed time, is measured: other load on the machine does not count.
"""

from __future__ import annotations

import json
import resource
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmark.report import Table
from tests.conftest import ROOT
from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import run_site

SWEEPS, CPU_SECONDS, MODULE_RUNS = 6, 0.4, 4
"""Goals: ping sweeps that a run may cost, CPU seconds and module runs a host."""
_COLUMNS = (
    *("hosts", "ping before", "site.yml", "ping after", "sweeps", "a host", "module runs a host"),
    "largest process, MiB",
)
PING = [{"hosts": "all", "gather_facts": False, "tasks": [{"name": "Ping", "ansible.builtin.ping": {}}]}]
SETTINGS = {"ANSIBLE_FORKS": "20", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal"}


def used() -> tuple[float, int]:
    """Of all processes that this one has started and waited for: CPU seconds, and MiB of the largest at its peak."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime, children.ru_maxrss // 1024


def own_process(directory: Path) -> None:
    """Have run_site start ansible-playbook: with an empty configuration it forks from a server, which hides its CPU."""
    (directory / "ansible.cfg").write_text("[defaults]\n")


def measure(directory: Path, count: int) -> tuple[Any, ...]:
    """The row of `count` hosts."""
    host = converged(WITHOUT_CONTAINER)
    host = replace(host, results={**host.results, "ping": {"ping": "pong"}})
    ping = directory / "ping.json"
    ping.write_text(json.dumps(PING))
    seconds = []
    runs = 0
    for number, playbook in enumerate((ping, ROOT / "playbooks" / "site.yml", ping)):
        place = directory / f"run{number}"
        place.mkdir()
        own_process(place)
        hosts = {f"node{index}": (host, WITHOUT_CONTAINER) for index in range(count)}
        before, _peak = used()
        done = run_site(place, hosts, playbook=playbook, env=SETTINGS)
        seconds.append(used()[0] - before)
        if done.rc != 0:
            raise SystemExit(done.output[-3000:])
        runs = max(runs, *map(len, done.modules.values()))
    first, site, last = seconds
    # The largest process is that of the largest number of hosts so far: sizes ascend, and the ping needs less.
    return count, first, site, last, site / ((first + last) / 2), site / count, runs, used()[1]


def tables(arguments: Namespace) -> Iterator[Table]:
    """One table, a row for each number of hosts."""
    rows = []
    for count in sorted(arguments.sizes):
        with tempfile.TemporaryDirectory() as name:
            rows.append(measure(Path(name), count))
    missed = (f"{row[0]} hosts: {row[6]} module runs a host" for row in rows if row[6] > MODULE_RUNS)
    goals = f"goals: {SWEEPS} sweeps, {CPU_SECONDS} CPU s and {MODULE_RUNS} module runs a host"
    yield Table(f"no-change site.yml on mock hosts, CPU seconds; {goals}", _COLUMNS, tuple(rows), tuple(missed))
