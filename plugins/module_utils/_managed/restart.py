# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""unit_restart: restart a unit that has not read its configuration. Private to this collection."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from typing import Any, Mapping

from .._common.arguments import check_path, shortened
from .._common.atomic_write import atomic_write
from .._common.errors import ChangeError, RunError
from .._common.host_files import HostFiles
from .._common.os_errors import advice
from .._common.runner import find_executable, run_all
from .observe import modified, show_units
from .start import Unit, other_start, stale_start

_NAME = re.compile(r"[\w@][\w@.+~:\\-]*\.service")
_SECONDS = 300.0
"""Limit of one restart: stopping takes up to 90 s by default, and starting as much."""


@dataclass(frozen=True)
class RestartRequest:
    """The unit `name`, the files that it must have read, and the content to restore where it does not start with them.

    `previous` is None for a file that is to be removed again.
    """

    name: str
    started_after: tuple[str, ...]
    previous: Mapping[str, str | None]


def parse_request(params: Mapping[str, Any]) -> RestartRequest:
    """The request in the options; raises ChangeError by the name of an option."""
    if not _NAME.fullmatch(params["name"]):
        raise ChangeError(
            f"name: {shortened(params['name'])} is not the full name of a service, such as docker.service"
        )
    for option in ("started_after", "previous"):
        for path in params[option]:
            check_path(option, path)
    for path, text in params["previous"].items():
        if not isinstance(text, (str, type(None))):
            raise ChangeError(f"previous: the value of {path} has to be a string, or null for no file")
    return RestartRequest(params["name"], tuple(params["started_after"]), params["previous"])


def _reason_to_restart(request: RestartRequest, files: HostFiles, unit: Unit | None) -> str:
    """Why the unit has to be restarted; empty where it runs with the present files, is stopped or does not exist."""
    if unit is None:
        return ""
    if unit.active == "failed":
        return f"{request.name} has failed"
    return stale_start(unit, request.started_after, modified(files, request.started_after))


def run(params: Mapping[str, Any], check_mode: bool, files: HostFiles) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(params)
    before = show_units([request.name]).get(request.name)
    reason = _reason_to_restart(request, files, before)
    if reason and not check_mode:
        objection = _restart(request, files)
        if objection:
            left, is_restored = _undo(request, files)
            result = {"changed": is_restored or _is_changed(before), "reason": reason}
            raise RunError(f"{request.name} does not run with its configuration: {objection}; {left}", result)
    return {"changed": bool(reason), "reason": reason}


def _is_changed(before: Unit | None) -> bool:
    """Whether the unit runs otherwise than before a restart that has failed."""
    if before is None:
        return False
    now = show_units([before.name]).get(before.name)
    if now is None or now.active != before.active:
        return True
    return before.started is not None and bool(other_start(before.name, before.started, now.started))


def _restart(request: RestartRequest, files: HostFiles) -> str:
    """Restart the unit; return why it does not run with the present files, empty when it does."""
    (result,) = run_all([[find_executable("systemctl"), "restart", "--", request.name]], _SECONDS)
    if result.rc != 0:
        reported = " ".join((result.text + " " + result.error_text).split())
        return reported or f"systemctl restart ended with exit status {result.rc}"
    unit = show_units([request.name]).get(request.name)
    if unit is None or unit.active != "active":
        return f"it is {unit.active if unit is not None else 'missing'} after the restart"
    return stale_start(unit, request.started_after, modified(files, request.started_after))


def _undo(request: RestartRequest, files: HostFiles) -> tuple[str, bool]:
    """Restore the previous files and restart with them; return what the host is left with, and whether any is back."""
    hint = f"see journalctl --unit={request.name}"
    if not request.previous:
        return hint, False
    names, left = ", ".join(request.previous), []
    # In the reverse order, so that no file names one that is gone; a link of the user stays.
    for path, text in reversed(list(request.previous.items())):
        real = files.real(path)
        try:
            if text is not None:
                atomic_write(os.path.realpath(real), text.encode())
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(real)
        except (OSError, UnicodeError) as error:
            left.append(f"{path} could not be restored: {error}{advice(error)}")
    if left:
        return f"{'; '.join(left)}; {hint}", len(left) < len(request.previous)
    objection = _restart(request, files)
    if objection:
        text = f"{names} restored, but it does not start with the previous configuration either: {objection}; {hint}"
        return text, True
    return f"{names} restored, and it runs with the previous configuration; {hint}", True
