# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that must be reset together: an NVSwitch board of A100 without a Fabric Manager, and NVLink before Ampere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change.reset import ResetResult, Resetter
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.blockers import Blocker
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Basics, Gpu, Hardware
from gpu_simulator.state import store

from tests.unit.mig.mig_host import DRIVERS, SimulatedHost, names

LAYOUT = {"1g.5gb": 2}
REFUSED = (
    "GPU Reset couldn't progress because the specified devices do not meet the reset criterion (e.g. NVLink connected "
    "GPUs must be reset together). Please append the following device indexes to the command line and retry."
)


def _board(root: Path, *models: str, driver: str = DRIVERS[2], fabric_manager: bool = False) -> SimulatedHost:
    """A host whose GPUs are on one NVSwitch board."""
    host = SimulatedHost.make(root, *(models or ("a100_40gb",) * 4), driver=driver, mig=False)
    with store.transaction(str(root)) as state:
        state["host"]["fabric_manager"] = fabric_manager
    return host


def _resets(calls: Sequence[Sequence[str]]) -> list[str]:
    return [call[-1] for call in calls if "--gpu-reset" in call]


def _uuids(host: SimulatedHost) -> list[str]:
    return [gpu["uuid"] for gpu in host.state["gpus"]]


@pytest.mark.parametrize("driver", DRIVERS)
def test_group_is_reset_with_one_call(tmp_path: Path, driver: str) -> None:
    host = _board(tmp_path, driver=driver)
    run = host.run(profiles=LAYOUT, reset=True)
    assert run.error is None, run.error
    first, *others = _uuids(host)
    # The refused reset names the GPUs of the group, and resets none of them.
    assert _resets(run.calls) == [first, ",".join((first, *others))]
    assert [names(host.layout(index)) for index in range(4)] == [LAYOUT] * 4
    assert [gpu["status"] for gpu in run.result["gpus"]] == ["changed"] * 4
    assert run.result["reset_required"] is run.result["reboot_required"] is False
    assert host.run(profiles=LAYOUT, reset=True).result["changed"] is False


def test_with_a_fabric_manager_each_is_reset_alone(tmp_path: Path) -> None:
    host = _board(tmp_path, fabric_manager=True)
    with store.transaction(str(tmp_path)) as state:
        for gpu in state["gpus"]:
            gpu["mig_mode"] = {"current": False, "pending": True}
    run = host.run(gpus=["1", "2"], profiles=LAYOUT, reset=True)
    assert run.error is None and _resets(run.calls) == _uuids(host)[1:3]


def test_a_gpu_that_nobody_named_is_not_reset(tmp_path: Path) -> None:
    host = _board(tmp_path)
    for changed in (True, False):
        run = host.run(gpus=["0", "1", "3"], profiles=LAYOUT, reset=True)
        assert run.error is None and run.result["changed"] is changed
        assert _resets(run.calls) == _uuids(host)[:1], "one question is enough for all of the group"
        for gpu in run.result["gpus"]:
            assert gpu["status"] == "pending"
            assert (
                "GPU 2 (NVIDIA A100-SXM4-40GB, 00000000:08:00.0): it is not among the GPUs of this task"
                in gpu["message"]
            )
            assert "GPU 1 (" in gpu["message"] and "GPU 3 (" in gpu["message"]
            assert "name all of them in one task with reset: if_required, or reboot the host" in gpu["message"]
        assert run.result["reset_required"] is run.result["reboot_required"] is True
    assert [gpu["mig_mode"]["current"] for gpu in host.state["gpus"]] == [False] * 4
    assert host.state["gpus"][2]["mig_mode"]["pending"] is False


@pytest.mark.parametrize("held", [0, 2])
def test_a_group_with_a_gpu_in_use_is_not_reset(tmp_path: Path, held: int) -> None:
    host = _board(tmp_path)
    blocking = Blocker("nv-hostengine", 1234, f"/dev/nvidia{held}", "nvidia-dcgm.service")
    host.blockers[_uuids(host)[held]] = [blocking]
    run = host.run(profiles=LAYOUT, reset=True)
    assert run.error is None
    assert all("," not in reset for reset in _resets(run.calls))
    for gpu in run.result["gpus"]:
        assert gpu["status"] == "pending" and "in use" in gpu["message"]
        assert [blocker["device"] for blocker in gpu["blockers"]] == [f"/dev/nvidia{held}"]
    assert run.result["reboot_required"] is False and run.result["reset_required"] is True
    host.blockers.clear()
    assert host.run(profiles=LAYOUT, reset=True).error is None
    assert names(host.layout(3)) == LAYOUT


def test_instances_of_the_group_are_not_destroyed_by_its_reset(tmp_path: Path) -> None:
    host = _board(tmp_path)
    host.run(profiles=LAYOUT, reset=True)
    before = host.layout(1)
    with store.transaction(str(tmp_path)) as state:
        state["gpus"][0]["gpu_instances"] = []
        state["gpus"][0]["mig_mode"] = {"current": False, "pending": True}
    run = host.run(profiles=LAYOUT, reset=True)
    assert run.error is None
    assert host.layout(1) == before and all("," not in reset for reset in _resets(run.calls))
    gpu = run.result["gpus"][0]
    assert gpu["status"] == "pending" and "GPU 1 (" in gpu["message"] and "does not wait for a reset" in gpu["message"]
    assert [gpu["status"] for gpu in run.result["gpus"][1:]] == ["unchanged"] * 3


