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
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients, resets
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Unit
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.blockers import Blocker
from ansible_collections.gpu.fleet.plugins.modules import gpu_reset

from tests.unit.changing_modules import runner_of
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
    assert reset(host, check=True, gpus=["all"])["changed"]
    assert host.ecc_modes(0) == (True, False) and Units.acts == []


@pytest.mark.parametrize("options", [{"gpus": ["0"]}, {"fabric": True}])
def test_a_gpu_in_use_is_refused_with_its_process(
    tmp_path: Path, reset: RunModule, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    host = waiting(tmp_path)
    user = Blocker("python3", 4711, "/dev/nvidia0")
    monkeypatch.setattr(context, "blockers_of", lambda _gpu: (user,))
    result = reset(host, **options)
    assert result["failed"] and not result["changed"]
    assert "python3 (PID 4711) holds /dev/nvidia0" in result["msg"] and result["blockers"][0]["pid"] == 4711
    assert host.ecc_modes(0) == (True, False)
    # What was stopped runs again.
    assert ("start", "nvidia-persistenced.service") in Units.acts


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
