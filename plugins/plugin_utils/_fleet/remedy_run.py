# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of remediate.yml as the documents that its playbook reads and writes. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import REMEDY as WHO
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import FAIL

from .documents import WHAT_TO_DO, FormError, Health, Placement, read
from .nvlink_domains import Member, domain_lines, domains_of, member_of, undeclared
from .remedies import (
    BEGUN,
    JUDGE,
    LEFT,
    PERSON,
    PREFIX,
    REMEDY,
    Attempt,
    Decision,
    Finding,
    Patient,
    matching,
    not_healthy,
    read_options,
    treat,
)
from .rolling_plan import RollingError
from .rolling_run import plan_run
from .rolling_state import FAILED, HostState, read_state

FIXED: Mapping[str, Any] = {
    # A remedy waits for no canary, and hosts that stay drained for a person do not stop the others: the budget of their
    # group does, and the common cause.
    "gpu_fleet_upgrade_canaries": 0,
    "gpu_fleet_upgrade_batch": "100%",
    "gpu_fleet_upgrade_max_failures": 1_000_000,
    "gpu_fleet_upgrade_retry_failed": False,
    "gpu_fleet_upgrade_reboot_by": "ansible",
}
"""Variables of the upgrade that are the same for every run of remedies."""

NO_GROUP = "all hosts without a group"
MOST_ATTEMPTS = 100


def plan_remedies(
    entries: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    previous: Mapping[str, Any],
    time: str,
    *,
    attempts: Sequence[Mapping[str, Any]],
    token: str = "",
) -> dict[str, Any]:
    """The document of a run, as that of an upgrade with `decisions` by host and `common`, a reason to touch none.

    entries: by host `health`, the result of the module gpu_health; `group`, `unit` and `drain` as in Patient; `domain`,
    its NVLink domain in the inventory; `is_out` where the scheduler has its node out of service; `has_version`,
    `pulls`, and `is_missing` for a host that could not be read. variables: those of remediate.yml and of the upgrade.
    attempts: the documents of `recorded`.
    """
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    shared = {name: value for name, value in variables.items() if name not in ours}
    options = read_options(ours)
    known = {state.host: state for state in map(read_state, states)}
    tried = {document["host"]: document for document in attempts}
    healths: dict[str, Health | None] = {}
    refusals: dict[str, str] = {}
    for name, entry in entries.items():
        try:
            healths[name] = None if entry.get("is_missing") else _health(entry.get("health"))
        except FormError as error:
            healths[name], refusals[name] = None, f"its health is not as gpu_health returns it: {error}; {WHAT_TO_DO}"
    members = [_member(name, entry, healths[name]) for name, entry in entries.items()]
    patients = [
        _patient(one, entries[one.host], healths[one.host], known.get(one.host), tried.get(one.host, {}))
        for one in members
    ]
    treatment = treat(patients, options, time)
    treatment = replace(treatment, decisions=_whole_domains(members, patients, treatment.decisions))
    rolling = {
        patient.name: _entry(patient, entries[patient.name], treatment.decisions[patient.name]) for patient in patients
    }
    for name in refusals:
        rolling[name]["is_missing"] = True
    plan = plan_run(rolling, shared, states, previous, time, token=token, who=WHO, fixed=FIXED)
    plan["held"] |= refusals
    plan["lines"] += [f"{name} is refused: {why}" for name, why in refusals.items()]
    plan["lines"] += domain_lines(domains_of(members))
    plan["lines"] += [
        f"{name} is not touched: {decision.why}"
        for name, decision in treatment.decisions.items()
        if decision.action == LEFT and name not in refusals
    ]
    return {
        **plan,
        "common": treatment.common,
        "decisions": {
            # With `fail` no job begins on it any more, also where it has not become idle in time.
            patient.name: {
                **asdict(treatment.decisions[patient.name]),
                "text": treatment.decisions[patient.name].text,
                "stays_drained": patient.verdict == FAIL,
            }
            for patient in patients
        },
    }


