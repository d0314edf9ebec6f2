# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the boot service: program (a copy of this code), unit and plan. Private to this collection."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import stat
from dataclasses import dataclass
from typing import Callable, Iterator, Mapping, Sequence

from .._common import gpu_clients
from .._common.atomic_write import atomic_write
from .._common.errors import ChangeError
from .._common.os_errors import advice
from .._common.regular_file import decoded, read_bytes
from . import boot as boot_entry
from .plan import BOOT_TIMEOUT

UNIT = "gpu-fleet-state.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
PROGRAM = "/usr/lib/gpu-fleet"
COMMAND = "/usr/sbin/gpu-fleet-state"
PLAN_FILE = boot_entry.PLAN_FILE

_WORK_SECONDS = int(boot_entry.WORK_SECONDS) + 80
"""Time limit of the service after the wait for the driver, in seconds: a last call of the wait, and the work."""

# Imported so that Ansible transfers it with all that it imports.
ENTRY = boot_entry.__name__
"""The entry module of the program; only this and its imports are installed."""
COLLECTION = ENTRY.partition(".plugins.")[0]
"""Modules keep their full names, so that relative and absolute imports work as they do here."""
PACKAGE = f"{PROGRAM}/{COLLECTION.replace('.', '/')}/plugins/module_utils"

# What statements of Python have statements in: handlers of `try` and cases of `match` among them.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")

_MODE = 0o644
_MODES = {COMMAND: 0o755}

_MAIN = f"""\
# Written by gpu.fleet: applies the saved state of the GPUs; see the unit gpu-fleet-state.service.
from {ENTRY} import main

raise SystemExit(main())
"""

_COMMAND_TEXT = """\
#!/bin/sh
# Written by gpu.fleet.gpu_state: shows what the service gpu-fleet-state would do now; see --help.
exec {python} -I -S -B {program} "$@"
"""

_UNIT_TEXT = """\
# Written by gpu.fleet.gpu_state; its next run overwrites changes. Put additions into a drop-in.
[Unit]
Description=Apply the declared state of the GPUs
Documentation=https://github.com/gpu-fleet/gpu.fleet/blob/main/docs/gpu-state.md
# After what loads or builds the driver, and after the driver's own daemons.
{after}
# Before what uses GPUs, which starts even if this service fails.
{before}
# Nothing restarts it automatically, and runs of the role may follow each other quickly.
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} -I -S -B {program} {plan}
# The program reports in `systemctl status` what it did.
NotifyAccess=main
# A hanging nvidia-smi must not stop the boot: the wait for the driver, and time for the work.
TimeoutStartSec={timeout}
RuntimeDirectory=gpu-fleet
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
UMask=0077
# It needs the device files, /sys, /proc of other processes to name those that use a GPU, the sockets of systemd and of
# the driver's daemons, and nothing else. Not set: ProtectClock and DevicePolicy, which would deny /dev/nvidia*, whose
# numbers are known only when the driver is loaded; ProtectKernelModules and ProtectKernelTunables, as nvidia-modprobe
# loads the driver, and a reset writes to /sys; ProtectProc, ProcSubset and ProtectControlGroups, which mount /proc and
# /sys/fs/cgroup again, without what a container has mounted over /proc/driver/nvidia or the boot id.
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
PrivateTmp=yes
PrivateNetwork=yes
IPAddressDeny=any
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service @module
SystemCallErrorNumber=EPERM
# Those of nvidia-modprobe and of NVIDIA's own nvidia-cdi-refresh.service, and to read /proc of other processes.
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_MODULE CAP_MKNOD
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_SYS_PTRACE

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class FileStep:
    """One file that differs: `before` None is to be created, `after` None is to be removed."""

    path: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Service:
    """Host-specific parts of the service: `clients` are additional units that wait for it.

    `boot_timeout` is how many seconds the program waits for the driver; `late` has units that start after everything
    else at boot, so that this one cannot be ordered after them.
    """

    python: str
    boot_timeout: int = BOOT_TIMEOUT
    clients: tuple[str, ...] = ()
    late: tuple[str, ...] = ()


def unit_text(service: Service) -> str:
    """The content of the unit file."""
    after = [name for name in gpu_clients.DRIVER_UNITS if name not in service.late]
    # Sockets, timers and paths start long before services, so they cannot wait for one.
    services = [name for name in service.clients if name.endswith(".service") and name not in after]
    before = dict.fromkeys((*services, *gpu_clients.WAITING))
    return _UNIT_TEXT.format(
        python=service.python,
        program=PROGRAM,
        plan=PLAN_FILE,
        timeout=service.boot_timeout + _WORK_SECONDS,
        after=lines("After", after),
        before=lines("Before", list(before)),
    )


def lines(key: str, names: Sequence[str]) -> str:
    """A list setting, with several names a line."""
    return "\n".join(f"{key}={' '.join(names[place : place + 4])}" for place in range(0, len(names), 4))


@dataclass(frozen=True)
class Source:
    """The source code of one module. `is_package`: it is a package's `__init__`."""

    text: str
    is_package: bool = False

    def path(self, name: str) -> str:
        """Its path relative to the program's directory."""
        return name.replace(".", "/") + ("/__init__.py" if self.is_package else ".py")


def program_files(entry: str = ENTRY, source: Callable[[str], Source | None] | None = None) -> dict[str, str]:
    """The program's files, path to content. Raises ChangeError when a source file cannot be read."""
    files = {f"{PROGRAM}/{path}": text for path, text in sources(entry, source).items()}
    return {f"{PROGRAM}/__main__.py": _MAIN, **files}


