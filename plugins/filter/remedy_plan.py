# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which host gets which remedy, and record it, on the controller."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedy_run import (
    is_due,
    plan_remedies,
    recorded,
    refusal,
    support_case,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_plan import RollingError
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import placed
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_state import StateError


def remedy_plan(
    entries: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
    recorded_before: Mapping[str, Any],
    previous: Mapping[str, Any],
    time: str,
    *,
    places: Mapping[str, Mapping[str, Any]] | None = None,
    returns_refusal: bool = False,
) -> dict[str, Any]:
    """The plan for `entries`; see the filter's documentation."""
    try:
        return plan_remedies(
            placed(entries, places or {}),
            variables,
            recorded_before["states"],
            previous,
            time,
            attempts=recorded_before["attempts"],
            seen=recorded_before.get("seen"),
            token=secrets.token_hex(3),
        )
    except (RollingError, StateError) as error:
        if returns_refusal:
            return {"refusal": str(error)}
        raise


def _explained(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its errors as errors of a filter."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except (RollingError, StateError) as error:
            raise AnsibleFilterError(str(error)) from None

    return call


class FilterModule:
    """Entry point of the filter plugin."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "remedy_plan": _explained(remedy_plan),
            "remedy_record": _explained(recorded),
            "remedy_is_due": _explained(is_due),
            "remedy_refusal": _explained(refusal),
            "remedy_case": _explained(support_case),
        }
