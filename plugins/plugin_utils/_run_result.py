# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a whole run as data, by docs/run-result.schema.json. Private to this collection.

Only what is named here gets into it: no parameters, no differences of files, no output of programs, no loop items. So a
secret that a playbook handles cannot get into the file by a task that lacks no_log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES, VERDICTS

from ._roles.registry import WITHOUT_PLAN

SCHEMA_VERSION = 1
"""Version of the result's form. Additions do not change it."""

NOT_RUN, OK, FAILED, UNHEALTHY, UNREACHABLE = "not_run", "ok", "failed", "unhealthy", "unreachable"
STATUSES = (OK, NOT_RUN, UNHEALTHY, FAILED, UNREACHABLE)

_COLLECTION = "gpu.fleet."
_DOCKER_PACKAGES = ("docker-ce", "docker.io", "moby-engine")

Facts = Mapping[str, Any]

_MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
_LONGEST_TEXT, _MOST_ELEMENTS = 16_384, 10_000


def _docker(facts: Facts) -> str | None:
    packages = facts["packages"]
    found = [packages[name][0]["version"] for name in _DOCKER_PACKAGES if packages.get(name)]
    return found[0] if found else None


def _libraries(name: str) -> Callable[[Facts], list[str]]:
    return lambda facts: [library["version"] for library in facts["cuda"]["libraries"][name] if library["version"]]


# By name in the result: how it is read from the facts that a run has of a host.
_VERSIONS: Mapping[str, Callable[[Facts], str | list[str] | None]] = {
    "driver": lambda facts: facts["cuda"]["driver"]["library_version"],
    "loaded_driver": lambda facts: facts["cuda"]["driver"]["loaded_version"],
    "fabric_manager": lambda facts: facts["cuda"]["services"]["fabric_manager"]["version"],
    "cuda_toolkits": lambda facts: [toolkit["version"] for toolkit in facts["cuda"]["toolkits"] if toolkit["version"]],
    "cudnn": _libraries("cudnn"),
    "nccl": _libraries("nccl"),
    "tensorrt": _libraries("tensorrt"),
    "docker": _docker,
    "container_toolkit": lambda facts: facts["cuda"]["container_toolkit"]["version"],
}
_LISTS = ("cuda_toolkits", "cudnn", "nccl", "tensorrt")
_FACTS = ("packages", "nvidia_smi", "cuda", "gpu_fleet_managed")


