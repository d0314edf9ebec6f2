# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module host_facts, and with its option `roles` the check of their variables before it and their plan after it.

Every playbook begins with it: one that plans no roles has the names of the host's variables checked alone.

What only a module can find, whether the GPUs are as declared and healthy, is found here as well, so that a host with
nothing to do runs no role. One task does all of this, because each task of each host costs the controller a fork,
however little it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.gpu.fleet.plugins.action import managed_facts  # noqa: F401 # pylint: disable=unused-import
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.plugin_utils import _injected_facts
from ansible_collections.gpu.fleet.plugins.plugin_utils._ansible_core import (
    UNDECRYPTED,
    evaluated,
    for_templates,
    readings,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._controller import missing_collections
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.nvlink_domains import VARIABLE as NVLINK_DOMAIN
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.nvlink_domains import observed as nvlink_observed
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.rolling_run import PLACES
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning import room
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.contract import (
    Ask,
    Plan,
    Read,
    RequestError,
    in_order,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import RoleData, public_names
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.plain import named, plain
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.platforms import WINDOWS, platform_of
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.preflight import (
    NONE,
    check_forms,
    check_site,
    needs_of,
    requested_roles,
    unfinished_refusals,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import (
    DISRUPTIVE_ROLES,
    PLANNERS,
    collections_of,
    first_in_loop,
    in_loop,
    removed_in_loop,
    variables_of,
)
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.variable_names import STRICT
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles import gpu_state
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.gpu_health import plan as gpu_health

_GATHERED = ["system", "packages", "gpus", "cuda", "managed"]
_RESULT_FILE, _RESULT_CALLBACK = "gpu_fleet_result_file", "gpu.fleet.run_result"
_LONGEST_MESSAGE = 16_384
# Errors of results in any other form than our modules return, here and in ansible-core's own reading of them.
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_ADDRESSES = ("nvidia_driver_imex_address", "ansible_host")
_FLEET = ("gpu_fleet_hosts_without_gpu", "gpu_fleet_expected_gpus")
# Read once, in Ansible's main process: its forks inherit them.
_FILES, _NAMES = RoleData.read(), public_names()
_DRIVER = "nvidia_driver"


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no types
    """Check, observe, plan."""

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of the module, with the facts of setup, `plan` and `health`, or one message with all refusals."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        host = variables.get("inventory_hostname", "")
        requested = plain(self._task.args.get("roles"))
        # What the connection runs commands in, known without the host.
        if requested != NONE and getattr(self._connection._shell, "_IS_WINDOWS", False):
            return {**result, **_refused(host, [WINDOWS])}
        lies = _injected_facts.refusals(variables, self._connection)
        if lies:
            return {**result, **_refused(host, lies)}
        other = str(plain(self._task.args.get("host")) or host)
        if other != host:
            return {**result, **self._of_another(other, variables)}
        if "roles" not in self._task.args:
            found = self._with_imex_domain(host, self._execute_module(task_vars=variables), variables)
            # Of a role in a playbook of others, which may have names of its own.
            warnings = [*found.get("warnings", []), *_injected_facts.warnings(), *self._wrong_names(variables)]
            return {**result, **found, **({"warnings": warnings} if warnings else {})}
        injected = _injected_facts.warnings()
        result |= {"warnings": injected} if injected else {}
        roles, refusal = requested_roles(requested)
        wrong = [*self._wrong_names(variables), *([refusal] if refusal else [])]
        read, unread = self._values(self._read_by_playbook(), variables)
        wrong += unread
        if wrong and (refusal or requested == NONE):
            placed = {name: value for name, value in read.items() if name in PLACES}
            return {**result, **_refused(host, wrong), **({"variables": placed} if placed else {})}
        if requested == NONE:
            return {**result, **_unprinted(for_templates(read))}
        given, refusals = self._given(roles, variables)
        refusals += missing_collections(collections_of(roles))
        refusals += check_forms(roles, given, _FILES.tables)
        values = {**_FILES.defaults(variables_of(roles)), **given}
        try:
            found = self._planned(host, roles, values, [*unread, *refusals], variables)
            warnings = [*injected, *found.get("warnings", [])]
            found |= {} if found.get("failed") else {"variables": read}
            found |= {"warnings": warnings} if warnings else {}
            return {**result, **for_templates(found)}
        except _MALFORMED as error:
            raise AnsibleError(
                f"{host}: the results of its modules cannot be used ({type(error).__name__}); look with "
                f"`ansible {host} -m gpu.fleet.host_facts` at what replies for Python (ansible_python_interpreter)"
            ) from error

    def _of_another(self, host: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The variables of a host that cannot be reached any more, as its own templates have them."""
        raw, own = variables["hostvars"].raw_get(host), self._templar.available_variables
        lies = _injected_facts.refusals(raw)
        if lies:
            return _refused(host, lies)
        try:
            self._templar.available_variables = raw
            read, unread = self._values(self._read_by_playbook(), raw)
        finally:
            self._templar.available_variables = own
        return _refused(host, unread) if unread else _unprinted(read)

    def _planned(
        self,
        host: str,
        roles: Sequence[str],
        values: Mapping[str, Any],
        found_before: Sequence[str],
        variables: dict[str, Any],
    ) -> dict[str, Any]:
        """What the host has, and what it needs; `found_before` are the refusals of the variables' forms."""
        refusals, wrong_names = [*found_before], self._wrong_names(variables)
        observed = self._gathered(roles, {} if refusals else values, variables)
        refusals += _refusals_of_the_system(observed)
        if variables.get(_RESULT_FILE) and _RESULT_CALLBACK not in constants.CALLBACKS_ENABLED:
            refusals.append(
                f"{_RESULT_FILE} is set, and the callback {_RESULT_CALLBACK}, which writes it, is not enabled; add it "
                "to callbacks_enabled in ansible.cfg or to ANSIBLE_CALLBACKS_ENABLED"
            )
        if refusals:
            return _refused(host, [*wrong_names, *refusals])
        if observed.get("failed"):
            return {**observed, **_refused(host, [*wrong_names, str(observed.get("msg", "no facts"))])}
        facts = observed["ansible_facts"]
        # A play may have read more, such as the NVLink fabric.
        known = {**variables.get("ansible_facts", {}), **named(facts)}
        found = check_site(roles, values, observed, _FILES, facts=known, check_mode=self._task.check_mode)
        # A failure has no facts: Ansible prints the whole result.
        if wrong_names or found.refusals:
            return _refused(host, [*wrong_names, *found.refusals])
        try:
            work = list(found.work)
            refusals = _refusals_of_versions(work, values, known, lambda asked: self._read(asked, variables))
            refusals += room.refusals(work, values, room.Found.of(observed))
            refusals += unfinished_refusals(self._task.args.get("roles"), known) if work else ()
            if refusals:
                return _refused(host, refusals)
            # What a role without work would report.
            notes = found.plans[_DRIVER].notes if _DRIVER in found.plans and _DRIVER not in work else ()
            observation = self._observed(work, observed["prediction"], values, known, variables)
            if observation.refusals:
                return _refused(host, observation.refusals)
        except AnsibleConnectionFailure:
            raise
        except RequestError as error:
            return _refused(host, [str(error)])
        except AnsibleError as error:
            return _refused(host, [f"the roles cannot be planned: {error}"])
        work = [role for role in work if role not in observation.settled]
        judged = () if observation.health is None else ("gpu_health",)
        reads_gpus = bool(known["nvidia_smi"]["available"]) or not self._task.check_mode
        plan = {
            "roles": list(found.roles),
            "without_gpu": list(found.without_gpu),
            "work": work,
            "disruptive": _disruptive(work, observation.prediction),
            "loop": {
                "first": in_order(first_in_loop(work, reads_gpus)),
                "with_work": in_order(role for role in in_loop(work, reads_gpus) if role not in judged),
                "all": in_order(role for role in in_loop(found.roles, reads_gpus) if role not in judged),
            },
            "nvlink": _nvlink(named(facts)),
            "removal": in_order(removed_in_loop(work)),
            "modules": ["host_facts", *observation.modules],
            "notes": list(notes),
        }
        warnings = [*observed.get("warnings", []), *observation.warnings]
        return {
            **observed,
            **({"warnings": warnings} if warnings else {}),
            "changed": False,
            "ansible_facts": facts,
            "plan": plan,
            "prediction": observation.prediction,
            "health": observation.health,
            "report": observation.report,
        }

    def _wrong_names(self, variables: Mapping[str, Any]) -> list[str]:
        """What is wrong with the names of the host's variables; facts that have become variables are none of a user."""
        try:
            strict = evaluated(self._templar, variables.get(STRICT, True))
        except AnsibleError as error:
            return [_not_evaluated(STRICT, error)]
        # Facts that have become variables are nobody's mistake, the collection's own among them.
        given = _injected_facts.without_facts(variables)
        return [one_line(text) for text in _NAMES.refusals(given, strict)]

    def _given(self, roles: Sequence[str], variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The variables of the roles that a user has set, evaluated, and a refusal of each that cannot be."""
        names = [name for role in variables_of(roles) for name in _FILES.tables.specs[role]]
        others = [name for role in roles if role in PLANNERS for name in PLANNERS[role].others]
        values, refusals = self._values((*names, *others, *_FLEET), variables)
        return _FILES.with_truths(values), refusals

    def _read_by_playbook(self) -> list[str]:
        """The names in the option `variables`."""
        names: list[str] = plain(self._task.args.get("variables", []))
        unknown = [name for name in names if name not in _NAMES.names]
        if unknown:
            raise AnsibleActionFail(f"variables has {', '.join(unknown)}, which is not a public variable of gpu.fleet")
        secret = [name for name in names if name in _NAMES.secret]
        if secret and not self._task.no_log:
            raise AnsibleActionFail(f"{', '.join(secret)} may have secrets; set no_log on its task")
        return names

    def _values(self, names: Iterable[str], variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Of these variables those that are set, evaluated, and a refusal of each that cannot be."""
        values, refusals = {}, []
        for name in dict.fromkeys(names):
            if name not in variables:
                continue
            try:
                values[name] = evaluated(self._templar, variables[name])
            except AnsibleError as error:
                refusals.append(_not_evaluated(name, error))
        return values, refusals

    def _gathered(self, roles: Sequence[str], values: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The result of the module, with what the roles need of it; `values` are empty where they are refused."""
        arguments: dict[str, Any] = {"gather": _GATHERED, "directories": room.directories(values)}
        if values and "docker" in roles and values["docker_state"] == "present":
            arguments["users"] = values["docker_users"]
        needs = needs_of(roles, values).as_dict() if values else {}
        arguments |= {"reads": needs} if needs else {}
        try:
            if values and "gpu_state" in roles:
                # They depend on no fact of the host, so that one run reads the facts and predicts.
                connection = evaluated(self._templar, variables.get("ansible_connection", "ssh"))
                run = gpu_state.Run.of({"connection": connection, "is_rebooted": variables.get("__common_rebooted")})
                arguments["gpu_state"] = gpu_state.options(gpu_state.Request.read(values), run)
            found: dict[str, Any] = self._execute_module(module_args=arguments, task_vars=variables)
            if "nvidia_driver" in roles:
                found = self._with_imex_domain(variables.get("inventory_hostname", ""), found, variables)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            found = {"failed": True, "msg": str(error)}
        return found

    def _with_imex_domain(self, host: str, found: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        """The result of the module with the addresses of the host's NVLink domain, which only the inventory has."""
        domain = str(evaluated(self._templar, variables.get(NVLINK_DOMAIN, "")) or "")
        if found.get("failed") or not domain:
            return found
        hosts, groups = variables["hostvars"], variables["groups"]
        nodes, own = [], self._templar.available_variables
        try:
            # A group of the domain's name spares to look at each host of the inventory, for each of them.
            for name in groups.get(domain) or groups["all"]:
                raw = self._templar.available_variables = hosts.raw_get(name)
                named = evaluated(self._templar, raw.get(NVLINK_DOMAIN, ""))
                # Whose lies could give the address of another one.
                if name == host or (str(named or "") == domain and not _injected_facts.refusals(raw)):
                    given = (evaluated(self._templar, raw.get(one, "")) for one in _ADDRESSES)
                    nodes.append(str(next(filter(None, given), name)))
        finally:
            self._templar.available_variables = own
        return {**found, "ansible_facts": {**found["ansible_facts"], "imex_domain": nodes}}

    def _observed(
        self,
        work: Sequence[str],
        state: dict[str, Any] | None,
        values: Mapping[str, Any],
        names: Mapping[str, Any],
        variables: dict[str, Any],
    ) -> _Observation:
        """What the modules of the roles find that no plan knows; `state` is what gpu_state has predicted."""
        found = _Observation()
        # What it predicts for a driver that is about to change is of no use.
        if state is not None and "gpu_state" in work and "nvidia_driver" not in work:
            if state.get("failed"):
                found.refusals.append(gpu_state.in_words_of_the_role(str(state.get("msg", "gpu_state failed"))))
                return found
            found.prediction = state
            if not (state["changed"] or state["reboot_required"]):
                found.settled.append("gpu_state")
                found.warnings += state.get("warnings", [])
        judge = boolean(self._task.args.get("judge", False))
        if not judge or {*work} - {*found.settled} & {*DISRUPTIVE_ROLES} or "gpu_health" not in work:
            return found
        known = {"check_mode": self._task.check_mode, "facts_are_read": True, "is_converged": True}
        plan = _planned(gpu_health.GPU_HEALTH, values, names, **known)
        if gpu_health.judges_alone(plan):
            arguments = dict(plan.tasks["options"])
            verdict = self._execute_module("gpu.fleet.gpu_health", module_args=arguments, task_vars=variables)
            found.modules.append("gpu_health")
            # A failure is left to the role, which reports it.
            if not verdict.get("failed"):
                request = gpu_health.Request.read(values)
                found.health = gpu_health.result(request, plan.as_dict(), plain(verdict))
                found.report = gpu_health.report(found.health, self._task.check_mode, names)
                found.warnings += verdict.get("warnings", [])
                if not gpu_health.has_report(found.health):
                    found.settled.append("gpu_health")
        return found

    def _read(self, asked: Ask, variables: dict[str, Any]) -> dict[str, Any]:
        """The results of what a stage asks for; one that fails has read nothing."""
        found = readings(self, asked, variables)
        return {name: {} if one.get("failed") else one for name, one in found.items()}


@dataclass
class _Observation:
    """What the modules of roles found: their names, the roles with nothing to do, the results where they ran."""

    modules: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    warnings: list[Any] = field(default_factory=list)
    prediction: dict[str, Any] | None = None
    health: dict[str, Any] | None = None
    report: dict[str, Any] | None = None


def _unprinted(read: Mapping[str, Any]) -> dict[str, Any]:
    """A result with variables, which -v does not print: a user may have put a password where none belongs."""
    return {"changed": False, "variables": read, "_ansible_verbose_override": True}


def _not_evaluated(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split())
    advice = (
        "; give its password with --ask-vault-pass or --vault-password-file"
        if any(words in reason for words in UNDECRYPTED)
        else ""
    )
    return f"{name} cannot be evaluated: {reason[:200]}{advice}"


def _refusals_of_the_system(observed: Mapping[str, Any]) -> list[str]:
    """Refusals of a host on which no role can run."""
    facts = named(observed.get("ansible_facts", {}))
    if "effective_user_id" not in facts:
        reason = " ".join(str(observed.get("msg") or observed.get("module_stderr") or "no output").split()).rstrip(".")
        advice = "settings (--become, --ask-become-pass) and the Python of the host (ansible_python_interpreter)"
        return [
            f"cannot run a module: {reason.removeprefix('Task failed: ')}; check user, password and become {advice}"
        ]
    refusals = []
    if facts["effective_user_id"] != 0:
        refusals.append(
            f"runs as user {facts['user_id']}, not as root; add --become, or set ansible_become for this host"
        )
    platform = platform_of(facts)
    if not platform["supported"]:
        why = f": {platform['reason']}" if platform["reason"] else ""
        refusals.append(
            f"{facts['distribution']} {facts['distribution_version']} is not supported{why}; take the host out of "
            f"the play or use one of: {', '.join(platform['known'])}"
        )
    return refusals


def _planned(role: str, values: Mapping[str, Any], facts: Mapping[str, Any], stage: str = "plan", **found: Any) -> Plan:
    """The plan of a role with a planner; `found` is what the stage needs to know."""
    planner = PLANNERS[role]
    return cast("Plan", planner.stages[stage](_FILES.planner_values(role, values, planner.tables), facts, found))


def _disruptive(work: Sequence[str], state: Mapping[str, Any] | None) -> list[str]:
    """The roles with work that a job on the host would notice; `state` is what gpu_state has predicted.

    A host with a new driver is drained in any case, and one without any has no state to read: no prediction.
    """
    is_due = state is not None and (state["changed"] or (state["reboot_required"] and not state["reboot_tried"]))
    return [role for role in work if role in DISRUPTIVE_ROLES and (role != "gpu_state" or is_due)]


def _refusals_of_versions(
    work: Sequence[str],
    values: Mapping[str, Any],
    names: Mapping[str, Any],
    read: Read,
) -> list[str]:
    """What roles with work refuse by what the host's package lists have now."""
    to_come: dict[str, str] = {}
    found: list[str] = []
    for role in work:
        planner = PLANNERS[role]
        if planner.listed:
            variables = _FILES.planner_values(role, values, planner.tables)
            to_come[role], refusals = planner.listed(variables, names, read, to_come)
            found += refusals
    return list(dict.fromkeys(found))


def _nvlink(names: Mapping[str, Any]) -> dict[str, Any]:
    """What decides about the NVLink domain of the host."""
    gpus, cuda = names["nvidia_smi"], names["cuda"]
    driver = gpus["driver_version"] or cuda["driver"]["loaded_version"]
    return nvlink_observed(driver, gpus["gpus"], cuda["services"].get("imex"))


def _refused(host: str, refusals: Sequence[str]) -> dict[str, Any]:
    # ansible-core prints a message as it is, and a host may have written its parts.
    message = one_line(f"{host}: {'; '.join(refusals)}"[:_LONGEST_MESSAGE])
    return {"failed": True, "changed": False, "msg": message}
