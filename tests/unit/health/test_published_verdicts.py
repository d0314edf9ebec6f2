# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on kernel logs that users have published (fixtures/published-verdicts.txt)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.unit.health.test_outside_logs import GPU, PORT, host, judged

FIXTURE = Path(__file__).with_name("fixtures") / "published-verdicts.txt"
OTHERS: dict[str, dict[str, Any]] = {
    "consumer": {"fabric_state": None, "name": "NVIDIA GeForce RTX 5080", "architecture": "blackwell"},
    "old": {"fabric_state": None, "name": "NVIDIA GeForce GTX 1080", "architecture": "pascal"},
}


@dataclass
class Published:
    """One block of the fixture."""

    row: str
    verdict: str
    remedy: str
    at: str
    host: str
    source: str
    lines: list[str] = field(default_factory=list)


def published() -> list[Published]:
    found: list[Published] = []
    for line in FIXTURE.read_text().split("\n"):
        if line.startswith("@"):
            columns, _bar, source = line[1:].partition(" | ")
            row, verdict, remedy, at, on = columns.split()
            found.append(Published(row, verdict, remedy, at, on, source))
        elif found and line:
            found[-1].lines.append(line)
    return found


CASES = published()


def test_all_blocks_are_read() -> None:
    assert len(CASES) == 128
    assert all(case.source.startswith(("https://", "a log")) and case.lines for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.row}" for number, case in enumerate(CASES)])
def test_a_published_log(case: Published) -> None:
    facts = host(**OTHERS.get(case.host, {}))
    if case.host == "gone":
        lost = facts["gpus"].pop(0)
        facts["unhealthy"] = [{"gpu": lost["pci_bus_id"], "code": "gpu_missing", "message": "GPU: it is missing"}]
    at = case.at.replace("port=", "")
    place = PORT.rpartition(".")[0] if at != case.at else GPU if at.count(":") > 1 else GPU[5:]
    if at.startswith("0x"):
        place = f"0x{place.replace(':', ':0x')}"
    lines = case.lines if at == "-" else [line.replace(at, place) for line in case.lines]
    report = judged(lines, facts)
    rows = {finding.row for finding in report.findings}
    assert case.row in rows or (case.row, rows) == ("none", set())
    assert (report.verdict(), report.remedy()) == (case.verdict, case.remedy)
