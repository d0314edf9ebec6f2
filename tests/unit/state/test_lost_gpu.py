# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_state on a host that has lost a GPU: the message is that of the other modules, with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.remedies import REMEDIES
from gpu_simulator.control import command as control
from gpu_simulator.state import reset, store

from tests.unit.mig.mig_host import DRIVERS
from tests.unit.state.state_host import StateHost, in_this_process


def test_a_lost_gpu_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "h200")
    assert control.main(["fault", "lost", "--gpu", "1"], str(tmp_path)) == 0
    with in_this_process(monkeypatch, host):
        outcome = host.state_run(power_limit_w="500")
    assert outcome.error is not None
    assert REMEDIES["gpu_lost"] in outcome.error


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("selected", ["uuid", "index", "bus id"])
def test_the_other_gpus_are_managed_next_to_a_lost_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, selected: str
) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "h200", "h200", driver=driver)
    before, last = host.gpu(1), host.gpu(2)
    assert control.main(["fault", "lost", "--gpu", "1"], str(tmp_path)) == 0
    name = {"uuid": last["uuid"], "index": "2", "bus id": last["bus_id"]}[selected]
    declared: dict[str, Any] = {"gpus": [name], "persistence_mode": True, "power_limit_w": "500", "mig": {"1g.18gb": 2}}
    with in_this_process(monkeypatch, host):
        outcome = host.state_run(**declared)
        again = host.state_run(**declared)
        profiles = host.state_run(**{**declared, "mig": {"1g.18gb": 1}})
    for run, instances, changed in ((outcome, 2, True), (again, 2, False), (profiles, 1, True)):
        assert run.error is None and run.result["changed"] is changed
        assert [row["index"] for row in run.result["mig"]] == [2]
        assert len(run.result["mig"][0]["instances"]) == instances
        assert any("left out: GPU 1 does not respond: GPU is lost" in text for text in run.result["warnings"])
    there = host.gpu(2)
    assert (there["power_limit_w"], there["persistence_mode"], len(there["gpu_instances"])) == (500, True, 1)
    assert {**host.gpu(1), "health": before["health"]} == before and host.gpu(0)["gpu_instances"] == []


def test_a_lost_gpu_does_not_stop_the_boot_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "h200", "h200")
    uuids = [gpu["uuid"] for gpu in host.state["gpus"]]
    with in_this_process(monkeypatch, host):
        assert host.state_run(power_limit_w="500", mig={"1g.18gb": 1}).error is None
        with store.transaction(str(tmp_path)) as state:
            reset.boot(state)
            state["gpus"][1]["health"] = "lost"
        assert host.boot_program() == 1
    assert uuids[1] in host.status and REMEDIES["gpu_lost"] in host.status
    assert uuids[0] not in host.status and uuids[2] not in host.status
    assert [len(host.gpu(index)["gpu_instances"]) for index in range(3)] == [1, 0, 1]


def test_a_host_with_nothing_but_lost_gpus_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "h200")
    for index in ("0", "1"):
        assert control.main(["fault", "lost", "--gpu", index], str(tmp_path)) == 0
    with in_this_process(monkeypatch, host):
        outcome = host.state_run(gpus=["0"], power_limit_w="500")
    assert outcome.error is not None and "GPU is lost" in outcome.error and outcome.result["changed"] is False
