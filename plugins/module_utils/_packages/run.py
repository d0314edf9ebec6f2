# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""package_transaction: plan, apply and report on either package manager. Private to this collection."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator, Mapping, Sequence

from .._common.arguments import shortened
from .._common.distribution import uses_dpkg
from .._common.errors import RunError
from .._common.host_files import HostFiles
from .._common.runner import CommandResult, run_all
from . import apt, dnf
from .plan import PackageError, PackagePlan, PackageRequest, RefusedError, Run

# Arguments of apt-get and dnf, run by root: none may be parsed as an option, as two arguments or as a removal (`name-`
# for apt-get).
_PACKAGE = r"[A-Za-z0-9](?:[A-Za-z0-9+._:-]*[A-Za-z0-9+._])?"
_STREAM = r"[A-Za-z0-9][A-Za-z0-9+._-]*"
_FORMS = {
    "install": (
        re.compile(rf"{_PACKAGE}(?:=[A-Za-z0-9*?][A-Za-z0-9+._:~^*?[\]-]*)?"),
        "a package as name or name=version",
    ),
    "remove": (re.compile(_PACKAGE), "the name of a package"),
    "release_holds": (re.compile(_PACKAGE), "the name of a package"),
    "stream": (re.compile(rf"(?:{_STREAM}:{_STREAM})?"), "a module and its stream as module:stream"),
    "module": (re.compile(rf"(?:{_STREAM})?"), "the name of a module"),
    "save_directory": (re.compile(r"(?:/[\w@%+:,.~-]+)+"), "an absolute path"),
    "sources": (re.compile(r"(?:/[\w@%+:,.~-]+)+\.deb"), "the absolute path of a .deb file"),
    "preferences_file": (re.compile(r"(?:/etc/apt/preferences\.d/[\w-]+)?"), "a file of /etc/apt/preferences.d"),
}
"""By option: the form of its values, and that in words."""


def parse_request(params: Mapping[str, Any]) -> PackageRequest:
    """The request in the options; raises RunError by the name of an option."""
    for option, (form, meant) in _FORMS.items():
        values = params[option]
        for text in values if isinstance(values, list) else [values]:
            if not form.fullmatch(text):
                raise RunError(f"{option}: {shortened(text)} is not {meant}", {})
    return PackageRequest(
        install=tuple(params["install"]),
        remove=tuple(params["remove"]),
        purge=params["purge"],
        stream=params["stream"],
        module=params["module"],
        release_holds=tuple(params["release_holds"]),
        upgrade=params["upgrade"],
        repair=params["repair"],
        rollback=params["rollback"],
        save_directory=params["save_directory"],
        sources=tuple(params["sources"]),
        lock_timeout=params["lock_timeout"],
    )


@contextmanager
def planned_preferences(params: Mapping[str, Any], files: HostFiles) -> Iterator[str]:
    """A directory with the host's preferences and the planned ones, while it is needed; empty without any."""
    path = params["preferences_file"]
    if not path or not uses_dpkg(files):
        yield ""
        return
    place, own = os.path.split(path)
    with tempfile.TemporaryDirectory() as directory:
        for name in files.names(place):
            if name != own:
                os.symlink(files.real(os.path.join(place, name)), os.path.join(directory, name))
        with open(os.path.join(directory, own), "wb") as stream:
            stream.write(params["preferences"].encode(errors="replace"))
        yield directory


def plan(request: PackageRequest, files: HostFiles, call: Run) -> PackagePlan:
    """The changes that the request means on this host."""
    if uses_dpkg(files):
        return apt.plan(request, call)
    name = request.stream.partition(":")[0] or request.module
    enabled = dnf.parse_stream(files.read(f"/etc/dnf/modules.d/{name}.module") or "", name) if name else ""
    return dnf.plan(request, call, enabled)


def run(params: Mapping[str, Any], check_mode: bool, files: HostFiles) -> dict[str, Any]:
    """One run of the module; raises RunError with its result."""
    request = parse_request(params)
    commands: list[str] = []
    has_helper = False
    # Maintainer scripts must not prompt.
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"

    def call(argv: Sequence[str]) -> CommandResult:
        nonlocal has_helper
        commands.append(" ".join(map(shlex.quote, argv)))
        result = run_all([argv], params["timeout"])[0]
        has_helper = has_helper or (result.rc == 0 and apt.is_helper(argv))
        return result

    result: dict[str, Any] = {"commands": commands, "installed": {}, "removed": {}, "unavailable": [], "undo": {}}
    try:
        with planned_preferences(params, files) as preferences:
            found = plan(replace(request, preferences=preferences), files, call)
        result.update(_changes(found))
        if found.changes and not check_mode:
            if uses_dpkg(files):
                found = apt.save(request, found, call)
                result.update(_changes(found))
            apply = apt.apply if uses_dpkg(files) else dnf.apply
            result.update(_changes(found.done(apply(request, found, call))))
    except PackageError as error:
        result.update(begun=error.begun, changed=error.begun or has_helper, refused=isinstance(error, RefusedError))
        if isinstance(error, RefusedError):
            result["unavailable"] = list(error.unavailable)
        raise RunError(str(error), result) from error
    return {**result, "changed": found.changes, "diff": _diff(found.before, result["installed"], result["removed"])}


def _changes(plan: PackagePlan) -> dict[str, Any]:
    return {
        "installed": dict(plan.install),
        "removed": dict(plan.remove),
        "unavailable": list(plan.unavailable),
        "undo": plan.undo(),
    }


def _diff(before: Mapping[str, str], installed: Mapping[str, str], removed: Mapping[str, str]) -> dict[str, str]:
    touched = sorted({*installed, *removed})
    return {
        "before": "".join(f"{name} {before[name]}\n" for name in touched if name in before),
        "after": "".join(f"{name} {installed[name]}\n" for name in touched if name in installed),
    }
