# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of a rolling upgrade as the documents that its playbook reads and writes. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import (
    UPGRADE,
    DrainReason,
    is_drain_of,
    refusal,
)

from .._planning.variable_forms import read_truth
from .documents import WHAT_TO_DO, FormError, Placement, read
from .nvlink_domains import VARIABLE as NVLINK_DOMAIN
from .nvlink_domains import contradictions, domain_lines, domains_of, member_of, undeclared
from .rolling_plan import Host, Options, RollingError, plan_lines, postponed, read_options, rolling_plan
from .rolling_state import FAILED, PLANNED, HostState, begin, read_state, remaining

PREFIX = "gpu_fleet_upgrade_"
HOOKS = tuple(f"{when}_{step}" for step in ("drain", "change", "health", "return") for when in ("before", "after"))
_NO_MARKS = str.maketrans("", "", "-:")
# Part of a command line, by which a node is rebooted.
_DIRECTORY = re.compile(r"(/[A-Za-z0-9._/-]+)?")
COMMANDS = ("drain", "wait", "force", "confirm", "return", "fail")
_OPTIONS = tuple(Options.__dataclass_fields__)
_KUBERNETES: Mapping[str, type] = {
    "kubernetes_host": str,
    "kubernetes_kubeconfig": str,
    "kubernetes_context": str,
    "kubernetes_node": str,
    "kubernetes_pod_selectors": list,
    "kubernetes_delete_emptydir_data": bool,
    "kubernetes_delete_unmanaged_pods": bool,
}
_SLURM = ("slurm_directory", "slurm_host", "slurm_node")
_OTHERS = ("commands", "directory", "group", "hooks", "reboot", "unit", *_SLURM, *_KUBERNETES)
"""Variables that the playbook reads itself."""
VARIABLES = (*_OPTIONS, *_OTHERS)
PLACES = {f"{PREFIX}group": "group", f"{PREFIX}unit": "unit", NVLINK_DOMAIN: "domain"}
"""What the inventory has of a host, refused ones as well, by the name in its entry."""


@dataclass(frozen=True)
class Gate:
    """What is decided before a batch: `stop` is the reason to change no more hosts, empty where there is none.

    `postponed` are hosts of the batch that may not be drained now, with the reason; `lines` are where all hosts are.
    `unchanged_canaries` are those that this run has left for another one, which is a failure, with the message.
    """

    stop: str
    postponed: Mapping[str, str]
    lines: Sequence[str]
    unchanged_canaries: Mapping[str, str]


