# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module gpu_state on simulated hosts: changes, unchanged state, predictions, refusals and removal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.module_utils._state import run as state_module
from ansible_collections.gpu.fleet.plugins.module_utils._state import service as boot_service
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files
from ansible_collections.gpu.fleet.plugins.module_utils._state.module import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import PLAN_FILE, UNIT, Service
from ansible_collections.gpu.fleet.plugins.modules import gpu_state
from gpu_simulator.state import store

from tests.unit.faults import WAYS, FaultInjector, result
from tests.unit.module_runs import COMMON, check_documented, run_module
from tests.unit.state.state_host import StateHost, in_this_process

AMPERE: dict[str, Any] = {
    "persistence_mode": True,
    "power_limit_w": "90%",
    "gpu_clocks_mhz": "800-1410",
    "mig": {"3g.20gb": 1, "1g.5gb": 2},
    "reset": "if_required",
}
HOPPER: dict[str, Any] = {
    "ecc": True,
    "persistence_mode": True,
    "power_limit_w": "500",
    "mig": [{"gpus": ["0"], "profiles": ["3g.71gb:4", "1c.2g.35gb", "1c.2g.35gb"]}, {"gpus": ["1"], "enabled": False}],
}
HOSTS = {"a100_40gb": AMPERE, "h200": HOPPER}


@pytest.fixture(params=HOSTS)
def model(request: pytest.FixtureRequest) -> str:
    """An Ampere GPU, which keeps its MIG mode and needs a reset to change it, and a Hopper GPU."""
    return str(request.param)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> Iterator[StateHost]:
    """A host with two of these GPUs."""
    made = StateHost.with_gpus(tmp_path, model, model)
    with in_this_process(monkeypatch, made):
        yield made


@pytest.fixture
def hopper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host with two H200."""
    made = StateHost.with_gpus(tmp_path, "h200", "h200")
    with in_this_process(monkeypatch, made):
        yield made


@pytest.fixture
def ampere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host with two A100."""
    made = StateHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb")
    with in_this_process(monkeypatch, made):
        yield made


def test_state_is_applied_kept_and_restored(host: StateHost, model: str) -> None:
    declared = HOSTS[model]
    before = host.snapshot()
    predicted = host.state_run(check=True, **declared)
    assert predicted.error is None and predicted.result["changed"] is True
    assert host.state == before and not host.path(PLAN_FILE).exists() and host.units.log == []

    first = host.state_run(**declared)
    assert first.error is None and first.result["changed"] is True and first.result["pending"] == []
    devices = host.devices()
    assert devices.count("MIG-") == {"a100_40gb": 6, "h200": 3}[model]
    assert host.gpu()["power_limit_w"] == {"a100_40gb": 360, "h200": 500}[model]
    assert host.units.active[UNIT] == "active" and f"enable --no-reload {UNIT}" in host.units.log

    for check in (False, True):
        again = host.state_run(check=check, **declared)
        assert (again.error, again.result["changed"], again.result["commands"]) == (None, False, [])

    assert host.reboot() == 0, host.log
    assert host.devices() == devices
    assert host.gpu()["power_limit_w"] == {"a100_40gb": 360, "h200": 500}[model]
    assert host.gpu()["persistence_mode"] is True
    after = host.state_run(**declared)
    assert (after.error, after.result["changed"]) == (None, False)


def test_log_of_the_boot_states_what_was_done_to_each_gpu(hopper: StateHost) -> None:
    hopper.state_run(**HOPPER)
    hopper.reboot()
    for index in (0, 1):
        lines = [line for line in hopper.log if line.startswith(f"GPU {index} (NVIDIA H200")]
        assert any("-pm 1" in line for line in lines) and any("-pl 500" in line for line in lines)
    assert any("1c.2g.35gb:0" in line and "3g.71gb:4" in line for line in hopper.log)


