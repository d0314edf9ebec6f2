# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-q -x``: the document as XML, laid out as nvidia-smi does (tabs, one element a line)."""

from __future__ import annotations

from . import branches, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, FrozenSet, Iterator, List, Sequence

    from .layout import Element
    from .readings import View
    from .shapes import Readings, Version


def render(views: Sequence[View], attached: int, driver_version: str, timestamp: str) -> str:
    """Render the document of the given GPUs; ``attached`` counts all GPUs of the host."""
    lines = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "{branches.document_type(driver_version)}">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{timestamp}</timestamp>",
        f"\t<driver_version>{driver_version}</driver_version>",
        f"\t<cuda_version>{branches.cuda_version(driver_version)}</cuda_version>",
        f"\t<attached_gpus>{attached}</attached_gpus>",
    ]
    version = branches.parse(driver_version)
    for view in views:
        lines.append('\t<gpu id="{}">'.format(view.readings["pci/pci_bus_id"]))
        lines.extend(_Writer(version, view.traits).elements(layout.GPU, view.readings, "", 2))
        lines.extend(("\t</gpu>", ""))
    lines.append("</nvidia_smi_log>")
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Escape what XML does not allow in text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Writer:
    """Writes elements that this driver and this GPU have."""

    def __init__(self, version: Version, traits: FrozenSet[str]) -> None:
        self._version = version
        self._traits = traits

    def elements(
        self, elements: Sequence[Element], readings: Readings, parent: str, depth: int
    ) -> Iterator[str]:
        for element in elements:
            if element.tag is None or not element.holds(self._version, self._traits):
                continue
            path = parent + element.tag
            value = readings.get(path)
            indent = "\t" * depth
            if element.repeats and not isinstance(value, str):
                yield f"{indent}<{element.tag}>"
                yield from self._blocks(element, value or [], depth)
                yield f"{indent}</{element.tag}>"
            elif element.children and value is None:
                yield f"{indent}<{element.tag}>"
                yield from self.elements(element.children, readings, path + "/", depth + 1)
                yield f"{indent}</{element.tag}>"
            else:
                for text in value if isinstance(value, list) else [value]:
                    yield "{0}<{1}>{2}</{1}>".format(indent, element.tag, "N/A" if text is None else escape(text))

    def _blocks(self, element: Element, blocks: List[Any], depth: int) -> Iterator[str]:
        if not blocks and element.none_in == "xml":
            yield "\t" * (depth + 1) + "None"
        for block in blocks:
            yield "\t" * (depth + 1) + f"<{element.repeats}>"
            yield from self.elements(element.children, block, "", depth + 2)
            yield "\t" * (depth + 1) + f"</{element.repeats}>"
