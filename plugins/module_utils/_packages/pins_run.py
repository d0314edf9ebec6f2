# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""package_pin: read the host, change files and holds, read back. Private to this collection."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from typing import Any, Iterator, Mapping, Sequence

from .._common.distribution import uses_dpkg
from .._common.errors import ChangeError, RunError
from .._common.file_steps import diff_of, read_file, take
from .._common.host_files import HostFiles
from .._common.os_errors import advice
from .._common.plain_text import one_line
from .._common.runner import CommandResult, run_all
from .._managed.packages import (
    RPM_FORMAT,
    Package,
    lock_lists,
    locks_disabled_by,
    parse_rpm,
    read_version_locks,
)
from .apt import QUERY, parse_status
from .pins import PLUGIN, Observed, Plan, Request, parse_request, plan, refusal
from .plan import error_message, first_line

_SECONDS = 600
_LOCK_ATTEMPTS, _LOCK_PAUSE = 12, 5
_LOCKED = re.compile(r"\block(ed)?\b")
# A wildcard in the version lets the version change.
_EXACT = re.compile(r"[^*?\[]*(?:\.\*)?")
_PREFERENCES = ("/etc/apt/preferences", "/etc/apt/preferences.d/*")


class _Progress:
    """One run: the host's files, and what was done so far."""

    def __init__(self, files: HostFiles) -> None:
        self.files = files
        self.done = Plan()

    def result(self, found: Plan) -> dict[str, Any]:
        """The module's result, where these steps were made, or would be."""
        return {
            "changed": bool(found.changes),
            "written": [step.path for step in found.files if step.after is not None],
            "removed": [step.path for step in found.files if step.after is None],
            "held": list(found.hold),
            "released": list(found.release),
            "installed": list(found.install),
            "others": list(found.others),
            "diff": [*diff_of(found.files), *_diff_of_holds(found)],
        }


def _diff_of_holds(found: Plan) -> Iterator[dict[str, str]]:
    if found.hold or found.release:
        before, after = ("".join(f"{name}\n" for name in names) for names in (found.release, found.hold))
        yield {"before_header": "holds", "after_header": "holds", "before": before, "after": after}


def run(params: Mapping[str, Any], check_mode: bool, files: HostFiles) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(params, uses_dpkg(files))
    here = _Progress(files)
    # Scripts of packages must not ask.
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    try:
        return _converge(request, here, check_mode)
    except (OSError, UnicodeError) as error:
        message = request.message(one_line(f"the pins of packages: {error}{advice(error)}"))
        raise RunError(message, here.result(here.done)) from error
    except ChangeError as error:
        raise RunError(one_line(str(error)), here.result(here.done)) from error


def _converge(request: Request, here: _Progress, check_mode: bool) -> dict[str, Any]:
    observed = observe(request, here.files)
    found = plan(request, observed)
    if check_mode:
        return {**here.result(found), "pinned": _pinned(request, observed)}
    why = refusal(request, observed)
    if why:
        raise ChangeError(why)
    if found.changes:
        _apply(request, found, here)
        observed = observe(request, here.files)
        left = plan(request, observed).changes
        if left:
            raise ChangeError(request.message(f"the pins are not as requested, read back: {', '.join(left)}"))
        why = refusal(request, observed)
        if why:
            raise ChangeError(why)
    result = here.result(replace(here.done, others=found.others))
    return {**result, "pinned": _pinned(request, observed)}


def _pinned(request: Request, observed: Observed) -> dict[str, str]:
    """The versions of the packages that are held or locked, as they were read last."""
    held = (observed.packages.get(name) for name in request.hold)
    return {one.name: one.version for one in held if one is not None and one.held and one.version}


# Observe


