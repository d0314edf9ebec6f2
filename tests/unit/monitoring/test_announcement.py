# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that announce the last verdict, as slurmd and monitors run them. Slurm is a mock, see mock_slurm.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import syslog
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
    health["ignore_vulnerabilities"] = ["5861"]  # of the simulated driver
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


# The cap


EARLIER, LATER = "2026-05-04T08:00:00", "2026-05-04T09:00:01"


def others(total: int, *drained: str, reason: str = DRAIN, since: str = EARLIER) -> list[list[str]]:
    """So many nodes next to gpu1, of which these are drained."""
    healthy = [[f"gpu{number}", "IDLE", "", ""] for number in range(2, total + 2)]
    out = [[name, "IDLE+DRAIN", reason, since] for name in drained]
    return [*out, *(one for one in healthy if one[0] not in drained)]


def commands(host: Path) -> list[str]:
    """The commands that have changed the node."""
    calls = (host / "log").read_text().splitlines()
    return [call.split()[3] for call in calls if call.startswith("scontrol update NodeName=gpu1 ")]


def is_held(host: Path) -> bool:
    """Whether the check reports so; its own verdict is the one that was announced."""
    if not (host / "held-slurm.json").exists():
        return False
    assert (host / "held-slurm.json").stat().st_mode & 0o777 == 0o644
    assert announcement.held("ok", str(host / "verdict.json")) == ()
    return announcement.held("fail", str(host / "verdict.json")) == ("slurm",)


@pytest.mark.parametrize(
    ("reason", "count"), [(DRAIN, 3), ("gpu.fleet.remedy 20261124T020000Z: Xid 79", 3), ("bad fan", 0)]
)
def test_over_the_cap_nothing_is_drained_and_the_verdict_is_reported(host: Path, reason: str, count: int) -> None:
    edit(host / "state.json", others=others(29, "gpu2", "gpu3", "gpu4", reason=reason))
    for audience in ("slurm-health-check", "slurm-prolog"):
        done = announce(host, audience, **FAULT)
        assert done.stdout == "FAIL: GPU 1 (00000000:07:00.0): Xid 79; remedy reboot\n"
        if not count:
            assert node(host) == ("IDLE+DRAIN", DRAIN) and done.returncode == (audience == "slurm-prolog")
            continue
        # The job begins: Slurm would drain the node itself, and nobody would count that.
        assert (node(host), done.returncode) == (("IDLE", ""), 0)
        assert done.stderr.startswith(
            "gpu1 is not drained, though its verdict is fail: verdicts have 3 of 30 nodes out of service, and "
            "gpu_monitoring_max_drained (10%) allows 3: "
        )
        assert commands(host) == []
    assert is_held(host) == bool(count)
    # With one of them back in service there is room for this one.
    edit(host / "state.json", others=others(29, "gpu2", "gpu3", reason=reason))
    announce(host, "slurm-health-check", **FAULT)
    assert node(host) == ("IDLE+DRAIN", DRAIN) and not is_held(host)


def test_a_return_has_no_cap(host: Path) -> None:
    edit(host / "state.json", state="IDLE+DRAIN", reason=DRAIN, others=others(29, "gpu2", "gpu3", "gpu4", "gpu5"))
    edit(host / "state.json", counts=0)
    assert announce(host, "slurm-health-check", verdict="ok").returncode == 0
    assert node(host)[0] == "IDLE"


@pytest.mark.parametrize("audience", ["slurm-health-check", "slurm-prolog"])
@pytest.mark.parametrize("counts", [0, 1])
def test_what_cannot_be_counted_drains_nothing(host: Path, audience: str, counts: int) -> None:
    """Before the drain, and after it: then it is undone."""
    edit(host / "state.json", others=others(29), counts=counts)
    done = announce(host, audience, **FAULT)
    assert (done.returncode, node(host)[0]) == (0, "IDLE")
    assert "cannot be counted: gpu1: scontrol --all: slurm_load_node error: Unable to contact" in done.stderr
    assert is_held(host) and commands(host) == ["State=DRAIN", "State=RESUME"] * counts


@pytest.mark.parametrize("audience", ["slurm-health-check", "slurm-prolog"])
@pytest.mark.parametrize(("since", "stays"), [(EARLIER, False), (LATER, True)])
def test_of_nodes_that_drain_themselves_at_once_the_late_ones_yield(
    host: Path, audience: str, since: str, stays: bool
) -> None:
    drained = others(0, "gpu91", "gpu92", "gpu93", since=since)
    edit(host / "state.json", others=others(26), meanwhile=drained)
    done = announce(host, audience, **FAULT)
    assert (node(host)[0] == "IDLE+DRAIN") is stays
    assert done.returncode == (stays and audience == "slurm-prolog")
    assert is_held(host) is not stays
    assert ("verdicts have 4 of 30 nodes out of service" in done.stderr) is not stays
    assert commands(host) == ["State=DRAIN", *([] if stays else ["State=RESUME"])]


