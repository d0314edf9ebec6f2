# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of README: what the demo prints, and the verdict on the fault that it proposes.

tests/system/test_demo.py compares the output with a run of the demo, tests/checks/test_outputs.py with the code that
prints it, and the picture with the output.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "fleet.svg"
TABLE = """\
host       gpus                       driver      cuda  ecc      mig       containers  health
dgx-h200   8 x NVIDIA H200            580.178.04  13.0  enabled  disabled  8 (cdi)     ok
dual-a100  2 x NVIDIA A100-SXM4-40GB  550.163.01  12.4  enabled  disabled  2 (legacy)  ok
edge-t4    1 x Tesla T4               535.309.01  12.2  enabled  n/a       1 (legacy)  ok
"""
FAULT = "ansible -i inventories/demo dual-a100 -a 'gpu-simulator fault xid 79 --gpu 1'"
HEALTH = "ansible-playbook -i inventories/demo playbooks/health.yml -l dual-a100"
VERDICT = (
    "dual-a100 is unhealthy: GPU 1: GPU is lost. Reboot the system to recover this GPU; reboot the host; if it is lost"
    " again, check its power, its seat and the kernel log (Xid 79); GPU 00000000:07:00.0: Xid 79 (GPU has fallen off"
    " the bus): the GPU is off the bus, or PCIe failed; reboot the host"
)
_COLUMNS, _CELL, _LINE, _MARGIN = 94, 8.4, 20, 16
_BACKGROUND, _INK, _QUIET = "#0d1117", "#e6edf3", "#8b949e"
_COLOURS = {"ok": "#3fb950", "unhealthy": "#ff7b72"}
# REUSE-IgnoreStart
_HEADER = """\
<!-- Copyright: (c) 2026, gpu.fleet contributors
     GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
     SPDX-License-Identifier: GPL-3.0-or-later -->"""
# REUSE-IgnoreEnd


def lines() -> list[str]:
    """The lines of the terminal. A command begins with `$`."""
    return [
        "$ make demo",
        *TABLE.splitlines(),
        "",
        f"$ {FAULT}",
        f"$ {HEALTH}",
        *textwrap.wrap(VERDICT, _COLUMNS),
    ]


def picture() -> str:
    """The picture as SVG. Each text has its width, so that columns stay in line with any font."""
    shown = lines()
    width, height = _COLUMNS * _CELL + 2 * _MARGIN, len(shown) * _LINE + 2 * _MARGIN
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="ui-monospace, monospace" font-size="14">',
        _HEADER,
        "<title>The table of a fleet of three hosts, and the verdict on a GPU that fell off the bus</title>",
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_BACKGROUND}"/>',
    ]
    for number, line in enumerate(shown):
        quiet = line.startswith(("$", "host "))
        column = 0
        for word in line.split(" "):
            if word:
                colour = _COLOURS.get(word.rstrip(":"), _QUIET if quiet else _INK)
                x, y = _MARGIN + column * _CELL, _MARGIN + (number + 0.75) * _LINE
                place = f'x="{x:g}" y="{y:g}" textLength="{len(word) * _CELL:g}"'
                parts.append(f'<text {place} fill="{colour}">{escape(word)}</text>')
            column += len(word) + 1
    return "\n".join([*parts, "</svg>"]) + "\n"
