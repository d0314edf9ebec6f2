# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the order and the batches of a rolling upgrade. Private to this collection.

Pure: hosts with what they need, options and the states of an earlier run in, batches out. The playbook carries it out.
A unit is a set of hosts that are out of service together, such as an NVLink domain; a group is one that may lose only a
few hosts at once, such as a rack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from .._planning.variable_forms import read_truth
from .rolling_state import FAILED, HostState

SKIP, FAIL, FORCE = "skip", "fail", "force"
SCHEDULERS = ("none", "commands", "slurm", "kubernetes")
REBOOTERS = ("ansible", "slurm")
_NUMBERS = ("batch", "canaries", "max_unavailable", "max_failures", "idle_timeout_s", "idle_interval_s")
_PERCENTAGE = re.compile(r"([1-9][0-9]?|100)%")


class RollingError(ValueError):
    """An upgrade that cannot be planned or carried out; the message is for the user."""


@dataclass(frozen=True)
class Options:
    """The variables gpu_fleet_upgrade_* by the rest of their names; numbers of hosts may be percentages such as 10%.

    `canaries` is a number of hosts or a list of their names. `idle_timeout_s` and `idle_interval_s` are in seconds.
    """

    canaries: int | tuple[str, ...] = 1
    batch: int | str = 1
    max_unavailable: int | str = 1
    max_failures: int = 0
    on_busy: str = FAIL
    idle_timeout_s: int = 3600
    idle_interval_s: int = 30
    scheduler: str = "none"
    reboot_by: str = "ansible"
    retry_failed: bool = False
    take_over: str = ""


@dataclass(frozen=True)
class Host:
    """A host in the order of the inventory. `needs` are the reasons for its change; without any it is not drained.

    One that `is_missing` could not be reached or planned, and is out of service for its group. One that
    `is_interrupted` is out of service by a run that this one takes over. One that `is_retried` is tried again though it
    failed in an earlier run. One that `is_drained` is out of service already, by anybody. One that `is_apart` is not
    counted among those that its group may lose.
    """

    name: str
    needs: tuple[str, ...] = ()
    group: str = ""
    unit: str = ""
    is_missing: bool = False
    is_interrupted: bool = False
    is_retried: bool = False
    is_drained: bool = False
    is_apart: bool = False
    place: str = ""

    @property
    def counted_as(self) -> str:
        """What it is for its group: hosts with the same place are out of service as one."""
        return self.place or self.name


@dataclass(frozen=True)
class RollingPlan:
    """`batches` of host names in their order, the canaries first where there are any.

    `unchanged` hosts need nothing, `missing` ones could not be reached or planned, `failed` ones failed in an earlier
    run and stay as they are, with their reasons. `waiting` ones are held, would be changed without another one of their
    unit, or are more than their group may lose, with the reason. `reasons` are why a host is changed.
    """

    batches: tuple[tuple[str, ...], ...] = ()
    canaries: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def order(self) -> tuple[str, ...]:
        """All hosts of all batches."""
        return tuple(name for batch in self.batches for name in batch)


@dataclass(frozen=True)
class _Unit:
    """Hosts that are in one batch, and how many of each group they are."""

    name: str
    names: tuple[str, ...]
    groups: Mapping[str, int]


def read_options(given: Mapping[str, object]) -> Options:
    """The options in the variables that a user has set; RollingError for a value that is not one of theirs."""
    known = {option.name for option in fields(Options)}
    options = replace(Options(), **{name: _read(name, value) for name, value in given.items() if name in known})  # type: ignore[arg-type]
    for name in ("batch", "max_unavailable"):
        value = getattr(options, name)
        if not _is_number(value, 1) and not (isinstance(value, str) and _PERCENTAGE.fullmatch(value)):
            raise _wrong(name, value, "a number of hosts from 1, or a percentage such as 10%")
    for name, least in (("max_failures", 0), ("idle_timeout_s", 0), ("idle_interval_s", 1)):
        if not _is_number(getattr(options, name), least):
            raise _wrong(name, getattr(options, name), f"a whole number from {least}")
    names = options.canaries
    if not _is_number(names, 0) and not (isinstance(names, tuple) and all(isinstance(name, str) for name in names)):
        raise _wrong("canaries", names, "a number of hosts, or a list of their names")
    for name, choices in (("on_busy", (SKIP, FAIL, FORCE)), ("scheduler", SCHEDULERS), ("reboot_by", REBOOTERS)):
        if getattr(options, name) not in choices:
            raise _wrong(name, getattr(options, name), f"one of {', '.join(choices)}")
    if not isinstance(options.take_over, str):
        raise _wrong("take_over", options.take_over, "the id of a run")
    if not isinstance(options.retry_failed, bool):
        raise _wrong("retry_failed", options.retry_failed, "true or false")
    return options


