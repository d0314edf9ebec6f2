# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated host below a directory, with a kernel that only records calls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from gpu_simulator import cli
from gpu_simulator.host import kernel as host
from gpu_simulator.state import store

from tests.unit.recordings.recording import load

H200X8 = load("h200x8-580.159.04")
"""A real host, with its files of /proc/driver/nvidia and the attributes of its PCI devices."""


class RecordingKernel(host.Kernel):
    """Records mounts instead of making them, and creates plain files for device nodes."""

    def __init__(self) -> None:
        self.mounted: list[str] = []
        self.nodes: dict[str, tuple[int, int, int]] = {}
        self.license = ""

    def mount(self, *arguments: str) -> None:
        self.mounted.append(arguments[-1])

    def unmount(self, path: str) -> None:
        self.mounted.remove(path)
        if path.endswith("sys/module"):
            # Modules created in the overlay disappear with it.
            for module in Path(path).iterdir():
                shutil.rmtree(module)

    def make_node(self, path: str, major: int, minor: int, mode: int) -> None:
        Path(path).touch()
        self.nodes[Path(path).name] = (major, minor, mode)

    def is_mounted(self, path: str) -> bool:
        return path in self.mounted

    def module_license(self) -> str:
        return self.license


class SimulatedHost:
    """A machine with two real PCI devices and a clock, configured as a simulated host."""

    def __init__(self, root: Path, gpus: Any = ({"model": "a100_40gb", "count": 2},), **setup: bool) -> None:
        self.root = root
        self.kernel = RecordingKernel()
        for directory in (
            "sys/bus/pci/devices",
            "sys/bus/pci/drivers",
            "sys/module",
            "proc/driver",
            "dev",
            "etc/gpu-simulator",
            "var/lib",
            "run",
        ):
            (root / directory).mkdir(parents=True)
        for address in ("0000:00:00.0", "0000:00:01.0"):
            (root / "sys/bus/pci/devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
        (root / "proc/driver/rtc").write_text("rtc_time: 12:00:00\n")
        self.describe(gpus)
        (root / "etc/gpu-simulator/setup.json").write_text(json.dumps(setup))

    def describe(self, gpus: Any, version: str = "580.159.04") -> None:
        """Write the host's description as the role does."""
        description = {"driver_version": version, "seed": "test", "gpus": list(gpus)}
        (self.root / "etc/gpu-simulator/host.json").write_text(json.dumps(description))

    @property
    def host(self) -> host.Host:
        """The host, for direct calls."""
        return host.Host(str(self.root), self.kernel)

    def run(self, *arguments: str) -> int:
        """Run `gpu-simulator`."""
        return host.main(list(arguments), str(self.root), self.kernel)

    def reboot(self) -> int:
        """Simulate a reboot: /run is emptied and the service starts."""
        self.run("down")
        shutil.rmtree(self.root / "run")
        (self.root / "run").mkdir()
        return self.run("up")

    def smi(self, command: str) -> tuple[str, int]:
        """Run nvidia-smi as root."""
        text, status = cli.reply(command.split(), str(self.root), True)
        return text, status

    def state(self) -> Any:
        """Read the state."""
        return store.read(str(self.root))