@dataclass
class HostRun:
    """What a run has done on one host.

    before and after: the facts of _FACTS as they were first and last read. health: what the health check reported.
    work: roles with work, by the plan of host_facts. changes: see `_change`. message: why the last failed task failed.
    malformed: what a task returned in another form than its module documents, by the error.
    """

    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    health: dict[str, Any] | None = None
    work: list[str] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    message: str | None = None
    malformed: str | None = None

    def add(self, task: str, action: str, result: Mapping[str, Any]) -> None:
        """Add the result of a task. task: its name, with the role's before ` : `."""
        try:
            self._add(task, action, result)
        except _MALFORMED as error:
            self.malformed = f"{task} ({type(error).__name__})"

    def _add(self, task: str, action: str, result: Mapping[str, Any]) -> None:
        facts = result.get("ansible_facts") or {}
        for name in _FACTS:
            if name in facts:
                self.before.setdefault(name, facts[name])
                self.after[name] = facts[name]
        self.work += [role for role in (result.get("plan") or {}).get("work") or [] if role not in self.work]
        if "gpu_health_result" in facts:
            self.health = {**(self.health or _NO_HEALTH), **_health(facts["gpu_health_result"])}
        if action == f"{_COLLECTION}gpu_health" and "verdict" in result:
            self.health = {**(self.health or _NO_HEALTH), **_verdict(result)}
        if result.get("changed"):
            self.changes.append(_change(task, action, result))

    def as_data(self, stats: Mapping[str, int]) -> dict[str, Any]:
        """The host in the result. stats: the host's counts of the run, as the recap has them.

        A host may return anything. What cannot be in the file is left out, and the host is not ok.
        """
        try:
            if self.malformed is None:
                return self._data(stats)
            where = self.malformed
        except _MALFORMED as error:
            where = f"its facts ({type(error).__name__})"
        message = f"{where}: what it returned has another form than its modules document; check who changed the host"
        status = UNREACHABLE if stats["unreachable"] else FAILED
        shown = HostRun(message=_line(self.message) if self.message else message)
        return {**shown._data(stats), "status": status, "message": shown.message, "changed": bool(self.changes)}

    def _data(self, stats: Mapping[str, int]) -> dict[str, Any]:
        status = self._status(stats)
        return {
            "status": status,
            "message": _line(self._message(status)),
            "changed": bool(self.changes),
            "reasons": {str(_text(role)): _strings(self._reasons(role)) for role in self._roles()},
            "changes": self.changes,
            "versions": {
                name: {"before": _read(name, self.before), "after": _read(name, self.after)} for name in _VERSIONS
            },
            "gpus": [
                {"index": _number(gpu.get("index")), "name": _text(gpu.get("name"))}
                for gpu in _bounded((self.after.get("nvidia_smi") or {}).get("gpus") or [])
            ],
            "health": None if self.health is None else _checked_health(self.health),
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
        records = self.before.get("gpu_fleet_managed")
        if records is None:
            return ["the run has not read what drifted"]
        of_role = [record for name, record in records.items() if name.partition(".")[0] == role]
        if not of_role:
            return ["no earlier run has recorded this role on the host"]
        drift = [item["message"] for record in of_role for item in record.get("drift") or []]
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


def _change(task: str, action: str, result: Mapping[str, Any]) -> dict[str, Any]:
    role, separator, name = task.partition(" : ")
    items = result.get("results") or []
    return {
        "role": role if separator else None,
        "task": name if separator else task,
        "module": action,
        "delegated_to": (result.get("_ansible_delegated_vars") or {}).get("ansible_delegated_host"),
        # Our modules return commands and reasons that are made to be shown; of others they may have anything.
        **_shown(action, [item for item in items if isinstance(item, Mapping) and item.get("changed")] or [result]),
    }


def _shown(action: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ours = results if action.startswith(_COLLECTION) else []
    return {
        "reason": _text("; ".join(str(result["reason"]) for result in ours if result.get("reason"))) or None,
        "commands": _strings([str(command) for result in ours for command in result.get("commands") or []]),
    }


_NO_HEALTH: Mapping[str, Any] = {"ok": None, "verdict": None, "remedy": None, "reasons": [], "notes": []}


def _health(found: Mapping[str, Any]) -> dict[str, Any]:
    """Of the fact that the role gpu_health sets."""
    return {name: found[name] for name in _NO_HEALTH if found.get(name) is not None}


def _verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    """Of the module gpu_health."""
    problems, notes = (
        [item["message"] for item in found["findings"] if (item["verdict"] in ("warn", "fail")) is is_problem]
        for is_problem in (True, False)
    )
    return {
        "ok": found["verdict"] != "fail",
        "verdict": found["verdict"],
        "remedy": found["remedy"],
        "reasons": problems,
        "notes": notes,
    }


def _read(name: str, facts: Facts) -> str | list[str] | None:
    """What is read, null where the run has not read it."""
    try:
        found: Any = _VERSIONS[name](facts)
    except (KeyError, TypeError, IndexError):
        return None
    return _strings(found) if name in _LISTS else _text(found)


def _checked_health(found: Mapping[str, Any]) -> dict[str, Any]:
    ok, verdict, remedy = (found[name] for name in ("ok", "verdict", "remedy"))
    if not (ok is None or isinstance(ok, bool)) or verdict not in (None, *VERDICTS) or remedy not in (None, *REMEDIES):
        raise ValueError("no health")
    return {
        "ok": ok,
        "verdict": verdict,
        "remedy": remedy,
        "reasons": _strings(found["reasons"]),
        "notes": _strings(found["notes"]),
    }


def _bounded(values: Any) -> list[Any]:
    if not isinstance(values, list) or len(values) > _MOST_ELEMENTS:
        raise ValueError("no list, or too long a one")
    return values


def _strings(values: Any) -> list[str]:
    return [str(_text(value)) for value in _bounded(values) if value is not None]


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("no text")
    if value is not None and (len(value) > _LONGEST_TEXT or any("\ud800" <= each <= "\udfff" for each in value)):
        raise ValueError("too long, or no Unicode")
    return value


def _number(value: Any) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) >> 62):
        raise TypeError("no number")
    return value


def _line(text: str | None) -> str | None:
    """A message, which has what a task on the host printed, as one line of bounded length."""
    if text is None:
        return None
    return one_line(text[:_LONGEST_TEXT])