def rolling_plan(
    hosts: Sequence[Host],
    options: Options,
    states: Mapping[str, HostState] | None = None,
    previous: Sequence[str] = (),
    *,
    held: Mapping[str, str] | None = None,
    whole_units: bool = True,
) -> RollingPlan:
    """The batches for `hosts`, which are all of the upgrade, also those that need nothing.

    states: what an earlier run has recorded; a host that it has left out of service comes first. previous: the order of
    that run, which is kept. held: hosts that are left as they are, with the reason. whole_units: whether a unit is
    changed as a whole or not at all.
    """
    known = states or {}
    failed = {
        host.name: known[host.name].reason
        for host in hosts
        if host.name in known and known[host.name].step == FAILED and not (options.retry_failed or host.is_retried)
    }
    interrupted = {
        host.name
        for host in hosts
        if host.is_interrupted or (host.name in known and known[host.name].is_out_of_service)
    }
    missing = tuple(host.name for host in hosts if host.is_missing)
    out = {*failed, *missing}
    due = [host for host in hosts if (host.needs or host.name in interrupted) and host.name not in out]
    limits = {group: max(_number(options.max_unavailable, size), 1) for group, size in _counts(hosts).items()}
    waiting = {**(_waiting(hosts, {host.name for host in due} - interrupted) if whole_units else {})}
    waiting |= {**_too_large(due, limits), **_of_units(due, held or {})}
    due = [host for host in due if host.name not in waiting]
    rank = {name: number for number, name in enumerate(previous)}
    due.sort(key=lambda host: (host.name not in interrupted, rank.get(host.name, len(rank))))
    will_change = {host.name for host in due}
    away = {*out, *((interrupted | {host.name for host in hosts if host.is_drained}) - will_change)}
    taken = _lost(host for host in hosts if host.name in away)
    units = _units(due)
    canaries = _canaries(units, options.canaries, due, any(state.is_finished for state in known.values()))
    chosen = {name for unit in canaries for name in unit.names}
    room = {group: limit - taken.get(group, 0) for group, limit in limits.items()}
    size = _number(options.batch, len(due))
    others = [unit for unit in units if unit.names[0] not in chosen]
    batches = [*_batches(canaries, max(len(chosen), 1), limits, room), *_batches(others, size, limits, room)]
    return RollingPlan(
        batches=tuple(batches),
        canaries=tuple(name for unit in canaries for name in unit.names),
        unchanged=tuple(host.name for host in hosts if not host.needs and host.name not in {*interrupted, *out}),
        missing=missing,
        failed=failed,
        waiting=waiting,
        reasons={host.name: host.needs or ("an earlier run was interrupted",) for host in due},
    )


def postponed(batch: Sequence[str], hosts: Mapping[str, Host], out: Iterable[str], options: Options) -> dict[str, str]:
    """The hosts of a batch that may not be drained now, with the reason.

    out: hosts that are out of service, as those that have failed since the plan was made. A host of the batch that is
    out already goes on.
    """
    away = {name for name in out if name in hosts}
    away |= {host.name for host in hosts.values() if host.is_missing or host.is_drained}
    sizes = _counts(hosts.values())
    waiting = [hosts[name] for name in batch if name not in away]
    found = {}
    for unit in _units(waiting):
        lost = _lost(hosts[name] for name in away)
        together = _lost(hosts[name] for name in (*away, *unit.names))
        for group in unit.groups:
            limit = max(_number(options.max_unavailable, sizes[group]), 1)
            if together[group] > max(limit, lost.get(group, 0)):
                reason = (
                    f"{lost.get(group, 0)} hosts of group {group} are out of service, and "
                    f"gpu_fleet_upgrade_max_unavailable is {options.max_unavailable}; return them to service, then run "
                    "this again"
                )
                found.update(dict.fromkeys(unit.names, reason))
        if unit.names[0] not in found:
            away |= set(unit.names)
    return found


def plan_lines(plan: RollingPlan) -> list[str]:
    """The plan for people, one line each batch and host."""
    lines = []
    for number, batch in enumerate(plan.batches, 1):
        is_canary = set(batch) <= set(plan.canaries)
        lines.append(f"batch {number}{' (canaries)' if is_canary else ''}, {len(batch)} host{'s'[: len(batch) > 1]}:")
        lines += [f"  {name}: {', '.join(plan.reasons[name])}" for name in batch]
    lines += [f"{name} has failed and stays drained: {reason}" for name, reason in plan.failed.items()]
    for reason in dict.fromkeys(plan.waiting.values()):
        names = [name for name, why in plan.waiting.items() if why == reason]
        lines.append(f"{', '.join(names)} wait{'s'[: len(names) == 1]}: {reason}")
    if plan.missing:
        lines.append(f"not reached or refused, see above: {', '.join(plan.missing)}")
    if plan.unchanged:
        lines.append(f"nothing to do on {len(plan.unchanged)}: {', '.join(plan.unchanged)}")
    return lines


def _waiting(hosts: Sequence[Host], untouched: set[str]) -> dict[str, str]:
    """The hosts of units that lack a member while none of the others has been changed yet, with the reason.

    Their change would leave a domain with two drivers as soon as the member is back. A unit in which one has what it
    needs already goes on, as that brings it together again.
    """
    units: dict[str, tuple[list[str], list[str]]] = {}
    for host in hosts:
        if host.unit:
            units.setdefault(host.unit, ([], []))[host.is_missing].append(host.name)
    found: dict[str, str] = {}
    for unit, (others, missing) in units.items():
        if missing and untouched.issuperset(others):
            reason = (
                f"the hosts of {unit} are changed together, and {', '.join(missing)} could not be reached or was "
                "refused; repair it, or leave it out of gpu_fleet_targets to change the others without it"
            )
            found.update(dict.fromkeys(others, reason))
    return found


