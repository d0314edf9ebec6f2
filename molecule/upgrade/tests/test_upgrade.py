# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live cluster after its upgrade, and what happens to it when an upgrade goes wrong. The tests run in this order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NODES = ("m-slurm1", "m-slurm2", "m-slurm3", "m-slurm4")
CANARY, SECOND, THIRD, CONTROLLER = NODES
SCENARIO = Path(__file__).parent.parent
WORKSPACE = Path(os.environ["GPU_FLEET_TESTBED_WORKSPACE_DIRECTORY"])
STATES = WORKSPACE / "upgrade/hosts"
LOG = WORKSPACE / "upgrade.log"
"""The output of the last run."""
JOBS = "/srv/jobs"
OLD, NEW = "580.159.04", "610.57.04"
"""The driver of the scenario, and that of the tests from the first fault on."""
# The longest that anything here takes, so that a failure ends.
LIMIT_S = 1800
IDLE = dict.fromkeys(NODES, ("idle", ""))


def on(host: str, *words: str, check: bool = True) -> str:
    """What a command prints on a host."""
    command = ["ssh", "-F", str(WORKSPACE / "ssh_config"), host, shlex.join(words)]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert result.returncode == 0 or not check, f"{host}: {shlex.join(words)}: {result.stdout}{result.stderr}"
    return result.stdout.strip()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"not so: {what}\n{LOG.read_text(encoding='utf-8')[-3000:]}"
        time.sleep(1)


def podman(verb: str, host: str) -> None:
    """Use the container of a host."""
    name = f"gpu-fleet-{os.environ['GPU_FLEET_TESTBED_ID']}-{host}"
    subprocess.run(["podman", verb, name], check=True, capture_output=True, timeout=LIMIT_S)


# Slurm


def nodes() -> dict[str, tuple[str, str]]:
    """The state of each node, and why it is out of service; Slurm keeps the last reason of one that is not."""
    lines = on(CONTROLLER, "sinfo", "--noheader", "--Node", "--format=%N|%T|%E").splitlines()
    found = (line.split("|", 2) for line in lines)
    return {name: (state.rstrip("*"), reason if state.startswith("dr") else "") for name, state, reason in found}


def submit(node: str, *arguments: str, gres: str = "gpu:h200:2", name: str = "job") -> str:
    """The number of a job that runs on a node by now; see files/job.sh."""
    words = ["sbatch", "--parsable", f"--job-name={name}", f"--gres={gres}", f"--nodelist={node}", f"--chdir={JOBS}"]
    words += [f"{JOBS}/job.sh", *arguments]
    job = on(CONTROLLER, "runuser", "--user=ordinary", "--", *words)
    wait_for(lambda: state_of(job) == "RUNNING", f"job {job} runs on {node}")
    return job


def state_of(job: str) -> str:
    """The state of a job, also of one that has ended."""
    match = re.search(r"JobState=(\w+)", on(CONTROLLER, "scontrol", "show", "job", job))
    assert match
    return match[1]


def finish(node: str, job: str) -> None:
    """Let a job that stays come to its end."""
    on(node, "touch", f"{JOBS}/end-{job}")


def ended(*jobs: str) -> list[str]:
    """The states of jobs as soon as nothing of them runs any more."""
    for job in jobs:
        wait_for(lambda job=job: state_of(job) not in ("RUNNING", "COMPLETING"), f"job {job} ends")  # type: ignore[misc]
    return [state_of(job) for job in jobs]


# The upgrade


