# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated hosts, and operations on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_simulator import cli
from gpu_simulator.control import command as control
from gpu_simulator.state import store

VERSIONS = {535: "535.261.03", 550: "550.163.01", 580: "580.159.04", 610: "610.43.02", 615: "615.71.09"}


class Host:
    """A simulated host below a directory."""

    def __init__(self, directory: Path, branch: int = 580, gpus: Any = (), **description: Any) -> None:
        self.root = str(directory)
        whole: Any = {
            "driver_version": VERSIONS[branch],
            "virtualization": "None",
            "persistence_mode": True,
            "gpus": list(gpus) or [{"model": "a100_40gb"}],
            **description,
        }
        store.initialise(whole, self.root, device_nodes=True)

    def smi(self, command: str, root_user: bool = True) -> tuple[str, int]:
        """Run nvidia-smi; return its output and exit status."""
        return self.run(command.split(), root_user)

    def run(self, arguments: list[str], root_user: bool = True) -> tuple[str, int]:
        """Run nvidia-smi with arguments that may be empty."""
        text, status = cli.reply(arguments, self.root, root_user)
        return text, status

    def control(self, *arguments: str) -> None:
        """Run the control command, which must succeed."""
        assert control.main(list(arguments), self.root) == 0

    def prepare(self, *commands: str) -> None:
        """Run nvidia-smi with any result, or the control command for lines that begin with ``!``."""
        for command in commands:
            if command.startswith("!"):
                self.control(*command[1:].split())
            else:
                self.smi(command)

    def hide_gpus(self) -> None:
        """Remove the device nodes of all GPUs."""
        for gpu in self.state["gpus"]:
            Path(self.root, "dev", f"nvidia{gpu['minor']}").unlink()

    def driver(self, loaded: str | None) -> None:
        """Load a driver of another version than the libraries, or unload it."""
        with store.transaction(self.root) as state:
            state["driver"]["loaded"] = loaded

    @property
    def state(self) -> Any:
        """The state on disk."""
        return store.read(self.root)

    def gpu(self, number: int = 0) -> Any:
        """The state of one GPU."""
        return self.state["gpus"][number]

    def csv(self, fields: str, number: int = 0) -> str:
        """Query fields of one GPU with nvidia-smi."""
        text, status = self.smi(f"-i {number} --query-gpu={fields} --format=csv,noheader,nounits")
        assert status == 0
        return text.strip()


def two_a100(directory: Path, branch: int) -> Host:
    """The host of the transcripts: two A100 40GB on bare metal, persistence mode off."""
    return Host(
        directory,
        branch,
        [
            {"model": "a100_40gb", "uuid": "GPU-a0000000-4d4f-434b-8000-000000000001", "bus_id": "00000000:07:00.0"},
            {"model": "a100_40gb", "uuid": "GPU-a0000001-4d4f-434b-8000-000000000002", "bus_id": "00000000:0F:00.0"},
        ],
        persistence_mode=False,
        cpu_affinity="0-1",
    )