def _of_units(hosts: Sequence[Host], held: Mapping[str, str]) -> dict[str, str]:
    """The hosts that are held, and all hosts of their units, with the reason."""
    of_unit = {host.unit: held[host.name] for host in hosts if host.unit and host.name in held}
    found = {host.name: held.get(host.name) or of_unit.get(host.unit, "") for host in hosts}
    return {name: reason for name, reason in found.items() if reason}


def _too_large(hosts: Sequence[Host], limits: Mapping[str, int]) -> dict[str, str]:
    """The hosts of units that are larger than their group may lose, with the reason."""
    found: dict[str, str] = {}
    for unit in _units(hosts):
        for group, number in unit.groups.items():
            if number > limits[group]:
                reason = (
                    f"unit {unit.name} has {number} hosts of group {group} to change together, and "
                    f"gpu_fleet_upgrade_max_unavailable allows {limits[group]} of it; raise it, or take "
                    "gpu_fleet_upgrade_group or gpu_fleet_upgrade_unit (gpu_fleet_nvlink_domain) away from these hosts"
                )
                found.update(dict.fromkeys(unit.names, reason))
    return found


def _units(hosts: Sequence[Host]) -> list[_Unit]:
    """The hosts as units, in the order of the first host of each."""
    members: dict[tuple[str, str], list[Host]] = {}
    for host in hosts:
        members.setdefault(("unit", host.unit) if host.unit else ("host", host.name), []).append(host)
    return [_Unit(name, tuple(host.name for host in one), _lost(one)) for (_kind, name), one in members.items()]


def _canaries(
    units: Sequence[_Unit], requested: int | tuple[str, ...], due: Sequence[Host], were_canaries: bool
) -> list[_Unit]:
    """The units that come first. A number of canaries is for the first batch of a run only."""
    if isinstance(requested, tuple):
        return [unit for unit in units if set(requested) & set(unit.names)]
    found: list[_Unit] = []
    if were_canaries:
        return found
    for unit in units:
        if sum(len(one.names) for one in found) >= requested:
            break
        found.append(unit)
    return found


def _batches(
    units: Sequence[_Unit], size: int, limits: Mapping[str, int], room: Mapping[str, int]
) -> Iterator[tuple[str, ...]]:
    """The units in batches of `size` hosts: each unit in the first batch that has room for it and its groups.

    A unit of more than `size` hosts is a batch of its own. A group without room gets its hosts planned all the same,
    by its limit: whether there is room is decided again before each batch.
    """
    batches: list[list[str]] = []
    used: list[dict[str, int]] = []
    # No batch before these has room for a host (of the group).
    first, first_of = 0, dict.fromkeys(limits, 0)
    for unit in units:
        allowed = {group: max(room[group], number) for group, number in unit.groups.items()}
        at = max([first, *(first_of[group] for group in unit.groups)])
        while at < len(batches) and (
            (batches[at] and len(batches[at]) + len(unit.names) > size)
            or any(used[at].get(group, 0) + number > allowed[group] for group, number in unit.groups.items())
        ):
            at += 1
        if at == len(batches):
            batches.append([])
            used.append({})
        batches[at] += unit.names
        for group, number in unit.groups.items():
            used[at][group] = used[at].get(group, 0) + number
        for group in unit.groups:
            while first_of[group] < len(batches) and used[first_of[group]].get(group, 0) >= allowed[group]:
                first_of[group] += 1
        while first < len(batches) and len(batches[first]) >= size:
            first += 1
    yield from map(tuple, batches)


def _counts(hosts: Iterable[Host]) -> dict[str, int]:
    """How many hosts each group has, hosts of one place as one; hosts without a group are not counted."""
    counts: dict[str, int] = {}
    for group, _place in {(host.group, host.counted_as) for host in hosts if host.group}:
        counts[group] = counts.get(group, 0) + 1
    return counts


def _lost(hosts: Iterable[Host]) -> dict[str, int]:
    """How many hosts each group loses with these."""
    return _counts(host for host in hosts if not host.is_apart)


def _number(value: int | str, total: int) -> int:
    """The number of hosts that a number or a percentage of `total` is, at least 1."""
    return value if isinstance(value, int) else max(total * int(value.rstrip("%")) // 100, 1)


def _read(name: str, value: object) -> object:
    """The value of a variable that may come from `-e NAME=VALUE`, which makes a text of it."""
    if name == "retry_failed":
        return read_truth(value)
    if isinstance(value, str) and name in _NUMBERS and value.strip().isdecimal():
        return int(value)
    return tuple(value) if isinstance(value, list) else value


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _wrong(name: str, value: object, allowed: str) -> RollingError:
    return RollingError(f"gpu_fleet_upgrade_{name} is {value!r}; it takes {allowed}"[:300])
