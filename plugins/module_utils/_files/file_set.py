# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""file_set: a set of text files as one. Private to this collection."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .._common.arguments import check_path, path_objection, shortened
from .._common.atomic_write import atomic_write
from .._common.bounds import listed
from .._common.errors import ChangeError, RunError
from .._common.json_text import parse_json
from .._common.os_errors import advice
from .._common.regular_file import read_bytes, text_of
from .._common.trust import refuse

_NAMED = 5


@dataclass(frozen=True)
class File:
    """An observed or a desired file."""

    content: str
    mode: int


@dataclass(frozen=True)
class FileStep:
    """One file to write, or to remove when ``after`` is None."""

    path: str
    before: File | None
    after: File | None


def parse_request(params: Mapping[str, Any]) -> dict[str, File]:
    """The desired files by path, without the record; raises ChangeError by the name of an option."""
    check_path("record", params["record"])
    unusable = [
        f"{option}: {shortened(path)} {objection}"
        for option in ("files", "programs")
        for path, content in sorted(params[option].items())
        for objection in (_objection(path, content),)
        if objection
    ]
    if unusable:
        more = f"; and {len(unusable) - _NAMED} more" if len(unusable) > _NAMED else ""
        raise ChangeError("; ".join(unusable[:_NAMED]) + more)
    desired = {path: File(content, 0o644) for path, content in params["files"].items()}
    desired.update({path: File(content, 0o755) for path, content in params["programs"].items()})
    return desired


def _objection(path: str, content: object) -> str | None:
    """Why a file of the set cannot be written, None when it can; a message to follow the path."""
    if not isinstance(content, str):
        return "has content that is not a string"
    try:
        content.encode()
    except UnicodeError:
        return "has content with characters that cannot be encoded"
    return path_objection(path)


def plan(observed: Mapping[str, File | None], desired: Mapping[str, File]) -> tuple[FileStep, ...]:
    """Return the steps from the observed to the desired files; an observed file that is not desired is removed."""
    steps = [FileStep(path, observed[path], desired.get(path)) for path in sorted(observed)]
    return tuple(step for step in steps if step.before != step.after)


def observe(path: str) -> File | None:
    """Read a file. A link is not managed: it counts as absent and is replaced."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        content = read_bytes(path).decode("utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return File(content, stat.S_IMODE(status.st_mode))


def run(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    record, desired = params["record"], parse_request(params)
    for program in params["run_by_root"]:
        check_path("run_by_root", program)
        refuse((program,), program)
    done: list[FileStep] = []
    try:
        files, directories = _read_record(record)
        if desired:
            directories = sorted({*directories, *_missing_directories([*desired, record])})
            desired[record] = _render_record(desired, directories)
        observed = {path: observe(path) for path in {*desired, *files, record}}
        steps = plan(observed, desired)
        if not check_mode:
            _apply(steps, [] if desired else directories, done)
            left = plan({path: observe(path) for path in observed}, desired)
            if left:
                raise ChangeError(f"not as declared after writing: {', '.join(step.path for step in left)}")
    except (OSError, UnicodeError) as error:
        message = f"cannot write the files of the set, record: {record}: {error}{advice(error)}"
        changed = f"; changed before: {listed([step.path for step in done])}" if done else ""
        raise RunError(message + changed, _result(done)) from error
    except ChangeError as error:
        raise RunError(str(error), _result(done)) from error
    return _result(steps)


def _result(steps: Sequence[FileStep]) -> dict[str, Any]:
    """The module's result, where these steps were made."""
    return {
        "changed": bool(steps),
        "written": [step.path for step in steps if step.after],
        "removed": [step.path for step in steps if step.before and not step.after],
        "diff": [
            {
                "before_header": step.path,
                "after_header": step.path,
                "before": step.before.content if step.before else "",
                "after": step.after.content if step.after else "",
            }
            for step in steps
        ],
    }


def _render_record(desired: Mapping[str, File], directories: Sequence[str]) -> File:
    """Return the record of a set: its files, and the directories that were made for them."""
    return File(json.dumps({"files": sorted(desired), "directories": sorted(directories)}, indent=1) + "\n", 0o644)


def _read_record(path: str) -> tuple[list[str], list[str]]:
    """Read which files and directories an earlier run made; none if the record is unreadable."""
    try:
        record = parse_json(text_of(path))
        found: tuple[list[str], list[str]] = (list(record["files"]), list(record["directories"]))
        is_ours = all(isinstance(path, str) and path_objection(path) is None for paths in found for path in paths)
        return found if is_ours else ([], [])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return [], []


def _missing_directories(paths: Sequence[str]) -> list[str]:
    """List the missing directories of these files."""
    missing = set()
    for path in paths:
        directory = os.path.dirname(path)
        while directory not in missing and not os.path.isdir(directory):
            missing.add(directory)
            directory = os.path.dirname(directory)
    return sorted(missing)


def _apply(steps: Sequence[FileStep], emptied: Sequence[str], done: list[FileStep]) -> None:
    """Apply the steps, each of which is in `done` then; remove the empty directories of the set, innermost first."""
    for step in steps:
        if step.after is not None:
            atomic_write(step.path, step.after.content.encode(), step.after.mode)
        elif os.path.lexists(step.path):
            os.unlink(step.path)
        done.append(step)
    for directory in sorted(emptied, reverse=True):
        if os.path.isdir(directory) and not os.listdir(directory):
            os.rmdir(directory)
