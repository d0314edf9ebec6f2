# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole module gpu_health on simulated hosts: verdicts, remedies, declared state and history."""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._health import history as histories
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import identity
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES, VERDICTS
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import PROBLEMS, TABLE, rows_of
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.modules import gpu_health
from gpu_simulator.state import store

from tests.unit.health.health_host import HealthHost
from tests.unit.health.simulated import FAULTS, SCENARIOS, SHOWN
from tests.unit.module_runs import COMMON, check_options, disagreements

HISTORY = "/var/lib/gpu-fleet/health/history.json"
DOCUMENTED = yaml.safe_load(gpu_health.RETURN)


@pytest.fixture(name="host")
def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HealthHost:
    return HealthHost(tmp_path, monkeypatch)


def rows(result: dict[str, Any]) -> set[str]:
    return {finding["row"] for finding in result["findings"]}


def documented(result: dict[str, Any]) -> None:
    """Compare a result with RETURN."""
    assert set(result) - COMMON == set(DOCUMENTED)
    for name, description in DOCUMENTED.items():
        assert list(disagreements(description, result[name], name)) == []


# Documentation


def test_options_are_documented() -> None:
    options = yaml.safe_load(gpu_health.DOCUMENTATION)["options"]
    # The others are those of every module that runs nvidia-smi.
    spec = {name: option for name, option in gpu_health.ARGUMENT_SPEC.items() if name not in ("executable", "timeout")}
    assert set(options) == set(spec)
    check_options(options, spec)


# Verdicts and remedies by faults of the simulator


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    host = HealthHost(tmp_path, monkeypatch, branch=fault.branch)
    for command in fault.commands:
        host.control(*shlex.split(command))
    result = host.check(**fault.options)
    documented(result)
    assert (result["verdict"], result["remedy"]) == (fault.verdict, fault.remedy)
    assert not result["changed"]
    assert not fault.row or fault.row in rows(result)


def test_every_verdict_and_every_remedy_is_shown() -> None:
    assert {fault.verdict for fault in FAULTS.values()} == set(VERDICTS)
    assert {fault.remedy for fault in FAULTS.values()} == set(REMEDIES)


