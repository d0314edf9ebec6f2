# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sections of the report, each a pure function of the hosts. Private to this collection.

Unknown readings are left out of sums and comparisons.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES, VERDICTS
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE

from .._compatibility import branch_end_of_life
from .._fleet.documents import Placement, read
from .._fleet.nvlink_domains import Domain, Member, domains_of, member_of, observed
from .model import (
    NOT_READ,
    READ,
    STATUSES,
    UNREACHABLE,
    Action,
    ActionHost,
    Branch,
    Count,
    Deviation,
    ErrorHistory,
    HistoryEvent,
    Host,
    Inventory,
    Layout,
    Network,
    Rack,
    Reboot,
    Slice,
    Summary,
    XidEntry,
    gpus,
    name_of,
    status,
)

_SYMPTOMS = {row.id: row.symptom for row in TABLE}
_STRENGTH = {remedy: place for place, remedy in enumerate(REMEDIES)}
_PROBLEMS = ("warn", "fail")
_HEALTHY = ("ok", "info")
_SMALLEST_MAJORITY = 3
_FAST_GB_PER_SECOND = 10.0
_MOST_GPUS_PER_NIC, _LEAST_GPUS_PER_NIC = 4.0, 2.0
NOT_READ_ROWS = {UNREACHABLE: "the host cannot be reached", NOT_READ: "the host cannot be read"}
"""Symptoms of hosts without a verdict, by their status."""


