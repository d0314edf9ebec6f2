# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load the installed driver without a reboot, where nothing uses the old one. Private to this collection."""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict, dataclass, field
from typing import AbstractSet, Any, Callable, Mapping, Sequence

from .._common.errors import ChangeError, RunError
from .._common.gpu_clients import clients, running, stopped
from .._common.host_files import HostFiles
from .._common.runner import CommandResult, find_executable, run_all
from .._common.systemd import Systemd
from .._nvidia_smi.blockers import Blocker, blockers_of_driver
from .driver import Driver, read_driver

# In unload order: nvidia_drm uses nvidia_modeset, all others nvidia. gdrdrv is of GDRCopy, nvidia_fs of GPUDirect
# Storage.
MODULES = ("gdrdrv", "nvidia_fs", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm", "nvidia")
# Companion daemons of the driver as a whole, in addition to the clients of single GPUs.
SERVICES = ("nvidia-imex.service", "nvidia-fabricmanager.service", "nvidia-powerd.service")
# A daemon may close its files a moment after systemd reports it as stopped.
_LET_GO_SECONDS = 5.0

_UNIT = re.compile(r"(?m)/system\.slice/([^/\s]+\.service)$")

# Parameters that have another name in /proc/driver/nvidia/params than as an option of the module.
_SHOWN_AS = {"NVreg_RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}

Run = Callable[[Sequence[Sequence[str]], float], Sequence[CommandResult]]


@dataclass(frozen=True)
class Decision:
    """The action, `none`, `load` or `reload`, and the reason for messages."""

    action: str
    reason: str


@dataclass
class ReloadOutcome:
    """What was done. `driver` is the last reading; `reason` is why the installed driver is not loaded, if it is not."""

    before: Driver
    driver: Driver
    action: str = "none"
    reason: str | None = None
    changed: bool = False
    pending: tuple[str, ...] = ()
    users: tuple[Blocker, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    stopped_services: tuple[str, ...] = ()
    commands: list[str] = field(default_factory=list)

    @property
    def reboot_required(self) -> bool:
        """Whether loading the installed driver takes a reboot."""
        return decide(self.driver, self.pending).action != "none"

    def as_result(self, check_mode: bool) -> dict[str, Any]:
        """The module's result."""
        foreseen = check_mode and self.changed
        return {
            "changed": self.changed,
            "action": self.action,
            "reason": self.reason,
            "reboot_required": self.reboot_required and not foreseen,
            "loaded_version_before": self.before.loaded_version,
            "loaded_version": installed_version(self.driver) if foreseen else self.driver.loaded_version,
            "installed_version": installed_version(self.driver),
            "users": [asdict(user) for user in self.users],
            "blockers": [asdict(blocker) for blocker in self.blockers],
            "stopped_services": list(self.stopped_services),
            "commands": self.commands,
        }


class Host:
    """Kernel and disk of this host; `root` is a path prefix for tests. `parameters`: what the driver has to have."""

    def __init__(
        self,
        run: Run = run_all,
        root: str = "/",
        timeout: float = 120.0,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self._parameters = parameters or {}
        self._run = run
        self._timeout = timeout

    def driver(self) -> Driver:
        """The driver, loaded and on disk."""
        return read_driver(HostFiles(self.root), self.call("modinfo", "nvidia").text, "")

    def pending(self) -> tuple[str, ...]:
        """Each parameter of which the loaded driver has another value."""
        shown = HostFiles(self.root).read("/proc/driver/nvidia/params")
        return differing_parameters(self._parameters, shown or "")

    def loaded_modules(self) -> tuple[str, ...]:
        """The driver's loaded modules, in unload order."""
        return tuple(name for name in MODULES if os.path.isdir(self._module(name)))

    def hidden_users(self) -> tuple[Blocker, ...]:
        """Other users of the modules: unrelated kernel modules, or processes that are not visible from here."""
        found = []
        for name in self.loaded_modules():
            files = HostFiles(self.root)
            count = (files.read(f"/sys/module/{name}/refcnt") or "").strip()
            users = files.names(f"/sys/module/{name}/holders")
            unrelated = [user for user in users if user not in MODULES]
            found += [Blocker(user, None, name, f"what uses it, then modprobe -r {user}") for user in unrelated]
            if not unrelated and count.isdigit() and int(count) > len(users):
                found.append(Blocker(name, None, "GPUs for processes that are not visible here"))
        return tuple(found)

    def blockers(self) -> tuple[Blocker, ...]:
        """Everything that prevents unloading the modules."""
        return blockers_of_driver(self.root) or self.hidden_users()

    def unit_of(self, pid: int) -> str:
        """The system service that a process belongs to; empty for another process."""
        found = _UNIT.search(HostFiles(self.root).read(f"/proc/{pid}/cgroup") or "")
        return found[1] if found else ""

    def call(self, program: str, *arguments: str) -> CommandResult:
        """Run a program."""
        return self._run([(find_executable(program), *arguments)], self._timeout)[0]

    def _module(self, name: str) -> str:
        return os.path.join(self.root, "sys", "module", name)


def installed_version(driver: Driver) -> str | None:
    """The version to load: of the module on disk, else of the libraries."""
    return driver.module_version or driver.library_version


def differing_parameters(desired: Mapping[str, str], shown: str) -> tuple[str, ...]:
    """Compare parameters with /proc/driver/nvidia/params; one that is not shown there is taken as it should be."""
    loaded = dict(re.findall(r"(?m)^(\w+): *(.*?) *$", shown))
    found = []
    for name, value in desired.items():
        actual = loaded.get(_SHOWN_AS.get(name, name[len("NVreg_") :]))
        if actual is not None and _number_or_text(actual.strip('"')) != _number_or_text(value):
            found.append(f"the driver is loaded with {name}={actual}, and {value} is configured")
    return tuple(found)


def _number_or_text(value: str) -> int | str:
    """A parameter's value; the kernel reads a leading zero as octal, and shows numbers as unsigned ones of 32 bits."""
    try:
        return int(value, 8 if re.fullmatch("0[0-7]+", value) else 0) % (1 << 32)
    except ValueError:
        return value


def decide(driver: Driver, pending: Sequence[str] = ()) -> Decision:
    """Compare the loaded driver with the one on disk; `pending` are parameters that it lacks."""
    desired = installed_version(driver)
    if desired is None:
        return Decision("none", "no driver is installed")
    if not driver.loaded:
        return Decision("load", f"driver {desired} is installed and not loaded")
    if driver.loaded_version != desired:
        return Decision("reload", f"driver {driver.loaded_version} is loaded, and {desired} is installed")
    if driver.module_kind and driver.loaded_kind and driver.module_kind != driver.loaded_kind:
        return Decision(
            "reload", f"the {driver.loaded_kind} modules are loaded, the {driver.module_kind} ones installed"
        )
    if pending:
        return Decision("reload", "; ".join(pending))
    return Decision("none", f"driver {desired} is loaded")


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """One run of the module; raises RunError with its result."""
    parameters = {name: str(value) for name, value in params["parameters"].items()}
    host = Host(timeout=params["timeout"], parameters=parameters)
    return converge(host, Systemd(), clients((*params["services"], *SERVICES)), check_mode)


def converge(host: Host, systemd: Systemd, services: Sequence[str], check_mode: bool) -> dict[str, Any]:
    """Load or reload the driver unless something blocks it; `services` may be stopped meanwhile."""
    before = host.driver()
    pending = host.pending()
    decision = decide(before, pending)
    outcome = ReloadOutcome(before, before, decision.action, pending=pending)
    try:
        if before.loaded:
            outcome.users = _users(host, set(systemd.show(services)))
        if decision.action != "none":
            _Change(host, systemd, services, outcome, check_mode).make()
    except ChangeError as error:
        outcome.changed = outcome.changed or bool(outcome.stopped_services)
        raise RunError(str(error), outcome.as_result(check_mode)) from error
    return outcome.as_result(check_mode)


def _users(host: Host, services: AbstractSet[str]) -> tuple[Blocker, ...]:
    """What uses the driver, except for `services`, which are stopped for a reload."""
    blockers = host.blockers()
    return tuple(
        blocker
        for blocker in blockers
        if blocker.stop not in services and (blocker.pid is None or host.unit_of(blocker.pid) not in services)
    )


class _Change:
    """One load or reload."""

    def __init__(
        self, host: Host, systemd: Systemd, services: Sequence[str], outcome: ReloadOutcome, check_mode: bool
    ) -> None:
        self._host = host
        self._systemd = systemd
        self._services = services
        self._outcome = outcome
        self._check_mode = check_mode

    def make(self) -> None:
        """Stop its users, replace the loaded driver, start the services again, and read the result."""
        outcome, host = self._outcome, self._host
        units = list(self._systemd.show(self._services).values()) if outcome.action == "reload" else []
        if self._check_mode:
            outcome.blockers = _users(host, {unit.name for unit in units})
            outcome.changed = not outcome.blockers
            outcome.reason = self._why_held() if outcome.blockers else None
            if outcome.changed:
                outcome.stopped_services = running(units)
            return
        modules: tuple[str, ...] = ()
        with stopped(self._systemd, units, begin=self._note_stop):
            if outcome.action == "reload":
                modules = host.loaded_modules()
                if not self._unload(modules):
                    return
            if outcome.before.nouveau_loaded and not self._unload(("nouveau",)):
                return
            if not self._load(modules):
                return
        outcome.driver, outcome.pending = host.driver(), host.pending()
        if outcome.reboot_required:
            why = decide(outcome.driver, outcome.pending).reason
            raise ChangeError(f"modprobe reported no error, but {why}; see journalctl --dmesg")

    def _note_stop(self, names: tuple[str, ...]) -> None:
        self._outcome.stopped_services = names

    def _unload(self, modules: Sequence[str]) -> bool:
        """Unload kernel modules, unless something uses them; returns whether they are unloaded."""
        outcome = self._outcome
        if modules != ("nouveau",):
            outcome.blockers = self._remaining_blockers()
            if outcome.blockers:
                outcome.reason = self._why_held()
                return False
        there = self._host.loaded_modules()
        result = self._modprobe("--remove", *modules)
        outcome.driver = self._host.driver()
        if result.rc == 0:
            outcome.changed = True
            return True
        outcome.changed = outcome.changed or self._host.loaded_modules() != there
        outcome.reason = f"{' and '.join(modules)} cannot be unloaded: {_output(result)}"
        return False

    def _remaining_blockers(self) -> tuple[Blocker, ...]:
        deadline = time.monotonic() + (_LET_GO_SECONDS if self._outcome.stopped_services else 0.0)
        while True:
            found = self._host.blockers()
            if not found or time.monotonic() >= deadline:
                return found
            time.sleep(0.2)

    def _why_held(self) -> str:
        return "; ".join(map(str, self._outcome.blockers))

    def _load(self, modules: Sequence[str]) -> bool:
        """Load nvidia and the modules that were loaded with it before; returns whether nvidia is loaded."""
        outcome = self._outcome
        there = self._host.loaded_modules()
        result = self._modprobe("nvidia")
        if result.rc != 0:
            message = _output(result)
            outcome.driver = self._host.driver()
            outcome.changed = outcome.changed or self._host.loaded_modules() != there
            if outcome.driver.module_version is None and "not found" in message:
                outcome.reason = f"there is no module for the kernel that runs: {message}"
                return False
            raise ChangeError(f"the driver cannot be loaded: {message}{_advice(message)}; see journalctl --dmesg")
        outcome.changed = True
        # CUDA needs nvidia_uvm; the other modules are for displays.
        for name in ("nvidia_uvm", *(name for name in reversed(modules) if name not in ("nvidia", "nvidia_uvm"))):
            self._modprobe(name)
        return True

    def _modprobe(self, *arguments: str) -> CommandResult:
        self._outcome.commands.append(" ".join(("modprobe", *arguments)))
        return self._host.call("modprobe", *arguments)


def _output(result: CommandResult) -> str:
    return " ".join((result.error_text or result.text).split()) or f"modprobe ended with status {result.rc}"


def _advice(message: str) -> str:
    if "Key was rejected" in message or "Required key not available" in message:
        return " (Secure Boot is on, and the module is not signed with a key that is enrolled: see docs/secure-boot.md)"
    return ""
