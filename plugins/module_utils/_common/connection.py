# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Ansible still waits for the result of a module. Private to this collection.

A module outlives its connection: sshd ends no program without a terminal, it only closes the pipe that the result goes
to. One that waits, or reads in vain, would go on and hold the lock of the host.
"""

from __future__ import annotations

import select

GONE = "the connection to the controller is gone, so no further step is started"
_STDOUT = 1
_watched: list[int] = []


def watch(descriptor: int = _STDOUT) -> None:
    """From now on the connection is gone once nothing reads `descriptor`. Only modules have one."""
    _watched[:] = [descriptor]


def is_gone() -> bool:
    """Whether the other end of the output is closed."""
    poll = select.poll()
    for descriptor in _watched:
        poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _descriptor, event in poll.poll(0))
