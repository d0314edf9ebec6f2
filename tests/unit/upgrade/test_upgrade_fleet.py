# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on a fleet of mock hosts: its order, where it stops, and how it goes on after kill -9.

12 hosts, or 200 where GPU_FLEET_EFFORT is more than `quick`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import EFFORT, ROOT
from tests.unit.site.mock_host import SiteRun, run_site
from tests.unit.upgrade.test_upgrade_playbook import LOST, OBSERVATION, host, steps

pytestmark = pytest.mark.plays

SIZE = 12 if EFFORT == "quick" else 200
RACKS, LARGEST = 4, "30%"
NAMES = [f"node{number}" for number in range(SIZE)]
# A tenth of the hosts has nothing to do.
IDLE = frozenset(NAMES[::10])
# Ends the controller once: the uppermost ansible-playbook of the processes above this one, or that which the server of
# plays.py has forked. Takes the path of a flag.
KILL = """
import os, signal, sys
from pathlib import Path
flag, pid, above = Path(sys.argv[1]), os.getpid(), {}
if not flag.exists():
    flag.touch()
    while pid > 1:
        above[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    forked = [pid for pid, command in above.items() if b"play_server.py" in command]
    controllers = [pid for pid, command in above.items() if b"ansible-playbook" in command]
    os.kill(forked[-2] if forked else controllers[-1], signal.SIGKILL)
"""


def rack(name: str) -> str:
    """The rack of a host: hosts next to each other in the inventory are in one."""
    return f"rack{NAMES.index(name) * RACKS // SIZE}"


class Fleet:
    """The hosts, whose scheduler are task files of the user: they write to a log who leaves and who returns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.runs = 0
        for name in ("leave", "enter"):
            line = f"echo {name} {{{{ inventory_hostname }}}} >> {self.log}"
            self._write(name, {"argv": ["sh", "-c", line]}, "true")
        (directory / "kill.py").write_text(KILL)

    def _write(self, name: str, command: Mapping[str, Any], condition: str) -> None:
        task = {"name": name, "ansible.builtin.command": command, "delegate_to": "localhost", "when": condition}
        (self.directory / f"{name}.yml").write_text(json.dumps([task]))

    def upgrade(self, sick: str = "", killed_at: str = "") -> SiteRun:
        """Run the playbook. Hosts with a recorded change need nothing; one is sick, or ends the controller."""
        recorded = steps(self.directory) if self.runs else {}
        flag = self.directory / f"killed{self.runs}"
        program = [sys.executable, str(self.directory / "kill.py"), str(flag)]
        self._write("kill", {"argv": program}, f"inventory_hostname == '{killed_at}'")
        hooks = {"before_drain": ["leave"], "after_return": ["enter"], "before_change": ["kill"]}
        variables = {
            "gpu_fleet_roles": ["gpu_state"],
            "gpu_state_persistence_mode": True,
            "gpu_fleet_upgrade_directory": str(self.directory / "states"),
            "gpu_fleet_upgrade_batch": "25%",
            "gpu_fleet_upgrade_max_unavailable": LARGEST,
            "gpu_fleet_upgrade_canaries": 2,
            "gpu_fleet_upgrade_retry_failed": True,
            "gpu_fleet_upgrade_hooks": {
                when: [str(self.directory / f"{name}.yml") for name in names] for when, names in hooks.items()
            },
        }
        done = {name for name, step in recorded.items() if step in ("changed", "healthy", "in_service")}
        hosts = {
            name: (
                host(name not in IDLE | done, LOST if name == sick else None),
                {**variables, "gpu_fleet_upgrade_group": rack(name)},
            )
            for name in NAMES
        }
        run = self.directory / f"run{self.runs}"
        run.mkdir()
        self.runs += 1
        return run_site(run, hosts, playbook=ROOT / "playbooks" / "upgrade.yml", env={"ANSIBLE_FORKS": "20"})

    def plan(self) -> dict[str, Any]:
        """The plan of the last run."""
        plan: dict[str, Any] = json.loads((self.directory / "states" / "plan.json").read_text())
        return plan

    def left(self) -> list[str]:
        """The hosts in the order in which they were drained, also by several runs."""
        return [line.split()[1] for line in self.log.read_text().splitlines() if line.startswith("leave")]

    def most_out(self) -> Mapping[str, int]:
        """How many hosts of each rack were out of service at once."""
        out: set[str] = set()
        most: Counter[str] = Counter()
        for line in self.log.read_text().splitlines():
            word, name = line.split()
            out = out | {name} if word == "leave" else out - {name}
            most |= Counter(map(rack, out))
        return most


def in_order(found: Sequence[str], batches: Sequence[Sequence[str]]) -> bool:
    """Whether the hosts come batch by batch, in any order within one."""
    rest = list(found)
    for batch in batches:
        if set(rest[: len(batch)]) != set(batch):
            return False
        rest = rest[len(batch) :]
    return not rest


def test_a_fleet_is_upgraded_in_order_stops_and_goes_on(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    due = [name for name in NAMES if name not in IDLE]
    predicted = len(due) * 25 // 100
    # In a batch between the canaries and the last one.
    sick = "node5" if SIZE == 12 else "node105"
    stopped = fleet.upgrade(sick=sick)
    assert stopped.rc != 0
    plan = fleet.plan()
    batches = plan["batches"]
    number = next(number for number, batch in enumerate(batches) if sick in batch)
    assert 0 < number < len(batches) - 1 and sorted(plan["order"]) == sorted(due), stopped.output[-3000:]
    assert max(map(len, batches)) <= predicted
    assert in_order(fleet.left(), batches[: number + 1])
    gone = {name for batch in batches[: number + 1] for name in batch}
    assert steps(tmp_path) == dict.fromkeys(gone, "in_service") | {sick: "failed"}
    # The rest is untouched, and so are those with nothing to do.
    assert {name for name, modules in stopped.modules.items() if modules != OBSERVATION} == gone
    assert "1 failed, and gpu_fleet_upgrade_max_failures is 0" in stopped.output

    rest = batches[number + 1 :]
    killed_at = rest[0][-1]
    killed = fleet.upgrade(killed_at=killed_at)
    assert killed.rc == -9, killed.output[-3000:]
    again = fleet.plan()
    assert (again["run"], again["order"][0]) == (plan["run"], sick)
    assert [name for name in again["order"] if name != sick] == [name for batch in rest for name in batch]
    out = {name for name, step in steps(tmp_path).items() if step != "in_service"}
    assert killed_at in out

    done = fleet.upgrade()
    assert done.rc == 0, done.output[-3000:]
    last = fleet.plan()
    assert last["run"] == plan["run"] and set(last["order"][: len(out)]) == out
    later = [name for name in last["order"] if name not in out]
    assert later == [name for name in again["order"] if name in later]
    assert steps(tmp_path) == dict.fromkeys(due, "in_service")
    most = fleet.most_out()
    assert set(most) == {f"rack{number}" for number in range(RACKS)}
    assert max(most.values()) <= max(SIZE // RACKS * 30 // 100, 1)

    before = {path: path.read_text() for path in (tmp_path / "states").rglob("*.json")}
    left = len(fleet.left())
    nothing = fleet.upgrade()
    assert nothing.rc == 0, nothing.output[-3000:]
    assert {tuple(modules) for modules in nothing.modules.values()} == {tuple(OBSERVATION)}
    assert f"nothing to do on {SIZE}: " in nothing.output and len(fleet.left()) == left
    assert {path: path.read_text() for path in (tmp_path / "states").rglob("*.json")} == before
