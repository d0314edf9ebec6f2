# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check all variables of all roles that will run, before anything on a host is changed. Private to this collection.

Pure: variables and what is known about the host in, refusals out, each one line in the words of the variables. The
planners of the roles read the variables of theirs, so that a request is refused here as they would refuse it later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from .._gpu_operator import OnHost, host_refusals
from .._roles import gpu_state, nvidia_repository
from .contract import Needs, Outlook, Plan, Readings, RequestError
from .data import RoleData, Tables
from .plain import named
from .registry import DEFAULT_ROLES, GPU_ROLES, PLANNERS, REMOVED_ROLES, ROLES, variables_of
from .variable_forms import form_refusals, is_list, shown, value_refusals

SKIP, FAIL = "skip", "fail"
DEFAULT, REMOVED, NONE = "default", "removed", "none"
_MOST_NAMES = 5
_SETS: Mapping[str, tuple[str, ...]] = {DEFAULT: DEFAULT_ROLES, REMOVED: REMOVED_ROLES, NONE: ()}


def unfinished_refusals(asked: object, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Why a host is not ready for a removal: a package that a killed run has not configured counts as not installed.

    Its role would find nothing to remove, and lose its record of the package.
    """
    names = [str(name) for name in facts.get("gpu_fleet_unfinished_packages") or ()] if asked == REMOVED else []
    if not names:
        return ()
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    refusal = (
        f"dpkg has not configured {', '.join(names[:_MOST_NAMES])}{more}, as after a run that was killed; run `dpkg "
        "--configure -a` on the host, or `apt-get -f install` where that fails, then run again"
    )
    return (refusal,)


@dataclass(frozen=True)
class Preflight:
    """The roles to run, in their order, and all that is wrong; `without_gpu` are those left out for lack of a GPU.

    plans: of the roles of which a plan knows whether they have work. work: those that have, and those that have to look
    themselves.
    """

    roles: tuple[str, ...] = ()
    without_gpu: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    plans: Mapping[str, Plan] = field(default_factory=dict)
    work: tuple[str, ...] = ()


def requested_roles(value: object) -> tuple[tuple[str, ...], str]:
    """The roles in gpu_fleet_roles, in their order, and a refusal of another value than a list of them.

    Playbooks name sets of roles: `default` are run without this variable, `removed` by decommission; with `none` a
    playbook plans no role.
    """
    known = ", ".join(ROLES)
    if isinstance(value, str) and value in _SETS:
        return _SETS[value], ""
    if not is_list(value) or not all(isinstance(name, str) for name in value):
        found = "null" if value is None else shown(value)
        return (), f"gpu_fleet_roles is {found}; it takes a list of: {known}"
    unknown = [name for name in value if name not in ROLES]
    if unknown:
        hint = "; windows_gpu runs by gpu.fleet.windows" if "windows_gpu" in unknown else ""
        return (), f"gpu_fleet_roles has {', '.join(unknown)[:100]}; it can have {known}{hint}"
    twice = [name for name in ROLES if value.count(name) > 1]
    if twice:
        return (), f"gpu_fleet_roles has {', '.join(twice)} more than once; name each role once"
    return tuple(name for name in ROLES if name in value), ""


def check_forms(roles: Collection[str], given: Mapping[str, Any], tables: Tables) -> tuple[str, ...]:
    """What is wrong with the form of the variables in `given`, which are those that a user has set."""
    converted = set(gpu_state.STATE_OPTIONS.values())
    return tuple(
        refusal
        for role in variables_of(roles)
        for name, spec in tables.specs[role].items()
        if name in given
        for refusal in (
            [*form_refusals(name, given[name], spec, name in converted)] or value_refusals(name, given[name], spec)
        )
    )


def needs_of(roles: Sequence[str], variables: Mapping[str, Any]) -> Needs:
    """Readings of a host for the plans of these roles, besides facts."""
    found = Needs()
    for role in roles:
        try:
            found += PLANNERS[role].needs(variables)
        except RequestError:
            continue  # The role's plan refuses it.
    return found


def check_site(
    roles: Sequence[str],
    variables: Mapping[str, Any],
    observed: Mapping[str, Any],
    files: RoleData,
    *,
    facts: Mapping[str, Any] | None = None,
    check_mode: bool = False,
) -> Preflight:
    """Which roles run on a host, their plans and their refusals, before the first change.

    `variables` has all of the roles, in the documented form. `observed` is the result of the module host_facts, `facts`
    what the play knows besides its facts.
    """
    known = {**(facts or {}), **named(observed["ansible_facts"])}
    run, without = _roles_for(roles, variables, known)
    repositories, readings = _Repositories(variables, known, files), Readings.of(observed.get("readings") or {})
    found: list[str] = []
    plans: dict[str, Plan] = {}
    coming: dict[str, Sequence[str]] = {}
    refused: dict[str, Sequence[str]] = {}
    for role in run:
        planner = PLANNERS[role]
        values = files.planner_values(role, variables, planner.tables)
        try:
            plan = Plan()
            if planner.has_plan or not planner.refuses:
                plan = cast("Plan", planner.stages["plan"](values, known, {"check_mode": check_mode}))
            if planner.has_plan:
                plans[role] = plan
            outlook = Outlook(readings, {**coming, **refused}, observed["missing_users"])
            refusals = planner.refuses(values, known, outlook) if planner.refuses else plan.refusals
            if refusals:
                # Once that is corrected, it brings what later roles need.
                refused[role] = plan.steps
            found += refusals
            has_work = not planner.has_plan or plan.has_work or repositories.are_added_by(role, plan)
            if has_work and (role != "gpu_state" or _changes_gpus(observed.get("prediction") or {})):
                coming[role] = plan.steps
        except RequestError as error:
            found.append(str(error))
    operator = OnHost(**observed["gpu_operator"])
    found += host_refusals([role for role in run if variables.get(f"{role}_state") == "present"], operator)
    found += repositories.refusals(run)
    found = [*_count_refusals(without, variables, known), *found]
    work = tuple(role for role in run if role in coming or role == "gpu_state")
    return Preflight(tuple(run), tuple(without), tuple(dict.fromkeys(found)), plans, work)


def _changes_gpus(prediction: Mapping[str, Any]) -> bool:
    """Whether gpu_state has work; where it cannot predict, there are no GPUs for other roles either."""
    return bool(prediction.get("changed") or prediction.get("reboot_required"))


# Hosts without a GPU


def _gpu_count(facts: Mapping[str, Any]) -> int:
    gpus = facts["nvidia_smi"]
    return max(int(gpus["gpu_count"]), len(gpus["pci_gpus"]))


def _roles_for(
    roles: Sequence[str], variables: Mapping[str, Any], facts: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """The roles to run on the host, and those to leave out because it has no GPU."""
    is_possible = _gpu_count(facts) or variables.get("nvidia_driver_image_build")
    without = [] if is_possible else [name for name in roles if name in GPU_ROLES and _needs_gpu(name, variables)]
    return [name for name in roles if name not in without], without


def _count_refusals(without: Sequence[str], variables: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the number of GPUs, where the roles `without` would be left out."""
    count, records = _gpu_count(facts), facts["gpu_fleet_managed"]
    given, decision = variables.get("gpu_fleet_expected_gpus"), variables.get("gpu_fleet_hosts_without_gpu", SKIP)
    # -e name=8 gives text.
    expected = int(given) if isinstance(given, str) and given.isascii() and given.isdigit() else given
    lost = [name for name in ("nvidia_driver", "nvidia_container_toolkit") if name in records and name in without]
    if decision not in (SKIP, FAIL):
        yield f"gpu_fleet_hosts_without_gpu is {shown(decision)}; use {SKIP} or {FAIL}"
    if expected is not None:
        if isinstance(expected, bool) or not isinstance(expected, int) or expected < 0:
            yield f"gpu_fleet_expected_gpus is {shown(expected)}; it takes a whole number from 0"
        elif expected != count:
            yield (
                f"the host has {count or 'no'} NVIDIA GPU{'' if count == 1 else 's'}, and "
                f"gpu_fleet_expected_gpus is {expected}: see `lspci -d 10de:` and dmesg, or correct the number"
            )
    elif lost:
        yield (
            f"no NVIDIA GPU is on the PCI bus, but an earlier run set up {' and '.join(lost)} here: see `lspci -d "
            "10de:` and dmesg; if the GPUs were removed, set gpu_fleet_expected_gpus to 0, or "
            f"{lost[0]}_state to absent"
        )
    elif without and decision == FAIL:
        yield (
            "no NVIDIA GPU is on the PCI bus, and gpu_fleet_hosts_without_gpu is fail: see `lspci -d 10de:`, set it to "
            f"skip, or take {', '.join(without)} out of gpu_fleet_roles for this host"
        )


def _needs_gpu(role: str, variables: Mapping[str, Any]) -> bool:
    return variables.get(f"{role}_state") != "absent"


# Repositories


def repository_refusals(
    role: str, variables: Mapping[str, Any], facts: Mapping[str, Any], files: RoleData
) -> tuple[str, ...]:
    """Refusals of the repository that a role adds; `variables` has those that are set."""
    every = {**files.defaults(variables_of([role])), **variables}
    return tuple(_Repositories(every, facts, files).refusals([role]))


@dataclass(frozen=True)
class _Repositories:
    """NVIDIA's repositories that roles add on a host."""

    variables: Mapping[str, Any]
    facts: Mapping[str, Any]
    files: RoleData

    def are_added_by(self, role: str, plan: Plan) -> bool:
        """Whether the role would add or change a repository."""
        name = "cuda" if plan.tasks.get("needs_repository") else str(plan.tasks.get("repository", ""))
        return bool(name) and self._plan(name, role).has_work

    def refusals(self, roles: Collection[str]) -> Iterator[str]:
        """Refusals of the repositories that the roles add, and of the keys that sign them."""
        for name, role in self._named(roles).items():
            yield from self._plan(name, role).refusals

    def _plan(self, name: str, role: str) -> Plan:
        host = nvidia_repository.Host.of(self.facts)
        request = nvidia_repository.Request.of_role(self.variables, name, role)
        return nvidia_repository.plan(request, host, self.files.tables.keys)

    def _named(self, roles: Collection[str]) -> dict[str, str]:
        """The repositories, each with the first of the roles that add it."""
        found: dict[str, str] = {}
        for role in roles:
            planner = PLANNERS[role]
            if not planner.repository:
                continue
            values = self.files.planner_values(role, self.variables, planner.tables)
            try:
                found.setdefault(planner.repository(values, self.facts), role)
            except RequestError:
                continue  # The role's own check has refused it.
        # A driver without any local package is refused by its own check.
        if not self.variables.get("nvidia_repository_local"):
            found.pop(nvidia_repository.LOCAL, None)
        return {name: role for name, role in found.items() if name}
