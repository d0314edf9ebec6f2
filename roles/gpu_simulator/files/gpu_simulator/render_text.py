# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-q`` and ``-q -d``: the same document as indented text with the values in one column."""

from __future__ import annotations

from . import branches, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, FrozenSet, Iterator, List, Optional, Sequence

    from .layout import Element
    from .readings import View
    from .shapes import Readings, Version

COLUMN = 55
PROCESS_COLUMN = 42
"""Where the colon stands; processes have their own."""


def render(
    views: Sequence[View],
    attached: int,
    driver_version: str,
    timestamp: str,
    display: Optional[FrozenSet[str]],
) -> str:
    """Render the given GPUs; ``display`` limits the sections (None: all of them), ``attached`` counts all GPUs."""
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        _line("Timestamp", timestamp),
        _line("Driver Version", driver_version),
        _line("CUDA Version", branches.cuda_version(driver_version)),
        "",
        _line("Attached GPUs", str(attached)),
    ]
    version = branches.parse(driver_version)
    for view in views:
        lines.append("GPU {}".format(view.readings["pci/pci_bus_id"]))
        shown = [element for element in layout.GPU if _shown(element, display)]
        lines.extend(_Writer(version, view.traits).elements(shown, view.readings, "", 1))
        lines.append("")
    return "\n".join(lines) + "\n"


def _shown(element: Element, display: Optional[FrozenSet[str]]) -> bool:
    if display is None:
        return not element.sampled
    return element.display in display


def _line(label: str, value: str, column: int = COLUMN) -> str:
    return f"{label:<{column}}: {value}"


class _Writer:
    """Writes elements that this driver and this GPU have."""

    def __init__(self, version: Version, traits: FrozenSet[str]) -> None:
        self._version = version
        self._traits = traits

    def elements(
        self, elements: Sequence[Element], readings: Readings, parent: str, depth: int, column: int = COLUMN
    ) -> Iterator[str]:
        for element in elements:
            if element.label is None or not element.holds(self._version, self._traits):
                continue
            path = element.path or parent + (element.tag or "")
            value = readings.get(path) if element.tag or element.path else None
            title = "    " * (depth + element.deeper) + element.label
            if element.repeats and not isinstance(value, str):
                yield from self._blocks(element, value or [], title, depth)
            elif element.children and value is None:
                yield title
                yield from self.elements(element.children, readings, path + "/", depth + 1, column)
            else:
                for text in value if isinstance(value, list) else [value]:
                    yield _line(title, "N/A" if text is None else element.prefix + text, column)

    def _blocks(self, element: Element, blocks: List[Any], title: str, depth: int) -> Iterator[str]:
        if not blocks:
            if element.none_in == "text":
                yield _line(title, "None")
            return
        if element.tag == "mig_devices":
            for block in blocks:
                yield title
                yield from self.elements(element.children, block, "", depth + 1)
            return
        yield title
        column = PROCESS_COLUMN if element.tag == "processes" else COLUMN
        for block in blocks:
            yield from self.elements(element.children, block, "", depth + 1, column)
