# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""daemon_json: merge options into the file that Docker and other tools share. Private to this collection."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from typing import Any, Iterator, Mapping

from ansible.module_utils.basic import AnsibleModule

from .._common.arguments import check_path
from .._common.atomic_write import atomic_write
from .._common.errors import ChangeError, RunError
from .._common.masking import masked
from .._common.os_errors import advice
from .._common.regular_file import read_text
from .daemon_json import Conflict, Options, OptionsError, conflicts, merge, parse, path_objection, render, same

_ATTEMPTS = 5
_PRIVATE_MODE = 0o600
"""Of a file with a password, as in the URL of a proxy: only root has to read it."""


class _ChangedSinceReadError(Exception):
    """Another process wrote the file after it was read."""


@dataclass(frozen=True)
class OptionsRequest:
    """Options of the file `path`. `earlier` are the options of an earlier run; `ours`: replace values of others."""

    path: str
    options: Mapping[str, Any]
    earlier: Mapping[str, Any]
    ours: bool


@dataclass(frozen=True)
class OptionsPlan:
    """The options of the whole file, the text to write, and conflicts that are overcome.

    With a text of None the file stays; with an empty one, where no option is left, it is removed.
    """

    options: Options
    text: str | None
    conflicts: tuple[Conflict, ...]


def parse_request(params: Mapping[str, Any]) -> OptionsRequest:
    """The request in the options; raises ChangeError by the name of an option."""
    check_path("path", params["path"])
    for option in ("options", "earlier"):
        objection = _json_objection(params[option])
        if objection:
            raise ChangeError(f"{option}: {objection}")
    objection = path_objection(params["options"])
    if objection:
        raise ChangeError(f"options: {objection}")
    ours = params["on_conflict"] == "ours"
    return OptionsRequest(os.path.realpath(params["path"]), params["options"], params["earlier"], ours)


def _json_objection(options: Mapping[str, Any]) -> str | None:
    """Why options cannot be written as JSON in UTF-8, None when they can."""
    try:
        json.dumps(options, allow_nan=False, ensure_ascii=False).encode()
    except ValueError as error:
        return f"what JSON cannot have: {error}"
    return None


def plan(request: OptionsRequest, text: str | None) -> OptionsPlan:
    """Plan the change of a file with this content, None for no file; raises OptionsError."""
    found = parse(text or "")
    clashes = conflicts(found, request.options, request.earlier)
    if clashes and not request.ours:
        raise OptionsError(
            f"has other values than the requested ones: {'; '.join(map(str, clashes))}; change them there or here, or "
            "set on_conflict to ours"
        )
    options = merge(found, request.options, request.earlier)
    text = render(options) if options else ""
    return OptionsPlan(options, None if same(options, found) else text, clashes)


def run(module: AnsibleModule) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(module.params)
    try:
        return _converge(module, request)
    except (OptionsError, OSError, UnicodeError) as error:
        raise ChangeError(_message(request.path, error)) from error


def _message(path: str, error: Exception) -> str:
    if isinstance(error, OptionsError):
        return f"{path} {error}"
    return f"path: {path} cannot be read or written: {error}{advice(error)}"


def _converge(module: AnsibleModule, request: OptionsRequest) -> dict[str, Any]:
    """Merge, write and read back; again when another process wrote the file meanwhile."""
    for _attempt in range(_ATTEMPTS):
        before = read_text(request.path)
        planned = plan(request, before)
        result = _result(request.path, before, planned)
        if planned.text and module.check_mode:
            # What a run would only find after it has changed others.
            with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, suffix=".json", encoding="utf-8") as preview:
                preview.write(planned.text)
                preview.flush()
                _refuse_invalid(module, preview.name)
        if planned.text is None or module.check_mode:
            return result
        written = _write(module, request.path, before, planned.text)
        if written is not None:
            try:
                if (read_text(request.path) or "") != planned.text:
                    raise OptionsError("was written by another process at the same time; run again")
            except (OptionsError, OSError, UnicodeError) as error:
                raise RunError(_message(request.path, error), {"changed": True, **written}) from error
            return {**result, **written}
    raise OptionsError(
        f"was changed by another process in each of {_ATTEMPTS} attempts; stop that process, then run again"
    )