def natural(name: str) -> list[tuple[int, str]]:
    """Natural sort key: node2 before node10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def summary(hosts: Sequence[Host]) -> Summary:
    """The fleet in numbers."""
    statuses = Counter(status(host) for host in hosts)
    verdicts = Counter(gpu["verdict"] for host in hosts if host.health for gpu in host.health["gpus"])
    remedies = Counter(host.health["remedy"] for host in hosts if host.health and host.health["verdict"] in _PROBLEMS)
    listed = [gpu for host in hosts for gpu in gpus(host)]
    return Summary(
        hosts=len(hosts),
        gpus=sum(max(len(gpus(host)), host.facts["pci_gpu_count"]) for host in hosts if host.facts),
        hosts_by_status={name: statuses[name] for name in STATUSES if statuses[name]},
        gpus_by_verdict={name: verdicts[name] for name in reversed(VERDICTS) if verdicts[name]},
        hosts_by_remedy={name: remedies[name] for name in reversed(list(REMEDIES)) if remedies[name]},
        healthy_hosts=sum(statuses[name] for name in _HEALTHY),
        hosts_needing_action=sum(statuses[name] for name in (UNREACHABLE, NOT_READ, *_PROBLEMS)),
        gpus_needing_action=sum(verdicts[name] for name in _PROBLEMS),
        memory_used_mib=_sum(listed, "memory_used_mib"),
        memory_total_mib=_sum(listed, "memory_total_mib"),
        power_draw_w=_watts(listed, "power_draw_w"),
        power_limit_w=_watts(listed, "power_limit_w"),
    )


def _sum(listed: Iterable[Mapping[str, Any]], reading: str) -> int:
    return int(sum(gpu[reading] or 0 for gpu in listed))


def _watts(listed: Iterable[Mapping[str, Any]], reading: str) -> float:
    return round(sum(gpu[reading] or 0.0 for gpu in listed), 1)


def actions(hosts: Sequence[Host]) -> tuple[Action, ...]:
    """Symptoms with their remedies: hosts that were not read, then the worst verdict and the strongest remedy first."""
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for host in hosts:
        for finding in (host.health or {}).get("findings", ()):
            if finding["verdict"] in _PROBLEMS:
                key = (finding["verdict"], finding["remedy"], finding["row"])
                found.setdefault(key, {}).setdefault(host.name, []).append(finding["message"])
    ordered = sorted(
        found.items(), key=lambda item: (-VERDICTS.index(item[0][0]), -_STRENGTH[item[0][1]], -len(item[1]), item[0][2])
    )
    return (
        *_unread(hosts),
        *_of_domains(hosts),
        *(
            Action(
                verdict,
                remedy,
                REMEDIES[remedy],
                row,
                _SYMPTOMS.get(row, row.replace("_", " ")),
                _action_hosts(by_host),
            )
            for (verdict, remedy, row), by_host in ordered
        ),
    )


def _unread(hosts: Sequence[Host]) -> Iterable[Action]:
    for state, symptom in NOT_READ_ROWS.items():
        reasons = {host.name: [host.reason or ""] for host in hosts if host.state == state}
        if reasons:
            what_to_do = "check that it is up, its address, user, key and become settings"
            yield Action(state, "none", what_to_do, state, symptom, _action_hosts(reasons))


def _of_domains(hosts: Sequence[Host]) -> Iterable[Action]:
    for domain in nvlink_domains(hosts):
        for finding in domain.findings:
            found = {host: [f"{domain.name}: {text}"] for host, text in finding.messages.items()}
            yield Action(
                finding.verdict, "none", finding.what_to_do, finding.row, finding.symptom, _action_hosts(found)
            )


def _action_hosts(messages: Mapping[str, Sequence[str]]) -> tuple[ActionHost, ...]:
    return tuple(ActionHost(name, tuple(messages[name])) for name in sorted(messages, key=natural))


def inventory(hosts: Sequence[Host]) -> Inventory:
    """Models and versions, the most frequent first."""
    read = [host for host in hosts if host.facts]
    models = Counter(gpu["name"] or "unknown" for host in read for gpu in gpus(host))
    with_model = Counter(name for host in read for name in {gpu["name"] or "unknown" for gpu in gpus(host)})
    return Inventory(
        models=tuple(Count(name, with_model[name], number) for name, number in models.most_common()),
        drivers=_counts(read, _driver),
        cuda_versions=_counts(read, lambda facts: facts["cuda_version"]),
        container_toolkits=_counts(read, lambda facts: facts["container_toolkit_version"]),
        distributions=_counts(read, lambda facts: facts["system"]["distribution"]),
    )


def _driver(facts: Mapping[str, Any]) -> str | None:
    return facts["driver_version"] and " ".join(filter(None, (facts["driver_version"], facts["driver_kind"])))


def _counts(hosts: Sequence[Host], value: Callable[[Mapping[str, Any]], str | None]) -> tuple[Count, ...]:
    numbers: Counter[str] = Counter()
    of_gpus: Counter[str] = Counter()
    for host in hosts:
        name = value(host.facts or {}) or "none"
        numbers[name] += 1
        of_gpus[name] += len(gpus(host))
    return tuple(Count(name, number, of_gpus[name]) for name, number in numbers.most_common())


# Deviations


def _of_gpus(reading: str) -> Callable[[Mapping[str, Any]], str | None]:
    """The readings of all GPUs of a host as one value; None where one of them is unknown."""

    def value(facts: Mapping[str, Any]) -> str | None:
        values = [gpu[reading] for gpu in facts["gpus"]]
        if not values or None in values:
            return None
        return ", ".join(sorted({f"{item:g}" if isinstance(item, float) else str(item) for item in values}))

    return value


def _group_of(facts: Mapping[str, Any]) -> str:
    return ", ".join(sorted({gpu["name"] or "unknown" for gpu in facts["gpus"]})) or "no GPU"


ASPECTS: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "driver": lambda facts: facts["driver_version"],
    "kernel modules": lambda facts: facts["driver_kind"],
    "CUDA": lambda facts: facts["cuda_version"],
    "container toolkit": lambda facts: facts["container_toolkit_version"],
    "distribution": lambda facts: facts["system"]["distribution"],
    "kernel": lambda facts: facts["system"]["kernel"],
    "number of GPUs": lambda facts: str(len(facts["gpus"])),
    "VBIOS": _of_gpus("vbios_version"),
    "ECC mode": _of_gpus("ecc_mode"),
    "MIG mode": _of_gpus("mig_mode"),
    "persistence mode": _of_gpus("persistence_mode"),
    "power limit in W": _of_gpus("power_limit_w"),
}
"""What hosts with the same GPU models are expected to have in common."""
_MODES = {True: "enabled", False: "disabled"}


def deviations(hosts: Sequence[Host]) -> tuple[Deviation, ...]:
    """Differences from the declaration; where an aspect is not declared, from the majority of comparable hosts."""
    groups: dict[str, list[Host]] = {}
    for host in hosts:
        if host.facts:
            groups.setdefault(_group_of(host.facts), []).append(host)
    found = []
    for group, members in sorted(groups.items()):
        for aspect, value in ASPECTS.items():
            values = {host.name: value(host.facts or {}) for host in members}
            declared = {host.name: _declared(host, aspect) for host in members}
            found += _from_declared(aspect, group, values, declared)
            found += _from_majority(aspect, group, {name: values[name] for name in values if declared[name] is None})
    return tuple(found)


def _declared(host: Host, aspect: str) -> str | None:
    names = {
        "driver": "driver_version",
        "number of GPUs": "gpu_count",
        "ECC mode": "ecc",
        "persistence mode": "persistence_mode",
    }
    value = host.declared.get(names.get(aspect, ""))
    return None if value is None else _MODES[value] if isinstance(value, bool) else str(value)


def _is_as_declared(found: str, expected: str) -> bool:
    """Whether a value is the declared one, or a version of the declared branch."""
    return found == expected or found.startswith(f"{expected}.")


def _from_declared(
    aspect: str, group: str, values: Mapping[str, str | None], declared: Mapping[str, str | None]
) -> list[Deviation]:
    known = {name: (expected, values[name]) for name, expected in declared.items() if expected and values[name]}
    compared = Counter(expected for expected, _found in known.values())
    differing: dict[tuple[str, str], list[str]] = {}
    for name, (expected, found) in known.items():
        if not _is_as_declared(str(found), expected):
            differing.setdefault((expected, str(found)), []).append(name)
    wrong = Counter(expected for (expected, _found), names in differing.items() for _name in names)
    return [
        Deviation(
            aspect=aspect,
            group=group,
            basis="declared",
            expected=expected,
            found=found,
            agreeing=compared[expected] - wrong[expected],
            compared=compared[expected],
            hosts=tuple(sorted(names, key=natural)),
        )
        for (expected, found), names in differing.items()
    ]


def _from_majority(aspect: str, group: str, values: Mapping[str, str | None]) -> list[Deviation]:
    known = {name: value for name, value in values.items() if value is not None}
    counts = Counter(known.values())
    if len(known) < _SMALLEST_MAJORITY or len(counts) < 2:
        return []
    (expected, agreeing), *others = counts.most_common()
    if agreeing * 2 <= len(known):
        return []
    return [
        Deviation(
            aspect=aspect,
            group=group,
            basis="majority",
            expected=expected,
            found=other,
            agreeing=agreeing,
            compared=len(known),
            hosts=tuple(sorted((name for name, value in known.items() if value == other), key=natural)),
        )
        for other, _number in others
    ]


# Drivers, reboots


def branches(hosts: Sequence[Host], today: str) -> tuple[Branch, ...]:
    """The driver branches, those at the end of their life first; `today` is a date as 2026-11-22."""
    found: dict[int, list[str]] = {}
    for host in hosts:
        number = ((host.facts or {}).get("driver_version") or "").partition(".")[0]
        if number.isdecimal():
            found.setdefault(int(number), []).append(host.name)
    order = ("ended", "ending", "unknown", "supported")
    made = [
        Branch(number, *branch_end_of_life(number, today), tuple(sorted(names, key=natural)))
        for number, names in found.items()
    ]
    return tuple(sorted(made, key=lambda branch: (order.index(branch.state), branch.branch)))


def reboots(hosts: Sequence[Host]) -> tuple[Reboot, ...]:
    """Hosts that wait for a reboot, or for the reset of a GPU."""
    return tuple(
        Reboot(host.name, tuple(host.facts["reboot_reasons"]))
        for host in hosts
        if host.facts and host.facts["reboot_reasons"]
    )


# Racks, networks


def racks(hosts: Sequence[Host]) -> tuple[Rack, ...]:
    """Power of the GPUs of each rack, those above their budget first; the lowest budget of a rack's hosts counts."""
    found: dict[str | None, list[Host]] = {}
    for host in hosts:
        if host.facts and gpus(host):
            found.setdefault(host.rack, []).append(host)
    order = ("draw_above_budget", "limit_above_budget", "ok")
    made = [_rack(name, members) for name, members in found.items()]
    return tuple(sorted(made, key=lambda rack: (order.index(rack.state), natural(rack.rack or "\uffff"))))


