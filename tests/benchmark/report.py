# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of benchmarks: tables as text and as JSON, with the machine and the versions that they were measured with."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """One table; units are in the names of the columns.

    `missed` has a sentence for each goal that is missed and does not depend on the machine: those fail the benchmark.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    missed: tuple[str, ...] = ()

    def text(self) -> str:
        """The table with aligned columns: the first to the left, the others to the right."""
        cells = [self.columns, *(tuple(map(_text, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in cells)
        return "\n".join([self.title, *lines])

    def plain(self) -> dict[str, Any]:
        """As JSON: rows are objects by the names of the columns."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "missed": list(self.missed)}


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def environment() -> dict[str, Any]:
    """When, on what and with which versions something is measured; the load is that of the last minute."""
    processors = os.cpu_count() or 1
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "processors": processors,
        "load_per_processor": round(os.getloadavg()[0] / processors, 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ansible_core": version("ansible-core"),
    }


def merged(before: str, part: str, tables: Iterable[Table], measured_with: Mapping[str, Any]) -> str:
    """The JSON document `before` (or an empty text) with the results of one part replaced; other parts stay."""
    document = json.loads(before) if before else {}
    document[part] = {"environment": dict(measured_with), "tables": [table.plain() for table in tables]}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def write(path: Path, part: str, tables: Iterable[Table], measured_with: Mapping[str, Any]) -> None:
    """Replace the results of one part in the JSON file at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(merged(before, part, tables, measured_with), encoding="utf-8")
