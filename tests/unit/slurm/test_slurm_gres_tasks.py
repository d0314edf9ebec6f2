# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of the role slurm_gres on mock hosts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.unit.plays import run_play, unreachable
from tests.unit.site.mock_host import MockHost, mock_variables

pytestmark = pytest.mark.plays

_PLAN = {"node_line": "NodeName=gpu1 Gres=gpu:h200:2", "gres_conf": "AutoDetect=off\n"}


def _tasks(name: str) -> dict[str, Any]:
    return {"ansible.builtin.include_role": {"name": "gpu.fleet.slurm_gres", "tasks_from": name}}


def _planned(plan: dict[str, Any], **given: Any) -> dict[str, Any]:
    """What the stage `plan` registers."""
    defaults = yaml.safe_load((ROOT / "roles" / "slurm_gres" / "defaults" / "main.yml").read_text())
    return {"__slurm_gres_plan": {**_PLAN, "previous": None, **plan, "variables": {**defaults, **given}}}


def test_a_host_without_slurmd_is_refused_by_name(tmp_path: Path) -> None:
    """By the real modules on this machine."""
    show = {"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"slurm_gres_directory": str(tmp_path / "slurm")},
        "tasks": [{"block": [_tasks("main.yml")], "rescue": [show]}],
    }
    printed = run_play(tmp_path, play)
    assert f"localhost: {tmp_path}/slurm/sbin/slurmd cannot be run; slurm_gres_directory has to name" in printed


_SCONTROL = "command /opt/slurm/bin/scontrol"


def _controller(tmp_path: Path, results: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """What is done about slurmctld, in order, for a node that is also its host; also where it fails."""
    hosts = {"gpu1": mock_variables(tmp_path / "gpu1", MockHost(results=results))}
    settings = {"slurm_gres_controller": "gpu1", "slurm_gres_directory": "/opt/slurm"}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    show = {"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.msg }}"}}
    play = {
        "hosts": "gpu1",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.set_fact": _planned(plan, **settings)},
            {"block": [_tasks("controller.yml"), _tasks("confirm.yml")], "rescue": [show]},
        ],
    }
    log = tmp_path / "log"
    run_play(tmp_path, play, inventory=inventory, env={"GPU_FLEET_MOCK_LOG": str(log)})
    called = []
    for line in log.read_text().splitlines():
        program, _tab, arguments = line.partition("\t")
        state = json.loads(arguments).get("state") if program.endswith("systemd_service") else None
        called.append(state or program.split()[-1])
    return called


def _shown(gres: str) -> dict[str, Any]:
    return {"changed": True, "rc": 0, "stdout": f"NodeName=gpu1\n   Gres={gres}\n", "stderr": ""}


def test_a_new_node_becomes_known_to_slurmctld_by_its_line(tmp_path: Path) -> None:
    missing = {"failed": True, "rc": 1, "msg": "non-zero return code", "stdout": "Node gpu1 not found", "stderr": ""}
    known = _shown("gpu:h200:2(S:0)")
    no_unit = {"failed": True, "msg": "Could not find the requested service slurmd.service: host"}
    results = {
        f"{_SCONTROL} show": [missing, known],
        f"{_SCONTROL} reconfigure": known,
        "systemd_service": no_unit,
    }
    called = _controller(tmp_path, results, {"gres": "gpu:h200:2", "controller_restart": False})
    assert called == ["show", "stopped", "reconfigure", "show"]


@pytest.mark.parametrize("fails", [False, True])
def test_slurmd_does_not_run_while_slurmctld_expects_other_devices(fails: bool, tmp_path: Path) -> None:
    """Seen with Slurm 24.11 and 26.05: it has its node drained where either of them is the first to have fewer, by the
    reason `gres/gpu count reported lower than configured (2 < 4)`. Slurmctld shows the new ones once it runs again.
    """
    before, after = _shown("gpu:h200_1g.18gb:4"), _shown("gpu:h200:2(S:0)")
    failed = {"failed": True, "rc": 1, "msg": "non-zero return code", "stdout": "", "stderr": "no"}
    results = {
        f"{_SCONTROL} show": [before, after],
        f"{_SCONTROL} reconfigure": failed if fails else after,
        "systemd_service": {"changed": True},
    }
    called = _controller(tmp_path, results, {"gres": "gpu:h200:2", "controller_restart": False})
    assert called == ["show", "stopped", "reconfigure", "started", *([] if fails else ["show"])]


