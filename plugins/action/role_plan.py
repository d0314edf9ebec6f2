# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module role_plan. It runs on the controller, from the variables and the facts of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import BOOLEANS, boolean
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.action import managed_facts  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.modules.role_plan import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.plugin_utils._controller import missing_collections
from ansible_collections.gpu.fleet.plugins.plugin_utils._plain import plain
from ansible_collections.gpu.fleet.plugins.plugin_utils._preflight import check_forms
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.contract import (
    Plan,
    Planner,
    RequestError,
    as_lists,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.data import RoleData, options_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.planners import PLANNERS
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.registry import variables_of

_LONGEST_MESSAGE = 16_384
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
# Read once, in Ansible's main process: its forks inherit them.
_FILES = RoleData.read()


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Plan a role, and refuse what it cannot do."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a stage of the role's planner returns; fails with all refusals in one message."""
        result: dict[str, Any] = {**super().run(tmp, task_vars), "changed": False}
        _validation, options = self.validate_argument_spec(ARGUMENT_SPEC)
        known = task_vars or {}
        host = known.get("inventory_hostname", "")
        role, stage = options["role"], options["stage"]
        planner = PLANNERS[role]
        if stage not in planner.stages:
            raise AnsibleActionFail(f"the role {role} has no stage {stage}; use {' or '.join(planner.stages)}")
        if stage in planner.secret and not self._task.no_log:
            raise AnsibleActionFail(f"the stage {stage} of the role {role} may have secrets; set no_log on its task")
        missing = missing_collections(planner.collections)
        if missing:
            return {**result, **_refused(host, missing)}
        facts = known["ansible_facts"]
        facts = self._templar.template(facts) if isinstance(facts, str) else facts
        variables = self._variables(role, planner, known)
        try:
            found = planned(role, stage, variables, facts, plain(options["facts"]))
            return {**result, **_result(host, found)}
        except RequestError as refused:
            return {**result, **_refused(host, [str(refused)])}
        except _MALFORMED as error:
            raise AnsibleActionFail(
                f"{host}: the facts of the host have another form than modules document ({type(error).__name__}); "
                "check who changed the host"
            ) from error

    def _variables(self, role: str, planner: Planner, known: Mapping[str, Any]) -> dict[str, Any]:
        """The public variables that count: nothing else that was set is evaluated."""
        own = [name for one in variables_of([role]) for name in options_of(one)]
        names = [name for name in (*own, *planner.others) if name in known]
        return {name: plain(self._templar.template(known[name])) for name in names}


def planned(
    role: str, stage: str, variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]
) -> Plan | Sequence[Plan] | Mapping[str, Any]:
    """What a stage returns, or a plan with the refusals of the variables' forms, in the words of the playbook site.

    Ansible's own check of a role's arguments converts text to a boolean for itself and leaves the role with the text;
    so does this one, as a role in a playbook of others takes it. Raises RequestError, and what `_MALFORMED` has where
    the facts have another form.
    """
    planner = PLANNERS[role]
    specs = {name: spec for one in variables_of([role]) for name, spec in options_of(one).items()}
    values = {name: _converted(value, specs.get(name, {})) for name, value in variables.items()}
    refusals = check_forms([role], values, _FILES.tables)
    if refusals:
        return Plan(refusals=refusals)
    tables = {name: _FILES.role_values[role][name] for name in planner.tables}
    return planner.stages[stage]({**values, **tables}, facts, given)


def _converted(value: Any, spec: Mapping[str, Any]) -> Any:
    is_text = spec.get("type") == "bool" and isinstance(value, str) and value.lower() in BOOLEANS
    return boolean(value) if is_text else value


def _result(host: str, found: Plan | Sequence[Plan] | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        lists: Mapping[str, Any] = as_lists(found)
        return lists
    plans = [found] if isinstance(found, Plan) else found
    refusals = list(dict.fromkeys(text for one in plans for text in one.refusals))
    if refusals:
        return _refused(host, refusals)
    return found.as_dict() if isinstance(found, Plan) else {"plans": [one.as_dict() for one in plans]}


def _refused(host: str, refusals: Sequence[str]) -> dict[str, Any]:
    return {"failed": True, "msg": one_line(f"{host}: {'; '.join(refusals)}"[:_LONGEST_MESSAGE])}