def read_attempts(document: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """The attempts in a document of `recorded`; RollingError for another one, since no remedy may be done twice."""
    try:
        return tuple(
            Attempt(
                str(one["remedy"]), str(one["run"]), str(one["time"]), tuple(map(str, one["gpus"])), str(one["outcome"])
            )
            for one in document["attempts"]
        )
    except (KeyError, TypeError) as error:
        raise RollingError(f"this is not a record of remedies: {error!r}") from None


def recorded(
    document: Mapping[str, Any],
    host: str,
    outcome: str = "",
    *,
    decision: Mapping[str, Any] | None = None,
    run: str = "",
    time: str = "",
) -> dict[str, Any]:
    """The record of a host with the remedy of `decision`, which is about to begin, or with the outcome of the last one.

    The outcome PERSON notes that a case was reported to a person.
    """
    attempts = list(read_attempts(document)) if document else []
    if decision is not None:
        attempts.append(Attempt(decision["remedy"], run, time, tuple(decision["gpus"]), outcome))
    elif attempts and attempts[-1].outcome == BEGUN and outcome != PERSON:
        last = attempts.pop()
        attempts.append(Attempt(last.remedy, last.run, last.time, last.gpus, outcome))
    is_reported = decision is None and (outcome == PERSON or bool(document.get("is_reported")))
    return {"host": host, "is_reported": is_reported, "attempts": [asdict(one) for one in attempts[-MOST_ATTEMPTS:]]}


def refusal(health: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    """Why a host does not return to service with this result of gpu_health; empty where it does."""
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    found = _of_one(health)
    return not_healthy(found.verdict if found else "", _findings(found), read_options(ours))


def is_due(health: Mapping[str, Any], variables: Mapping[str, Any]) -> bool:
    """Whether a host still has what it gets its remedy for, after hours in which its jobs ended."""
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    return bool(matching(_findings(_of_one(health)), read_options(ours).on))


def support_case(
    host: str,
    health: Mapping[str, Any],
    plan: Mapping[str, Any],
    *,
    document: Mapping[str, Any],
    reason: str,
    evidence: Mapping[str, Any],
) -> dict[str, Any]:
    """What a support case needs: which GPU in which slot, what was found and tried, and where the evidence is."""
    return {
        "host": host,
        "run": plan["run"],
        "time": health.get("time"),
        "reason": one_line(reason, 1000),
        "remedy": plan["decisions"][host]["remedy"],
        "verdict": health.get("verdict"),
        "driver_version": health.get("driver_version"),
        "gpus": [
            {name: gpu.get(name) for name in ("index", "uuid", "serial", "pci_bus_id", "name", "verdict", "remedy")}
            for gpu in health.get("gpus", ())
        ],
        "findings": [finding for finding in health.get("findings", ()) if finding.get("verdict") != "ok"],
        "tests": list(health.get("tests", ())),
        "attempts": list(document.get("attempts", ())),
        "changes": list(health.get("changes", ())),
        "error_history": list(health.get("error_history", ())),
        "evidence": {"host": host, **evidence},
    }


def _health(found: object) -> Health | None:
    """What the host has returned, None where nothing was read; raises FormError."""
    return read(Health, found) if found not in (None, {}) else None


def _of_one(found: object) -> Health | None:
    """As `_health`, in the run of the host itself, which then fails."""
    try:
        return _health(found)
    except FormError as error:
        raise RollingError(f"its health is not as gpu_health returns it: {error}; {WHAT_TO_DO}") from None


def _member(name: str, entry: Mapping[str, Any], health: Health | None) -> Member:
    found = Placement(health.driver_version, health.gpus) if health else Placement()
    return member_of(name, entry.get("domain"), found, unit=str(entry.get("unit", "")), is_read=health is not None)


def _whole_domains(
    members: Sequence[Member], patients: Sequence[Patient], decisions: Mapping[str, Decision]
) -> dict[str, Decision]:
    """A running IMEX of a tray whose domain the inventory does not name is for a person: nobody knows the others."""
    found = dict(decisions)
    for member, patient in zip(members, patients, strict=True):
        alone, decision = undeclared(member), decisions[member.host]
        rows = {finding.row for finding in patient.findings if finding.remedy == "restart_imex"}
        if alone and decision.action == REMEDY and decision.remedy == "restart_imex" and rows != {"imex_inactive"}:
            found[member.host] = replace(decision, action=PERSON, why=f"{alone}: {decision.why}")
    return found


def _patient(
    member: Member,
    entry: Mapping[str, Any],
    health: Health | None,
    state: HostState | None,
    document: Mapping[str, Any],
) -> Patient:
    return Patient(
        member.host,
        health.verdict if health else "",
        _findings(health),
        read_attempts(document) if document else (),
        unit=member.unit or member.domain,
        drain=str(entry.get("drain", "")),
        is_drained=bool(entry.get("is_out")),
        is_ours=state is not None and state.is_out_of_service,
        has_failed=state is not None and state.step == FAILED,
        is_reported=bool(document.get("is_reported")),
        has_version=bool(entry.get("has_version")),
        pulls=bool(entry.get("pulls")),
    )


def _entry(patient: Patient, entry: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
    """What the engine of the upgrade needs to know of a host."""
    acts = decision.action in (REMEDY, PERSON, JUDGE)
    why = {REMEDY: [decision.text], PERSON: [f"for a person: {decision.text}"]}.get(decision.action, [])
    # What a run of ours has drained is in the plan without a need.
    if decision.action == JUDGE and not patient.is_ours:
        why = [decision.text]
    return {
        "needs": why,
        "group": str(entry.get("group", "")) or NO_GROUP,
        "unit": patient.unit,
        "place": patient.place,
        "gpus": 1,
        # A node that the check has drained is ours only for a remedy.
        "drain": patient.drain if acts else "",
        "is_drained": patient.is_drained,
        "is_retried": patient.has_failed and acts,
        # One that an earlier run has left half done is not continued either.
        "is_missing": bool(entry.get("is_missing"))
        or (decision.action == LEFT and patient.is_ours and not patient.has_failed),
    }


def _findings(health: Health | None) -> tuple[Finding, ...]:
    return tuple(
        Finding(one.row, one.verdict, one.remedy, one.gpu or "", one.message)
        for one in (health.findings if health else ())
    )
