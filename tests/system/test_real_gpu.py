# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make real-gpu` as a person runs it, on hosts with simulated GPUs: so the scenario fits the collection of today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.real_gpu.steps import steps
from tests.system.support import Result, run

DIRECTORY = "tests/system/real_gpu"
HOSTS = {"two-h200", "one-t4"}


def play(name: str) -> Result:
    return run(
        ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", name], env={"GPU_FLEET_TESTBED_INVENTORY": "real_gpu"}
    )


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    for name in ("create", "simulate"):
        done = play(f"testbed/playbooks/{name}.yml")
        assert done.status == 0, done.output[-3000:]
    yield
    play("testbed/playbooks/destroy.yml")


def test_the_scenario_finds_everything_as_expected(tmp_path: Path) -> None:
    words = f"-i {DIRECTORY}/hosts.yml -e @{DIRECTORY}/vars.yml --yes --directory {tmp_path}"
    done = run(["make", "real-gpu", f"ARGS={words}"], env={"GPU_FLEET_TESTBED_INVENTORY": "real_gpu"})
    assert done.status == 0, done.output[-6000:]
    assert "\neverything is as expected\n" in done.output
    every = steps(["docker"], computes=False, change_gpus=False)
    results = sorted(tmp_path.glob("*.json"))
    # With both readings of the GPUs.
    assert len(results) == len(every) + 2
    assert all(json.loads(path.read_text(encoding="utf-8"))["hosts"].keys() == HOSTS for path in results)
