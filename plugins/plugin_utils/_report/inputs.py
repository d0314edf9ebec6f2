# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of the report from what the host has registered, and from its variables. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._variable_forms import Spec, form_refusals, shown
from .model import NOT_READ, READ, UNREACHABLE, Host

RACK, BUDGET, DECLARED = "gpu_fleet_rack", "gpu_fleet_rack_power_budget_kw", "gpu_health_expected"
VARIABLES: Mapping[str, Spec] = {RACK: {"type": "str"}, BUDGET: {"type": "float"}, DECLARED: {"type": "dict"}}
"""The variables of a host that count for the report."""
_DEFAULT_BUDGET_KW = 20.0
_NOT_OF_HEALTH = ("changed", "failed", "warnings", "deprecations", "failed_when_result", "invocation", "msg")


def read_host(
    name: str, facts: Mapping[str, Any] | None, health: Mapping[str, Any] | None, variables: Mapping[str, Any]
) -> tuple[Host, list[str]]:
    """The host, and what is wrong with its variables; a wrong one is left out.

    `facts` and `health` are the results of report_facts and gpu_health, None where the task did not run.
    """
    given, refusals = _checked(name, variables)
    budget = float(given.get(BUDGET, _DEFAULT_BUDGET_KW))
    common: dict[str, Any] = {
        "rack": given.get(RACK),
        "rack_power_budget_kw": budget,
        "declared": given.get(DECLARED, {}),
    }
    for result in (facts or {}, health or {}):
        if result.get("unreachable"):
            return Host(name, UNREACHABLE, _one_line(result), **common), refusals
    if facts is None or "host" not in facts:
        return Host(name, NOT_READ, _one_line(facts or {}), **common), refusals
    if health is None or "verdict" not in health:
        reason = f"its health could not be judged: {_one_line(health or {})}"
        return Host(name, READ, reason, facts=facts["host"], **common), refusals
    judged = {key: value for key, value in health.items() if key not in _NOT_OF_HEALTH}
    return Host(name, READ, facts=facts["host"], health=judged, **common), refusals


def _checked(host: str, variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    given, refusals = {}, []
    for name, value in variables.items():
        wrong = list(form_refusals(name, value, VARIABLES[name]))
        if name == BUDGET and not wrong and value is not None and not 0 < value < float("inf"):
            wrong = [f"{name} is {shown(value)}; it takes a number of kilowatts above 0"]
        refusals += [f"{host}: {text}; it is left out of the report" for text in wrong]
        if not wrong and value not in (None, ""):
            given[name] = _plain(value) if name == DECLARED else str(value) if name == RACK else value
    return given, refusals


def _plain(value: Any) -> Any:
    """A value without Ansible's lazy containers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _one_line(result: Mapping[str, Any]) -> str:
    found = result.get("msg") or result.get("module_stderr") or "the task reports no reason"
    return " ".join(str(found).split())[:400]
