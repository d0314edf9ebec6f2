# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the next batch of a rolling upgrade may begin, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import gate
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError


def upgrade_gate(
    plan: Mapping[str, Any],
    variables: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    batch: Sequence[str],
) -> dict[str, Any]:
    """The decision about `batch`; see the filter's documentation."""
    try:
        return asdict(gate(plan, variables, states, batch))
    except (RollingError, StateError) as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"upgrade_gate": upgrade_gate}
