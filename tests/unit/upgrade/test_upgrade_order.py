# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/upgrade.yml: the order of what is done with a host and of the hooks around it, also after a failure."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import HOOKS

from tests.conftest import ROOT
from tests.unit.site.converged import CUDA, NVIDIA_SMI, PACKAGES, STATE
from tests.unit.site.mock_host import MockHost, run_site
from tests.unit.slurm.mock_slurm import edit, mock_slurm
from tests.unit.slurm.test_slurm_gres import FIXTURES, MINORS, gpu, near, split
from tests.unit.upgrade.test_upgrade_playbook import HEALTHY, LOST, host, steps

pytestmark = pytest.mark.plays

PLAYBOOK = ROOT / "playbooks" / "upgrade.yml"
DONE: Mapping[str, Any] = {"changed": True}
SLURM = FIXTURES / "24.11.5"
LIMITS: Mapping[str, Any] = {"canaries": 0, "batch": 20, "max_failures": 20, "idle_timeout_s": 0}
READING = (
    *("setup", "host_facts", "nvidia_smi_facts", "ping", "find", "stat", "slurp", "tempfile", "file"),
    *(f"command {words}" for words in ("slurmd -C", "slurmd -V", "lscpu --parse=CPU,CORE,SOCKET")),
)


def hooks(directory: Path, log: Path) -> dict[str, list[str]]:
    """One task file before and one after each step, which writes its name to the log."""
    found = {}
    for name in HOOKS:
        task = {
            "name": "Log the hook",
            "ansible.builtin.command": {"argv": ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {name} >> {log}"]},
            "delegate_to": "localhost",
        }
        (directory / f"{name}.yml").write_text(json.dumps([task]))
        found[name] = [str(directory / f"{name}.yml")]
    return found


def rebooting(directory: Path, slurm: Path) -> dict[str, Any]:
    """The variables of a host behind an ssh that runs the commands here; its boot id is in the state of Slurm."""
    program = directory / "ssh"
    program.write_text(
        "#!/bin/sh\n"
        "for command; do :; done\n"
        f"case $command in *boot_id*) grep -o '\"boot_id\": [0-9]*' {slurm}; exit ;; esac\n"
        'exec /bin/sh -c "$command"\n'
    )
    program.chmod(0o755)
    return {
        "ansible_connection": "ssh",
        "ansible_ssh_executable": str(program),
        "ansible_ssh_transfer_method": "piped",
        "ansible_remote_tmp": str(directory / "remote"),
    }


def node(log: Path, directory: str) -> MockHost:
    """A node with a MIG layout that needs a reboot, after which slurmd has the devices of test_slurm_gres.

    Slurm is in the directory, or in PATH.
    """
    slurmd = f"{directory}/sbin/slurmd" if directory else "slurmd"
    whole, partitioned = gpu(0), split(1, 2, 3)
    devices = [{**device, "uuid": f"MIG-{number}"} for number, device in enumerate(partitioned["mig_devices"])]
    gpus = [{**NVIDIA_SMI["gpus"][0], **one} for one in (whole, {**partitioned, "mig_devices": devices})]
    smi = {**NVIDIA_SMI, "gpus": gpus, "topology": near("0", "0-1")}
    state = {**STATE, "changed": True, "gpus_changed": True}
    outputs = {
        f"{slurmd} -C": (SLURM / "hardware.txt").read_text(),
        f"{slurmd} -V": (SLURM / "version.txt").read_text(),
        # The program that runs slurmd -G.
        "sh -c": (SLURM / "gres_mig.txt").read_text(),
        "lscpu --parse=CPU,CORE,SOCKET": "# CPU,Core,Socket\n0,0,0\n1,1,0\n",
    }
    results: dict[str, Any] = {
        **{
            f"command {words}": {"changed": True, "rc": 0, "stdout": text, "stderr": ""}
            for words, text in outputs.items()
        },
        "command pgrep --full": {"changed": True, "rc": 1, "stdout": "", "stderr": ""},
        "gpu_state in check mode": state,
        # The mode is pending until the reboot.
        "gpu_state": [{**state, "reboot_required": True, "awaits_reboot": True, "pending": ["GPU 1"]}, state],
        "gpu_health": HEALTHY,
        "nvidia_smi_facts": {"changed": False, "ansible_facts": {"nvidia_smi": smi}},
        "slurp": [
            {"failed": True, "msg": "file not found: /etc/slurm/gres.conf"},
            {"content": base64.b64encode(MINORS.encode()).decode()},
        ],
        # Only a command that is in PATH is looked for.
        **({} if directory else {"find": {"changed": False, "files": [{"path": str(log.with_name("scontrol"))}]}}),
        # By the scontrol that reboots it.
        "slurm_node": {"changed": False, "states": ["IDLE"], "reason": "", "in_service": True, "idle": True},
        "stat": {"changed": False, "stat": {"exists": False}},
        **dict.fromkeys(("copy", "file", "managed_record", "systemd_service"), DONE),
        "unit_restart": {**DONE, "reason": ""},
    }
    return MockHost(nvidia_smi=smi, cuda=CUDA, packages=PACKAGES, results=results)


def recorded(log: Path) -> list[str]:
    """What was done with the only host, without what only reads, and once what was done again and again."""
    found: list[str] = []
    for line in log.read_text().splitlines():
        program, _tab, arguments = re.sub("^command /[^ ]*/", "command ", line).partition("\t")
        given = json.loads(arguments) if arguments else {}
        if given.get("_ansible_check_mode") or program in READING or program.startswith("scontrol show"):
            continue
        words = program.removeprefix("gpu1 ").removeprefix("command ").split()
        if program.startswith("scontrol"):
            words = [re.sub("20[0-9]{6}T[0-9]{6}Z_[0-9a-f]{6}", "RUN", program)]
        elif program == "gpu_health":
            words += ["evidence"] * (given.get("evidence") == "always")
        elif program == "copy":
            words = ["write", given["dest"]]
        elif program in ("systemd_service", "unit_restart"):
            words = ["restart", given["name"]]
        name = " ".join(words if words[0] != "squeue" else words[:1])
        if found[-1:] != [name]:
            found.append(name)
    return found


@pytest.mark.parametrize("directory", ["", "slurm"], ids=["in PATH", "in a directory"])
def test_a_node_of_slurm_is_changed_in_this_order(directory: str, tmp_path: Path) -> None:
    slurm = mock_slurm(tmp_path, f"{directory}/bin" if directory else "")
    installed = str(tmp_path / directory) if directory else ""
    edit(slurm, jobs="4711|RUNNING|ann\n", squeues=4)
    log = slurm.with_name("log")
    run = tmp_path / "run"
    run.mkdir()
    variables = {
        **rebooting(tmp_path, slurm),
        "gpu_fleet_roles": ["gpu_state", "slurm_gres", "gpu_health"],
        "gpu_state_mig": [{"gpus": [1], "profiles": {"1g.18gb": 2}}],
        "gpu_health_container_image": "",
        "gpu_fleet_evidence": "always",
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_slurm_directory": installed,
        "slurm_gres_directory": installed,
        "gpu_fleet_upgrade_idle_interval_s": 1,
        "gpu_fleet_upgrade_reboot_by": "slurm",
        "gpu_fleet_upgrade_hooks": hooks(tmp_path, log),
    }
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GPU_FLEET_MOCK_LOG": str(log)}
    done = run_site(run, {"gpu1": (node(log, installed), variables)}, playbook=PLAYBOOK, env=env)
    assert done.rc == 0, done.output
    assert recorded(log) == [
        # Whether Slurm has the node, before anything is changed.
        "squeue",
        "slurm_node",
        "before_drain",
        "squeue",
        "scontrol update NodeName=gpu1 State=DRAIN Reason=gpu.fleet RUN: upgrade",
        # Until the job has ended.
        "squeue",
        "after_drain",
        "before_change",
        "gpu_health",
        "gpu_health evidence",
        # Whether it is still drained and idle.
        "squeue",
        "gpu_state",
        # What the reboot would destroy, after the change.
        "gpu_health evidence",
        "sinfo --noheader --nodes=gpu1 --format=%E",
        "scontrol reboot ASAP nextstate=DOWN gpu1",
        "gpu_state",
        # slurmd has to read the devices that are there after the reboot.
        "pgrep --full",
        "sh -c",
        "write /etc/slurm/gres.conf",
        "restart slurmd.service",
        "gpu_health",
        "after_change",
        "before_health",
        "gpu_health",
        "after_health",
        "before_return",
        # Its verdict of before would have Slurm drain the node again.
        "restart gpu-fleet-health.service",
        "squeue",
        "scontrol update NodeName=gpu1 State=RESUME",
        "squeue",
        "after_return",
    ]
    assert json.loads(slurm.read_text())["state"] == "IDLE" and steps(tmp_path) == {"gpu1": "in_service"}


def meanwhile(directory: Path, name: str, *, state: str, reason: str, jobs: str = "") -> str:
    """A task file by which another user changes the node of Slurm."""
    values = {"state": state, "reason": reason, "jobs": jobs}
    program = (
        "import json, sys; from pathlib import Path; path = Path(sys.argv[1]); "
        f"path.write_text(json.dumps({{**json.loads(path.read_text()), **{values!r}}}))"
    )
    argv = [sys.executable, "-c", program, str(directory / "state.json")]
    task = {"name": "Use the cluster", "ansible.builtin.command": {"argv": argv}, "delegate_to": "localhost"}
    (directory / f"{name}.yml").write_text(json.dumps([task]))
    return str(directory / f"{name}.yml")


@pytest.mark.parametrize(
    ("drained", "hooks_of", "rebooted_by", "failure"),
    [
        # Drained before the run, while it waited, and while it changed the host.
        ("before", "", "shutdown", ""),
        ("later", "gpu_fleet_upgrade_hooks", "shutdown", ""),
        ("later", "gpu_state_hooks_before", "", "the drain of the node no longer belongs to this run"),
    ],
)
def test_slurm_reboots_no_node_that_an_operator_drained(
    drained: str, hooks_of: str, rebooted_by: str, failure: str, tmp_path: Path
) -> None:
    slurm = mock_slurm(tmp_path)
    log = slurm.with_name("log")
    shutdown = tmp_path / "shutdown"
    shutdown.write_text(f'#!/bin/sh\necho shutdown >> {log}\nsed -i \'s/"boot_id": 1/"boot_id": 2/\' {slurm}\n')
    shutdown.chmod(0o755)
    if drained == "before":
        edit(slurm, state="IDLE+DRAIN", reason="fan 3 is loud")
    file = meanwhile(tmp_path, "drain", state="IDLE+DRAIN", reason="fan 3 is loud")
    hooks_given = {"gpu_fleet_upgrade_hooks": {"before_change": [file]}, "gpu_state_hooks_before": [file]}
    changing = node(log, "")
    found = {**changing.results, "find": {"changed": False, "files": [{"path": str(shutdown)}]}}
    variables = {
        **rebooting(tmp_path, slurm),
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_reboot_by": "slurm",
        **({hooks_of: hooks_given[hooks_of]} if hooks_of else {}),
    }
    run = tmp_path / "run"
    run.mkdir()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GPU_FLEET_MOCK_LOG": str(log)}
    done = run_site(run, {"gpu1": (replace(changing, results=found), variables)}, playbook=PLAYBOOK, env=env)
    assert (done.rc == 0) == (not failure), done.output
    called = log.read_text().splitlines()
    assert not [
        line for line in called if line.startswith(("scontrol reboot", "scontrol update NodeName=gpu1 State=RESUME"))
    ]
    assert ("shutdown" in called) == (rebooted_by == "shutdown"), called
    shown = json.loads(slurm.read_text())
    assert (shown["state"], shown["reason"]) == ("IDLE+DRAIN", "fan 3 is loud")
    state = json.loads((tmp_path / "states" / "hosts" / "gpu1.json").read_text())
    assert failure in state["reason"] and state["step"] == ("failed" if failure else "in_service")


def test_a_node_that_takes_jobs_again_is_not_changed(tmp_path: Path) -> None:
    """Another user returns it to service between the last look of the wait and the change, and a job begins."""
    slurm = mock_slurm(tmp_path)
    file = meanwhile(tmp_path, "resume", state="MIXED", reason="", jobs="4712|RUNNING|ann\n")
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_hooks": {"before_change": [file]},
    }
    run = tmp_path / "run"
    run.mkdir()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run_site(run, {"gpu1": (host(True), variables)}, playbook=PLAYBOOK, env=env)
    assert done.rc != 0
    assert "gpu_state" not in done.modules["gpu1"], done.output
    reason = json.loads((tmp_path / "states" / "hosts" / "gpu1.json").read_text())["reason"]
    assert "its node in Slurm is MIXED, so it was returned to service after this run had drained it" in reason
    assert "scancel" not in slurm.with_name("log").read_text()


