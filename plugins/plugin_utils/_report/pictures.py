# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the report as SVG. Private to this collection.

Pure functions; all text is escaped. Colours are classes, which the style sheet of the page defines for light and dark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from .model import HistoryEvent, Layout, Rack

_CELL, _ROW = 62, 40
_LETTER = 7.2
# Of GPUs whose memory is divided into 4 slices instead of 8.
_FOUR_SLICES = re.compile(r"\bA30\b|\bRTX PRO\b")
_NVLINK = re.compile(r"NV(\d+)")
_HISTORY = timedelta(days=90)
_ERRORS: Mapping[str, str] = {
    "ecc_uncorrected": "uncorrected ECC errors",
    "ecc_corrected": "corrected ECC errors",
    "remapped_rows_uncorrectable": "rows remapped after uncorrectable errors",
    "remapped_rows_correctable": "rows remapped after correctable errors",
}
# From above: the title of a lane, and the kinds of events in it.
_LANES = (
    ("verdict", ("verdict",)),
    ("Xids", ("xid",)),
    ("ECC", ("ecc_uncorrected", "ecc_corrected")),
    ("remapped", ("remapped_rows_uncorrectable", "remapped_rows_correctable")),
)
_NEAR, _SAME_NODE = ("PIX", "PXB"), ("PHB", "NODE")


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'


