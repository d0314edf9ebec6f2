# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every planner of a role has. Private to this collection. Pure: no Ansible, no file access.

A role has a `Request`, whose `read` takes the variables, and a function `plan` that returns a `Plan` for a request and
what is known of the host. All others ask for them by the role's `PLANNER`, which registry.py lists.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, is_dataclass
from typing import Any

RUN_ONLY = {"run_only": True}
"""Metadata of a field of a request that leaves nothing on the host after the run, such as the number of attempts."""


class RequestError(Exception):
    """A value of another form than documented; the message names the variable."""


@dataclass(frozen=True)
class Plan:
    """What a role does on a host.

    steps: what its tasks carry out, in their order; none where it has no work. reasons: why. inputs: a hash of what
    decides the state of the host, which the record keeps for the next run. tasks: what the tasks read. Nothing in
    a plan is secret, as a registered plan is printed with -v. notes: for the summary of a run. warnings: what the task
    that plans warns of.
    """

    refusals: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    inputs: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tasks: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        """Whether the role has to run."""
        return bool(self.steps)

    def as_dict(self) -> dict[str, Any]:
        """The plan as tasks read it: with `has_work`, and with what `tasks` has next to the rest."""
        plan = asdict(self)
        tasks = plan.pop("tasks")
        return {name: as_lists(item) for name, item in {**plan, **tasks, "has_work": self.has_work}.items()}


@dataclass(frozen=True)
class Needs:
    """What host_facts reads for the plan of a role besides facts: these files, and what these commands print."""

    files: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: Needs) -> Needs:
        """The readings of both."""
        files, commands = (*self.files, *other.files), (*self.commands, *other.commands)
        return Needs(tuple(dict.fromkeys(files)), tuple(dict.fromkeys(commands)))

    def as_dict(self) -> dict[str, Any]:
        """The option `reads` of host_facts, empty where nothing is needed."""
        found: dict[str, Any] = as_lists(asdict(self)) if self.files or self.commands else {}
        return found


@dataclass(frozen=True)
class Readings:
    """What it has read of them. One that was not asked for is a KeyError."""

    files: Mapping[str, str | None]
    outputs: Mapping[tuple[str, ...], Mapping[str, Any]]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Readings:
        """The readings in the module's result."""
        outputs = {tuple(map(str, one["argv"])): one for one in found.get("commands") or ()}
        return cls(found.get("files") or {}, outputs)

    def exists(self, path: str) -> bool:
        """Whether anything is there."""
        return self.files[path] is not None

    def sha256(self, path: str) -> str:
        """The SHA-256 of a file, empty for anything else."""
        return str(self.files[path] or "")

    def output(self, argv: Sequence[str], stream: str = "stdout") -> str:
        """What a command has printed, empty where it could not be started."""
        return str(self.outputs[tuple(argv)].get(stream) or "")


@dataclass(frozen=True)
class Outlook:
    """Known before the first change of a run, besides facts.

    coming: the steps of each earlier role that has work: what it installs or changes is not there yet, and no reason
    against this role. missing_users: of docker_users. operator: as of host_facts.
    """

    readings: Readings
    coming: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missing_users: Sequence[str] = ()

    def gpus(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """The facts of nvidia_smi, as they will be when the role's turn comes; empty where that is not known.

        A GPU that does not respond is a fault of the host, which must not keep other roles from it.
        """
        smi: Mapping[str, Any] = facts["nvidia_smi"]
        is_known = self.coming.keys().isdisjoint(("nvidia_driver", "gpu_state"))
        return smi if is_known and not any(gpu.get("error") for gpu in smi["gpus"]) else {}


Reading = tuple[str, Mapping[str, Any]]
"""A module that only reads, and its arguments. apt, dnf and modules of collections preview, in check mode."""


@dataclass(frozen=True)
class Ask:
    """What a stage has to know before it plans. role_plan reads it, in check mode as well, and calls the stage again.

    The task's facts then have the results under these names, of a list in `results`. A reading that fails is a result
    as any other, as of a program that is not there. Facts that a module of this collection reads are the host's from
    then on, and where it fails, so does the task.
    """

    readings: Mapping[str, Reading | list[Reading]]
    plan: Plan | None = None
    """By what is known without them. Nothing is read for it on a host that lacks room or write access for its work."""


def unread(
    found: Mapping[str, Any], readings: Mapping[str, Reading | list[Reading]], plan: Plan | None = None
) -> Ask | None:
    """The question for the readings that the task's facts lack; None where they have all."""
    missing = {name: one for name, one in readings.items() if name not in found}
    return Ask(missing, plan) if missing else None


def command(*argv: str) -> Reading:
    """A program that only reads, whose output is not translated."""
    return "command", {"argv": ["env", "LC_ALL=C.UTF-8", *argv], "_uses_shell": False}


def search(directories: Sequence[str], names: Sequence[str]) -> Reading:
    """A search for these names, links and directories among them."""
    return "find", {"paths": [*directories], "patterns": [*names], "file_type": "any"}


Stage = Callable[
    [Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]], Plan | Sequence[Plan] | Mapping[str, Any] | Ask
]
"""Takes the variables of the role with its tables, the facts of Ansible without their prefix, and the task's facts."""


