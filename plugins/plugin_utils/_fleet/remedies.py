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
from datetime import datetime, timedelta
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.drain_reason import HEALTH, read_reason
from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import FAIL, UNKNOWN, WARN, remedy_of, strongest

from .rolling_plan import RollingError, read_truth

PREFIX = "gpu_fleet_remediate_"
NOTHING, REMEDY, JUDGE, PERSON, LEFT = "nothing", "remedy", "judge", "person", "left"
"""What is done with a host: `judge` looks whether a remedy that was begun has helped, `left` is not touched."""
BEGUN, HELPED, FAILED = "begun", "helped", "failed"
"""How an attempt ended; one that was begun and no more is taken for one that did not help."""
COMMANDS = ("power_cycle", "ticket")
INSPECT = "inspect"
TIME = "%Y-%m-%dT%H:%M:%SZ"

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


@dataclass(frozen=True)
class Options:
    """The variables gpu_fleet_remediate_* by the rest of their names.

    `on` are verdicts and ids of rows of the health policy. A GPU gets at most `limit` remedies in `limit_days` days.
    `stop_at` is a number of hosts, or a percentage of them, with the same finding: above it the cause is common.
    """

    on: tuple[str, ...] = (FAIL,)
    limit: int = 2
    limit_days: int = 7
    stop_at: int | str = "5%"
    retry_failed: bool = False
    tests: tuple[str, ...] = ()
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    directory: str = ""


VARIABLES = tuple(option.name for option in fields(Options))
TESTS = ("container", "dcgm_1", "dcgm_2", "dcgm_3", "nvbandwidth", "nccl", "pytorch")


@dataclass(frozen=True)
class Attempt:
    """A remedy of a host. `gpus` are the UUIDs or PCI bus ids it was for, empty for the host; `time` is UTC."""

    remedy: str
    run: str
    time: str
    gpus: tuple[str, ...] = ()
    outcome: str = BEGUN


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

    @property
    def place(self) -> str:
        """Hosts of one unit count as one."""
        return f"unit {self.unit}" if self.unit else self.name


@dataclass(frozen=True)
class Decision:
    """What is done with a host. `gpus` are those of the remedy, empty for the host; `why` is one line."""

    action: str
    remedy: str = "none"
    gpus: tuple[str, ...] = ()
    why: str = ""

    @property
    def text(self) -> str:
        """For people and for the scheduler."""
        return f"{self.remedy}: {self.why}" if self.remedy != "none" else self.why


@dataclass(frozen=True)
class Treatment:
    """The decisions by host. `common` is the reason to touch none of them, empty where there is none."""

    decisions: Mapping[str, Decision]
    common: str = ""


def read_options(variables: Mapping[str, Any]) -> Options:
    """The options in the variables that a user has set; RollingError for a value that is not one of theirs."""
    given = {name.removeprefix(PREFIX): value for name, value in variables.items()}
    unknown = sorted(set(given) - {*VARIABLES})
    if unknown:
        names = ", ".join(f"{PREFIX}{name}" for name in sorted(VARIABLES))
        raise RollingError(f"{PREFIX}{unknown[0]} is not a variable of remediate; there are {names}")
    options = replace(Options(), **{name: _read(name, value) for name, value in given.items()})
    for name in ("limit", "limit_days"):
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


def treat(patients: Sequence[Patient], options: Options, now: str) -> Treatment:
    """Decide for all hosts of the fleet. now: the time in UTC, as in TIME."""
    common = _common_cause(patients, options)
    if common:
        return Treatment({patient.name: Decision(LEFT, why="the cause is common") for patient in patients}, common)
    decisions = {patient.name: _granted(patient, _decide(patient, options, now)) for patient in patients}
    return Treatment(_with_whole_domains(patients, decisions))


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
        return Decision(LEFT, why=f"others have it out of service: {one_line(patient.drain, 200) or 'no reason'}")
    if patient.has_failed and options.retry_failed:
        return Decision(JUDGE, why="it is judged again (retry_failed)")
    if patient.verdict == UNKNOWN and not found:
        return Decision(LEFT, why="its verdict is unknown, which is never remedied")
    if not found:
        if patient.has_failed:
            return Decision(LEFT, why=f"it stays drained until {PREFIX}retry_failed returns it")
        # The check itself returns what is `ok`.
        if patient.is_drained and by is not None and by.who == HEALTH and patient.verdict == WARN:
            return Decision(JUDGE, why="the health check has drained it, and its verdict is warn by now")
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
    keys = {finding.gpu for finding in found}
    recent = [one for one in patient.attempts if _is_recent(one, now, options) and (not one.gpus or keys & {*one.gpus})]
    most = max((sum(not one.gpus or key in one.gpus for one in recent) for key in keys), default=0)
    if most >= options.limit:
        tried = ", ".join(f"{one.remedy} at {one.time}" for one in recent)
        limit = f"{PREFIX}limit is {options.limit} in {options.limit_days} days"
        return Decision(PERSON, INSPECT, gpus, f"{tried} did not keep it healthy ({limit}): {why}")
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
    return Decision(REMEDY if remedy in STRONGER else PERSON, remedy, gpus, why)


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


def _common_cause(patients: Sequence[Patient], options: Options) -> str:
    """The finding that too many hosts share. One host is none; those of a unit are one."""
    places: dict[str, set[str]] = {}
    for patient in patients:
        for finding in matching(patient.findings, options.on):
            places.setdefault(finding.row, set()).add(patient.place)
    total = len({patient.place for patient in patients})
    stop_at = options.stop_at
    limit: float = stop_at if isinstance(stop_at, int) else total * int(stop_at.rstrip("%")) / 100
    row = max(places, key=lambda name: (len(places[name]), name), default="")
    number = len(places.get(row, ()))
    if number < 2 or number <= limit:
        return ""
    return (
        f"{number} of {total} hosts (NVLink domains count as one) have the finding {row}, and {PREFIX}stop_at is "
        f"{stop_at}: the cause is common, such as a driver, a fabric or the check itself, so no host is touched. Find "
        f"it; to treat the hosts one by one all the same, raise {PREFIX}stop_at"
    )


def _is_recent(attempt: Attempt, now: str, options: Options) -> bool:
    try:
        age = datetime.strptime(now, TIME) - datetime.strptime(attempt.time, TIME)
    except ValueError:
        return True
    return age <= timedelta(days=options.limit_days)


def _read(name: str, value: object) -> Any:
    """The value of a variable that may come from `-e NAME=VALUE`, which makes a text of it."""
    if name == "retry_failed":
        return read_truth(value)
    if isinstance(value, str) and name in ("limit", "limit_days", "stop_at") and value.strip().isdecimal():
        return int(value)
    return tuple(value) if isinstance(value, list) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _wrong(name: str, value: object, allowed: str) -> RollingError:
    return RollingError(f"{PREFIX}{name} is {value!r}; it takes {allowed}"[:300])
