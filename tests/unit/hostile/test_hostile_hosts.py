# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook against hosts that lie in every result: the controller runs nothing of theirs, serves the others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._injected_facts import WARNING

from tests.conftest import ROOT
from tests.unit.hostile.liars import Trap, kinds, liar
from tests.unit.site.converged import HEALTH, STATE, WITHOUT_CONTAINER, converged
from tests.unit.site.mock_host import MockHost, mock_variables

pytestmark = pytest.mark.plays

PLAYBOOKS = tuple(sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")))
PULL_PACKAGES = ("git", "gnupg", "openssh-client", "python3-packaging", "python3-venv")
# The module in which the work on the honest host ends.
LAST = {
    "accept": "report_facts",
    "decommission": "file",
    "health": "gpu_health",
    "pull": "systemd_service",
    "remediate": "gpu_health",
    "report": "slurp",
    "run_container": "command",
    "site": "gpu_health",
    "upgrade": "systemd_service",
}
# The programs of these hosts cannot run in the background.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {"accept": ("--check",)}
AFTER = "_after_"


@dataclass(frozen=True)
class Run:
    """A run of a playbook: exit status, what was printed, and its directory."""

    rc: int
    output: str
    directory: Path

    def modules(self, host: str) -> list[str]:
        """The modules that have run on the host."""
        log = self.directory / "hosts" / host / "modules"
        return log.read_text().split() if log.exists() else []

    def recap(self, host: str) -> dict[str, int]:
        """The counts of the host at the end."""
        line = next(line for line in self.output.splitlines() if line.startswith(f"{host} ") and ": ok=" in line)
        return {
            name: int(count)
            for name, _equals, count in (pair.partition("=") for pair in line.partition(": ")[2].split())
        }


def honest(playbook: str) -> MockHost:
    """A host that has work for the playbook, and the results of all that is done on it."""
    host = converged(WITHOUT_CONTAINER)
    records, removed = host.records, "decommission"
    if playbook == removed:
        repository = {**records["nvidia_repository.cuda"], "data": {"needed_by": ["cuda"]}}
        records = {
            "nvidia_driver": records["nvidia_driver"],
            "cuda": records["cuda"],
            "nvidia_repository.cuda": repository,
        }
    state = {**STATE, "changed": True, "gpus_changed": True}
    system = {**host.system, "ansible_pkg_mgr": "apt", "ansible_service_mgr": "systemd"}
    packages = {**({"dpkg": "1.21.22"} if playbook == removed else host.packages), **dict.fromkeys(PULL_PACKAGES, "1")}
    facts = {"changed": False, "ansible_facts": {"nvidia_smi": host.nvidia_smi}}
    done = {"changed": False, "rc": 0, "stdout": "", "stderr": "", "stat": {"exists": False}, "files": [], "matched": 0}
    results = {
        "gpu_state": state,
        "gpu_health": HEALTH,
        "nvidia_smi_facts": facts,
        "report_facts": {"changed": False},
        "slurp": {"failed": True, "msg": "file not found"},
        "driver_reload": {"users": [], "changed": False},
        "systemd_reload": {"containers": []},
        "managed_facts": {"ansible_facts": {"gpu_fleet_managed": {}}},
        **dict.fromkeys(
            ("file", "copy", "command", "stat", "find", "systemd_service", "managed_record", "file_set"), done
        ),
        **dict.fromkeys(("apt", "package_transaction", "kernel_blacklist", "lineinfile", "pip", "daemon_json"), done),
        **dict.fromkeys(("package_pin", "signed_repository"), done),
        **dict.fromkeys(("cuda_facts", "getent", "unit_restart", "docker_host_info"), done),
    }
    return MockHost(system, host.nvidia_smi, host.cuda, packages, records, results=results)


def play(
    directory: Path,
    playbook: str,
    lies: tuple[str, ...],
    *,
    injected: bool,
    given: Mapping[str, Any] | None = None,
    kib: int = 10 << 10,
    arguments: Sequence[str] = (),
    plays: Sequence[Mapping[str, Any]] = (),
) -> Run:
    """Run the playbook on an honest host and the liars, with the variables by which it writes on the controller.

    A liar is named by its kind, as `variables_after_2` if it is honest for so many modules. `plays` are run instead.
    """
    trap = Trap(directory / "trap")
    (directory / "hosts").mkdir()
    variables = {
        **WITHOUT_CONTAINER,
        "gpu_fleet_roles": ["gpu_state", "docker", "nvidia_container_toolkit", "gpu_health"],
        "gpu_state_persistence_mode": True,
        "gpu_health_json": str(directory / "written"),
        "gpu_fleet_evidence_fetch_to": str(directory / "written"),
        "gpu_fleet_report_dir": str(directory / "written"),
        "gpu_fleet_upgrade_directory": str(directory / "written"),
        "gpu_fleet_upgrade_max_failures": len(lies) + 1,
        "gpu_fleet_decommission_confirm": True,
        "gpu_fleet_pull_repository": "https://git.example.com/fleet.git",
        "gpu_fleet_pull_collections": [{"name": "gpu.fleet", "version": "1.0.0"}],
        "run_container_gpus": ["none"],
        "gpu_fleet_upgrade_scheduler": "commands",
        "gpu_fleet_upgrade_commands": {action: ["true"] for action in ("drain", "wait", "confirm", "return")},
        "gpu_fleet_upgrade_canaries": 0,
        "gpu_fleet_upgrade_batch": "100%",
        "gpu_fleet_upgrade_max_unavailable": "100%",
        "__upgrade_connection_timeout": 1,
        **(given or {}),
    }
    found = honest(playbook)
    hosts = {}
    for name in lies:
        kind, _after, number = name.partition(AFTER)
        hosts[name] = liar(directory / "hosts" / name, kind, found, trap, kib=kib, honest_modules=int(number or 0))
    hosts["honest"] = mock_variables(directory / "hosts" / "honest", found)
    group = {"hosts": hosts, "vars": variables}
    (directory / "inventory.json").write_text(json.dumps({"all": {"children": {"windows": group}}}))
    (directory / "written").mkdir()
    path = ROOT / "playbooks" / f"{playbook}.yml"
    if plays:
        path = directory / "team.yml"
        path.write_text(json.dumps(plays))
    (directory / "ansible.cfg").write_text(f"[defaults]\ninject_facts_as_vars = {injected}\nforks = 2\n")
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-playbook",
            *("-i", directory / "inventory.json", path),
            *(*ARGUMENTS.get(playbook, ()), *arguments),
        ],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".cache" / "collections"),
            "ANSIBLE_HOME": str(directory / "home"),
            "ANSIBLE_LOCAL_TEMP": str(directory / "home" / "tmp"),
            "ANSIBLE_CONFIG": str(directory / "ansible.cfg"),
            "ANSIBLE_CALLBACKS_ENABLED": "gpu.fleet.fleet_table,gpu.fleet.run_result",
            "GPU_FLEET_RESULT_FILE": str(directory / "written" / "run.json"),
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_NOCOLOR": "1",
        },
        cwd=directory,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=600,
    )
    return Run(done.returncode, done.stdout + done.stderr, directory)


