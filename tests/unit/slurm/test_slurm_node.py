# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurm_node on outputs of real versions of Slurm, and as a whole module with mock commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._slurm.node import (
    Job,
    Node,
    held_by,
    is_idle,
    is_own,
    parse_jobs,
    parse_node,
    parse_request,
    plan,
)
from ansible_collections.gpu.fleet.plugins.modules import slurm_node

from tests.unit.module_runs import COMMON, check_documented, run_module
from tests.unit.slurm.mock_slurm import edit, mock_slurm

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = [path.name for path in sorted(FIXTURES.iterdir()) if path.is_dir()]
OWNER = "gpu.fleet 20261122T171152Z"
JOB = Job("1", "RUNNING", "ann")


def recorded(version: str, name: str) -> str:
    """A recorded output."""
    return (FIXTURES / version / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "states", "reason", "is_out_of_service"),
    [
        ("idle", {"IDLE"}, "", False),
        ("allocated", {"ALLOCATED"}, "", False),
        ("draining", {"ALLOCATED", "DRAIN"}, f"{OWNER}: upgrade", True),
        ("completing", {"IDLE", "COMPLETING", "DRAIN"}, f"{OWNER}: upgrade", True),
        ("drained_by_operator", {"MIXED", "DRAIN"}, "bad fan = 3, ask [ops] State=IDLE", True),
        ("down", {"DOWN"}, "power supply", True),
        ("down_and_drained", {"DOWN", "DRAIN"}, "gpu.fleet X: upgrade", True),
        # Drained, then `scontrol reboot ASAP nextstate=DOWN` with the same reason, until slurmd is back.
        ("rebooting", {"DOWN", "DRAIN", "REBOOT_ISSUED"}, f"{OWNER}: upgrade : reboot issued", True),
        ("rebooted", {"DOWN"}, f"{OWNER}: upgrade : reboot issued : reboot complete", True),
        # scontrol keeps the first line only.
        ("reason_of_two_lines", {"IDLE", "COMPLETING", "DRAIN"}, "a", True),
    ],
)
def test_nodes_of_real_versions(
    version: str, name: str, states: set[str], reason: str, is_out_of_service: bool
) -> None:
    text = recorded(version, name)
    node = parse_node(text, "gpu2" if "gpu2" in text else "gpu1")
    assert (set(node.states), node.reason, node.is_out_of_service) == (states, reason, is_out_of_service)
    assert node.reason_by == ("root" if reason else "")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reason_alone_drains_nothing(version: str) -> None:
    node = parse_node(recorded(version, "resumed"), "gpu2")
    assert not node.is_out_of_service and not node.is_responding
    # 24.11 keeps the reason of a node that was resumed, 22.05 and 26.05 do not.
    assert node.reason == ("second reason" if version == "24.11.5" else "")
    assert not is_own(parse_request("gpu2", "in_service", "second reason", "", "keep"), node)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_slurm_has_rebooted_is_resumed_by_its_owner(version: str) -> None:
    node = parse_node(recorded(version, "rebooted"), "gpu1")
    assert plan(parse_request("gpu1", "in_service", OWNER, "", "keep"), node, ()) == RESUME
    assert plan(parse_request("gpu1", "in_service", "another", "", "keep"), node, ()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_is_cleaned_up_keeps_the_node_busy(version: str) -> None:
    jobs = parse_jobs(recorded(version, "squeue_completing"))
    node = parse_node(recorded(version, "completing"), "gpu1")
    assert {job.state for job in jobs} == {"COMPLETING"}
    assert not is_idle(node, ()) and not is_idle(Node("gpu1", ("IDLE", "DRAIN")), jobs)
    assert is_idle(Node("gpu1", ("IDLE", "DRAIN")), ())
    running = parse_jobs(recorded(version, "squeue_running"))
    assert {"1", "2_1", "2_2", "3"} == {job.id for job in running}
    ended = "7|COMPLETED|ann\n8|PENDING|ann\n9|CANCELLED|ann\n10|SUSPENDED|ann\n"
    assert parse_jobs(ended) == (Job("10", "SUSPENDED", "ann"),)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_name_of_a_job_is_no_row(version: str) -> None:
    """Real jobs named `x<newline>6|RUNNING|root|y` and, one that has ended, `done<newline>9999|RUNNING|root|z`."""
    with pytest.raises(ChangeError, match=r"squeue printed a line that is not a job: '1\|CANCELLED\|root\|job.sh'"):
        parse_jobs(recorded(version, "squeue_names"))
    assert {"6|RUNNING|root|y", "9999|RUNNING|root|z"} < set(recorded(version, "squeue_names").splitlines())
    every = recorded(version, "squeue_all")
    # Every form that an id has there: `13_[1,3,8,...` is cut by squeue.
    assert {line.split("|")[0].strip("0123456789,") for line in every.splitlines()} == {
        *("", "_", "_[1-5]", "_[3-5%2]", "+", "_["),
    }
    assert {job.id for job in parse_jobs(every)} == {"5", "6", "7", "9_1", "9_2"}


@pytest.mark.parametrize(
    "identifier", ["", "x", "-u", "1 2", "--user=ann", "1_", "1_[", "1_[a]", "1+", "1_1_1", "\u0661"]
)
def test_an_id_that_is_none_is_refused(identifier: str) -> None:
    with pytest.raises(ChangeError, match="squeue printed a line that is not a job"):
        parse_jobs(f"{identifier}|RUNNING|ann\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reboot_without_a_reason_keeps_that_of_the_operator(version: str) -> None:
    node = parse_node(recorded(version, "rebooted_of_operator"), "gpu1")
    assert node.reason == "fan 3 is loud : reboot issued : reboot complete"
    assert plan(parse_request("gpu1", "in_service", OWNER, "", "keep"), node, ()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_comment_is_a_text_of_any_form(version: str) -> None:
    text = recorded(version, "drained_by_operator").rstrip("\n")
    for note in ("Comment=rack 3", "Extra=x"):
        noted = f"{text}\n   {note}\nNodeName=vm Arch=x86_64\n   State=IDLE \n   Reason=none\n   Comment=y\n\n"
        assert parse_node(noted, "gpu2") == parse_node(text, "gpu2")
        # What the node reports itself, before its state, hides nothing.
        early = text.replace("   OS=", f"   OS=x\n   State=IDLE \n   CfgTRES=cpu=4\n   {note}\n   OS=")
        with pytest.raises(ChangeError, match="gpu2: scontrol shows 2 states and 1 reasons of this node"):
            parse_node(early, "gpu2")
    lines = text.replace(" [root@", "\n          State=IDLE [root@")
    assert parse_node(lines, "gpu2").states == parse_node(text, "gpu2").states


@pytest.mark.parametrize(
    ("states", "reason", "why"),
    [
        ("IDLE", "", ""),
        ("MIXED+CLOUD+PLANNED", "of an earlier drain", ""),
        ("IDLE+NOT_RESPONDING", "", ""),
        ("IDLE+INVALID_REG", "gres/gpu count too low", "its state is INVALID_REG: gres/gpu count too low"),
        ("IDLE+SOMETHING_NEW", "", "its state is SOMETHING_NEW"),
        ("UNKNOWN", "", "its state is UNKNOWN"),
        ("DOWN", "fan", "fan"),
        ("IDLE+DRAIN+INVALID_REG", "us: upgrade", "us: upgrade"),
    ],
)
def test_only_known_states_take_jobs(states: str, reason: str, why: str) -> None:
    node = Node("gpu1", tuple(states.split("+")), reason)
    assert (node.takes_jobs, node.why) == (why == "", why)
    drain = plan(parse_request("gpu1", "drained", "us", "upgrade", "keep"), node, ())
    assert bool(drain) == (not node.is_out_of_service), "a flag of Slurm's own does not keep it from being drained"


def test_marks_of_versions_before_21_08() -> None:
    node = parse_node(
        "NodeName=gpu1 Arch=x86_64\n   State=IDLE*+DRAIN ThreadsPerCore=2\n   Reason=fan [root@x]\n", "gpu1"
    )
    assert set(node.states) == {"IDLE", "DRAIN", "NOT_RESPONDING"}


@pytest.mark.parametrize(
    "text",
    [
        *("", "Node gpu1 not found\n", "NodeName=gpu2 Arch=x\n   State=IDLE \n"),
        # Another field has them in its text.
        "NodeName=gpu1 Arch=x\n   OS=Linux\n   State=IDLE \n   State=DOWN \n",
        "NodeName=gpu1 Arch=x\n   State=DOWN \n   Extra=a\n   Reason=us: upgrade\n   Reason=fan [root@x]\n",
    ],
)
def test_output_about_another_node_is_refused(text: str) -> None:
    with pytest.raises(ChangeError, match="gpu1: scontrol shows "):
        parse_node(text, "gpu1")


DRAIN = [["scontrol", "update", "NodeName=gpu1", "State=DRAIN", "Reason=us: upgrade"]]
RESUME = [["scontrol", "update", "NodeName=gpu1", "State=RESUME"]]


@pytest.mark.parametrize(
    ("state", "states", "reason", "jobs", "commands"),
    [
        ("drained", ["IDLE"], "", "keep", DRAIN),
        ("drained", ["IDLE"], "us: upgrade", "keep", DRAIN),
        ("drained", ["MIXED", "DRAIN"], "us: upgrade", "keep", []),
        ("drained", ["IDLE", "DRAIN"], "us: another", "keep", DRAIN),
        ("drained", ["DOWN"], "us: upgrade", "keep", DRAIN),
        # Of an operator, or of another run.
        ("drained", ["IDLE", "DRAIN"], "fan", "keep", []),
        ("drained", ["DOWN"], "Not responding", "keep", []),
        ("drained", ["IDLE", "DRAIN"], "us2: upgrade", "keep", []),
        ("drained", ["IDLE"], "", "cancel", [*DRAIN, ["scancel", "1"]]),
        ("drained", ["MIXED", "DRAIN"], "us: upgrade", "cancel", [["scancel", "1"]]),
        ("in_service", ["IDLE", "DRAIN"], "us: upgrade", "keep", RESUME),
        ("in_service", ["DOWN", "DRAIN"], "us", "keep", RESUME),
        ("in_service", ["DOWN"], "us: upgrade", "keep", RESUME),
        ("in_service", ["IDLE"], "us: upgrade", "keep", []),
        ("in_service", ["IDLE", "DRAIN"], "fan", "keep", []),
        ("in_service", ["IDLE", "DRAIN"], "us2: upgrade", "keep", []),
        # Jobs are cancelled on a drained node only.
        ("in_service", ["MIXED"], "", "cancel", []),
        ("", ["MIXED"], "", "cancel", []),
    ],
)
def test_plan(state: str, states: list[str], reason: str, jobs: str, commands: list[list[str]]) -> None:
    request = parse_request("gpu1", state, "us", "upgrade", jobs)
    assert plan(request, Node("gpu1", tuple(states), reason), (JOB,)) == commands


def test_a_drain_of_another_run_is_refused_and_can_be_taken_over() -> None:
    node = Node("gpu1", ("MIXED", "DRAIN"), "gpu.fleet 20260101T000000Z: upgrade")
    for state in ("drained", "in_service", ""):
        request = parse_request("gpu1", state, OWNER, "upgrade", "cancel")
        assert plan(request, node, (JOB,)) == [] and not is_own(request, node)
        assert held_by(request, node).endswith("gpu_fleet_upgrade_take_over: 20260101T000000Z")
    taken = parse_request("gpu1", "drained", OWNER, "upgrade", "keep", take_over="20260101T000000Z")
    assert plan(taken, node, ()) == [["scontrol", "update", "NodeName=gpu1", "State=DRAIN", f"Reason={OWNER}: upgrade"]]
    # In service: the reason is what newer versions of Slurm keep of an earlier drain.
    assert held_by(parse_request("gpu1", "drained", OWNER, "", "keep"), Node("gpu1", ("IDLE",), node.reason)) == ""
    for reason in ("fan", "gpu.fleet.remedy", "maintenance 7: fan"):
        assert held_by(parse_request("gpu1", "drained", OWNER, "", "keep"), Node("gpu1", ("DRAIN",), reason)) == ""


@pytest.mark.parametrize("reason", ['task "x"', "task 'x'", "upgrade"])
def test_a_reason_is_as_scontrol_stores_it(reason: str) -> None:
    request = parse_request("gpu1", "drained", "us", reason, "keep")
    stored = f"us: {reason}"
    stored = stored[:-1] if stored[-1] in "'\"" else stored
    assert plan(request, Node("gpu1", ("IDLE", "DRAIN"), stored), ()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *[({"name": name}, "^name: ") for name in ("gpu[1-2]", "gpu1,gpu2", "ALL", "all", "", "-x", "gpu1 State=DOWN")],
        ({"owner": ""}, "^state requires owner"),
        ({"owner": "a: b"}, "^owner: a: b has a quotation mark, or a colon"),
        ({"owner": "'a"}, "^owner: 'a has a quotation mark"),
        ({"owner": "a\nb"}, "^owner has to be one line"),
        ({"reason": "a\nb"}, "^reason has to be one line"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    given = {"name": "gpu1", "state": "drained", "owner": "us", "reason": "", "jobs": "keep", **options}
    with pytest.raises(ChangeError, match=message):
        parse_request(**given)


@pytest.fixture(name="slurm")
def _slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a mock of Slurm whose commands are on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return mock_slurm(tmp_path)


def test_a_node_is_drained_and_returned_once(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"name": "gpu1", "state": "drained", "owner": "us", "reason": "upgrade"}
    edit(slurm, jobs="1|RUNNING|ann\n")
    predicted = run_module(slurm_node, monkeypatch, options, check=True)
    assert predicted["changed"] and "update" not in (slurm.parent / "log").read_text()
    done = run_module(slurm_node, monkeypatch, options)
    assert (done["changed"], done["commands"], done["diff"]) == (True, predicted["commands"], predicted["diff"])
    assert done["diff"] == {"before": "IDLE\n", "after": "IDLE+DRAIN us: upgrade\n"}
    assert (done["own"], done["idle"], done["in_service"]) == (True, False, False)
    assert done["jobs"] == [{"id": "1", "state": "RUNNING", "user": "ann"}]
    check_documented({name: value for name, value in done.items() if name not in COMMON}, RETURN, "slurm_node")
    assert not run_module(slurm_node, monkeypatch, options)["changed"]
    forced = run_module(slurm_node, monkeypatch, {**options, "jobs": "cancel"})
    assert (forced["changed"], forced["idle"]) == (True, True)
    back = run_module(slurm_node, monkeypatch, {"name": "gpu1", "state": "in_service", "owner": "us"})
    assert (back["changed"], back["in_service"], back["reason"]) == (True, True, "")
    assert not run_module(slurm_node, monkeypatch, {"name": "gpu1", "state": "in_service", "owner": "us"})["changed"]


RETURN = yaml.safe_load(slurm_node.RETURN)


def test_the_drain_of_an_operator_stays(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(slurm, state="IDLE+DRAIN", reason="fan")
    for state in ("drained", "in_service"):
        done = run_module(slurm_node, monkeypatch, {"name": "gpu1", "state": state, "owner": "us"})
        assert (done["changed"], done["own"], done["reason"]) == (False, False, "fan")


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({"stuck": True}, {"state": "drained"}, "gpu1: it is IDLE after it was drained; see slurmctld's log"),
        (
            {"stuck": True, "state": "DOWN+DRAIN", "reason": "us"},
            {"state": "in_service"},
            "gpu1: it is DOWN+DRAIN (us) after it was resumed; ",
        ),
        ({}, {"name": "gpu9"}, "gpu9: scontrol show: Node gpu9 not found; name has to be the NodeName in slurm.conf"),
    ],
)
def test_what_did_not_work_is_a_failure(
    values: dict[str, Any], options: dict[str, str], message: str, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(slurm, **values)
    done = run_module(slurm_node, monkeypatch, {"name": "gpu1", "owner": "us", **options})
    assert done["failed"] and done["msg"].startswith(message), done["msg"]


def test_commands_outside_of_path_are_found_by_their_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = mock_slurm(tmp_path, "slurm/bin")
    monkeypatch.setenv("PATH", "")
    edit(slurm, jobs="1|RUNNING|ann\n")
    options = {"name": "gpu1", "directory": str(tmp_path / "slurm")}
    done = run_module(slurm_node, monkeypatch, {**options, "state": "drained", "owner": "us", "jobs": "cancel"})
    assert (done["changed"], done["own"], done["idle"]) == (True, True, True)
    called = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert called == ["scontrol", "squeue", "scontrol", "scancel", "scontrol", "squeue"]


@pytest.mark.parametrize(
    ("directory", "message"),
    [
        (
            None,
            "gpu1: scontrol show: No such file or directory; run it on a host with Slurm's commands, such as the host ",
        ),
        (
            "/opt/no-slurm",
            "gpu1: /opt/no-slurm/bin/scontrol show: No such file or directory; set directory to Slurm's ",
        ),
        ("opt/slurm", "directory: opt/slurm is not an absolute path"),
    ],
)
def test_a_host_without_slurm_is_named(
    directory: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = {"name": "gpu1", **({"directory": directory} if directory else {})}
    assert run_module(slurm_node, monkeypatch, options)["msg"].startswith(message)
