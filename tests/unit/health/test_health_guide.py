# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/health.md has the policy as it is. Run this file with Python to print its table again."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import ENDS, REMEDIES, VERDICTS, Row
from ansible_collections.gpu.fleet.plugins.module_utils._health.readings import DERIVED, HOST
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE

from tests.unit.health.simulated import SHOWN

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "health.md"

OPERATORS = {
    "is": "is",
    "is_not": "is not",
    "in": "in",
    "not_in": "not in",
    "has": "has",
    "above": ">",
    "below": "<",
    "at_least": ">=",
}


def _ranges(codes: tuple[int, ...]) -> str:
    """`1-3, 7` for 1, 2, 3, 7."""
    groups: list[list[int]] = []
    for code in sorted(codes):
        if groups and code == groups[-1][-1] + 1:
            groups[-1].append(code)
        else:
            groups.append([code])
    return ", ".join(f"{group[0]}-{group[-1]}" if len(group) > 1 else str(group[0]) for group in groups)


def how(row: Row) -> str:
    """How a row is read, for people."""
    when = f", {row.when}" if row.when else ""
    if row.is_repetition:
        which = f"Xid {_ranges(row.xids)}" if row.xids else "a fatal Xid"
        again = f"{row.bursts} bursts" if row.bursts else f"{row.boots} boots"
        return f"history: {which} in {again} within {row.hours:g} h{when}"
    if row.reading:
        if row.value is True and row.operator == "is":
            return f"`{row.reading}`"
        if row.value == "":
            return f"`{row.reading}`"
        value = (
            ", ".join(map(str, row.value))
            if isinstance(row.value, tuple)
            else f"{row.value:,}".replace(",", " ")
            if isinstance(row.value, (int, float))
            else row.value
        )
        models = ", ".join(f"{model}: {limit:,}".replace(",", " ") for model, limit in row.thresholds)
        return f"`{row.reading}` {OPERATORS[row.operator]} {value}" + (f" ({models})" if models else "")
    if row.xids:
        return f"kernel log: Xid {_ranges(row.xids)}{when}"
    if row.sxids:
        return f"kernel log: SXid {_ranges(row.sxids)}{when}"
    return f"kernel log: {', '.join(row.events)}{when}"


def over_when(row: Row) -> str:
    """What ends what the row reports, where it has a remedy."""
    return "; ".join(ENDS[end] for end in row.ends) if row.remedy != "none" else ""


def table() -> str:
    """The policy as a table."""
    header = ("row", "symptom", "how it is read", "verdict", "remedy", "over when", "source", "shown by")
    lines = [f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    for row in TABLE:
        what = (f"`{row.id}`", row.symptom, how(row), row.verdict, row.remedy)
        cells = (*what, over_when(row), row.source, SHOWN[row.id])
        lines.append(" ".join(f"| {cell}".rstrip() for cell in cells) + " |")
    return "\n".join(lines)


def test_the_guide_has_the_whole_policy() -> None:
    assert table() in GUIDE.read_text()


def test_the_guide_explains_verdicts_remedies_and_readings() -> None:
    text = GUIDE.read_text()
    for name in (*VERDICTS, *REMEDIES, *DERIVED, *HOST):
        assert f"`{name}`" in text, name
    places = [text.index(f"| `{name}` |") for name in REMEDIES]
    assert places == sorted(places)


if __name__ == "__main__":
    print(table())