@pytest.mark.parametrize("name", SCENARIOS)
def test_rows_of_a_simulated_host(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = SCENARIOS[name]
    gpus = [{"model": scenario.model, "count": scenario.count}]
    host = HealthHost(tmp_path, monkeypatch, branch=scenario.branch, gpus=gpus, nics=scenario.nics)
    if scenario.pci_bus:
        host.show_pci_bus()
    for path, text in scenario.files.items():
        host.write(path, text)
    host.programs.update(scenario.programs)
    shown = {*scenario.commands, *scenario.conditions}
    for _check in range(scenario.earlier):
        assert not shown & rows(host.check(**scenario.options))
        host.now += 3600
    for commands in dict.fromkeys(scenario.commands.values()):
        for command in (commands,) if isinstance(commands, str) else commands:
            host.control(*shlex.split(command))
    for _check in range(scenario.checks):
        result = host.check(**scenario.options)
        host.now += 3600
    documented(result)
    found = {(finding["row"], finding["verdict"], finding["remedy"]) for finding in result["findings"]}
    assert {(row.id, row.verdict, row.remedy) for row in TABLE if row.id in shown} <= found


def test_every_row_is_shown() -> None:
    assert set(SHOWN) == {row.id for row in TABLE}


def test_a_gpu_that_is_given_to_a_virtual_machine(host: HealthHost) -> None:
    """After it was at work on the host: a reboot would end the virtual machine."""
    host.show_pci_bus()
    assert host.check()["verdict"] == "ok"
    host.control("fault", "passthrough", "--gpu", "1")
    result = host.check()
    documented(result)
    assert (result["verdict"], result["remedy"], rows(result)) == ("info", "none", {"gpus_passed_through"})
    assert result["findings"][0]["message"] == (
        "1 GPU is passed through to virtual machines: 00000000:07:00.0 (vfio-pci)"
    )
    # The last one as well; there is no driver on many such hosts.
    host.control("fault", "passthrough", "--gpu", "0")
    result = host.check(executable="/nonexistent/nvidia-smi")
    assert (result["verdict"], rows(result)) == ("info", {"gpus_passed_through"})
    assert host.check(expected={"gpu_count": 2})["verdict"] == "warn"


def test_virtual_functions_of_a_gpu(host: HealthHost) -> None:
    host.show_pci_bus()
    for number in range(4, 8):
        address = f"0000:06:00.{number}"
        files = {"vendor": "0x10de\n", "device": "0x2335\n", "class": "0x030200\n"}
        host.show_pci_device(address, driver="nvidia", **files)
        Path(f"{host.root}/sys/bus/pci/devices/{address}/physfn").symlink_to("../0000:06:00.0")
    assert host.check()["verdict"] == "ok"


def test_an_error_in_place_of_the_uuid(host: HealthHost) -> None:
    host.control("fault", "field", "uuid", "--text", "Unknown Error", "--gpu", "1")
    result = host.check()
    documented(result)
    assert (result["verdict"], rows(result)) == ("fail", {"gpu_not_responding"})


def test_a_kernel_log_that_cannot_be_read_is_unknown(host: HealthHost) -> None:
    result = host.check(kernel_log="none")
    documented(result)
    assert (result["verdict"], rows(result)) == ("unknown", {"kernel_log_unknown"})
    assert result["kernel_log"]["complete"] is False


def test_after_a_reset_the_gpu_is_usable(host: HealthHost) -> None:
    host.xid("119")
    assert host.check()["verdict"] == "fail"
    host.smi("-r -i 0")
    result = host.check()
    assert (result["verdict"], result["remedy"]) == ("info", "none")
    assert all(xid["is_over"] for xid in result["kernel_log"]["xids"])


def test_a_finding_names_gpu_process_and_remedy(host: HealthHost) -> None:
    host.xid("31 --pid 4711 --name python3 --gpu 1")
    host.xid("31 --pid 4712 --name python3 --gpu 1")
    (finding,) = host.check()["findings"]
    assert finding["gpu"] == host.gpu(1)["uuid"]
    assert finding["message"] == (
        "GPU 1 (00000000:07:00.0): Xid 31 (GPU memory page fault), 2 times, last by python3 (PID 4712): "
        "an application failed, the GPU is usable; restart the application"
    )


def test_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HealthHost(tmp_path, monkeypatch)
    result = host.check(executable=str(tmp_path / "missing"))
    documented(result)
    assert (result["verdict"], rows(result)) == ("fail", {"gpus_absent"})


# Options

IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"kernel_log": "syslog"}, "kernel_log: syslog is neither auto, journal, dmesg, none nor an absolute path"),
    ({"history": "health"}, "history: health is not an absolute path"),
    ({"evidence_directory": "evidence"}, "evidence_directory: evidence is not an absolute path"),
    ({"policy": [{"id": "new", "reading": "heat", "verdict": "warn"}]}, "policy: new: there is no reading heat"),
    ({"policy": [{"id": "new", "verdict": "bad"}]}, "value of verdict must be one of"),
    ({"expected": {"gpus": 8}}, "Unsupported parameters"),
]


@pytest.mark.parametrize(("options", "message"), IMPOSSIBLE)
def test_impossible_options(options: dict[str, Any], message: str, host: HealthHost) -> None:
    result = host.check(**options)
    assert result["failed"]
    assert message in result["msg"]
    assert not Path(host.root + HISTORY).exists()


def test_policy_of_a_site(host: HealthHost) -> None:
    host.xid("119 --log-only")
    result = host.check(policy=[{"id": "accepted", "xids": [119], "verdict": "ok"}])
    assert (result["verdict"], rows(result)) == ("ok", {"accepted"})


@pytest.mark.parametrize("problem", PROBLEMS)
def test_rows_about_a_problem(problem: str) -> None:
    assert set(rows_of(problem)) <= {row.id for row in TABLE}


def test_an_ignored_problem_is_ok_and_no_other(host: HealthHost) -> None:
    host.control("set", "remapped_rows.failure", "true", "--gpu", "0")
    host.control("fault", "recovery-action", "reset", "--gpu", "1")
    assert rows(host.check(ignore=["row_remap_failure"])) == {"row_remap_failure", "recovery_reset"}
    result = host.check(ignore=["row_remap_failure", "recovery_required"])
    assert (result["verdict"], result["remedy"]) == ("ok", "none")
    host.control("set", "remapped_rows.pending", "true", "--gpu", "0")
    assert host.check(ignore=["row_remap_failure", "recovery_required"])["verdict"] == "warn"


