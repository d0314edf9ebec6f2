# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG mode: on and off, pending, resets, and blockers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.blockers import Blocker, blockers
from gpu_simulator.state import store

from tests.unit.faults import result
from tests.unit.mig.mig_host import DRIVERS, SimulatedHost, is_change, names

LAYOUT = {"1g.5gb": 2}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """One driver of each simulated branch."""
    return str(request.param)


def _modes(host: SimulatedHost) -> list[tuple[bool, bool]]:
    return [(gpu["mig_mode"]["current"], gpu["mig_mode"]["pending"]) for gpu in host.state["gpus"]]


def _use(host: SimulatedHost, index: int) -> None:
    """Run a process on a whole GPU."""
    with store.transaction(str(host.root)) as state:
        state["gpus"][index]["processes"].append(
            {
                "pid": 99,
                "name": "python3",
                "type": "C",
                "used_memory_mib": 10,
                "gpu_instance_id": None,
                "compute_instance_id": None,
            }
        )


def _in_passthrough(host: SimulatedHost) -> None:
    with store.transaction(str(host.root)) as state:
        state["host"]["virtualization"] = "Pass-Through"


def test_mode_and_layout_in_one_run(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb", driver=driver, mig=False)
    run = host.run(gpus=["1"], profiles={"1g.10gb": 3})
    assert run.error is None
    assert _modes(host) == [(False, False), (True, True)]
    assert names(host.layout(1)) == {"1g.10gb": 3}
    assert not any("--gpu-reset" in call for call in run.calls)
    again = host.run(gpus=["1"], profiles={"1g.10gb": 3})
    assert again.result["changed"] is False and len(again.calls) <= 2


def test_disabling_destroys_first(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver)
    host.run(profiles={"1g.10gb": 3})
    run = host.run(enabled=False)
    assert run.error is None and _modes(host) == [(False, False)] and not host.layout()
    assert len(run.result["gpus"][0]["destroyed"]) == 3
    assert host.run(enabled=False).changes == []


def test_disabling_under_a_job_is_refused(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver)
    host.run(profiles={"1g.10gb": 3})
    host.occupy(0, next(start for _name, start, _sizes in host.layout()))
    run = host.run(enabled=False)
    assert run.error is not None and "PID 4711" in run.error and run.changes == []


def test_pending_mode_is_reported_and_not_changed_again(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", "a100_40gb", driver=driver, mig=False)
    _in_passthrough(host)
    for changed in (True, False):
        run = host.run(gpus=["0"], profiles=LAYOUT)
        gpu = run.result["gpus"][0]
        assert run.error is None and run.result["changed"] is changed
        assert (gpu["status"], gpu["mig_mode_current"], gpu["mig_mode_pending"]) == ("pending", "disabled", "enabled")
        assert run.result["reset_required"] is True
        assert gpu["created"] == gpu["destroyed"] == gpu["instances"] == []
    assert _modes(host) == [(False, True), (False, False)]
    undone = host.run(gpus=["0"], enabled=False)
    assert undone.result["changed"] is True and undone.result["reset_required"] is False
    assert _modes(host)[0] == (False, False)


def test_reset_only_where_needed_and_only_there(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", "a100_40gb", "h100_80gb", driver=driver, mig=False)
    with store.transaction(str(host.root)) as state:
        for gpu in state["gpus"]:
            gpu["mig_mode"] = {"current": False, "pending": True}
    uuids = [gpu["uuid"] for gpu in host.state["gpus"]]
    run = host.run(gpus=["0"], profiles=LAYOUT, reset=True)
    assert run.error is None
    assert [call for call in run.calls if "--gpu-reset" in call] == [["--gpu-reset", "-i", uuids[0]]]
    assert names(host.layout(0)) == LAYOUT
    assert _modes(host)[1:] == [(False, True)] * 2


def test_blockers_are_named_and_left_alone(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", driver=driver, mig=False)
    _use(host, 0)
    uuid = host.state["gpus"][0]["uuid"]
    host.blockers[uuid] = [Blocker("nv-hostengine", 1234, "/dev/nvidia0", "nvidia-dcgm.service")]
    run = host.run(profiles=LAYOUT, reset=True)
    assert run.error is None, run.error
    gpu = run.result["gpus"][0]
    assert gpu["status"] == "pending" and not any("--gpu-reset" in call for call in run.calls)
    assert gpu["blockers"] == [
        {"name": "nv-hostengine", "pid": 1234, "device": "/dev/nvidia0", "stop": "nvidia-dcgm.service"}
    ]
    assert host.run(profiles=LAYOUT, reset=True).result["changed"] is False


def test_impossible_reset_asks_for_a_reboot(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", driver=driver, mig=False)
    _in_passthrough(host)
    run = host.run(profiles=LAYOUT, reset=True)
    assert run.error is None
    assert run.result["reboot_required"] is True and run.result["reset_required"] is True
    assert "not supported" in run.result["gpus"][0]["message"].lower()


def test_pending_disable_is_moved_back(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", driver=driver)
    host.run(profiles=LAYOUT)
    with store.transaction(str(host.root)) as state:
        state["gpus"][0]["mig_mode"] = {"current": True, "pending": False}
    run = host.run(profiles=LAYOUT)
    assert run.error is None and run.result["changed"] is True
    assert _modes(host) == [(True, True)] and len(run.result["gpus"][0]["kept"]) == 2


def test_impossible_layout_leaves_the_mode_alone(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver, mig=False)
    run = host.run(profiles=["3g.40gb", "3g.40gb", "1g.10gb"])
    assert run.error is not None and "impossible" in run.error
    # Until 535 the profiles can be read only with MIG mode on: it is enabled, then disabled again.
    assert _modes(host) == [(False, False)]
    assert (run.changes == []) is (driver != DRIVERS[0])
    assert host.run(profiles=["3g.40gb", "3g.40gb", "1g.10gb"], check=True).changes == []


def test_check_mode_enables_nothing(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver, mig=False)
    run = host.run(profiles=["3g.40gb", "1g.10gb"], check=True)
    gpu = run.result["gpus"][0]
    assert run.error is None and run.changes == [] and run.result["changed"] is True
    assert gpu["status"] == "changed" and sorted(row["profile"] for row in gpu["created"]) == ["1g.10gb", "3g.40gb"]
    assert all((row["placement_start"] is None) == (driver == DRIVERS[0]) for row in gpu["created"])
    assert "MIG enabled" in run.result["diff"]["after"] and "MIG disabled" in run.result["diff"]["before"]


def test_layout_left_as_it_is(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    host.run(profiles={"1g.10gb": 3})
    assert host.run().changes == []
    assert host.run(profiles=[]).result["changed"] is True and not host.layout()


@pytest.mark.parametrize("status", [4, 255])
def test_refused_mode_is_an_error(tmp_path: Path, status: int) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", mig=False)

    def refuse(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        if "-mig" in arguments:
            return CommandResult(("nvidia-smi", *arguments), status, b"Unable to enable MIG Mode", b"", 0.1)
        return result()

    run = host.run(refuse, profiles={"1g.10gb": 1})
    assert run.error is not None and "cannot be enabled" in run.error and "Unable to enable MIG Mode" in run.error


def test_a_mode_that_hangs_is_requested_of_one_gpu_only(tmp_path: Path) -> None:
    """With 16 GPUs each of them took a time limit, and the message named one."""
    host = SimulatedHost.make(tmp_path, *["h200"] * 16, mig=False)

    def hang(arguments: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        return result(arguments, None, timed_out=True) if "-mig" in arguments else reply()

    run = host.run(hang, profiles={"1g.18gb": 7})
    assert len(run.changes) == 1 and not any(enabled for enabled, _pending in _modes(host))
    assert run.error is not None and "MIG mode of GPU 0 " in run.error and "did not respond within" in run.error
    assert re.search(r"not tried: GPU 1 \(.*, GPU 15 \(", run.error)


def test_modes_of_other_gpus_are_rolled_back_when_one_refuses(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb", driver=driver, mig=False)
    refusing = host.state["gpus"][1]["uuid"]

    def refuse(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        if "-mig" in arguments and refusing in arguments:
            return CommandResult(("nvidia-smi", *arguments), 255, b"Unknown Error", b"", 0.1)
        return result()

    run = host.run(refuse, profiles={"1g.10gb": 1})
    assert run.error is not None and "GPU 1" in run.error and "was disabled again" in run.error
    assert _modes(host) == [(False, False)] * 2


def test_not_supported_with_exit_0_is_an_error(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", mig=False)

    def ignore(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        if "-mig" in arguments:
            text = b"Unable to enable MIG Mode for GPU: Not Supported\nTreating as warning and moving on.\nAll done.\n"
            return CommandResult(("nvidia-smi", *arguments), 0, text, b"", 0.1)
        return result()

    run = host.run(ignore, profiles={"1g.10gb": 1})
    assert run.error is not None and "Not Supported" in run.error


FAILURES: dict[str, Callable[[Sequence[str]], CommandResult]] = {
    "no room": lambda words: CommandResult(("nvidia-smi", *words), 23, b"Insufficient Resources", b"", 0.1),
    "hangs": lambda words: CommandResult(("nvidia-smi", *words), None, b"", b"", 5.0, timed_out=True),
    "does nothing": lambda words: CommandResult(("nvidia-smi", *words), 0, b"", b"", 0.1),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_mode_goes_back_when_no_instance_can_be_made(tmp_path: Path, driver: str, failure: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb", driver=driver, mig=False)

    def refuse(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        return FAILURES[failure](arguments) if "-cgi" in arguments else result()

    run = host.run(refuse, profiles={"1g.10gb": 1})
    assert run.error is not None and "MIG mode of GPU 0 (" in run.error and "GPU 1 (" in run.error
    assert "was disabled again" in run.error
    assert _modes(host) == [(False, False)] * 2
    assert [gpu["mig_mode_current"] for gpu in run.result["gpus"]] == ["disabled"] * 2
    # The driver has dropped the settings of both.
    assert run.result["changed"] is True


def test_mode_stays_where_another_gpu_got_its_instances(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb", mig=False)
    second = host.state["gpus"][1]["uuid"]

    def refuse(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        return FAILURES["no room"](arguments) if "-cgi" in arguments and second in arguments else result()

    run = host.run(refuse, profiles={"1g.10gb": 1})
    assert run.error is not None and "already changed and stay so" in run.error
    assert _modes(host) == [(True, True), (False, False)] and host.layout(0)
    assert run.result["changed"] is True


@pytest.mark.parametrize("failure", ["lost", "refused"])
def test_a_mode_that_cannot_go_back_is_reported_with_what_to_do(tmp_path: Path, failure: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", mig=False)
    uuid = host.state["gpus"][0]["uuid"]
    broken = False

    def lose(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        nonlocal broken
        broken = broken or "-cgi" in arguments
        if broken and (failure == "lost" or is_change(arguments)):
            return CommandResult(("nvidia-smi", *arguments), 15, b"GPU is lost", b"", 0.1)
        return result()

    run = host.run(lose, profiles={"1g.10gb": 1})
    assert run.error is not None and "may still be on" in run.error and f"nvidia-smi -i {uuid} -mig 0" in run.error
    assert run.result["changed"] is True


def test_a_request_without_effect_changes_nothing_and_is_quoted(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", mig=False)

    def ignore(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        return FAILURES["does nothing"](arguments) if "-mig" in arguments else result()

    run = host.run(ignore, profiles={"1g.10gb": 1})
    assert run.error is not None and "-mig 1 ended with status 0, without output" in run.error
    assert ": ;" not in run.error and run.result["changed"] is False


def test_failed_disable_restores_the_instances(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    host.run(profiles={"1g.10gb": 3})
    before = host.layout()

    def refuse(arguments: Sequence[str], result: Callable[[], CommandResult]) -> CommandResult:
        if "-mig" in arguments:
            return CommandResult(("nvidia-smi", *arguments), 255, b"Unknown Error", b"", 0.1)
        return result()

    run = host.run(refuse, enabled=False)
    assert run.error is not None and "back at their places" in run.error
    assert host.layout() == before


def test_blockers_are_found_by_their_open_files(tmp_path: Path) -> None:
    device = "/dev/nvidia3"
    for pid, comm, target in ((7, "nvidia-persiste", device), (8, "bash", "/dev/null"), (9, "trainer", device)):
        directory = tmp_path / "proc" / str(pid) / "fd"
        directory.mkdir(parents=True)
        (directory.parent / "comm").write_text(comm + "\n")
        (directory / "5").symlink_to(target)
    (tmp_path / "proc" / "10").mkdir()
    (tmp_path / "proc" / "version").write_text("Linux")
    found = blockers(3, [(9, "trainer"), (11, "elsewhere")], str(tmp_path))
    assert [(item.name, item.pid, item.stop) for item in found] == [
        ("nvidia-persiste", 7, "nvidia-persistenced.service"),
        ("trainer", 9, None),
        ("elsewhere", 11, None),
    ]
    assert str(found[0]) == "nvidia-persiste (PID 7) holds /dev/nvidia3: stop nvidia-persistenced.service"
    module = tmp_path / "sys" / "module" / "nvidia_drm"
    module.mkdir(parents=True)
    (module / "refcnt").write_text("0\n")
    assert blockers(0, (), str(tmp_path)) == ()
    (module / "refcnt").write_text("2\n")
    assert [(item.name, item.pid) for item in blockers(0, (), str(tmp_path))] == [("nvidia_drm", None)]