def limits(*hosts: str) -> list[int]:
    """The power limit of the GPUs of each host."""
    query = ["nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
    found = [set(on(host, *query).split()) for host in hosts]
    assert all(len(values) == 1 for values in found), found
    return [int(float(values.pop())) for values in found]


def drivers(*hosts: str) -> list[str]:
    """The driver that each host runs."""
    query = ["nvidia-smi", "--id=0", "--query-gpu=driver_version", "--format=csv,noheader"]
    return [on(host, *query) for host in hosts]


def command(variables: dict[str, Any]) -> list[str]:
    """The command of a run with these variables in place of those of the scenario."""
    inventory = SCENARIO.parent / "inventory"
    playbook = SCENARIO.parent.parent / "playbooks/upgrade.yml"
    declared = f"--extra-vars=@{SCENARIO}/vars/main.yml"
    given = f"--extra-vars={json.dumps({'nvidia_driver_version': NEW, **variables})}"
    return ["ansible-playbook", f"--inventory={inventory}", "--limit=slurm_hosts", declared, given, str(playbook)]


def upgrade(**variables: Any) -> tuple[bool, str]:
    """Run the upgrade; returns whether it succeeded, and its output."""
    with LOG.open("w", encoding="utf-8") as log:
        status = subprocess.run(command(variables), stdout=log, stderr=log, check=False, timeout=LIMIT_S).returncode
    return status == 0, LOG.read_text(encoding="utf-8")


def repair(**variables: Any) -> tuple[bool, str]:
    """Run the upgrade again, with the hosts that failed, all at the same time."""
    again = {"retry_failed": True, "canaries": 0, "batch": len(NODES)}
    return upgrade(**variables, **{f"gpu_fleet_upgrade_{name}": value for name, value in again.items()})


def begin(**variables: Any) -> subprocess.Popen[bytes]:
    """Start an upgrade, which goes on meanwhile."""
    with LOG.open("w", encoding="utf-8") as log:
        return subprocess.Popen(command(variables), stdout=log, stderr=log)


def descendants(pid: int) -> list[int]:
    """A process and those that it has started: each of Ansible's workers has a session of its own."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = path.read_text(encoding="ascii").split() if path.exists() else []
    return [pid, *(one for child in children for one in descendants(int(child)))]


def kill(run: subprocess.Popen[bytes]) -> None:
    """End a run as the end of the controller's host does."""
    os.kill(run.pid, signal.SIGSTOP)  # It starts no others meanwhile.
    for pid in descendants(run.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.wait(timeout=LIMIT_S)


def plan() -> dict[str, Any]:
    """The plan of the last run that had anything to do."""
    document: dict[str, Any] = json.loads((WORKSPACE / "upgrade/plan.json").read_text(encoding="utf-8"))
    return document


def steps() -> dict[str, str]:
    """How far the upgrade has come with each host, by its files on the controller; there is none of a planned one."""
    states = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(STATES.glob("*.json"))]
    begun = {state["host"]: state["step"] for state in states if state["run"] == plan()["run"]}
    return {state["host"]: state["step"] for state in states} | dict.fromkeys(plan()["order"], "planned") | begun


def reason_of(host: str) -> str:
    """Why the upgrade has failed or skipped a host."""
    return str(json.loads((STATES / f"{host}.json").read_text(encoding="utf-8"))["reason"])


def retries(host: str) -> int:
    """How often the run that was begun last has found the node of a host busy."""
    return LOG.read_text(encoding="utf-8").count(f"FAILED - RETRYING: [{host} ")


def hook(step: str, name: str) -> dict[str, list[str]]:
    return {step: [str(SCENARIO / f"tasks/{name}.yml")]}


@pytest.fixture(autouse=True)
def _a_cluster_at_work() -> Iterator[None]:
    """Each test begins and ends with all nodes in service."""
    wait_for(lambda: nodes() == IDLE, "all nodes are in service")
    yield
    assert nodes() == IDLE
    assert steps() == dict.fromkeys(NODES, "in_service")


# What `molecule converge` has done, while a job ran on each node


def test_all_nodes_are_upgraded_and_in_service() -> None:
    assert (drivers(*NODES), limits(*NODES)) == ([OLD] * 4, [650] * 4)
    jobs = on(CONTROLLER, "scontrol", "--oneliner", "show", "job").splitlines()
    assert sorted(re.findall(r"JobState=(\w+).* NodeList=(\S+)", "\n".join(jobs))) == [
        ("COMPLETED", name) for name in NODES
    ]


def test_slurm_has_the_gpus_that_the_role_wrote() -> None:
    for name in NODES:
        gres = on(name, "cat", "/etc/slurm/gres.conf").splitlines()
        gpu = "Name=gpu Type=h200 File=/dev/nvidia"
        assert gres[1:] == ["AutoDetect=off", f"{gpu}0 Links=-1,18", f"{gpu}1 Links=18,-1"]
    listed = on(CONTROLLER, "srun", "--nodes=4", "--gres=gpu:h200:2", "nvidia-smi", "-L")
    assert listed.count("NVIDIA H200") == 8


# Faults


def test_of_a_host_that_dies_the_others_are_not_affected() -> None:
    """The second one, while the third one is changed; the last one is in a batch that does not begin."""
    job = submit(CONTROLLER, "stay")
    succeeded, output = upgrade(gpu_state_power_limit=640, gpu_fleet_upgrade_hooks=hook("before_change", "die"))
    assert not succeeded
    assert drivers(CANARY, THIRD, CONTROLLER) == [NEW, NEW, OLD], output
    assert limits(CANARY, THIRD, CONTROLLER) == [640, 640, 650]
    assert steps() == {CANARY: "in_service", SECOND: "failed", THIRD: "in_service", CONTROLLER: "planned"}
    assert reason_of(SECOND).startswith("Wait until the host can be reached: timed out waiting for ping"), output
    assert state_of(job) == "RUNNING"
    shown = nodes()
    assert shown[SECOND][0] == "drained"
    assert shown[SECOND][1] == f"gpu.fleet {plan()['run']}: {reason_of(SECOND)}"
    assert [shown[name][0] for name in (CANARY, THIRD, CONTROLLER)] == ["idle", "idle", "mixed"]

    podman("start", SECOND)
    wait_for(lambda: on(SECOND, "systemctl", "is-active", "slurmd", check=False) == "active", "slurmd is up")
    # The boot sets what was declared before.
    assert (drivers(SECOND), limits(SECOND)) == ([OLD], [650])
    assert nodes()[SECOND][1] == shown[SECOND][1]
    finish(CONTROLLER, job)
    succeeded, output = repair(gpu_state_power_limit=640)
    assert succeeded, output
    assert (drivers(*NODES), limits(*NODES)) == ([NEW] * 4, [640] * 4)
    assert ended(job) == ["COMPLETED"]


def test_a_job_that_does_not_end_in_time_goes_on_unless_that_is_forced() -> None:
    busy, other = submit(SECOND, "stay"), submit(CONTROLLER, "stay")
    given = {"gpu_state_power_limit": 630, "gpu_fleet_upgrade_idle_timeout_s": 20}
    not_idle = f"not idle after 20 s (gpu_fleet_upgrade_idle_timeout_s), jobs {busy}"

    # In service again, and of what comes after it only what is idle is changed.
    succeeded, output = upgrade(**given, gpu_fleet_upgrade_on_busy="skip")
    assert succeeded, output
    assert limits(*NODES) == [630, 640, 630, 640]
    assert steps() == {CANARY: "in_service", SECOND: "planned", THIRD: "in_service", CONTROLLER: "planned"}
    assert reason_of(SECOND) == not_idle
    assert nodes() == IDLE | dict.fromkeys((SECOND, CONTROLLER), ("mixed", ""))

    # Drained, and what comes after it is not begun.
    succeeded, output = upgrade(**given, gpu_fleet_upgrade_on_busy="fail", gpu_fleet_upgrade_batch=1)
    assert not succeeded
    assert limits(*NODES) == [630, 640, 630, 640], output
    assert (steps()[SECOND], steps()[CONTROLLER]) == ("failed", "planned")
    reason = f"gpu.fleet {plan()['run']}: Refuse a busy host: {not_idle}"
    assert nodes() == IDLE | {SECOND: ("draining", reason), CONTROLLER: ("mixed", "")}
    assert [state_of(job) for job in (busy, other)] == ["RUNNING"] * 2

    finish(CONTROLLER, other)
    succeeded, output = repair(**given, gpu_fleet_upgrade_on_busy="force")
    assert succeeded, output
    assert limits(*NODES) == [630] * 4
    assert ended(busy, other) == ["CANCELLED", "COMPLETED"]


def test_an_unhealthy_canary_stops_the_upgrade() -> None:
    job = submit(THIRD, "stay")
    succeeded, output = upgrade(gpu_state_power_limit=620, gpu_fleet_upgrade_hooks=hook("after_change", "lose_gpu"))
    assert not succeeded
    assert steps() == {CANARY: "failed", SECOND: "planned", THIRD: "planned", CONTROLLER: "planned"}, output
    assert limits(SECOND, THIRD, CONTROLLER) == [630] * 3
    assert state_of(job) == "RUNNING"
    shown = nodes()
    assert shown[CANARY][0] == "drained"
    assert re.match(r"gpu\.fleet \w+: Refuse a host that is not healthy: fail, .*GPU 1 .* is lost", shown[CANARY][1])
    assert [shown[name][1] for name in NODES[1:]] == [""] * 3

    on(CANARY, "gpu-simulator", "fault", "clear")
    finish(THIRD, job)
    succeeded, output = repair(gpu_state_power_limit=620)
    assert succeeded, output
    assert limits(*NODES) == [620] * 4
    assert ended(job) == ["COMPLETED"]


def test_a_killed_controller_continues_where_it_stopped() -> None:
    """Killed while it waits for a job on the second host; in the next run slurmctld is down for a while."""
    job = submit(SECOND, "stay")
    first = begin(gpu_state_power_limit=610)
    wait_for(lambda: retries(SECOND) > 1, "the run waits for the job")
    kill(first)
    run = plan()["run"]
    assert steps() == {CANARY: "in_service", SECOND: "draining", THIRD: "draining", CONTROLLER: "planned"}
    assert limits(*NODES) == [610, 620, 620, 620]
    drained = f"gpu.fleet {run}: upgrade"
    assert nodes() == IDLE | {SECOND: ("draining", drained), THIRD: ("drained", drained)}

    second = begin(gpu_state_power_limit=610)
    wait_for(lambda: retries(SECOND) > 1, "the next run waits for the job")
    on(CONTROLLER, "systemctl", "stop", "slurmctld")
    before = retries(SECOND)
    wait_for(lambda: retries(SECOND) > before + 2, "the run has asked again")
    on(CONTROLLER, "systemctl", "start", "slurmctld")
    finish(SECOND, job)
    assert second.wait(timeout=LIMIT_S) == 0, LOG.read_text(encoding="utf-8")
    assert (plan()["run"], plan()["order"]) == (run, [SECOND, THIRD, CONTROLLER])
    assert limits(*NODES) == [610] * 4
    assert ended(job) == ["COMPLETED"]


def test_without_slurmctld_nothing_is_changed() -> None:
    """It is down before a run, and in the next one from the drain of the canary on."""
    job = submit(SECOND, "stay")
    on(CONTROLLER, "systemctl", "stop", "slurmctld")
    succeeded, output = upgrade(gpu_state_power_limit=600)
    assert not succeeded
    assert output.count("Unable to contact slurm controller") >= len(NODES), output
    assert steps() == dict.fromkeys(NODES, "in_service")
    on(CONTROLLER, "systemctl", "start", "slurmctld")
    wait_for(lambda: nodes() == IDLE | {SECOND: ("mixed", "")}, "all nodes are in service")

    succeeded, output = upgrade(
        gpu_state_power_limit=600, gpu_fleet_upgrade_hooks=hook("before_drain", "stop_slurmctld")
    )
    assert not succeeded
    assert steps() == {CANARY: "failed", SECOND: "planned", THIRD: "planned", CONTROLLER: "planned"}, output
    assert "Unable to contact slurm controller" in reason_of(CANARY)
    assert limits(*NODES) == [610] * 4
    on(CONTROLLER, "systemctl", "start", "slurmctld")
    wait_for(lambda: nodes() == IDLE | {SECOND: ("mixed", "")}, "all nodes are in service")
    assert state_of(job) == "RUNNING"

    finish(SECOND, job)
    succeeded, output = repair(gpu_state_power_limit=600)
    assert succeeded, output
    assert limits(*NODES) == [600] * 4
    assert ended(job) == ["COMPLETED"]


def test_a_node_that_an_operator_drained_stays_drained() -> None:
    on(CONTROLLER, "scontrol", "update", f"NodeName={THIRD}", "State=DRAIN", "Reason=fan 3 is loud")
    succeeded, output = repair(gpu_state_power_limit=590)
    assert succeeded, output
    assert limits(*NODES) == [590] * 4
    assert nodes() == IDLE | {THIRD: ("drained", "fan 3 is loud")}
    assert "fan 3 is loud" in reason_of(THIRD)
    on(CONTROLLER, "scontrol", "update", f"NodeName={THIRD}", "State=RESUME")


def test_slurm_does_not_reboot_a_node_that_an_operator_drained() -> None:
    on(CONTROLLER, "scontrol", "update", f"NodeName={THIRD}", "State=DRAIN", "Reason=fan 3 is loud")
    before = boot_of(THIRD)
    given = {"gpu_fleet_targets": THIRD, "gpu_state_power_limit": 590, "gpu_fleet_upgrade_reboot_by": "slurm"}
    succeeded, output = upgrade(**given, gpu_state_ecc=False)
    assert succeeded, output
    assert boot_of(THIRD) != before
    assert nodes() == IDLE | {THIRD: ("drained", "fan 3 is loud")}
    log = on(CONTROLLER, "journalctl", "--no-pager", "--unit=slurmctld")
    assert not re.search(f"reboot request (queued )?for nodes {THIRD}", log), log[-3000:]
    on(CONTROLLER, "scontrol", "update", f"NodeName={THIRD}", "State=RESUME")


def test_a_job_with_a_row_in_its_name_ends_no_other() -> None:
    """It is forced to end; the row is that of a job on another node."""
    victim = submit(CONTROLLER, "stay")
    name = f"x\n{victim}|RUNNING|ordinary|y"
    busy = submit(SECOND, "stay", name=name)
    given = {"gpu_fleet_targets": SECOND, "gpu_fleet_upgrade_idle_timeout_s": 5, "gpu_fleet_upgrade_on_busy": "force"}
    succeeded, output = upgrade(**given, gpu_state_power_limit=580)
    assert succeeded, output
    assert ended(busy) == ["CANCELLED"]
    assert state_of(victim) == "RUNNING"
    finish(CONTROLLER, victim)
    assert ended(victim) == ["COMPLETED"]
    succeeded, output = upgrade(gpu_fleet_targets=SECOND, gpu_state_power_limit=590)
    assert succeeded, output


# Reboots


def boot_of(host: str) -> str:
    return on(host, "cat", "/proc/sys/kernel/random/boot_id")


def test_slurm_reboots_a_node() -> None:
    before = [boot_of(name) for name in NODES]
    declared = {"gpu_fleet_targets": SECOND, "gpu_state_power_limit": 590, "gpu_fleet_upgrade_reboot_by": "slurm"}
    job = submit(SECOND)
    succeeded, output = upgrade(**declared, gpu_state_ecc=False)
    assert succeeded, output
    assert ended(job) == ["COMPLETED"]
    assert [boot_of(name) == boot for name, boot in zip(NODES, before, strict=True)] == [True, False, True, True]
    query = ["nvidia-smi", "--query-gpu=ecc.mode.current,ecc.mode.pending", "--format=csv,noheader"]
    assert on(SECOND, *query).splitlines() == ["Disabled, Disabled"] * 2
    log = on(CONTROLLER, "journalctl", "--no-pager", "--unit=slurmctld")
    assert re.search(f"reboot request (queued )?for nodes {SECOND}", log), log[-3000:]


# MIG


def test_another_layout_of_mig_devices_is_that_of_slurm() -> None:
    """With a job on all GPUs of the node before, and one on a MIG device after it; and back again."""
    job = submit(SECOND)
    given = {"gpu_fleet_targets": SECOND, "gpu_state_power_limit": 590}
    layout = [{"gpus": ["0"], "enabled": False}, {"gpus": ["1"], "profiles": ["3g.71gb", "1g.18gb", "1g.18gb"]}]
    succeeded, output = upgrade(**given, gpu_state_mig=layout)
    assert succeeded, output
    assert ended(job) == ["COMPLETED"]
    devices = [line for line in on(SECOND, "cat", "/etc/slurm/gres.conf").splitlines() if line.startswith("Name=")]
    assert sorted(line.split()[1] for line in devices) == [
        *("Type=h200", "Type=h200_1g.18gb", "Type=h200_1g.18gb", "Type=h200_3g.71gb")
    ]
    for path in re.findall(r"/dev/[\w/-]+", "\n".join(devices)):
        on(SECOND, "test", "-c", path)
    gres = re.search(r"Gres=(\S+)", on(CONTROLLER, "scontrol", "show", "node", SECOND))
    assert gres
    assert gres[1] == "gpu:h200:1,gpu:h200_1g.18gb:2,gpu:h200_3g.71gb:1"
    on(CONTROLLER, "srun", f"--nodelist={SECOND}", "--gres=gpu:h200_1g.18gb:2", "true")

    job = submit(SECOND, gres="gpu:h200_3g.71gb:1")
    succeeded, output = upgrade(**given, gpu_state_mig=False)
    assert succeeded, output
    assert ended(job) == ["COMPLETED"]
    assert "Gres=gpu:h200:2\n" in on(CONTROLLER, "scontrol", "show", "node", SECOND)
