# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_reset on simulated GPUs: what it resets, what it refuses, and what it lets go of meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._change import context, locked_clocks, reset_run
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients, resets, runner
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Unit
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import client
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.blockers import Blocker
from ansible_collections.gpu.fleet.plugins.modules import gpu_reset
from gpu_simulator.state import store

from tests.unit.changing_modules import runner_of
from tests.unit.faults import WAYS, FaultInjector
from tests.unit.module_runs import COMMON, check_documented
from tests.unit.settings.settings_host import SettingsHost

RunModule = Callable[..., dict[str, Any]]


class Units:
    """The units of a host, all of which run, and what was done with them."""

    acts: list[tuple[str, ...]]

    def show(self, names: Sequence[str]) -> dict[str, Unit]:
        """Those that are installed."""
        return {name: Unit(name, active="active") for name in names if "nvidia-" in name and "exporter" not in name}

    def act(self, *words: str) -> None:
        """Note what was done."""
        Units.acts.append(words)


@pytest.fixture
def reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """Run the module; its files are in the test's directory."""
    Units.acts = []
    monkeypatch.setattr(reset_run, "Systemd", Units)
    monkeypatch.setattr(resets, "FILE", str(tmp_path / "run" / "resets.json"))
    caches = {reset_run: "reset.json", locked_clocks: "clocks.json"}
    return runner_of(gpu_reset, monkeypatch, tmp_path / "run", caches)


