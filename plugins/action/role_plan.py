# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module role_plan. It runs on the controller, from the variables and the facts of a task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.action import managed_facts  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.modules.role_plan import ARGUMENT_SPEC
from ansible_collections.gpu.fleet.plugins.plugin_utils import _injected_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import evaluated, for_templates, readings
from ansible_collections.gpu.fleet.plugins.plugin_utils._controller import missing_collections
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning import room
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import (
    Ask,
    Plan,
    RequestError,
    RolePlanner,
    as_lists,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData, options_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.plain import named, plain
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.platforms import platform_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import check_forms, repository_refusals
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS, ROLES, variables_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_forms import with_truths

_LONGEST_MESSAGE = 16_384
READINGS = "readings"
# Of the modules that a stage may ask for.
_FACTS = re.compile(r"gpu\.fleet\.[a-z_]+_facts")
# The option data-root is where Docker keeps images.
_OPTIONS = "docker_daemon_options"
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
        # Dependencies of the collection are installed with it.
        others = () if role in ROLES else planner.collections
        refusals = _injected_facts.refusals(known, self._connection) or missing_collections(others)
        if refusals:
            return {**result, **_refused(host, refusals)}
        facts = known["ansible_facts"]
        facts = evaluated(self._templar, facts) if isinstance(facts, str) else facts
        is_read = known.get("__common_facts_are_read") or _is_part_of_another(role, known)
        gather = [] if is_read else [part for part in options["observe"] if part != READINGS]
        try:
            observed = self._observed(gather, host, known, facts)
            if observed.get("failed"):
                return {**result, **observed}
            facts = {**facts, **named(observed.get("ansible_facts", {}))}
            variables = self._variables(role, planner, known)
            given = {"check_mode": self._task.check_mode, **plain(options["facts"])}
            needs = _needs(role, variables) if READINGS in options["observe"] else {}
            if needs:
                read = self._host_facts(known, gather=[], reads=needs)
                if read.get("failed"):
                    return {**result, **read}
                given[READINGS] = read[READINGS]
            of_host, warnings = {**observed.get("ansible_facts", {})}, [*observed.get("warnings", ())]
            found = planned(role, stage, variables, facts, given)
            while isinstance(found, Ask):
                lacking = _lacking(role, found.plan, variables, observed)
                # Nothing is read for work that needs a repository which is refused.
                if found.plan and found.plan.has_work and stage == "plan":
                    lacking += repository_refusals(role, variables, facts, _FILES)
                if lacking:
                    return {**result, **_refused(host, lacking)}
                read = readings(self, found, known)
                # What a task returned would be a variable from then on: a host that lies here would lie later.
                returned = _facts_in(read)
                lies = _injected_facts.refusals(
                    {**known, **returned, "ansible_facts": named(returned)}, self._connection
                )
                if lies:
                    return {**result, **_refused(host, lies)}
                for one in _results_of_facts(found, read):
                    if one.get("failed"):
                        return {**result, **one}
                    of_host, facts = {**of_host, **one["ansible_facts"]}, {**facts, **named(one["ansible_facts"])}
                warnings += [text for one in read.values() for text in one.get("warnings", ())]
                given |= read
                found = planned(role, stage, variables, facts, given)
            lacking = _lacking(role, found, variables, observed)
            if lacking:
                return {**result, **_refused(host, lacking)}
            outcome = _result(host, found)
            if outcome.get("failed"):
                # Without the facts: Ansible prints all of a failed result.
                return {**result, **outcome}
            result |= {"ansible_facts": of_host} if of_host else {}
            result |= {"variables": _converted_by_name(role, variables, planner.reads), **outcome}
            ended: dict[str, Any] = for_templates(_warning(host, result, warnings))
            return ended
        except RequestError as refused:
            return {**result, **_refused(host, [str(refused)])}
        except _MALFORMED as error:
            raise AnsibleActionFail(
                f"{host}: the facts of the host have another form than modules document ({type(error).__name__}); "
                "check who changed the host"
            ) from error

    def _observed(
        self, gather: Sequence[str], host: str, known: dict[str, Any], facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The result of host_facts, or a refusal of a host whose packages Ansible cannot manage.

        Where the system is known, nothing runs on a host that is refused.
        """
        if not gather:
            return {}
        refusal = _unmanageable(facts) if "distribution" in facts else ""
        if not refusal:
            # Distribution and architecture do not change while a play runs.
            unknown = {"distribution", "os_family", "architecture"} - {*facts}
            requested = ["system", *gather] if unknown and "system" not in gather else [*gather]
            observed = self._host_facts(known, gather=requested, directories=self._directories(known))
            if observed.get("failed"):
                return observed
            refusal = _unmanageable({**facts, **named(observed["ansible_facts"])})
        return _refused(host, [refusal]) if refusal else observed

    def _host_facts(self, known: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        """The result of the module."""
        task = self._task.copy()
        task.action, task.args = "gpu.fleet.host_facts", arguments
        shared = {"connection": self._connection, "play_context": self._play_context, "loader": self._loader}
        shared |= {"templar": self._templar, "shared_loader_obj": self._shared_loader_obj}
        found: dict[str, Any] = self._shared_loader_obj.action_loader.get(task.action, task=task, **shared).run(
            task_vars=known
        )
        return found

    def _directories(self, known: Mapping[str, Any]) -> list[str]:
        """The directories that roles write to. What cannot be evaluated before the facts are read is at its default."""
        try:
            return room.directories({_OPTIONS: evaluated(self._templar, known.get(_OPTIONS))})
        except AnsibleError:
            return room.directories({})

    def _variables(self, role: str, planner: RolePlanner, known: Mapping[str, Any]) -> dict[str, Any]:
        """The public variables that count: nothing else that was set is evaluated."""
        own = [name for one in variables_of([role]) for name in options_of(one)]
        names = [name for name in (*own, *planner.others) if name in known]
        return {name: evaluated(self._templar, known[name]) for name in names}


def planned(
    role: str, stage: str, variables: Mapping[str, Any], facts: Mapping[str, Any], given: Mapping[str, Any]
) -> Plan | Sequence[Plan] | Mapping[str, Any] | Ask:
    """What a stage returns, or a plan with the refusals of the variables' forms, in the words of the playbook site.

    Ansible's own check of a role's arguments converts text to a boolean for itself and leaves the role with the text;
    so does this one, as a role in a playbook of others takes it. Raises RequestError, and what `_MALFORMED` has where
    the facts have another form.
    """
    planner = PLANNERS[role]
    values = _converted_by_name(role, variables, variables)
    refusals = check_forms([role], values, _FILES.tables)
    if refusals:
        return Plan(refusals=refusals)
    return planner.stages[stage](_FILES.planner_values(role, values, planner.tables), facts, given)


def _facts_in(read: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What results of readings have as facts, of whatever module."""
    results = [*read.values(), *(each for one in read.values() for each in one.get("results") or ())]
    return {
        name: value
        for one in results
        if isinstance(one, Mapping)
        for name, value in (one.get("ansible_facts") or {}).items()
    }


def _results_of_facts(asked: Ask, read: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of modules that read facts of the host, which are its facts from then on."""
    modules = {name: one[0] for name, one in asked.readings.items() if isinstance(one, tuple)}
    return [read[name] for name, module in modules.items() if _FACTS.fullmatch(module)]


def _needs(role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Readings of the role besides facts; nothing where its variables have another form, or are refused."""
    values = _converted_by_name(role, variables, variables)
    return {} if check_forms([role], values, _FILES.tables) else PLANNERS[role].needs(values).as_dict()


def _is_part_of_another(role: str, known: Mapping[str, Any]) -> bool:
    """Whether another role of the collection includes this one, and has read the facts."""
    return any(
        name.startswith("gpu.fleet.") and name != f"gpu.fleet.{role}"
        for name in known.get("ansible_parent_role_names") or ()
    )


def _unmanageable(facts: Mapping[str, Any]) -> str:
    """Why Ansible cannot manage the packages of the host; empty where it can."""
    reason = platform_of(facts)["reason"]
    release = f"{facts['distribution']} {facts['distribution_version']}"
    return f"{release} is not supported: {reason}, or take the host out of the play" if reason else ""


def _converted_by_name(role: str, variables: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Of these variables those that are set, as the role takes them."""
    specs = {name: spec for one in variables_of([role]) for name, spec in options_of(one).items()}
    return with_truths({name: variables[name] for name in names if name in variables}, specs)


def _lacking(role: str, found: object, variables: Mapping[str, Any], observed: Mapping[str, Any]) -> tuple[str, ...]:
    """What a role with work lacks of room and write access, where the host was observed for it."""
    has_work = isinstance(found, Plan) and found.has_work and not found.refusals
    return room.refusals([role], variables, room.Found.of(observed)) if has_work and observed else ()


def _result(host: str, found: Plan | Sequence[Plan] | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        lists: Mapping[str, Any] = as_lists(found)
        return lists
    plans = [found] if isinstance(found, Plan) else found
    refusals = list(dict.fromkeys(text for one in plans for text in one.refusals))
    if refusals:
        return _refused(host, refusals)
    return found.as_dict() if isinstance(found, Plan) else {"plans": [one.as_dict() for one in plans]}


def _warning(host: str, result: dict[str, Any], observed: Sequence[str]) -> dict[str, Any]:
    """A result with what is to be warned of, about the host and by the plan, as Ansible prints it."""
    warnings = [*observed, *(f"{host}: {text}" for text in result.pop("warnings", ()))]
    return {**result, **({"warnings": warnings} if warnings else {})}


def _refused(host: str, refusals: Sequence[str]) -> dict[str, Any]:
    return {"failed": True, "msg": one_line(f"{host}: {'; '.join(refusals)}"[:_LONGEST_MESSAGE])}