INTERCEPTS: dict[str, Any] = {
    "unit file": lambda host: host.path(service_files.UNIT_FILE).write_text("[Unit]\n"),
    "unit file gone": lambda host: host.path(service_files.UNIT_FILE).unlink(),
    "unit file for everybody": lambda host: host.path(service_files.UNIT_FILE).chmod(0o666),
    "unit masked": lambda host: (
        host.path(service_files.UNIT_FILE).unlink(),
        host.path(service_files.UNIT_FILE).symlink_to("/dev/null"),
    ),
    "plan": lambda host: host.path(PLAN_FILE).write_text(host.path(PLAN_FILE).read_text().replace("500", "510")),
    "plan gone": lambda host: host.path(PLAN_FILE).unlink(),
    "program": lambda host: host.path(service_files.PACKAGE + "/_nvidia_smi/client.py").write_text(""),
    "program gone": lambda host: host.path(service_files.PACKAGE + "/_nvidia_smi/client.py").unlink(),
    "program of another version": lambda host: host.path(service_files.PACKAGE + "/_old.py").write_text(""),
    "unit disabled": lambda host: host.path(boot_service.DESIRED_LINK).unlink(),
    "unit stopped": lambda host: host.units.active.update({UNIT: "inactive"}),
    "unit failed": lambda host: host.units.active.update({UNIT: "failed"}),
    "power limit": lambda host: host.call("-i", "1", "-pl", "300"),
    "MIG mode": lambda host: host.call("-i", "1", "-mig", "1"),
    "an instance": lambda host: host.call("mig", "-i", "0", "-dci"),
}


@pytest.mark.parametrize("what", INTERCEPTS)
def test_tampered_parts_are_found_and_repaired(hopper: StateHost, what: str) -> None:
    hopper.state_run(**HOPPER)
    files = {
        path: hopper.path(path).read_text() for path in service_files.desired_files("", Service("/usr/bin/python3"))
    }
    gpus, devices = hopper.state["gpus"], hopper.devices()
    INTERCEPTS[what](hopper)
    assert hopper.state_run(check=True, **HOPPER).result["changed"] is True
    repaired = hopper.state_run(**HOPPER)
    assert (repaired.error, repaired.result["changed"]) == (None, True)
    assert hopper.state["gpus"] == gpus and hopper.devices() == devices
    assert {path: hopper.path(path).read_text() for path in files} == files
    assert not hopper.path(service_files.PACKAGE + "/_old.py").exists()
    assert hopper.units.active[UNIT] == "active" and hopper.path(boot_service.DESIRED_LINK).is_symlink()
    assert hopper.state_run(**HOPPER).result["changed"] is False


def test_systemd_is_reloaded_only_when_it_knows_another_unit(hopper: StateHost) -> None:
    hopper.state_run(**HOPPER)
    assert "daemon-reload" not in hopper.units.log
    hopper.path(service_files.UNIT_FILE).write_text("[Unit]\n")
    hopper.units.needs_reload = True
    hopper.state_run(**HOPPER)
    assert hopper.units.log.count("daemon-reload") == 1


def test_containers_with_gpus_are_named_before_systemd_is_reloaded(hopper: StateHost) -> None:
    def warnings(check: bool) -> list[str]:
        given = hopper.state_run(check=check, **HOPPER).result["warnings"]
        return [warning for warning in given if "systemd is reloaded" in warning]

    process = hopper.path("/proc/4711")
    (process / "root/dev").mkdir(parents=True)
    (process / "cgroup").write_text(f"0::/kubepods.slice/crio-{'0123456789ab' * 5}0123.scope\n")
    (process / "root/dev/nvidia0").touch()
    # A new unit needs no reload.
    assert warnings(check=True) == [] and warnings(check=False) == []
    hopper.path(service_files.UNIT_FILE).write_text("[Unit]\n")
    hopper.units.needs_reload = True
    for check in (True, False):
        (warning,) = warnings(check)
        assert warning.endswith("With GPUs run: 0123456789ab (CRI-O)")
    assert warnings(check=False) == []


CLIENTS = {"nvidia-persistenced.service": "active", "nvidia-dcgm.service": "active", "mine.service": "active"}


def _clients(host: StateHost) -> None:
    host.units.active.update({**CLIENTS, "dcgm-exporter.service": "inactive", "other.service": "active"})


