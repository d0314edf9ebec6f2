# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the scenario of `make real-gpu` judges its steps: what is not as expected is found, by host."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from testbed.progress import CommandError
from testbed.real_gpu import scenario
from testbed.real_gpu.steps import READ, READ_AGAIN, Step, changed_settings, judge, refusals, steps
from tests.conftest import ROOT


def document(**host: Any) -> dict[str, Any]:
    """What run_result writes of a run over one host."""
    change = {"role": "gpu.fleet.docker", "task": "Start Docker"}
    found = {"status": "ok", "message": None, "changed": False, "changes": [change] if host.get("changed") else []}
    return {"hosts": {"node": {**found, **host}}}


@pytest.mark.parametrize(
    ("expected", "status", "found", "reasons"),
    [
        ("a run", 0, document(), []),
        ("a run", 0, document(changed=True), []),
        ("a run", 0, None, ["ansible-playbook ended with status 0 and touched no host"]),
        ("a run", 0, {"hosts": {}}, ["ansible-playbook ended with status 0 and touched no host"]),
        ("a run", 2, document(status="failed", message="node: no space"), ["node: failed: node: no space"]),
        ("a run", 0, document(status="not_run"), ["node: not_run: no message"]),
        ("a run", 3, document(), ["ansible-playbook ended with status 3"]),
        ("changes", 0, document(changed=True), []),
        ("changes", 0, document(), ["node: nothing changed"]),
        ("no changes", 0, document(), []),
        (
            "no changes",
            0,
            document(changed=True),
            ["node: changed, expected no change: gpu.fleet.docker: Start Docker"],
        ),
        ("a refusal", 2, document(status="failed", message="node: that would stop it; nothing was changed"), []),
        ("a refusal", 0, document(), ["node: expected a refusal with the words 'would stop', got none"]),
        (
            "a refusal",
            2,
            document(status="failed", message="node: that would stop it", changed=True),
            ["node: expected a refusal with the words 'would stop', got node: that would stop it"],
        ),
    ],
)
def test_what_is_not_as_expected_is_found(expected: Any, status: int, found: Any, reasons: list[str]) -> None:
    assert judge(Step("a step", "site.yml", expected, words="would stop"), status, found) == reasons


def test_the_settings_of_the_gpus_are_compared_by_uuid() -> None:
    before = {"gpus": [{"uuid": "GPU-a", "ecc_mode_current": "enabled", "power_limit_w": 700.0}, {"uuid": "GPU-b"}]}
    same = {"gpus": [{"uuid": "GPU-b"}, {"uuid": "GPU-a", "ecc_mode_current": "enabled", "power_limit_w": 700.0}]}
    assert changed_settings(before, same) == []
    after = {"gpus": [{"uuid": "GPU-a", "ecc_mode_current": "enabled", "power_limit_w": 630.0}]}
    lines = ["GPU-b is missing", "GPU-a: power_limit_w was 700.0, is 630.0"]
    assert changed_settings(before, after) == lines


def test_it_does_not_begin_on_hosts_that_work_or_have_no_gpu() -> None:
    facts = {"available": True, "message": None, "gpus": [{"uuid": "GPU-a", "processes": []}]}
    assert refusals({"node": facts}) == []
    assert "no host responded" in refusals({})[0]
    busy = {**facts, "gpus": [{"uuid": "GPU-a", "processes": [{"pid": 4711}]}]}
    assert refusals({"node": busy}) == ["node: processes use GPUs (PIDs 4711); end them, or name a host that is free"]
    bare = {"available": False, "message": "no driver is loaded", "gpus": []}
    assert "node: no GPU responds: no driver is loaded" in refusals({"node": bare})[0]


def test_settings_of_gpus_change_in_check_mode_only_unless_asked() -> None:
    def changing(change_gpus: bool) -> list[bool]:
        chosen = steps(["docker"], computes=False, change_gpus=change_gpus)
        found = [one.arguments for one in chosen if "gpu_state" in " ".join(one.arguments)]
        assert found
        return ["--check" in arguments for arguments in found]

    assert changing(False) == [True]
    assert changing(True) == [False, False]


def test_every_playbook_is_there() -> None:
    chosen = (READ, READ_AGAIN, *steps(["docker", "podman"], computes=True, change_gpus=True))
    assert [one.playbook for one in chosen if not (ROOT / one.playbook).is_file()] == []


def test_warnings_of_ansible_that_a_run_causes_are_reasons() -> None:
    output = (
        "[WARNING]: facts become variables (inject_facts_as_vars is true).\n"
        "[WARNING]: Deprecation warnings can be disabled by setting `deprecation_warnings=False` in ansible.cfg.\n"
        "[WARNING]: The variable '__docker_file' is already in use. You should set the `loop_var` value.\n"
        "[DEPRECATION WARNING]: Instantiating test PluginLoader with aliases is deprecated. Aliases.\n"
    )
    assert [line[:50] for line in scenario.warnings_of(output)] == [
        "Ansible warns: The variable '__docker_file' is alr"
    ]


PLAYBOOK = """\
#!/usr/bin/env python3
import json, os, sys
name = sys.argv[-1].rpartition("/")[2]
print(name, *sys.argv[1:-1], file=open(os.environ["CALLS"], "a"))
if name == "read_gpus.yml":
    directory = json.loads(sys.argv[sys.argv.index("--extra-vars", len(sys.argv) - 4) + 1])["real_gpu_directory"]
    facts = {"available": True, "driver_version": "580", "gpus": [{"uuid": "GPU-a", "name": "NVIDIA H200"}]}
    json.dump(facts, open(directory + "/node.json", "w"))
changed = name == "site.yml"
host = {"status": "ok", "message": None, "changed": changed, "changes": []}
json.dump({"hosts": {"node": host}}, open(os.environ["GPU_FLEET_RESULT_FILE"], "w"))
"""


@pytest.fixture(name="program")
def _program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An ansible-playbook of which each run of site.yml changes the host."""
    path = tmp_path / "program"
    path.write_text(PLAYBOOK)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return path


def test_nothing_is_changed_before_the_person_agrees(program: Path, tmp_path: Path) -> None:
    given = ["-i", "hosts", "--directory", str(tmp_path / "logs"), "--ansible-playbook", str(program)]
    with pytest.raises(CommandError, match="nobody can be asked here"):
        scenario.run(given)
    assert [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()] == ["read_gpus.yml"]


def test_a_failed_step_keeps_no_other_from_running(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["-i", "hosts", "--yes", "--directory", str(tmp_path / "logs"), "--ansible-playbook", str(program)]
    assert not scenario.run(given)
    output = capsys.readouterr().out
    assert "node: 1 x NVIDIA H200, driver 580" in output
    assert "node: changed, expected no change" in output
    calls = [line.split()[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls[-3:] == ["decommission.yml", "left.yml", "read_gpus.yml"]
    assert json.loads((tmp_path / "logs" / "02-site-yml.json").read_text())["hosts"]["node"]["changed"]
