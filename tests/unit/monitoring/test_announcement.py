# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that announce the last verdict, as slurmd and monitors run them. Slurm is a mock, see mock_slurm.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._health import announcement
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import gpu_monitoring

from tests.conftest import ROOT
from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable
from tests.unit.monitoring.exporter import check, install
from tests.unit.slurm.mock_slurm import edit, mock_slurm

FAULT = {"verdict": "fail", "remedy": "reboot", "found": "GPU 1 (00000000:07:00.0): Xid 79"}
DRAIN = "gpu.fleet.health check: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot"


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Path:
    """A host with the programs and the commands of Slurm, which is its node gpu1."""
    Host(tmp_path, gpus=[{"model": "h200", "count": 2}])
    (tmp_path / "kernel.log").write_text("Linux version 6.8.0\n")
    health = {"expected": {}, "policy": [], "kernel_log": str(tmp_path / "kernel.log"), "history": ""}
    install(tmp_path, {**health, "executable": str(executable(tmp_path))}, tmp_path / "gpu.prom")
    mock_slurm(tmp_path, "bin")
    return tmp_path


def announce(host: Path, audience: str, **written: Any) -> subprocess.CompletedProcess[str]:
    """A run of a program after a check of just now."""
    if written:
        document = {"time": time.time() - 1, "valid_s": 900, "remedy": "none", "found": "", **written}
        (host / "verdict.json").write_text(json.dumps(document))
    program = host / gpu_monitoring.PROGRAM.lstrip("/") / audience
    environment = {"PATH": f"{host}/bin:{os.environ['PATH']}", "SLURMD_NODENAME": "gpu1"}
    return subprocess.run([program], capture_output=True, text=True, check=False, env=environment, timeout=60)


def node(host: Path) -> tuple[str, str]:
    state = json.loads((host / "state.json").read_text())
    return state["state"], state["reason"]


def test_the_verdict_of_the_check_is_announced(host: Path) -> None:
    assert check(host).returncode == 0
    assert announce(host, "status").stdout == "OK: nothing found\n"
    Host(host, gpus=[{"model": "h200", "count": 2}]).control("fault", "recovery-action", "reset", "--gpu", "1")
    assert check(host).returncode == 0
    failed = announce(host, "status")
    assert failed.returncode == 2
    assert failed.stdout.startswith("FAIL: GPU 1 (") and failed.stdout.endswith("; remedy reset_gpu\n")


@pytest.mark.parametrize(
    ("verdict", "monitor", "problem"), [("ok", 0, 0), ("info", 0, 0), ("warn", 1, 0), ("fail", 2, 1), ("unknown", 3, 2)]
)
def test_the_exit_status_is_that_of_the_audience(host: Path, verdict: str, monitor: int, problem: int) -> None:
    assert announce(host, "status", verdict=verdict).returncode == monitor
    assert announce(host, "node-problem").returncode == problem


DURATION = r"(\d+(\.\d+)?(ms|s|m|h))+"
# As node-problem-detector reads them: pkg/custompluginmonitor/types/config.go and types.go, pkg/types/types.go.
KEYS: Mapping[str, Mapping[str, type]] = {
    "": {
        **{"plugin": str, "pluginConfig": dict, "source": str, "conditions": list, "rules": list},
        "metricsReporting": bool,
    },
    "pluginConfig": {
        **{"invoke_interval": str, "timeout": str, "max_output_length": int, "concurrency": int},
        **{"enable_message_change_based_condition_update": bool, "skip_initial_status": bool},
    },
    "conditions": {"type": str, "reason": str, "message": str},
    "rules": {
        **{"type": str, "condition": str, "reason": str, "path": str, "args": list, "timeout": str},
        "invoke_interval": str,
    },
}