def test_clients_are_stopped_for_a_mode_change_and_started_as_they_were(ampere: StateHost) -> None:
    _clients(ampere)
    predicted = ampere.state_run(clients=["mine"], check=True, **AMPERE)
    run = ampere.state_run(clients=["mine"], **AMPERE)
    assert run.error is None and set(run.result["stopped"]) == set(CLIENTS)
    assert predicted.result["stopped"] == run.result["stopped"]
    assert {name: ampere.units.active[name] for name in CLIENTS} == CLIENTS
    assert ampere.units.active["dcgm-exporter.service"] == "inactive"
    assert not any("other.service" in line for line in ampere.units.log)
    stop = next(place for place, line in enumerate(ampere.units.log) if line.startswith("stop"))
    starts = [line.split()[1] for line in ampere.units.log[stop + 1 :] if line.split()[1] in CLIENTS]
    assert starts[0] == "nvidia-persistenced.service" and starts[-1] == "mine.service"


def test_clients_stay_when_nothing_needs_a_free_gpu(hopper: StateHost) -> None:
    _clients(hopper)
    run = hopper.state_run(persistence_mode=True, power_limit_w="400", clients=["mine"])
    assert run.error is None and run.result["changed"] and run.result["stopped"] == []
    assert hopper.state_run(mig={"1g.18gb": 1}).result["stopped"] != []
    # Creating another instance disturbs no client.
    more = hopper.state_run(mig={"1g.18gb": 2}, clients=["mine"])
    assert more.result["changed"] and more.result["stopped"] == []
    # Destroying an instance disturbs clients that monitor instances, not those that only hold the GPU open.
    less = hopper.state_run(mig={"1g.18gb": 1}, clients=["mine"])
    assert set(less.result["stopped"]) == {"nvidia-dcgm.service", "mine.service"}


