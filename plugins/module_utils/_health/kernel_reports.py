# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the kernel's own reports of faults over many lines, as far as they are about the driver. Private to this
collection.

An oops, a lockup and a hung task begin with a line that at most names a process, which users choose, and list modules
that every GPU server has loaded. Which code it was is in the lines after it: `RIP: 0010:uvm_spin_loop+0xb2/0xe0
[nvidia_uvm]` (x86), `pc : ...` (Arm), and the call trace. The first function of a module decides: what a driver waits
for is not the driver's. A name of a process, of 15 characters at most, is too short for such a line.
"""

from __future__ import annotations

import re
from typing import Any

OOPS, STALLED = "driver_oops", "driver_stalled"

_KINDS = (
    (
        OOPS,
        re.compile(
            r"BUG: (?:kernel NULL pointer|unable to handle)|kernel BUG at |Unable to handle kernel |Internal error: "
            r"|Oops: |(?:general protection fault|invalid opcode|divide error|stack segment)\b.{0,128} \[#\d"
        ),
    ),
    (
        STALLED,
        re.compile(
            r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#|(?:NMI )?watchdog: Watchdog detected hard LOCKUP on cpu"
            r"|(?:rcu: )?INFO: rcu_\w{1,16} self-detected stall"
            r"|INFO: task .{1,64} blocked for more than \d{1,6} seconds"
        ),
    ),
)
BEGINNINGS = (
    "BUG: ",
    "kernel BUG at ",
    "Unable to handle kernel ",
    "Internal error: ",
    "Oops: ",
    "general protection fault",
    "invalid opcode",
    "divide error",
    "stack segment",
    "watchdog: ",
    "NMI watchdog: ",
    "rcu: INFO: ",
    "INFO: ",
)
"""With one of these a report begins."""

# Registers and modules come first; deeper calls do not decide.
_MOST_LINES = 100
# A `?` marks what is only left on the stack.
_CALL = re.compile(
    r"(?:R?IP: (?:\d{4}:)?|pc : |PC is at )?(?:\[<[0-9a-f]{1,16}>\] {1,2}){0,2}(?P<function>[\w.$]{1,512}"
    r"\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}) \[(?P<module>[\w-]{1,64})(?: [0-9a-f]{8,64})?(?:\([A-Z]{1,8}\))?\]"
)
_DRIVER = frozenset(("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nvidia_vgpu_vfio"))
# The process's own code, the end of a task, the end of the report, and a warning, which is none of these reports.
_ENDS = ("RIP: 0033:", "</TASK>", "---[ end trace", "WARNING: ")


class Reports:
    """The report that is being read, if any."""

    def __init__(self) -> None:
        # What kind it is, as long as it is not known what it is about.
        self.kind = ""
        self._lines = 0

    def begin(self, text: str) -> None:
        """Take a line with one of the beginnings."""
        for kind, pattern in _KINDS:
            if pattern.match(text):
                self.kind, self._lines = kind, 0

    def read_further(self, text: str) -> dict[str, Any] | None:
        """The event, by the names of fields of Event, where this line shows that the report is about the driver."""
        kind = self.kind
        self._lines += 1
        call = _CALL.match(text)
        if call is not None or self._lines >= _MOST_LINES or text.startswith(_ENDS):
            self.kind = ""
        if call is None or call["module"] not in _DRIVER:
            return None
        return {"kind": kind, "text": f"{call['function']} [{call['module']}]"}