# Declared state

EXPECTED: list[tuple[dict[str, Any], set[str]]] = [
    ({"gpu_count": 2, "gpu_models": ["H200"], "driver_version": "580", "persistence_mode": True, "ecc": True}, set()),
    ({"mig_profiles": []}, set()),
    ({"gpu_count": 8}, {"gpu_count"}),
    ({"gpu_models": ["H100"]}, {"gpu_model"}),
    ({"driver_version": "580.159"}, set()),
    ({"driver_version": "580.15"}, {"driver_version"}),
    ({"persistence_mode": False}, {"persistence_mode"}),
    ({"ecc": False}, {"ecc_mode"}),
    ({"mig_profiles": ["1g.18gb"]}, {"mig_layout"}),
]


@pytest.mark.parametrize(("expected", "found"), EXPECTED)
def test_expected(expected: dict[str, Any], found: set[str], host: HealthHost) -> None:
    assert rows(host.check(expected=expected)) == found


def test_the_mig_layout_is_compared_without_order(host: HealthHost) -> None:
    for number in (0, 1):
        host.smi(f"-i {number} -mig 1")
        host.smi(f"mig -i {number} -cgi 9,19 -C")
    assert host.check(expected={"mig_profiles": ["1g.18gb", "3g.71gb"]})["findings"] == []
    (finding, _other) = host.check(expected={"mig_profiles": ["1g.18gb", "1g.18gb"]})["findings"]
    assert "MIG has 1 x 1g.18gb, 1 x 3g.71gb, and 2 x 1g.18gb is declared" in finding["message"]


def test_what_gpu_state_applies_at_boot_is_compared(host: HealthHost) -> None:
    planned = state_plan.PlannedGpu(
        host.gpu(1)["uuid"],
        ecc=False,
        settings={"persistence_mode": False},
        mig=state_plan.PlannedMig(True, ("3g.71gb:0", "1g.18gb")),
    )
    host.write("/var/lib/gpu-fleet/state/plan.json", state_plan.render(state_plan.StatePlan(gpus=(planned,))))
    result = host.check()
    assert rows(result) == {"ecc_mode", "persistence_mode", "mig_layout"}
    assert {finding["gpu"] for finding in result["findings"]} == {planned.uuid}
    assert rows(host.check(expected={"persistence_mode": True, "ecc": True, "mig_profiles": []})) == set()


@pytest.mark.parametrize(
    "broken",
    [
        lambda text: text[:-3],
        lambda text: text.replace('"version": 1', '"version": 2'),
        lambda text: text.replace('"settings"', '"set"'),
        lambda text: text.replace('"profiles": null', '"profiles": [1]'),
        lambda _text: "[]",
        lambda _text: '{"version": 1, "gpus": [null]}',
        lambda _text: '{"version": 1, "gpus": 1}',
    ],
)
def test_a_plan_that_gpu_state_has_not_written_declares_nothing(host: HealthHost, broken: Callable[[str], str]) -> None:
    planned = state_plan.PlannedGpu(host.gpu(1)["uuid"], ecc=False, mig=state_plan.PlannedMig(True))
    text = state_plan.render(state_plan.StatePlan(gpus=(planned,)))
    host.write("/var/lib/gpu-fleet/state/plan.json", broken(text))
    assert broken(text) != text
    assert rows(host.check()) == set()


def unit(of: str = "gpu-fleet-state.service", **properties: str) -> Callable[..., list[CommandResult]]:
    text = "".join(f"{name}={value}\n" for name, value in {"Id": of, **properties}.items())
    return lambda _commands, _timeout: [CommandResult((), 0, text.encode(), b"", 0.0)]


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}, set()),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, set()),
        ({"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "disabled"}, set()),
        ({"LoadState": "loaded", "ActiveState": "inactive", "UnitFileState": "enabled"}, {"boot_service_missed"}),
        ({"LoadState": "loaded", "ActiveState": "failed", "Result": "exit-code"}, {"boot_service_failed"}),
    ],
)
def test_boot_service(properties: dict[str, str], found: set[str], host: HealthHost) -> None:
    host.systemd = Systemd(unit(**properties), booted=host.root)
    assert rows(host.check()) == found


