# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot program: GPUs disappear and return, nvidia-smi hangs, plans are damaged; it never reports false success."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import client
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import Smi
from ansible_collections.gpu.fleet.plugins.module_utils._state import boot as boot_entry
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files
from ansible_collections.gpu.fleet.plugins.module_utils._state.plan import StatePlan
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import PLAN_FILE, UNIT, Service
from gpu_simulator.state import store

from tests.checks.controllers import target_pythons
from tests.unit.faults import result
from tests.unit.module_runs import executable
from tests.unit.state.state_host import DECLARED, StateHost, boot_without_program, in_this_process

TARGETS = target_pythons()
REAL_CALL = Smi._call


@pytest.mark.parametrize("option", ["-cgi", "-pl", "-pm"])
def test_a_gpu_that_fails_does_not_keep_the_other_from_being_served(host: StateHost, option: str) -> None:
    first, second = re.findall(r"UUID: (GPU-[^)]*)", host.devices())
    desired = [line for line in host.devices().partition(second)[2].splitlines() if "MIG" in line]
    boot_without_program(host)

    def refuse(words: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        return result(words, 255, "Unknown Error") if option in words and first in words else reply()

    host.intercept = refuse
    assert host.boot_program() == 1
    host.intercept = None
    assert "GPU 0 (" in host.status and "Unknown Error" in host.status and "GPU 1 (" not in host.status
    served = host.gpu(1)
    assert (served["persistence_mode"], served["power_limit_w"] < 600) == (True, True)
    assert [line for line in host.devices().partition(second)[2].splitlines() if "MIG" in line] == desired


def _systemd(host: StateHost) -> Systemd:
    return Systemd(host.units.run, str(host.root / "systemd"), lambda _seconds: None)


class Clock:
    """Time that passes only while nvidia-smi hangs and while the program sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextlib.contextmanager
def _timed(host: StateHost, patch: pytest.MonkeyPatch, clock: Clock) -> Iterator[None]:
    """The boot program with its own timeouts, on simulated time."""
    make = Smi.__init__

    def make_with_sleep(self: Smi, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self.sleep = clock.sleep

    def run_all(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        host.calls += [list(command[1:]) for command in commands]
        results = [host._result(command, host.intercept) for command in commands]
        clock.now += timeout if any(found.timed_out for found in results) else 0.2
        return results

    with patch.context() as patched:
        patched.setattr(Smi, "__init__", make_with_sleep)
        patched.setattr(Smi, "_call", REAL_CALL)
        patched.setattr(client, "run_all", run_all)
        patched.setattr(time, "monotonic", clock)
        yield


HANGS: dict[str, Callable[[Sequence[str]], bool]] = {
    "every call": lambda _words: True,
    "lists of instances": lambda words: "-lgi" in words,
    "changes of instances": lambda words: "-cgi" in words,
    "changes of settings": lambda words: "-pl" in words or "-pm" in words,
    "all but the documents": lambda words: "-q" not in words,
}


@pytest.mark.parametrize("hang", HANGS)
def test_a_hanging_nvidia_smi_is_met_once_and_the_whole_run_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hang: str
) -> None:
    host = StateHost.with_gpus(tmp_path, *["h200"] * 16)
    with in_this_process(monkeypatch, host):
        assert host.state_run(reset="if_required", **DECLARED["h200"]).error is None
        boot_without_program(host)
        plan = state_plan.parse(host.path(PLAN_FILE).read_text())
        unit = service_files.unit_text(Service("/usr/bin/python3", plan.boot_timeout))
        limit = float(re.findall(r"TimeoutStartSec=(\d+)", unit)[0]) - plan.boot_timeout
        clock = Clock()
        host.calls = []

        def stop(words: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
            return result(words, None, timed_out=True) if HANGS[hang](words) else reply()

        with _timed(host, monkeypatch, clock):
            gpus = Smi("nvidia-smi").document().gpus
            began = clock.now
            host.intercept = stop
            boot = boot_entry.Boot(plan, lambda _line, _priority: None, systemd=_systemd(host), clock=clock)
            boot.run(gpus)
            host.intercept = None
        assert boot.failures and clock.now - began < limit - 60
        if hang in ("every call", "lists of instances"):
            assert len(boot.failures) == 1 and "whole host" in boot.failures[0]
            # Each call was made twice, as any call that only reads.
            assert clock.now - began < 5 * plan.timeout
        assert host.boot_program() == 0 or hang == "changes of settings"


def test_a_list_that_reports_a_lost_gpu_is_met_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = StateHost.with_gpus(tmp_path, *["h200"] * 16)
    with in_this_process(monkeypatch, host):
        assert host.state_run(**DECLARED["h200"]).error is None
        boot_without_program(host)
        plan = state_plan.parse(host.path(PLAN_FILE).read_text())
        clock = Clock()
        with _timed(host, monkeypatch, clock):
            gpus = Smi("nvidia-smi").document().gpus
            began = clock.now
            host.intercept = lambda words, reply: result(words, 15, "GPU is lost\n") if "-lgi" in words else reply()
            boot = boot_entry.Boot(plan, lambda _line, _priority: None, systemd=_systemd(host), clock=clock)
            boot.run(gpus)
            host.intercept = None
        assert len(boot.failures) == 1 and "MIG failed on the whole host" in boot.failures[0]
        assert clock.now - began < 60
        assert all(gpu["power_limit_w"] == 500 for gpu in host.state["gpus"])


def test_a_gpu_that_has_gone_is_named_and_the_other_is_served(host: StateHost) -> None:
    uuids = re.findall(r"UUID: (GPU-[^)]*)", host.devices())
    boot_without_program(host)
    Path(host.root / "dev" / "nvidia0").unlink()
    assert host.boot_program() == 1
    assert uuids[0] in host.status and "has gone" in host.status and uuids[1] not in host.status
    assert host.devices().count("MIG-") == 2


def test_a_gpu_that_was_replaced_is_named_with_its_successor(host: StateHost) -> None:
    boot_without_program(host)
    plan = state_plan.parse(host.path(PLAN_FILE).read_text())
    old = replace(plan.gpus[0], uuid="GPU-00000000-0000-0000-0000-000000000001")
    host.path(PLAN_FILE).write_text(state_plan.render(replace(plan, gpus=(old, *plan.gpus[1:]))))
    assert host.boot_program() == 1
    assert f"{old.uuid} (" in host.status and f"was replaced by {plan.gpus[0].uuid}" in host.status
    assert any("not in the plan, left as it is" in line for line in host.log)
    assert host.devices().count("MIG-") == 2 and host.gpu(1)["persistence_mode"] is True
    assert host.gpu(0)["persistence_mode"] is False


def test_another_ecc_mode_than_the_declared_is_reported(host: StateHost) -> None:
    plan = state_plan.parse(host.path(PLAN_FILE).read_text())
    without = tuple(replace(gpu, ecc=False) for gpu in plan.gpus)
    host.path(PLAN_FILE).write_text(state_plan.render(replace(plan, gpus=without)))
    assert host.boot_program() == 1
    assert "ECC is enabled, declared disabled" in host.status


def test_instances_with_other_uuids_are_reported(host: StateHost) -> None:
    text = host.path(PLAN_FILE).read_text()
    uuid = re.findall(r'"(MIG-[^"]*)"', text)[0]
    host.path(PLAN_FILE).write_text(text.replace(uuid, "MIG-00000000-0000-0000-0000-000000000000"))
    assert host.boot_program() == 0
    assert any("MIG-00000000-0000-0000-0000-000000000000" in line for line in host.log)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 2}', '{"version": 1, "gpus": 7}', "null", "\0"])
def test_a_damaged_plan_is_an_error_with_its_reason(tmp_path: Path, text: str, capsys: Any) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    assert boot_entry.main([str(path)]) == 1
    assert capsys.readouterr().out.startswith("FAILED: the plan ")


def _plan(**changes: Any) -> str:
    """A plan of two GPUs as the module writes it; `changes` by path, as in `gpus.0.mig.enabled`; `...` removes."""
    mig = state_plan.PlannedMig(True, ("1g.18gb:0",), (state_plan.PlannedDevice("1g.18gb:0", "MIG-1"),))
    gpu = state_plan.PlannedGpu("GPU-1", "00000000:06:00.0", "NVIDIA H200", True, {"power_limit_w": "500"}, mig)
    document = json.loads(state_plan.render(StatePlan(gpus=(gpu, replace(gpu, uuid="GPU-2")))))
    for path, value in changes.items():
        *parents, last = path.split(".")
        at: Any = document
        for part in parents:
            at = at[int(part)] if part.isdigit() else at[part]
        key: Any = int(last) if last.isdigit() else last
        if value is ...:
            del at[key]
        else:
            at[key] = value
    return json.dumps(document)


WRONG: dict[str, list[Any]] = {
    "version": ["1", None, 2],
    "executable": [None, 7, ["nvidia-smi"]],
    "timeout": [None, "x", True, -1, [60]],
    "reset": ["false", None, 0, 1],
    "boot_timeout": [None, "x", True, -1, 1.5],
    "clients": [None, "docker", [None], {"docker": 1}],
    "gpus": [None, {}, 7, "all", [None], [[]]],
    "gpus.0.uuid": [None, 7, "GPU-2", ...],
    "gpus.0.pci_bus_id": [7, ...],
    "gpus.0.name": [["NVIDIA H200"], ...],
    "gpus.0.ecc": ["false", 0, 1, [], ...],
    "gpus.0.settings": [None, [], "x", ...],
    "gpus.0.settings.power_limit_w": [None, True, {}, "much"],
    "gpus.0.settings.persistence_mode": ["true", 1, {}],
    "gpus.0.settings.gpus": [["all"]],
    "gpus.0.mig": [False, True, [], "x", ...],
    "gpus.0.mig.enabled": [None, "false", 0, False, ...],
    "gpus.0.mig.profiles": [{"1g.18gb": 1}, "1g.18gb", [None], [["1g.18gb"]], ["x"], ...],
    "gpus.0.mig.devices": [None, {}, [None], [{"place": 1, "uuid": None}], [{"place": "1g.18gb:0"}], ...],
}


@pytest.mark.parametrize("path", WRONG)
def test_a_plan_that_the_module_cannot_have_written_is_refused_as_a_whole(path: str) -> None:
    assert len(state_plan.parse(_plan()).gpus) == 2
    for value in WRONG[path]:
        with pytest.raises(ChangeError, match=r"^the plan cannot be read: .*run gpu_state again$") as raised:
            state_plan.parse(_plan(**{path: value}))
        assert len(str(raised.value)) < 400


def test_a_refused_plan_serves_no_gpu(host: StateHost, capsys: Any) -> None:
    boot_without_program(host)
    fields = json.loads(host.path(PLAN_FILE).read_text())
    fields["gpus"][1]["mig"]["enabled"] = None
    host.path(PLAN_FILE).write_text(json.dumps(fields))
    before = host.snapshot()
    assert boot_entry.main([str(host.path(PLAN_FILE))]) == 1
    assert "enabled is true or false, not None" in capsys.readouterr().out
    assert host.snapshot() == before


def test_a_missing_driver_is_an_error_at_once(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "plan.json"
    path.write_text(state_plan.render(StatePlan(executable="/nonexistent/nvidia-smi")))
    assert boot_entry.main([str(path)]) == 1
    assert "/nonexistent/nvidia-smi is not there" in capsys.readouterr().out


def test_a_driver_that_comes_late_is_waited_for_and_not_for_ever(host: StateHost) -> None:
    plan = replace(state_plan.parse(host.path(PLAN_FILE).read_text()), executable=str(executable(host.root)))
    sleeps: list[float] = []

    def load(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            with store.transaction(str(host.root)) as state:
                state["driver"]["loaded"] = state["driver"]["installed"]

    with store.transaction(str(host.root)) as state:
        state["driver"]["loaded"] = None
    assert len(boot_entry.wait_for_gpus(plan, load, lambda: 0.0)) == 2
    assert len(sleeps) == 3
    with store.transaction(str(host.root)) as state:
        state["driver"]["loaded"] = None
    times = iter([0.0, 10.0, 50.0, 100.0, 1799.0, 1800.0])
    reported: list[str] = []
    with pytest.raises(ChangeError, match="driver did not respond within 1800 s"):
        boot_entry.wait_for_gpus(
            plan, lambda _seconds: None, lambda: next(times), lambda line, _priority: reported.append(line)
        )
    # Not one line per attempt.
    assert [line.split(":")[0] for line in reported] == [
        f"waiting for the driver, {left} s at most" for left in (1790, 1700, 1)
    ]


def test_status_reaches_systemd(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stream:
        stream.bind(address)
        boot_entry.notify("GPU 0\nhas gone", address)
        assert stream.recv(1000) == b"STATUS=GPU 0 has gone"
    boot_entry.notify("nobody listens", str(tmp_path / "none"))


@pytest.mark.skipif(os.geteuid() != 0, reason="the lock of the program is in /run/gpu-fleet, where only root can write")
@pytest.mark.parametrize("python", TARGETS.values(), ids=lambda path: path.parent.parent.name)
def test_what_is_installed_is_all_the_program_needs(host: StateHost, python: Path) -> None:
    """Run by each supported Python as the service runs it: isolated, with no Ansible to import."""
    boot_without_program(host)
    desired = [row["uuid"] for row in host.state["gpus"]]
    plan = host.path(PLAN_FILE)
    program = str(executable(host.root))
    saved = state_plan.parse(plan.read_text())
    plan.write_text(state_plan.render(replace(saved, executable=program)))
    completed = subprocess.run(
        [python, "-I", "-S", "-B", host.path(service_files.PROGRAM), plan],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert all(uuid in completed.stdout for uuid in desired)
    assert host.devices().count("MIG-") == 4


def test_installed_files_are_those_that_python_imports() -> None:
    """Compared with the modules that a new interpreter loads with the program's first module."""
    entry = boot_entry.__name__
    package = entry.rpartition(".")[0].rpartition(".")[0]
    code = (
        f"import sys, {entry}; "
        f"print(*[n for n, m in sys.modules.items() if n.startswith('{package}._') and m.__file__ is not None])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    ).stdout.split()
    files = {path for path in service_files.program_files() if not path.endswith("/__init__.py")}
    assert files == {f"{service_files.PROGRAM}/__main__.py"} | {
        f"{service_files.PROGRAM}/{name.replace('.', '/')}.py" for name in loaded
    }


def test_unit_starts_the_program_with_the_plan() -> None:
    text = service_files.unit_text(Service("/usr/bin/python3"))
    assert f"ExecStart=/usr/bin/python3 -I -S -B {service_files.PROGRAM} {PLAN_FILE}\n" in text
    assert Path(service_files.UNIT_FILE).name == UNIT
    # Units that require it would not start if it fails.
    assert "RequiredBy" not in text and "WantedBy=multi-user.target" in text


CONFINED = ("MemoryDenyWriteExecute=yes", "SystemCallFilter=@system-service @module", "RestrictAddressFamilies=AF_UNIX")
# Each would block device files, module loading or the driver's files in /proc.
TOO_MUCH = (
    "ProtectClock=",
    "PrivateDevices=",
    "DevicePolicy=",
    "ProtectKernelModules=",
    "PrivateUsers=",
    "ProcSubset=",
    "ProtectProc=",
    "ProtectControlGroups=",
)


def test_unit_is_confined_as_far_as_the_driver_bears() -> None:
    lines = service_files.unit_text(Service("/usr/bin/python3")).splitlines()
    assert [line for line in CONFINED if line not in lines] == []
    assert [line for line in lines if line.startswith(TOO_MUCH)] == []


def _values(text: str, key: str) -> set[str]:
    return {name for line in text.splitlines() if line.startswith(f"{key}=") for name in line.split("=", 1)[1].split()}


def test_unit_comes_after_what_makes_the_driver_and_before_all_that_uses_it() -> None:
    text = service_files.unit_text(Service("/usr/bin/python3", 600, ("mine.service", "mine.socket", "dkms.service")))
    before, after = _values(text, "Before"), _values(text, "After")
    users = (
        "docker containerd crio kubelet k3s k3s-agent rke2-server rke2-agent slurmd nvidia-dcgm dcgm dcgm-exporter mine"
    )
    assert {f"{name}.service" for name in users.split()} | {"nvidia-device-plugin.service"} <= before
    assert {"dkms.service", "akmods.service", "nvidia-persistenced.service"} <= after
    # Sockets are active long before; a unit in both Before and After would be an ordering cycle.
    assert "mine.socket" not in before and not before & after
    assert "\nTimeoutStartSec=1200\n" in text


def test_unit_does_not_wait_for_a_daemon_that_waits_for_the_whole_boot(host: StateHost) -> None:
    fabric_manager = "nvidia-fabricmanager.service"
    declared: dict[str, Any] = {"persistence_mode": True}
    host.units.active[fabric_manager] = "active"
    for after, waits in (("basic.target network.target", True), ("basic.target multi-user.target", False)):
        host.units.after[fabric_manager] = after
        assert host.state_run(**declared).error is None
        text = host.path(service_files.UNIT_FILE).read_text()
        assert (fabric_manager in _values(text, "After"), fabric_manager in _values(text, "Before")) == (waits, False)


def test_clients_blocking_are_stopped_at_boot_as_in_the_run(host: StateHost) -> None:
    plan = state_plan.parse(host.path(PLAN_FILE).read_text())
    host.path(PLAN_FILE).write_text(state_plan.render(replace(plan, clients=("mine",))))
    for name in ("nvidia-persistenced.service", "nvidia-dcgm.service", "mine.service"):
        host.units.active[name] = "active"
    host.units.log = []
    # MIG mode of Ampere persists over a reboot, so that only instances are created there.
    boot_without_program(host)
    assert host.boot_program() == 0
    is_hopper = "H200" in host.devices()
    assert host.units.log == (
        [
            "stop mine.service nvidia-dcgm.service nvidia-persistenced.service",
            "start nvidia-persistenced.service",
            # They are ordered after this service: waiting for them would be a deadlock.
            "start --no-block nvidia-dcgm.service",
            "start --no-block mine.service",
        ]
        if is_hopper
        else []
    )
    host.units.log = []
    assert host.boot_program() == 0 and host.units.log == []


def test_clients_of_a_change_that_fails_at_boot_run_again(host: StateHost) -> None:
    host.units.active["nvidia-persistenced.service"] = "active"
    boot_without_program(host)

    def refuse(words: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        return result(words, 255, "Unknown Error") if "-mig" in words or "-cgi" in words else reply()

    host.intercept = refuse
    assert host.boot_program() == 1
    host.intercept = None
    assert host.units.active["nvidia-persistenced.service"] == "active"


def _check(host: StateHost, capsys: Any) -> tuple[int, str]:
    plan = state_plan.parse(host.path(PLAN_FILE).read_text())
    host.path(PLAN_FILE).write_text(state_plan.render(replace(plan, executable=str(executable(host.root)))))
    capsys.readouterr()
    status = boot_entry.main(["--check", str(host.path(PLAN_FILE))])
    return status, capsys.readouterr().out


def test_check_shows_what_would_be_changed_and_changes_nothing(host: StateHost, capsys: Any) -> None:
    status, text = _check(host, capsys)
    assert (status, text.count(": as saved")) == (boot_entry.AS_SAVED, 2)
    boot_without_program(host)
    host.call("-i", "1", "-pl", "250")
    before = host.snapshot()
    status, text = _check(host, capsys)
    assert status == boot_entry.DIFFERS and text.count(": would be changed") == 2, text
    assert "  - power_limit_w: 250" in text and "  + persistence_mode: enabled" in text and "3g." in text, text
    assert "systemctl restart gpu-fleet-state.service" in text
    assert host.state == before
    assert host.boot_program() == 0
    assert _check(host, capsys)[0] == boot_entry.AS_SAVED


def test_check_reports_what_the_service_cannot_mend(host: StateHost, capsys: Any) -> None:
    Path(host.root / "dev" / "nvidia0").unlink()
    status, text = _check(host, capsys)
    assert status == boot_entry.DIFFERS and "problem: GPU-" in text and "has gone" in text


@pytest.mark.parametrize("arguments", [["--check", "/nonexistent"], [], ["--unknown"], ["a", "b"]])
def test_what_cannot_be_found_out_ends_with_2(arguments: list[str], capsys: Any) -> None:
    try:
        status = boot_entry.main(arguments)
    except SystemExit as end:
        status = int(str(end.code))
    assert status == boot_entry.FAILED and capsys.readouterr().err != ""


def test_lines_have_priorities_in_the_journal_and_nowhere_else(
    host: StateHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "journal").open("w+") as journal:
        status = os.fstat(journal.fileno())
        monkeypatch.setattr("sys.stdout", journal)
        boot_entry.log("FAILED: a\nb", boot_entry.ERROR)
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        boot_entry.log("FAILED: a\nb", boot_entry.ERROR)
        boot_entry.log("news")
        journal.seek(0)
        assert journal.read() == "FAILED: a b\n<3>FAILED: a b\n<6>news\n"
    text = host.path(PLAN_FILE).read_text()
    uuid = re.findall(r'"(MIG-[^"]*)"', text)[0]
    host.path(PLAN_FILE).write_text(text.replace(uuid, "MIG-00000000-0000-0000-0000-000000000000"))
    reported: list[tuple[str, int]] = []
    plan = state_plan.parse(host.path(PLAN_FILE).read_text())
    boot = boot_entry.Boot(replace(plan, gpus=plan.gpus[:1]), lambda line, priority: reported.append((line, priority)))
    boot.run(boot_entry.wait_for_gpus(replace(plan, executable=str(executable(host.root)))))
    assert {priority for line, priority in reported if "are gone" in line or "not in the plan" in line} == {
        boot_entry.WARNING
    }
