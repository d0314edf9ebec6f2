# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-q`` and ``-q -d``: the same document as indented text with the values in one column."""

from __future__ import annotations

from ..queries import query, readings
from ..state import branches
from . import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..command_line.verbs import Call
    from ..state.shapes import Readings, Reply, Version
    from .layout import Element

COLUMN = 55
NARROW_COLUMN = 42
"""Column of the colon: the narrow one up to driver 550, and for processes in all."""


def text(call: Call) -> Reply:
    """Handle ``-q``; ``-d`` limits the sections, ``Attached GPUs`` counts all GPUs."""
    display = query.display_words(call.options["display"]) if "display" in call.options else None
    column = COLUMN if call.version >= (560,) else NARROW_COLUMN
    lines = ["", "==============NVSMI LOG==============", "", _line("Timestamp", readings.timestamp(), column)]
    lines += [_line(name, value, column) for name, value in branches.versions(call.driver_version)]
    lines += ["", _line("Attached GPUs", str(len(call.visible)), column)]
    shown = [element for element in layout.GPU if _shown(element, display)]
    for view in readings.views(call):
        lines.append("GPU {}".format(view.readings["pci/pci_bus_id"]))
        lines.extend(_Writer(call.version, view.traits, column).elements(shown, view.readings, "", 1))
        lines.append("")
    return "\n".join(lines) + "\n", 0


def _shown(element: Element, display: frozenset[str] | None) -> bool:
    if display is None:
        return not element.sampled
    return element.display in display


def _line(label: str, value: str, column: int) -> str:
    return f"{label:<{column}}: {value}"


class _Writer:
    """Writes the elements that this driver and this GPU have."""

    def __init__(self, version: Version, traits: frozenset[str], column: int) -> None:
        self._version = version
        self._traits = traits
        self._column = column

    def elements(
        self, elements: Sequence[Element], values: Readings, parent: str, depth: int, column: int = 0
    ) -> Iterator[str]:
        column = column or self._column
        for element in elements:
            if element.label is None or not element.holds(self._version, self._traits):
                continue
            path = element.path or parent + (element.tag or "")
            value = values.get(path) if element.tag or element.path else None
            title = "    " * (depth + element.deeper) + element.label
            if element.repeats and not isinstance(value, str):
                yield from self._blocks(element, value or [], title, depth)
            elif element.children and value is None:
                yield title
                yield from self.elements(element.children, values, path + "/", depth + 1, column)
            else:
                for shown in value if isinstance(value, list) else [value]:
                    yield _line(title, "N/A" if shown is None else element.prefix + shown, column)

    def _blocks(self, element: Element, blocks: list[Any], title: str, depth: int) -> Iterator[str]:
        if not blocks:
            if element.none_in == "text":
                yield _line(title, "None", self._column)
            return
        if element.tag == "mig_devices":
            for block in blocks:
                yield title
                yield from self.elements(element.children, block, "", depth + 1)
            return
        yield title
        column = NARROW_COLUMN if element.tag == "processes" else self._column
        for block in blocks:
            yield from self.elements(element.children, block, "", depth + 1, column)
