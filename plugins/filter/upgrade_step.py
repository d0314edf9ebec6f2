# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record a step of a rolling upgrade in the state of a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError, advance, read_state


def upgrade_step(state: Mapping[str, Any], step: str, time: str, reason: str = "") -> dict[str, Any]:
    """The state after `step`; see the filter's documentation."""
    try:
        return advance(read_state(state), step, time, reason).as_dict()
    except StateError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"upgrade_step": upgrade_step}
