# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/accept.yml over SSH, PyTorch and Gloo on four hosts: wrong sums, a slow network, a hang, a killed run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/accept"
HOSTS = tuple(f"node{number}" for number in range(1, 5))
WRONG = "node2"
PLAYBOOK = "playbooks/accept.yml"
# The process of each part, not `timeout`, which started it.
PART = "^python3 - --backend"
# As a process that waits for a device forever: it takes no signal but SIGKILL.
STOP = f"while :; do pkill -STOP -f '{PART}'; sleep 0.2; done"
# Reads the program that the play hands to it, and has it compute a wrong sum.
SPOILED = """#!/bin/sh
exec python3 -c 'import sys
source = sys.stdin.read().replace("all_reduce(tensor)", "all_reduce(tensor); tensor[-1] += 1")
del sys.argv[1]
exec(compile(source, "all_reduce.py", "exec"))' "$@"
"""
# With the start of PyTorch on a busy machine.
LIMIT_S = 60
# The watcher of an asynchronous task looks every 5 s whether its program has ended, and removes its files then.
REMOVED = "nothing of Ansible is left in the home"
HANGING = {"gpu_fleet_accept_timeout_s": LIMIT_S}


def command(name: str, directory: Path | None = None, **given: Any) -> list[str]:
    report = {"gpu_fleet_accept_dir": str(directory / "report")} if directory else {}
    return ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", name, "-e", json.dumps({**report, **given})]


def play(name: str, directory: Path | None = None, **given: Any) -> Result:
    return run(command(name, directory, **given), env={"GPU_FLEET_TESTBED_INVENTORY": "accept"})


def on(host: str, *argv: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv]).output.strip()


def report(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "report" / "accept.json").read_text(encoding="utf-8"))
    return found


def parts() -> list[str]:
    """The hosts that have a process of a run."""
    return [name for name in HOSTS if on(name, "pgrep", "-f", "all_reduce|--backend=gloo")]


def kept() -> dict[str, str]:
    """The files that Ansible has left in the home of a host."""
    found = {name: on(name, "find", "/root", "-path", "*/.ansible*", "-type", "f") for name in HOSTS}
    return {name: files for name, files in found.items() if files}


def wait_for(what: str, is_so: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.5)


@contextlib.contextmanager
def hanging(host: str) -> Iterator[None]:
    """Each part on the host is stopped as soon as it has begun."""
    on(host, "systemd-run", "--unit=stop-parts", "sh", "-c", STOP)
    try:
        yield
    finally:
        on(host, "systemctl", "stop", "stop-parts")


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    assert play("testbed/playbooks/create.yml").status == 0
    prepared = play(f"{DIRECTORY}/prepare.yml")
    assert prepared.status == 0, prepared.output[-3000:]
    yield
    play("testbed/playbooks/destroy.yml")


def test_sound_hosts_are_accepted_and_keep_nothing(tmp_path: Path) -> None:
    done = play(PLAYBOOK, tmp_path)
    assert done.status == 0, done.output[-3000:]
    assert report(tmp_path)["accepted"] is True
    assert set(done.changed.values()) == {0}
    assert parts() == []
    wait_for(REMOVED, lambda: kept() == {}, 10)


def test_a_host_with_wrong_sums_is_named_alone(tmp_path: Path) -> None:
    on(WRONG, "sh", "-c", f"cat >/usr/local/bin/spoiled <<'END'\n{SPOILED}END\nchmod 755 /usr/local/bin/spoiled")
    python = f"{{{{ 'spoiled' if inventory_hostname == '{WRONG}' else 'python3' }}}}"
    done = play(PLAYBOOK, tmp_path, gpu_fleet_accept_python=python)
    found = report(tmp_path)
    assert done.status != 0 and [*found["problems"]] == [WRONG], found
    assert "its sums were wrong" in found["problems"][WRONG][0]
    assert {name for name, counts in done.recap.items() if counts.failed} == {WRONG}


def test_a_host_with_a_slow_network_is_named_alone(tmp_path: Path) -> None:
    limit = ("root", "tbf", "rate", "4mbit", "burst", "32kbit", "latency", "400ms")
    assert on(WRONG, "tc", "qdisc", "add", "dev", "eth0", *limit) == ""
    try:
        done = play(PLAYBOOK, tmp_path)
    finally:
        on(WRONG, "tc", "qdisc", "del", "dev", "eth0", "root")
    found = report(tmp_path)
    assert done.status != 0 and [*found["problems"]] == [WRONG], found
    assert "its best pair has" in found["problems"][WRONG][0]


def test_a_host_that_hangs_is_named_alone(tmp_path: Path) -> None:
    with hanging(WRONG):
        done = play(PLAYBOOK, tmp_path, **HANGING)
    found = report(tmp_path)
    assert done.status != 0 and [*found["problems"]] == [WRONG], found
    assert f"it did not end within {LIMIT_S} s" in found["problems"][WRONG][0]
    assert parts() == []


def test_a_killed_run_leaves_nothing_that_the_next_run_does_not_remove(tmp_path: Path) -> None:
    environment = {**settings.environment(), "GPU_FLEET_TESTBED_INVENTORY": "accept"}
    with (
        hanging(WRONG),
        subprocess.Popen(
            command(PLAYBOOK, tmp_path, **HANGING),
            cwd=settings.ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        ) as process,
    ):
        wait_for("the parts run", lambda: parts() == [*HOSTS], 300)
        # Its workers are leaders of sessions of their own, and would wait for it for ever.
        workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
        for pid in (process.pid, *map(int, workers.split())):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_for("no part is left", lambda: parts() == [], LIMIT_S + 60)
    done = play(PLAYBOOK, tmp_path)
    assert done.status == 0, done.output[-3000:]
    wait_for(REMOVED, lambda: kept() == {}, 10)
