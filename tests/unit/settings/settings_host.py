# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated GPU host in this process, on which the work of ecc_mode and gpu_settings runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._change.context import Access
from ansible_collections.gpu.fleet.plugins.module_utils._common.boot_cache import BootCache
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._ecc import run as ecc_run
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._settings import run as settings_run
from gpu_simulator.state import catalogue, reset, store

from tests.unit.mig.mig_host import Intercept, Run, SimulatedHost

CHANGES = ("-e", "-p", "-pm", "-c", "-pl", "-lgc", "-rgc", "-lmc", "-rmc", "-am", "--gpu-reset")
DRIVERS = ("535.261.03", "550.163.01", "580.159.04", "610.57.04")
Converge = Callable[[dict[str, Any], Access, bool, bool], dict[str, Any]]


def is_change(call: Sequence[str]) -> bool:
    """Whether a call changes state."""
    return any(word in CHANGES for word in call)


class SettingsRun(Run):
    """Result of one run of a module's work."""

    @property
    def changes(self) -> list[list[str]]:
        """The calls that change state."""
        return [call for call in self.calls if is_change(call)]


class SettingsHost(SimulatedHost):
    """Simulated GPUs, with both modules' caches."""

    @classmethod
    def with_gpus(cls, root: Path, *models: str, driver: str = "580.159.04") -> SettingsHost:
        """Make a bare-metal host with these GPUs, MIG off and persistence mode on."""
        cls.make(root, *models, driver=driver, mig=False)
        host = cls(root)
        host.invalidate()
        return host

    def ecc(self, intercept: Intercept | None = None, **options: Any) -> SettingsRun:
        """Run the work of ecc_mode with these options; `check` is a flag."""
        return self._converge(ecc_run.converge, dict(ecc_run.DEFAULTS), "ecc.json", intercept, options)

    def settings(self, intercept: Intercept | None = None, **options: Any) -> SettingsRun:
        """Run the work of gpu_settings with these options; `check` is a flag."""
        return self._converge(settings_run.converge, dict(settings_run.DEFAULTS), "clocks.json", intercept, options)

    def _converge(
        self,
        converge: Converge,
        defaults: dict[str, Any],
        cache: str,
        intercept: Intercept | None,
        options: dict[str, Any],
    ) -> SettingsRun:
        calls: list[list[str]] = []

        def make_calls(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
            del timeout
            calls.extend(list(command[1:]) for command in commands)
            return [self._result(command, intercept) for command in commands]

        check = options.pop("check", False)
        access = Access(
            Smi("nvidia-smi", RetryPolicy(5, 2, 0), make_calls, lambda _seconds: None),
            contextlib.nullcontext(),
            self.find_blockers,
            BootCache(str(self.root / "run" / cache), is_read_only=check),
        )
        try:
            return SettingsRun(converge({**defaults, **options}, access, check, True), None, calls)
        except RunError as error:
            return SettingsRun(dict(error.result), str(error), calls)

    def change(self, index: int, **values: Any) -> None:
        """Set these values in the simulator's state of a GPU, as changes from outside of the modules."""
        with store.transaction(str(self.root)) as state:
            for name, value in values.items():
                state["gpus"][index][name] = value  # type: ignore[literal-required]

    def count_errors(self, index: int, kind: str, **counters: int) -> None:
        """Add counted ECC errors to a GPU."""
        with store.transaction(str(self.root)) as state:
            state["gpus"][index]["ecc_errors"][kind].update(counters)  # type: ignore[literal-required]

    def boot(self) -> None:
        """Boot the host: /run is emptied."""
        with store.transaction(str(self.root)) as state:
            reset.boot(state)
        self.invalidate()

    def invalidate(self) -> None:
        """Empty /run."""
        for path in (self.root / "run").glob("*"):
            path.unlink()

    def checkpoint(self) -> tuple[Any, dict[Path, str]]:
        """A copy of the state and of the modules' caches, to restore later."""
        return self.snapshot(), {path: path.read_text() for path in (self.root / "run").glob("*.json")}

    def roll_back(self, checkpoint: tuple[Any, dict[Path, str]]) -> None:
        """Restore a checkpoint."""
        state, memories = checkpoint
        Path(store.state_path(str(self.root))).write_text(json.dumps(state))
        self.invalidate()
        for path, text in memories.items():
            path.write_text(text)

    def there(self, index: int = 0) -> dict[str, Any]:
        """The actual settings of one GPU, spelled as in a result."""
        gpu = self.state["gpus"][index]
        return {
            "persistence_mode": _word(gpu["persistence_mode"]),
            "compute_mode": gpu["compute_mode"].lower(),
            "power_limit_w": gpu["power_limit_w"],
            "gpu_clocks_mhz": _clocks(gpu["locked_gpu_clocks"]),
            "memory_clocks_mhz": _clocks(gpu["locked_memory_clocks"]),
            "accounting_mode": _word(gpu["accounting_mode"]),
        }

    def ecc_modes(self, index: int = 0) -> tuple[bool, bool]:
        """ECC mode of one GPU: current, and after a reboot."""
        mode = self.state["gpus"][index]["ecc_mode"]
        return mode["current"], mode["pending"]


def models() -> list[str]:
    """Names of all simulated GPU models."""
    return list(catalogue.names())


def _word(mode: bool) -> str:
    return "enabled" if mode else "disabled"


def _clocks(clocks: list[int] | None) -> str:
    if clocks is None:
        return "default"
    low, high = clocks
    return str(low) if low == high else f"{low}-{high}"
