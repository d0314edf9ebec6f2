# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``-q -x``: the document as XML, formatted like nvidia-smi's (tabs, one element per line)."""

from __future__ import annotations

from ..queries import readings
from ..state import branches, catalogue
from . import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..command_line.verbs import Call
    from ..state.shapes import Readings, Reply, Version
    from .layout import Element


def xml(call: Call) -> Reply:
    """Handle ``-q -x``; ``attached_gpus`` counts all GPUs, also where ``-i`` selects some."""
    lines = [
        '<?xml version="1.0" ?>',
        _document_type(call.driver_version, "dtd" in call.options),
        "<nvidia_smi_log>",
        f"\t<timestamp>{readings.timestamp()}</timestamp>",
        *(f"\t<{tag}>{value}</{tag}>" for tag, value in branches.version_tags(call.driver_version)),
        f"\t<attached_gpus>{len(call.visible)}</attached_gpus>",
    ]
    for view in readings.views(call):
        lines.append('\t<gpu id="{}">'.format(view.readings["pci/pci_bus_id"]))
        lines.extend(_Writer(call.version, view.traits).elements(layout.GPU, view.readings, "", 2))
        lines.extend(("\t</gpu>", ""))
    lines.append("</nvidia_smi_log>")
    return "\n".join(lines) + "\n", 0


def _document_type(driver_version: str, embed_dtd: bool) -> str:
    """Name the DTD, or embed it; only the DTD of 580 is known, older drivers name theirs in any case."""
    name = branches.document_type(driver_version)
    if embed_dtd and name == catalogue.DOCUMENT_TYPE:
        return "<!DOCTYPE nvidia_smi_log [\n" + catalogue.read_text("text", name) + "]>"
    return f'<!DOCTYPE nvidia_smi_log SYSTEM "{name}">'


def escape(text: str) -> str:
    """Escape the characters that XML does not allow in text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Writer:
    """Writes the elements that this driver and this GPU have."""

    def __init__(self, version: Version, traits: frozenset[str]) -> None:
        self._version = version
        self._traits = traits

    def elements(self, elements: Sequence[Element], values: Readings, parent: str, depth: int) -> Iterator[str]:
        for element in elements:
            if element.tag is None or not element.holds(self._version, self._traits):
                continue
            path = parent + element.tag
            value = values.get(path)
            indent = "\t" * depth
            if element.repeats and not isinstance(value, str):
                yield f"{indent}<{element.tag}>"
                yield from self._blocks(element, value or [], depth)
                yield f"{indent}</{element.tag}>"
            elif element.children and value is None:
                yield f"{indent}<{element.tag}>"
                yield from self.elements(element.children, values, path + "/", depth + 1)
                yield f"{indent}</{element.tag}>"
            else:
                for text in value if isinstance(value, list) else [value]:
                    yield "{0}<{1}>{2}</{1}>".format(indent, element.tag, "N/A" if text is None else escape(text))

    def _blocks(self, element: Element, blocks: list[Any], depth: int) -> Iterator[str]:
        if not blocks and element.none_in == "xml":
            yield "\t" * (depth + 1) + "None"
        for block in blocks:
            yield "\t" * (depth + 1) + f"<{element.repeats}>"
            yield from self.elements(element.children, block, "", depth + 2)
            yield "\t" * (depth + 1) + f"</{element.repeats}>"