def _domain(node: str, status: str) -> str:
    """The form of NVIDIA's validation suite, see test_nvlink_domains.py: a model."""
    nodes = {"0": {"status": "READY", "host": "10.0.0.1"}, "1": {"status": node, "host": "10.0.0.2"}}
    return json.dumps({"nodes": nodes, "status": status})


@pytest.mark.parametrize(
    ("active", "enabled", "printed", "found"),
    [
        ("active", "enabled", _domain("READY", "UP"), {}),
        ("active", "enabled", None, {}),
        ("inactive", "masked", None, {}),
        ("inactive", "disabled", None, {}),
        ("failed", "enabled", None, {"imex_inactive": "nvidia-imex.service is enabled and failed"}),
        ("inactive", "enabled", None, {"imex_inactive": "nvidia-imex.service is enabled and inactive"}),
        (
            "active",
            "enabled",
            _domain("UNAVAILABLE", "DEGRADED"),
            {"imex_unready": "which is DEGRADED: 10.0.0.2 is UNAVAILABLE"},
        ),
    ],
)
def test_imex(active: str, enabled: str, printed: str | None, found: dict[str, str], host: HealthHost) -> None:
    properties = {"LoadState": "loaded", "ActiveState": active, "UnitFileState": enabled}
    host.systemd = Systemd(unit("nvidia-imex.service", **properties), booted=host.root)
    host.programs["nvidia-imex-ctl"] = printed or ""
    result = host.check()
    assert rows(result) == {*found}
    for finding in result["findings"]:
        assert found[finding["row"]] in finding["message"] and finding["remedy"] == "restart_imex"


# As an H100 with driver 580.159.04 printed it, for an illegal address in a kernel, and what else it has of these words.
MPS_FAULT = """\
[2026-11-25 21:44:13.034 Server   727] Client {PID: 736, Context: 1} encountered a fatal GPU error.
[2026-11-25 21:44:13.034 Server   727] Server is handling a fatal GPU error.
[2026-11-25 21:44:13.034 Server   727] Client {PID: 724, Context ID: 1} on device 0 to be torn down
"""


@pytest.mark.parametrize(
    ("active", "enabled", "log", "found"),
    [
        ("active", "enabled", "", {}),
        ("active", "enabled", "[2026-11-25 21:44:13.034 Server   727] Server is handling a fatal GPU error.\n", {}),
        ("active", "enabled", MPS_FAULT, {"mps_client_fault": "1 times within 24 hours"}),
        ("inactive", "disabled", MPS_FAULT, {}),
        ("failed", "enabled", "", {"mps_inactive": "gpu-fleet-mps.service is enabled and failed"}),
    ],
)
def test_mps(active: str, enabled: str, log: str, found: dict[str, str], host: HealthHost) -> None:
    properties = {"LoadState": "loaded", "ActiveState": active, "UnitFileState": enabled}
    host.systemd = Systemd(unit("gpu-fleet-mps.service", **properties), booted=host.root)
    host.programs["journalctl"] = log
    result = host.check()
    assert rows(result) == {*found}
    for finding in result["findings"]:
        assert found[finding["row"]] in finding["message"]


def test_clock(host: HealthHost) -> None:
    host.programs["timedatectl"] = "no\n"
    assert rows(host.check()) == {"clock_unsynchronized"}


@pytest.mark.parametrize(
    ("present", "online", "control", "found"),
    [
        ("0-143", "0-143", None, ""),
        ("0-143", "0-71,73-143", None, "143 of 144 CPUs are online, without 72"),
        ("0-7", "0-3", "on", "4 of 8 CPUs are online, without 4, 5, 6, 7"),
        # Threads that are switched off, places for more CPUs, a CPU that cannot be taken offline, nothing known.
        ("0-7", "0-3", "off", ""),
        ("0-7", "0-3", "forceoff", ""),
        ("0", "0", "notsupported", ""),
        ("0-7", None, None, ""),
        ("0-7", "all", None, ""),
        (None, "0-7", None, ""),
    ],
)
def test_cpus(present: str | None, online: str | None, control: str | None, found: str, host: HealthHost) -> None:
    for name, text in (("present", present), ("online", online), ("possible", "0-255"), ("smt/control", control)):
        if text is not None:
            host.write(f"/sys/devices/system/cpu/{name}", f"{text}\n")
    result = host.check()
    assert rows(result) == ({"cpus_offline"} if found else set())
    assert all(found in finding["message"] for finding in result["findings"])
    host.write("/run/.containerenv", "")
    assert rows(host.check()) == set()


