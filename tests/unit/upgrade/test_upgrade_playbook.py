# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml on mock hosts: what is drained, what stays drained, and how a run continues."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._run_lock import acquire, process_of, release

from tests.conftest import ROOT
from tests.unit.plays import unreachable
from tests.unit.site.converged import CUDA, NVIDIA_SMI, PACKAGES, STATE
from tests.unit.site.mock_host import H200, NO_DRIVER, NO_GPU, MockHost, SiteRun, run_site
from tests.unit.slurm.mock_slurm import edit, mock_slurm

pytestmark = pytest.mark.plays

OBSERVATION = ["host_facts"]
HEALTHY: Mapping[str, Any] = {"changed": False, "verdict": "ok", "remedy": "none", "findings": [], "gpus": []}
LOST: Mapping[str, Any] = {
    **HEALTHY,
    "verdict": "fail",
    "remedy": "reboot",
    "findings": [{"verdict": "fail", "message": "GPU 0 is lost; reboot the host"}],
}


def host(changes: bool, health: Mapping[str, Any] | None = None) -> MockHost:
    """A host whose GPU state is to be changed, or not."""
    state = {**STATE, "changed": changes, "gpus_changed": changes}
    facts = {"changed": False, "ansible_facts": {"nvidia_smi": NVIDIA_SMI}}
    results = {"gpu_state": state, "gpu_health": health or HEALTHY, "nvidia_smi_facts": facts}
    return MockHost(nvidia_smi=NVIDIA_SMI, cuda=CUDA, packages=PACKAGES, results=results)


