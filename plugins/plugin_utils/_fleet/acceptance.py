# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts run all-reduces together, and which of them is slow or wrong. Private to this collection.

Pure: hosts and options in, rounds of pairs out; results of these in, the verdict out. What a host has returned is its
own: a number that is none, or another size than requested, is a failure of that host.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

from ...module_utils._common.json_text import parse_json
from ...module_utils._common.plain_text import one_line
from .documents import (
    WHAT_TO_DO,
    Adapter,
    Adapters,
    Ended,
    FormError,
    Health,
    LinkedGpu,
    LinkedGpus,
    Printed,
    read,
)

PREFIX = "gpu_fleet_accept_"
NCCL, GLOO = "nccl", "gloo"
_TESTS = ("nccl", "nvbandwidth")
# Rows of the module gpu_health that are about its tests. What else it finds does not belong to an acceptance.
_TEST_ROWS = re.compile(r"test_.*|(?:host|peer|nccl)_bandwidth")
ALL = "all"
"""The name of the round in which all hosts run together."""
_LONGEST_REASON, _LONGEST_STDERR = 300, 16_384
_MIB = 2**20
_GRACE_S = 30
_ADDRESS = re.compile(r"[0-9A-Za-z][0-9A-Za-z.:_-]*")
_INTERFACE = re.compile(r"[\w.@=^,:-]*")
_NUMBERS = {
    "iterations": (1, 10_000),
    "port": (1024, 65_535),
    "size_mib": (1, 65_536),
    "timeout_s": (10, 3_600),
}
# GB/s of a lane in one direction, with its encoding: PCI Express Base Specification, by generation.
_PCIE_LANE: Mapping[Any, float] = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_LIKELY_COMMON = 2
"""From this many pairs on, a reason that all of them share concerns none of the hosts."""


class AcceptanceError(ValueError):
    """An acceptance that cannot be planned; the message is for the user."""


@dataclass(frozen=True)
class Options:
    """The variables gpu_fleet_accept_* by the rest of their names.

    slow_below: the part of the median of all pairs below which the best pair of a host is slow. minimum_gb_s: the least
    bus bandwidth of a host's best pair in GB/s; 0: none. expected_part: the part of what the slowest link between the
    GPUs carries below which all pairs of a host are slow; 0: none. tests: programs that each host runs on its own GPUs.
    """

    backend: str = NCCL
    python: str = "python3"
    size_mib: int = 256
    iterations: int = 20
    timeout_s: int = 300
    port: int = 29_577
    interface: str = ""
    address: str = ""
    slow_below: float = 0.8
    minimum_gb_s: float = 0.0
    expected_part: float = 0.4
    dir: str = "gpu-fleet-accept"
    tests: tuple[str, ...] = ()


VARIABLES = tuple(option.name for option in fields(Options))


@dataclass(frozen=True)
class Links:
    """What the links of a host carry in one direction, in GB/s, and what they are; 0 where that is not known.

    `gpu` is the bandwidth of each GPU: its NVLinks, or PCIe. `network` is the sum of all adapters with RDMA
    and a link. `domain` is the NVLink domain of several hosts that the GPUs are in.
    """

    gpu: float = 0.0
    network: float = 0.0
    domain: str = ""
    gpu_by: str = ""
    network_by: str = ""


@dataclass(frozen=True)
class Member:
    """A host: where others reach it, the number of its GPUs, and why it cannot take part, where it cannot."""

    name: str
    address: str
    gpus: int = 1
    refusal: str = ""
    options: Options = field(default_factory=Options)
    links: Links = field(default_factory=Links)


@dataclass(frozen=True)
class Round:
    """All-reduces that run at the same time: pairs of hosts, or all of them."""

    name: str
    groups: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        """The round as it is shown."""
        return f"{self.name}: {', '.join(' + '.join(group) for group in self.groups)}"


@dataclass(frozen=True)
class Run:
    """What an all-reduce of a group has shown. `gb_s` is the bus bandwidth in GB/s, 0 where it failed.

    `bound_gb_s` is what the slowest link carries, `bound_by`; 0 where it is not known.
    """

    round: str
    hosts: tuple[str, ...]
    gb_s: float = 0.0
    reasons: Mapping[str, str] = field(default_factory=dict)
    bound_gb_s: float = 0.0
    bound_by: str = ""

    @property
    def is_right(self) -> bool:
        """Whether all sums were right."""
        return not self.reasons