def test_cdi_of_another_driver(host: HealthHost) -> None:
    host.write("/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n# /usr/lib/libcuda.so.570.86.10\n")
    result = host.check()
    assert rows(result) == {"cdi_stale"}
    assert "/etc/cdi/nvidia.yaml (driver_version)" in result["findings"][0]["message"]


def test_ports_and_slots_come_from_sysfs(host: HealthHost) -> None:
    devices = Path(host.root, "sys/bus/pci/devices")
    gpu = Path(host.root, "sys/devices/pci0000:00/0000:00:01.0/0000:06:00.0")
    gpu.mkdir(parents=True)
    devices.mkdir(parents=True)
    (devices / "0000:06:00.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0/0000:06:00.0")
    for name, value in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}.items():
        (gpu / name).write_text(value)
    (gpu.parent / "max_link_width").write_text("16\n")
    host.log("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:00:01.0")
    result = host.check()
    assert rows(result) == {"pcie_fatal"}
    assert result["findings"][0]["message"].startswith("PCIe port 00000000:00:01.0: ")


# History


def history(host: HealthHost) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(host.root + HISTORY).read_text())
    return found


def test_only_root_reads_the_history(host: HealthHost) -> None:
    host.check()
    path = Path(host.root + HISTORY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [name.name for name in path.parent.iterdir()] == ["history.json"]


def test_check_mode_writes_no_history(host: HealthHost) -> None:
    documented(host.check(check_mode=True))
    assert not Path(host.root + HISTORY).parent.exists()
    host.check()
    before = Path(host.root + HISTORY).read_text()
    host.now += 60
    host.xid("95")
    assert host.check(check_mode=True)["verdict"] == "fail"
    assert Path(host.root + HISTORY).read_text() == before


def test_no_history(host: HealthHost) -> None:
    assert host.check(history="")["changes"] == []
    assert not Path(host.root + HISTORY).parent.exists()


def test_a_history_that_cannot_be_written_is_a_warning(host: HealthHost) -> None:
    host.write("/var/lib/gpu-fleet", "a file")
    result = host.check()
    assert result["verdict"] == "ok"
    assert "history: /var/lib/gpu-fleet/health/history.json: " in str(result["warnings"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 2, "gpus": {}, "models": []}',
        '{"version": 1, "models": [], "gpus": {"a": 1}}',
    ],
)
def test_a_damaged_history_is_an_empty_one(text: str, host: HealthHost) -> None:
    host.write(HISTORY, text)
    assert host.check()["verdict"] == "ok"
    assert len(history(host)["gpus"]) == 2


def test_changes_of_verdicts(host: HealthHost) -> None:
    for commands in ([], [], ["fault xid 31"], ["fault xid 95"]):
        for command in commands:
            host.control(*command.split())
        host.check()
        host.now += 60
    result = host.check()
    gpu = host.gpu()
    mine = [change for change in result["changes"] if change["gpu"] == gpu["uuid"]]
    assert [(change["verdict"], change["remedy"]) for change in mine] == [
        ("fail", "reset_gpu"),
        ("info", "restart_application"),
        ("ok", "none"),
    ]
    assert {change["serial"] for change in mine} == {gpu["serial"]}
    assert len([change for change in result["changes"] if change["gpu"] != gpu["uuid"]]) == 1


def test_a_missing_gpu_is_recorded_until_the_count_is_declared(host: HealthHost) -> None:
    host.check()
    host.control("fault", "lost", "--gpu", "1")
    for _again in range(2):
        result = host.check()
        assert {"gpu_count", "gpu_lost"} <= rows(result)
    lost = next(gpu for gpu in result["gpus"] if gpu["verdict"] == "fail")
    assert (lost["uuid"], lost["serial"]) == (host.gpu(1)["uuid"], host.gpu(1)["serial"])
    assert len(result["gpus"]) == 2
    assert "gpu_count" not in rows(host.check(expected={"gpu_count": 1}))
    assert "gpu_count" not in rows(host.check())