def test_force_cancels_no_jobs_of_a_node_that_takes_jobs_again(tmp_path: Path) -> None:
    slurm = mock_slurm(tmp_path)
    # Returned to service when the job is looked for the second time.
    edit(slurm, jobs="4711|RUNNING|ann\n", resumed_after=3)
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        "gpu_fleet_upgrade_on_busy": "force",
        "gpu_fleet_upgrade_idle_timeout_s": 0,
    }
    run = tmp_path / "run"
    run.mkdir()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run_site(run, {"gpu1": (host(True), variables)}, playbook=PLAYBOOK, env=env)
    assert done.rc != 0
    log = slurm.with_name("log").read_text()
    assert "scancel" not in log and "gpu_state" not in done.modules["gpu1"], log + done.output
    assert steps(tmp_path) == {"gpu1": "failed"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"gpu_fleet_upgrade_slurm_directory": "/opt/none"},
            (
                "/opt/none/bin/scontrol show: No such file or directory; set directory to Slurm's "
                "installation, with its commands in bin (asked on localhost"
            ),
        ),
        (
            {"gpu_fleet_upgrade_slurm_node": "gpu9"},
            (
                "gpu9: scontrol show: Node gpu9 not found; name has to be the NodeName in slurm.conf, see "
                "`scontrol show nodes` (asked on localhost"
            ),
        ),
        ({"gpu_fleet_upgrade_reboot_by": "slurm"}, "no scontrol here (asked on gpu1"),
    ],
    ids=["directory", "node", "reboot"],
)
def test_a_node_that_slurm_does_not_show_is_refused_before_it_is_drained(
    settings: dict[str, str], reason: str, tmp_path: Path
) -> None:
    slurm = mock_slurm(tmp_path)
    changing = host(True)
    found = {"slurm_node": {"failed": True, "msg": "no scontrol here"}}
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "slurm",
        "gpu_fleet_upgrade_slurm_host": "localhost",
        **settings,
    }
    run = tmp_path / "run"
    run.mkdir()
    hosts = {"gpu1": (replace(changing, results={**changing.results, **found}), variables)}
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run_site(run, hosts, playbook=PLAYBOOK, env=env)
    assert done.rc != 0
    variable_names = "gpu_fleet_upgrade_slurm_host, gpu_fleet_upgrade_slurm_node and gpu_fleet_upgrade_slurm_directory"
    assert f"{reason}; see {variable_names})" in done.output, done.output
    log = slurm.with_name("log")
    assert "update" not in (log.read_text() if log.exists() else "")
    assert not list((tmp_path / "states").glob("hosts/*"))