def _rack(name: str | None, members: Sequence[Host]) -> Rack:
    listed = [gpu for host in members for gpu in gpus(host)]
    draw, limit = _watts(listed, "power_draw_w"), _watts(listed, "power_limit_w")
    budget = min(host.rack_power_budget_kw for host in members) * 1000
    # Without a rack they need not be in one place, so that no budget holds for their sum.
    above = "draw_above_budget" if draw > budget else "limit_above_budget" if limit > budget else "ok"
    return Rack(
        rack=name,
        hosts=tuple(sorted((host.name for host in members), key=natural)),
        gpus=len(listed),
        gpus_without_power=sum(gpu["power_draw_w"] is None for gpu in listed),
        power_draw_w=draw,
        power_limit_w=limit,
        budget_w=budget,
        state="ok" if name is None else above,
    )


def networks(hosts: Sequence[Host]) -> tuple[Network, ...]:
    """GPUs for each adapter, of hosts with more than one GPU; those with too few adapters first."""
    order = ("no_nic", "too_few", "ok", "ample")
    made = [_network(host) for host in hosts if len(gpus(host)) > 1]
    return tuple(sorted(made, key=lambda network: (order.index(network.state), natural(network.host))))


def _network(host: Host) -> Network:
    nics = [
        nic
        for nic in (host.facts or {})["nics"]
        if nic["rdma"] or (nic["speed_gb_per_second"] or 0.0) >= _FAST_GB_PER_SECOND
    ]
    rdma = sum(nic["rdma"] for nic in nics)
    number = len(gpus(host))
    ratio = number / (rdma or len(nics)) if nics else None
    state = (
        "no_nic"
        if ratio is None
        else "too_few"
        if ratio > _MOST_GPUS_PER_NIC
        else "ample"
        if ratio < _LEAST_GPUS_PER_NIC
        else "ok"
    )
    return Network(host.name, number, len(nics), rdma, None if ratio is None else round(ratio, 2), state)