# They run commands and hooks of the site on the controller.
RUNS_COMMANDS = ("pull", "remediate", "upgrade")
ACCEPTED = ("-e", "gpu_fleet_accept_injected_facts=true")
FACTS = "facts of this host are named "
# After how many honest modules a host begins to lie, where a door comes after the next.
LATE: Mapping[str, tuple[int, ...]] = {
    **{"site": (1, 2), "upgrade": (1, 3), "decommission": (1, 2)},
    **{"report": (1,), "run_container": (1,)},
    # A partner for the honest host, whose lies come too late.
    "accept": (2,),
}
# An acceptance leaves them out of its rounds; pull refuses the directory that one of them reports first.
OTHERWISE: Mapping[str, Sequence[str]] = {
    "accept": ("aimed", "variables", "variables_after_2"),
    "pull": ("variables",),
}


@pytest.mark.parametrize("playbook", RUNS_COMMANDS)
def test_with_injected_facts_no_playbook_that_runs_commands_begins(tmp_path: Path, playbook: str) -> None:
    """The refusal comes before the first module of a host."""
    done = play(tmp_path, playbook, (), injected=True)
    assert "honest: inject_facts_as_vars is true, and this playbook runs commands of the site on the" in done.output
    assert (done.rc, done.modules("honest")) == (2, [])


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_where_it_is_refused_no_playbook_begins_with_injected_facts(tmp_path: Path, playbook: str) -> None:
    given = {"gpu_fleet_refuse_injected_facts": True}
    done = play(tmp_path, playbook, (), injected=True, given=given, arguments=ACCEPTED)
    assert "honest: inject_facts_as_vars is true, and gpu_fleet_refuse_injected_facts is set" in done.output
    assert (done.rc, done.modules("honest")) == (2, [])


# Modules for Windows are PowerShell, which the mock hosts do not run.
@pytest.mark.parametrize("playbook", sorted({*PLAYBOOKS} - {"windows"}))
def test_with_injected_facts_a_liar_is_refused_and_the_others_are_served(tmp_path: Path, playbook: str) -> None:
    """Ansible's default until 2.24. A host lies from its first module on, or from a later one."""
    lies = ("aimed", "variables", *(f"variables{AFTER}{number}" for number in LATE.get(playbook, ())))
    trap = Trap(tmp_path / "trap").set()
    accepted = ACCEPTED if playbook in RUNS_COMMANDS else ()
    done = play(tmp_path, playbook, lies, injected=True, arguments=accepted, kib=64)
    assert trap.found() == [], done.output[-6000:]
    known = {"trap", "hosts", "written", "home", "inventory.json", "ansible.cfg"}
    assert {path.name for path in tmp_path.iterdir()} == known
    assert not (tmp_path.parent / "trap").exists()
    assert "Traceback" not in done.output
    assert done.output.count(WARNING[:60]) == 1
    recap = done.recap("honest")
    assert (recap["unreachable"], recap["failed"]) == (0, 0), done.output[-6000:]
    assert done.modules("honest")[-1:] == [LAST[playbook]]
    refused = set(re.findall(rf"^fatal: \[(\w+)\]: FAILED! .*: {FACTS}", done.output, re.MULTILINE))
    assert refused == {*lies} - {*OTHERWISE.get(playbook, ())}, done.output[-6000:]
    if playbook == "accept":
        assert '"msg": "all: variables_after_2 + honest"' in done.output


