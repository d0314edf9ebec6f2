# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated GPU host with a simulated systemd; gpu_state and its boot program run on it in this process."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._change import context as change_context
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients, runner
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, RunError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import Smi
from ansible_collections.gpu.fleet.plugins.module_utils._state import boot as boot_entry
from ansible_collections.gpu.fleet.plugins.module_utils._state import mps
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.module_utils._state import run as state_module
from ansible_collections.gpu.fleet.plugins.module_utils._state import service as boot_service
from ansible_collections.gpu.fleet.plugins.module_utils._state.module import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import PLAN_FILE, UNIT
from gpu_simulator.state import reset, store

from tests.unit.mig.mig_host import Intercept, SimulatedHost

OPTIONS = {name: option.get("default") for name, option in ARGUMENT_SPEC.items()}
# The lock and the caches of all modules: what one test has kept in those of this machine would count in the next one.
_IN_RUN = [
    (module, name, path.replace("/run/gpu-fleet", "run"))
    for package, module in list(sys.modules.items())
    if package.startswith("ansible_collections.gpu.fleet.")
    for name, path in vars(module).items()
    if name.isupper() and isinstance(path, str) and path.startswith("/run/gpu-fleet")
]

DECLARED: dict[str, dict[str, Any]] = {
    "a100_40gb": {"persistence_mode": True, "power_limit_w": "300", "mig": {"3g.20gb": 1, "1g.5gb": 1}},
    "h200": {"persistence_mode": True, "power_limit_w": "500", "mig": {"3g.71gb": 1, "1g.18gb": 1}},
}


@dataclass
class Units:
    """A mock systemctl for a host's units, by name. `broken` ones do not start."""

    host: StateHost
    active: dict[str, str] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    needs_reload: bool = False
    after: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def run(self, commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        """Run systemctl commands."""
        del timeout
        return [self._result([word for word in command[1:] if word != "--no-pager"]) for command in commands]

    def _result(self, words: list[str]) -> CommandResult:
        verb, names = words[0], [word for word in words[1:] if not word.startswith("--")]
        if verb == "show":
            return _output("\n".join(self._show(name) for name in names))
        self.log.append(" ".join(words))
        if verb == "daemon-reload":
            self.needs_reload = False
            return _output("")
        return _output("", max(self._act(verb, name) for name in names))

    def _show(self, name: str) -> str:
        is_there = name in self.active or self.host.path(f"/etc/systemd/system/{name}").exists()
        fields = {
            "Id": name,
            "LoadState": "loaded" if is_there else "not-found",
            "ActiveState": self.active.get(name, "inactive"),
            "UnitFileState": "enabled" if name in self.enabled else "disabled",
            "NeedDaemonReload": "yes" if name == UNIT and self.needs_reload else "no",
            "StatusText": self.host.status if name == UNIT else "",
            "After": self.after.get(name, ""),
        }
        return "".join(f"{key}={value}\n" for key, value in fields.items())

    def _act(self, verb: str, name: str) -> int:
        link = self.host.path(f"/etc/systemd/system/multi-user.target.wants/{name}")
        if verb == "enable":
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"/etc/systemd/system/{name}")
        elif verb == "disable":
            link.unlink()
        elif verb in ("stop", "reset-failed"):
            self.active[name] = "inactive"
        elif name in self.broken:
            self.active[name] = "failed"
            return 1
        elif name == UNIT:
            status = self.host.boot_program()
            self.active[name] = "failed" if status else "active"
            return status
        else:
            self.active[name] = "active"
        return 0


def _output(text: str, status: int = 0) -> CommandResult:
    return CommandResult(("systemctl",), status, text.encode(), b"", 0.01)


@dataclass
class Outcome:
    """Result of one run; `error` None: it succeeded."""

    result: dict[str, Any]
    error: str | None
    calls: list[list[str]]


