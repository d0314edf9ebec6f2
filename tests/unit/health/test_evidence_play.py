# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence as the roles keep and fetch it: where it is kept, before what, and who can read it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.plays import run_play
from tests.unit.site.mock_host import MockHost, mock_variables

pytestmark = pytest.mark.plays

NAME = "20260504T090000Z"
BUG_REPORT = '#!/bin/sh\n[ "$1" = --output-file ] && echo report > "$2.gz"\n'
STATE = {
    **dict.fromkeys(("changed", "gpus_changed", "reboot_required", "reboot_tried", "awaits_reboot"), False),
    **dict.fromkeys(("mig_changed", "cdi_refresh"), False),
    "pending": [],
}


def part_of_role(role: str, part: str, *hosts: str, **known: Any) -> dict[str, Any]:
    """A task that runs a part of a role on some hosts. A reboot fails, since these hosts are the controller."""
    include = {"ansible.builtin.include_role": {"name": f"gpu.fleet.{role}", "tasks_from": part}}
    condition = "'would reboot the control node' in ansible_failed_result.msg"
    return {
        "when": f"inventory_hostname in {hosts}",
        "block": [include],
        "vars": known,
        "rescue": [{"ansible.builtin.assert": {"that": condition}}],
    }


PLAY: dict[str, Any] = {
    "hosts": "all",
    "gather_facts": False,
    "environment": {"PATH": "{{ path_of_host }}"},
    "tasks": [
        part_of_role("common", "evidence.yml", "faulty", "never"),
        part_of_role("gpu_state", "configure.yml", "reset"),
        part_of_role(
            "gpu_state", "reboot.yml", "rebooted", __gpu_state_plan={"variables": {"gpu_state_reboot_timeout": 9}}
        ),
    ],
}


def simulated(directory: Path, **variables: Any) -> dict[str, Any]:
    """The variables of a host with two GPUs, of which one has an uncontained memory error."""
    directory.mkdir()
    host = Host(directory, gpus=[{"model": "h200", "count": 2}])
    host.control("fault", "xid", "95", "--gpu", "1")
    executable(directory)
    report = directory / "nvidia-bug-report.sh"
    report.write_text(BUG_REPORT)
    report.chmod(0o755)
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "path_of_host": f"{directory}:{os.environ['PATH']}",
        "gpu_health_kernel_log": str(directory / "run" / "gpu-simulator" / "kernel.log"),
        "gpu_fleet_evidence_directory": str(directory / "evidence"),
        **variables,
    }


def mock(directory: Path, module: str, **stat_of_file: Any) -> dict[str, Any]:
    """The variables of a host on which one module has kept a file, and nothing else runs."""
    stat_of_file = {"isreg": True, "size": 4, **stat_of_file}
    kept = directory / "evidence" / NAME / "kernel.log"
    evidence = {"directory": str(kept.parent), "files": [kept.name], "notes": []}
    status = {"exists": True, "isdir": False, "checksum": hashlib.sha1(b"Xid\n").hexdigest(), **stat_of_file}
    results = {module: {**STATE, "evidence": evidence}, "stat": {"changed": False, "stat": status}}
    variables = mock_variables(directory, MockHost(results=results))
    kept.parent.mkdir(parents=True)
    kept.write_text("Xid\n")
    return {**variables, "path_of_host": os.environ["PATH"]}


