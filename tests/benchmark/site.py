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
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for _directory in (ROOT, ROOT / ".cache" / "collections"):
    sys.path.insert(0, str(_directory))

from tests.unit.site.converged import WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import run_site

SIZES = (1, 20)
SWEEPS, CPU_SECONDS, MODULE_RUNS = 6, 0.4, 4
"""Goals: ping sweeps that a run may cost, CPU seconds and module runs a host."""
PING = [{"hosts": "all", "gather_facts": False, "tasks": [{"name": "Ping", "ansible.builtin.ping": {}}]}]
SETTINGS = {"ANSIBLE_FORKS": "20", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal"}


def cpu_seconds() -> float:
    """CPU time so far of all processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(directory: Path, count: int) -> None:
    """Print one row: `count` hosts."""
    host = converged(WITHOUT_CONTAINER)
    host = replace(host, results={**host.results, "ping": {"ping": "pong"}})
    ping = directory / "ping.json"
    ping.write_text(json.dumps(PING))
    seconds = []
    runs = 0
    for number, playbook in enumerate((ping, ROOT / "playbooks" / "site.yml", ping)):
        place = directory / f"run{number}"
        place.mkdir()
        hosts = {f"node{index}": (host, WITHOUT_CONTAINER) for index in range(count)}
        before = cpu_seconds()
        done = run_site(place, hosts, playbook=playbook, env=SETTINGS)
        seconds.append(cpu_seconds() - before)
        if done.rc != 0:
            raise SystemExit(done.output[-3000:])
        runs = max(runs, *map(len, done.modules.values()))
    first, site, last = seconds
    sweeps = site / ((first + last) / 2)
    print(f"{count:>5} {first:>8.2f} {site:>10.2f} {last:>8.2f} {sweeps:>7.1f} {site / count:>12.2f} {runs:>12}")
    if runs > MODULE_RUNS:
        raise SystemExit(f"{runs} module runs a host, {MODULE_RUNS} are enough")


def main() -> None:
    """Print a table."""
    print(f"no-change site.yml, CPU seconds; goals: {SWEEPS} sweeps, {CPU_SECONDS} s and {MODULE_RUNS} modules a host")
    print("hosts     ping   site.yml     ping  sweeps  site.yml/host  module runs")
    for count in SIZES:
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name), count)


if __name__ == "__main__":
    main()