def observe(request: Request, files: HostFiles) -> Observed:
    """Read what the plan needs of the host."""
    owner = (os.geteuid(), os.getegid())
    if request.uses_apt:
        packages, held = _dpkg(request) if request.hold or request.release else ({}, ())
        path = request.preferences_file
        others = {one: files.read(one) or "" for pattern in _PREFERENCES for one in files.matching(pattern)}
        others.pop(path, None)
        file = read_file(files, path) if path else None
        return Observed(packages, held, path, file, others, owner=owner)
    path = files.resolve(next((one for one in lock_lists(files) if files.exists(one)), lock_lists(files)[0]))
    packages = _rpm(request, files)
    missing = (PLUGIN,) if request.needs_locks and packages[PLUGIN].version is None else ()
    disabled = locks_disabled_by(files)
    return Observed(packages, (), path, read_file(files, path), None, missing, disabled, owner)


def _dpkg(request: Request) -> tuple[dict[str, Package], tuple[str, ...]]:
    result = _run(QUERY)
    if result.rc != 0:
        raise ChangeError(request.message(f"cannot read the installed packages: {error_message(result, _explain)}"))
    installed, _broken, held = parse_status(result.text)
    packages = {name: Package(name, version, None, name in held) for name, version in installed.items()}
    return packages, tuple(held)


def _rpm(request: Request, files: HostFiles) -> dict[str, Package]:
    names = (*request.hold, *([PLUGIN] if request.needs_locks else ()))
    if not names:
        return {}
    result = _run(["rpm", "--query", "--queryformat", RPM_FORMAT, *names])
    # Its status is the number of packages that are not installed.
    if result.rc is None or not 0 <= result.rc <= len(names):
        raise ChangeError(request.message(f"cannot read the installed packages: {error_message(result, _explain)}"))
    locks = [entry for entry in read_version_locks(files) if _EXACT.fullmatch(entry)]
    return parse_rpm(result.text, names, locks)


# Apply


def _apply(request: Request, found: Plan, here: _Progress) -> None:
    """Carry out the steps; each is in `done` then, also one whose program failed after it."""
    for name in found.install:
        result = _change(["dnf", "--assumeyes", "install", name])
        is_made = result.rc == 0 or _rpm(request, here.files)[PLUGIN].version is not None
        here.done = replace(here.done, install=found.install if is_made else ())
        _check(request, f"cannot install {name}", result)
    for step in found.files:
        take(step, here.files)
        here.done = replace(here.done, files=(*here.done.files, step))
    # One command for all packages: a kernel has many.
    if found.release:
        result = _change(["apt-mark", "unhold", *found.release])
        here.done = replace(here.done, release=_made(request, result, found.release, False))
        _check(request, f"cannot release {', '.join(found.release)}", result)
    if found.hold:
        result = _change(["apt-mark", "hold", *found.hold])
        here.done = replace(here.done, hold=_made(request, result, found.hold, True))
        _check(request, f"cannot hold {', '.join(found.hold)}", result)


def _change(argv: Sequence[str]) -> CommandResult:
    """Run a program that changes the host; dpkg does not wait for another one."""
    result = _run(argv)
    for _attempt in range(_LOCK_ATTEMPTS):
        if result.rc == 0 or not _LOCKED.search(result.error_text):
            break
        time.sleep(_LOCK_PAUSE)
        result = _run(argv)
    return result


def _made(request: Request, result: CommandResult, names: tuple[str, ...], is_held: bool) -> tuple[str, ...]:
    """The packages that are on hold, or not, by now."""
    if result.rc == 0:
        return names
    held = _dpkg(request)[1]
    return tuple(name for name in names if (name in held) is is_held)


def _check(request: Request, what: str, result: CommandResult) -> None:
    if result.rc != 0:
        raise ChangeError(request.message(f"{what}: {error_message(result, _explain)}"))


def _run(argv: Sequence[str]) -> CommandResult:
    return run_all([argv], _SECONDS)[0]


def _explain(message: str) -> str:
    return first_line(message, "^(?:E|Error|dpkg: error)").replace("E: ", "")
