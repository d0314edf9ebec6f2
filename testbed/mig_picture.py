# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The combinations of MIG profiles that fill a GPU, as a picture and a table of docs/mig.md.

The places come from the simulated GPUs, most of which are recorded (`verified` in their files).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from ansible_collections.gpu.fleet.plugins.module_utils._mig import layout
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import full_layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Profile, Table
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import DesiredInstance

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "mig-combinations.svg"
_GPUS = ROOT / "roles/gpu_simulator/files/gpu_simulator/data/gpus"
GPUS = {
    "A100 40 GB": "a100_40gb",
    "A100 80 GB": "a100_80gb",
    "H100 80 GB": "h100_80gb",
    "H100 NVL": "h100_nvl_94gb",
    "H200": "h200",
    "B200": "b200",
}
"""The GPUs of the picture, with files of the simulator; all have the same places."""
_CELL, _HEIGHT, _LEFT, _TOP = 66, 24, 34, 44
_FONT = 'font-family="sans-serif" font-size="12"'
_COLOURS = {1: "#cfe3f5", 2: "#9fc9ea", 3: "#6baed6", 4: "#4292c6", 7: "#2171b5"}
# REUSE-IgnoreStart
_HEADER = """\
<!-- Copyright: (c) 2026, gpu.fleet contributors
     GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
     SPDX-License-Identifier: GPL-3.0-or-later -->"""
# REUSE-IgnoreEnd


def table_of(gpu: str) -> Table:
    """The profiles of a simulated GPU, without those that differ in media engines only."""
    rows = json.loads((_GPUS / f"{gpu}.json").read_text(encoding="utf-8"))["mig"]["profiles"]
    return Table(
        tuple(
            Profile(row["name"], row["id"], row["max"], tuple(row["starts"]), row["size"], row["slices"])
            for row in rows
            if "+" not in row["name"]
        )
    )


def short(profile: Profile) -> str:
    """`1g` of 1g.18gb; `1g, double memory` of 1g.35gb, the second profile with one slice."""
    return f"{profile.slices}g" + (", double memory" if (profile.slices, profile.size) == (1, 2) else "")


def shape(table: Table) -> list[tuple[str, int, tuple[int, ...], int]]:
    """What makes the picture: profiles without the sizes of their memory."""
    return sorted((short(one), one.max_instances, one.starts, one.size) for one in table.profiles)


def combinations(table: Table) -> Iterator[list[tuple[Profile, int]]]:
    """Each combination that fills the GPU, with one way to place it, in the order of the starts."""
    for names in full_layouts(table):
        way = [DesiredInstance(name, table.find(name).slices, ()) for name in names]
        placed = layout.place(table, (way,))
        assert placed is not None, names
        yield [(one.profile, one.start) for one in placed]


def picture() -> str:
    """The picture as SVG."""
    table = table_of(GPUS["H200"])
    rows = list(combinations(table))
    width, height = _LEFT + table.units * _CELL + 10, _TOP + len(rows) * _HEIGHT + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>',
        _HEADER,
        "<title>Combinations of MIG profiles that fill an A100, H100, H200 or B200</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(width / 2, 16, "Combinations of MIG profiles that fill a GPU, by memory slices"),
    ]
    parts += [_text(_LEFT + (unit + 0.5) * _CELL, _TOP - 8, str(unit)) for unit in range(table.units)]
    for number, row in enumerate(rows):
        y = _TOP + number * _HEIGHT
        parts.append(_text(_LEFT / 2, y + 16, str(number + 1)))
        whole = f'width="{table.units * _CELL}" height="{_HEIGHT - 4}"'
        parts.append(f'<rect x="{_LEFT}" y="{y}" {whole} fill="none" stroke="#cccccc"/>')
        for profile, start in row:
            x, wide = _LEFT + start * _CELL, profile.size * _CELL - 2
            fill, ink = _COLOURS[profile.slices], "white" if profile.slices > 2 else "black"
            parts.append(f'<rect x="{x + 1}" y="{y}" width="{wide}" height="{_HEIGHT - 4}" fill="{fill}"/>')
            parts.append(_text(x + 1 + wide / 2, y + 15, short(profile), ink))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, fill: str = "black") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{fill}">{escape(text)}</text>'


def names() -> list[str]:
    """The lines of the table of the profiles' names."""
    found = {gpu: {short(one): one.name for one in table_of(file).profiles} for gpu, file in GPUS.items()}
    columns = list(next(iter(found.values())))
    rows = [["GPU", *columns], ["---"] * (len(columns) + 1)]
    rows += [[gpu, *(f"`{by_name[one]}`" for one in columns)] for gpu, by_name in found.items()]
    return [f"| {' | '.join(row)} |" for row in rows]


def main() -> None:
    """Write the picture, and print the table."""
    PICTURE.write_text(picture(), encoding="utf-8")
    print("\n".join(names()))


if __name__ == "__main__":
    main()
