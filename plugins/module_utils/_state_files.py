# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the boot service: program (made of this very code), unit and plan. Private to this collection."""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import stat
import sys
import tempfile
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from . import _state_boot
from ._errors import ChangeError

UNIT = "gpu-fleet-state.service"
UNIT_FILE = "/etc/systemd/system/" + UNIT
PROGRAM = "/usr/lib/gpu-fleet"
PACKAGE = PROGRAM + "/gpu_fleet"
PLAN_FILE = "/var/lib/gpu-fleet/state/plan.json"

# Imported so that Ansible sends it along, and with it all that it imports.
ENTRY = _state_boot.__name__.rpartition(".")[2]
"""The module that the program starts with; what that imports, and only that, is installed."""

_MODE = 0o644

_MAIN = """\
# Written by gpu.fleet: brings the GPUs to the state that was saved; see the unit gpu-fleet-state.service.
from gpu_fleet._state_boot import main

raise SystemExit(main())
"""

_UNIT_TEXT = """\
# Written by gpu.fleet.gpu_state; changes are undone by its next run. Additions belong into a drop-in.
[Unit]
Description=Bring the GPUs to their declared state
Documentation=https://github.com/gpu-fleet/gpu.fleet/blob/main/docs/gpu-state.md
# The driver's own daemons come first; what uses GPUs waits until this has ended, and starts whether it failed or not.
After=systemd-modules-load.service systemd-udev-trigger.service
After=nvidia-persistenced.service nvidia-fabricmanager.service nvidia-powerd.service
Before=docker.service containerd.service crio.service podman.service kubelet.service k3s.service rke2-agent.service
Before=slurmd.service nvidia-cdi-refresh.service nvidia-dcgm.service dcgm.service nvsm.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={python} -I -S -B {program} {plan}
# So that the program can tell in `systemctl status` what it did.
NotifyAccess=main
# However long nvidia-smi hangs, the boot goes on.
TimeoutStartSec=300
RuntimeDirectory=gpu-fleet
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
UMask=0077
# It needs the device files, /sys, and the sockets of the driver's daemons, and nothing else.
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
PrivateTmp=yes
PrivateNetwork=yes
ProtectHostname=yes
ProtectKernelLogs=yes
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
CapabilityBoundingSet=~CAP_SYS_BOOT CAP_SYS_TIME CAP_WAKE_ALARM CAP_NET_ADMIN CAP_NET_RAW CAP_AUDIT_CONTROL

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class FileStep:
    """One file that differs: `before` None is to be written anew, `after` None is to be removed."""

    path: str
    before: str | None
    after: str | None


def unit_text(python: str) -> str:
    """The unit; `python` is the interpreter that runs the program."""
    return _UNIT_TEXT.format(python=python, program=PROGRAM, plan=PLAN_FILE)


def program_files(source: Callable[[str], str] | None = None) -> dict[str, str]:
    """The program's files, path to content: `ENTRY` and everything of this package that it imports."""
    read = source or source_of
    found: dict[str, str] = {}
    waiting = [ENTRY]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = read(name)
            waiting += sorted(imported_siblings(found[name]))
    files = {f"{PACKAGE}/{name}.py": text for name, text in sorted(found.items())}
    return {f"{PROGRAM}/__main__.py": _MAIN, f"{PACKAGE}/__init__.py": "", **files}


def imported_siblings(source: str) -> set[str]:
    """The modules of the same package that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names.update([node.module] if node.module else [alias.name for alias in node.names])
    return names


def source_of(name: str) -> str:
    """The source of a module of this package, be it a file or inside the archive in which Ansible sends modules."""
    module = importlib.import_module("." + name, __package__)
    loader: Any = getattr(module, "__loader__", None)
    text = loader.get_source(module.__name__) if loader is not None else None
    if not isinstance(text, str):
        raise ChangeError(f"the source of {name} cannot be read; run the task without ANSIBLE_KEEP_REMOTE_FILES")
    return text


def wanted_files(plan: str, python: str = sys.executable) -> dict[str, str]:
    """All files of the service, path to content."""
    return {**program_files(), UNIT_FILE: unit_text(python), PLAN_FILE: plan}


def plan_files(wanted: Mapping[str, str], root: str = "") -> tuple[FileStep, ...]:
    """What differs from `wanted`; files of an earlier version that are no more wanted go."""
    there = {path: read(root + path) for path in {*wanted, *_present(root)}}
    steps = [FileStep(path, there[path], wanted.get(path)) for path in sorted(there)]
    return tuple(step for step in steps if step.before != step.after)


def apply_files(steps: tuple[FileStep, ...], root: str = "") -> None:
    """Carry the steps out; the folders of the service that are left empty go too. Raises ChangeError."""
    for step in steps:
        path = root + step.path
        try:
            if step.after is None:
                os.unlink(path)
            else:
                write(path, step.after)
        except OSError as error:
            raise ChangeError(f"{path} cannot be changed: {error.strerror}") from error
    for folder in (PACKAGE, PROGRAM, os.path.dirname(PLAN_FILE), os.path.dirname(os.path.dirname(PLAN_FILE))):
        # What others keep there stays.
        with contextlib.suppress(OSError):
            os.rmdir(root + folder)


def write(path: str, text: str) -> None:
    """Replace a file as a whole, so that a boot in between finds the one before or the one after."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".gpu-fleet-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), _MODE)
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def read(path: str) -> str | None:
    """The text of a file that is as `write` leaves it, None where there is none; of anything else what it is."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != _MODE or status.st_uid != os.geteuid():
            return f"(owner {status.st_uid}, mode {stat.filemode(status.st_mode)})\n"
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"({error.strerror})\n"


def _present(root: str) -> tuple[str, ...]:
    """The files of the service that are there, also those of another version."""
    found = [path for path in (UNIT_FILE, PLAN_FILE) if os.path.lexists(root + path)]
    for folder in (PROGRAM, PACKAGE):
        with contextlib.suppress(OSError):
            found += [f"{folder}/{name}" for name in os.listdir(root + folder) if name.endswith(".py")]
    return tuple(found)
