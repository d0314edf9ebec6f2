# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of simulated hosts: every GPU model with every driver branch, with MIG, faults and unprivileged users."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import client
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from gpu_simulator import cli
from gpu_simulator.state import catalogue, store

DRIVERS = ("535.261.03", "550.163.01", "580.159.04", "610.57.04")
CUDA = {"535.261.03": "12.2", "550.163.01": "12.4", "580.159.04": "13.0", "610.57.04": "13.3"}


class Simulated:
    """A simulated host whose nvidia-smi runs in this process."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.calls: list[str] = []
        self.root_user = True
        monkeypatch.setattr(client, "run_all", self._run_all)
        monkeypatch.setattr(pci_bus, "DEVICES", str(root / "no-bus"))

    def make(self, driver: str, *models: str) -> None:
        description: Any = {"driver_version": driver, "gpus": [{"model": model} for model in models]}
        store.initialise(description, root=str(self.root), device_nodes=True)

    def call(self, *arguments: str) -> str:
        text, status = cli.reply(list(arguments), str(self.root), True)
        assert status == 0, text
        return str(text)

    def _run_all(self, commands: Sequence[Sequence[str]], _timeout: float) -> list[CommandResult]:
        results = []
        for _program, *arguments in commands:
            self.calls.append(" ".join(arguments))
            text, status = cli.reply(list(arguments), str(self.root), self.root_user)
            results.append(CommandResult(("nvidia-smi", *arguments), status, text.encode(), b"", 0.01))
        return results

    def facts(self, *subset: str) -> dict[str, Any]:
        return smi_facts.gather(smi_facts.FactsRequest(subsets=smi_facts.chosen_subsets(subset or ("all",))))


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    return Simulated(tmp_path, monkeypatch)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("model", catalogue.names())
def test_every_model_with_every_branch(simulated: Simulated, model: str, driver: str) -> None:
    simulated.make(driver, model, model)
    facts = simulated.facts()
    assert (facts["available"], facts["driver_version"], facts["cuda_version"]) == (True, driver, CUDA[driver])
    assert facts["warnings"] == facts["unhealthy"] == []
    assert len(facts["gpus"]) == facts["gpu_count"] == 2
    description: Any = catalogue.load(model)
    for index, gpu in enumerate(facts["gpus"]):
        assert gpu["index"] == index
        assert gpu["mig_capable"] == bool(description.get("mig"))
        assert not {"unreadable", "failed", "lost"} & set(gpu["unknown"].values())
        assert gpu["memory_total_mib"] > gpu["memory_used_mib"] >= 0
        assert (
            gpu["power_limit_w"] is None or gpu["power_limit_min_w"] <= gpu["power_limit_w"] <= gpu["power_limit_max_w"]
        )
    assert [device["label"] for device in facts["topology"]] == ["GPU0", "GPU1"]
    quick = simulated.facts("min")
    for less, more in zip(quick["gpus"], facts["gpus"], strict=True):
        same = set(less) - {"unknown"}
        assert {name: less[name] for name in same} == {name: more[name] for name in same}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("model", "profiles", "whole"),
    [
        ("a100_40gb", ("9:4", "14:0", "19:2"), "7"),
        ("h200", ("9:0", "15:6", "20:4"), "7"),
        ("a30", ("14:3", "5:0"), "4"),
    ],
)
def test_mig_devices_are_those_that_were_made(
    simulated: Simulated, driver: str, model: str, profiles: tuple[str, ...], whole: str
) -> None:
    simulated.make(driver, "t4", model)
    with store.transaction(str(simulated.root)) as state:
        state["gpus"][1]["mig_mode"] = {"current": True, "pending": True}
    simulated.call("mig", "-i", "1", "-cgi", ",".join(profiles), "-C")
    facts = simulated.facts("mig")
    without, gpu = facts["gpus"]
    assert (without["mig_capable"], without["mig_devices"], without["gpu_instances"]) == (False, [], [])
    starts = sorted(int(profile.partition(":")[2]) for profile in profiles)
    assert sorted(device["placement_start"] for device in gpu["mig_devices"]) == starts
    ids = {device["placement_start"]: device["profile"] for device in gpu["mig_devices"]}
    assert {item["placement_start"]: item["profile"].partition("+")[0] for item in gpu["gpu_instances"]} == {
        start: profile.partition("+")[0] for start, profile in ids.items()
    }
    listed = [line.split("UUID: ")[1].rstrip(")") for line in simulated.call("-L").splitlines() if "  MIG" in line]
    assert [device["uuid"] for device in gpu["mig_devices"]] == listed
    assert len(set(listed)) == len(profiles)
    for device in gpu["mig_devices"]:
        assert device["memory_total_mib"] < gpu["memory_total_mib"]
        assert device["profile"][0] < whole


def test_a_gpu_instance_without_compute_instance_is_seen(simulated: Simulated) -> None:
    simulated.make("580.159.04", "h100_80gb")
    with store.transaction(str(simulated.root)) as state:
        state["gpus"][0]["mig_mode"] = {"current": True, "pending": True}
    simulated.call("mig", "-cgi", "9:0,19:4", "-C")
    simulated.call("mig", "-cgi", "19:5")
    (gpu,) = simulated.facts("mig")["gpus"]
    assert len(gpu["mig_devices"]) == 2
    found = {item["placement_start"]: len(item["compute_instances"]) for item in gpu["gpu_instances"]}
    assert found == {0: 1, 4: 1, 5: 0}


def test_an_ordinary_user_sees_the_devices(simulated: Simulated) -> None:
    simulated.make("580.159.04", "h100_80gb")
    with store.transaction(str(simulated.root)) as state:
        state["gpus"][0]["mig_mode"] = {"current": True, "pending": True}
    simulated.call("mig", "-cgi", "9:0", "-C")
    simulated.root_user = False
    (gpu,) = simulated.facts("mig")["gpus"]
    assert [device["profile"] for device in gpu["mig_devices"]] == ["3g.40gb"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_changes_that_wait_are_unhealthy(simulated: Simulated, driver: str) -> None:
    simulated.make(driver, "a100_40gb", "t4")
    simulated.call("-i", "0", "-e", "0")
    facts = simulated.facts()
    assert [(problem["gpu"], problem["code"]) for problem in facts["unhealthy"]] == [
        (facts["gpus"][0]["uuid"], "ecc_mode_pending")
    ]
    assert (facts["gpus"][0]["ecc_mode_current"], facts["gpus"][0]["ecc_mode_pending"]) == ("enabled", "disabled")
    assert simulated.facts("min")["unhealthy"] == facts["unhealthy"]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("loaded", "reason", "code"),
    [(None, "not_loaded", "not_loaded"), ("470.256.02", "version_mismatch", "driver_library_mismatch")],
)
def test_a_driver_that_does_not_reply(
    simulated: Simulated, driver: str, loaded: str | None, reason: str, code: str
) -> None:
    simulated.make(driver, "h200")
    with store.transaction(str(simulated.root)) as state:
        state["driver"]["loaded"] = loaded
    facts = simulated.facts()
    assert (facts["available"], facts["reason"], facts["gpus"]) == (False, reason, [])
    assert [problem["code"] for problem in facts["unhealthy"]] == [code]