def failing(patch: pytest.MonkeyPatch, host: SettingsHost, way: str, number: int) -> FaultInjector:
    """Let the reset of this number fail."""
    injector = FaultInjector(host, WAYS[way], number, False, lambda words: "--gpu-reset" in words)

    def run_all(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        return [
            injector(list(command[1:]), lambda command=command: runner.run_all([command], timeout)[0])  # type: ignore[misc]
            for command in commands
        ]

    patch.setattr(client, "run_all", run_all)
    return injector


def waiting(directory: Path) -> SettingsHost:
    """A host on whose first GPU an ECC mode waits for a reset."""
    host = SettingsHost.with_gpus(directory, "h200", "h200")
    host.ecc(enabled=False)
    assert host.ecc_modes(0) == (True, False) == host.ecc_modes(1)
    return host


def test_only_the_named_gpu_is_reset_while_services_let_go(tmp_path: Path, reset: RunModule) -> None:
    host = waiting(tmp_path)
    result = reset(host, gpus=["0"])
    assert result["changed"] and len(result["gpus"]) == 1, result
    assert (host.ecc_modes(0), host.ecc_modes(1)) == ((False, False), (True, False))
    assert "nvidia-persistenced.service" in result["stopped_services"]
    assert "nvidia-fabricmanager.service" not in result["stopped_services"]
    assert Units.acts[0][0] == "stop" and ("start", "nvidia-persistenced.service") in Units.acts
    documented = yaml.safe_load(gpu_reset.RETURN)
    check_documented({key: item for key, item in result.items() if key not in COMMON}, documented, "result")


def test_the_fabric_is_reset_with_all_gpus_and_without_its_manager(tmp_path: Path, reset: RunModule) -> None:
    host = waiting(tmp_path)
    result = reset(host, fabric=True)
    assert result["changed"] and len(result["gpus"]) == 2, result
    assert host.ecc_modes(0) == host.ecc_modes(1) == (False, False)
    assert "nvidia-fabricmanager.service" in result["stopped_services"]


def test_mps_stops_before_the_persistence_daemon_and_starts_after_it(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = (gpu_clients.MPS, "nvidia-persistenced.service")
    units = {name: Unit(name, active="active") for name in daemons}
    monkeypatch.setattr(Units, "show", lambda _self, names: {name: units[name] for name in names if name in units})
    monkeypatch.setattr(gpu_clients, "mps_clients", list)
    assert reset(waiting(tmp_path), gpus=["0"])["stopped_services"] == [*daemons]
    assert Units.acts == [("stop", *daemons), *(("start", name) for name in reversed(daemons))]
    Units.acts = []
    monkeypatch.setattr(gpu_clients, "mps_clients", lambda: ["python3 (PID 597)"])
    refused = reset(waiting(tmp_path / "busy"), gpus=["0"])
    assert "gpu-fleet-mps.service has to stop, which ends its clients: python3 (PID 597)" in refused["msg"], refused
    assert not refused["changed"] and Units.acts == []


def test_check_mode_resets_nothing(tmp_path: Path, reset: RunModule) -> None:
    host = waiting(tmp_path)
    predicted = reset(host, check=True, gpus=["all"])
    assert host.ecc_modes(0) == (True, False) and Units.acts == []
    done = reset(host, gpus=["all"])
    same = ("changed", "reset", "stopped_services")
    assert [predicted[key] for key in same] == [done[key] for key in same] and done["stopped_services"]


@pytest.mark.parametrize("options", [{"gpus": ["0"]}, {"fabric": True}])
def test_a_gpu_in_use_is_refused_with_its_process(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    host = waiting(tmp_path)
    user = Blocker("python3", 4711, "/dev/nvidia0")
    monkeypatch.setattr(context, "blockers_of", lambda _gpu: (user,))
    result = reset(host, **options)
    assert result["failed"] and result["reset"] == []
    assert "python3 (PID 4711) holds /dev/nvidia0" in result["msg"] and result["blockers"][0]["pid"] == 4711
    assert host.ecc_modes(0) == (True, False)
    # What was stopped runs again: another process of it.
    assert ("start", "nvidia-persistenced.service") in Units.acts and result["changed"]


@pytest.mark.parametrize("options", [{"gpus": ["0"]}, {"fabric": True}])
def test_a_refusal_without_services_changes_nothing(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(Units, "show", lambda _self, _names: {})
    monkeypatch.setattr(context, "blockers_of", lambda _gpu: (Blocker("python3", 4711, "/dev/nvidia0"),))
    result = reset(waiting(tmp_path), **options)
    assert result["failed"] and result["reset"] == [] and not result["changed"]


def test_the_first_gpu_is_reported_where_the_second_cannot_be_reset(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = waiting(tmp_path)
    first, second = (gpu["uuid"] for gpu in host.state["gpus"])
    failing(monkeypatch, host, "not supported", 2)
    monkeypatch.setattr(Units, "show", lambda _self, _names: {})
    result = reset(host, gpus=["all"])
    assert result["failed"] and result["msg"].startswith("GPU 1 (") and "Not Supported" in result["msg"], result
    assert "; already reset: GPU 0 (" in result["msg"]
    assert (result["changed"], result["gpus"], result["reset"]) == (True, [first, second], [first])
    assert (host.ecc_modes(0), host.ecc_modes(1)) == ((False, False), (True, False))


# What these replies leave open, only the GPU knows.
_REFUSED = ("in use", "denied", "not supported")


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("module")])
@pytest.mark.parametrize("options", [{"gpus": ["all"]}, {"fabric": True}], ids=["gpus", "fabric"])
def test_every_reset_fails_in_every_way_and_what_took_effect_is_reported(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], way: str
) -> None:
    monkeypatch.setattr(Units, "show", lambda _self, _names: {})
    for number in (1, 2) if "gpus" in options else (1,):
        host = waiting(tmp_path / str(number))
        with monkeypatch.context() as patch:
            injector = failing(patch, host, way, number)
            result = reset(host, **options)
        assert injector.struck
        uuids = [gpu["uuid"] for gpu in host.state["gpus"]]
        done = [uuid for place, uuid in enumerate(uuids) if host.ecc_modes(place) == (False, False)]
        where = f"reset {number}: {result}"
        assert set(done) <= set(result["reset"]), where
        if done or way not in _REFUSED:
            assert result["changed"], where
        else:
            assert not result["changed"] and result["reset"] == [], where


def test_a_group_is_reset_once_and_reported_as_a_whole(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Units, "show", lambda _self, _names: {})
    host = SettingsHost.with_gpus(tmp_path, *["a100_40gb"] * 3)
    with store.transaction(str(host.root)) as state:
        state["host"]["fabric_manager"] = False
    uuids = [gpu["uuid"] for gpu in host.state["gpus"]]
    with monkeypatch.context() as patch:
        # The second call is for the group that nvidia-smi has named in its reply to the first.
        injector = failing(patch, host, "hang after", 2)
        result = reset(host, gpus=["all"])
    assert injector.struck and result["failed"] and result["changed"]
    assert sorted(result["reset"]) == sorted(uuids)
    result = reset(host, gpus=["all"])
    assert result["changed"] and sorted(result["reset"]) == sorted(uuids), result


def test_what_fails_to_stop_or_to_start_again_is_reported(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = "nvidia-persistenced.service"

    def act(_self: Units, *words: str) -> None:
        Units.acts.append(words)
        if words[0] == "stop":
            raise ChangeError("systemctl stop failed: Connection timed out")

    monkeypatch.setattr(Units, "show", lambda _self, names: {daemon: Unit(daemon, active="active")} if names else {})
    monkeypatch.setattr(Units, "act", act)
    result = reset(waiting(tmp_path), gpus=["0"])
    assert result["failed"] and "Connection timed out" in result["msg"]
    assert (result["changed"], result["stopped_services"], result["reset"]) == (True, [daemon], [])


def test_a_gpu_in_mig_mode_is_refused(tmp_path: Path, reset: RunModule) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200", "h200")
    host.change(1, mig_mode={"current": True, "pending": True})
    result = reset(host, fabric=True)
    assert result["failed"] and "is in MIG mode" in result["msg"] and Units.acts == []


@pytest.mark.parametrize("options", [{}, {"gpus": ["7"]}])
def test_gpus_that_are_not_there_are_refused(tmp_path: Path, reset: RunModule, options: dict[str, Any]) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200")
    result = reset(host, **options)
    assert result["failed"] and Units.acts == []


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("gpus", [None, []])
def test_no_gpu_at_all_is_refused_before_a_service_stops(
    tmp_path: Path, reset: RunModule, gpus: list[str] | None, check: bool
) -> None:
    """An empty list is often the result of a filter without a match."""
    host = SettingsHost.with_gpus(tmp_path, "h200")
    result = reset(host, gpus=gpus, _ansible_check_mode=check)
    assert result["failed"] and "gpus is empty" in result["msg"]
    assert not result["changed"] and Units.acts == []