def test_a_gpu_that_has_only_its_address_left_is_the_one_that_was_there() -> None:
    """A support case needs its serial number."""
    known = histories.History(gpus={"GPU-a": histories.GpuHistory(pci_bus_id="00000000:07:00.0", checked=1.0)})
    for place, name in (("00000000:07:00.0", "GPU-a"), ("00000000:08:00.0", "00000000:08:00.0")):
        gpu = {"uuid": None, "pci_bus_id": place, "index": 1}
        assert identity(gpu, {"gpus": [gpu]}, known) == name


def test_a_message_has_its_remedy_once(host: HealthHost) -> None:
    host.check()
    host.xid("79 --gpu 1")
    messages = [finding["message"] for finding in host.check(expected={"gpu_count": 2})["findings"]]
    assert [message.count("reboot the host") for message in messages] == [1] * len(messages)
    assert "1 GPU responds, and 2 are declared; reboot the host" in messages
    assert messages[0].endswith(
        "reboot the host; if it is lost again, check its power, its seat and the kernel log (Xid 79)"
    )


def test_the_same_xid_after_two_reboots(host: HealthHost) -> None:
    for boot in range(3):
        if boot:
            host.start_boot()
            assert host.check()["verdict"] == "ok"
        host.xid("79 --gpu 1")
        result = host.check()
        assert ("xid_after_reboots" in rows(result)) == (boot == 2)
    assert result["remedy"] == "field_diagnostic"
    assert next(gpu["remedy"] for gpu in result["gpus"] if gpu["uuid"] == host.gpu(1)["uuid"]) == "field_diagnostic"


def test_the_same_fatal_xid_five_times_in_a_day(host: HealthHost) -> None:
    for burst in range(5):
        host.start_boot()
        host.now += 3600
        host.xid("95 --log-only")
        host.xid("95 --log-only")
        result = host.check(policy=[{"id": "xid_after_reboots", "boots": 99}])
        assert ("xid_repeated" in rows(result)) == (burst == 4)
    assert (result["verdict"], result["remedy"]) == ("fail", "service")


@pytest.mark.parametrize(
    ("xid", "row"),
    [("31 --pid 7", "xid_31_repeated"), ("13 --pid 7", "xid_13_repeated")],
)
def test_an_error_of_applications_that_repeats_on_one_gpu(xid: str, row: str, host: HealthHost) -> None:
    for burst in range(2):
        host.start_boot()
        host.now += 3600
        host.xid(xid)
        result = host.check()
        assert (row in rows(result)) == (burst == 1)
    assert (result["verdict"], result["remedy"]) == ("warn", "field_diagnostic")


def test_the_log_of_a_boot_is_recorded_once(host: HealthHost) -> None:
    host.xid("31")
    for _again in range(3):
        host.check()
    assert [len(history(host)["gpus"][host.gpu(number)["uuid"]]["xids"]) for number in (0, 1)] == [1, 0]


def test_memory_errors_are_in_the_history_by_check_and_xids_by_day(host: HealthHost) -> None:
    host.control("set", "remapped_rows.correctable", "5", "--gpu", "1")
    host.xid("31 --pid 7 --name a")
    host.check()
    xid = (host.gpu(0)["uuid"], "xid", 31, 1)
    # What was there at the first check has no time.
    assert _errors(host.check()) == [xid]
    host.start_boot()
    host.now += 24 * 3600.0
    host.control("set", "remapped_rows.correctable", "7", "--gpu", "1")
    host.xid("31 --pid 7 --name a")
    host.xid("31 --pid 8 --name b --gpu 0")
    rise = (host.gpu(1)["uuid"], "remapped_rows_correctable", None, 2)
    assert _errors(host.check(check_mode=True))[0] == rise
    assert [entry[1:] for entry in _errors(host.check())] == [rise[1:], ("xid", 31, 1), ("xid", 31, 1)]
    assert _errors(host.check())[0] == rise, "of the counts that stayed nothing is added"


def _errors(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(entry[name] for name in ("gpu", "kind", "xid", "count")) for entry in result["error_history"]]


def test_the_error_counts_of_a_gpu_are_bounded() -> None:
    counts: tuple[histories.ErrorCounts, ...] = ()
    for number in range(500):
        counts = histories._with_errors(counts, histories.ErrorCounts(float(number), {"ecc_corrected": number}), number)
    assert len(counts) == histories.MOST_ERROR_COUNTS
    later = histories._with_errors(counts, histories.ErrorCounts(1e9, {"ecc_corrected": 500}), 1e9)
    assert [each.counts["ecc_corrected"] for each in later] == [500]