def test_hooks_after_a_step_run_also_where_it_has_failed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    files = hooks(tmp_path, log)
    fail = {"name": "Break", "ansible.builtin.fail": {"msg": "no disk"}, "when": "inventory_hostname == 'hooked'"}
    start = {
        "name": "Start DCGM",
        "ansible.builtin.fail": {"msg": "no unit"},
        "when": "inventory_hostname in ['stopped', 'both']",
    }
    log_it = Path(files["before_return"][0]).read_text()
    for name, text in (
        ("break", json.dumps([fail])),
        ("second", log_it.replace("before_return", "second")),
        ("start", json.dumps([start])),
        ("last", log_it.replace("before_return", "last")),
    ):
        (tmp_path / f"{name}.yml").write_text(text)
    files["before_change"] += [str(tmp_path / "break.yml"), str(tmp_path / "second.yml")]
    files["after_change"] += [str(tmp_path / "start.yml"), str(tmp_path / "last.yml")]
    failing = {"drain": "draining", "wait": "busy", "return": "returning"}
    commands = {
        action: [
            *("sh", "-c", f"echo {{{{ inventory_hostname }}}} {action} >> {log}; exit $0"),
            f"{{{{ '1' if inventory_hostname == '{failing.get(action)}' else '0' }}}}",
        ]
        for action in ("drain", "wait", "confirm", "return", "fail")
    }
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_persistence_mode": True,
        "gpu_fleet_upgrade_directory": str(tmp_path / "states"),
        "gpu_fleet_upgrade_scheduler": "commands",
        "gpu_fleet_upgrade_commands": commands,
        "gpu_fleet_upgrade_hooks": files,
        **{f"gpu_fleet_upgrade_{name}": value for name, value in LIMITS.items()},
    }
    changing = host(True)
    results = {**changing.results, "gpu_state in check mode": changing.results["gpu_state"]}
    broken = replace(changing, results={**results, "gpu_state": {"failed": True, "msg": "GPU 0 refuses"}})
    drain = ["before_drain", "drain", "wait", "after_drain"]
    change = ["before_change", "second", "confirm", "wait", "after_change", "last"]
    health = ["before_health", "after_health"]
    back = ["before_return", "return", "after_return"]
    expected = {
        "fine": [*drain, *change, *health, *back],
        "draining": ["before_drain", "drain", "after_drain", "fail"],
        "busy": [*drain, "fail"],
        # Not the second one before the change.
        "hooked": [*drain, "before_change", "after_change", "last", "fail"],
        "changing": [*drain, *change, "fail"],
        # The last hook also where the one before it has failed.
        "stopped": [*drain, *change, "fail"],
        "both": [*drain, *change, "fail"],
        "unhealthy": [*drain, *change, *health, "fail"],
        "returning": [*drain, *change, *health, *back, "fail"],
    }
    found = {name: host(True) for name in expected} | {
        "changing": broken,
        "both": broken,
        "unhealthy": host(True, LOST),
    }
    run = tmp_path / "run"
    run.mkdir()
    done = run_site(run, {name: (one, variables) for name, one in found.items()}, playbook=PLAYBOOK)
    assert done.rc != 0
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {name: [word for one, word in lines if one == name] for name in expected} == expected, done.output
    assert steps(tmp_path) == dict.fromkeys(expected, "failed") | {"fine": "in_service"}
    assert "stopped is failed: Start DCGM: no unit" in done.output
    both = json.loads((tmp_path / "states" / "hosts" / "both.json").read_text())["reason"]
    assert both.endswith(": GPU 0 refuses; Start DCGM: no unit"), both
