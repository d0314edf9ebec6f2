# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Effects of an unhealthy GPU on a query."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..command_line.selection import Selected
    from .shapes import Reply

NO_DEVICES: Reply = ("No devices were found\n", 6)
LOST = 15
LOST_TEXT = "GPU is lost.  Reboot the system to recover this GPU"
CORRUPTED_INFOROM = 14


def lost(gpus: Selected, spelling: str = "GPU{}") -> Reply | None:
    """Return the error output when NVML gives no handle for one of the GPUs; None when none is lost."""
    for index, gpu in gpus:
        if gpu["health"] == "lost":
            name = spelling.format(index)
            return f"Unable to determine the device handle for {name}: {LOST_TEXT}\n\n\n", LOST
    return None


def after_table(text: str, gpus: Selected) -> Reply:
    """Add the warnings that follow the table."""
    warnings = [
        "WARNING: infoROM is corrupted at gpu {}\n".format(gpu["bus_id"][4:])
        for _unused, gpu in gpus
        if gpu["health"] == "inforom"
    ]
    return text + "".join(warnings), CORRUPTED_INFOROM if warnings else 0
