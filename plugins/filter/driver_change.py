# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the driver of a host may change while it is in use, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver.driver_users import (
    WHEN_BUSY,
    decide_change,
)


def driver_change(
    replaced: Sequence[str], users: Sequence[Mapping[str, Any]], when_busy: str = "fail", may_reboot: bool = False
) -> dict[str, Any]:
    """Decide about a change that replaces these packages; see the filter's documentation."""
    if when_busy not in WHEN_BUSY:
        raise AnsibleFilterError(
            f"gpu.fleet.driver_change: when_busy is {when_busy!r}; it has to be {', '.join(WHEN_BUSY[:-1])} or "
            f"{WHEN_BUSY[-1]}"
        )
    return decide_change(replaced, users, when_busy, may_reboot).as_dict()


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"driver_change": driver_change}
