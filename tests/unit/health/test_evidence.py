# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a fault, kept before a reset or a reboot: when, what, for whom, and how much."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.evidence_options import DIRECTORY
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._health import run as health_run
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Finding
from ansible_collections.gpu.fleet.plugins.module_utils._health.evidence import Collection, Evidence, is_due, superseded
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import STATES_OF_SOFTWARE, TABLE

from tests.unit.health.health_host import HealthHost
from tests.unit.state.state_host import StateHost, in_this_process

MIB = 1 << 20
NAME = "20260504T090000Z"


def test_rows_that_are_no_fault() -> None:
    assert {"ecc_mode_pending", "mig_mode_pending", "driver_version", "cdi_stale", "mig_layout"} <= STATES_OF_SOFTWARE
    faults = {row.id for row in TABLE if row.verdict in ("warn", "fail")} - STATES_OF_SOFTWARE
    assert {
        "row_remap_pending",
        "recovery_reset",
        "xid_unknown",
        "gpu_lost",
        "gpu_count",
        "nvidia_smi_failed",
    } <= faults


@pytest.mark.parametrize(
    ("mode", "row", "verdict", "due"),
    [
        ("never", "gpu_lost", "fail", False),
        ("always", "", "", True),
        ("when_unhealthy", "", "", False),
        ("when_unhealthy", "gpu_lost", "fail", True),
        ("when_unhealthy", "row_remap_pending", "warn", True),
        ("when_unhealthy", "xid_application", "info", False),
        ("when_unhealthy", "gpu_lost", "ok", False),
        ("when_unhealthy", "ecc_mode_pending", "warn", False),
        ("when_unhealthy", "kernel_log_unknown", "unknown", False),
    ],
)
def test_only_a_fault_has_evidence(mode: str, row: str, verdict: str, due: bool) -> None:
    findings = [Finding(row, None, verdict, "reboot", "", "own")] if row else []
    assert is_due(mode, findings) is due


@pytest.mark.parametrize(
    ("sizes", "removed"),
    [
        ([], []),
        ([1, 1, 1, 1, 1], []),
        ([1, 1, 1, 1, 1, 1, 1], [0, 1]),
        ([200, 30, 30], [0]),
        ([10, 300], [0]),
        ([10, 250, 10], [0, 1]),
    ],
)
def test_the_newest_are_kept_within_both_limits(sizes: list[int], removed: list[int]) -> None:
    named = [(f"{number}", size * MIB) for number, size in enumerate(sizes)]
    assert superseded(named) == [str(number) for number in removed]


def program(written: dict[str, int], **ending: Any) -> Callable[..., CommandResult]:
    """A mock nvidia-bug-report.sh that writes files of these sizes, for everybody."""

    def run(argv: Any, timeout: float) -> CommandResult:
        assert (Path(argv[0]).name, argv[1], timeout) == ("nvidia-bug-report.sh", "--output-file", 180.0)
        for suffix, size in written.items():
            path = Path(argv[2] + suffix)
            path.touch(0o644)
            os.truncate(path, size)
        result = {"rc": 0, "stdout": b"", "stderr": b"", "seconds": 180.0, **ending}
        return CommandResult(tuple(argv), **result)

    return run


def collected(root: Path, name: str, run: Callable[..., CommandResult]) -> Evidence:
    return Collection(name, {"kernel.log": "Xid\n"}, run, root=str(root)).collect()


BUG_REPORTS: dict[str, tuple[Callable[..., CommandResult], list[str], list[str]]] = {
    "compressed": (program({".gz": 10}), ["nvidia-bug-report.log.gz"], []),
    "as named": (program({"": 10}), ["nvidia-bug-report.log"], []),
    "missing": (program({}, rc=None, start_error=errno.ENOENT), [], ["there is no nvidia-bug-report.sh"]),
    "hangs": (
        program({"": 10}, rc=None, timed_out=True),
        ["nvidia-bug-report.log"],
        ["nvidia-bug-report.sh failed: it did not end within 180 s"],
    ),
    "nothing": (program({}), [], ["nvidia-bug-report.sh wrote nothing"]),
    "too large": (program({".gz": 129 * MIB}), [], ["nvidia-bug-report.log.gz was not kept: it has 129 MiB"]),
}


@pytest.mark.parametrize("case", BUG_REPORTS)
def test_report_of_the_driver(case: str, tmp_path: Path) -> None:
    run, files, notes = BUG_REPORTS[case]
    found = collected(tmp_path, NAME, run)
    assert found == Evidence(f"{DIRECTORY}/{NAME}", ["kernel.log", *files], notes)
    directory = tmp_path / DIRECTORY.lstrip("/")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
    assert modes == {NAME: 0o700, **dict.fromkeys((".gpu-fleet-evidence", *found.files), 0o600)}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_old_ones_make_room_and_other_files_stay(tmp_path: Path) -> None:
    directory = tmp_path / DIRECTORY.lstrip("/")
    directory.mkdir(parents=True)
    (directory / "notes.txt").write_text("of an operator")
    for day in range(1, 8):
        collected(tmp_path, f"2026050{day}T090000Z", program({"": 1}))
    names = sorted(path.name for path in directory.iterdir())
    assert names == [*(f"2026050{day}T090000Z" for day in range(3, 8)), "notes.txt"]


def of_others(directory: Path, kind: str) -> Path:
    """A file below a directory that has the name of a collection, and is none, or is one of another."""
    theirs = directory / "20260401T000000Z"
    if kind == "a link":
        kept = directory.parent / "backups"
        theirs.symlink_to(kept)
    else:
        kept = theirs
    kept.mkdir()
    if kind == "a marker that is a link":
        (kept / ".gpu-fleet-evidence").symlink_to("/etc/hostname")
    elif kind != "no marker":
        (kept / ".gpu-fleet-evidence").touch()
    if kind == "of a user":
        os.chown(kept / ".gpu-fleet-evidence", 12345, 12345)
    (kept / "backup.tar").touch(0o644)
    return kept / "backup.tar"


