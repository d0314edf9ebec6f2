# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report, and read the last one. Private to this collection."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...module_utils._common.json_text import parse_json
from ...module_utils._common.regular_file import text_of
from .documents import as_csv, as_json
from .model import SCHEMA_VERSION, Host, Report
from .page import as_html, make

PAGE, TABLE, DATA = "report.html", "report.csv", "report.json"


def write(directory: str, hosts: Sequence[Host], time: str, check_mode: bool) -> dict[str, Any]:
    """Write the files, in check mode none; returns what the module returns. Raises OSError."""
    previous, warnings = read_previous(os.path.join(directory, DATA))
    report = _compared(hosts, time, previous, warnings)
    paths = {name: os.path.join(directory, file) for name, file in (("html", PAGE), ("csv", TABLE), ("json", DATA))}
    if not check_mode:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        # The data last: as long as a write fails, the next report compares with the last complete one.
        for name, content in (("html", as_html(report)), ("csv", as_csv(report)), ("json", as_json(report))):
            replace_file(paths[name], content)
    return {**paths, "summary": asdict(report.summary), "changes": len(report.changes), "warnings": warnings}


def read_previous(path: str) -> tuple[Mapping[str, Any] | None, list[str]]:
    """The last report, None where there is none; one that cannot be used gives a warning."""
    try:
        previous = parse_json(text_of(path))
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError) as error:
        return None, [f"{path} cannot be read, so that nothing is compared with the last report: {error}"]
    version = previous.get("schema_version") if isinstance(previous, dict) else None
    if version != SCHEMA_VERSION:
        return None, [f"{path} is not of schema version {SCHEMA_VERSION}, so that nothing is compared with it"]
    return previous, []


def _compared(hosts: Sequence[Host], time: str, previous: Mapping[str, Any] | None, warnings: list[str]) -> Report:
    try:
        return make(hosts, time, previous)
    except (AttributeError, KeyError, TypeError):
        if previous is None:
            raise
        report = make(hosts, time)
        warnings.append(f"the last {DATA} is damaged, so that nothing is compared with it")
        return report


def replace_file(path: str, content: str) -> None:
    """Write a file as a whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
