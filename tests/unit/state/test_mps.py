# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MPS as a service of the host: declared, refused, stopped around changes of its GPUs, removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd, Unit
from ansible_collections.gpu.fleet.plugins.module_utils._state import mps
from ansible_collections.gpu.fleet.plugins.module_utils._state.request import Mps

from tests.unit.faults import WAYS, FaultInjector
from tests.unit.state.state_host import StateHost, in_this_process

H200, P100 = "h200", "p100"
# `ps` of 580.159.04 on an H100, with a client in a PID namespace of the host.
CLIENT = "597       1         600            GPU-393ac2ed-6926-086a    4026531836     python3        \n"


def _host(root: Path, *models: str) -> StateHost:
    host = StateHost.with_gpus(root, *models)
    host.install_mps()
    return host


def _uuid(host: StateHost, index: int = 0) -> str:
    return str(host.gpu(index)["uuid"])


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    host = _host(tmp_path, H200, H200)
    with in_this_process(monkeypatch, host):
        yield host


def _modes(host: StateHost) -> list[str]:
    return [gpu["compute_mode"] for gpu in host.state["gpus"]]


def test_mps_is_declared_for_a_gpu_and_a_second_run_changes_nothing(host: StateHost) -> None:
    declared = {"gpus": ["1"], "pinned_memory_limit": "8G", "active_thread_percentage": 25}
    predicted = host.state_run(mps=declared, check=True).result
    assert predicted["changed"]
    assert not host.path(mps.UNIT_FILE).exists()
    first = host.state_run(mps=declared)
    assert first.error is None
    assert first.result["mps"]["gpus"] == [_uuid(host, 1)]
    assert first.result["mps"]["pipe_directory"] == gpu_clients.MPS_PIPES
    assert _modes(host) == ["Default", "Exclusive_Process"]
    unit = host.path(mps.UNIT_FILE).read_text()
    assert f"Environment=CUDA_VISIBLE_DEVICES={_uuid(host, 1)}\n" in unit
    assert f"echo set_default_device_pinned_mem_limit {_uuid(host, 1)} 8G |" in unit
    assert "echo set_default_active_thread_percentage 25 |" in unit
    assert host.units.active[mps.UNIT] == "active"
    assert host.path(mps.LINK).is_symlink()
    second = host.state_run(mps=declared)
    assert (second.error, second.result["changed"]) == (None, False)
    assert host.reboot() == 0
    assert _modes(host) == ["Default", "Exclusive_Process"], "the boot service sets the mode before MPS starts"


def test_the_unit_starts_after_the_boot_service_and_before_what_starts_clients() -> None:
    text = mps.unit_text(Mps(), ["GPU-1", "GPU-2"], "/usr/bin/control", ["jobs.service"])
    assert "After=gpu-fleet-state.service\n" in text
    before = {name for line in text.splitlines() if line.startswith("Before=") for name in line[7:].split()}
    assert {"docker.service", "kubelet.service", "slurmd.service", "jobs.service"} <= before
    assert mps.UNIT not in before
    assert "Environment=CUDA_MPS_PIPE_DIRECTORY=/run/gpu-fleet-mps\nEnvironment" in text
    assert "RuntimeDirectory=gpu-fleet-mps\n" in text
    assert "User=" not in text
    assert " -M" not in text
    assert "User=ml\n" in mps.unit_text(Mps(user="ml"), ["GPU-1"], "/usr/bin/control")
    assert "ExecStart=/usr/bin/control -f -M\n" in mps.unit_text(Mps(multi_user=True), ["GPU-1"], "/usr/bin/control")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mps": {"gpus": ["7"]}}, "mps: no GPU matches '7'"),
        ({"mps": {"gpus": []}}, "mps.gpus is all or a list"),
        ({"mps": {"gpu": ["0"]}}, "mps: there is no gpu"),
        ({"gpus": ["0"], "mps": {"gpus": ["1"]}}, "is not among the GPUs of this declaration"),
        ({"mps": {"gpus": "all"}, "compute_mode": "default"}, "MPS needs exclusive_process"),
        ({"mps": {"pinned_memory_limit": "8"}}, "pinned_memory_limit is a number with M or G"),
        ({"mps": {"pinned_memory_limit": "200G"}}, "is more than GPU 0"),
        ({"mps": {"active_thread_percentage": 0}}, "active_thread_percentage: it has to be"),
        ({"mps": {"user": "no one; id"}}, "user is the name of a user"),
        ({"mps": {"user": "nobody-of-this-name"}}, "there is no user nobody-of-this-name"),
        ({"mps": {"user": "nobody", "multi_user": True}}, "only that user connects"),
        ({"mps": {"gpus": "all"}, "mig": [{"gpus": ["0"], "profiles": ["1g.18gb"]}]}, "is in MIG mode"),
    ],
)
def test_what_is_impossible_is_refused_before_anything_is_changed(
    host: StateHost, options: dict[str, Any], reason: str
) -> None:
    for check in (True, False):
        outcome = host.state_run(**options, check=check)
        assert outcome.error is not None
        assert reason in outcome.error
    assert host.units.log == []
    assert not host.path(mps.UNIT_FILE).exists()
    assert _modes(host) == ["Default", "Default"]


def test_mps_on_one_gpu_and_mig_on_another(host: StateHost) -> None:
    mig = [{"gpus": ["0"], "profiles": ["1g.18gb"]}, {"gpus": ["1"], "enabled": False}]
    outcome = host.state_run(mps={"gpus": ["1"]}, mig=mig)
    assert outcome.error is None
    assert _modes(host) == ["Default", "Exclusive_Process"]
    assert not host.state_run(mps={"gpus": ["1"]}, mig=mig).result["changed"]
    assert "is in MIG mode" in str(host.state_run(mps={"gpus": "all"}).error)