@dataclass(frozen=True)
class Acceptance:
    """The verdict. `problems` belong to each host, `common` to no single one; with none of both it is accepted."""

    runs: tuple[Run, ...]
    median_gb_s: float = 0.0
    best_gb_s: Mapping[str, float] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    common: tuple[str, ...] = ()
    tests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By host and test what a program of the host has measured."""

    @property
    def is_accepted(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and not self.common

    def _members(self) -> list[str]:
        """All hosts, of which each one fails for what is common."""
        return [*dict.fromkeys([*(name for run in self.runs for name in run.hosts), *self.problems])]

    def _reasons(self, name: str) -> str:
        return one_line("; ".join((*self.common, *self.problems.get(name, ()))))

    def message(self) -> str:
        """What is printed at the end, with the reasons where the cluster is not accepted."""
        if self.is_accepted:
            together = [f"all together {run.gb_s:.2f} GB/s" for run in self.runs if run.round == ALL]
            pairs = [f"median of the pairs {self.median_gb_s:.2f} GB/s"] if self.median_gb_s else []
            return f"accepted: {', '.join(pairs + together)}"
        reasons = [f"{name}: {', and '.join(found)}" for name, found in self.problems.items()]
        return f"not accepted: {'; '.join([*self.common, *reasons])}"

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        runs = [
            {
                "round": run.round,
                "hosts": list(run.hosts),
                "gb_s": round(run.gb_s, 3),
                "bound_gb_s": round(run.bound_gb_s, 3),
                "bound_by": run.bound_by,
                "reasons": dict(run.reasons),
            }
            for run in self.runs
        ]
        return {
            "accepted": self.is_accepted,
            "median_gb_s": round(self.median_gb_s, 3),
            "best_gb_s": {name: round(value, 3) for name, value in self.best_gb_s.items()},
            "reasons": {name: self._reasons(name) for name in self._members() if self._reasons(name)},
            "problems": {name: list(found) for name, found in self.problems.items()},
            "common": list(self.common),
            "tests": {name: dict(found) for name, found in self.tests.items()},
            "runs": runs,
        }


# The variables


def read_options(variables: Mapping[str, Any]) -> Options:
    """The options in the variables of a host; AcceptanceError for a value that is not one of theirs."""
    given = {name: variables[PREFIX + name] for name in VARIABLES if variables.get(PREFIX + name) is not None}
    read = {name: _read(name, value) for name, value in given.items()}
    return Options(**read)


def _read(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        least, most = _NUMBERS[name]
        whole = int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value) else value
        if not isinstance(whole, int) or isinstance(whole, bool) or not least <= whole <= most:
            raise _wrong(name, value, f"a whole number from {least} to {most}")
        return whole
    if name in ("slow_below", "expected_part", "minimum_gb_s"):
        number = _number(value)
        largest = 1e6 if name == "minimum_gb_s" else 1.0
        if number is None or not 0 <= number <= largest:
            raise _wrong(name, value, f"a number from 0 to {largest:g}")
        return number
    if name == "tests":
        if not isinstance(value, list) or any(one not in _TESTS for one in value):
            raise _wrong(name, value, f"a list of {' and '.join(_TESTS)}")
        return tuple(value)
    if not isinstance(value, str) or "\n" in value:
        raise _wrong(name, value, "text")
    if name == "backend" and value not in (NCCL, GLOO):
        raise _wrong(name, value, f"{NCCL} or {GLOO}")
    if name == "address" and value and not _ADDRESS.fullmatch(value):
        raise _wrong(name, value, "an address or a name that the other hosts reach")
    if name == "interface" and not _INTERFACE.fullmatch(value):
        raise _wrong(name, value, "names of network interfaces, such as ens1f0 or ib0,ib1")
    return value


def _number(value: Any) -> float | None:
    try:
        number = None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if number is not None and math.isfinite(number) else None


def _wrong(name: str, value: object, allowed: str) -> AcceptanceError:
    return AcceptanceError(f"{PREFIX}{name} is {value!r:.80}; it takes {allowed}")


def read_member(name: str, gpus: Any, address: str, options: Options, nics: Any = None) -> Member:
    """A host by the results of nvidia_smi_facts and report_facts.

    Only NCCL needs GPUs, whole ones that nothing else uses; with gloo a host has one process.
    """
    address = options.address or address
    if options.backend == GLOO:
        return Member(name, address, options=options)
    try:
        found = read(LinkedGpus, gpus["ansible_facts"]["nvidia_smi"]).gpus
        # Without its result nothing is expected of the network.
        adapters = read(Adapters, nics["host"]).nics if isinstance(nics, Mapping) and "host" in nics else ()
    except FormError as error:
        return Member(name, address, 0, f"its GPUs and adapters cannot be read: {error}; {WHAT_TO_DO}", options)
    except (KeyError, TypeError):
        return Member(name, address, 0, "its GPUs cannot be read; see the module nvidia_smi_facts", options)
    users = [f"{process.name} ({process.pid})" for gpu in found for process in gpu.processes or ()]
    split = [f"MIG on GPU {gpu.index}" for gpu in found if gpu.mig_mode_current == "enabled"]
    used = ", ".join(one_line(text, 80) for text in (*users, *split))[:_LONGEST_REASON]
    refusal = f"its GPUs are in use: {used}" if used else "" if found else "it has no GPU"
    return Member(name, address, len(found), refusal, options, links_of(found, adapters))


def links_of(gpus: Sequence[LinkedGpu], adapters: Sequence[Adapter]) -> Links:
    """The links of a host by its GPUs and its adapters."""
    by_nvlink = [_nvlink(gpu, gpus) for gpu in gpus]
    of_gpus = by_nvlink if all(by_nvlink) else [_pcie(gpu) for gpu in gpus]
    places = {(gpu.fabric_cluster_uuid, gpu.fabric_clique_id) for gpu in gpus}
    ((cluster, clique),) = places if len(places) == 1 else {(None, None)}
    rates = [one.speed_gb_per_second or 0.0 for one in adapters if one.rdma and one.up]
    slowest = min(of_gpus, default=0.0)
    return Links(
        gpu=slowest,
        network=sum(rates) / 8,
        domain=one_line(f"{cluster}.{clique}", 80) if cluster and clique and cluster != _NO_CLUSTER else "",
        gpu_by=f"{'NVLink' if all(by_nvlink) else 'PCIe'} of a GPU, {slowest:.0f} GB/s",
        network_by=f"{len(rates)} adapters, {sum(rates):.0f} Gbit/s",
    )


def _nvlink(gpu: LinkedGpu, gpus: Sequence[LinkedGpu]) -> float:
    """What all NVLinks of a GPU carry; 0 where bridges connect it to some of the others only."""
    active = [link for link in gpu.nvlinks or () if link.active]
    others = {one.pci_bus_id for one in gpus} - {gpu.pci_bus_id}
    direct = {link.remote_pci_bus_id for link in active} & others
    return 0.0 if direct and direct != others else sum(link.speed_gb_per_second or 0.0 for link in active)


def _pcie(gpu: LinkedGpu) -> float:
    """An idle GPU lowers the generation of its link, and never the width."""
    return _PCIE_LANE.get(gpu.pci_link_gen_max, 0.0) * (gpu.pci_link_width_current or 0.0)


def bound(members: Sequence[Member]) -> tuple[float, str]:
    """The bus bandwidth that the slowest link of these hosts allows, and that link; 0 where one is not known.

    In a ring each link carries as much as the bus bandwidth states. Sums in the switches (SHARP) can exceed it.
    """
    is_one_domain = len({member.links.domain for member in members}) == 1 and bool(members[0].links.domain)
    of_hosts = len(members) > 1 and not is_one_domain
    found = [
        (one.links.gpu, one.links.gpu_by) for one in members if one.gpus > 1 or (len(members) > 1 and not of_hosts)
    ]
    found += [(one.links.network, one.links.network_by) for one in members] if of_hosts else []
    slowest = min(found, default=(0.0, ""))
    return slowest if slowest[0] else (0.0, "")


# The rounds


def plan(members: Sequence[Member]) -> tuple[Round, ...]:
    """Rounds of pairs, log2 of the number of hosts, and one of all; AcceptanceError where no host can take part.

    Each host runs with others in each round, so that its best pair shows what it can do: a slow partner slows one pair.
    """
    differing = {
        name
        for name in ("backend", "size_mib", "iterations")
        for member in members[1:]
        if getattr(member.options, name) != getattr(members[0].options, name)
    }
    if differing:
        raise AcceptanceError(f"{PREFIX}{', '.join(sorted(differing))} is not the same on all hosts")
    names = [member.name for member in members if not member.refusal]
    if not names:
        reasons = "; ".join(f"{member.name}: {member.refusal}" for member in members)
        raise AcceptanceError(f"no host can take part: {reasons or 'the play has none'}")
    return (*_pairs(names), Round(ALL, (tuple(names),)))


def _pairs(names: Sequence[str]) -> Iterator[Round]:
    """Rounds of a tournament: in each one a host has another partner, and with an odd number one of them waits."""
    places: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    number = math.ceil(math.log2(len(names))) if len(names) > 1 else 0
    for turn in range(number):
        half = len(places) // 2
        facing = zip(places[:half], reversed(places[half:]), strict=True)
        yield Round(f"pairs {turn + 1}", tuple((one, other) for one, other in facing if one and other))
        places = [places[0], places[-1], *places[1:-1]]


def parts(group: Sequence[str], members: Mapping[str, Member]) -> dict[str, list[str]]:
    """The command on each host of a group: the first one has the address that all of them meet at."""
    leader, first, arguments = members[group[0]], 0, {}
    world = sum(members[name].gpus for name in group)
    for name in group:
        member = members[name]
        numbers = {
            "port": leader.options.port,
            "first": first,
            "processes": member.gpus,
            "world": world,
            "mib": member.options.size_mib,
            "iterations": member.options.iterations,
            "timeout": member.options.timeout_s,
        }
        arguments[name] = [
            # The program ends itself before; this ends one that hangs, also where the controller is gone.
            *("timeout", "--kill-after=5", str(member.options.timeout_s + 5), member.options.python, "-"),
            f"--backend={member.options.backend}",
            f"--master={f'[{leader.address}]' if ':' in leader.address else leader.address}",
            f"--interface={member.options.interface}",
            *(f"--{option}={number}" for option, number in numbers.items()),
        ]
        first += member.gpus
    return arguments


def limits(members: Sequence[Member]) -> dict[str, int]:
    """For Ansible's asynchronous tasks: after how many seconds it kills a program, and how often it looks, each 2 s."""
    seconds = max(member.options.timeout_s for member in members) + _GRACE_S
    return {"limit_s": seconds, "attempts": seconds // 2 + _GRACE_S}


# The verdict


def read_run(name: str, group: Sequence[str], results: Mapping[str, Any], members: Mapping[str, Member]) -> Run:
    """What the hosts of a group have returned: of each one the result of the task that waited for it."""
    reasons, seconds = {}, []
    world = sum(members[host].gpus for host in group)
    for host in group:
        found = _read_result(results.get(host), members[host].options, world)
        if isinstance(found, str):
            reasons[host] = one_line(found, _LONGEST_REASON)
        else:
            seconds.append(found)
    limit, by = bound([members[host] for host in group])
    if reasons:
        return Run(name, tuple(group), reasons=reasons, bound_gb_s=limit, bound_by=by)
    # As nccl-tests have it: what each link carries, independent of the number of GPUs.
    factor = 2 * (world - 1) / world if world > 1 else 1
    size = members[group[0]].options.size_mib * _MIB
    return Run(name, tuple(group), gb_s=factor * size / max(seconds) / 1e9, bound_gb_s=limit, bound_by=by)


def _read_result(found: Any, options: Options, world: int) -> float | str:
    """The median of a host's seconds, or what is wrong with its result."""
    if not isinstance(found, Mapping):
        return "it returned nothing"
    try:
        result = read(Ended, found)
    except FormError as error:
        return f"it is not the result of a task: {error}"
    if result.rc != 0:
        return _failure(result, options)
    try:
        printed = read(Printed, parse_json((result.stdout or "").strip().splitlines()[-1]))
    except FormError as error:
        return (
            f"it printed an invalid number of seconds: {error}" if "seconds[" in error.place else "it printed no result"
        )
    except (IndexError, ValueError):
        return "it printed no result"
    if printed.wrong != 0:
        return "its sums were wrong" if isinstance(printed.wrong, int) else "it printed no result"
    if len(printed.seconds) != options.iterations:
        return "it printed another number of results than requested"
    if (printed.bytes, printed.world) != (options.size_mib * _MIB, world):
        return "it computed another sum than requested"
    return median(printed.seconds)


def _failure(result: Ended, options: Options) -> str:
    if result.rc in (-14, 142, 124, 137, -9):
        return f"it did not end within {options.timeout_s} s"
    if result.rc is None and result.finished in (0, False):
        return f"it did not end within {options.timeout_s} s"
    lines = (result.stderr or result.msg or "").strip().splitlines()
    return f"it failed: {lines[-1][:_LONGEST_STDERR].strip() if lines else 'no reason given'}"


def result_of(results: Any, number: int) -> Any:
    """The result of a round that a host has registered: of its end, or of a start that failed."""
    found = results[number] if isinstance(results, list) and number < len(results) else None
    if not isinstance(found, list) or len(found) != 2 or not all(isinstance(one, Mapping) for one in found):
        return None
    start, end = found
    return start if end.get("skipped") else end


def read_tests(result: Any, names: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """What the tests of a host have measured, by their names, and what is wrong, of the result of gpu_health."""
    try:
        health = read(Health, result)
    except FormError as error:
        message = result.get("msg") if isinstance(result, Mapping) and "verdict" not in result else None
        why = message if isinstance(message, str) else f"{error}; {WHAT_TO_DO}" if result else "none was returned"
        return {}, [f"its tests have no result: {one_line(why[:_LONGEST_STDERR], _LONGEST_REASON)}"]
    found = {one.name: one_line(one.evidence, _LONGEST_REASON) for one in health.tests}
    wrong = [one_line(one.message, _LONGEST_REASON) for one in health.findings if _TEST_ROWS.fullmatch(one.row)]
    measured = {name: found[name] for name in names if name in found}
    missing = [] if wrong else [f"{name} has no result" for name in names if name not in measured]
    return measured, [*wrong, *missing]


def judge(
    runs: Sequence[Run],
    members: Mapping[str, Member],
    lost: Mapping[str, str] | None = None,
    tests: Mapping[str, Any] | None = None,
) -> Acceptance:
    """Which hosts are slow or wrong, by comparison of pairs. `lost` took no part, for these reasons.

    tests: of each host that runs tests the result of gpu_health with them.
    """
    pairs = [run for run in runs if run.round != ALL]
    right = [run for run in pairs if run.is_right]
    middle = median(run.gb_s for run in right) if right else 0.0
    best = {
        name: max((run.gb_s for run in right if name in run.hosts), default=0.0)
        for name in members
        if any(name in run.hosts for run in pairs)
    }
    below = {name: reason for name in members for reason in _below(name, runs, members[name])}
    common = tuple(_common(runs, pairs, right))
    if not common and len(below) == len(members) > 1:
        common = (f"all hosts are slow for their links, so the cause is common: {next(iter(below.values()))}",)
    problems: dict[str, tuple[str, ...]] = {name: (reason,) for name, reason in (lost or {}).items()}
    read = {name: read_tests((tests or {}).get(name), one.options.tests) for name, one in members.items()}
    for name in members:
        own = (*_failures(name, pairs, right), *_slowness(name, best, middle, members[name]), *_alone(name, runs))
        found = () if common else own
        found = (*found, below[name]) if name in below and not common else found
        # What a host computes alone has no cause in common with others.
        found = (*found, *(read[name][1] if members[name].options.tests else ()))
        # One that has begun to lie by its facts since the rounds were planned.
        found = (*found, *filter(None, [members[name].refusal]))
        if found:
            problems[name] = found
    if not common:
        problems.update(_unexplained(runs, problems))
    measured = {name: found for name, (found, _wrong) in read.items() if found}
    return Acceptance(tuple(runs), middle, best, problems, common, measured)


def _common(runs: Sequence[Run], pairs: Sequence[Run], right: Sequence[Run]) -> Iterator[str]:
    """Failures that no single host explains."""
    if len(pairs) >= _LIKELY_COMMON and not right and len({name for run in pairs for name in run.reasons}) > 1:
        yield f"no pair of hosts has a right sum, so the cause is common: {_reason(pairs[0])}"
        return
    for run in runs:
        if run.round == ALL and len(run.reasons) > 1 and pairs and len(right) == len(pairs):
            yield f"each pair of hosts has right sums, and all hosts together have none: {_reason(run)}"


def _reason(run: Run) -> str:
    return "; ".join(f"{host}: {reason}" for host, reason in run.reasons.items())[:_LONGEST_REASON]


def _failures(name: str, pairs: Sequence[Run], right: Sequence[Run]) -> Iterator[str]:
    """Why a host is to blame for failures: all its pairs failed, or one with a host that has no other failure."""
    own = [run for run in pairs if name in run.hosts]
    # Where its own result is right, only the other one's is not.
    failed = [run for run in own if name in run.reasons]
    if not failed:
        return
    broken = {one for run in pairs for one in run.hosts if not any(one in other.hosts for other in right)}
    if name in broken:
        # Of two hosts that have no right sum, one may have failed by the other.
        partners = {one for run in failed for one in run.hosts} - {name}
        if partners <= broken and len(own) > 1:
            yield f"all {len(own)} pairs failed, and so did all pairs of its partners: {_reason(failed[0])}"
        else:
            number = f"all {len(own)} pairs" if len(own) > 1 else "its only pair"
            yield f"{number} failed: {_reason(failed[0])}"
        return
    for run in failed:
        (partner,) = {*run.hosts} - {name}
        if partner not in broken:
            yield f"the pair with {partner} failed, and other pairs of both did not: {_reason(run)}"


def _alone(name: str, runs: Sequence[Run]) -> Iterator[str]:
    """That a host alone has no result of all hosts together: a sum is over all of them, or over none."""
    for run in runs:
        if run.round == ALL and [*run.reasons] == [name]:
            others = "the others have right sums of all hosts together" if len(run.hosts) > 1 else "its sums failed"
            yield f"{others}: {_reason(run)}"


def _unexplained(runs: Sequence[Run], problems: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """By host its failed runs where no host of the run is to blame: what has failed is never accepted."""
    failed = [run for run in runs if not run.is_right and not any(name in problems for name in run.hosts)]
    return {
        name: (f"{' and '.join(run.hosts[:3])} have no right sum together: {_reason(run)}",)
        for run in failed
        for name in run.hosts
    }


def _slowness(name: str, best: Mapping[str, float], middle: float, member: Member) -> Iterator[str]:
    found = best.get(name, 0.0)
    if not found:
        return
    if found < member.options.slow_below * middle:
        part = f"{100 * found / middle:.0f} % of the median of all pairs, {middle:.2f} GB/s"
        yield f"its best pair has {found:.2f} GB/s, {part}"
    if found < member.options.minimum_gb_s:
        yield f"its best pair has {found:.2f} GB/s, and {PREFIX}minimum_gb_s is {member.options.minimum_gb_s:g}"


def _below(name: str, runs: Sequence[Run], member: Member) -> Iterator[str]:
    """That no run of a host has the expected part of what its slowest link carries. A host alone has one run."""
    own = [run for run in runs if name in run.hosts and run.is_right and run.bound_gb_s]
    pairs = [run for run in own if run.round != ALL] or own
    if not pairs:
        return
    best = max(pairs, key=lambda run: run.gb_s / run.bound_gb_s)
    if best.gb_s < member.options.expected_part * best.bound_gb_s:
        yield (
            f"its best run has {best.gb_s:.2f} GB/s, {100 * best.gb_s / best.bound_gb_s:.0f} % of what the slowest "
            f"link carries ({best.bound_by}), and {PREFIX}expected_part is {member.options.expected_part:g}"
        )
