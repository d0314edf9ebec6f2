# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a whole run as data, by docs/run-result.schema.json. Private to this collection.

Only what is named here gets into it: no parameters, no differences of files, no output of programs, no loop items. So a
secret that a playbook handles cannot get into the file by a task that lacks no_log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line

from ._fleet.documents import WHAT_TO_DO, Change, Done, Facts, FormError, Judged, Packages, RoleHealth, Version, read
from ._planning.registry import WITHOUT_PLAN

SCHEMA_VERSION = 1
"""Version of the result's form. Additions do not change it."""

NOT_RUN, OK, FAILED, UNHEALTHY, UNREACHABLE = "not_run", "ok", "failed", "unhealthy", "unreachable"
STATUSES = (OK, NOT_RUN, UNHEALTHY, FAILED, UNREACHABLE)

_COLLECTION = "gpu.fleet."
_LONGEST_TEXT = 16_384


def _docker(packages: Packages) -> str | None:
    found = packages.docker_ce or packages.docker_io or packages.moby_engine
    return found[0].version if found else None


def _all(found: Sequence[Version]) -> list[str]:
    return [one.version for one in found if one.version]


# By name in the result: how it is read from the facts that a run has of a host; null where it has not read them.
_VERSIONS: Mapping[str, Callable[[Facts], str | list[str] | None]] = {
    "driver": lambda facts: facts.cuda.driver.library_version if facts.cuda else None,
    "loaded_driver": lambda facts: facts.cuda.driver.loaded_version if facts.cuda else None,
    "fabric_manager": lambda facts: facts.cuda.services.fabric_manager.version if facts.cuda else None,
    "cuda_toolkits": lambda facts: _all(facts.cuda.toolkits) if facts.cuda else None,
    "cudnn": lambda facts: _all(facts.cuda.libraries.cudnn) if facts.cuda else None,
    "nccl": lambda facts: _all(facts.cuda.libraries.nccl) if facts.cuda else None,
    "tensorrt": lambda facts: _all(facts.cuda.libraries.tensorrt) if facts.cuda else None,
    "docker": lambda facts: _docker(facts.packages) if facts.packages else None,
    "container_toolkit": lambda facts: facts.cuda.container_toolkit.version if facts.cuda else None,
}


@dataclass
class HostRun:
    """What a run has done on one host.

    before and after: the facts as they were first and last read. health: what the health check reported.
    work: roles with work, by the plan of host_facts. changes: see `_change`. message: why the last failed task failed.
    malformed: what a task returned in another form than its module documents.
    """

    before: Facts = field(default_factory=Facts)
    after: Facts = field(default_factory=Facts)
    health: dict[str, Any] | None = None
    work: list[str] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    message: str | None = None
    malformed: str | None = None

    def add(self, task: str, action: str, result: Mapping[str, Any]) -> None:
        """Add the result of a task. task: its name, with the role's before ` : `."""
        is_ours = action.startswith(_COLLECTION)
        try:
            done = read(Done, result) if is_ours else _done_by_others(result)
            judged = read(Judged, result) if action == f"{_COLLECTION}gpu_health" and "verdict" in result else None
        except FormError as error:
            self.malformed = f"{task}: its result has another form than its module documents: {error}; {WHAT_TO_DO}"
            return
        facts = done.ansible_facts or Facts()
        new = {one.name: getattr(facts, one.name) for one in fields(facts) if getattr(facts, one.name) is not None}
        first = {name: value for name, value in new.items() if getattr(self.before, name) is None}
        self.before, self.after = replace(self.before, **first), replace(self.after, **new)
        self.work += [role for role in (done.plan.work if done.plan else None) or () if role not in self.work]
        if facts.gpu_health_result is not None:
            self.health = {**(self.health or _NO_HEALTH), **_health(facts.gpu_health_result)}
        if judged is not None:
            self.health = {**(self.health or _NO_HEALTH), **_verdict(judged)}
        if done.changed:
            delegated = result.get("_ansible_delegated_vars") or {}
            self.changes.append(_change(task, action, done, delegated.get("ansible_delegated_host")))

    def as_data(self, stats: Mapping[str, int]) -> dict[str, Any]:
        """The host in the result. stats: the host's counts of the run, as the recap has them.

        A host may return anything. Where that has another form, only its message is in the file, and it is not ok.
        """
        if self.malformed is None:
            return self._data(stats)
        status = UNREACHABLE if stats["unreachable"] else FAILED
        shown = HostRun(message=self.message or self.malformed)
        return {**shown._data(stats), "status": status, "message": _line(shown.message), "changed": bool(self.changes)}

    def _data(self, stats: Mapping[str, int]) -> dict[str, Any]:
        status = self._status(stats)
        return {
            "status": status,
            "message": _line(self._message(status)),
            "changed": bool(self.changes),
            "reasons": {role: self._reasons(role) for role in self._roles()},
            "changes": self.changes,
            "versions": {name: {"before": of(self.before), "after": of(self.after)} for name, of in _VERSIONS.items()},
            "gpus": [
                {"index": gpu.index, "name": gpu.name}
                for gpu in (self.after.nvidia_smi.gpus if self.after.nvidia_smi else None) or ()
            ],
            "health": self.health,
        }

    def _status(self, stats: Mapping[str, int]) -> str:
        if stats["unreachable"]:
            return UNREACHABLE
        # A host that the health check refuses has failed as well; its other tasks have not.
        if self.health is not None and self.health["ok"] is False:
            return UNHEALTHY
        if stats["failures"]:
            return FAILED
        return OK if any(stats.values()) else NOT_RUN

    def _message(self, status: str) -> str | None:
        if status == UNHEALTHY and self.health is not None:
            return "; ".join(self.health["reasons"]) or self.message
        return self.message if status in (FAILED, UNREACHABLE) else None

    def _roles(self) -> list[str]:
        """Roles of the collection that had work or changed something, in the order in which the run came to them."""
        of_tasks = [change["role"] for change in self.changes if (change["role"] or "").startswith(_COLLECTION)]
        return list(dict.fromkeys([*self.work, *(role.removeprefix(_COLLECTION) for role in of_tasks)]))

    def _reasons(self, role: str) -> list[str]:
        """Why a role had work: drift since the last run, or what else brings a role to work."""
        if role in WITHOUT_PLAN:
            return ["each run compares the host with what is declared"]
        records = self.before.gpu_fleet_managed
        if records is None:
            return ["the run has not read what drifted"]
        of_role = [record for name, record in records.items() if name.partition(".")[0] == role]
        if not of_role:
            return ["no earlier run has recorded this role on the host"]
        drift = [item.message for record in of_role for item in record.drift or ()]
        return drift or ["the variables, or what they depend on, differ from the last run"]