def test_evidence_is_kept_and_fetched(tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    hosts = {
        "faulty": simulated(tmp_path / "faulty"),
        "never": simulated(tmp_path / "never", gpu_fleet_evidence="never"),
        "reset": mock(tmp_path / "reset", "gpu_state"),
        "rebooted": mock(tmp_path / "rebooted", "gpu_health"),
    }
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": {"gpu_fleet_evidence_fetch_to": str(fetched)}}}))
    text = run_play(tmp_path, PLAY, inventory=inventory)

    directory = tmp_path / "faulty" / "evidence"
    (kept,) = directory.iterdir()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()}
    names = (".gpu-fleet-evidence", "facts.json", "health.json", "kernel.log", "nvidia-bug-report.log.gz")
    assert modes == dict.fromkeys(names, 0o600)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (directory, kept)} == {0o700}
    assert "Xid (PCI:0000:07:00): 95" in (kept / "kernel.log").read_text()
    copies = {path.name: path.read_bytes() for path in (fetched / "faulty" / kept.name).iterdir()}
    assert copies == {path.name: path.read_bytes() for path in kept.iterdir() if path.name[0] != "."}
    assert stat.S_IMODE((fetched / "faulty").stat().st_mode) == 0o700

    # What gpu_state kept before a reset, and what was kept before a reboot, which comes after it.
    assert (tmp_path / "reset" / "modules").read_text().split() == ["gpu_state", "stat", "stat"]
    assert (tmp_path / "rebooted" / "modules").read_text().split()[:3] == ["gpu_health", "stat", "stat"]
    for name in ("reset", "rebooted"):
        assert (fetched / name / NAME / "kernel.log").read_text() == "Xid\n"

    assert not (tmp_path / "never" / "evidence").exists()
    assert sorted(path.name for path in fetched.iterdir()) == ["faulty", "rebooted", "reset"]
    assert text.count("changed=0") == len(hosts)


@pytest.mark.parametrize(
    ("directory", "name", "written"),
    [
        (f"evidence/{NAME}", "kernel.log", f"host/{NAME}/kernel.log"),
        (f"evidence/{NAME}/..", "kernel.log", None),
        (f"evidence/{NAME}/../..", "kernel.log", None),
        ("evidence/ssh", "authorized_keys", None),
        (f"evidence/{NAME}\n", "kernel.log", None),
        (f"evidence/{NAME}", "../../kernel.log", None),
        (f"evidence/{NAME}", ".bashrc", None),
        (f"evidence/{NAME}", "kernel.log\n", None),
        (f"evidence/{NAME}", "x" * 97, None),
    ],
)
def test_a_host_names_no_file_of_the_controller(directory: str, name: str, written: str | None, tmp_path: Path) -> None:
    """By another directory, or by another name than those of the module."""
    variables = mock(tmp_path / "host", "gpu_health")
    evidence = {"directory": str(tmp_path / "host" / directory), "files": [name], "notes": []}
    inventory = tmp_path / "inventory.json"
    fetched = tmp_path / "fetched"
    inventory.write_text(
        json.dumps({"all": {"hosts": {"host": variables}, "vars": {"gpu_fleet_evidence_fetch_to": str(fetched)}}})
    )
    fetch = {
        "ansible.builtin.include_role": {"name": "gpu.fleet.common", "tasks_from": "fetch_evidence.yml"},
        "vars": {"__common_evidence": evidence},
    }
    text = run_play(tmp_path, {"hosts": "all", "gather_facts": False, "tasks": [fetch]}, inventory=inventory)
    assert [str(path.relative_to(fetched)) for path in fetched.rglob("*") if path.is_file()] == [written] * bool(
        written
    )
    assert ("host: evidence of a fault stays on the host" in text) is not bool(written)


@pytest.mark.parametrize("found", [{"isreg": False}, {"size": (256 << 20) + 1}, {"size": "much"}])
def test_only_regular_files_within_a_bound_are_fetched(found: dict[str, Any], tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    inventory = tmp_path / "inventory.json"
    hosts = {"host": mock(tmp_path / "host", "gpu_health", **found)}
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": {"gpu_fleet_evidence_fetch_to": str(fetched)}}}))
    play = {"hosts": "all", "gather_facts": False, "tasks": [part_of_role("common", "evidence.yml", "host")]}
    assert "host: evidence of a fault stays on the host: " in run_play(tmp_path, play, inventory=inventory)
    assert [path for path in fetched.rglob("*") if path.is_file()] == []


def test_evidence_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    fetched = tmp_path / "fetched"
    fetched.write_text("a file")
    inventory = tmp_path / "inventory.json"
    hosts = {"host": mock(tmp_path / "host", "gpu_health")}
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": {"gpu_fleet_evidence_fetch_to": str(fetched)}}}))
    play = {"hosts": "all", "gather_facts": False, "tasks": [part_of_role("common", "evidence.yml", "host")]}
    assert "host: evidence of a fault stays on the host: " in run_play(tmp_path, play, inventory=inventory)
