# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which remedy a host gets, from its verdict and from what was tried before. Private to this collection.

Pure: verdicts, earlier attempts and options in, a decision for each host out. The playbook carries it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import HEALTH, read_reason
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import FAIL, UNKNOWN, WARN, remedy_of, strongest

from .._planning.variable_forms import read_truth
from .remedy_breaker import Breaker, Failure, Fleet, common_cause, earlier, is_within
from .rolling_plan import RollingError

PREFIX = "gpu_fleet_remediate_"
NOTHING, REMEDY, JUDGE, PERSON, LEFT = "nothing", "remedy", "judge", "person", "left"
"""What is done with a host: `judge` looks whether a remedy that was begun has helped, `left` is not touched."""
BEGUN, HELPED, FAILED, REPAIRED = "begun", "helped", "failed", "repaired"
"""How an attempt ended; one that was begun and no more counts as one that did not help.

A host that a person has repaired and returned has an entry REPAIRED: what was tried before it does not count any more.
"""
COMMANDS = ("power_cycle", "ticket")
INSPECT = "inspect"
EVER = 5
"""A GPU gets at most this many times its limit until a person has repaired the host, whatever the times are."""

_PERCENTAGE = re.compile(r"([1-9][0-9]?|100)%")
_ROW = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST = 500
# The next remedy after one that did not help; `inspect` is for a person. One without an entry is for a person as well.
STRONGER: Mapping[str, str] = {
    "drain": "drain_and_reset",
    "restart_fabric_manager": "reset_fabric",
    "restart_imex": "reboot",
    "configure": INSPECT,
    "update_software": INSPECT,
    "drain_and_reset": "reboot",
    "reset_gpu": "reboot",
    "reset_fabric": "reboot",
    "reboot": "power_cycle",
    "power_cycle": INSPECT,
}
"""By each remedy that is carried out."""
# Whatever GPU they are for, all of the host and its jobs are concerned.
_OF_THE_HOST = ("reset_fabric", "reboot", "power_cycle")
_NUMBERS = ("limit", "limit_days", "stop_minimum", "stop_window_hours")


@dataclass(frozen=True)
class Options:
    """The variables gpu_fleet_remediate_* by the rest of their names.

    `on` are verdicts and ids of rows of the health policy. A GPU gets at most `limit` remedies in `limit_days` days.
    With more new failures than `stop_at`, a number of hosts or a percentage of them, and with `stop_minimum` at least,
    within `stop_window_hours`, the cause is common.
    """

    on: tuple[str, ...] = (FAIL,)
    limit: int = 2
    limit_days: int = 7
    stop_at: int | str = "5%"
    stop_minimum: int = 3
    stop_window_hours: int = 24
    retry_failed: bool = False
    tests: tuple[str, ...] = ()
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    directory: str = ""


VARIABLES = tuple(option.name for option in fields(Options))
TESTS = ("container", "dcgm_1", "dcgm_2", "dcgm_3", "nvbandwidth", "nccl", "pytorch")


@dataclass(frozen=True)
class Attempt:
    """A remedy of a host. `gpus` are the UUIDs or PCI bus ids it was for, empty for the host; `time` is UTC.

    `names` are all by which these GPUs were known: one that is lost has its address alone.
    """

    remedy: str
    run: str
    time: str
    gpus: tuple[str, ...] = ()
    outcome: str = BEGUN
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """A row of the health policy that holds. `gpu` is empty for the host."""

    row: str
    verdict: str
    remedy: str
    gpu: str = ""
    message: str = ""


