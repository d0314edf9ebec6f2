# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""18 hosts with systemd, simulated GB200 and a service that stands for IMEX: a domain that converges, and its faults.

What nvidia_driver does about IMEX runs there, and the upgrade with the role gpu_state. The tests run in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run

DIRECTORY = "tests/system/trays"
TRAYS = tuple(f"tray{number:02}" for number in range(1, 19))
ZERO, CLUSTER = "00000000-0000-0000-0000-000000000000", "1a7e1f0c-0000-4000-8000-0123456789ab"
UPGRADE, IMEX = "playbooks/upgrade.yml", f"{DIRECTORY}/imex.yml"
WRONG = "tray05"
SOUND = {"clusterUuid": CLUSTER, "cliqueId": "2"}
MODULES = "mkdir -p /lib/modules/$(uname -r) && echo kernel/mlx5_ib.ko >/lib/modules/$(uname -r)/modules.builtin"


def play(name: str, *extra: str, **given: Any) -> Result:
    return run(
        ["ansible-playbook", "-i", f"{DIRECTORY}/hosts.yml", name, "--forks=18", "-e", json.dumps(given), *extra],
        env={"GPU_FLEET_TESTBED_INVENTORY": "trays"},
    )


def on(host: str, *argv: str) -> str:
    return run(["podman", "exec", f"gpu-fleet-{settings.TESTBED_ID}-{host}", *argv]).output.strip()


def place(host: str, name: str, value: str) -> None:
    """Change what the GPUs of a tray report of their place."""
    for gpu in range(4):
        on(host, "gpu-simulator", "fault", "field", f"fabric/{name}", "--text", value, "--gpu", str(gpu))


def upgrade(directory: Path, *extra: str, **given: Any) -> Result:
    """The upgrade of the rack, with commands that log what they are called for."""
    commands = {
        action: ["sh", "-c", f"echo {{{{ inventory_hostname }}}} {action} >>{directory}/log"]
        for action in ("drain", "wait", "return", "fail")
    }
    variables = {
        "gpu_fleet_roles": ["gpu_state"],
        "gpu_state_power_limit": "90%",
        "gpu_fleet_upgrade_directory": str(directory / "states"),
        "gpu_fleet_upgrade_scheduler": "commands",
        "gpu_fleet_upgrade_commands": commands,
        "gpu_fleet_evidence": "never",
    }
    return play(UPGRADE, *extra, **{**variables, **given})


def words(result: Result) -> str:
    """The output as one line: Ansible folds messages."""
    return " ".join(result.output.split())


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
    assert "the IMEX domain is" not in words(first)
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


@pytest.mark.parametrize(
    ("name", "value", "message", "is_refused"),
    [
        ("clusterUuid", f"2{CLUSTER[1:]}", f"{WRONG}: cluster 2a7e1f0c", True),
        ("cliqueId", "3", f"different cliques ({WRONG}: clique 3", False),
        ("clusterUuid", ZERO, f"a cluster UUID or clique of zero ({WRONG}:", False),
    ],
    ids=["a wrong member", "another clique", "a zero UUID"],
)
def test_what_is_wrong_in_the_domain_is_found_before_any_change(
    name: str, value: str, message: str, is_refused: bool, tmp_path: Path
) -> None:
    place(WRONG, name, value)
    done = upgrade(tmp_path, *([] if is_refused else ["--check"]))
    place(WRONG, name, SOUND[name])
    assert message in words(done), done.output[-3000:]
    assert (done.status != 0) is is_refused
    assert not (tmp_path / "log").exists()


def test_a_missing_module_is_found_before_any_change(tmp_path: Path) -> None:
    on(WRONG, "sh", "-c", MODULES)
    # What is simulated is for the role a driver of others, which it leaves alone unless it is given it.
    driver = {
        "nvidia_driver_version": "580",
        "nvidia_driver_nvlink5": "present",
        "nvidia_driver_replace_unmanaged": True,
    }
    done = upgrade(tmp_path, gpu_fleet_roles=["nvidia_driver"], **driver)
    on(WRONG, "sh", "-c", "rm /lib/modules/*/modules.builtin")
    assert done.status != 0
    assert "has no ib_umad, without which NVLink 5 cannot be managed" in words(done), done.output[-3000:]
    assert f"the hosts of rack7 are changed together, and {WRONG} could not be reached or was refused" in words(done)
    assert not (tmp_path / "log").exists()


def test_two_versions_in_the_middle_of_an_upgrade_are_found_before_any_change(tmp_path: Path) -> None:
    later, limit = TRAYS[4:], ("--limit", ",".join(TRAYS[:4]))
    older = play("testbed/playbooks/simulate.yml", *limit, gpu_simulator_driver_version="580.95.05")
    assert older.status == 0, older.output[-3000:]
    done = upgrade(tmp_path, "--check")
    assert "hosts of one NVLink domain have different driver versions" in words(done), done.output[-3000:]
    assert later[0] not in words(done).partition("different driver versions (")[2].partition(")")[0]
    assert json.loads((tmp_path / "states" / "check.json").read_text())["batches"] == [[*TRAYS]]
    assert not (tmp_path / "log").exists()
    assert play(f"{DIRECTORY}/prepare.yml", *limit).status == 0


def test_the_domain_is_upgraded_as_one_unit(tmp_path: Path) -> None:
    done = upgrade(tmp_path)
    assert done.status == 0, done.output[-3000:]
    log = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(name for name, action in log if action == "drain") == [*TRAYS]
    # No tray was changed before all were drained, and none was back in service before all were changed.
    actions = [action for _name, action in log]
    assert "wait" not in actions[: len(TRAYS)]
    assert "return" not in actions[: -len(TRAYS)] and actions[-len(TRAYS) :] == ["return"] * len(TRAYS)