def result_of_run(
    hosts: Mapping[str, HostRun],
    stats: Callable[[str], Mapping[str, int]],
    *,
    playbook: str,
    check_mode: bool,
    times: tuple[str, str],
) -> dict[str, Any]:
    """The whole result. stats: gives the counts of a host by its name. times: begin and end in UTC."""
    data = {name: host.as_data(stats(name)) for name, host in sorted(hosts.items())}
    statuses = [host["status"] for host in data.values()]
    return {
        "schema_version": SCHEMA_VERSION,
        "playbook": playbook,
        "check_mode": check_mode,
        "started": times[0],
        "ended": times[1],
        "totals": {
            "hosts": len(data),
            "changed": sum(host["changed"] for host in data.values()),
            **{status: statuses.count(status) for status in STATUSES},
        },
        "hosts": data,
    }


def _done_by_others(result: Mapping[str, Any]) -> Done:
    """The result of a module of others, which may have anything: no reason, no command, and facts where they fit."""
    try:
        facts = read(Facts, result.get("ansible_facts") or {})
    except FormError:
        facts = None
    return Done(changed=bool(result.get("changed")), ansible_facts=facts)


def _change(task: str, action: str, done: Done, delegated_to: str | None) -> dict[str, Any]:
    role, separator, name = task.partition(" : ")
    # Our modules return commands and reasons that are made to be shown.
    shown: Sequence[Change] = [item for item in done.results or () if item.changed] or [done]
    return {
        "role": role if separator else None,
        "task": name if separator else task,
        "module": action,
        "delegated_to": delegated_to,
        "reason": "; ".join(str(one.reason) for one in shown if one.reason) or None,
        "commands": [command for one in shown for command in one.commands or ()],
    }


_NO_HEALTH: Mapping[str, Any] = {"ok": None, "verdict": None, "remedy": None, "reasons": [], "notes": []}


def _health(found: RoleHealth) -> dict[str, Any]:
    """Of the fact that the role gpu_health sets."""
    given = {name: getattr(found, name) for name in _NO_HEALTH}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value is not None
    }


def _verdict(found: Judged) -> dict[str, Any]:
    """Of the module gpu_health."""
    problems, notes = (
        [item.message for item in found.findings if (item.verdict in ("warn", "fail")) is is_problem]
        for is_problem in (True, False)
    )
    return {
        "ok": found.verdict != "fail",
        "verdict": found.verdict,
        "remedy": found.remedy,
        "reasons": problems,
        "notes": notes,
    }


def _line(text: str | None) -> str | None:
    """A message, which has what a task on the host printed, as one line of bounded length."""
    return None if text is None else one_line(text[:_LONGEST_TEXT])