@dataclass(frozen=True)
class Patient:
    """A host as it is now. `verdict` is empty where none was read.

    `drain` is why the scheduler has its node out of service, where `is_drained`. `is_ours`: a run of remediate.yml has
    it out of service, and `has_failed`: has left it to a person, which `is_reported`, or to the next remedy.
    `has_version`: a driver version is declared for it. `unit` is its NVLink domain. `pulls`: it runs this by itself.
    `time` is by its own clock, empty where it is not known; `gpus` are the names of each GPU: UUID and address.
    """

    name: str
    verdict: str = ""
    findings: tuple[Finding, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    unit: str = ""
    drain: str = ""
    is_drained: bool = False
    is_ours: bool = False
    has_failed: bool = False
    is_reported: bool = False
    has_version: bool = False
    pulls: bool = False
    time: str = ""
    gpus: tuple[tuple[str, ...], ...] = ()

    @property
    def place(self) -> str:
        """Hosts of one unit count as one."""
        return f"unit {self.unit}" if self.unit else self.name


@dataclass(frozen=True)
class Decision:
    """What is done with a host. `gpus` are the GPUs of the remedy, empty for the host; `why` is one line.

    `names` are as in Attempt. `is_repaired`: a person has repaired it, if its health is found good.
    """

    action: str
    remedy: str = "none"
    gpus: tuple[str, ...] = ()
    why: str = ""
    names: tuple[str, ...] = ()
    is_repaired: bool = False

    @property
    def text(self) -> str:
        """For people and for the scheduler."""
        return f"{self.remedy}: {self.why}" if self.remedy != "none" else self.why


@dataclass(frozen=True)
class Treatment:
    """The decisions by host. `common` is the reason to touch none of them, empty where there is none.

    `failing` are the rows of the hosts that fail and that no run has treated yet.
    """

    decisions: Mapping[str, Decision]
    common: str = ""
    failing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_options(variables: Mapping[str, Any]) -> Options:
    """The options in the variables that a user has set; RollingError for a value that is not one of theirs."""
    given = {name.removeprefix(PREFIX): value for name, value in variables.items()}
    unknown = sorted(set(given) - {*VARIABLES})
    if unknown:
        names = ", ".join(f"{PREFIX}{name}" for name in sorted(VARIABLES))
        raise RollingError(f"{PREFIX}{unknown[0]} is not a variable of remediate; there are {names}")
    options = replace(Options(), **{name: _read(name, value) for name, value in given.items()})
    for name in _NUMBERS:
        if not _is_number(getattr(options, name)):
            raise _wrong(name, getattr(options, name), "a whole number from 1")
    stop_at = options.stop_at
    if not _is_number(stop_at) and not (isinstance(stop_at, str) and _PERCENTAGE.fullmatch(stop_at)):
        raise _wrong("stop_at", stop_at, "a number of hosts from 1, or a percentage such as 5%")
    on = options.on
    if not isinstance(on, tuple) or not on or not all(isinstance(one, str) and _ROW.fullmatch(one) for one in on):
        raise _wrong("on", on, "a list of fail, warn, and ids of rows of the health policy")
    if {UNKNOWN, "ok", "info"} & {*on}:
        raise _wrong("on", list(on), "fail, warn, and ids of rows; a host whose verdict is another one gets no remedy")
    if not isinstance(options.tests, tuple) or not {*map(str, options.tests)} <= {*TESTS}:
        raise _wrong("tests", options.tests, f"a list of {', '.join(TESTS)}")
    if not isinstance(options.retry_failed, bool):
        raise _wrong("retry_failed", options.retry_failed, "true or false")
    if not isinstance(options.directory, str):
        raise _wrong("directory", options.directory, "a path on the controller")
    commands = options.commands
    if not isinstance(commands, Mapping) or not {*commands} <= {*COMMANDS}:
        raise _wrong("commands", commands, f"a mapping with {' and '.join(COMMANDS)}")
    for name, words in commands.items():
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise _wrong(f"commands.{name}", words, "a list of the program and its arguments")
    return options


def treat(patients: Sequence[Patient], options: Options, now: str, fleet: Fleet | None = None) -> Treatment:
    """Decide for all hosts of a run. now: the time in UTC, as in TIME. fleet: what is known of all hosts."""
    decided = {patient.name: _decide(patient, options, now) for patient in patients}
    # One that a run has taken out of service already is no new failure; neither is one that others have drained.
    new = [one for one in patients if decided[one.name].action in (REMEDY, PERSON) and not one.is_ours]
    failing = {one.name: tuple(sorted({each.row for each in matching(one.findings, options.on)})) for one in new}
    common = common_cause(
        [Failure(one.place, failing[one.name]) for one in new],
        [one.place for one in patients],
        fleet or Fleet(),
        Breaker(options.stop_at, options.stop_minimum, options.stop_window_hours),
        earlier(now, [one.time for one in patients]),
    )
    if common:
        left = Decision(LEFT, why="the cause is common")
        return Treatment({patient.name: left for patient in patients}, common, failing)
    granted = {patient.name: _granted(patient, decided[patient.name]) for patient in patients}
    return Treatment(_with_whole_domains(patients, granted), "", failing)


def matching(findings: Sequence[Finding], on: Sequence[str]) -> tuple[Finding, ...]:
    """The findings that call for a remedy: their verdict is in `on`, or their row."""
    return tuple(finding for finding in findings if finding.verdict in on or finding.row in on)


def not_healthy(verdict: str, findings: Sequence[Finding], options: Options) -> str:
    """Why a host may not return to service after its remedy; empty where it may. Unknown is not healthy."""
    left = matching(findings, options.on)
    if left:
        return one_line("; ".join(finding.message or finding.row for finding in left), _LONGEST)
    # A site that remedies single rows does not want its hosts back with a failure of another one.
    if verdict in (FAIL, UNKNOWN, ""):
        bad = [finding.message or finding.row for finding in findings if finding.verdict == verdict]
        return one_line("; ".join([f"the verdict is {verdict or 'missing'}", *bad]), _LONGEST)
    return ""


def _granted(patient: Patient, decision: Decision) -> Decision:
    """What a host may do by itself: nothing.

    It sees neither the budget of its group nor a common cause, and no scheduler grants a host its turn: Slurm and
    Kubernetes know whether a node is drained, not how many of a group may be treated at once.
    """
    if not patient.pulls or decision.action in (NOTHING, LEFT):
        return decision
    why = "a run of gpu.fleet.pull sees neither the budget of its group nor a common cause"
    return Decision(LEFT, why=f"it waits for a controller, since {why}: {decision.text}")


def _decide(patient: Patient, options: Options, now: str) -> Decision:
    if not patient.verdict:
        return Decision(LEFT, why="its health was not read")
    found = matching(patient.findings, options.on)
    last = patient.attempts[-1] if patient.attempts else None
    if patient.is_ours and not patient.has_failed:
        if last is not None and last.outcome == BEGUN:
            return Decision(JUDGE, why=f"{last.remedy} was begun at {last.time} and is not repeated")
        if not found:
            return Decision(JUDGE, why="an earlier run was interrupted")
    by = read_reason(patient.drain)
    if patient.is_drained and not patient.is_ours and by is None:
        return Decision(LEFT, why=f"others have taken it out of service: {one_line(patient.drain, 200) or 'no reason'}")
    if patient.has_failed and options.retry_failed:
        return Decision(JUDGE, why="it is judged again (retry_failed)", is_repaired=True)
    if patient.verdict == UNKNOWN and not found:
        return Decision(LEFT, why="its verdict is unknown, which is never remedied")
    if not found:
        if patient.has_failed:
            return Decision(LEFT, why=f"it stays drained until {PREFIX}retry_failed returns it")
        # The check itself returns what is `ok`.
        if patient.is_drained and by is not None and by.who == HEALTH and patient.verdict == WARN:
            why = "the health check has drained it, and its verdict is only warn now"
            exceeded = _exceeded(patient, (), options, now)
            if exceeded:
                return Decision(PERSON, INSPECT, why=f"{exceeded}: {why}")
            return Decision(JUDGE, "drain", why=why)
        return Decision(NOTHING)
    decision = _remedy(patient, found, options, now)
    if decision.action == PERSON and patient.has_failed and patient.is_reported:
        return Decision(LEFT, why=f"it stays drained for a person: {decision.text}")
    return decision


def _remedy(patient: Patient, found: Sequence[Finding], options: Options, now: str) -> Decision:
    remedy = remedy_of((finding.verdict, finding.remedy) for finding in found)
    decisive = [finding for finding in found if finding.remedy == remedy]
    named = tuple(dict.fromkeys(finding.gpu for finding in decisive if finding.gpu))
    gpus = named if all(finding.gpu for finding in decisive) else ()
    why = one_line("; ".join(finding.message or finding.row for finding in decisive), _LONGEST)
    if remedy not in STRONGER:
        return Decision(PERSON, remedy if remedy != "none" else INSPECT, gpus, why)
    names = tuple(sorted({name for gpu in gpus for name in _names(gpu, patient)}))
    exceeded = _exceeded(patient, found, options, now)
    if exceeded:
        return Decision(PERSON, INSPECT, gpus, f"{exceeded}: {why}")
    recent = _recent(patient, found, options, now, of_the_host=remedy in _OF_THE_HOST)
    in_vain: list[str] = []
    for attempt in recent:
        in_vain = [] if attempt.outcome == HELPED else [*in_vain, attempt.remedy]
    if in_vain:
        remedy = INSPECT if len(in_vain) > 1 else strongest((remedy, STRONGER.get(in_vain[-1], INSPECT)))
        why = f"{' and '.join(in_vain)} did not help: {why}"
    if remedy == "power_cycle" and "power_cycle" not in options.commands:
        return Decision(PERSON, remedy, gpus, f"{PREFIX}commands has no power_cycle: {why}")
    if remedy == "update_software" and not patient.has_version:
        return Decision(PERSON, remedy, gpus, f"nvidia_driver_version declares no version: {why}")
    return Decision(REMEDY if remedy in STRONGER else PERSON, remedy, gpus, why, names)


def _exceeded(patient: Patient, found: Sequence[Finding], options: Options, now: str) -> str:
    """That enough was tried for a GPU of the findings, or for the host, empty where it was not."""
    for finding in found or (Finding("", "", ""),):
        tried = [one for one in _since_repair(patient) if _concerns(one, finding, patient, of_the_host=True)]
        recent = _recent(patient, [finding], options, now, of_the_host=True)
        if len(recent) >= options.limit:
            limit = f"{PREFIX}limit is {options.limit} in {options.limit_days} days"
            return f"{_listed(recent)} did not keep it healthy ({limit})"
        if len(tried) >= EVER * options.limit:
            limit = f"{PREFIX}limit is {options.limit}, and {EVER} times as many until a person has repaired it"
            return f"{_listed(tried)} did not keep it healthy ({limit})"
    return ""


def _recent(
    patient: Patient, found: Sequence[Finding], options: Options, now: str, *, of_the_host: bool
) -> list[Attempt]:
    """What was tried for these findings in the last days by the clocks of controller and host, in its own order."""
    clock = earlier(now, [patient.time])
    return [
        one
        for one in _since_repair(patient)
        if any(_concerns(one, finding, patient, of_the_host=of_the_host) for finding in found)
        and is_within(one.time, clock, timedelta(days=options.limit_days))
    ]


def _since_repair(patient: Patient) -> tuple[Attempt, ...]:
    repairs = [number for number, one in enumerate(patient.attempts, 1) if one.outcome == REPAIRED]
    return patient.attempts[max(repairs, default=0) :]


def _concerns(attempt: Attempt, finding: Finding, patient: Patient, *, of_the_host: bool) -> bool:
    """Whether a remedy was for the GPU of a finding, or without one; of_the_host: or was one of all the host."""
    if not attempt.gpus or (of_the_host and attempt.remedy in _OF_THE_HOST):
        return True
    return bool(finding.gpu) and not {*attempt.gpus, *attempt.names}.isdisjoint(_names(finding.gpu, patient))


def _names(gpu: str, patient: Patient) -> frozenset[str]:
    """All names of a GPU: it is reported by its UUID, or by its address where it is lost."""
    return frozenset((gpu, *(name for names in patient.gpus if gpu in names for name in names)))


def _listed(attempts: Sequence[Attempt]) -> str:
    return ", ".join(f"{one.remedy} at {one.time}" for one in attempts[-4:])


def _with_whole_domains(patients: Sequence[Patient], decisions: Mapping[str, Decision]) -> dict[str, Decision]:
    """IMEX is restarted on all hosts of a domain or on none: a host alone would end the jobs of the others.

    Where it does not run, nothing depends on it: there it is started.
    """
    complete = dict(decisions)
    others: dict[str, list[str]] = {}
    for patient in patients:
        if patient.unit and decisions[patient.name].remedy != "restart_imex":
            others.setdefault(patient.unit, []).append(patient.name)
    for patient in patients:
        decision = decisions[patient.name]
        rows = {finding.row for finding in patient.findings if finding.remedy == "restart_imex"}
        runs = not rows <= {"imex_inactive"}
        if decision.action == REMEDY and decision.remedy == "restart_imex" and runs and others.get(patient.unit):
            why = f"{len(others[patient.unit])} hosts of {patient.unit} would lose their jobs with it: {decision.why}"
            complete[patient.name] = replace(decision, action=PERSON, why=why)
    return complete


def _read(name: str, value: object) -> Any:
    """The value of a variable that may come from `-e NAME=VALUE`, which makes a text of it."""
    if name == "retry_failed":
        return read_truth(value)
    if isinstance(value, str) and name in (*_NUMBERS, "stop_at") and value.strip().isdecimal():
        return int(value)
    return tuple(value) if isinstance(value, list) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _wrong(name: str, value: object, allowed: str) -> RollingError:
    return RollingError(f"{PREFIX}{name} is {value!r}; it takes {allowed}"[:300])
