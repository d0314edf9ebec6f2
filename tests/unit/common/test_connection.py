# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module whose connection is gone begins nothing more, and one whose time is over makes no more calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common import connection
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, HostError
from ansible_collections.gpu.fleet.plugins.module_utils._common.lock import host_lock
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RESTORE_SECONDS, RetryPolicy, Smi

from tests.conftest import ROOT


@pytest.fixture
def output() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe, the second of which is the output of the module."""
    ends = os.pipe()
    connection.watch(ends[1])
    yield ends
    connection._watched.clear()
    for end in ends:
        os.close(end)


def close(output: tuple[int, int]) -> None:
    """Let the reader go; its descriptor stays, for the fixture."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, output[0])
    os.close(null)


def reply(commands: Sequence[Sequence[str]], _timeout: float) -> list[CommandResult]:
    return [CommandResult(tuple(words), 0, b"done\n", b"", 0.01) for words in commands]


def test_a_pipe_is_gone_once_its_reader_is(output: tuple[int, int]) -> None:
    assert not connection.is_gone()
    close(output)
    assert connection.is_gone()


def test_nothing_is_watched_in_other_programs_and_a_file_is_never_gone(tmp_path: Path) -> None:
    assert not connection.is_gone()
    with (tmp_path / "result").open("w") as stream:
        connection.watch(stream.fileno())
        assert not connection.is_gone()
    connection._watched.clear()


def test_without_a_reader_nothing_is_begun_and_a_change_is_finished(output: tuple[int, int]) -> None:
    begun, fresh = (Smi("nvidia-smi", RetryPolicy(5, 0, 0), reply) for _number in range(2))
    assert begun.change("-pm", "1").rc == 0
    close(output)
    assert begun.change("-pl", "300").rc == 0 and begun.read(("-L",)) == ("done\n",)
    for call in (lambda: fresh.read(("-L",)), lambda: fresh.change("-pm", "1"), fresh.document):
        with pytest.raises(HostError, match="connection to the controller is gone"):
            call()
    assert (fresh.calls, fresh.commands) == (0, [])


def test_nobody_waits_for_a_lock_in_vain(tmp_path: Path, output: tuple[int, int]) -> None:
    path = str(tmp_path / "lock")
    began = time.monotonic()
    with host_lock(path, 0), pytest.raises(HostError, match="connection to the controller is gone"):
        close(output)
        with host_lock(path, 600):
            pass
    assert time.monotonic() - began < 10


def test_a_module_ends_when_its_reader_does(tmp_path: Path) -> None:
    """A process of its own, whose calls take a second each; it would read four times what is no document."""
    calls = tmp_path / "calls"
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$*" >>{calls}\nsleep 1\necho nonsense\n')
    program.chmod(0o755)
    options = {"executable": str(program), "enabled": True, "timeout": 5}
    command = [sys.executable, "-c", _MODULE, json.dumps(options), str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT) as module:
        assert module.stdout is not None
        _wait_for(lambda: calls.exists() and "-lgi" in calls.read_text())
        module.stdout.close()
        module.wait(timeout=20)
    assert sorted(calls.read_text().splitlines()) == ["-q -x", "mig -lgi"]


_MODULE = """
import sys
from ansible.module_utils.testing import patch_module_args
import json
from tests import conftest
from ansible_collections.gpu.fleet.plugins.module_utils._change import context
from ansible_collections.gpu.fleet.plugins.modules import mig_profile
context.LOCK = sys.argv[2]
with patch_module_args(json.loads(sys.argv[1])):
    mig_profile.main()
"""


def _wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_no_call_is_made_when_the_time_is_over() -> None:
    smi = Smi("nvidia-smi", RetryPolicy(5, 0, 0), reply, time_limit=0.0)
    (result,) = smi.ask(("-L",))
    assert result.timed_out and smi.calls == 0
    for call in (lambda: smi.read(("-L",)), smi.document):
        with pytest.raises(ChangeError, match="the time for all calls of nvidia-smi is over"):
            call()
    with pytest.raises(ChangeError, match="was not called: the time for all calls is over"):
        smi.change("-pm", "1")
    # What was destroyed is restored all the same.
    smi.allow_restoring()
    assert smi.change("mig", "-cgi", "9").rc == 0
    assert 0 < smi._left() <= RESTORE_SECONDS


def test_every_run_has_a_limit() -> None:
    assert 1700 < Smi("nvidia-smi", RetryPolicy(60, 0, 0), reply)._left() <= 1800
    # Who allows a call an hour allows ten of them.
    assert 35_000 < Smi("nvidia-smi", RetryPolicy(3600, 0, 0), reply)._left() <= 36_000