def test_the_history_is_bounded() -> None:
    records = tuple(histories.XidRecord(31, "b", float(time)) for time in range(5000))
    assert len(histories.merged(records, records, 5000.0)) == histories.MOST_XIDS
    assert histories.merged(records, (), 1e9) == ()
    facts: dict[str, Any] = {"gpus": []}
    gpus = {f"GPU-{number}": histories.GpuHistory(checked=float(number)) for number in range(500)}
    known = histories.updated(histories.History((), gpus), histories.Check(1e3, facts))
    assert len(known.gpus) == histories.MOST_GPUS
    for number in range(500):
        verdict = histories.Change(float(number), "ok" if number % 2 else "fail", "none")
        known = histories.updated(known, histories.Check(1e3 + number, facts, {"GPU-499": verdict}))
    assert len(known.gpu("GPU-499").changes) == histories.MOST_CHANGES


@pytest.mark.parametrize(
    ("row", "command"),
    [
        ("thermal_slowdown_long", "fault slowdown hw_thermal --seconds 12000"),
        ("power_brake_slowdown_long", "fault slowdown hw_power_brake --seconds 12000"),
        ("nvlink_errors", "fault nvlink 3 --errors 100"),
    ],
)
def test_what_lasts_for_hours(row: str, command: str, host: HealthHost) -> None:
    assert host.check()["verdict"] == "ok"
    host.now += 4 * 3600
    host.control(*command.split())
    assert row in rows(host.check(check_mode=True)) & rows(host.check())
    host.control("fault", "clear")
    # A whole hour has to pass without it.
    host.now += 600
    assert row in rows(host.check())
    host.now += 2 * 3600
    assert host.check()["verdict"] == "ok"