def sources(entry: str, source: Callable[[str], Source | None] | None = None) -> dict[str, str]:
    """The module `entry` and everything of this collection that it imports: path relative to a program, to content.

    Raises ChangeError when a source file cannot be read.
    """
    read = source or source_of
    found: dict[str, Source] = {}
    waiting = [(entry, True)]
    while waiting:
        name, is_module = waiting.pop()
        if name in found:
            continue
        module = read(name)
        if module is None:
            if is_module:
                raise ChangeError(
                    f"the source of {name} cannot be read; run the task without ANSIBLE_KEEP_REMOTE_FILES"
                )
            continue
        found[name] = module
        # Python imports the parent packages of a module first.
        if "." in name:
            waiting.append((name.rpartition(".")[0], True))
        waiting += imported(module.text, name, module.is_package)
    return {found[name].path(name): found[name].text for name in sorted(found)}


def imported(source: str, name: str, is_package: bool = False) -> set[tuple[str, bool]]:
    """Full names of the modules of this collection that the module `name` imports, at any place in its code.

    With each: whether it must be a module; else it may be an object defined in a package.
    """
    names: set[tuple[str, bool]] = set()
    for node in _statements(ast.parse(source).body):
        if isinstance(node, ast.Import):
            names.update((alias.name, True) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = name.split(".") if is_package else name.split(".")[:-1]
            near = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*near, *([node.module] if node.module else [])])
            names.add((base, True))
            names.update((f"{base}.{alias.name}", False) for alias in node.names if alias.name != "*")
    return {entry for entry in names if entry[0].startswith(COLLECTION + ".")}


def _statements(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All statements of a block: without their expressions, which are most of a file and import nothing."""
    for node in nodes:
        yield node
        for block in _BLOCKS:
            yield from _statements(getattr(node, block, ()))


def source_of(name: str) -> Source | None:
    """A module of this collection, from a file or from Ansible's archive of modules; None where there is none."""
    if (COLLECTION + ".plugins.").startswith(name + "."):
        # These packages have no code of ours; their content depends on how Ansible transferred them.
        return Source("", is_package=True)
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        # Its parent is not a package.
        return None
    if spec is None:
        return None
    text = getattr(spec.loader, "get_source", lambda _name: None)(name)
    is_package = spec.submodule_search_locations is not None
    if not isinstance(text, str):
        return Source("", is_package=True) if is_package else None
    return Source(text, is_package)


def desired_files(plan: str, service: Service) -> dict[str, str]:
    """All files of the service, path to content."""
    command = _COMMAND_TEXT.format(python=service.python, program=PROGRAM)
    return {**program_files(), COMMAND: command, UNIT_FILE: unit_text(service), PLAN_FILE: plan}


def plan_files(desired: Mapping[str, str], root: str = "") -> tuple[FileStep, ...]:
    """Differences from `desired`, including the removal of stale files of an earlier version."""
    there = {path: read(root + path, _MODES.get(path, _MODE)) for path in {*desired, *_present(root)}}
    steps = [FileStep(path, there[path], desired.get(path)) for path in sorted(there)]
    return tuple(step for step in steps if step.before != step.after)


def apply_files(steps: tuple[FileStep, ...], root: str = "", done: list[str] | None = None) -> None:
    """Apply the steps; directories of the service that become empty are removed. Raises ChangeError.

    `done` gets each path once it is changed.
    """
    for step in steps:
        path = root + step.path
        try:
            if step.after is None:
                os.unlink(path)
            else:
                # A boot at any time finds either the previous or the new file.
                atomic_write(path, step.after.encode(), _MODES.get(step.path, _MODE))
        except OSError as error:
            raise ChangeError(f"{path} cannot be changed: {error.strerror}{advice(error)}") from error
        if done is not None:
            done.append(step.path)
    state = os.path.dirname(PLAN_FILE)
    for directory in (*_directories(root), PROGRAM, state, os.path.dirname(state)):
        # Directories with unmanaged files stay.
        with contextlib.suppress(OSError):
            os.rmdir(root + directory)


def read(path: str, mode: int = _MODE) -> str | None:
    """The content of a file of the service, None for a missing one; else a description of the difference."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != mode or status.st_uid != os.geteuid():
            return f"(owner {status.st_uid}, mode {stat.filemode(status.st_mode)})\n"
        return decoded(read_bytes(path), "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"({error.strerror})\n"


def directories(root: str = "") -> tuple[str, ...]:
    """The directories of the service's files, and the existing ones of the program."""
    files = (UNIT_FILE, COMMAND, PLAN_FILE)
    return (*map(os.path.dirname, files), PACKAGE, *_directories(root))


def _present(root: str) -> tuple[str, ...]:
    """The existing files of the service, including files of other versions."""
    found = [path for path in (UNIT_FILE, COMMAND, PLAN_FILE) if os.path.lexists(root + path)]
    for directory in (PROGRAM, *_directories(root)):
        with contextlib.suppress(OSError):
            found += [f"{directory}/{name}" for name in os.listdir(root + directory) if name.endswith(".py")]
    return tuple(found)


def _directories(root: str) -> Iterator[str]:
    """The subdirectories of the program's directory, deepest first."""
    for directory, names, _files in os.walk(root + PROGRAM, topdown=False):
        paths = (os.path.join(directory, name) for name in names)
        yield from (path[len(root) :] for path in paths if not os.path.islink(path))
