# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/remediate.yml and the gate of gpu_monitoring with a real Slurm, real reboots and simulated GPUs.

slurmctld and the slurmd of its host are newer than the slurmd of the other nodes. The tests run in this order; each
begins and ends with all nodes in service.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/remediate"
SCENARIO = settings.ROOT / "molecule" / "upgrade"
NODES = FIRST, SECOND, CONTROLLER = ("m-slurm1", "m-slurm2", "m-slurm4")
OLD, NEW = "580.95.05", "580.159.04"
IDLE = dict.fromkeys(NODES, ("idle", ""))
# The longest that anything here takes, so that a failure ends.
LIMIT_S = 900
JOBS = "/srv/jobs"


def on(host: str, *words: str) -> str:
    """What a command prints on a host."""
    done = run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *words])
    assert done.status == 0, f"{host}: {words}: {done.output}"
    return done.output.strip()


def wait_for(what: str, is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, f"not so: {what}; {nodes()}"
        time.sleep(1)


def nodes() -> dict[str, tuple[str, str]]:
    """The state of each node, and why it is out of service; Slurm keeps the last reason of one that is not."""
    lines = on(CONTROLLER, "sinfo", "--noheader", "--Node", "--format=%N|%T|%E").splitlines()
    found = (line.split("|", 2) for line in lines)
    return {name: (state.rstrip("*"), reason if state.startswith("dr") else "") for name, state, reason in found}


def submit(node: str, *words: str) -> str:
    """The number of a job for one GPU of a node: the job of the scenario `upgrade`, or one that ends at once."""
    what = [f"{JOBS}/job.sh", *words] if words else ["--wrap=true"]
    argv = ["sbatch", "--parsable", "--mem=100", "--gres=gpu:h200:1", f"--nodelist={node}", f"--chdir={JOBS}", *what]
    return on(CONTROLLER, "runuser", "--user=ordinary", "--", *argv)


def running(node: str) -> str:
    """The number of a job that runs, until its file is there."""
    job = submit(node, "stay")
    wait_for(f"job {job} runs on {node}", lambda: of_job(job, "JobState") == "RUNNING")
    return job


def of_job(job: str, name: str) -> str:
    """A field of a job, also of one that has ended."""
    found = re.search(rf"\b{name}=(\S+)", on(CONTROLLER, "scontrol", "show", "job", job))
    assert found
    return found[1]


def ended(job: str) -> str:
    """The state of a job as soon as it has ended."""
    wait_for(f"job {job} ends", lambda: of_job(job, "JobState") not in ("PENDING", "RUNNING", "COMPLETING"))
    return of_job(job, "JobState")


def boot_of(host: str) -> str:
    return on(host, "cat", "/proc/sys/kernel/random/boot_id")


def simulate(host: str, *words: str) -> None:
    """Change the simulated GPUs, and have the timer's check judge them now, not within its minute."""
    on(host, "gpu-simulator", *words)
    on(host, "systemctl", "restart", "gpu-fleet-health.service")


class Site:
    """A controller with its own directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "log"
        declared = yaml.safe_load((SCENARIO / "vars" / "main.yml").read_text(encoding="utf-8"))
        self.variables = {
            **{name: value for name, value in declared.items() if name != "gpu_fleet_upgrade_directory"},
            "scenario_driver": OLD,
            "gpu_fleet_remediate_directory": str(directory / "states"),
            # Three nodes are no fleet.
            "gpu_fleet_remediate_stop_at": "100%",
            "gpu_fleet_upgrade_max_unavailable": "100%",
            "gpu_fleet_evidence": "never",
        }

    def command(self, playbook: str, hosts: dict[str, Any], given: dict[str, Any]) -> list[str]:
        """A run with these variables of all hosts and of single ones."""
        inventory = self.directory / "given.json"
        group = {"vars": {**self.variables, **given}, "hosts": hosts}
        inventory.write_text(json.dumps({"all": {"children": {"slurm_hosts": group}}}), encoding="utf-8")
        return ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", "-i", str(inventory), playbook]

    def play(self, playbook: str, **given: Any) -> Result:
        return run(self.command(playbook, {}, given), env={"GPU_FLEET_TESTBED_INVENTORY": "remediate"})

    def remediate(self, hosts: dict[str, Any] | None = None, **given: Any) -> Result:
        return run(self.command("playbooks/remediate.yml", hosts or {}, given), log=self.log)

    def begin(self, hosts: dict[str, Any] | None = None, **given: Any) -> subprocess.Popen[bytes]:
        """A run that goes on meanwhile, and waits for a job."""
        with self.log.open("wb") as log:
            argv = self.command("playbooks/remediate.yml", hosts or {}, given)
            process = subprocess.Popen(argv, cwd=settings.ROOT, env=settings.environment(), stdout=log, stderr=log)
        wait_for("the run waits for a job", lambda: process.poll() is not None or "RETRYING" in self.output())
        assert process.poll() is None, self.output()
        return process

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def document(self, place: str, host: str) -> Any:
        return json.loads((self.directory / "states" / place / f"{host}.json").read_text(encoding="utf-8"))

    def healthy_at(self, host: str) -> str:
        """When a host was found healthy, directly before its return to service."""
        (time_of,) = (one["time"] for one in self.document("hosts", host)["history"] if one["step"] == "healthy")
        return str(time_of).rstrip("Z")

    def attempts(self, host: str) -> list[tuple[str, str]]:
        return [(one["remedy"], one["outcome"]) for one in self.document("remedies", host)["attempts"]]

    def touched(self) -> set[str]:
        """The hosts that were drained."""
        return {path.stem for path in (self.directory / "states" / "hosts").glob("*.json")}


@pytest.fixture(scope="module", autouse=True)
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A cluster in which Slurm hears the verdict."""
    site = Site(tmp_path_factory.mktemp("cluster"))
    for playbook in (
        *("testbed/playbooks/create.yml", "testbed/playbooks/renew.yml", "molecule/upgrade/prepare.yml"),
        f"{DIRECTORY}/gate.yml",
    ):
        done = site.play(playbook, gpu_fleet_upgrade_directory=str(site.directory / "upgrade"))
        assert done.status == 0, done.output[-6000:]
        if playbook.endswith("prepare.yml"):
            on(CONTROLLER, "scancel", "--user=ordinary")
    wait_for("all nodes are in service", lambda: nodes() == IDLE)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A controller, and a cluster that is in service before and after a test."""
    wait_for("all nodes are in service", lambda: nodes() == IDLE)
    yield Site(tmp_path)
    assert nodes() == IDLE


def test_the_gate_drains_a_node_whose_gpu_is_off_the_bus_and_a_remedy_takes_it_over(site: Site) -> None:
    simulate(SECOND, "fault", "xid", "79", "--gpu", "1")
    wait_for("Slurm has drained the node", lambda: nodes()[SECOND][0] == "drained")
    job = submit(SECOND)
    reason = nodes()[SECOND][1]
    assert re.fullmatch(r"gpu\.fleet\.health check: .*GPU 1 \(.*\).* Xid 79.*; remedy reboot", reason), reason
    before = boot_of(SECOND)
    done = site.remediate()
    assert done.status == 0, done.output[-6000:]
    assert site.touched() == {SECOND} and site.attempts(SECOND) == [("reboot", "helped")]
    assert boot_of(SECOND) != before
    assert ended(job) == "COMPLETED"
    assert of_job(job, "StartTime") >= site.healthy_at(SECOND)


def test_a_reboot_a_reset_behind_a_job_and_an_error_of_an_application(site: Site) -> None:
    busy, other = running(SECOND), running(CONTROLLER)
    simulate(FIRST, "fault", "xid", "79", "--gpu", "0")
    simulate(SECOND, "fault", "xid", "119", "--gpu", "1")
    simulate(CONTROLLER, "fault", "xid", "94", "--gpu", "0", "--pid", "4711", "--name", "python3", "--action", "none")
    refused = submit(SECOND)
    # The check leaves a busy node alone; the prolog of the next job does not.
    wait_for("the prolog has refused the job", lambda: nodes()[SECOND][0] == "draining")
    assert "Xid 119" in nodes()[SECOND][1] and nodes()[SECOND][1].endswith("; remedy reset_gpu")
    before = boot_of(FIRST), boot_of(SECOND)
    process = site.begin()
    on(SECOND, "touch", f"{JOBS}/end-{busy}")
    assert process.wait(timeout=LIMIT_S) == 0, site.output()[-6000:]
    assert site.touched() == {FIRST, SECOND}
    assert (site.attempts(FIRST), site.attempts(SECOND)) == ([("reboot", "helped")], [("reset_gpu", "helped")])
    assert boot_of(FIRST) != before[0] and boot_of(SECOND) == before[1]
    assert [ended(job) for job in (busy, refused)] == ["COMPLETED"] * 2
    assert of_job(refused, "StartTime") >= site.healthy_at(SECOND) >= of_job(busy, "EndTime")
    assert of_job(other, "JobState") == "RUNNING" and nodes()[CONTROLLER] == ("mixed", "")
    on(CONTROLLER, "touch", f"{JOBS}/end-{other}")
    assert ended(other) == "COMPLETED"
    on(CONTROLLER, "gpu-simulator", "fault", "clear")


def test_a_wrong_driver_a_pending_row_and_a_link_that_is_down(site: Site) -> None:
    job = running(SECOND)
    simulate(SECOND, "set", "remapped_rows.pending", "true", "--gpu", "0")
    simulate(CONTROLLER, "fault", "nvlink", "3", "--gpu", "1")
    wait_for("Slurm has drained the node", lambda: nodes()[CONTROLLER][0] == "drained")
    assert nodes()[SECOND] == ("mixed", "")
    process = site.begin(
        {FIRST: {"nvidia_driver_version": NEW}},
        gpu_fleet_remediate_on=["fail", "row_remap_pending", "driver_version"],
    )
    assert of_job(job, "JobState") == "RUNNING"
    pending = ["nvidia-smi", "--query-remapped-rows=remapped_rows.pending", "--format=csv,noheader"]
    assert on(SECOND, *pending).split() == ["Yes", "No"]
    on(SECOND, "touch", f"{JOBS}/end-{job}")
    assert process.wait(timeout=LIMIT_S) == 0, site.output()[-6000:]
    assert ended(job) == "COMPLETED"
    assert site.touched() == {*NODES}
    assert [site.attempts(name) for name in NODES] == [
        [("configure", "helped")],
        [("reset_gpu", "helped")],
        [("reset_gpu", "helped")],
    ]
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    assert [{*on(name, *query).split()} for name in NODES] == [{NEW}, {OLD}, {OLD}]


def test_a_lost_gpu_that_comes_back_and_one_that_does_not(site: Site) -> None:
    """The hook lets the GPU of the first node fall off the bus again, after its reboot."""
    again = {"after_change": [str(SCENARIO / "tasks" / "lose_gpu.yml")]}
    ticket = ["cp", "{{ remediate_case }}", str(site.directory)]
    given = {"gpu_fleet_upgrade_hooks": again, "gpu_fleet_remediate_commands": {"ticket": ticket}}
    for name in (FIRST, SECOND):
        simulate(name, "fault", "lost", "--gpu", "1")
    wait_for("Slurm has drained both", lambda: {nodes()[name][0] for name in (FIRST, SECOND)} == {"drained"})
    done = site.remediate(**given)
    assert done.status != 0
    assert nodes()[SECOND] == ("idle", ""), done.output[-6000:]
    state, reason = nodes()[FIRST]
    assert state == "drained" and re.match(r"gpu\.fleet\.remedy \w+: .*GPU 1 .*lost", reason), reason
    assert site.attempts(FIRST) == [("reboot", "failed")] and not (site.directory / f"{FIRST}.json").exists()
    # Nothing stronger than a reboot can be done here: a person has the case, once.
    boot = boot_of(FIRST)
    assert site.remediate(**given).status != 0
    state, reason = nodes()[FIRST]
    assert state == "drained" and "reboot did not help" in reason and "power_cycle" in reason, reason
    case = json.loads((site.directory / f"{FIRST}.json").read_text(encoding="utf-8"))
    assert case["remedy"] == "power_cycle"
    assert all(gpu["serial"] for gpu in case["gpus"]), case
    (site.directory / f"{FIRST}.json").unlink()
    job = submit(FIRST)
    assert site.remediate(**given).status != 0
    assert not (site.directory / f"{FIRST}.json").exists() and nodes()[FIRST] == (state, reason)
    assert boot_of(FIRST) == boot and of_job(job, "JobState") == "PENDING"
    # The person has replaced it.
    on(FIRST, "gpu-simulator", "fault", "clear")
    done = site.remediate(gpu_fleet_remediate_retry_failed=True)
    assert done.status == 0, done.output[-6000:]
    assert ended(job) == "COMPLETED" and of_job(job, "StartTime") >= site.healthy_at(FIRST)


def test_of_two_controllers_one_remedies_a_node(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Site(tmp_path_factory.mktemp("other"))
    job = running(SECOND)
    simulate(SECOND, "fault", "xid", "119", "--gpu", "1")
    process = site.begin()
    reason = nodes()[SECOND][1]
    # Another machine shares nothing but the reason of the drain; another run here, the directory.
    done = other.remediate()
    assert done.status != 0 and "of gpu.fleet.remedy has drained it" in done.output, done.output[-6000:]
    second = Site(tmp_path_factory.mktemp("second")).remediate(
        gpu_fleet_remediate_directory=str(site.directory / "states")
    )
    assert second.status != 0 and "Refuse a second run in the directory" in second.output, second.output[-6000:]
    assert other.touched() == set() and nodes()[SECOND] == ("draining", reason)
    on(SECOND, "touch", f"{JOBS}/end-{job}")
    assert process.wait(timeout=LIMIT_S) == 0, site.output()[-6000:]
    assert site.attempts(SECOND) == [("reset_gpu", "helped")]
    assert ended(job) == "COMPLETED"


def test_nothing_else_was_drained() -> None:
    """By slurmctld's log: the node of slurmctld only for its link, and no node without a reason of ours."""
    log = on(CONTROLLER, "journalctl", "--no-pager", "--unit=slurmctld")
    reasons = re.findall(r"update_node: node (\S+) reason set to: (.*)", log)
    assert {name for name, _reason in reasons} == {*NODES}
    assert all(reason.startswith(("gpu.fleet.health check: ", "gpu.fleet.remedy ")) for _name, reason in reasons), log
    assert all("NVLink" in reason for name, reason in reasons if name == CONTROLLER), reasons