def nvlink_domains(hosts: Sequence[Host]) -> tuple[Domain, ...]:
    """The NVLink domains of several hosts, with what is wrong between them; no host alone can be judged for it."""
    return domains_of([_member(host) for host in hosts])


def _member(host: Host) -> Member:
    facts = host.facts or {}
    found = observed(facts.get("driver_version"), facts.get("gpus", ()), facts.get("imex"))
    return member_of(host.name, host.nvlink_domain, read(Placement, found), is_read=host.facts is not None)


# MIG


def layouts(hosts: Sequence[Host]) -> tuple[Layout, ...]:
    """The MIG layouts of GPUs in MIG mode, the most frequent first."""
    number: Counter[tuple[str, tuple[Slice, ...]]] = Counter()
    used: Counter[tuple[str, tuple[Slice, ...]]] = Counter()
    members: dict[tuple[str, tuple[Slice, ...]], set[str]] = {}
    for host in hosts:
        for gpu in gpus(host):
            if gpu["mig_mode"] != "enabled" or gpu["instances"] is None:
                continue
            key = (gpu["name"] or "unknown", slices(gpu))
            number[key] += 1
            used[key] += len({process["gpu_instance_id"] for process in gpu["processes"]} - {None})
            members.setdefault(key, set()).add(host.name)
    return tuple(Layout(*key, len(members[key]), count, used[key]) for key, count in number.most_common())


