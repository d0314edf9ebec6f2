# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host whose health is checked by the whole module."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._health import run as health_run
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from ansible_collections.gpu.fleet.plugins.modules import gpu_health
from gpu_simulator.control import xid
from gpu_simulator.host import nics, pci
from gpu_simulator.state import catalogue, store

from tests.unit.gpu_simulator_changes.hosts import Host
from tests.unit.module_runs import executable, run_module

LOG = "/kernel.log"
BOOT_TIME = 1_700_000_000
NOW = BOOT_TIME + 3600.0


class HealthHost(Host):
    """A host with a kernel log, a history and no services.

    `now` is the time of the next check, `programs` are the outputs of programs by name.
    """

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **description: Any) -> None:
        super().__init__(directory, **{"gpus": [{"model": "h200", "count": 2}], **description})
        self.path = directory
        self.now = NOW
        self.programs = {"timedatectl": "yes\n"}
        self._monkeypatch = monkeypatch
        self._smi = executable(directory)
        self._boots = 0
        self._shows_pci_bus = False
        self.start_boot()
        nics.show(self.root, self.state)
        monkeypatch.setattr(pci_bus, "DEVICES", str(directory / "sys" / "bus" / "pci" / "devices"))
        monkeypatch.setattr(pci_bus, "DRIVEN", str(directory / "proc" / "driver" / "nvidia" / "gpus"))
        monkeypatch.setattr(pci_bus, "PARAMETERS", str(directory / "proc" / "driver" / "nvidia" / "params"))
        monkeypatch.setattr(smi_facts, "LOADED_VERSION", str(directory / "no-driver"))
        monkeypatch.setattr(health_run, "run_program", self._program)
        self.systemd = Systemd(booted=str(directory / "no-systemd"))
        monkeypatch.setattr(health_run, "Systemd", lambda: self.systemd)

    def _program(self, argv: Any, _timeout: float) -> CommandResult:
        return CommandResult(tuple(argv), 0, self.programs[Path(argv[0]).name].encode(), b"", 0.0)

    def start_boot(self) -> None:
        """Reboot: the kernel log is empty, and the boot has another id."""
        if self._boots:
            self.control("boot")
            self.now += 600.0
        self._boots += 1
        self.write("/proc/sys/kernel/random/boot_id", f"boot-{self._boots}\n")
        self.write("/proc/stat", f"btime {int(self.now) - 3600}\n")

    def write(self, path: str, text: str) -> None:
        """Write a file of the host."""
        target = Path(self.root + path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def show_pci_bus(self) -> None:
        """Have the GPUs in sysfs, as far as they are identified there; from now on at each check."""
        self._shows_pci_bus = True
        for gpu in self.state["gpus"]:
            device = pci.PciDevice(gpu, catalogue.load(gpu["model"]))
            self.show_pci_device(
                device.address,
                driver="vfio-pci" if device.passed_through else "nvidia",
                **{name: device.files()[name].decode() for name in ("vendor", "device", "class")},
            )

    def show_pci_device(self, address: str, driver: str = "", **files: str) -> None:
        """Have a PCI device in sysfs."""
        directory = f"/sys/bus/pci/devices/{address}"
        for name, text in files.items():
            self.write(f"{directory}/{name}", text)
        link = Path(f"{self.root}{directory}/driver")
        link.unlink(missing_ok=True)
        if driver:
            link.symlink_to(f"../../../../bus/pci/drivers/{driver}")

    def xid(self, command: str) -> None:
        """Log an Xid; `command` is as for `gpu-simulator fault xid`."""
        self.control("fault", "xid", *command.split())

    def log(self, *lines: str) -> None:
        """Let the kernel log lines that the simulator does not know."""
        with store.transaction(self.root) as state:
            xid.log(state, lines)

    def check(self, check_mode: bool = False, **options: Any) -> dict[str, Any]:
        """Run the module."""
        if self._shows_pci_bus:
            self.show_pci_bus()
        # The simulator logs at the time of this machine.
        entries: Any = [{**entry, "time": self.now - 10.0} for entry in self.state.get("kernel_log", [])]
        self.write(LOG, "\n".join(("Linux version 6.8.0-52-generic", *xid.render(entries, "iso"))) + "\n")
        at_root = functools.partial(health_run.run, root=self.root)

        def run_now(params: Any, is_check: bool, _now: float) -> dict[str, Any]:
            return at_root(params, is_check, self.now)

        with self._monkeypatch.context() as patch:
            patch.setattr(gpu_health, "run", run_now)
            # The simulated driver is one with recordings of real hosts, and older than the newest bulletin.
            accepted = {"ignore_vulnerabilities": ["5861"]}
            arguments = {"executable": str(self._smi), "kernel_log": LOG, **accepted, **options}
            return run_module(gpu_health, patch, arguments, check_mode)
