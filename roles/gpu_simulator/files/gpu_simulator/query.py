# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table, ``-q``, ``-q -x`` and ``-q -d``: which of them, and of which GPUs."""

from __future__ import annotations

from . import branches, cli, health, layout, readings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet, Optional

    from .shapes import Answer
    from .verbs import Call

UNIT_HEADER = "HIC Info                                               : N/A\nAttached Units                                         : 0\n"


def query(call: Call) -> Answer:
    """Answer a call without ``--query-*``."""
    options = call.options
    if "dtd" in options and "query" not in options:
        return "", 0
    display = None
    if "display" in options:
        display = display_words(options["display"], call)
        if display is None:
            return "Failed to parse --display/-d flags\n", 2
    if "unit" in options:
        return _units(call), 0
    if not call.gpus:
        return cli.NO_DEVICES
    lost = health.lost(call.gpus)
    if lost:
        return lost
    views = [readings.View(index, gpu, call.state, call.version) for index, gpu in call.gpus]
    now, attached = cli.timestamp(), len(call.visible)
    if "query" not in options:
        from . import table

        return health.after_table(table.render(views, call.driver_version, now), call.gpus)
    if "xml-format" in options:
        from . import render_xml

        return render_xml.render(views, attached, call.driver_version, now), 0
    from . import render_text

    return render_text.render(views, attached, call.driver_version, now, display), 0


def display_words(text: str, call: Call) -> Optional[FrozenSet[str]]:
    """Parse the value of ``-d``; None when a word is not known."""
    words = frozenset(text.upper().split(",")) if text else frozenset()
    return words if words <= layout.display_words(call.version) else None


def _units(call: Call) -> str:
    return (
        "\n==============NVSMI LOG==============\n\n"
        f"{'Timestamp':<55}: {cli.timestamp()}\n"
        f"{'Driver Version':<55}: {call.driver_version}\n"
        f"{'CUDA Version':<55}: {branches.cuda_version(call.driver_version)}\n\n" + UNIT_HEADER
    )
