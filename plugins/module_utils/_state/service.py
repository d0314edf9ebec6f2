# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare and apply the boot service on this host. Private to this collection."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Mapping, Sequence

from .._common.atomic_write import atomic_write
from .._common.boot_cache import BOOT_ID
from .._common.errors import ChangeError
from .._common.gpu_containers import reload_warning, running_gpu_containers
from .._common.host_files import HostFiles
from .._common.json_text import parse_json
from .._common.regular_file import text_of
from .._common.systemd import Systemd, Unit
from . import service_files
from .service_files import PLAN_FILE, UNIT, FileStep, Service

DESIRED_LINK = "/etc/systemd/system/multi-user.target.wants/" + UNIT
REBOOT_FILE = "/var/lib/gpu-fleet/state/reboot.json"
"""The modes that were pending when a reboot was requested, so that a reboot without effect is not repeated."""

_MOST_NAMES = 5


@dataclass(frozen=True)
class ServicePlan:
    """Changes to make: files to write or remove, then arguments for systemctl."""

    files: tuple[FileStep, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the service is as desired."""
        return not self.files and not self.commands


def plan_present(plan_text: str | None, service: Service, unit: Unit, starts: bool, root: str = "") -> ServicePlan:
    """Plan a service that is enabled, with this plan for the GPUs; None keeps the present plan.

    With `starts` it is also started: this would fail while a mode waits for the next boot.
    """
    saved = service_files.read(root + PLAN_FILE)
    desired = service_files.desired_files((saved or "") if plan_text is None else plan_text, service)
    files = service_files.plan_files(desired, root)
    commands: list[tuple[str, ...]] = []
    if not is_enabled(root):
        # enable reloads systemd by default, and a reload removes the GPUs from running containers that got them from
        # the runtime's hook: https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
        commands.append(("enable", "--no-reload", UNIT))
    if starts and (files or unit.active != "active"):
        commands.append(("restart", UNIT))
    return ServicePlan(files, tuple(commands))


def plan_absent(unit: Unit, root: str = "") -> ServicePlan:
    """Plan the removal of the service."""
    files = service_files.plan_files({}, root)
    commands: list[tuple[str, ...]] = []
    if is_enabled(root):
        commands.append(("disable", "--no-reload", UNIT))
    if unit.active not in ("", "inactive"):
        commands.append(("stop", UNIT))
    if unit.active == "failed":
        commands.append(("reset-failed", UNIT))
    return ServicePlan(files, tuple(commands))


def reload_warnings(plan: ServicePlan, unit: Unit, root: str = "") -> list[str]:
    """The containers that may lose their GPUs when systemd, which knows another unit, is reloaded for this plan."""
    if not unit.is_loaded or all(step.path != service_files.UNIT_FILE for step in plan.files):
        return []
    warning = reload_warning(running_gpu_containers(HostFiles(root)))
    return [warning] if warning else []


def make_present(systemd: Systemd, plan: ServicePlan, root: str = "", done: list[str] | None = None) -> None:
    """Apply the output of plan_present, and verify that the service works; raises ChangeError.

    `done` gets each file that was changed, and each command before it is called: one that fails may have an effect.
    """
    service_files.apply_files(plan.files, root, done)
    for words in plan.commands:
        if done is not None:
            done.append(" ".join(words))
        if words[0] == "restart" and systemd.unit(UNIT).needs_reload:
            systemd.act("daemon-reload")
        try:
            systemd.act(*words)
        except ChangeError as error:
            message = systemd.unit(UNIT).status
            raise ChangeError(
                f"{error}{'; its status: ' + message if message else ''}; see journalctl -u {UNIT}"
            ) from error
    if not is_enabled(root):
        raise ChangeError(f"{UNIT} is not enabled although systemctl reported success")
    if ("restart", UNIT) in plan.commands and systemd.unit(UNIT).active != "active":
        raise ChangeError(f"{UNIT} is not active although it was started; see journalctl -u {UNIT}")


def is_enabled(root: str = "") -> bool:
    """Whether the next boot starts the service. systemd itself reports the state of its last reload."""
    return os.path.islink(root + DESIRED_LINK)


def make_absent(systemd: Systemd, plan: ServicePlan, root: str = "", done: list[str] | None = None) -> None:
    """Apply the output of plan_absent; raises ChangeError. `done` as of make_present."""
    for words in plan.commands:
        if done is not None:
            done.append(" ".join(words))
        systemd.act(*words)
    service_files.apply_files(plan.files, root, done)
    if plan.files and systemd.unit(UNIT).needs_reload:
        systemd.act("daemon-reload")


def diff(plan: ServicePlan) -> list[dict[str, str]]:
    """The unit and the plan as text; of the program's files, which are this collection's code, only the names."""
    shown = [step for step in plan.files if not step.path.startswith(service_files.PROGRAM)]
    program = [step for step in plan.files if step not in shown]
    diffs = [
        {
            "before_header": step.path,
            "after_header": step.path,
            "before": step.before or "",
            "after": step.after or "",
        }
        for step in shown
    ]
    if program:
        diffs.append(
            {
                "before_header": service_files.PROGRAM,
                "after_header": service_files.PROGRAM,
                "before": _names([step.path for step in program if step.before is not None], "another version of "),
                "after": _names([step.path for step in program if step.after is not None], ""),
            }
        )
    return diffs


def _names(paths: Sequence[str], what: str) -> str:
    """A few files by name, more by their number."""
    if len(paths) > _MOST_NAMES:
        return f"{what}{len(paths)} files of the program\n"
    return "".join(f"{what}{path}\n" for path in paths)


def reboot_was_tried(pending: Sequence[str], root: str = "") -> bool:
    """Whether a reboot was requested for exactly these GPUs, and has happened since."""
    try:
        record = parse_json(text_of(root + REBOOT_FILE))
        return bool(record["pending"] == sorted(pending) and record["boot_id"] != _boot_id())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def note_reboot(pending: Sequence[str], root: str = "") -> None:
    """Record that a reboot is requested for these GPUs; an empty list removes the record."""
    if pending:
        record: Mapping[str, object] = {"boot_id": _boot_id(), "pending": sorted(pending)}
        atomic_write(root + REBOOT_FILE, f"{json.dumps(record)}\n".encode(), 0o644)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(root + REBOOT_FILE)


def _boot_id() -> str:
    with open(BOOT_ID, encoding="ascii") as stream:
        return stream.read().strip()
