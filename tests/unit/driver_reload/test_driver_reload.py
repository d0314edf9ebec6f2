# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module driver_reload with a simulated kernel: what it reloads, what it leaves alone, and its messages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._cuda import reload as module_reload
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.driver import Driver, read_driver
from ansible_collections.gpu.fleet.plugins.module_utils._cuda.reload import Host, converge, decide
from ansible_collections.gpu.fleet.plugins.modules import driver_reload

OLD, NEW = "550.163.01", "580.159.04"
PERSISTENCED, FABRIC_MANAGER = "nvidia-persistenced.service", "nvidia-fabricmanager.service"
NVRM = {
    "open": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build\n",
    "proprietary": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Tue Jul\n",
}


class Machine:
    """A kernel below a directory: /sys/module, /proc, the file that modinfo reads, and the running units."""

    def __init__(self, root: Path, on_disk: str | None = NEW, kind: str = "open") -> None:
        self.root = root
        self.on_disk = on_disk
        self.kind = kind
        self.calls: list[tuple[str, ...]] = []
        self.running: set[str] = set()
        self.daemons: dict[str, int] = {}
        self.removed: set[str] = set()  # daemons whose unit files have been removed
        self.refusals: dict[tuple[str, ...], str] = {}
        self.configured = "EnableGpuFirmware: 18\n"  # what /etc/modprobe.d makes of the parameters
        for directory in ("proc", "sys/module", "usr/lib64"):
            (root / directory).mkdir(parents=True)
        if on_disk:
            (root / f"usr/lib64/libnvidia-ml.so.{on_disk}").touch()
            (root / "usr/lib64/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{on_disk}")

    def insert(self, *modules: str, version: str, kind: str = "open") -> None:
        """Load modules into the kernel."""
        for name in modules:
            (self.root / "sys/module" / name / "holders").mkdir(parents=True, exist_ok=True)
            (self.root / "sys/module" / name / "refcnt").write_text("0\n")
        if "nvidia" in modules:
            (self.root / "proc/driver/nvidia").mkdir(parents=True, exist_ok=True)
            (self.root / "proc/driver/nvidia/version").write_text(NVRM[kind].format(version))
            (self.root / "proc/driver/nvidia/params").write_text(self.configured)

    def hold(self, pid: int, name: str, device: str = "/dev/nvidia0") -> None:
        """Let a process hold a device file open."""
        (self.root / f"proc/{pid}/fd").mkdir(parents=True)
        (self.root / f"proc/{pid}/comm").write_text(f"{name}\n")
        (self.root / f"proc/{pid}/fd/3").symlink_to(device)

    def serve(self, unit: str, pid: int, name: str) -> None:
        """Run a unit whose process holds a GPU."""
        self.daemons[unit] = pid
        self.running.add(unit)
        self.hold(pid, name)

    @property
    def modules(self) -> set[str]:
        return {path.name for path in (self.root / "sys/module").iterdir()}

    def run(self, commands: Sequence[Sequence[str]], timeout: float) -> tuple[CommandResult, ...]:
        """Run the programs of the host."""
        assert timeout > 0
        return tuple(self._reply((Path(argv[0]).name, *argv[1:])) for argv in commands)

    def _reply(self, argv: tuple[str, ...]) -> CommandResult:
        if argv[0] == "modinfo":
            text = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}[self.kind]
            known = self.on_disk is not None
            return _result(argv, 0 if known else 1, f"version: {self.on_disk}\nlicense: {text}\n" if known else "")
        if argv[1:2] == ("--no-pager",):
            return self._systemctl(argv)
        self.calls.append(argv)
        if argv in self.refusals:
            return _result(argv, 1, "", self.refusals[argv])
        if argv[1] == "--remove":
            for name in argv[2:]:
                shutil.rmtree(self.root / "sys/module" / name)
            shutil.rmtree(self.root / "proc/driver", ignore_errors=True)
        else:
            self.insert(argv[1], version=self.on_disk or "", kind=self.kind)
        return _result(argv, 0)

    def _systemctl(self, argv: tuple[str, ...]) -> CommandResult:
        verb, names = argv[2], [name for name in argv[3:] if not name.startswith("--")]
        if verb == "show":
            text = "\n\n".join(
                f"Id={name}\nLoadState=loaded\nActiveState={'active' if name in self.running else 'inactive'}"
                f"\nNeedDaemonReload={'yes' if name in self.removed else 'no'}"
                for name in names
                if name in self.daemons
            )
            return _result(argv, 0, text)
        self.calls.append((verb, *names))
        if verb == "daemon-reload":
            self.daemons = {name: pid for name, pid in self.daemons.items() if name not in self.removed}
        for name in names:
            if verb == "stop":
                self.running.discard(name)
                shutil.rmtree(self.root / f"proc/{self.daemons[name]}")
            else:
                self.running.add(name)
        return _result(argv, 0)