def upgrade(
    directory: Path,
    hosts: Mapping[str, MockHost],
    *arguments: str,
    env: Any = None,
    **given: Any,
) -> SiteRun:
    """Run the playbook with commands that write a log, in a directory of its own. Programs are looked for there."""
    log = directory / "log"
    actions = ("drain", "wait", "return", "fail")
    hook = {"ansible.builtin.command": {"argv": ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {{word}} >> {log}"]}}
    for word in ("stop-dcgm", "start-dcgm"):
        task = {
            "name": "Log the hook",
            "delegate_to": "localhost",
            **json.loads(json.dumps(hook).replace("{word}", word)),
        }
        (directory / f"{word}.yml").write_text(json.dumps([task]))
    # Before the change, or in the middle of it, the host is not there any more.
    gone = unreachable(directory, "connect: No route to host")
    for file, name in (("lose", "dead"), ("lose_later", "dying")):
        task = {"name": "Lose the host", "ansible.builtin.set_fact": gone, "when": f"inventory_hostname == '{name}'"}
        (directory / f"{file}.yml").write_text(json.dumps([task]))
    fail = {"ansible.builtin.fail": {"msg": "no disk"}, "when": "inventory_hostname == 'broken'"}
    (directory / "break.yml").write_text(json.dumps([{"name": "Break the change", **fail}]))
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(directory / "states"),
        "gpu_fleet_upgrade_scheduler": "commands",
        "gpu_fleet_upgrade_commands": {
            action: ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {action} >> {log}"] for action in actions
        },
        "gpu_fleet_upgrade_hooks": {
            "before_change": [str(directory / f"{name}.yml") for name in ("stop-dcgm", "lose", "break")],
            "after_change": [str(directory / "start-dcgm.yml")],
        },
        "gpu_state_hooks_before": [str(directory / "lose_later.yml")],
        "__upgrade_connection_timeout": 1,
        **given,
    }
    run = directory / f"run{len(list(directory.glob('run*')))}"
    run.mkdir()
    return run_site(
        run,
        {name: (found, variables) for name, found in hosts.items()},
        *arguments,
        playbook=ROOT / "playbooks" / "upgrade.yml",
        env={"PATH": f"{directory}:{os.environ['PATH']}", **(env or {})},
    )


def steps(directory: Path) -> dict[str, str]:
    """The recorded step of each host."""
    return {
        path.stem: json.loads(path.read_text())["step"] for path in sorted((directory / "states" / "hosts").iterdir())
    }


def test_the_prediction_drains_nothing(tmp_path: Path) -> None:
    done = upgrade(tmp_path, {"idle": host(False), "due": host(True)}, "--check")
    assert done.rc == 0, done.output
    assert done.modules == {"idle": OBSERVATION, "due": OBSERVATION}
    assert "batch 1 (canaries), 1 host:" in done.output and "nothing to do on 1: idle" in done.output
    assert not (tmp_path / "log").exists() and not list((tmp_path / "states" / "hosts").iterdir())
    written = tmp_path / "states" / "check.json"
    assert json.loads(written.read_text())["batches"] == [["due"]]
    assert written.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("callback", ["", "ansible.posix.json"])
def test_the_plan_is_shown_also_where_results_that_are_ok_are_hidden(tmp_path: Path, callback: str) -> None:
    """As examples/ops-team has it: a prediction is read, and not only made."""
    env = {
        "ANSIBLE_DISPLAY_OK_HOSTS": "false",
        "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table",
        "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
        **({"ANSIBLE_STDOUT_CALLBACK": callback} if callback else {}),
    }
    done = upgrade(tmp_path, {"idle": host(False), "due": host(True)}, "--check", env=env)
    assert done.rc == 0, done.output
    lines = done.output.splitlines()
    counts = [
        sum(line.startswith(text) for line in lines) for text in ("batch 1 (canaries)", "nothing to do on 1: idle")
    ]
    assert counts == ([0, 0] if callback else [1, 1]), done.output
    assert callback or "ok: [" not in done.output


@pytest.mark.parametrize(
    ("arguments", "mismatch", "message"),
    [
        (("-egpu_fleet_targets=typo",), "error", "Could not match supplied host pattern, ignoring: typo"),
        (("-egpu_fleet_targets=typo",), "warning", "no task has run on any host: see gpu_fleet_targets"),
        (("--tags=foo",), "error", "no task has run on any host: see gpu_fleet_targets"),
        (("--start-at-task=foo",), "error", "no task has run on any host: see gpu_fleet_targets"),
        (("--limit=typo",), "warning", "leaves us with no hosts to target"),
    ],
)
def test_a_run_that_touches_no_host_fails_with_the_reason(
    tmp_path: Path, arguments: tuple[str, ...], mismatch: str, message: str
) -> None:
    env = {"ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table", "ANSIBLE_HOST_PATTERN_MISMATCH": mismatch}
    done = upgrade(tmp_path, {"due": host(True)}, *arguments, env=env)
    assert message in done.output and done.modules == {"due": []}, done.output
    assert done.rc != 0, done.output


def test_a_run_over_an_empty_inventory_fails_with_the_reason(tmp_path: Path) -> None:
    env = {"ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table"}
    done = run_site(tmp_path, {}, env=env)
    assert done.rc != 0 and "no task has run on any host: see gpu_fleet_targets" in done.output, done.output


def test_a_refused_variable_is_a_line_of_its_own(tmp_path: Path) -> None:
    done = upgrade(tmp_path, {"due": host(True)}, "--check", gpu_fleet_upgrade_scheduler="pbs")
    assert done.failure("due").startswith("gpu_fleet_upgrade_scheduler is 'pbs'; it takes one of none"), done.output
    assert done.rc != 0 and "Finalization" not in done.output and "filter" not in done.output


def test_an_nvlink_domain_is_one_batch_and_one_with_a_host_of_another_cluster_is_held(tmp_path: Path) -> None:
    def tray(cluster: int) -> MockHost:
        found = host(True)
        place = {"fabric_cluster_uuid": f"{cluster}a7e1f0c-0000-4000-8000-0123456789ab", "fabric_clique_id": 2}
        gpus = [{**gpu, **place, "name": "NVIDIA GB200"} for gpu in found.nvidia_smi["gpus"]]
        return replace(found, nvidia_smi={**found.nvidia_smi, "gpus": gpus})

    hosts = {"tray1": tray(1), "alone": host(True), "tray2": tray(1), "tray3": tray(1)}
    named = {"gpu_fleet_nvlink_domain": "{{ 'rack7' if inventory_hostname != 'alone' else '' }}"}
    rack = ["tray1", "tray2", "tray3"]
    for given, batches in ((named, [rack, ["alone"]]), ({}, [["alone"]])):
        done = upgrade(tmp_path, hosts, "--check", **given)
        written = json.loads((tmp_path / "states" / "check.json").read_text())
        assert written["batches"] == batches, done.output
        # Where nobody names the domain, it is proposed, and its trays wait by name.
        assert (done.rc != 0) is ("by the facts: tray1, tray2, tray3" in done.output) is (given == {})
        assert [*written["held"]] == ([] if given else rack)
    assert not (tmp_path / "log").exists()
    done = upgrade(tmp_path, {**hosts, "tray2": tray(2)}, **named)
    assert done.rc != 0 and "gpu_fleet_nvlink_domain rack7: tray2: cluster 2a7e1f0c" in done.output
    drained = {line.split()[0] for line in (tmp_path / "log").read_text().splitlines()}
    assert drained == {"alone"} and steps(tmp_path)["alone"] == "in_service"


# PCI device ids of GB200 and B200: https://pci-ids.ucw.cz/read/PC/10de
TRAY, HGX = ({**H200, "device_id": number, "name": name} for number, name in (("0x2941", "GB200"), ("0x2901", "B200")))
NAMES = tuple(f"tray{number:02}" for number in range(1, 19))
DRIVER = {"gpu_fleet_roles": ["nvidia_driver"], "nvidia_driver_version": "580"}


def bare(gpu: Mapping[str, Any], **fabric: Any) -> MockHost:
    """A host without a driver, with these GPUs and what connects them."""
    return MockHost(nvidia_smi={**NO_DRIVER, "pci_gpus": [gpu] * 4}, fabric=fabric)


def test_the_nodes_of_imex_are_the_hosts_of_the_domain(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    shown = {"msg": "{{ inventory_hostname }} has {{ ansible_facts['imex_domain'] | default([]) | join(' ') }}"}
    tasks = [{"gpu.fleet.host_facts": {"roles": ["nvidia_driver"]}}, {"ansible.builtin.debug": shown}]
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    rack = {**DRIVER, "gpu_fleet_nvlink_domain": "rack7", "rack_network": "10.0.7"}
    address = "{{ rack_network }}.{{ inventory_hostname[-2:] | int }}"
    given = {
        "tray01": {**rack, "nvidia_driver_imex_address": address},
        "tray02": {**rack, "gpu_fleet_nvlink_domain": "{{ 'rack' ~ 7 }}", "ansible_host": "tray02.example.org"},
        "tray03": rack,
        "other": {**rack, "gpu_fleet_nvlink_domain": "rack8"},
        "alone": {**DRIVER, "nvidia_driver_imex_nodes": ["10.0.9.1"]},
    }
    done = run_site(tmp_path, {name: (bare(TRAY), one) for name, one in given.items()}, playbook=play)
    assert done.rc == 0, done.output
    for name in ("tray01", "tray02", "tray03"):
        assert f'{name} has 10.0.7.1 tray02.example.org tray03"' in done.output
    assert 'other has other"' in done.output and 'alone has "' in done.output


def test_18_trays_without_a_driver_are_one_batch(tmp_path: Path) -> None:
    done = upgrade(tmp_path, {name: bare(TRAY) for name in NAMES}, "--check", **DRIVER, gpu_fleet_nvlink_domain="rack7")
    assert done.rc == 0, done.output
    assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [[*NAMES]]


@pytest.mark.parametrize(
    ("found", "given", "message"),
    [
        (bare(TRAY), {}, "name the domain with gpu_fleet_nvlink_domain on all of them"),
        (
            bare(TRAY),
            {"gpu_fleet_nvlink_domain": "rack7", "nvidia_driver_imex_address": "10.0.7.1"},
            "the NVLink domain of this host (gpu_fleet_nvlink_domain) has 10.0.7.1 more than once",
        ),
        (bare(TRAY, imex_in_pods=True), {"gpu_fleet_nvlink_domain": "rack7"}, "Kubernetes runs IMEX in a pod"),
        (
            bare(HGX, nvlink5_bridges=["00000000:05:00.0"], missing_modules=["ib_umad"]),
            {},
            "has no ib_umad, without which NVLink 5 cannot be managed",
        ),
        (
            bare(HGX, nvlink5_bridges=["00000000:05:00.0"]),
            {"nvidia_driver_source": "distribution"},
            "distribution has no fabric manager packages for Debian",
        ),
    ],
)
def test_what_nvlink_needs_is_checked_before_the_drain(
    found: MockHost, given: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    done = upgrade(tmp_path, {"tray01": found, "tray02": found}, **{**DRIVER, **given})
    assert done.rc != 0 and message in done.failure("tray01"), done.output
    assert not (tmp_path / "log").exists()


def test_a_domain_with_a_refused_tray_is_left_as_it_is(tmp_path: Path) -> None:
    hosts = {name: bare(TRAY) for name in ("tray01", "tray03")}
    given = {**DRIVER, "gpu_fleet_nvlink_domain": "rack7"}
    wrong = bare(TRAY, imex_in_pods=True)
    done = upgrade(tmp_path, {**hosts, "tray02": wrong}, **given)
    assert done.rc != 0 and "Kubernetes runs IMEX in a pod" in done.failure("tray02"), done.output
    assert "changed together, and tray02 could not be reached or was refused" in done.failure("tray01")
    assert not (tmp_path / "log").exists() and not list((tmp_path / "states" / "hosts").iterdir())
    # With the one left out on purpose.
    done = upgrade(tmp_path, {**hosts, "tray02": wrong}, "--check", "-egpu_fleet_targets=tray01:tray03", **given)
    assert done.rc == 0, done.output
    assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [["tray01", "tray03"]]


def test_a_failure_stops_the_run_which_continues_after_the_repair(tmp_path: Path) -> None:
    hosts = {name: host(name != "idle") for name in ("canary", "idle", "broken", "dead", "dying", "last")}
    done = upgrade(tmp_path, hosts, gpu_fleet_upgrade_batch=3)
    assert done.rc != 0
    assert done.modules["idle"] == OBSERVATION == done.modules["last"], done.output
    assert steps(tmp_path) == {"canary": "in_service", **dict.fromkeys(("broken", "dead", "dying"), "failed")}
    log = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    actions = {name: [action for host_name, action in log if host_name == name] for name in hosts}
    assert actions == {
        # Whether it is idle is asked again directly before the change.
        "canary": ["drain", "wait", "stop-dcgm", "wait", "start-dcgm", "return"],
        # What was stopped is started again also where the change has failed.
        "broken": ["drain", "wait", "stop-dcgm", "start-dcgm", "fail"],
        "dead": ["drain", "wait", "stop-dcgm", "start-dcgm", "fail"],
        "dying": ["drain", "wait", "stop-dcgm", "wait", "fail"],
        "idle": [],
        "last": [],
    }
    assert "broken has failed and stays drained: Break the change: no disk" in done.output
    assert "dying is failed: the host could not be reached after it was drained" in done.output
    assert "dead is failed: Wait until the host can be reached: timed out waiting for ping" in done.output
    assert "3 failed, and gpu_fleet_upgrade_max_failures is 0; repair them" in done.output
    run = json.loads((tmp_path / "states" / "plan.json").read_text())["run"]

    hosts["canary"] = host(False)
    done = upgrade(tmp_path, hosts, gpu_fleet_upgrade_batch=4, gpu_fleet_upgrade_retry_failed=True, **NOBODY_DIES)
    assert done.rc == 0, done.output
    assert steps(tmp_path) == dict.fromkeys(("canary", "broken", "dead", "dying", "last"), "in_service")
    plan = json.loads((tmp_path / "states" / "plan.json").read_text())
    assert (plan["run"], plan["batches"]) == (run, [["broken", "dead", "dying", "last"]])
    assert done.modules["canary"] == OBSERVATION


NOBODY_DIES: Mapping[str, Any] = {"gpu_fleet_upgrade_hooks": {}, "gpu_state_hooks_before": []}


def test_the_reason_of_a_failure_is_given_to_commands_of_the_command_line(tmp_path: Path) -> None:
    commands = {
        "drain": ["true"],
        "return": ["true"],
        "fail": ["sh", "-c", f'echo {{{{ inventory_hostname }}}} "$0" >> {tmp_path}/reasons', "{{ upgrade_failure }}"],
    }
    path = tmp_path / "commands.json"
    path.write_text(json.dumps({"gpu_fleet_upgrade_commands": commands}))
    done = upgrade(tmp_path, {"node": host(True, LOST)}, "-e", f"@{path}", **NOBODY_DIES)
    assert done.rc != 0 and steps(tmp_path) == {"node": "failed"}, done.output
    assert (tmp_path / "reasons").read_text().startswith("node "), done.output
    assert "GPU 0 is lost" in (tmp_path / "reasons").read_text()


def test_a_busy_host_is_returned_to_service_and_left_for_another_run(tmp_path: Path) -> None:
    # A limit in seconds: four attempts of three seconds each are no four seconds.
    wait = ["sh", "-c", f"echo >> {tmp_path}/waits; sleep 3; false"]
    commands = {"drain": ["true"], "wait": wait, "return": ["touch", str(tmp_path / "returned")]}
    done = upgrade(
        tmp_path,
        {"node": host(True)},
        # A canary that is left is a failure.
        gpu_fleet_upgrade_canaries=0,
        gpu_fleet_upgrade_on_busy="skip",
        gpu_fleet_upgrade_idle_timeout_s=4,
        gpu_fleet_upgrade_idle_interval_s=1,
        **{**NOBODY_DIES, "gpu_fleet_upgrade_commands": commands},
    )
    assert done.rc == 0, done.output
    assert steps(tmp_path) == {"node": "planned"}
    assert "node is planned: not idle after 4 s (gpu_fleet_upgrade_idle_timeout_s)" in done.output
    assert (tmp_path / "returned").exists() and done.modules["node"] == OBSERVATION
    assert len((tmp_path / "waits").read_text()) <= 3


def test_a_canary_that_is_busy_stops_the_run_which_fails(tmp_path: Path) -> None:
    commands = {"drain": ["true"], "wait": ["false"], "return": ["true"]}
    done = upgrade(
        tmp_path,
        {"canary": host(True), "next": host(True)},
        gpu_fleet_upgrade_on_busy="skip",
        gpu_fleet_upgrade_idle_timeout_s=0,
        **{**NOBODY_DIES, "gpu_fleet_upgrade_commands": commands},
    )
    assert done.rc != 0, done.output
    assert done.modules["next"] == OBSERVATION and steps(tmp_path) == {"canary": "planned"}
    assert done.failure("canary") == (
        "the canary canary was not changed: not idle after 0 s (gpu_fleet_upgrade_idle_timeout_s): non-zero return "
        "code; so these are left as they were: canary, next. Run this again when it is idle, or name other hosts in "
        "gpu_fleet_upgrade_canaries"
    )


def test_a_host_without_any_gpu_after_the_change_stays_drained(tmp_path: Path) -> None:
    found = host(True, LOST)
    gone = {"changed": False, "ansible_facts": {"nvidia_smi": NO_GPU}}
    hook = [{"name": "Read the GPUs", "gpu.fleet.nvidia_smi_facts": {}}]
    (tmp_path / "read.yml").write_text(json.dumps(hook))
    hosts = {"node": replace(found, results={**found.results, "nvidia_smi_facts": gone})}
    given = {**NOBODY_DIES, "gpu_fleet_upgrade_hooks": {"after_change": [str(tmp_path / "read.yml")]}}
    done = upgrade(tmp_path, hosts, **given)
    assert done.rc != 0 and steps(tmp_path) == {"node": "failed"}, done.output


def test_a_message_with_control_characters_is_a_reason(tmp_path: Path) -> None:
    slurm = mock_slurm(tmp_path)
    found = host(True)
    broken = {"failed": True, "msg": "GPU 0\x1b[31m refuses\n\x9b2J now"}
    results = {**found.results, "gpu_state in check mode": found.results["gpu_state"], "gpu_state": broken}
    settings = {"gpu_fleet_upgrade_scheduler": "slurm", "gpu_fleet_upgrade_slurm_host": "localhost", **NOBODY_DIES}
    done = upgrade(tmp_path, {"gpu1": replace(found, results=results)}, **settings)
    assert done.rc != 0
    assert json.loads(slurm.read_text())["reason"].endswith(": GPU 0 [31m refuses 2J now"), done.output


def test_a_drain_of_another_run_is_refused_and_can_be_taken_over(tmp_path: Path) -> None:
    slurm = mock_slurm(tmp_path)
    other = "20260101T000000Z_c0ffee"
    edit(slurm, state="IDLE+DRAIN", reason=f"gpu.fleet {other}: upgrade")
    settings = {"gpu_fleet_upgrade_scheduler": "slurm", "gpu_fleet_upgrade_slurm_host": "localhost", **NOBODY_DIES}
    done = upgrade(tmp_path, {"gpu1": host(True)}, **settings)
    assert done.rc != 0 and done.modules["gpu1"] == OBSERVATION
    assert done.failure("gpu1").startswith(f"the run {other} of gpu.fleet has drained it (upgrade), "), done.output
    assert json.loads(slurm.read_text())["reason"] == f"gpu.fleet {other}: upgrade"
    done = upgrade(tmp_path, {"gpu1": host(True)}, gpu_fleet_upgrade_take_over=other, **settings)
    assert done.rc == 0, done.output
    assert json.loads(slurm.read_text())["state"] == "IDLE" and steps(tmp_path) == {"gpu1": "in_service"}


def test_a_drain_that_another_run_has_replaced_meanwhile_is_refused(tmp_path: Path) -> None:
    """Of two controllers that drain a node at the same time, the one that was later has it."""
    slurm = mock_slurm(tmp_path)
    reason = "gpu.fleet 20260101T000000Z_c0ffee: upgrade"
    program = (
        "import json, sys; from pathlib import Path; path = Path(sys.argv[1]); "
        "path.write_text(json.dumps({**json.loads(path.read_text()), 'reason': sys.argv[2]}))"
    )
    argv = [sys.executable, "-c", program, str(slurm), reason]
    task = {"name": "Drain it", "ansible.builtin.command": {"argv": argv}, "delegate_to": "localhost"}
    (tmp_path / "drain.yml").write_text(json.dumps([task]))
    settings = {
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        **NOBODY_DIES,
        "gpu_fleet_upgrade_hooks": {"before_change": [str(tmp_path / "drain.yml")]},
    }
    done = upgrade(tmp_path, {"gpu1": host(True)}, **settings)
    assert done.rc != 0 and "gpu_state" not in done.modules["gpu1"], done.output
    shown = json.loads(slurm.read_text())
    assert (shown["state"], shown["reason"]) == ("IDLE+DRAIN", reason)


def test_a_node_of_slurm_stays_drained_by_its_reason_until_it_is_healthy(tmp_path: Path) -> None:
    slurm = mock_slurm(tmp_path)
    edit(slurm, jobs="4711|RUNNING|ann\n")
    settings = {
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_idle_timeout_s": 0,
        **NOBODY_DIES,
    }
    done = upgrade(tmp_path, {"gpu1": host(True, LOST)}, gpu_fleet_upgrade_on_busy="force", **settings)
    # The verdict before the change, and the evidence of the fault that it finds.
    assert done.modules["gpu1"][len(OBSERVATION) :][:3] == ["ping", "gpu_health", "gpu_health"]
    assert "scancel 4711" in (tmp_path / "log").read_text()
    run = json.loads((tmp_path / "states" / "plan.json").read_text())["run"]
    node = json.loads(slurm.read_text())
    assert node["state"] == "IDLE+DRAIN"
    assert node["reason"].startswith(f"gpu.fleet {run}: Refuse a host that is not healthy: fail, remedy reboot: GPU 0")
    done = upgrade(tmp_path, {"gpu1": host(True)}, gpu_fleet_upgrade_retry_failed=True, **settings)
    assert done.rc == 0, done.output
    assert json.loads(slurm.read_text())["state"] == "IDLE"


def test_a_second_run_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    """It would go on with the plan of the first, in its name."""
    states = tmp_path / "states"
    states.mkdir()
    # The process of this test stands for the first run.
    assert acquire(str(states / "lock"), process_of(os.getpid())) is None
    done = upgrade(tmp_path, {"one": host(True)})
    assert f"another run, process {os.getpid()} on " in done.failure("one"), done.output
    assert not (tmp_path / "log").exists() and not (states / "plan.json").exists()
    assert release(str(states / "lock"), process_of(os.getpid()))
    done = upgrade(tmp_path, {"one": host(True)})
    assert done.rc == 0, done.output
    assert (states / "lock").read_text() == "", "the next run may be that of another controller"


@pytest.mark.parametrize("scheduler", ["slurm", "commands"])
def test_the_limit_of_a_busy_host_counts_seconds_and_no_attempts(tmp_path: Path, scheduler: str) -> None:
    """Of a controller that takes two seconds for each reply; attempts alone would be seven."""
    edit(mock_slurm(tmp_path), jobs="4711|RUNNING|ann\n", seconds=2)
    wait = ["sh", "-c", f"echo squeue >> {tmp_path}/log; sleep 2; exit 1"]
    given = {
        "gpu_fleet_upgrade_scheduler": scheduler,
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_commands": {"drain": ["true"], "wait": wait, "return": ["true"], "fail": ["true"]},
        "gpu_fleet_upgrade_idle_timeout_s": 5,
        "gpu_fleet_upgrade_idle_interval_s": 1,
    }
    done = upgrade(tmp_path, {"gpu1": host(True)}, **given)
    reason = "Refuse a busy host: not idle after 5 s (gpu_fleet_upgrade_idle_timeout_s)"
    assert reason in done.failure("gpu1"), done.output
    waits = (tmp_path / "log").read_text().count("squeue")
    # The node is read five times in Slurm for the check, the drain and the failure.
    assert 1 <= waits - (5 if scheduler == "slurm" else 0) <= 3, (tmp_path / "log").read_text()


@pytest.mark.parametrize(("last", "step"), [("idle", "in_service"), ("busy", "failed")])
def test_a_lost_reply_of_kubernetes_before_the_change_is_asked_for_again(tmp_path: Path, last: str, step: str) -> None:
    """A reply that it is busy ends it at once: whoever has come since is not waited for."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    node = {"kind": "Node", "metadata": {"name": "gpu1"}, "spec": {"unschedulable": True}, "status": ready}
    read = {"changed": False, "resources": [node]}
    idle = {"changed": False, "exists": True, "idle": True, "msg": "", "remaining": []}
    lost = {"failed": True, "msg": "the API server has not replied: the connection was closed"}
    busy = {**idle, "idle": False, "remaining": [{"pod": "ml/train", "reason": "daemon_set", "message": ""}]}
    api = {
        # The second one reads pods.
        "k8s_info": [read, {"changed": False, "resources": []}, read],
        "k8s": {"changed": False, "result": {"results": []}},
        # For the drain, the wait and, directly before the change, more than once.
        "kubernetes_evict": [idle, idle, lost, {"idle": idle, "busy": busy}[last], idle],
    }
    given = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "kubernetes",
        "gpu_fleet_upgrade_kubernetes_host": "api",
        "gpu_fleet_upgrade_idle_interval_s": 1,
        "__upgrade_connection_timeout": 1,
    }
    (tmp_path / "run").mkdir()
    log = tmp_path / "log"
    done = run_site(
        tmp_path / "run",
        {"gpu1": (host(True), given), "api": (MockHost(results=api), {})},
        *("-e", "gpu_fleet_targets=gpu1"),
        playbook=ROOT / "playbooks" / "upgrade.yml",
        env={"GPU_FLEET_MOCK_LOG": str(log)},
    )
    assert steps(tmp_path) == {"gpu1": step}, done.output
    assert [line.split("\t")[0] for line in log.read_text().splitlines()].count("kubernetes_evict") == 4