# What reads a file of the controller, or works there or on another host, and the first lie that each role would go by.
WORST: Mapping[str, Mapping[str, Any]] = {
    "backend_ai_agent": {"backend_ai_agent_requirements": "requirements.txt"},
    "gpu_health": {"gpu_health_json": "written"},
    "gpu_state": {"gpu_state_hooks_before": [], "gpu_state_power_limit": 300},
    "kubernetes_node": {"kubernetes_node_api_host": "honest"},
    "slurm_gres": {"slurm_gres_controller": "honest", "slurm_gres_node_file": "/etc/slurm/nodes.conf"},
}


def test_a_role_in_a_playbook_of_others_takes_nothing_from_a_host(tmp_path: Path) -> None:
    """With Ansible's default a module of another role has made what a liar returned variables before ours begins."""
    trap = Trap(tmp_path / "trap").set()
    tasks: list[dict[str, Any]] = [{"name": "Be a role of others", "ansible.builtin.ping": {}}]
    for role in WORST:
        # Rescued, so that each role has each liar.
        failed = {"ansible.builtin.debug": {"msg": f"{role} has failed: {{{{ ansible_failed_result.msg }}}}"}}
        tasks.append({"block": [{"ansible.builtin.include_role": {"name": f"gpu.fleet.{role}"}}], "rescue": [failed]})
    team = [{"hosts": "all:!honest", "gather_facts": False, "tasks": tasks}]
    given = {name: value for of_role in WORST.values() for name, value in of_role.items()}
    done = play(tmp_path, "site", ("aimed", "variables"), injected=True, given=given, plays=team)
    assert trap.found() == [], done.output[-6000:]
    assert [done.modules(name) for name in ("aimed", "variables", "honest")] == [["ping"], ["ping"], []]
    for role in WORST:
        # Ansible itself refuses text where a variable is no text.
        reasons = re.findall(f"{role} has failed: .*({FACTS}|Validation of arguments failed)", done.output)
        assert (len(reasons), FACTS in reasons) == (2, True), done.output[-6000:]


# Where ansible-core adopts 10 MB after each task, a run of many tasks takes minutes.
KIB: Mapping[str, int] = {"health": 10 << 10, "report": 10 << 10}


@pytest.mark.parametrize("playbook", sorted({*PLAYBOOKS} - {"windows"}))
def test_nothing_that_a_host_returns_reaches_the_controller_or_another_host(tmp_path: Path, playbook: str) -> None:
    """A lie of each kind. `control` has all that `variables` has, whose hosts would get equally far."""
    lies = tuple(kind for kind in kinds() if kind != "variables")
    trap = Trap(tmp_path / "trap").set()
    done = play(tmp_path, playbook, lies, injected=False, kib=KIB.get(playbook, 64))
    assert trap.found() == [], done.output[-6000:]
    known = {"trap", "hosts", "written", "home", "inventory.json", "ansible.cfg"}
    assert {path.name for path in tmp_path.iterdir()} == known
    assert "Traceback" not in done.output and "Callback dispatch" not in done.output
    files = {path.stem for path in (tmp_path / "written").rglob("*") if path.is_file()}
    assert files <= {*lies, "honest", "run", "lock", "plan", "report"}
    recap = done.recap("honest")
    assert (recap["unreachable"], recap["failed"]) == (0, 0), done.output[-6000:]
    assert done.modules("honest")[-1:] == [LAST[playbook]]
    hosts = json.loads((tmp_path / "written" / "run.json").read_text())["hosts"]
    assert set(hosts) == {*lies, "honest"}
    if playbook in ("decommission", "site", "upgrade"):
        # Read by the action plugin, whose messages ansible-core prints as they are.
        refused = [line for line in done.output.splitlines() if ": failing: cannot run a module: x 1|RUNNING" in line]
        assert len(refused) >= 1 and not [line for line in refused if "\x1b" in line]
        for name in ("types", "deep"):
            assert f"{name}: the results of its modules cannot be used (" in done.output
    if playbook == "upgrade":
        states = {path.stem: json.loads(path.read_text())["step"] for path in (tmp_path / "written/hosts").iterdir()}
        served = ("aimed", "control", "honest", "large")
        assert states == {**dict.fromkeys(served, "in_service"), "findings": "failed"}
        words = "what it reports of its NVLink domain cannot be used"
        for name, wrong in (("domain", "gpus has 4000 elements"), ("paths", "driver is "), ("strings", "driver is ")):
            assert f"{name} is refused: {words}: {wrong}" in done.output
    if playbook == "remediate":
        assert (
            "findings is refused: its health is not as gpu_health returns it: findings[0].row is missing" in done.output
        )
    if playbook == "report":
        assert "its facts are not as report_facts returns them: " in (tmp_path / "written" / "report.json").read_text()