def test_a_drain_that_was_not_counted_again_is_counted_by_the_next_run(host: Path) -> None:
    """As of a program that slurmd has ended meanwhile."""
    state = host / "state.json"
    edit(state, state="IDLE+DRAIN", reason=DRAIN, others=others(29, "gpu2", "gpu3", "gpu4"))
    announce(host, "slurm-health-check", **FAULT)
    assert node(host)[0] == "IDLE" and is_held(host)
    # One that stands stays where the nodes cannot be counted, and where remedies are at work.
    edit(state, state="IDLE+DRAIN", reason=DRAIN, counts=0)
    assert announce(host, "slurm-health-check", **FAULT).returncode == 1 and node(host)[0] == "IDLE+DRAIN"
    remedies = others(29, "gpu2", "gpu3", "gpu4", reason="gpu.fleet.remedy 20261124T020000Z: Xid 79")
    edit(state, counts=-1, others=remedies)
    other = {**FAULT, "found": "GPU 0 (00000000:06:00.0): Xid 119"}
    assert announce(host, "slurm-health-check", **other).returncode == 0
    assert node(host) == ("IDLE+DRAIN", "gpu.fleet.health check: GPU 0 (00000000:06:00.0): Xid 119; remedy reboot")
    assert not is_held(host)


@pytest.mark.parametrize(("cap", "drains"), [("0", False), ("1", True), ("100%", True), ("ten", False)])
def test_the_cap_is_that_of_the_role(host: Path, cap: str, drains: bool) -> None:
    """Its role refuses a cap that is none; a program with one, as by a change of its text, drains nothing."""
    health = {"expected": {}, "policy": [], "kernel_log": str(host / "kernel.log"), "history": ""}
    install(host, {**health, "executable": str(executable(host))}, host / "gpu.prom", cap)
    edit(host / "state.json", others=others(9))
    announce(host, "slurm-health-check", **FAULT)
    assert (node(host)[0] == "IDLE+DRAIN") is drains


def test_a_verdict_that_is_held_is_in_the_metrics_and_in_syslog(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sample() -> list[str]:
        assert check(host).returncode == 0
        return re.findall(r"^gpu_fleet_health_held.*", (host / "gpu.prom").read_text(), re.MULTILINE)

    Host(host, gpus=[{"model": "h200", "count": 2}]).control("fault", "recovery-action", "reset", "--gpu", "1")
    edit(host / "state.json", others=others(29, "gpu2", "gpu3", "gpu4"))
    assert sample() == []
    logged: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda _priority, text: logged.append(text))
    monkeypatch.setenv("PATH", f"{host}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu1")
    assert announcement.main("slurm-prolog", str(host / "verdict.json"), "10%") == 0
    assert logged == [f"gpu-fleet-health: {capsys.readouterr().err.strip()}"]
    assert sample() == ['gpu_fleet_health_held{scheduler="slurm"} 1']
    Host(host, gpus=[{"model": "h200", "count": 2}]).control("fault", "clear")
    assert sample() == []


def test_a_job_begins_where_slurm_cannot_be_asked_and_does_not_on_a_drained_node(host: Path) -> None:
    edit(host / "state.json", state="MIXED+DRAIN", reason="bad fan", jobs="1|RUNNING|ann\n")
    assert announce(host, "slurm-prolog", **FAULT).returncode == 1
    edit(host / "state.json", state="MIXED+DRAIN", reason=DRAIN, counts=0)
    assert announce(host, "slurm-prolog", **FAULT).returncode == 1
    (host / "bin" / "scontrol").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    done = announce(host, "slurm-prolog", **FAULT)
    assert done.returncode == 0 and "Slurm was not changed: gpu1: scontrol show: Unable to contact" in done.stderr


def test_a_node_that_slurm_does_not_show_is_named(host: Path) -> None:
    (host / "bin" / "scontrol").write_text("#!/bin/sh\necho 'Node gpu1 not found'; exit 1\n")
    done = announce(host, "slurm-health-check", **FAULT)
    assert done.returncode == 1
    assert done.stderr.startswith("Slurm was not changed: gpu1: scontrol show: Node gpu1 not found")


def test_what_was_found_is_one_line_of_bounded_length() -> None:
    finding = {"verdict": "fail", "message": "GPU 1: \x1b[31m" + "x" * 5000 + "\n0: ok"}
    written = announcement.document({"verdict": "fail", "remedy": "reboot", "findings": [finding]}, 300, 0)
    assert len(written["found"]) <= 400 and written["found"].isprintable()