def test_slurmd_goes_on_where_slurmctld_has_the_resources(tmp_path: Path) -> None:
    results = {f"{_SCONTROL} show": _shown("gpu:h200:2(S:0)")}
    assert _controller(tmp_path, results, {"gres": "gpu:h200:2", "controller_restart": True}) == ["show", "show"]


def test_a_node_that_is_down_does_not_take_others_with_it(tmp_path: Path) -> None:
    results = {"lineinfile": {"changed": True, "msg": "line added"}, "unit_restart": {"changed": False, "reason": ""}}
    copy = {"copy": {"changed": False}, "stat": {"changed": False, "stat": {"exists": False}}}
    hosts = {
        "gpu1": mock_variables(tmp_path / "gpu1", MockHost(results={**results, **copy})),
        "gpu2": unreachable(tmp_path, "connect: No route to host"),
        "gpu3": mock_variables(tmp_path / "gpu3", MockHost(results=results)),
    }
    settings = {"slurm_gres_node_file": "/etc/slurm/nodes.conf", "slurm_gres_node_file_hosts": list(hosts)}
    settings["slurm_gres_running_jobs"] = "keep"
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": settings}}))
    known = _planned({"previous": base64.b64encode(_PLAN["gres_conf"].encode()).decode()}, **settings)
    play = {
        "hosts": "gpu1",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.set_fact": known}, _tasks("predict.yml"), _tasks("configure.yml")],
    }
    printed = run_play(tmp_path, play, inventory=inventory)
    assert "gpu1: the node line is not written on gpu2; run this again once they are reachable" in printed
    # Predicted and written on each other one.
    assert (tmp_path / "gpu3" / "modules").read_text().split() == ["lineinfile"] * 2
    assert (tmp_path / "gpu1" / "modules").read_text().split().count("lineinfile") == 2


_SCONTROL_OF_FILE = """#!/bin/sh
# As scontrol of Slurm 22.05, 24.11 and 26.05, which does so without slurmctld.
read_file=$(sed -n 's/^Include //p' "$SLURM_CONF")
grep -q '^ClusterName=' "$SLURM_CONF" && grep -q '^SlurmctldHost=' "$SLURM_CONF" || exit 1
if line=$(grep -n 'Wieght' "$read_file"); then
    echo "scontrol: error: Parsing error at unrecognized key: Wieght" >&2
    echo "scontrol: fatal: Unable to process configuration file" >&2
    exit 1
fi
test "$*" = "show hostnames validation"
"""


@pytest.mark.parametrize(
    ("scontrol", "old", "parameter", "written"),
    [
        (_SCONTROL_OF_FILE, "", "Weight=1", True),
        (_SCONTROL_OF_FILE, "", "Wieght=1", False),
        # Also for the line of another node, since slurmctld ends at either of them.
        (_SCONTROL_OF_FILE, "NodeName=gpu2 Wieght=1\n", "Weight=1", False),
        # A host without scontrol has no slurmctld.
        (None, "", "Wieght=1", True),
    ],
)
def test_a_node_line_is_written_where_slurm_reads_the_new_file(
    scontrol: str | None, old: str, parameter: str, written: bool, tmp_path: Path
) -> None:
    program = tmp_path / "slurm" / "bin" / "scontrol"
    program.parent.mkdir(parents=True)
    if scontrol is not None:
        program.write_text(scontrol)
        program.chmod(0o755)
    nodes = tmp_path / "nodes.conf"
    nodes.write_text(old)
    line = f"NodeName=gpu1 CPUs=2 {parameter}"
    known = {
        "__slurm_gres_changes": {"line_hosts": ["localhost"]},
        **_planned(
            {"node_line": line},
            slurm_gres_directory=str(tmp_path / "slurm"),
            slurm_gres_node="gpu1",
            slurm_gres_file=str(tmp_path / "gres.conf"),
            slurm_gres_node_file=str(nodes),
        ),
    }
    show = {"ansible.builtin.debug": {"msg": "{{ ansible_failed_result.results[0].msg }}"}}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.set_fact": known}, {"block": [_tasks("configure.yml")], "rescue": [show]}],
    }
    printed = run_play(tmp_path, play, env={"TMPDIR": str(tmp_path)})
    assert nodes.read_text() == old + (f"{line}\n" if written else "")
    assert ("unrecognized key: Wieght" in printed) is not written
    # Nothing was changed before.
    assert (tmp_path / "gres.conf").exists() is written
    assert not list(tmp_path.glob("tmp.*"))