def _result(argv: tuple[str, ...], status: int, out: str = "", error: str = "") -> CommandResult:
    return CommandResult(argv, status, out.encode(), error.encode(), 0.0)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A host with the old driver loaded and the new one on disk."""
    made = Machine(tmp_path)
    made.insert("nvidia", "nvidia_uvm", version=OLD)
    return made


def reload(machine: Machine, check_mode: bool = False, parameters: dict[str, str] | None = None) -> dict[str, Any]:
    systemd = Systemd(machine.run, booted=str(machine.root))
    host = Host(machine.run, str(machine.root), 10.0, parameters)
    return converge(host, systemd, (FABRIC_MANAGER, PERSISTENCED), check_mode)


def test_reload_when_nothing_holds_it(machine: Machine) -> None:
    result = reload(machine)
    assert machine.calls == [
        ("modprobe", "--remove", "nvidia_uvm", "nvidia"),
        ("modprobe", "nvidia"),
        ("modprobe", "nvidia_uvm"),
    ]
    assert (result["changed"], result["action"], result["reboot_required"]) == (True, "reload", False)
    assert (result["loaded_version_before"], result["loaded_version"]) == (OLD, NEW)
    assert (result["reason"], result["blockers"]) == (None, [])
    assert reload(machine)["changed"] is False


def test_a_driver_with_other_parameters_is_reloaded(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.insert("nvidia", "nvidia_uvm", version=NEW)
    machine.configured = "EnableGpuFirmware: 0\n"
    desired = {"NVreg_EnableGpuFirmware": "0"}
    assert reload(machine)["action"] == "none"
    assert reload(machine, parameters=desired)["changed"] is True
    assert machine.calls[0] == ("modprobe", "--remove", "nvidia_uvm", "nvidia")
    assert reload(machine, parameters=desired)["action"] == "none"


def test_other_parameters_take_a_reboot_while_the_driver_is_in_use(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.insert("nvidia", version=NEW)
    machine.hold(4711, "trainer")
    result = reload(machine, parameters={"NVreg_EnableGpuFirmware": "0"})
    assert (result["changed"], result["reboot_required"]) == (False, True)
    assert result["reason"] == "trainer (PID 4711) holds /dev/nvidia0"


def test_parameters_that_the_driver_did_not_take_are_an_error(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.insert("nvidia", version=NEW)
    with pytest.raises(RunError, match="loaded with NVreg_EnableGpuFirmware=18, and 0 is configured"):
        reload(machine, parameters={"NVreg_EnableGpuFirmware": "0"})


def test_modules_for_displays_come_back(machine: Machine) -> None:
    machine.insert("nvidia_modeset", "nvidia_drm", version=OLD)
    reload(machine)
    assert machine.calls[0] == ("modprobe", "--remove", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
    assert machine.modules == {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"}


def test_services_let_go_and_come_back(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.serve(FABRIC_MANAGER, 101, "nv-fabricmanage")
    result = reload(machine)
    assert machine.calls[0] == ("stop", FABRIC_MANAGER, PERSISTENCED)
    assert machine.calls[-2:] == [("start", PERSISTENCED), ("start", FABRIC_MANAGER)]
    assert result["stopped_services"] == [FABRIC_MANAGER, PERSISTENCED]
    assert result["loaded_version"] == NEW


def test_mps_stops_first_and_comes_back_last_unless_it_has_clients(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.serve(gpu_clients.MPS, 102, "nvidia-cuda-mps")
    monkeypatch.setattr(gpu_clients, "mps_clients", lambda: ["python3 (PID 597)"])
    systemd, host = Systemd(machine.run, booted=str(machine.root)), Host(machine.run, str(machine.root), 10.0, None)
    names = gpu_clients.clients(())
    with pytest.raises(RunError, match=r"which ends its clients: python3 \(PID 597\)"):
        converge(host, systemd, names, False)
    assert machine.calls == [] and machine.running >= {PERSISTENCED, gpu_clients.MPS}
    monkeypatch.setattr(gpu_clients, "mps_clients", list)
    assert converge(host, systemd, names, False)["loaded_version"] == NEW
    assert machine.calls[0] == ("stop", gpu_clients.MPS, PERSISTENCED)
    assert machine.calls[-2:] == [("start", PERSISTENCED), ("start", gpu_clients.MPS)]


def test_a_service_whose_package_is_gone_does_not_come_back(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.serve(FABRIC_MANAGER, 101, "nv-fabricmanage")
    machine.removed = {PERSISTENCED}
    result = reload(machine)
    assert machine.calls[0] == ("stop", FABRIC_MANAGER, PERSISTENCED)
    assert machine.calls[-2:] == [("daemon-reload",), ("start", FABRIC_MANAGER)]
    assert machine.running == {FABRIC_MANAGER}
    assert result["loaded_version"] == NEW


def test_a_process_is_named_and_nothing_is_unloaded(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.hold(4711, "trainer", "/dev/nvidia-uvm")
    result = reload(machine)
    assert ("modprobe", "--remove", "nvidia_uvm", "nvidia") not in machine.calls
    assert machine.running == {PERSISTENCED}
    assert (result["changed"], result["reboot_required"], result["loaded_version"]) == (False, True, OLD)
    assert result["reason"] == "trainer (PID 4711) holds /dev/nvidia-uvm"
    assert result["blockers"] == [{"name": "trainer", "pid": 4711, "device": "/dev/nvidia-uvm", "stop": None}]


def test_modules_of_gpudirect_are_unloaded_first_and_loaded_again(machine: Machine) -> None:
    machine.insert("gdrdrv", "nvidia_fs", version=OLD)
    for name in ("gdrdrv", "nvidia_fs"):
        (machine.root / "sys/module/nvidia/holders" / name).mkdir()
    (machine.root / "sys/module/nvidia/refcnt").write_text("2\n")
    assert reload(machine)["loaded_version"] == NEW
    assert ("modprobe", "--remove", "gdrdrv", "nvidia_fs", "nvidia_uvm", "nvidia") in machine.calls
    assert {("modprobe", "gdrdrv"), ("modprobe", "nvidia_fs")} <= {*machine.calls}


def test_a_module_of_another_admin_is_named(machine: Machine) -> None:
    (machine.root / "sys/module/nvidia/holders/nv_peer_mem").mkdir()
    (machine.root / "sys/module/nvidia/refcnt").write_text("1\n")
    result = reload(machine)
    assert "kernel module nv_peer_mem holds nvidia: stop what uses it, then modprobe -r nv_peer_mem" in result["reason"]
    assert result["reboot_required"]


def test_a_use_that_cannot_be_seen_counts(machine: Machine) -> None:
    (machine.root / "sys/module/nvidia/holders/nvidia_uvm").mkdir()
    (machine.root / "sys/module/nvidia/refcnt").write_text("3\n")
    assert "processes that are not visible here" in reload(machine)["reason"]
    assert machine.calls == []
    # For an idle driver the count is the number of modules that use it.
    (machine.root / "sys/module/nvidia/refcnt").write_text("1\n")
    assert reload(machine)["reason"] is None


def test_the_kernel_may_refuse_to_unload(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.refusals[("modprobe", "--remove", "nvidia_uvm", "nvidia")] = "modprobe: FATAL: Module nvidia is in use."
    result = reload(machine)
    assert result["reason"] == "nvidia_uvm and nvidia cannot be unloaded: modprobe: FATAL: Module nvidia is in use."
    assert result["reboot_required"]
    assert machine.running == {PERSISTENCED}


def test_a_driver_that_is_not_loaded_is_loaded(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    result = reload(machine)
    assert (result["action"], result["changed"], result["loaded_version"]) == ("load", True, NEW)
    assert machine.calls == [("modprobe", "nvidia"), ("modprobe", "nvidia_uvm")]


def test_nouveau_gives_way(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.insert("nouveau", version="")
    result = reload(machine)
    assert machine.calls[0] == ("modprobe", "--remove", "nouveau")
    assert result["loaded_version"] == NEW


def test_nouveau_in_use_needs_a_reboot(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.insert("nouveau", version="")
    machine.refusals[("modprobe", "--remove", "nouveau")] = "modprobe: FATAL: Module nouveau is in use."
    result = reload(machine)
    assert (result["changed"], result["reboot_required"]) == (False, True)
    assert result["reason"] == "nouveau cannot be unloaded: modprobe: FATAL: Module nouveau is in use."
    assert machine.modules == {"nouveau"}


def test_a_kernel_without_the_module_needs_a_reboot(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    message = "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.1.0"
    machine.refusals[("modprobe", "nvidia")] = message
    machine.on_disk = None  # for modinfo; the library exists
    result = reload(machine)
    assert (result["reboot_required"], result["installed_version"]) == (True, NEW)
    assert result["reason"] == f"there is no module for the kernel that runs: {message}"


def test_a_rejected_key_is_explained_and_services_come_back(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.refusals[("modprobe", "nvidia")] = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"
    with pytest.raises(RunError, match=r"Key was rejected by service \(Secure Boot is on.*docs/secure-boot") as caught:
        reload(machine)
    assert caught.value.result["changed"] is True, "the old one is out of the kernel"
    assert machine.running == {PERSISTENCED}


def test_success_is_what_was_read_not_what_modprobe_states(machine: Machine) -> None:
    original = machine.run

    def lying(commands: Sequence[Sequence[str]], timeout: float) -> tuple[CommandResult, ...]:
        results = original(commands, timeout)
        machine.insert("nvidia", version=OLD)
        return results

    with pytest.raises(
        RunError, match=f"modprobe reported no error, but driver {OLD} is loaded, and {NEW} is installed"
    ):
        converge(Host(lying, str(machine.root), 10.0), Systemd(machine.run, booted="/none"), (), False)


def test_check_mode_predicts_and_touches_nothing(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    result = reload(machine, check_mode=True)
    assert (result["changed"], result["loaded_version"], result["reboot_required"]) == (True, NEW, False)
    assert result["stopped_services"] == [PERSISTENCED]
    machine.hold(4711, "trainer")
    held = reload(machine, check_mode=True)
    assert held["stopped_services"] == []
    assert (held["changed"], held["loaded_version"], held["reboot_required"]) == (False, OLD, True)
    assert held["reason"] == "trainer (PID 4711) holds /dev/nvidia0"
    assert machine.calls == []


DRIVER = read_driver(HostFiles("/nowhere"), "", "")
DECISIONS: list[tuple[Driver, str]] = [
    (DRIVER, "none"),
    (replace(DRIVER, loaded=True, loaded_version=OLD), "none"),
    (replace(DRIVER, library_version=NEW), "load"),
    (replace(DRIVER, loaded=True, loaded_version=NEW, module_version=NEW, library_version=NEW), "none"),
    (replace(DRIVER, loaded=True, loaded_version=OLD, library_version=NEW), "reload"),
    (replace(DRIVER, loaded=True, loaded_version=OLD, module_version=NEW, library_version=OLD), "reload"),
    (
        replace(DRIVER, loaded=True, loaded_version=NEW, loaded_kind="open", module_version=NEW, module_kind="open"),
        "none",
    ),
    (
        replace(
            DRIVER, loaded=True, loaded_version=NEW, loaded_kind="proprietary", module_version=NEW, module_kind="open"
        ),
        "reload",
    ),
]


@pytest.mark.parametrize(("driver", "action"), DECISIONS)
def test_what_is_due(driver: Driver, action: str) -> None:
    assert decide(driver).action == action


def test_the_module_returns_what_it_documents(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module_reload, "Host", lambda **options: Host(machine.run, str(machine.root), **options))
    monkeypatch.setattr(module_reload, "Systemd", lambda: Systemd(machine.run, booted="/none"))
    with patch_module_args({"timeout": 5}), pytest.raises(SystemExit) as caught:
        driver_reload.main()
    assert caught.value.code == 0
    result = json.loads(capsys.readouterr().out)
    documented = {line[:-1] for line in driver_reload.RETURN.splitlines() if line and not line[0].isspace()}
    assert documented == result.keys() - {"changed", "invocation"}
    assert result["commands"][0] == "modprobe --remove nvidia_uvm nvidia"


def test_facts_ask_for_a_reboot_for_the_other_kind_of_the_same_version(machine: Machine) -> None:
    machine.insert("nvidia", version=NEW, kind="proprietary")
    for license_text, expected in (("Dual MIT/GPL", True), ("NVIDIA", False)):
        text = f"version: {NEW}\nlicense: {license_text}\n"
        assert read_driver(HostFiles(str(machine.root)), text, "").reboot_required is expected


def test_who_uses_the_driver_is_reported_although_nothing_is_due(tmp_path: Path) -> None:
    """The role asks in check mode before packages are replaced, while loaded and installed driver are the same."""
    machine = Machine(tmp_path)
    machine.insert("nvidia", "nvidia_uvm", version=NEW)
    assert reload(machine, check_mode=True)["users"] == []
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.hold(4711, "trainer", "/dev/nvidia-uvm")
    result = reload(machine, check_mode=True)
    assert (result["action"], result["changed"], result["blockers"]) == ("none", False, [])
    assert result["users"] == [{"name": "trainer", "pid": 4711, "device": "/dev/nvidia-uvm", "stop": None}]
    assert machine.calls == []


def test_of_the_files_that_a_job_holds_that_of_its_gpu_is_named(tmp_path: Path) -> None:
    """As PyTorch holds them on a host with two H100."""
    machine = Machine(tmp_path)
    machine.insert("nvidia", version=NEW)
    machine.hold(4711, "python3", "/dev/nvidiactl")
    for number, device in enumerate(("nvidia-caps/nvidia-cap1", "nvidia-uvm", "nvidia10", "nvidia1"), start=4):
        (machine.root / f"proc/4711/fd/{number}").symlink_to(f"/dev/{device}")
    assert [user["device"] for user in reload(machine, check_mode=True)["users"]] == ["/dev/nvidia1"]


def test_a_daemon_is_known_by_the_unit_that_started_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.insert("nvidia", version=NEW)
    machine.serve(FABRIC_MANAGER, 101, "nv-fabric-local")
    machine.hold(102, "nv-fabric-local")
    (tmp_path / "proc/101/cgroup").write_text(f"0::/system.slice/{FABRIC_MANAGER}\n")
    (tmp_path / "proc/102/cgroup").write_text("0::/system.slice/docker-0a1b.scope\n")
    assert [user["pid"] for user in reload(machine, check_mode=True)["users"]] == [102]


def test_a_stop_that_fails_has_stopped_some_services(machine: Machine) -> None:
    machine.serve(PERSISTENCED, 100, "nvidia-persiste")
    machine.serve(FABRIC_MANAGER, 101, "nv-fabricmanage")

    def run(commands: Sequence[Sequence[str]], timeout: float) -> tuple[CommandResult, ...]:
        results = machine.run(commands, timeout)
        if commands[0][2:3] == ("stop",):
            return (_result(tuple(commands[0]), 1, "", "Job for nvidia-persistenced.service canceled."),)
        return results

    systemd = Systemd(run, booted=str(machine.root))
    with pytest.raises(RunError, match="canceled") as caught:
        converge(Host(machine.run, str(machine.root), 10.0), systemd, (FABRIC_MANAGER, PERSISTENCED), False)
    result = caught.value.result
    assert result["changed"] is True and set(result["stopped_services"]) == {FABRIC_MANAGER, PERSISTENCED}
    assert result["loaded_version"] == OLD and machine.running == {FABRIC_MANAGER, PERSISTENCED}