def test_the_plugin_of_the_guide_is_one_of_node_problem_detector(host: Path) -> None:
    blocks = re.findall(
        r"^```json\n(.*?)^```$", (ROOT / "docs" / "monitoring.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (found,) = (json.loads(block) for block in blocks if "custom" in block)
    for place, keys in KEYS.items():
        # What it does not know it ignores: a misspelt setting would be none.
        level = found[place] if place else found
        for one in level if isinstance(level, list) else [level]:
            assert {name for name, value in one.items() if keys.get(name) is not type(value)} == set()
    settings, (condition,), (rule,) = found["pluginConfig"], found["conditions"], found["rules"]
    assert found["plugin"] == "custom" and rule["type"] == "permanent" and rule["condition"] == condition["type"]
    assert all(re.fullmatch(DURATION, settings[name]) for name in ("invoke_interval", "timeout"))
    # CamelCase, as the API has it of a reason.
    assert all(re.fullmatch("[A-Z][A-Za-z]+", name) for name in (rule["reason"], condition["reason"]))
    assert rule["path"] == f"{gpu_monitoring.PROGRAM}/node-problem" and (host / rule["path"].lstrip("/")).exists()
    # It cuts bytes off, and reads no more than 4096.
    longest = {"verdict": "unknown", "remedy": "restart_fabric_manager", "found": "\N{FOUR LEAF CLOVER}" * 1000}
    assert len(announce(host, "node-problem", **longest).stdout.encode()) < settings["max_output_length"] <= 4096


def test_an_idle_node_is_drained_and_returned_when_the_verdict_is_ok_again(host: Path) -> None:
    assert announce(host, "slurm-health-check", **FAULT).returncode == 0
    assert node(host) == ("IDLE+DRAIN", DRAIN)
    for verdict in ("unknown", "warn"):
        announce(host, "slurm-health-check", verdict=verdict)
        assert node(host) == ("IDLE+DRAIN", DRAIN), verdict
    announce(host, "slurm-health-check", verdict="ok")
    assert node(host)[0] == "IDLE"


def test_a_busy_node_is_not_drained_and_takes_no_further_job(host: Path) -> None:
    edit(host / "state.json", state="MIXED", jobs="1|RUNNING|ann\n")
    announce(host, "slurm-health-check", **FAULT)
    assert node(host) == ("MIXED", "")
    assert announce(host, "slurm-prolog", verdict="warn").returncode == 0
    assert announce(host, "slurm-prolog", **FAULT).returncode == 1
    assert node(host)[1] == DRAIN


@pytest.mark.parametrize("reason", ["bad fan", "gpu.fleet 20261124T020000Z_3f2a1b: new driver"])
def test_a_drain_of_another_stays_as_it_is(host: Path, reason: str) -> None:
    edit(host / "state.json", state="IDLE+DRAIN", reason=reason)
    for audience, written in (
        ("slurm-health-check", FAULT),
        ("slurm-prolog", FAULT),
        ("slurm-health-check", {"verdict": "ok"}),
    ):
        announce(host, audience, **written)
        assert node(host) == ("IDLE+DRAIN", reason)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"time": "now", "valid_s": 9, "verdict": "ok", "remedy": "none", "found": ""}',
        '{"time": 1, "valid_s": 900, "verdict": "fail", "remedy": "reboot", "found": "old"}',
        '{"time": 1e12, "valid_s": 900, "verdict": "ok", "remedy": "none", "found": "of the future"}',
        '{"time": 1, "valid_s": 1e12, "verdict": "good", "remedy": "none", "found": ""}',
        "[" * 100_000,
    ],
)
def test_a_verdict_that_does_not_count_is_unknown_and_drains_nothing(host: Path, text: str) -> None:
    (host / "verdict.json").write_text(text)
    assert announce(host, "status").returncode == 3
    assert announce(host, "slurm-health-check").returncode == 0
    assert announce(host, "slurm-prolog").returncode == 0
    assert node(host) == ("IDLE", "")


def test_without_a_check_since_the_boot_the_verdict_is_unknown(host: Path) -> None:
    found = announce(host, "status")
    assert (found.returncode, found.stdout.split(":")[0]) == (3, "UNKNOWN")
    assert "gpu-fleet-health.timer" in found.stdout


def test_a_node_that_slurm_does_not_show_is_named(host: Path) -> None:
    (host / "bin" / "scontrol").write_text("#!/bin/sh\necho 'Node gpu1 not found'; exit 1\n")
    done = announce(host, "slurm-health-check", **FAULT)
    assert done.returncode == 1
    assert done.stderr.startswith("Slurm was not changed: gpu1: scontrol show: Node gpu1 not found")


def test_what_was_found_is_one_line_of_bounded_length() -> None:
    finding = {"verdict": "fail", "message": "GPU 1: \x1b[31m" + "x" * 5000 + "\n0: ok"}
    written = announcement.document({"verdict": "fail", "remedy": "reboot", "findings": [finding]}, 300, 0)
    assert len(written["found"]) <= 400 and written["found"].isprintable()
