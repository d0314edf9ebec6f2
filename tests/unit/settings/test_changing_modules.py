# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Common parts of ecc_mode and gpu_settings: documented options, one lock, termination of a hanging nvidia-smi."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._change import locked_clocks
from ansible_collections.gpu.fleet.plugins.module_utils._common.lock import host_lock
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.module_utils._settings import run as settings_run
from ansible_collections.gpu.fleet.plugins.modules import ecc_mode, gpu_settings

from tests.unit import module_runs
from tests.unit.module_runs import check_options, executable
from tests.unit.settings.settings_host import SettingsHost

Run = Callable[..., dict[str, Any]]


@pytest.fixture(
    params=[(ecc_mode, {"enabled": True}), (gpu_settings, {"accounting_mode": False})], ids=["ecc", "settings"]
)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run each of the modules with one setting; locks and caches are in the test's directory."""
    module, desired = request.param
    monkeypatch.setattr(change_context, "LOCK", str(tmp_path / "run" / "lock"))
    monkeypatch.setattr(ecc_run, "CACHE_FILE", str(tmp_path / "run" / "ecc.json"))
    monkeypatch.setattr(locked_clocks, "CACHE_FILE", str(tmp_path / "run" / "clocks.json"))

    def run(host: SettingsHost, check: bool = False, **options: Any) -> dict[str, Any]:
        arguments = {"executable": str(executable(host.root)), **desired, **options}
        return module_runs.run_module(module, monkeypatch, arguments, check)

    return run


@pytest.mark.parametrize("module", [ecc_mode, gpu_settings])
def test_documented_options_are_those_of_the_module(module: ModuleType) -> None:
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert set(documented) == set(module.ARGUMENT_SPEC) - {"executable"}
    check_options(documented, module.ARGUMENT_SPEC)


@pytest.mark.parametrize(("module", "plain"), [(ecc_mode, ecc_run.DEFAULTS), (gpu_settings, settings_run.DEFAULTS)])
def test_without_ansible_the_defaults_are_the_same(module: ModuleType, plain: dict[str, Any]) -> None:
    defaults = {name: option.get("default") for name, option in module.ARGUMENT_SPEC.items()}
    assert {**plain, "gpus": list(plain["gpus"])} == defaults


def test_a_hanging_nvidia_smi_is_ended(tmp_path: Path, run: Run) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200")
    hanging = tmp_path / "hanging-smi"
    hanging.write_text("#!/bin/sh\nsleep 60\n")
    hanging.chmod(0o755)
    started = time.monotonic()
    result = run(host, executable=str(hanging), timeout=0.3)
    assert result["failed"] and "did not respond within" in result["msg"]
    assert time.monotonic() - started < 10


def test_other_runs_are_waited_for(tmp_path: Path, run: Run) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200")
    with host_lock(str(tmp_path / "run" / "lock"), 1):
        result = run(host, lock_timeout=0.3)
        assert result["failed"] and "another run (PID" in result["msg"]
        assert run(host, check=True).get("failed", False) is False
    assert run(host).get("failed", False) is False


def test_without_nvidia_smi(tmp_path: Path, run: Run) -> None:
    host = SettingsHost.with_gpus(tmp_path, "h200")
    result = run(host, executable="/nonexistent/nvidia-smi")
    assert result["failed"] and "No such file" in result["msg"] and result["gpus"] == []
