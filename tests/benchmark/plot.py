# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A line chart as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 180, 40, 50
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
_FONT = 'font-family="sans-serif" font-size="12"'
# REUSE-IgnoreStart
_HEADER = """\
<!-- Copyright: (c) 2026, gpu.fleet contributors
     GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
     SPDX-License-Identifier: GPL-3.0-or-later -->"""
# REUSE-IgnoreEnd


@dataclass(frozen=True)
class Line:
    """One line: points (x, y) with a label at its end. `dashed` for a goal or a value to compare with."""

    label: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


def line_chart(title: str, x_label: str, y_label: str, lines: Sequence[Line]) -> str:
    """The chart: x logarithmic, with a mark at each x of a point; y linear from 0. All x are positive."""
    marks = sorted({x for line in lines for x, _y in line.points})
    top = _rounded_up(max(y for line in lines for _x, y in line.points))
    first, last = math.log(marks[0]), math.log(marks[-1])

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((math.log(x) - first) / (last - first) if last > first else 0.5)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {_FONT}>',
        _HEADER,
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _label(WIDTH / 2, TOP / 2, title, "middle", 'font-size="14"'),
        _label(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 10, x_label, "middle"),
        _label(LEFT, TOP - 8, y_label, "middle"),
    ]
    for step in range(6):
        y = top * step / 5
        parts.append(f'<path d="M{LEFT} {up(y):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(_label(LEFT - 6, up(y) + 4, f"{y:g}", "end"))
    parts += [_label(across(x), HEIGHT - BOTTOM + 18, f"{x:g}", "middle") for x in marks]
    for line, colour in zip(lines, COLOURS * (1 + len(lines) // len(COLOURS)), strict=False):
        points = [(across(x), up(y)) for x, y in sorted(line.points)]
        dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        if not line.dashed:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(_label(WIDTH - RIGHT + 8, points[-1][1] + 4, line.label, "start", f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _label(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'.replace(" >", ">")


def _rounded_up(value: float) -> float:
    """The next number of the form 1, 2, 2.5 or 5 times a power of ten, for the top of an axis."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value)
