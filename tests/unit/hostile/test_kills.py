# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml and upgrade.yml, killed with all their processes at random points, twice at once, and with a full disk.

The hosts are mocks with a state: their GPUs are as declared, are not, or a killed module has left them half-way. 20
points each where GPU_FLEET_EFFORT is `thorough`; GPU_FLEET_TORTURE_SEED repeats them.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.torture.figures import FIGURES, Defects, chance, size
from tests.unit.upgrade.test_upgrade_playbook import host

pytestmark = pytest.mark.plays

KILLS = size(2, 20, 60)
NAMES = ("node1", "node2")
LIMIT_S = 600
_PYTHON = r"""#!{python} -IS
import json, os, re, sys, time
payload = open(sys.argv[-1]).read() if len(sys.argv) > 1 else sys.stdin.read()
module = re.search(r"(?:ansible_module|mod_name)='([a-z0-9_.]+)'", payload)[1].rpartition(".")[2]
directory = {directory!r}
state = open(directory + "/state").read()
def write(name, text):
    with open(f"{{directory}}/{{name}}.new", "w") as file:
        file.write(text)
    os.replace(f"{{directory}}/{{name}}.new", f"{{directory}}/{{name}}")
with open(directory + "/modules", "a") as log:
    log.write(module + "\n")
results = json.load(open(f"{{directory}}/{{'applied' if state == 'applied' else 'due'}}.json"))
if module == "gpu_state" and state != "applied" and not re.search(r'"_ansible_check_mode": true', payload):
    write("state", "half")
    time.sleep(0.1)
    write("state", "applied")
print(json.dumps(results.get(module, {{"failed": True, "msg": "the mock host has no result of " + module}})))
"""


