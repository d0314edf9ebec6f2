# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of fleets of hosts with 8 simulated GPUs: CPU time until its three files are written, and their sizes."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.gpu.fleet.plugins.plugin_utils._report import output

from tests.benchmark.report import Table
from tests.unit.report.fleets import TIME, bases, fleet

SIZES = (50, 1000)
PAGE_GOAL_MB, SECONDS_GOAL = 5.0, 20
_COLUMNS = ("hosts", "CPU s", "goal", "page, MB", "page goal", "JSON, MB", "CSV, MB")


def tables(_arguments: object = None) -> Iterator[Table]:
    """One table, a row for each size. The second report of a directory is measured, which compares with the first."""
    rows, missed = [], []
    # Their simulated programs print as real ones do.
    with contextlib.redirect_stdout(io.StringIO()):
        bases()
    for size in SIZES:
        hosts = fleet(size)
        with tempfile.TemporaryDirectory() as directory:
            output.write(directory, hosts, TIME, check_mode=False)
            began = time.process_time()
            output.write(directory, hosts, TIME, check_mode=False)
            seconds = time.process_time() - began
            page, data, table = (
                (Path(directory) / name).stat().st_size / 1e6 for name in (output.PAGE, output.DATA, output.TABLE)
            )
        rows.append((size, seconds, SECONDS_GOAL, page, PAGE_GOAL_MB, data, table))
        if page > PAGE_GOAL_MB:
            missed.append(f"the page of {size} hosts has {page:.1f} MB, more than {PAGE_GOAL_MB:.0f}")
    yield Table("The report of a fleet", _COLUMNS, tuple(rows), tuple(missed))