def plan_run(
    entries: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    previous: Mapping[str, Any],
    time: str,
    *,
    token: str = "",
    who: str = UPGRADE,
    fixed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of a run, which continues the `previous` one where that has not finished.

    entries: by host what is in Host; `gpus`, how many it has or is declared to have; `domain` and `nvlink`, its NVLink
    domain in the inventory and what it has of one; and `drain`, the reason for which the scheduler has its node out of
    service. Hosts that the inventory names one domain and that are several are held. variables: of a user, by
    name. states: documents of all hosts. token: what distinguishes the run from one that another controller begins in
    the same second. who: the part of the collection, as in DrainReason. fixed: variables whose values it decides.
    """
    options = read_variables({**variables, **(fixed or {})})
    known = {state.host: state for state in map(read_state, states)}
    members, refusals = [], {}
    for name, entry in entries.items():
        try:
            placement = read(Placement, entry.get("nvlink", {}))
        except FormError as error:
            refusals[name] = f"what it reports of its NVLink domain cannot be used: {error}; {WHAT_TO_DO}"
            placement = Placement()
        is_read = not entry.get("is_missing") and name not in refusals
        unit = str(entry.get("unit", ""))
        members.append(member_of(name, entry.get("domain"), placement, unit=unit, is_read=is_read))
    domains = domains_of(members)
    before = [*previous.get("order", ()), *previous.get("failed", ())]
    continues = any(name not in known or not known[name].is_finished for name in before)
    run = previous["run"] if continues else "_".join(filter(None, (time.translate(_NO_MARKS), token)))
    # What an earlier run has finished is of no interest to this one.
    relevant = {name: state for name, state in known.items() if state.run == run or not state.is_finished}
    judged_before = previous.get("judged", ()) if continues else ()
    held, hosts, waiting = {}, [], contradictions(domains)
    for member in members:
        name, entry = member.host, entries[member.host]
        drained_by = relevant[name].run if name in relevant and relevant[name].is_out_of_service else run
        owner, reason = DrainReason(who, drained_by).owner, str(entry.get("drain", ""))
        refused = refusals.get(name) or refusal(reason, owner, options.take_over)
        held.update({name: refused} if refused else {})
        is_interrupted = is_drain_of(reason, owner, options.take_over)
        alone = undeclared(member)
        if alone and not is_interrupted and not (name in relevant and relevant[name].is_out_of_service):
            waiting.setdefault(name, alone)
        host = _host(name, {**entry, "unit": member.unit or member.domain})
        hosts.append(replace(host, is_missing=host.is_missing or bool(refused), is_interrupted=is_interrupted))
    # A remedy is for single hosts, and the state of the others does not hinder it.
    is_upgrade = who == UPGRADE
    plan = rolling_plan(
        hosts,
        options,
        relevant,
        before if continues else (),
        held=waiting if is_upgrade else {},
        whole_units=is_upgrade,
    )
    begun = {name: begin(name, run, time, known.get(name), bool(entries[name]["needs"])) for name in plan.order}
    return {
        "run": run,
        "fixed": dict(fixed or {}),
        "order": list(plan.order),
        "batches": [list(batch) for batch in plan.batches],
        "canaries": list(plan.canaries),
        "reasons": {name: list(reasons) for name, reasons in plan.reasons.items()},
        "unchanged": list(plan.unchanged),
        "missing": list(plan.missing),
        "failed": dict(plan.failed),
        "held": {**held, **plan.waiting},
        # Login nodes have no GPU; one that has lost all of them is none.
        "judged": [name for name, entry in entries.items() if entry.get("gpus") or name in judged_before],
        "hosts": {
            # Without what it has reported.
            host.name: {
                **{key: value for key, value in entries[host.name].items() if key != "nvlink"},
                "is_missing": host.is_missing,
                "unit": host.unit,
            }
            for host in hosts
        },
        "states": {name: state.as_dict() for name, state in begun.items()},
        "steps": {name: list(remaining(state)) for name, state in begun.items()},
        "lines": [
            f"run {run}",
            *(f"{name} is refused: {why}" for name, why in held.items()),
            *domain_lines(domains),
            *plan_lines(plan),
        ],
    }


def placed(
    entries: Mapping[str, Mapping[str, Any]], places: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """The entries with group, unit and domain out of each host's variables; what an entry has itself counts."""
    return {
        name: {**{PLACES[known]: value for known, value in places.get(name, {}).items() if known in PLACES}, **entry}
        for name, entry in entries.items()
    }


def read_variables(variables: Mapping[str, Any]) -> Options:
    """The options; RollingError for variables that do not exist or do not fit together."""
    given = {name.removeprefix(PREFIX): value for name, value in variables.items() if name.startswith(PREFIX)}
    unknown = sorted(set(given) - {*VARIABLES})
    if unknown:
        names = ", ".join(f"{PREFIX}{name}" for name in sorted(VARIABLES))
        raise RollingError(f"{PREFIX}{unknown[0]} is not a variable of the upgrade; there are {names}")
    options = read_options(given)
    for name, keys in (("hooks", HOOKS), ("commands", COMMANDS)):
        value = given.get(name, {})
        wrong = sorted(set(value) - set(keys)) if isinstance(value, Mapping) else [repr(value)[:60]]
        if wrong:
            raise RollingError(f"{PREFIX}{name} has {', '.join(wrong)}; it can have {', '.join(keys)}")
        for key, items in value.items():
            if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
                what = "task files" if name == "hooks" else "the program and its arguments"
                raise RollingError(f"{PREFIX}{name}.{key} is {items!r}; it takes a list of {what}"[:300])
    if options.scheduler == "commands" and not {"drain", "return"} <= set(given.get("commands", {})):
        raise RollingError(f"{PREFIX}scheduler is commands, which needs {PREFIX}commands with drain and return")
    if options.scheduler == "slurm" and not given.get("slurm_host"):
        raise RollingError(
            f"{PREFIX}scheduler is slurm, which needs {PREFIX}slurm_host, a host of the inventory that has scontrol"
        )
    directory = given.get("slurm_directory", "")
    if not isinstance(directory, str) or not _DIRECTORY.fullmatch(directory):
        raise RollingError(
            f"{PREFIX}slurm_directory is {directory!r}; it takes an absolute path of letters, digits and . _ / -"[:300]
        )
    for name, kind in _KUBERNETES.items():
        value = read_truth(given.get(name)) if kind is bool else given.get(name)
        if name in given and not isinstance(value, kind):
            what = {str: "a text", list: "a list of label selectors", bool: "true or false"}[kind]
            raise RollingError(f"{PREFIX}{name} is {given[name]!r}; it takes {what}"[:300])
    if options.reboot_by == "slurm" and options.scheduler != "slurm":
        raise RollingError(f"{PREFIX}reboot_by is slurm, which needs {PREFIX}scheduler: slurm")
    return options


def gate(
    plan: Mapping[str, Any], variables: Mapping[str, Any], states: Sequence[Mapping[str, Any]], batch: Sequence[str]
) -> Gate:
    """Whether `batch` may begin, and where all hosts of the plan are, by the states as they are now."""
    options = read_variables({**variables, **plan.get("fixed", {})})
    known = _now(plan, states)
    failed = [state for state in known if state.step == FAILED]
    reasons = "; ".join(f"{state.host}: {state.reason}" for state in failed)
    canaries = [state for state in known if state.host in plan["canaries"] and not state.is_finished]
    stop = ""
    if len(failed) > options.max_failures:
        stop = (
            f"{len(failed)} failed, and {PREFIX}max_failures is {options.max_failures}; repair them and run this again "
            f"with {PREFIX}retry_failed, or raise {PREFIX}max_failures: {reasons}"
        )
    elif canaries and not set(batch) <= set(plan["canaries"]):
        found = ", ".join(f"{state.host} is {state.step}" for state in canaries)
        stop = f"not all canaries are in service: {found}{'; ' if reasons else ''}{reasons}"
    hosts = {name: _host(name, entry) for name, entry in plan["hosts"].items()}
    out = [state.host for state in known if state.is_out_of_service]
    return Gate(
        stop,
        postponed(batch, hosts, out, options),
        _lines([*plan["order"], *plan["failed"]], known),
        _unchanged_canaries(plan, known),
    )


def _unchanged_canaries(plan: Mapping[str, Any], known: Sequence[HostState]) -> dict[str, str]:
    """What `on_busy: skip` leaves is no failure, but for a canary: without it no other host is changed either."""
    planned = {state.host: state for state in known if state.step == PLANNED}
    canaries = [planned[name] for name in plan["canaries"] if name in planned]
    left = ", ".join(name for name in plan["order"] if name in planned)
    return {
        state.host: (
            f"the canary {state.host} was not changed{': ' if state.reason else ''}{state.reason}; so these are left "
            f"as they were: {left}. Run this again when it is idle, or name other hosts in {PREFIX}canaries"
        )
        for state in canaries
    }


def _now(plan: Mapping[str, Any], states: Sequence[Mapping[str, Any]]) -> list[HostState]:
    """The states of the plan's hosts. Until a host has its turn, its file is from an earlier run."""
    found = {state.host: state for state in map(read_state, states) if state.host in plan["hosts"]}
    for begun in map(read_state, plan["states"].values()):
        recorded = found.get(begun.host)
        if recorded is None or recorded.run != begun.run or len(recorded.history) < len(begun.history):
            found[begun.host] = begun
    return list(found.values())


def _lines(names: Sequence[str], known: Sequence[HostState]) -> list[str]:
    """One line for each step with its hosts, and one for each host with a reason."""
    states = {state.host: state for state in known}
    by_step: dict[str, list[str]] = {}
    for name in names:
        by_step.setdefault(states[name].step if name in states else PLANNED, []).append(name)
    lines = [f"{step.replace('_', ' ')}: {', '.join(found)}" for step, found in by_step.items() if step != FAILED]
    reasons = {name: states[name] for name in names if name in states and states[name].reason}
    return lines + [f"{name} is {state.step}: {state.reason}" for name, state in reasons.items()]


def _host(name: str, entry: Mapping[str, Any]) -> Host:
    return Host(
        name,
        needs=tuple(entry.get("needs", ())),
        group=str(entry.get("group", "")),
        unit=str(entry.get("unit", "")),
        is_missing=bool(entry.get("is_missing", False)),
        is_retried=bool(entry.get("is_retried", False)),
        is_drained=bool(entry.get("is_drained", False)),
        is_apart=bool(entry.get("is_apart", False)),
        place=str(entry.get("place", "")),
    )