Read = Callable[[Ask], Mapping[str, Any]]
"""Returns the results of readings by name, empty where one has failed."""
Listed = Callable[[Mapping[str, Any], Mapping[str, Any], Read, Mapping[str, str]], tuple[str, Iterable[str]]]
"""Takes the variables of the role with its tables, the facts, and by role the versions that earlier ones install."""


@dataclass(frozen=True)
class RolePlanner:
    """A role, as playbooks, the check before the first change and the role's own tasks ask for it.

    stages: by name; `plan` knows what every host has, later ones what the task has found. tables: data in the role's
    vars/main.yml. secret: stages whose result may have a secret, which only a task with no_log gets. others: variables
    of other roles that count where they are set. reads: public variables that the role's tasks read, from `variables`
    of each result; a task that read them itself could get a fact of the host, see _injected_facts.py.

    needs: what is read on the host besides facts, by the variables. refuses: why the role cannot be carried out, by
    what is known before the first change; what the stage `plan` refuses where it is left out. repository: the one of
    NVIDIA's that the role adds, by its variables and the facts, empty for none; left out where it never adds any.
    listed: the version that the role installs, empty where it is not known, and what it refuses by the package lists
    that the host has now. What only a repository knows that is still to be added, its tasks refuse.

    runs_by_default: without gpu_fleet_roles. needs_gpu: it has nothing to do on a host without a GPU. has_plan:
    variables and facts decide whether it has work; of others each run has to look. is_disruptive: a job on the host
    notices its changes, and the health check judges them. is_removed: when a host is decommissioned. collections: of
    others that its tasks use.
    """

    name: str
    stages: Mapping[str, Stage]
    tables: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    needs: Callable[[Mapping[str, Any]], Needs] = lambda _variables: Needs()
    refuses: Callable[[Mapping[str, Any], Mapping[str, Any], Outlook], Iterable[str]] | None = None
    repository: Callable[[Mapping[str, Any], Mapping[str, Any]], str] | None = None
    listed: Listed | None = None
    runs_by_default: bool = False
    needs_gpu: bool = True
    has_plan: bool = False
    is_disruptive: bool = False
    is_removed: bool = True
    collections: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedHost:
    """What each planner knows of a host: its row of the table of distributions, the last run's record."""

    platform: Mapping[str, Any]
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def manager(self) -> str:
        """The package manager."""
        return str(self.platform["manager"])

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The data of the last run's record."""
        data: Mapping[str, Any] = self.record.get("data") or {}
        return data


def in_order(items: Iterable[str | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Items by `name` for a loop that includes tasks, each with the names of those before it.

    A loop includes an item once for all hosts that have the same one, at the place where any of them has it first.
    Where a host has only the last item of others, that comes first on all of them. With other ones before it an item
    is another one, so that each host keeps its order.
    """
    listed = [{"name": item} if isinstance(item, str) else dict(item) for item in items]
    names = [item["name"] for item in listed]
    return [{**item, "after": names[:number]} for number, item in enumerate(listed)]


def inputs_of(request: Any, **host: Any) -> str:
    """A hash of what decides the state of a host: fields of the request, and what of the host decides as well.

    By name: a field that a later version adds has a default, and makes no host work that leaves it there. A field
    without one always counts, so that another default of the role's variable is work. Run-only fields do not count.
    """
    return hashlib.sha256(json.dumps([_decisive(request), host], sort_keys=True).encode()).hexdigest()


def is_true(value: object) -> bool:
    """A truth value of a user as the filter bool has it: `-e` gives text."""
    return str(value).lower() in ("1", "1.0", "on", "true", "t", "yes", "y")


def _decisive(value: Any) -> Any:
    """A value as JSON has it, of a dataclass the fields that decide."""
    if is_dataclass(value):
        found = {one.name: getattr(value, one.name) for one in fields(value) if not one.metadata.get("run_only")}
        defaults = {one.name: _default(one) for one in fields(value)}
        return {name: _decisive(item) for name, item in found.items() if item != defaults[name]}
    if isinstance(value, Mapping):
        return {str(name): _decisive(item) for name, item in value.items()}
    return [_decisive(item) for item in value] if isinstance(value, (list, tuple)) else value


def _default(one: Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not MISSING else one.default


def as_lists(value: Any) -> Any:
    """A value without tuples, which templates do not concatenate with lists."""
    if isinstance(value, Mapping):
        return {name: as_lists(item) for name, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
