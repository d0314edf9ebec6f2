# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""managed_record and managed_facts. Private to this collection."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import asdict
from typing import Any, Iterable, Mapping

from .._common.arguments import check_path
from .._common.atomic_write import atomic_write
from .._common.bounds import shown
from .._common.errors import ChangeError, RunError
from .._common.host_files import HostFiles
from .drift import Drift, drift, record_of
from .observe import observe, queries
from .record import DIRECTORY, NAME, Claims, RecordError, UnitClaim, parse, read_records, record_path, render
from .secrets import KEY_NAME, KEY_PATH, digest, ensure_key, matches, read_key

LISTS = ("files", "absent", "packages", "pinned_packages", "held_packages")
DICTS = ("lines", "absent_lines", "json_values", "units", "group_members", "data")
"""Options of managed_record, those that are lists of strings and those that are mappings."""


_FLAGS = ("enabled", "active", "same_start")
_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700


def gather(files: HostFiles, secrets: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """The facts by name of the record, and a warning for each record that cannot be used.

    `secrets` are compared with those that the records of these names have been made with.
    """
    key = read_key(files)
    records, unusable = read_records(files)
    observed = observe(queries(records.values()), files)
    managed = {
        name: {
            "inputs": record.inputs,
            "data": dict(record.data),
            "drift": [
                asdict(item) for item in (*drift(record, observed), *_secret_drift(name, record.secrets, secrets, key))
            ],
        }
        for name, record in records.items()
    }
    return managed, list(unusable.values())


def _secret_drift(name: str, recorded: str, secrets: Mapping[str, str], key: bytes) -> Iterable[Drift]:
    if name in secrets and not matches(recorded, secrets[name], key):
        yield Drift("secret", name, "the passwords differ from the last run")


def run(params: Mapping[str, Any], check_mode: bool, files: HostFiles) -> dict[str, Any]:
    """One run of managed_record; raises RunError with its result."""
    name = params["role"]
    unmet: tuple[Drift, ...] = ()
    found: object = None
    try:
        claims = parse_claims(params)
        found = _files_of(files, name)
        before, after = files.read(record_path(name)), None
        if params["state"] == "present":
            key = read_key(files) if check_mode or not claims.secrets else ensure_key(files)
            record, unmet = record_of(claims, observe(queries([claims]), files), digest(claims.secrets, key))
            after = render(record)
            if unmet and not check_mode:
                reported = "; ".join(item.message for item in unmet)
                # A key may have been made for it.
                result = {"unmet": [asdict(item) for item in unmet], "changed": _files_of(files, name) != found}
                raise RunError(f"{name} cannot be recorded as converged: {reported}", result)
        changed = before != after or (after is not None and not _is_private(files, name))
        if changed and not check_mode:
            _apply(files, name, after)
    except (RecordError, OSError) as error:
        changed = found is not None and _files_of(files, name) != found
        raise RunError(f"{name}: {error}", {"changed": changed}) from error
    path = record_path(name)
    return {
        "changed": changed,
        "record": path,
        "unmet": [asdict(item) for item in unmet],
        "diff": {"before_header": path, "after_header": path, "before": before or "", "after": after or ""},
    }


def _files_of(files: HostFiles, name: str) -> tuple[object, ...]:
    """What a run can change: the record, the key, and the modes; a directory that is only made is no change."""
    modes = []
    for path in (record_path(name), KEY_PATH, DIRECTORY):
        try:
            modes.append(stat.S_IMODE(os.stat(files.real(path)).st_mode))
        except OSError:
            modes.append(_DIRECTORY_MODE if path == DIRECTORY else 0)
    return files.read(record_path(name)), read_key(files), tuple(modes)


def parse_claims(params: Mapping[str, Any]) -> Claims:
    """The claims in the options; raises RecordError for an invalid one."""
    if not NAME.fullmatch(params["role"]):
        raise RecordError(f"role: {shown(params['role'])} is not a name of lower-case letters, digits and _ . -")
    for option in ("files", "absent", "lines", "absent_lines", "json_values"):
        for path in params[option]:
            try:
                check_path(option, path)
            except ChangeError as error:
                raise RecordError(str(error)) from error
    for option in ("packages", "pinned_packages", "held_packages", "units", "group_members"):
        for name in params[option]:
            if not re.fullmatch(r"[\w@][\w@.+~:\\-]*", name):
                raise RecordError(f"{option}: {shown(name)} is not a name")
    return Claims(
        inputs=params["inputs"],
        lines=_string_lists("lines", params),
        absent_lines=_patterns(_string_lists("absent_lines", params)),
        json_values=params["json_values"],
        units={name: _unit_claim(name, claim) for name, claim in params["units"].items()},
        group_members=_string_lists("group_members", params),
        data=params["data"],
        secrets=params["secrets"] or "",
        **{name: tuple(params[name]) for name in LISTS},
    )


def _string_lists(option: str, params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    for name, items in params[option].items():
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise RecordError(f"{option}: the value of {name} is not a list of strings")
    return {name: tuple(items) for name, items in params[option].items()}


def _patterns(lists: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    for pattern in (pattern for patterns in lists.values() for pattern in patterns):
        try:
            re.compile(pattern)
        except re.error as error:
            raise RecordError(f"absent_lines: {shown(pattern)} is not a regular expression: {error}") from error
    return lists


def _unit_claim(name: str, claim: object) -> UnitClaim:
    if not isinstance(claim, dict) or set(claim) - {*_FLAGS, "started_after"}:
        raise RecordError(
            f"units: the value of {name} has to be a mapping of enabled, active, same_start and started_after"
        )
    if not all(isinstance(claim[flag], bool) for flag in _FLAGS if flag in claim):
        raise RecordError(f"units: enabled, active and same_start of {name} have to be true or false")
    paths = claim.get("started_after", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise RecordError(f"units: started_after of {name} has to be a list of paths")
    for path in paths:
        try:
            check_path("units", path)
        except ChangeError as error:
            raise RecordError(str(error)) from error
    return UnitClaim(claim.get("enabled"), claim.get("active"), tuple(paths), claim.get("same_start", False))


def _apply(files: HostFiles, name: str, text: str | None) -> None:
    """Write the record and read it back; with None remove it, and the directories that are empty without it."""
    path = files.real(record_path(name))
    if text is not None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.chmod(os.path.dirname(path), _DIRECTORY_MODE)
        atomic_write(path, text.encode(), _FILE_MODE)
        if parse(files.read(record_path(name)) or "") != parse(text):
            raise RecordError(f"{record_path(name)} does not hold what was written to it")
        return
    os.unlink(path)
    if set(files.names(DIRECTORY)) == {KEY_NAME}:
        os.unlink(files.real(KEY_PATH))
    for directory in (DIRECTORY, os.path.dirname(DIRECTORY)):
        if not os.listdir(files.real(directory)):
            os.rmdir(files.real(directory))


def _is_private(files: HostFiles, name: str) -> bool:
    """Whether only root can read the records: earlier versions wrote records that everybody could read."""
    modes = [stat.S_IMODE(os.stat(files.real(path)).st_mode) for path in (record_path(name), DIRECTORY)]
    return modes == [_FILE_MODE, _DIRECTORY_MODE]
