# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A picture of an acceptance: which pair of hosts has which bus bandwidth. Private to this collection. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from .acceptance import ALL, Acceptance, Run

_CELL, _MARGIN, _LINE = 28, 8, 18
_CHARACTER = 8
_LONGEST_NAME = 40
_FONT = 'font-family="monospace" font-size="12"'
_FAILED, _NOT_RUN, _OF_HOST, _PROBLEM = "#b3261e", "#eceff1", "#ffffff", "#b3261e"
# From slow to as fast as the fastest pair: distinguishable also without colours.
_SHADES = ("#f6d7a7", "#dbe7b0", "#a9d3b4", "#6fb3a8", "#3a8f95")


def as_svg(acceptance: Acceptance, names: Sequence[str]) -> str:
    """The matrix as SVG: a row and a column for each host, darker with more bandwidth, red where a pair failed."""
    pairs = {frozenset(run.hosts): run for run in acceptance.runs if run.round != ALL and len(run.hosts) > 1}
    fastest = max((run.gb_s for run in pairs.values()), default=0.0)
    shown = {name: name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..." for name in names}
    left = _MARGIN * 2 + _CHARACTER * max((len(name) for name in shown.values()), default=0)
    top = _MARGIN * 2 + _LINE
    size = _CELL * len(names)
    lines = list(_cells(names, pairs, fastest, left, top))
    lines += [
        f'<text x="{left - _MARGIN}" y="{top + _CELL * row + _LINE}" text-anchor="end" '
        f'fill="{_PROBLEM if name in acceptance.problems else "#000000"}">{escape(shown[name])}</text>'
        for row, name in enumerate(names)
    ]
    title = "accepted" if acceptance.is_accepted else "not accepted"
    title += f": median {acceptance.median_gb_s:.2f} GB/s, fastest pair {fastest:.2f} GB/s"
    width = max(left + size + _MARGIN, _MARGIN * 2 + _CHARACTER * len(title))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + size + _MARGIN}" {_FONT}>',
            f'<rect width="100%" height="100%" fill="{_OF_HOST}"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN + _LINE - 4}">{escape(title)}</text>',
            *lines,
            "</svg>\n",
        ]
    )


def _cells(
    names: Sequence[str], pairs: dict[frozenset[str], Run], fastest: float, left: int, top: int
) -> Iterator[str]:
    for row, one in enumerate(names):
        for column, other in enumerate(names):
            run = pairs.get(frozenset((one, other)))
            fill, text = _of(run, fastest) if one != other else (_OF_HOST, one)
            yield (
                f'<rect x="{left + _CELL * column}" y="{top + _CELL * row}" width="{_CELL - 2}" height="{_CELL - 2}" '
                f'fill="{fill}"><title>{escape(f"{one} and {other}: {text}" if one != other else one)}</title></rect>'
            )


def _of(run: Run | None, fastest: float) -> tuple[str, str]:
    if run is None:
        return _NOT_RUN, "not run"
    if not run.is_right:
        return _FAILED, "; ".join(run.reasons.values())
    shade = min(int(len(_SHADES) * run.gb_s / fastest), len(_SHADES) - 1) if fastest else 0
    return _SHADES[shade], f"{run.gb_s:.2f} GB/s"