def descendants(pid: int) -> list[int]:
    """A process and those that it has started: each of Ansible's workers has a session of its own."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = path.read_text().split() if path.exists() else []
    return [pid, *(one for child in children for one in descendants(int(child)))]


class Site:
    """A controller's directory, and two hosts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.states = directory / "states"
        hosts = {}
        for name in NAMES:
            here = directory / name
            here.mkdir(parents=True)
            (here / "state").write_text("due")
            for state in ("due", "applied"):
                (here / f"{state}.json").write_text(json.dumps(host(state == "due").modules()))
            program = here / "python3"
            program.write_text(_PYTHON.format(python=os.path.realpath(sys.executable), directory=str(here)))
            program.chmod(0o755)
            hosts[name] = {"ansible_connection": "local", "ansible_python_interpreter": str(program)}
        for word in ("leave", "enter"):
            line = f"echo {word} {{{{ inventory_hostname }}}} $(cat {directory}/{{{{ inventory_hostname }}}}/state)"
            argv = ["sh", "-c", f"{line} >> {directory}/log"]
            task = {"name": word, "ansible.builtin.command": {"argv": argv}, "delegate_to": "localhost"}
            (directory / f"{word}.yml").write_text(json.dumps([task]))
        variables = {
            "gpu_fleet_roles": ["gpu_state"],
            "gpu_state_persistence_mode": True,
            "gpu_fleet_upgrade_directory": str(self.states),
            "gpu_fleet_upgrade_canaries": 1,
            "gpu_fleet_upgrade_batch": "50%",
            "gpu_fleet_upgrade_max_unavailable": "50%",
            "gpu_fleet_upgrade_hooks": {
                "before_drain": [str(directory / "leave.yml")],
                "after_return": [str(directory / "enter.yml")],
            },
        }
        (directory / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": variables}}))
        (directory / "ansible.cfg").write_text("[defaults]\ninject_facts_as_vars = false\n")

    def begin(self, playbook: str) -> subprocess.Popen[bytes]:
        """A run in a process group of its own."""
        program = Path(sys.executable).parent / "ansible-playbook"
        with (self.directory / "output").open("ab") as output:
            return subprocess.Popen(
                [program, "-i", self.directory / "inventory.json", ROOT / "playbooks" / f"{playbook}.yml"],
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
                    "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
                    "ANSIBLE_HOME": str(self.directory / "home"),
                    "ANSIBLE_CONFIG": str(self.directory / "ansible.cfg"),
                    "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.run_result",
                    "GPU_FLEET_RESULT_FILE": str(self.directory / "result.json"),
                    "ANSIBLE_PIPELINING": "true",
                    "ANSIBLE_NOCOLOR": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run(self, playbook: str) -> int:
        """A run to its end; its exit status."""
        return self.begin(playbook).wait(timeout=LIMIT_S)

    def modules(self) -> int:
        """How many modules have run on the hosts so far."""
        logs = [self.directory / name / "modules" for name in NAMES]
        return sum(len(log.read_text().splitlines()) for log in logs if log.exists())

    def kill(self, playbook: str, module: int, delay: float) -> bool:
        """Kill a run with all that it has started, after a number of modules and a time; whether it still ran."""
        before, run = self.modules(), self.begin(playbook)
        while run.poll() is None and self.modules() - before < module:
            time.sleep(0.01)
        time.sleep(delay)
        still_runs = run.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGSTOP)  # It starts no others meanwhile.
        for pid in descendants(run.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        run.wait(timeout=LIMIT_S)
        return still_runs

    def damaged(self) -> list[str]:
        """What a killed run must not leave: documents that are none, and a host that is in service and not upgraded."""
        documents = [*self.states.rglob("[!.]*.json"), self.directory / "result.json"]
        found = []
        for path in documents:
            try:
                json.loads(path.read_text() if path.exists() else "{}")
            except ValueError:
                found.append(f"{path.name} is damaged")
        log = self.directory / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return found + [line for line in lines if line.startswith("enter") and not line.endswith(" applied")]

    def unfinished(self, playbook: str) -> list[str]:
        """What differs from a run that nothing has disturbed."""
        found = [name for name in NAMES if (self.directory / name / "state").read_text() != "applied"]
        if playbook == "upgrade":
            last = {line.split()[1]: line.split()[0] for line in (self.directory / "log").read_text().splitlines()}
            found += [f"{name} is out of service" for name in NAMES if last.get(name) != "enter"]
            steps = {path.stem: json.loads(path.read_text())["step"] for path in (self.states / "hosts").glob("*.json")}
            found += [f"{name} is {step}" for name, step in steps.items() if step != "in_service"]
        return found

    def output(self) -> str:
        """What all runs have printed."""
        return (self.directory / "output").read_text(errors="replace")


def points(playbook: str, undisturbed: int) -> Iterator[tuple[int, float]]:
    """After how many modules a run is killed, and how much later."""
    luck: random.Random = chance("kills", playbook)
    for _number in range(KILLS):
        yield luck.randint(0, undisturbed), luck.choice((0.0, 0.05, luck.uniform(0, 1.5)))


@pytest.mark.parametrize("playbook", ["site", "upgrade"])
def test_after_a_killed_run_the_next_one_gets_there(tmp_path: Path, playbook: str) -> None:
    undisturbed = Site(tmp_path / "undisturbed")
    assert undisturbed.run(playbook) == 0, undisturbed.output()[-3000:]
    assert undisturbed.damaged() + undisturbed.unfinished(playbook) == []
    defects = Defects()
    for number, (module, delay) in enumerate(points(playbook, undisturbed.modules())):
        where = f"{playbook}, kill {number}, {delay:.2f} s after module {module}"
        site = Site(tmp_path / str(number))
        FIGURES["kills"] += site.kill(playbook, module, delay)
        left = site.damaged()
        defects.check(not left, f"{where}: left {left}")
        status = site.run(playbook)
        defects.check(status == 0, f"{where}: the next run failed: {site.output()[-1500:]}")
        left = site.damaged() + site.unfinished(playbook)
        defects.check(not left, f"{where}: the next run left {left}")
        before = site.modules()
        if number % 5 == 0:
            status = site.run(playbook)
            most = undisturbed.modules()
            defects.check(status == 0 and site.modules() - before <= most, f"{where}: the third run has work")
    defects.report()


def test_of_two_controllers_one_upgrades(tmp_path: Path) -> None:
    site = Site(tmp_path)
    runs = [site.begin("upgrade") for _controller in range(2)]
    statuses = sorted(run.wait(timeout=LIMIT_S) for run in runs)
    assert statuses[0] == 0 and statuses[1] != 0, site.output()[-3000:]
    assert site.damaged() + site.unfinished("upgrade") == []
    assert (tmp_path / "log").read_text().count("leave") == len(NAMES)


def test_with_a_full_disk_no_host_is_drained_and_the_next_run_gets_there(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.states.mkdir()
    # A file system of its own, which is as full as one can be.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", site.states], check=True)
    try:
        filling = site.states / "of-others"
        with contextlib.suppress(OSError), filling.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        assert site.run("upgrade") != 0
        assert "o space left on device" in site.output(), site.output()[-3000:]
        assert not (tmp_path / "log").exists() and site.damaged() == []
        filling.unlink()
        assert site.run("upgrade") == 0, site.output()[-3000:]
        assert site.damaged() + site.unfinished("upgrade") == []
    finally:
        subprocess.run(["umount", site.states], check=True)