@pytest.mark.parametrize("every", [300, 1800, 3600])
def test_the_verdict_on_a_slowdown_does_not_depend_on_how_often_a_host_is_checked(every: int, host: HealthHost) -> None:
    """80 seconds of an hour are none, 400 are a warning, whenever checks are."""
    for seconds, verdict in ((80.0, "ok"), (400.0, "warn")):
        host.start_boot()
        host.now = (host.now // 3600 + 2) * 3600
        found = set()
        for elapsed in range(0, 7201, every):
            used = min(seconds, elapsed / 3600 * seconds)
            _slowed(host, sw_thermal=used)
            found.add(host.check()["verdict"])
            host.now += every
        assert max(found, key=VERDICTS.index) == verdict, (seconds, found)


def _slowed(host: HealthHost, **seconds: float) -> None:
    names = {"sw_thermal": "sw_therm_slowdown", "hw_thermal": "hw_therm_slowdown", "hw_power_brake": "hw_power_brake"}
    with store.transaction(host.root) as state:
        for reason, value in seconds.items():
            path = f"clocks_event_reasons_counters/clocks_event_reasons_counters_{names[reason]}"
            state["gpus"][0]["overrides"][path] = f"{round(value * 1e6)} us"


def test_one_second_of_power_brake_before_a_job_costs_nothing(host: HealthHost) -> None:
    _slowed(host, hw_power_brake=0.0)
    host.check()
    host.now += 61
    _slowed(host, hw_power_brake=1.0)
    assert host.check()["verdict"] == "ok"


# https://slurm.schedmd.com/cgroup_v2.html; of Debian: https://github.com/treydock/cgroup_exporter/issues/30; from 26.05
# on without the number of the job: https://github.com/guilbaults/slurm-job-exporter/issues/66.
@pytest.mark.parametrize(
    ("jobs", "group", "is_found"),
    [
        ("system.slice/slurmstepd.scope", "0::/user.slice/user-1000.slice/session-3.scope", True),
        ("system.slice/cn1_slurmstepd.scope", "0::/user.slice/user-1000.slice/session-c1.scope", True),
        ("cpuset/slurm", "4:cpuset:/\n1:name=systemd:/user.slice/user-7.slice/session-3.scope", True),
        # Of a job, of one that a login was adopted into, of a container, of root, of no Slurm at all.
        ("system.slice/slurmstepd.scope", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", False),
        ("system.slice/slurmstepd.scope", "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_extern/user", False),
        ("system.slice/slurmstepd.scope", "0::/system.slice/docker-0123.scope", False),
        ("system.slice/slurmstepd.scope", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/a.scope", False),
        ("system.slice/slurmstepd.scope", "0::/user.slice/user-0.slice/session-3.scope", False),
        ("system.slice/slurmstepd.scope", "0::/system.slice/a/user.slice/user-1000.slice/session-3.scope", False),
        ("cpuset/slurm", "4:cpuset:/slurm/uid_7/job_7/step_0\n1:name=systemd:/system.slice/slurmd.service", False),
        ("system.slice/ssh.service", "0::/user.slice/user-1000.slice/session-3.scope", False),
    ],
)
def test_a_process_of_a_user_next_to_the_jobs(jobs: str, group: str, is_found: bool, host: HealthHost) -> None:
    host.control("busy", "--gpu", "1", "--pid", "42", "--name", "Xid 79")
    host.write(f"/sys/fs/cgroup/{jobs}/cgroup.procs", "")
    host.write("/proc/42/cgroup", f"{group}\n")
    result = host.check()
    assert (result["verdict"], rows(result)) == (("info", {"gpu_unscheduled"}) if is_found else ("ok", set()))
    assert not is_found or result["findings"][0]["message"].endswith(" on GPU 1")
    host.control("idle")
    assert host.check()["verdict"] == "ok"


def test_a_file_system_that_is_full(host: HealthHost, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw",
        "30 22 0:40 / /tmp rw,nosuid - tmpfs tmpfs rw",
        "31 22 0:50 / /var/lib/docker rw,relatime - nfs4 server:/export rw,hard",
    )
    host.write("/proc/self/mountinfo", "\n".join(lines) + "\n")
    room = {host.root + "/": (1000, 500, 100, 50), host.root + "/tmp": (1000, 9, 100, 50)}

    def statvfs(path: str) -> Any:
        blocks, free, files, free_files = room[path]
        return SimpleNamespace(f_frsize=1 << 20, f_blocks=blocks, f_bavail=free, f_files=files, f_favail=free_files)

    monkeypatch.setattr("os.statvfs", statvfs)
    result = host.check()
    assert (result["verdict"], rows(result)) == ("warn", {"file_system_full"})
    assert "/tmp has 9 of 1000 MiB free" in result["findings"][0]["message"]
    room[host.root + "/tmp"] = (1000, 10, 100, 0)
    assert "/tmp has 0 of 100 inodes free" in host.check()["findings"][0]["message"]
    # Some have no fixed number of inodes.
    room[host.root + "/tmp"] = (1000, 10, 0, 0)
    assert host.check()["verdict"] == "ok"


# Each is mounted as it is on purpose. Bottlerocket: https://github.com/bottlerocket-os/bottlerocket-core-kit/pull/680.
ON_PURPOSE = [
    "22 1 254:0 / / ro,relatime - erofs /dev/dm-0 ro,seclabel,user_xattr,acl,cache_strategy=readaround",
    "22 1 8:2 / / ro,relatime shared:1 - ext4 /dev/sda2 ro",
    "22 1 7:0 / / rw,relatime - squashfs /dev/loop0 ro",
    "22 1 8:2 / / ro,relatime shared:1 - xfs /dev/sda2 rw",
    "22 1 8:2 / /srv rw,relatime shared:1 - ext4 /dev/sda2 ro",
    "22 1 8:2 / / rw,relatime shared:1 - nfs4 server:/root ro",
]


@pytest.mark.parametrize("line", ON_PURPOSE)
def test_a_file_system_that_is_read_only_on_purpose(line: str, host: HealthHost) -> None:
    host.write("/proc/self/mountinfo", f"{line}\n")
    assert host.check()["verdict"] == "ok"


@pytest.mark.parametrize("options", ["ro,errors=remount-ro", "rw,emergency_ro", "rw,shutdown"])
def test_a_file_system_that_the_kernel_made_read_only(options: str, host: HealthHost) -> None:
    host.write("/proc/self/mountinfo", f"22 1 8:2 / /var rw,relatime shared:1 - ext4 /dev/sda2 {options}\n")
    result = host.check()
    assert (result["verdict"], result["remedy"], rows(result)) == ("warn", "inspect", {"file_system_read_only"})
    assert "/var (ext4): mounted read-write, but read-only now" in result["findings"][0]["message"]
    host.write("/run/.containerenv", "")
    assert host.check()["verdict"] == "ok"