def test_without_the_program_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = StateHost.with_gpus(tmp_path, H200)
    with in_this_process(monkeypatch, bare):
        assert "nvidia-cuda-mps-control is not on this host" in str(bare.state_run(mps={"gpus": "all"}).error)
    assert bare.units.log == []


def test_limits_before_volta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _host(tmp_path, P100)
    with in_this_process(monkeypatch, old):
        assert "older than Volta" in str(old.state_run(mps={"active_thread_percentage": 50}).error)
        assert old.state_run(mps={"gpus": "all"}).error is None


def test_clients_are_never_ended(host: StateHost) -> None:
    host.state_run(mps={"gpus": "all"})
    host.mps = [CLIENT]
    before = host.path(mps.UNIT_FILE).read_text()
    log = list(host.units.log)
    for options in (
        {"mps": {"gpus": ["0"]}},
        {"mps": None, "persistence_mode": True},
        {"mps": None},
        {"state": "absent"},
        {"mig": [{"gpus": ["1"], "profiles": ["1g.18gb"]}], "mps": {"gpus": ["0"]}},
    ):
        assert "python3 (PID 597)" in str(host.state_run(**options).error), options
        assert any("python3 (PID 597)" in text for text in host.state_run(**options, check=True).result["warnings"])
    assert host.path(mps.UNIT_FILE).read_text() == before
    assert host.units.log == log
    assert host.units.active[mps.UNIT] == "active"


def test_it_is_stopped_for_a_change_of_mig_mode_and_started_again(host: StateHost) -> None:
    host.state_run(mps={"gpus": ["1"]})
    host.units.log.clear()
    outcome = host.state_run(mps={"gpus": ["1"]}, mig=[{"gpus": ["0"], "profiles": ["1g.18gb"]}])
    assert outcome.error is None
    assert mps.UNIT in outcome.result["stopped"]
    assert [line for line in host.units.log if mps.UNIT in line] == [f"stop {mps.UNIT}", f"start {mps.UNIT}"]


def test_what_is_no_longer_declared_is_removed_and_only_that(host: StateHost) -> None:
    host.state_run(mps={"gpus": ["1"]}, persistence_mode=True)
    outcome = host.state_run(mps={}, persistence_mode=True)
    assert (outcome.error, outcome.result["changed"]) == (None, True)
    assert not host.path(mps.UNIT_FILE).exists()
    assert not host.path(mps.LINK).is_symlink()
    assert host.units.active[mps.UNIT] == "inactive"
    assert _modes(host) == ["Default", "Default"]
    assert not host.state_run(mps={}, persistence_mode=True).result["changed"]


def test_mps_gives_way_to_mig_in_one_run(host: StateHost) -> None:
    host.state_run(mps={"gpus": "all"})
    assert host.state_run(mps=None, mig=["1g.18gb"]).error is None
    assert not host.path(mps.UNIT_FILE).exists()
    assert _modes(host) == ["Default", "Default"]


def test_absent_removes_it(host: StateHost) -> None:
    host.state_run(mps={"gpus": "all"})
    assert host.state_run(state="absent").error is None
    assert not host.path(mps.UNIT_FILE).exists()
    assert _modes(host) == ["Default", "Default"]
    assert not host.state_run(state="absent").result["changed"]


def test_a_daemon_that_does_not_respond_fails_the_run(host: StateHost) -> None:
    host.units.broken.add(mps.UNIT)
    assert "journalctl -u gpu-fleet-mps.service" in str(host.state_run(mps={"gpus": "all"}).error)


def test_a_daemon_that_has_died_is_started_again(host: StateHost) -> None:
    host.state_run(mps={"gpus": "all"})
    host.units.active[mps.UNIT] = "failed"
    outcome = host.state_run(mps={"gpus": "all"})
    assert (outcome.error, outcome.result["changed"]) == (None, True)
    assert host.units.active[mps.UNIT] == "active"


def test_the_clients_in_the_output_of_ps() -> None:
    head = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n"
    assert (
        gpu_clients.parse_mps_clients(None)
        == gpu_clients.parse_mps_clients("Server not found\n")
        == gpu_clients.parse_mps_clients(head)
        == []
    )
    assert gpu_clients.parse_mps_clients(head + CLIENT + CLIENT) == ["python3 (PID 597)"]


def test_no_change_stops_a_daemon_with_clients(host: StateHost) -> None:
    """Also those of gpu_reset, driver_reload and the boot service, which stop units of the same table."""
    host.state_run(mps={"gpus": "all"})
    host.units.log.clear()
    systemd = Systemd(host.units.run, str(host.root / "systemd"), lambda _seconds: None)
    units = [Unit(gpu_clients.MPS, active="active"), Unit("nvidia-persistenced.service", active="active")]
    host.mps = [CLIENT]
    with pytest.raises(ChangeError, match="python3"), gpu_clients.stopped(systemd, units):
        raise AssertionError
    assert host.units.log == []
    host.mps = []
    with gpu_clients.stopped(systemd, units, is_boot=True) as names:
        assert names == (gpu_clients.MPS, "nvidia-persistenced.service")
    # It is ordered after the boot service, which would wait for itself.
    assert host.units.log[-1] == f"start --no-block {gpu_clients.MPS}"


def test_a_unit_that_was_only_planned_is_no_change(host: StateHost) -> None:
    refuse = FaultInjector(host, WAYS["denied"], 1, True, lambda words: "-c" in words)
    run = host.state_run(mps={"gpus": ["1"]}, intercept=refuse)
    assert run.error is not None and refuse.struck and not host.path(mps.UNIT_FILE).exists()
    assert run.result["changed"] is False