def slices(gpu: Mapping[str, Any]) -> tuple[Slice, ...]:
    """The GPU instances of a GPU by their place."""
    found = [Slice(item["profile"], item["placement_start"], item["placement_size"]) for item in gpu["instances"] or ()]
    return tuple(sorted(found, key=lambda item: item.start))


# History


def histories(hosts: Sequence[Host]) -> tuple[ErrorHistory, ...]:
    """GPUs with ECC errors, remapped rows or Xids, those with uncorrected errors first."""
    made = [history for host in hosts if host.state == READ for history in _histories(host)]
    return tuple(
        sorted(
            made,
            key=lambda item: (
                -item.ecc_uncorrected,
                -item.remapped_rows_uncorrectable,
                -sum(xid.count for xid in item.xids),
                -item.remapped_rows_correctable,
                -item.ecc_corrected,
                natural(item.host),
                item.index is None,
                item.index,
            ),
        )
    )


def _histories(host: Host) -> Iterable[ErrorHistory]:
    xids: dict[str | None, list[XidEntry]] = {}
    for xid in (host.health or {}).get("kernel_log", {}).get("xids", ()):
        entry = XidEntry(xid["code"], xid["name"], xid["count"], xid["last_time"], xid["process"])
        xids.setdefault(xid["gpu"], []).append(entry)
    events = _events(host.health or {})
    for gpu in gpus(host):
        name = name_of(gpu)
        history = ErrorHistory(
            host=host.name,
            gpu=name,
            index=gpu["index"],
            serial=gpu["serial"],
            ecc_corrected=gpu["ecc_aggregate_corrected"] or 0,
            ecc_uncorrected=gpu["ecc_aggregate_uncorrected"] or 0,
            remapped_rows_correctable=gpu["remapped_rows_correctable"] or 0,
            remapped_rows_uncorrectable=gpu["remapped_rows_uncorrectable"] or 0,
            xids=tuple(xids.pop(name, ())),
            events=events.get(name, ()),
        )
        if history.xids or error_count(history) or any(event.kind != "verdict" for event in history.events):
            yield history
    # Of GPUs that nvidia-smi no longer lists.
    for lost, entries in xids.items():
        found = events.get(lost or "", ())
        yield ErrorHistory(host.name, lost or "unknown", None, None, 0, 0, 0, 0, tuple(entries), found)


def _events(health: Mapping[str, Any]) -> dict[str, tuple[HistoryEvent, ...]]:
    """What the history of a host has by GPU."""
    found: dict[str, list[HistoryEvent]] = {}
    for change in health.get("changes", ()):
        found.setdefault(change["gpu"], []).append(HistoryEvent(change["time"], "verdict", change["verdict"], 1))
    for error in health.get("error_history", ()):
        code = None if error["xid"] is None else str(error["xid"])
        event = HistoryEvent(error["time"], error["kind"], code, error["count"])
        found.setdefault(error["gpu"], []).append(event)
    return {gpu: tuple(sorted(events, key=lambda event: event.time)) for gpu, events in found.items()}


def error_count(history: ErrorHistory) -> int:
    """All ECC errors and remapped rows of a GPU."""
    return (
        history.ecc_corrected
        + history.ecc_uncorrected
        + history.remapped_rows_correctable
        + history.remapped_rows_uncorrectable
    )