def test_clients_are_started_again_when_the_change_fails(ampere: StateHost) -> None:
    _clients(ampere)

    def refuse_instances(words: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        return result(words, 23, "Insufficient Resources") if "-cgi" in words else reply()

    run = ampere.state_run(intercept=refuse_instances, clients=["mine"], **AMPERE)
    assert run.error is not None and "Insufficient Resources" in run.error
    assert {name: ampere.units.active[name] for name in CLIENTS} == CLIENTS
    assert run.result["changed"] is True


def test_clients_are_not_stopped_again_for_a_reset_that_is_impossible(ampere: StateHost) -> None:
    _clients(ampere)
    with store.transaction(str(ampere.root)) as state:
        state["host"]["virtualization"] = "Pass-Through"
    declared = {**AMPERE, "ecc": False, "clients": ["mine"]}
    first = ampere.state_run(**declared)
    assert first.error is None and len(first.result["pending"]) == 2 and set(first.result["stopped"]) == set(CLIENTS)
    again = ampere.state_run(**declared)
    assert (again.error, again.result["changed"], again.result["stopped"]) == (None, False, [])
    ampere.reboot()
    after = ampere.state_run(**declared)
    assert after.error is None and after.result["pending"] == []


def test_a_client_that_does_not_come_up_again_is_named(ampere: StateHost) -> None:
    _clients(ampere)
    ampere.units.broken.add("nvidia-dcgm.service")
    run = ampere.state_run(clients=["mine"], **AMPERE)
    assert run.error is not None and "nvidia-dcgm.service ran before and could not be started again" in run.error
    assert ampere.units.active["mine.service"] == "active"


def test_ecc_waits_for_the_one_reboot_that_serves_mig_too(ampere: StateHost) -> None:
    declared = {**AMPERE, "ecc": False, "reset": "never", "stop_for_reboot": True}
    with store.transaction(str(ampere.root)) as state:
        state["host"]["virtualization"] = "Pass-Through"
    first = ampere.state_run(**declared)
    assert first.error is None and first.result["awaits_reboot"] and first.result["reboot_required"]
    assert not first.result["reboot_tried"] and not ampere.path(PLAN_FILE).exists()
    ampere.reboot()
    second = ampere.state_run(**declared)
    assert second.error is None and second.result["pending"] == [] and not second.result["reboot_required"]
    assert ampere.gpu()["ecc_mode"] == {"current": False, "pending": False}
    assert ampere.devices().count("MIG-") == 6
    assert ampere.state_run(**declared).result["changed"] is False


def test_a_reboot_that_did_not_help_is_not_asked_for_again(ampere: StateHost) -> None:
    declared: dict[str, Any] = {"ecc": False, "stop_for_reboot": True}
    assert ampere.state_run(**declared).result["awaits_reboot"]
    # The mode is still pending after the boot.
    (ampere.root / "boot_id").write_text("another boot\n")
    again = ampere.state_run(**declared)
    assert again.error is None and again.result["reboot_required"] and again.result["reboot_tried"]
    assert not again.result["awaits_reboot"]
    ampere.reboot()
    assert not ampere.state_run(**declared).result["reboot_required"]
    assert not ampere.path(boot_service.REBOOT_FILE).exists()


def test_without_a_reboot_the_mode_stays_pending_and_the_rest_is_done(ampere: StateHost) -> None:
    declared = {**AMPERE, "ecc": False, "reset": "never", "stop_for_reboot": False}
    first = ampere.state_run(**declared)
    assert first.error is None and first.result["reboot_required"] and not first.result["awaits_reboot"]
    assert ampere.gpu()["power_limit_w"] == 360
    assert ampere.state_run(**declared).result["changed"] is False


def test_pending_mig_mode_is_saved_as_declared_and_comes_with_the_next_boot(ampere: StateHost) -> None:
    with store.transaction(str(ampere.root)) as state:
        state["host"]["virtualization"] = "Pass-Through"
    declared = {**AMPERE, "mig": {"3g.20gb": 1, "1g.5gb:1": 1}, "reset": "never"}
    run = ampere.state_run(**declared)
    assert run.error is None and len(run.result["pending"]) == 2
    saved = state_plan.parse(ampere.path(PLAN_FILE).read_text())
    assert [gpu.mig and gpu.mig.profiles for gpu in saved.gpus] == [("3g.20gb", "1g.5gb:1")] * 2
    assert ampere.reboot() == 0, ampere.log
    assert ampere.devices().count("MIG-") == 4
    after = ampere.state_run(**declared)
    assert after.error is None and after.result["commands"] == [] and after.result["changed"] is True
    assert ampere.state_run(**declared).result["changed"] is False


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown layout": ({"mig": "big", "mig_layouts": {"small": ["1g.18gb"]}}, "no layout named 'big'"),
    "unknown configuration": (
        {
            "mig": "big",
            "mig_layouts": {"version": "v1", "mig-configs": {"small": [{"devices": "all", "mig-enabled": False}]}},
        },
        "no configuration 'big'",
    ),
    "empty list": ({"mig": []}, "an empty list declares nothing"),
    "unknown key": ({"mig": [{"gpu": "0", "profiles": []}]}, "a layout has no gpu"),
    "no layout": ({"mig": 7}, "mig is a list of profiles"),
    "impossible layout": ({"mig": {"3g.71gb": 3}}, "impossible"),
    "unknown profile": ({"mig": ["9g.99gb"]}, "9g.99gb"),
    "limit": ({"power_limit_w": "9000"}, "9000 W is not possible"),
    "compute mode": ({"compute_mode": "exclusive_thread"}, "use exclusive_process"),
    "conflict": ({"compute_mode": "prohibited", "mig": {"1g.18gb": 1}}, "MIG excludes"),
    "unknown GPU": ({"gpus": ["7"], "ecc": True}, "no GPU matches '7'"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("check", [False, True])
def test_what_cannot_be_is_refused_by_name_before_anything_is_touched(
    hopper: StateHost, case: str, check: bool
) -> None:
    options, reported = REFUSED[case]
    before = hopper.snapshot()
    run = hopper.state_run(check=check, persistence_mode=True, **options)
    assert run.error is not None and reported in run.error
    assert hopper.state == before and hopper.units.log == [] and not hopper.path(PLAN_FILE).exists()


def test_a_conflict_on_all_of_16_gpus_names_two_and_the_number_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = StateHost.with_gpus(tmp_path, *["h200"] * 16)
    with in_this_process(monkeypatch, host):
        error = host.state_run(check=True, accounting_mode=True, mig=["1g.18gb"]).error
    assert error is not None and error.count("GPU-") == 2 and ", 14 more; declare one or the other" in error


@pytest.mark.parametrize("active", [True, False])
def test_another_manager_of_mig_is_not_fought(hopper: StateHost, active: bool) -> None:
    name = state_module.MIG_MANAGER
    hopper.units.active[name] = "active" if active else "inactive"
    hopper.units.enabled.update(() if active else (name,))
    run = hopper.state_run(mig=["1g.18gb"])
    assert run.error is not None and name in run.error and run.calls == []
    assert hopper.state_run(persistence_mode=True).error is None


def test_settings_that_exclude_mig_come_after_it_went_off(hopper: StateHost) -> None:
    hopper.state_run(mig={"1g.18gb": 2})
    run = hopper.state_run(mig=False, compute_mode="exclusive_process", accounting_mode=True)
    assert run.error is None and hopper.gpu()["compute_mode"] == "Exclusive_Process"
    assert hopper.reboot() == 0 and hopper.gpu()["compute_mode"] == "Exclusive_Process"
    assert (
        hopper.state_run(mig=False, compute_mode="exclusive_process", accounting_mode=True).result["changed"] is False
    )


@pytest.mark.parametrize(("number", "changed"), [(1, False), (2, True)])
def test_absent_reports_the_settings_that_it_has_reset_before_one_fails(
    hopper: StateHost, number: int, changed: bool
) -> None:
    assert hopper.state_run(persistence_mode=True, power_limit_w="400").error is None
    refuse = FaultInjector(hopper, WAYS["denied"], number, True, lambda words: "-pm" in words or "-pl" in words)
    run = hopper.state_run(state="absent", intercept=refuse)
    assert run.error is not None and "Insufficient Permissions" in run.error and refuse.struck
    assert (run.result["changed"], run.result["gpus_changed"]) == (changed, changed)
    assert len(run.result["commands"]) == number


def test_a_stop_of_clients_that_fails_is_a_change(ampere: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    _clients(ampere)
    really = ampere.units.run

    def fail(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        results = really(commands, timeout)
        return [
            result(command[1:], 1, "canceled") if "stop" in command else found
            for command, found in zip(commands, results, strict=True)
        ]

    with monkeypatch.context() as patch:
        patch.setattr(ampere.units, "run", fail)
        run = ampere.state_run(clients=["mine"], **AMPERE)
    assert run.error is not None and "canceled" in run.error
    assert set(run.result["stopped"]) == set(CLIENTS) and run.result["changed"] and not run.result["gpus_changed"]


def test_a_service_that_was_only_planned_is_no_change(hopper: StateHost) -> None:
    refuse = FaultInjector(hopper, WAYS["denied"], 1, True, lambda words: "-pl" in words)
    run = hopper.state_run(power_limit_w="400", intercept=refuse)
    assert run.error is not None and not run.result["changed"] and not hopper.path(PLAN_FILE).exists()


def test_absent_removes_everything_and_returns_settings_to_default(host: StateHost, model: str) -> None:
    host.state_run(**HOSTS[model])
    devices = host.devices()
    assert host.state_run(check=True, state="absent").result["changed"] is True
    run = host.state_run(state="absent")
    assert run.error is None and run.result["changed"] is True
    assert not list(host.root.rglob("*gpu-fleet*")), "something of the service is left"
    gpu = host.gpu()
    assert (gpu["persistence_mode"], gpu["locked_gpu_clocks"]) == (False, None)
    assert gpu["power_limit_w"] == {"a100_40gb": 400, "h200": 700}[model]
    assert host.devices() == devices, "instances may be in use; they go with the next reboot"
    assert host.units.active[UNIT] == "inactive"
    assert host.state_run(state="absent").result["changed"] is False
    assert host.state_run(check=True, state="absent").result["changed"] is False


def test_a_declaration_that_was_removed_is_not_restored(hopper: StateHost) -> None:
    hopper.state_run(**HOPPER)
    run = hopper.state_run()
    assert run.error is None and run.result["changed"] is True and run.calls == []
    assert hopper.gpu()["power_limit_w"] == 500
    assert not hopper.path(PLAN_FILE).exists()
    assert hopper.state_run().result["changed"] is False


def test_nothing_declared_asks_nothing(hopper: StateHost) -> None:
    run = hopper.state_run()
    assert (run.error, run.result["changed"], run.calls) == (None, False, [])


def test_a_gpu_without_the_setting_is_skipped_now_and_at_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, "h200", "t4")
    with in_this_process(monkeypatch, host):
        declared: dict[str, Any] = {"persistence_mode": True, "mig": {"1g.18gb": 1}, "on_unsupported": "skip"}
        assert host.state_run(**declared).error is None
        assert host.reboot() == 0, host.log
        assert host.state_run(**declared).result["changed"] is False
        assert host.state_run(**{**declared, "on_unsupported": "fail"}).error is not None


def test_check_mode_without_a_driver_states_that_it_cannot_report(tmp_path: Path) -> None:
    host = StateHost.with_gpus(tmp_path, "h200")
    check = host.state_run(check=True, persistence_mode=True, executable="/nonexistent/nvidia-smi")
    assert check.error is None and check.result["changed"] is True
    assert "cannot be predicted" in check.result["warnings"][0]
    real = host.state_run(persistence_mode=True, executable="/nonexistent/nvidia-smi")
    assert real.error is not None and "install the driver" in real.error


def test_without_systemd_nothing_is_touched(hopper: StateHost) -> None:
    (hopper.root / "systemd").rmdir()
    run = hopper.state_run(persistence_mode=True)
    assert run.error is not None and "systemd is not running" in run.error and run.calls == []


def test_a_service_that_does_not_start_is_an_error_with_its_own_words(hopper: StateHost) -> None:
    hopper.units.broken.add(UNIT)
    hopper.status = "it reports why"
    run = hopper.state_run(persistence_mode=True)
    assert run.error is not None and "it reports why" in run.error and f"journalctl -u {UNIT}" in run.error


def test_results_are_as_documented(hopper: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    documented = yaml.safe_load(gpu_state.RETURN)
    runs = [
        hopper.state_run(check=True, **HOPPER),
        hopper.state_run(**HOPPER),
        hopper.state_run(**HOPPER),
        hopper.state_run(mig={"3g.71gb": 3}),
        hopper.state_run(state="absent"),
    ]
    lists = ("ecc", "settings", "mig")
    for run in runs:
        kept = {key: item for key, item in run.result.items() if key not in COMMON}
        # Their rows are documented and tested with the other modules.
        check_documented({**kept, **dict.fromkeys(lists)}, documented, "result")
        json.dumps(run.result)
    failed = run_module(gpu_state, monkeypatch, {"mig": []})
    assert failed["failed"] and "an empty list declares nothing" in failed["msg"]


def test_documented_options_are_those_of_the_module() -> None:
    documented = yaml.safe_load(gpu_state.DOCUMENTATION)["options"]
    assert set(documented) == set(ARGUMENT_SPEC) - {"executable", "timeout"}
    for name, option in documented.items():
        spec = ARGUMENT_SPEC[name]
        for key in ("type", "default", "choices", "elements"):
            assert option.get(key) == spec.get(key), name


@pytest.mark.parametrize("place", range(4))
def test_examples_work(hopper: StateHost, place: int) -> None:
    options = yaml.safe_load(gpu_state.EXAMPLES)[place]["gpu.fleet.gpu_state"]
    hopper.install_mps()
    if "mig_layouts" in options:
        document = Path(__file__).parents[1] / "mig" / "fixtures" / "mig-parted.yaml"
        options["mig_layouts"] = yaml.safe_load(document.read_text())
    assert hopper.state_run(**options).error is None
    assert hopper.state_run(**options).result["changed"] is False
