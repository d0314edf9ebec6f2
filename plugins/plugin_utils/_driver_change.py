# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the driver may change now, and which packages are the kernel's. Private to this collection.

Pure: what is installed and who uses the driver in, the decision out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WHEN_BUSY = ("fail", "proceed", "defer")
"""What to do with a change of a driver that is in use."""
_NAMED_AT_MOST = 10

# Packages that have the kernel's name and are not booted or built against.
_NOT_KERNEL = re.compile(
    r"linux-(?:libc-dev|doc|source|perf|cpupower|firmware|base|(?:\S+-)?(?:tools|buildinfo))(?:-.*)?"
)
_RPM_KERNEL = re.compile(r"kernel(?:-(?:rt|64k|uek|uki|core|modules|devel|matched|extra|internal|partner|virt|kvm))*")
_OF_ONE_KERNEL = re.compile(r"-\d+\.\d+\.\d+-\d+")


@dataclass(frozen=True)
class ChangeDecision:
    """`action` is of WHEN_BUSY; `users` are what uses the driver, one phrase each."""

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


def _named(users: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Each user in words; of many the first, and how many more there are."""
    named = [_words(user) for user in users[:_NAMED_AT_MOST]]
    more = len(users) - len(named)
    return (*named, f"{more} more") if more else tuple(named)


def _words(user: Mapping[str, Any]) -> str:
    is_module = user.get("pid") is None
    who = f"kernel module {user['name']}" if is_module else f"{user['name']} (PID {user['pid']})"
    return f"{who} holds {user['device']}" + (f" (stop {user['stop']})" if user.get("stop") else "")


def kernel_packages(installed: Iterable[str], kernels: Iterable[str]) -> list[str]:
    """The installed packages that pin the kernel, sorted: those of `kernels`, and metapackages that install new ones.

    `kernels` are as `uname -r` prints them. With rpm all versions have the same names.
    """
    names = set(installed)
    images = {name for name in names if re.match(r"linux-image-(?!\d|unsigned-|extra-)", name)}
    flavours = "|".join(re.escape(name.removeprefix("linux-image-")) for name in images)
    releases = "|".join(re.escape(part) for kernel in kernels for part in (kernel, _without_flavour(kernel)))
    of_kernel = re.compile(rf"linux-(?:.*-)?(?:{releases})(?:-common|-unsigned)?")
    metapackage = re.compile(rf"linux-(?:.*-)?(?:{flavours or '(?!)'})")
    return sorted(
        name
        for name in names
        if not _NOT_KERNEL.fullmatch(name)
        and (
            of_kernel.fullmatch(name)
            or (metapackage.fullmatch(name) and not _OF_ONE_KERNEL.search(name))
            or _RPM_KERNEL.fullmatch(name)
        )
    )


def _without_flavour(kernel: str) -> str:
    """6.8.0-151 of 6.8.0-151-generic: headers that all flavours share are named so."""
    return re.sub(r"-[^-\d][^-]*$", "", kernel)
