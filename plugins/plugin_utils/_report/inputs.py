# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host of the report from what the host has registered, and from its variables. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line

from .._fleet.documents import WHAT_TO_DO, FormError, facts_of, health_of
from .._fleet.nvlink_domains import VARIABLE as NVLINK_DOMAIN
from .._planning.variable_forms import Spec, form_refusals, shown
from .model import NOT_READ, READ, UNREACHABLE, Host

RACK, BUDGET, DECLARED = "gpu_fleet_rack", "gpu_fleet_rack_power_budget_kw", "gpu_health_expected"
VARIABLES: Mapping[str, Spec] = {
    RACK: {"type": "str"},
    BUDGET: {"type": "float"},
    DECLARED: {"type": "dict"},
    NVLINK_DOMAIN: {"type": "str"},
}
"""The variables of a host that count for the report."""
_DEFAULT_BUDGET_KW = 20.0
_LONGEST_REASON = 4000


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
        "nvlink_domain": given.get(NVLINK_DOMAIN),
        "rack_power_budget_kw": budget,
        "declared": given.get(DECLARED, {}),
    }
    for result in (facts or {}, health or {}):
        if result.get("unreachable"):
            return Host(name, UNREACHABLE, _one_line(result), **common), refusals
    if facts is None or "host" not in facts:
        return Host(name, NOT_READ, _one_line(facts or {}), **common), refusals
    try:
        read = facts_of(facts["host"])
    except FormError as error:
        wrong = f"its facts are not as report_facts returns them: {error}; {WHAT_TO_DO}"
        return Host(name, NOT_READ, wrong, **common), refusals
    try:
        judged = health_of(health) if health is not None and "verdict" in health else None
        reason = None if judged else f"its health could not be judged: {_one_line(health or {})}"
    except FormError as error:
        judged = None
        reason = f"its health could not be judged: it is not as gpu_health returns it: {error}; {WHAT_TO_DO}"
    return Host(name, READ, reason, facts=read, health=judged, **common), refusals


def _checked(host: str, variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    given, refusals = {}, []
    for name, value in variables.items():
        wrong = list(form_refusals(name, value, VARIABLES[name]))
        if name == BUDGET and not wrong and value is not None and not 0 < value < float("inf"):
            wrong = [f"{name} is {shown(value)}; it takes a number of kilowatts above 0"]
        refusals += [f"{host}: {text}; it is left out of the report" for text in wrong]
        if not wrong and value not in (None, ""):
            given[name] = _plain(value) if name == DECLARED else str(value) if name in (RACK, NVLINK_DOMAIN) else value
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
    # A part of a character ends the writing of the page.
    return one_line(str(found)[:_LONGEST_REASON], 400)