class StateHost(SimulatedHost):
    """Simulated GPUs, units, and a directory as the root file system. `mps` has the clients of the daemon of MPS."""

    mps: list[str]

    units: Units
    status: str
    log: list[str]
    calls: list[list[str]]
    intercept: Intercept | None

    @classmethod
    def with_gpus(cls, root: Path, *models: str, driver: str = "580.159.04") -> StateHost:
        """Make a bare-metal host with systemd and these GPUs in their state after a boot."""
        cls.make(root, *models, driver=driver, mig=False)
        host = cls(root)
        with store.transaction(str(root)) as state:
            reset.boot(state)
        host.units, host.status, host.log, host.calls, host.intercept, host.mps = Units(host), "", [], [], None, []
        host.install_python()
        (root / "systemd").mkdir()
        (root / "boot_id").write_text("boot 1\n")
        return host

    def install_mps(self) -> None:
        """Install the program of MPS, as the driver does."""
        self.path("/usr/bin").mkdir(parents=True, exist_ok=True)
        self.path(f"/usr/bin/{gpu_clients.MPS_CONTROL}").touch(mode=0o755)

    def ask_mps(self, line: str) -> CommandResult:
        """What a daemon of 580.159.04 printed on an H100, with the clients of `mps`."""
        if self.units.active.get(mps.UNIT) != "active":
            return _output("Cannot find MPS control daemon process\n", 1)
        unit = self.path(mps.UNIT_FILE).read_text()
        if "get_default_active_thread_percentage" in line:
            share = re.search(r"set_default_active_thread_percentage (\S+)", unit)
            return _output(f"{float(share[1]) if share else 100.0}\n")
        if not self.mps:
            return _output("Server not found\n")
        head = "PID       ID        SERVER         DEVICE                    NAMESPACE      COMMAND        \n"
        return _output(head + "".join(self.mps))

    def install_python(self, path: str = "/usr/bin/python3", version: str = "python3.11") -> None:
        """Create a Python executable and, if the names differ, a link to it at `path`."""
        directory = self.path(path).parent
        directory.mkdir(parents=True, exist_ok=True)
        (directory / version).touch(mode=0o755)
        if not self.path(path).exists():
            self.path(path).symlink_to(version)

    def path(self, path: str) -> Path:
        """A path of the host."""
        return self.root / path.lstrip("/")

    def state_run(self, intercept: Intercept | None = None, **options: Any) -> Outcome:
        """Run the module's work; `check` is a flag."""
        self.calls, self.intercept = [], intercept
        check = options.pop("check", False)
        systemd = Systemd(self.units.run, str(self.root / "systemd"), lambda _seconds: None)
        try:
            run = state_module.StateRun({**OPTIONS, **options}, check, True, systemd, str(self.root))
            return Outcome(run.run(), None, self.calls)
        except RunError as error:
            return Outcome(dict(error.result), str(error), self.calls)
        finally:
            self.intercept = None

    def boot_program(self) -> int:
        """Run the boot program on the saved plan."""
        self.log = []
        try:
            plan = state_plan.parse(self.path(PLAN_FILE).read_text())
            systemd = Systemd(self.units.run, str(self.root / "systemd"), lambda _seconds: None)
            boot = boot_entry.Boot(plan, lambda line, _priority: self.log.append(line), systemd=systemd)
            boot.run(Smi(plan.executable).document().gpus)
            problems = boot.problems
        except (ChangeError, OSError) as error:
            problems = [str(error)]
        self.status = "; ".join(problems) or "as declared"
        return 1 if problems else 0

    def reboot(self) -> int:
        """Simulate the effect of a reboot on the GPUs, then run the boot program if it is enabled."""
        with store.transaction(str(self.root)) as state:
            reset.boot(state)
        (self.root / "boot_id").write_text(f"boot {self.status} {len(self.calls)} {id(self)} {len(self.units.log)}\n")
        for name in ("mig.json", "clocks.json", "state.json"):
            with contextlib.suppress(FileNotFoundError):
                (self.root / "run" / name).unlink()
        if not self.path(boot_service.DESIRED_LINK).is_symlink():
            return 0
        status = self.boot_program()
        self.units.active[UNIT] = "failed" if status else "active"
        return status

    def devices(self) -> str:
        """GPUs and MIG devices with their UUIDs."""
        return self.call("-L")[0]

    def gpu(self, index: int = 0) -> Mapping[str, Any]:
        """The state of one GPU."""
        found: Mapping[str, Any] = self.state["gpus"][index]
        return found


@contextlib.contextmanager
def in_this_process(monkeypatch: pytest.MonkeyPatch, host: StateHost) -> Iterator[None]:
    """Redirect all calls of nvidia-smi to the simulated one of `host`, and all files below its root."""

    def call(self: Smi, arguments: Sequence[Sequence[str]], _share: float = 1.0) -> list[CommandResult]:
        self.calls += len(arguments)
        host.calls += [list(words) for words in arguments]
        return [host._result((self.executable, *words), host.intercept) for words in arguments]

    make = Smi.__init__

    def add_retries(self: Smi, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self.sleep = lambda _seconds: None

    def run_all(commands: Sequence[Sequence[str]], timeout: float) -> Sequence[CommandResult]:
        if any(command[0].startswith("/nonexistent") for command in commands):
            return really_run(commands, timeout)
        return [
            host.ask_mps(command[-1]) if command[0] == "/bin/sh" else host._result(command, host.intercept)
            for command in commands
        ]

    def find(name: str) -> str:
        path = f"/usr/bin/{name}"
        return path if host.path(path).exists() else name

    really_run = runner.run_all
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_all", run_all)
        patch.setattr(state_module, "find_executable", find)
        patch.setattr(Smi, "__init__", add_retries)
        patch.setattr(Smi, "_call", call)
        for module, name, path in _IN_RUN:
            patch.setattr(module, name, f"{host.root}/{path}")
        # Processes of this machine, test hosts among them, may have device files of the same name open.
        patch.setattr(change_context, "blockers_of", host.find_blockers)
        patch.setattr(boot_service, "BOOT_ID", str(host.root / "boot_id"))
        yield


def boot_without_program(host: StateHost) -> None:
    """Simulate a reboot without the boot program."""
    program, host.boot_program = host.boot_program, lambda: 0  # type: ignore[method-assign]
    host.reboot()
    host.boot_program = program  # type: ignore[method-assign]
