# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time in a directory of the controller, with processes that live and that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._run_lock import Process, acquire, process_of, release


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def test_a_run_that_lives_has_the_directory_and_one_that_was_killed_has_not(
    tmp_path: Path, other: subprocess.Popen[bytes]
) -> None:
    path, mine, others = str(tmp_path / "lock"), process_of(os.getpid()), process_of(other.pid)
    assert mine.started and mine != others
    assert acquire(path, others) is None
    assert acquire(path, others) is None, "again, by the next play of the same run"
    assert acquire(path, mine) == others
    assert not release(path, mine), "that of another run stays"
    other.kill()
    other.wait()
    assert acquire(path, mine) is None
    assert release(path, mine) and not release(path, mine)
    assert acquire(path, others) is None


def test_a_killed_run_that_nobody_reaped_has_not_the_directory(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    path = str(tmp_path / "lock")
    assert acquire(path, process_of(other.pid)) is None
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    assert acquire(path, process_of(os.getpid())) is None


def test_another_process_with_the_same_number_is_not_the_run(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    path, others = str(tmp_path / "lock"), process_of(other.pid)
    for ended in (replace(others, started="1"), replace(others, boot="an earlier boot")):
        assert acquire(path, ended) is None
        assert acquire(path, process_of(os.getpid())) is None


def test_whether_a_run_on_another_machine_lives_is_not_known(tmp_path: Path) -> None:
    path, mine = str(tmp_path / "lock"), process_of(os.getpid())
    there = replace(mine, host="another.example")
    assert acquire(path, there) is None
    assert acquire(path, mine) == there


def test_without_proc_the_number_of_the_process_counts(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    path, mine = str(tmp_path / "lock"), replace(process_of(os.getpid()), boot="", started="")
    others = replace(mine, pid=other.pid)
    assert acquire(path, others) is None
    assert acquire(path, mine) == others
    other.kill()
    other.wait()
    assert acquire(path, mine) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": "one"}', '{"pid": {}}', "[" * 5000])
def test_a_file_that_names_no_process_holds_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    mine = process_of(os.getpid())
    assert acquire(str(path), mine) is None
    assert acquire(str(path), mine) is None
    assert path.stat().st_size < 1000


def test_one_of_many_at_the_same_moment_has_it(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    machines = [Process(f"node{number}", 1) for number in range(20)]
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda mine: acquire(path, mine), machines))
    assert found.count(None) == 1


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path, secret = tmp_path / "lock", tmp_path / "secret"
    secret.write_text("kept")
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        acquire(str(path), process_of(os.getpid()))
    assert secret.read_text() == "kept"
