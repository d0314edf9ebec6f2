# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backend.AI's agent on a host, on the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.plugin_utils._backend_ai_agent import (
    Found,
    agent_errors,
    agent_plan,
    failed_checks,
    reasons_in,
)


def backend_ai_agent(variables: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The plan for the variables of the role; see the filter's documentation."""
    return agent_plan(variables, Found(**found, is_read=True)).as_dict()


def backend_ai_agent_errors(log: str, slots: Mapping[str, float]) -> dict[str, Any]:
    """How the agent differs from the plan; see the filter's documentation."""
    errors = agent_errors(slots, log)
    return {"is_ready": errors is not None, "errors": list(errors or ()), "reasons": list(reasons_in(log))}


def backend_ai_agent_checks(output: str) -> list[str]:
    """What the agent's own checker has found; see the filter's documentation."""
    return list(failed_checks(output))


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "backend_ai_agent": backend_ai_agent,
            "backend_ai_agent_checks": backend_ai_agent_checks,
            "backend_ai_agent_errors": backend_ai_agent_errors,
        }