def test_modes_that_go_on_and_off_in_one_group(tmp_path: Path) -> None:
    host = _board(tmp_path)
    host.run(profiles=LAYOUT, reset=True)
    with store.transaction(str(tmp_path)) as state:
        for gpu in state["gpus"][:2]:
            gpu["gpu_instances"] = []
            gpu["mig_mode"] = {"current": False, "pending": False}
    layouts = [{"gpus": ["0", "1"], "enabled": True, "profiles": LAYOUT}, {"gpus": ["2", "3"], "enabled": False}]
    layouts[1]["profiles"] = None
    run = host.run(layouts=layouts, reset=True)
    assert run.error is None, run.error
    assert [gpu["status"] for gpu in run.result["gpus"]] == ["changed"] * 4
    assert [names(host.layout(index)) for index in range(4)] == [LAYOUT, LAYOUT, {}, {}]
    assert [gpu["mig_mode"]["current"] for gpu in host.state["gpus"]] == [True, True, False, False]
    assert host.run(layouts=layouts, reset=True).changes == []


def test_gpus_outside_of_the_group_are_not_touched(tmp_path: Path) -> None:
    host = _board(tmp_path, "a100_40gb", "a30", "a100_40gb", "h100_80gb")
    with store.transaction(str(tmp_path)) as state:
        state["gpus"][1]["mig_mode"] = {"current": False, "pending": True}
    run = host.run(gpus=["0", "2"], profiles=LAYOUT, reset=True)
    uuids = _uuids(host)
    assert run.error is None and _resets(run.calls) == [uuids[0], f"{uuids[0]},{uuids[2]}"]
    assert host.state["gpus"][1]["mig_mode"] == {"current": False, "pending": True}


def _gpu(index: int) -> Gpu:
    uuid = f"GPU-00000000-0000-4000-8000-{index:012d}"
    return Gpu(index, Basics(uuid=uuid, pci_bus_id=f"00000000:{6 + index:02x}:00.0"), Hardware(minor_number=index))


def _reset(results: list[tuple[str, int]], why_not: Callable[[Gpu], str | None] = lambda gpu: None) -> tuple[Any, Any]:
    """Reset GPU 0 of a host of four with these replies of nvidia-smi; return the result and each call's GPU indexes."""
    gpus = [_gpu(index) for index in range(4)]
    calls: list[list[int]] = []

    def run(commands: Sequence[Sequence[str]], _timeout: float) -> list[CommandResult]:
        (command,) = commands
        calls.append([int(uuid[-1]) for uuid in command[-1].split(",")])
        text, status = results[len(calls) - 1]
        return [CommandResult(tuple(command), status, text.encode(), b"", 0.0)]

    resetter = Resetter(Smi("nvidia-smi", RetryPolicy(), run), lambda gpu: (), lambda: gpus, why_not)
    (result,) = resetter.reset(gpus[:1]).values()
    return result, calls


DONE = ("GPU 00000000:06:00.0 was successfully reset.\nAll done.\n", 0)


@pytest.mark.parametrize("status", [0, 3, 255])
@pytest.mark.parametrize(
    "devices",
    ["1\n2\n", " 1, 2", ":\n1 2\n", "\n  GPU 1\n  GPU 2\n", "\n00000000:07:00.0\n00000000:08:00.0\n", "\n0,1,2"],
)
def test_the_indexes_are_read_in_any_form(devices: str, status: int) -> None:
    result, calls = _reset([(REFUSED + devices, status), DONE])
    assert (result, calls) == (ResetResult(), [[0], [0, 1, 2]])


def test_a_group_that_grows_is_asked_for_again() -> None:
    result, calls = _reset([(REFUSED + "\n1\n", 255), (REFUSED + "\n2\n3\n", 255), DONE])
    assert (result, calls) == (ResetResult(), [[0], [0, 1], [0, 1, 2, 3]])


@pytest.mark.parametrize(
    "text",
    [REFUSED, REFUSED + "\n", REFUSED + "\n7\n", REFUSED + "\n1\n9\n", REFUSED + "\n0\n", REFUSED[:120]],
)
def test_a_group_that_is_not_certain_is_not_reset(text: str) -> None:
    result, calls = _reset([(text, 255)])
    assert calls == [[0]] and result.is_impossible and "reset criterion" in result.note


def test_a_refusal_that_repeats_itself_ends() -> None:
    result, calls = _reset([(REFUSED + "\n1\n", 255), (REFUSED + "\n1\n", 255)])
    assert calls == [[0], [0, 1]] and result.is_impossible


def test_all_that_is_blocking_is_reported_at_once() -> None:
    result, calls = _reset([(REFUSED + "\n1\n2\n3\n", 255)], lambda gpu: "is busy" if gpu.index != 2 else None)
    assert calls == [[0]] and result.is_impossible
    assert result.note.count("is busy") == 2
