# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the order and the batches of a rolling upgrade, on the controller."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import placed, plan_run
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError


def upgrade_plan(
    entries: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    previous: Mapping[str, Any],
    time: str,
    *,
    places: Mapping[str, Mapping[str, Any]] | None = None,
    returns_refusal: bool = False,
) -> dict[str, Any]:
    """The plan for `entries`; see the filter's documentation."""
    try:
        return plan_run(placed(entries, places or {}), variables, states, previous, time, token=secrets.token_hex(3))
    except (RollingError, StateError) as error:
        if returns_refusal:
            return {"refusal": str(error)}
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"upgrade_plan": upgrade_plan}
