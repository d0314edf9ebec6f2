# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table, ``-q``, ``-q -x`` and ``-q -d``: what speaks against an answer, and who gives it."""

from __future__ import annotations

from . import branches, catalogue, health, layout, readings, verbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .shapes import Answer
    from .verbs import Call


def query(call: Call) -> Answer:
    """Answer a call without ``--query-*``."""
    options = call.options
    if "dtd" in options and "query" not in options:
        return catalogue.read_text("text", catalogue.DOCUMENT_TYPE), 0
    if not display_words(options.get("display", "")) <= layout.display_words(call.version):
        return "Failed to parse --display/-d flags\n", 2
    if "unit" in options:
        return _units(call), 0
    if not call.gpus:
        return health.NO_DEVICES
    lost = health.lost(call.gpus)
    if lost:
        return lost
    view = "table" if "query" not in options else "xml" if "xml-format" in options else "text"
    return verbs.find(verbs.VIEWS[view])(call)


def display_words(text: str) -> frozenset[str]:
    """Split the value of ``-d``; its words are known in any case."""
    return frozenset(text.upper().split(",")) if text else frozenset()


def _units(call: Call) -> str:
    """There are no units (S-class systems) on any host of today."""
    lines = [("Timestamp", readings.timestamp()), *branches.versions(call.driver_version)]
    return (
        "\n==============NVSMI LOG==============\n\n"
        + "".join(f"{name:<55}: {value}\n" for name, value in lines)
        + f"\n{'HIC Info':<55}: N/A\n{'Attached Units':<55}: 0\n"
    )
