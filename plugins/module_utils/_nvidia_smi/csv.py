# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the CSV of `nvidia-smi --query-gpu`. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from . import gpu as gpu_schema
from . import values as readings

# Driver 610 has the version under both names; the older one is deprecated.
_VERSION, _NEWER_VERSION = "driver_version", "kmd_version"
_DEPRECATED = "Deprecated, see "
_INVALID_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')

BASIC_FIELDS: tuple[str, ...] = (
    "index",
    _VERSION,
    *(item.metadata["reading"].csv for item in fields(gpu_schema.Basics)),
)
"""The fields of one query that fill `Basics`; every driver has these, except the MIG ones, which came with 450."""


CAPABILITY_FIELDS: tuple[str, ...] = (
    "uuid",
    *(item.metadata["reading"].csv for item in fields(gpu_schema.Capability)),
)
"""The fields of an additional query next to a document."""


@dataclass(frozen=True)
class Table:
    """Rows by field name, and the lines that are not rows."""

    rows: tuple[dict[str, str], ...]
    warnings: tuple[str, ...]


def query_arguments(names: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of a query for `names`."""
    return ("--query-gpu=" + ",".join(names), "--format=csv,noheader,nounits")


def without_rejected(names: tuple[str, ...], output: str) -> tuple[str, ...]:
    """`names` without the field that nvidia-smi rejects in `output` and its siblings: one unknown field fails all.

    The field of the driver version is replaced by its newer name.
    """
    match = _INVALID_FIELD.search(output)
    if match is None:
        return names
    if match[1] == _VERSION:
        return with_newer_version(names)
    family = match[1].rpartition(".")[0] or match[1]
    return tuple(name for name in names if name != match[1] and not name.startswith(family + "."))


def parse_table(text: str, names: tuple[str, ...]) -> Table:
    """Parse the output of a query for `names`; a line with another number of columns is kept as a warning."""
    rows = []
    warnings = []
    for line in text.splitlines():
        # The only cell text that contains a comma.
        cells = [cell.strip() for cell in line.replace(_DEPRECATED, "Deprecated; see ").split(", ")]
        if len(cells) == len(names):
            rows.append(dict(zip(names, cells)))
        elif line.strip():
            warnings.append(line.strip())
    return Table(tuple(rows), tuple(warnings))


def driver_version(table: Table) -> str | None:
    """The driver version; None where no row has it."""
    strings = (row.get(_NEWER_VERSION, row.get(_VERSION)) for row in table.rows)
    versions = (readings.interpret(text, readings.plain)[0] for text in strings)
    return next((version for version in versions if version is not None), None)


def has_deprecated_version(table: Table) -> bool:
    """Whether a deprecation notice takes the place of the driver version."""
    return any(readings.interpret(row.get(_VERSION), readings.plain)[1] == "deprecated" for row in table.rows)


def with_newer_version(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names` with the newer name of the driver version's field."""
    return tuple(_NEWER_VERSION if name == _VERSION else name for name in names)


def read_gpu(row: dict[str, str]) -> gpu_schema.Gpu:
    """One GPU with only its `Basics`; fields that were not queried are `absent`."""
    strings = {}
    for item in fields(gpu_schema.Basics):
        declared = item.metadata["reading"]
        if declared.csv in row:
            strings[declared.paths[0]] = row[declared.csv]
    gaps = gpu_schema.Gaps()
    basics = gpu_schema.build(gpu_schema.Basics, strings, gaps)
    index, reason = readings.interpret(row["index"], readings.small)
    if reason == readings.UNREADABLE:
        gaps.reasons["index"], gaps.strings["index"] = reason, row["index"]
    unknown, other = tuple(gaps.reasons.items()), tuple(gaps.strings.items())
    return replace(gpu_schema.Gpu(index=index, basics=basics), unknown=unknown, other=other)


def with_capability(gpu: gpu_schema.Gpu, table: Table, otherwise: str) -> gpu_schema.Gpu:
    """`gpu` with the readings of its row; without a row `otherwise` is the reason why they are unknown."""
    row = next((row for row in table.rows if row["uuid"] == gpu.basics.uuid), None)
    declared = [(item.name, item.metadata["reading"]) for item in fields(gpu_schema.Capability)]
    gaps = gpu_schema.Gaps()
    if row is None:
        gaps.reasons.update((name, otherwise) for name, _reading in declared)
        capability = gpu_schema.Capability()
    else:
        strings = {reading.paths[0]: row[reading.csv] for _name, reading in declared if reading.csv in row}
        capability = gpu_schema.build(gpu_schema.Capability, strings, gaps)
    others = (entry for entry in gpu.unknown if entry[0] not in dict(declared))
    return replace(gpu, capability=capability, unknown=(*others, *gaps.reasons.items()))
