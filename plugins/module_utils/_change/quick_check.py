# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Quick check of the settings of all GPUs with one query of a few fields. Private to this collection.

Measured on 8 H200: this query takes 0.15 s, the full XML document 0.85 s. The query is enough to see that everything is
as declared, the most common case. A run that has to change or refuse something reads the document.
"""

from __future__ import annotations

from dataclasses import fields, replace

from .._nvidia_smi import gpu as gpu_schema
from .._nvidia_smi import values as readings
from .._nvidia_smi.client import Smi
from .._nvidia_smi.csv import BASIC_FIELDS, parse_table, query_arguments, read_gpu

_COUNT = "count"
_SECTIONS = ("hardware", "power", "clocks")
_ECC_TOTALS = {
    (kind, name): f"ecc.errors.{spelled}.{kind}.total"
    for kind in ("volatile", "aggregate")
    for name, spelled in (("single_bit_total", "corrected"), ("double_bit_total", "uncorrected"))
}
FIELDS = (
    *BASIC_FIELDS,
    _COUNT,
    *(
        item.metadata["reading"].csv
        for section in _SECTIONS
        for item in fields(gpu_schema.SECTIONS[section])
        if item.metadata["reading"].csv
    ),
    *_ECC_TOTALS.values(),
)
"""The fields of the query."""


def quick_check(smi: Smi) -> tuple[gpu_schema.Gpu, ...] | None:
    """All GPUs with their settings and only the totals of ECC errors; None where the output leaves any doubt."""
    (result,) = smi.ask(query_arguments(FIELDS))
    table = parse_table(result.text, FIELDS)
    if result.rc != 0 or result.error_text.strip() or table.warnings:
        return None
    if not table.rows or any(row[_COUNT] != str(len(table.rows)) for row in table.rows):
        return None
    return tuple(_read(row) for row in table.rows)


def _read(row: dict[str, str]) -> gpu_schema.Gpu:
    gpu = read_gpu(row)
    gaps = gpu_schema.Gaps()
    for name in _SECTIONS:
        section = gpu_schema.SECTIONS[name]
        declared = (item.metadata["reading"] for item in fields(section))
        strings = {reading.paths[0]: row[reading.csv] for reading in declared if reading.csv}
        gpu = replace(gpu, **{name: gpu_schema.build(section, strings, gaps)})
    totals = {key: readings.interpret(row[csv], readings.count)[0] for key, csv in _ECC_TOTALS.items()}
    volatile, aggregate = (
        gpu_schema.EccCounters(
            single_bit_total=totals[kind, "single_bit_total"], double_bit_total=totals[kind, "double_bit_total"]
        )
        for kind in ("volatile", "aggregate")
    )
    ecc = replace(gpu.ecc, ecc_errors_volatile=volatile, ecc_errors_aggregate=aggregate)
    return replace(gpu, ecc=ecc, unknown=(*gpu.unknown, *gaps.reasons.items()))