def _text(x: float, y: float, text: str, kind: str = "label", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"/>'


def memory_slices(model: str) -> int:
    """The number of memory slices of a GPU that supports MIG."""
    return 4 if _FOUR_SLICES.search(model) else 8


def mig_layout(layout: Layout) -> Markup:
    """The instances of a GPU from left to right over the memory slices that they use, and the free slices."""
    units = max((memory_slices(layout.model), *(item.start + item.size for item in layout.slices)))
    used = {unit for item in layout.slices for unit in range(item.start, item.start + item.size)}
    parts = [_rect(unit * _CELL + 1, 1, _CELL - 2, _ROW - 2, "slot") for unit in range(units) if unit not in used]
    for item in layout.slices:
        parts.append(_rect(item.start * _CELL + 1, 1, item.size * _CELL - 2, _ROW - 2, "slice"))
        parts.append(
            _text((item.start + item.size / 2) * _CELL, _ROW / 2 + 4, _fitting(item.profile, item.size * _CELL))
        )
    names = ", ".join(item.profile for item in layout.slices) or "no instances"
    return _svg(units * _CELL, _ROW, f"{layout.model}: {names}", parts)


def _fitting(text: str, width: float) -> str:
    most = max(1, int((width - 6) / _LETTER))
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def rack_power(rack: Rack) -> Markup:
    """A bar of the power of a rack: what is drawn, what the limits allow, and the budget as a line."""
    width, height = 260, 22
    scale = (width - 8) / (max(rack.power_draw_w, rack.power_limit_w, rack.budget_w) or 1)
    parts = [
        _rect(0, 4, rack.power_limit_w * scale, height - 8, "limit"),
        _rect(0, 4, rack.power_draw_w * scale, height - 8, "above" if rack.power_draw_w > rack.budget_w else "draw"),
    ]
    if rack.rack is not None:
        parts.append(_line(rack.budget_w * scale, 0, rack.budget_w * scale, height, "budget"))
    numbers = [f"{watts / 1000:.1f} kW" for watts in (rack.power_draw_w, rack.power_limit_w, rack.budget_w)]
    return _svg(width, height, "{} drawn, {} allowed by the limits, budget {}".format(*numbers), parts)


def history(events: Sequence[HistoryEvent], until: str) -> Markup:
    """The events of a GPU in the 90 days before `until`, a lane for each kind; the oldest event comes first."""
    end = datetime.fromisoformat(until)
    left, width, lane = 58.0, 360.0, 18.0

    def place(time: str) -> float:
        share = (datetime.fromisoformat(time) - (end - _HISTORY)) / _HISTORY
        return left + (width - left - 14) * min(1.0, max(0.0, share))

    parts: list[str] = []
    for number, (title, kinds) in enumerate(_LANES):
        middle = lane * number + lane / 2
        found = [event for event in events if event.kind in kinds]
        parts += [_text(0, middle + 4, title, "small", "start"), _line(left, middle, width - 14, middle, "axis")]
        parts += (
            _verdicts(found, middle, place, until) if kinds == ("verdict",) else _marks(found, middle, place, width)
        )
    bottom = lane * len(_LANES) + 12
    parts.append(_text(left, bottom, f"{end - _HISTORY:%Y-%m-%d}", "small", "start"))
    parts.append(_text(width, bottom, f"{end:%Y-%m-%d}", "small", "end"))
    return _svg(width, bottom + 4, "; ".join(map(_event_in_words, events)) or "nothing in 90 days", parts)


def _verdicts(
    events: Sequence[HistoryEvent], middle: float, place: Callable[[str], float], until: str
) -> Iterator[str]:
    """A bar for each verdict, up to the next."""
    # One more end than verdicts where there are none.
    ends = (*(event.time for event in events[1:]), until)
    for event, end in zip(events, ends, strict=False):
        # A verdict of minutes is still to be seen.
        width = max(2.0, place(end) - place(event.time))
        yield _titled(event, _rect(place(event.time), middle - 5, width, 10, str(event.value)))


def _marks(events: Sequence[HistoryEvent], middle: float, place: Callable[[str], float], width: float) -> Iterator[str]:
    """A dot for each event, with what is in it as far as there is room."""
    free = 0.0
    for event in events:
        x = place(event.time)
        kind = "xid" if event.kind == "xid" else "worse" if "uncorrect" in event.kind else "better"
        yield _titled(event, f'<circle class="{kind}" cx="{x:g}" cy="{middle:g}" r="4"/>')
        label = event.value if event.kind == "xid" else f"+{event.count}"
        if x >= free:
            side, anchor = (-7, "end") if x > width - 40 else (7, "start")
            yield _text(x + side, middle + 4, str(label), "small", anchor)
            free = x + 14 + _LETTER * len(str(label))


def _titled(event: HistoryEvent, shape: str) -> str:
    """A shape with words for a pointer."""
    return f"<g><title>{escape(_event_in_words(event))}</title>{shape}</g>"


def _event_in_words(event: HistoryEvent) -> str:
    if event.kind == "verdict":
        return f"{event.time}: {event.value}"
    if event.kind == "xid":
        return f"{event.time}: {event.count} x Xid {event.value}"
    return f"{event.time}: {event.count} {_ERRORS.get(event.kind, event.kind)}"


def topology(devices: Sequence[Mapping[str, Any]]) -> Markup:
    """GPUs above, RDMA adapters below, grouped by NUMA node; NVLinks as arcs, or as one bar where all have the same."""
    gpus = [device for device in devices if device["label"].startswith("GPU")]
    nics = [device for device in devices if not device["label"].startswith("GPU")]
    columns = max(len(gpus), len(nics), 1)
    width, step = columns * 84.0, 84.0
    links = {
        (one["label"], other["label"]): int(found[1])
        for place, one in enumerate(gpus)
        for other in gpus[place + 1 :]
        for found in (_NVLINK.fullmatch(one["links"].get(other["label"], "")),)
        if found
    }
    places = {device["label"]: (index + 0.5) * width / len(gpus) for index, device in enumerate(gpus)}
    places |= {device["label"]: (index + 0.5) * width / len(nics) for index, device in enumerate(nics)}
    every = len(links) == len(gpus) * (len(gpus) - 1) / 2 and len(set(links.values())) == 1
    top = 44.0 if every else 24.0 + 16.0 * _reach(gpus, links)
    parts: list[str] = _nvlink_bar(width, places, gpus, links) if every else _nvlink_arcs(places, links, top)
    bottom = top + 130.0
    for nic in nics:
        parts += _nic_lines(nic, gpus, places, top + 44, bottom)
    for device, kind, y in (*((gpu, "gpu", top) for gpu in gpus), *((nic, "nic", bottom) for nic in nics)):
        x = places[device["label"]]
        node = device["numa_affinity"]
        parts.append(_rect(x - step / 2 + 5, y, step - 10, 44, kind))
        parts.append(_text(x, y + 18, _fitting(device["name"] or device["label"], step - 10)))
        if node is not None:
            parts.append(_text(x, y + 34, _fitting(f"NUMA {node}", step - 10), "small"))
    height = bottom + 46 if nics else top + 46
    return _svg(width, height, _described(gpus, nics, links, every), parts)


def _reach(gpus: Sequence[Mapping[str, Any]], links: Mapping[tuple[str, str], int]) -> int:
    order = {gpu["label"]: place for place, gpu in enumerate(gpus)}
    return max((order[other] - order[one] for one, other in links), default=0)


def _nvlink_bar(
    width: float,
    places: Mapping[str, float],
    gpus: Sequence[Mapping[str, Any]],
    links: Mapping[tuple[str, str], int],
) -> list[str]:
    number = next(iter(links.values()))
    parts = [_line(places[gpu["label"]], 22, places[gpu["label"]], 44, "nvlink") for gpu in gpus]
    return [*parts, _rect(2, 2, width - 4, 22, "fabric"), _text(width / 2, 17, f"NVLink: {number} links, all to all")]


def _nvlink_arcs(places: Mapping[str, float], links: Mapping[tuple[str, str], int], top: float) -> list[str]:
    parts = []
    for (one, other), number in links.items():
        start, end = places[one], places[other]
        height = top - 18.0 * abs(end - start) / 84.0 - 8
        parts.append(
            f'<path class="nvlink" d="M{start:g} {top:g} C{start:g} {height:g} {end:g} {height:g} {end:g} {top:g}"/>'
        )
        parts.append(_text((start + end) / 2, (top + 3 * height) / 4 - 2, f"NV{number}", "small"))
    return parts


def _nic_lines(
    nic: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], places: Mapping[str, float], top: float, bottom: float
) -> list[str]:
    """Lines to the nearest GPUs: below the same switch, else at the same CPU; paths between CPUs are not drawn."""
    for kinds, kind in ((_NEAR, "near"), (_SAME_NODE, "node")):
        found = [gpu["label"] for gpu in gpus if nic["links"].get(gpu["label"]) in kinds]
        if found:
            return [_line(places[label], top, places[nic["label"]], bottom, kind) for label in found]
    return []


def _described(
    gpus: Sequence[Mapping[str, Any]],
    nics: Sequence[Mapping[str, Any]],
    links: Mapping[tuple[str, str], int],
    every: bool,
) -> str:
    """The picture in words."""
    nvlinks = (
        f"each pair connected by {next(iter(links.values()))} NVLinks"
        if every
        else "; ".join(f"{one} and {other} by {number} NVLinks" for (one, other), number in links.items())
        or "no NVLinks"
    )
    near = []
    for nic in nics:
        close = [gpu["label"] for gpu in gpus if nic["links"].get(gpu["label"]) in _NEAR]
        near.append(f"{nic['name'] or nic['label']} near {', '.join(close) or 'no GPU'}")
    return f"{len(gpus)} GPUs, {nvlinks}. {'; '.join(near) or 'No RDMA adapters'}"