@pytest.mark.parametrize("kind", ["no marker", "a link", "a marker that is a link", "of a user"])
def test_directories_of_others_with_such_a_name_stay(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / DIRECTORY.lstrip("/")
    directory.mkdir(parents=True)
    theirs = of_others(directory, kind)
    (directory / "20260402T000000Z").touch()
    for day in range(1, 8):
        assert collected(tmp_path, f"2026050{day}T090000Z", program({"": 1})).notes == []
    assert theirs.exists() and (directory / "20260402T000000Z").exists()
    assert len([path for path in directory.iterdir() if path.name.startswith("202605")]) == 5


@pytest.mark.parametrize("kind", ["no marker", "a link", "a marker that is a link", "of a user"])
def test_nothing_is_written_to_a_directory_of_others(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / DIRECTORY.lstrip("/")
    directory.mkdir(parents=True)
    theirs = of_others(directory, kind)
    found = collected(tmp_path, "20260401T000000Z", program({}))
    assert found == Evidence(notes=[f"evidence cannot be kept in {DIRECTORY}: File exists"])
    assert not (theirs.parent / "kernel.log").exists() and stat.S_IMODE(theirs.stat().st_mode) == 0o644


def test_two_collections_in_one_second_are_one(tmp_path: Path) -> None:
    for _run in range(2):
        assert collected(tmp_path, NAME, program({})).files == ["kernel.log"]


def test_a_directory_that_exists_keeps_its_mode(host: HealthHost) -> None:
    shared = Path(host.root, "srv")
    shared.mkdir(0o755)
    result = host.check(evidence="always", evidence_directory="/srv/")
    kept = Path(host.root + result["evidence"]["directory"])
    assert kept.parent == shared
    assert [stat.S_IMODE(path.stat().st_mode) for path in (shared, kept)] == [0o755, 0o700]


def test_a_directory_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file")
    found = collected(tmp_path, NAME, program({}))
    assert found.directory is None
    assert found.notes == [f"evidence cannot be kept in {DIRECTORY}: Not a directory"]


# The module


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthHost:
    host = HealthHost(tmp_path, monkeypatch)
    results = {"timedatectl": CommandResult((), 0, b"yes\n", b"", 0.0)}
    bug_report = program({".gz": 10})
    monkeypatch.setattr(
        health_run, "run_program", lambda argv, limit: results.get(Path(argv[0]).name) or bug_report(argv, limit)
    )
    return host


def test_the_module_keeps_log_facts_and_verdict(host: HealthHost) -> None:
    host.xid("95 --gpu 1")
    result = host.check(evidence="when_unhealthy")
    kept = Path(host.root + result["evidence"]["directory"])
    assert result["evidence"]["files"] == ["facts.json", "health.json", "kernel.log", "nvidia-bug-report.log.gz"]
    assert result["evidence"]["notes"] == []
    assert "Xid (PCI:0000:07:00): 95" in (kept / "kernel.log").read_text()
    assert json.loads((kept / "health.json").read_text())["verdict"] == "fail"
    assert len(json.loads((kept / "facts.json").read_text())["gpus"]) == 2
    assert not result["changed"]


@pytest.mark.parametrize(
    ("commands", "options"),
    [
        ([], {"evidence": "when_unhealthy"}),
        (["95"], {}),
        (["95"], {"evidence": "never"}),
        (["95"], {"evidence": "when_unhealthy", "check_mode": True}),
    ],
)
def test_the_module_keeps_nothing(commands: list[str], options: dict[str, Any], host: HealthHost) -> None:
    for command in commands:
        host.xid(command)
    assert host.check(**options)["evidence"] == {"directory": None, "files": [], "notes": []}
    assert not Path(host.root + DIRECTORY).exists()


# gpu_state


def test_gpu_state_resets_no_gpu_before_the_evidence_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "a100_40gb")
    kept = {"directory": "/evidence/1", "files": ["kernel.log"], "notes": ["there is no nvidia-bug-report.sh"]}
    change: dict[str, Any] = {"ecc": False, "reset": "if_required", "evidence": "when_unhealthy"}

    with in_this_process(monkeypatch, host):
        harmless = host.state_run(persistence_mode=True, evidence="always")
        assert harmless.error is None and harmless.result["changed"] and not harmless.result["evidence_due"]
        predicted = host.state_run(check=True, **change)
        assert predicted.error is None and predicted.result["evidence_due"]
        refused = host.state_run(**change)
        assert "evidence of a fault has to be kept first" in str(refused.error)
        assert refused.result["evidence_due"] and not refused.result["changed"]
        assert not [call for call in host.calls if "--gpu-reset" in call or "-e" in call]
        done = host.state_run(**change, evidence_kept=kept)
        assert done.error is None and done.result["changed"] and not done.result["evidence_due"]
        assert [call for call in host.calls if "--gpu-reset" in call or "-e" in call]
        assert done.result["evidence"] == kept
        assert "there is no nvidia-bug-report.sh" in done.result["warnings"]


def test_without_evidence_to_keep_gpus_are_reset_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "a100_40gb")
    with in_this_process(monkeypatch, host):
        done = host.state_run(ecc=False, reset="if_required", evidence="never")
        assert done.error is None and done.result["changed"] and not done.result["evidence_due"]
        assert done.result["evidence"] == {"directory": None, "files": [], "notes": []}
