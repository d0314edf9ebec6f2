# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the driver may change or be removed now. Private to this collection.

Pure: what is installed and who uses the driver in, the decision out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_NAMED_AT_MOST = 10


@dataclass(frozen=True)
class ChangeDecision:
    """`action` is a value of nvidia_driver_when_busy; `users` are what uses the driver, one phrase each."""

    action: str
    users: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {"action": self.action, "users": list(self.users)}


def decide_change(
    replaced: Sequence[str], users: Sequence[Mapping[str, Any]], when_busy: str, may_reboot: bool
) -> ChangeDecision:
    """Decide about a change that replaces or removes the packages `replaced`; `users` is what driver_reload returns.

    Without a package to replace nothing that runs is affected. A kernel module of another program is no job: it only
    prevents the new driver from being loaded, and matters where no reboot may do that.
    """
    if not replaced:
        return ChangeDecision("proceed")
    found = [user for user in users if user.get("pid") is not None or not may_reboot]
    return ChangeDecision(when_busy if found else "proceed", _named(found))


def removal_refusals(users: Sequence[Mapping[str, Any]], containers: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Why nothing may be removed: GPUs are in use, or may be by a container that has some and uses none at present.

    `users` is what driver_reload returns, `containers` what systemd_reload does. Kernel modules of others do not count.
    """
    found = [
        *_named([user for user in users if user.get("pid") is not None]),
        *(f"{one['engine']} container {one['name']}" for one in containers),
    ]
    if not found:
        return ()
    in_use = "; ".join(found)
    return (f"GPUs are in use, and nothing was removed: {in_use}; stop what uses them, then run the playbook again",)


def _named(users: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Each user in words; of many the first, and how many more there are."""
    named = [_words(user) for user in users[:_NAMED_AT_MOST]]
    more = len(users) - len(named)
    return (*named, f"{more} more") if more else tuple(named)


def _words(user: Mapping[str, Any]) -> str:
    is_module = user.get("pid") is None
    who = f"kernel module {user['name']}" if is_module else f"{user['name']} (PID {user['pid']})"
    return f"{who} holds {user['device']}" + (f" (stop {user['stop']})" if user.get("stop") else "")