def _result(path: str, before: str | None, planned: OptionsPlan) -> dict[str, Any]:
    text = before or ""
    after = text if planned.text is None else planned.text
    return {
        "changed": planned.text is not None,
        "differs": planned.text is not None,
        "options": masked(planned.options),
        "conflicts": [clash.place for clash in planned.conflicts],
        "created": before is None and planned.text is not None,
        "diff": {"before_header": path, "after_header": path, "before": masked(text), "after": masked(after)},
    }


def _write(module: AnsibleModule, path: str, before: str | None, after: str) -> dict[str, str] | None:
    """Replace the file; returns `backup_file` if there was one, None if another process wrote it since it was read."""
    result: dict[str, str] = {}

    def check(temporary: str) -> None:
        _refuse_invalid(module, temporary)
        if read_text(path) != before:
            raise _ChangedSinceReadError
        if before is not None:
            result["backup_file"] = module.backup_local(path)
            if _has_password(before):
                os.chmod(result["backup_file"], _PRIVATE_MODE)

    try:
        if not after:
            check(path)
            os.unlink(path)
            return result
        atomic_write(path, after.encode(), _PRIVATE_MODE if _has_password(after) else None, check)
    except _ChangedSinceReadError:
        return None
    return result


def _has_password(text: str) -> bool:
    return bool(masked(text) != text)


def _refuse_invalid(module: AnsibleModule, path: str) -> None:
    reported = _error_message(module, path)
    if reported is not None:
        raise OptionsError(f"was left as it is, its new text cannot be used: {reported}; correct the options")


def _error_message(module: AnsibleModule, path: str) -> str | None:
    """The engine's error message about a file; None when it is valid or cannot be validated."""
    engine = module.get_bin_path(module.params["executable"])
    if engine is None:
        return None
    flags = _unit_flags(module, engine)
    if flags:
        # Only what the engine states about both: other flags may need what a validation does not have.
        _status, _out, error = module.run_command([engine, *flags, "--validate", "--config-file", path])
        twice = re.search(r"specified both as a flag and in the configuration file: .*", error)
        if twice:
            return f"{twice[0].strip()} (the flag is in `systemctl cat docker.service`)"
    status, _out, error = module.run_command([engine, "--validate", "--config-file", path])
    if status == 0 or "unknown flag: --validate" in error:
        return None
    # "unable to configure the Docker daemon with file PATH: ..."; the path is our temporary file.
    message = str(error).strip()
    return message.partition(f"with file {path}: ")[2] or message


def _unit_flags(module: AnsibleModule, engine: str) -> list[str]:
    """The arguments that docker.service gives the engine. On Amazon Linux they are in the environment of the unit."""
    systemctl = module.get_bin_path("systemctl")
    if systemctl is None:
        return []
    properties = "--property=ExecStart,Environment,EnvironmentFiles"
    _status, shown, _error = module.run_command([systemctl, "show", properties, "docker.service"])
    found = re.search(r"argv\[\]=(\S+)([^;]*) ;", shown)
    if found is None or os.path.realpath(found[1]) != os.path.realpath(engine):
        return []
    assigned = dict(re.findall(r"(\w+)=(.*)", "\n".join(_assignments(shown))))
    # As systemd does: a variable alone is split, in a word it is not, and one without a value is empty.
    words = [
        word
        for one in found[2].split()
        for word in (assigned.get(one[1:].strip("{}"), "").split() if re.fullmatch(r"\$\w+", one) else [one])
    ]
    return [] if any("$" in word or word.startswith("--config-file") for word in words) else words


def _assignments(shown: str) -> Iterator[str]:
    """NAME=VALUE of the unit's environment, without quotes. Of one name the last counts: files come after the unit."""
    for line in re.findall("^Environment=(.*)", shown, re.MULTILINE):
        with contextlib.suppress(ValueError):
            yield from shlex.split(line)
    for path in re.findall(r"^EnvironmentFiles=(.*?)(?: \(ignore_errors=\w+\))?$", shown, re.MULTILINE):
        try:
            text = read_text(path) or ""
        except (OSError, UnicodeError):
            continue
        for line in text.splitlines():
            if re.match(r"\s*\w+=", line):
                name, _equals, value = line.strip().partition("=")
                yield f"{name}={value.strip().strip(chr(34) + chr(39))}"
