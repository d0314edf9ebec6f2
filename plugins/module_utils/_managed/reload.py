# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reload systemd where that is due, and name the containers that it can take GPUs from. Private to this collection."""

from __future__ import annotations

from typing import Any, Sequence

from .._common.errors import ChangeError, RunError
from .._common.gpu_containers import Run, reload_warning, running_gpu_containers
from .._common.host_files import HostFiles
from .._common.runner import run_all
from .._common.systemd import BOOTED, Systemd, Unit

# Exists wherever systemd runs.
_ANY_UNIT = "multi-user.target"


def reload(
    units: Sequence[str], check_mode: bool, files: HostFiles, systemd: Systemd, run: Run = run_all
) -> dict[str, Any]:
    """One run of the module; raises ChangeError. Without `units` a reload is always due, where systemd runs."""
    is_due = _is_due(units, files, systemd)
    containers = running_gpu_containers(files, run) if is_due else ()
    if is_due and not check_mode:
        try:
            systemd.act("daemon-reload")
        except ChangeError as error:
            raise RunError(str(error), {"changed": _may_be_reloaded(units, files, systemd)}) from error
    warning = reload_warning(containers)
    return {
        "changed": is_due,
        "containers": [{"engine": one.engine, "name": one.name} for one in containers],
        "warnings": [warning] if warning else [],
    }


def _may_be_reloaded(units: Sequence[str], files: HostFiles, systemd: Systemd) -> bool:
    """Whether a failed reload may have taken effect: systemctl also fails where it has not waited long enough."""
    try:
        return not units or not _is_due(units, files, systemd)
    except ChangeError:
        return True


def _is_due(units: Sequence[str], files: HostFiles, systemd: Systemd) -> bool:
    try:
        found = systemd.show(units or (_ANY_UNIT,))
    except ChangeError:
        if files.exists(BOOTED):
            raise
        return False
    return bool(found) and (
        not units or any(unit.needs_reload or _has_new_drop_ins(unit, files) for unit in found.values())
    )


def _has_new_drop_ins(unit: Unit, files: HostFiles) -> bool:
    """Whether there are drop-ins that systemd has not read.

    It caches which directories there are, so that NeedDaemonReload stays "no" for the first drop-in of a unit: seen
    with systemd 252. One that is empty, or a link to /dev/null, masks another one of its name and need not be among
    those.
    """
    found = files.matching(f"/etc/systemd/system/{unit.name}.d/*.conf")
    return any(files.read(path) for path in found if path not in unit.drop_ins)
