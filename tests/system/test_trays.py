# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""18 hosts with systemd, simulated GB200 and a service that stands for IMEX: a domain that converges.

What nvidia_driver does about IMEX runs there, without the packages of a driver. The tests run in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/trays"
TRAYS = tuple(f"tray{number:02}" for number in range(1, 19))
IMEX = f"{DIRECTORY}/imex.yml"
WRONG = "tray05"


def play(name: str, *extra: str, **given: Any) -> Result:
    return run(
        ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", name, "--forks=18", "-e", json.dumps(given), *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "trays"},
    )


def on(host: str, *argv: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv]).output.strip()


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    assert play("testbed/playbooks/create.yml").status == 0
    prepared = play(f"{DIRECTORY}/prepare.yml")
    assert prepared.status == 0, prepared.output[-3000:]
    yield
    play("testbed/playbooks/destroy.yml")


def test_18_trays_converge_and_a_second_run_changes_nothing() -> None:
    first = play(IMEX)
    assert first.status == 0, first.output[-3000:]
    assert set(first.changed) == {*TRAYS} and all(first.changed.values())
    assert "the IMEX domain is" not in " ".join(first.output.split())
    second = play(IMEX)
    assert (second.status, set(second.changed.values())) == (0, {0}), second.output[-3000:]
    for name in (TRAYS[0], TRAYS[-1]):
        assert on(name, "cat", "/etc/nvidia-imex/nodes_config.cfg").split() == [*TRAYS]
        state = json.loads(on(name, "nvidia-imex-ctl", "-N", "-j"))
        assert state["status"] == "UP" and len(state["nodes"]) == len(TRAYS)


def test_a_member_without_the_service_is_named_by_the_others_and_started_again() -> None:
    on(WRONG, "systemctl", "stop", "nvidia-imex.service")
    assert json.loads(on(TRAYS[0], "nvidia-imex-ctl", "-N", "-j"))["nodes"]["4"]["status"] == "UNAVAILABLE"
    done = play(IMEX)
    assert done.status == 0, done.output[-3000:]
    assert done.changed == {name: int(name == WRONG) for name in TRAYS}
