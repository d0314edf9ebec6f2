# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are an NVLink domain, and what is wrong between them. Private to this collection.

Pure: members with what they report in, domains with findings out, for the report, the upgrade and the remedies.
The compute trays of GB200 and GB300 have one domain for several hosts, so that no host alone can be judged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._common.plain_text import one_line
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import FAIL, WARN

from .documents import Imex, Placement

VARIABLE = "gpu_fleet_nvlink_domain"
_RACK_SCALE = ("GB200", "GB300")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_MOST_NAMES = 6
_FABRIC = (
    "check the subnet manager and the NMX controller on the NVLink switch trays; no host has a Fabric Manager here"
)


@dataclass(frozen=True)
class Fabric:
    """What the driver reports of a GPU's place in the NVLink fabric; `clique` is a partition of `cluster`."""

    cluster: str
    clique: int

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.cluster}.{self.clique}"

    @property
    def is_unset(self) -> bool:
        """Whether the fabric has not been configured: of a rack neither of them is zero."""
        return self.cluster == _NO_UUID or self.clique == 0


@dataclass(frozen=True)
class Member:
    """A host. `domain` is what the inventory names, `unit` what gpu_fleet_upgrade_unit does, both empty for nothing.

    `imex` is the version of its IMEX, `imex_unit` the state of the service, "masked" where Kubernetes runs IMEX; both
    are empty where they were not read. `imex_domain` is what its service knows of the domain where that is not up, and
    `imex_channels` the number of device nodes. `is_read`: the host could be reached.
    """

    host: str
    domain: str = ""
    unit: str = ""
    driver: str = ""
    imex: str = ""
    imex_unit: str = ""
    imex_domain: str = ""
    imex_channels: int | None = None
    fabrics: tuple[Fabric, ...] = ()
    is_rack_scale: bool = False
    is_read: bool = True

    @property
    def place(self) -> Fabric | None:
        """The place of all its GPUs; None where they are in different ones, or in none that has been configured."""
        places = {*self.fabrics}
        return next(iter(places)) if len(places) == 1 and not self.fabrics[0].is_unset else None


@dataclass(frozen=True)
class DomainFinding:
    """What is wrong in a domain, and with which of its hosts. `what_to_do` is for a person."""

    row: str
    verdict: str
    symptom: str
    what_to_do: str
    messages: Mapping[str, str]


@dataclass(frozen=True)
class Domain:
    """`hosts` are in the order of the members. `is_proposed`: the inventory does not name it, the facts do."""

    name: str
    hosts: tuple[str, ...]
    is_proposed: bool
    findings: tuple[DomainFinding, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For a document."""
        return asdict(self)


def observed(
    driver: object, gpus: Iterable[Mapping[str, Any]], imex: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a host has, as its modules return it, for Placement: the version of its driver, GPUs, the service IMEX."""
    return {
        "driver": driver,
        "gpus": [{name: gpu.get(name) for name in ("name", "fabric_cluster_uuid", "fabric_clique_id")} for gpu in gpus],
        "imex": imex or {},
    }


def member_of(host: str, domain: object, found: Placement, *, unit: str = "", is_read: bool = True) -> Member:
    """The member with what was `observed`. A place that is no UUID is unknown."""
    imex = found.imex
    fabrics = [
        Fabric(str(gpu.fabric_cluster_uuid).lower(), gpu.fabric_clique_id)
        for gpu in found.gpus
        if _UUID.fullmatch(str(gpu.fabric_cluster_uuid).lower()) and gpu.fabric_clique_id is not None
    ]
    masked = "masked" if (imex.enabled or "").startswith("masked") else ""
    return Member(
        host,
        domain=str(domain or ""),
        unit=unit,
        driver=_version(found.driver),
        imex=_version(imex.version),
        imex_unit=masked or one_line(imex.state or ("absent" if imex.installed is False else ""), 40),
        imex_domain=_state_of_domain(imex),
        imex_channels=imex.channels,
        fabrics=tuple(fabrics),
        is_rack_scale=any(model in (gpu.name or "") for gpu in found.gpus for model in _RACK_SCALE),
        is_read=is_read,
    )


def undeclared(member: Member) -> str:
    """Why a tray of a rack is not changed alone; empty for another host.

    By what it reports of itself only: what others report of its domain proposes one, and decides nothing.
    """
    if member.domain or member.unit or not member.is_rack_scale or member.place is None:
        return ""
    return (
        f"it is a tray of the NVLink domain {member.place.name}, by its own report, and the inventory names none; set "
        f"{VARIABLE} for the hosts of the rack, which are changed as one then"
    )


def domains_of(members: Sequence[Member]) -> tuple[Domain, ...]:
    """All domains with what is wrong in them: first of the inventory, then the proposed ones."""
    named: dict[str, list[Member]] = {}
    for member in members:
        if member.domain:
            named.setdefault(member.domain, []).append(member)
    found = [Domain(name, tuple(one.host for one in hosts), False) for name, hosts in named.items()]
    by_name = {member.host: member for member in members}
    return tuple(
        Domain(
            one.name, one.hosts, one.is_proposed, tuple(_findings(one, [by_name[host] for host in one.hosts], members))
        )
        for one in (*found, *_proposed(members))
    )


def contradictions(domains: Iterable[Domain]) -> dict[str, str]:
    """Why hosts cannot be changed as one: what the inventory names a domain is several. Zeros contradict nothing."""
    return {
        host: f"{VARIABLE} {domain.name}: {_found(finding)}; {finding.what_to_do}"
        for domain in domains
        for finding in domain.findings
        if finding.row == "nvlink_domain_cluster"
        for host in domain.hosts
    }


def domain_lines(domains: Iterable[Domain]) -> list[str]:
    """The domains for people: the proposed ones, and what is wrong."""
    lines = []
    for domain in domains:
        if domain.is_proposed:
            lines.append(
                f"NVLink domain {domain.name}, by the facts: {_listed(domain.hosts)}; proposed and not acted on; name "
                f"it by {VARIABLE}"
            )
        for finding in domain.findings:
            lines.append(f"NVLink domain {domain.name}: {finding.symptom} ({_found(finding)}); {finding.what_to_do}")
    return lines


def _found(finding: DomainFinding) -> str:
    return _listed(tuple(f"{host}: {text}" for host, text in finding.messages.items()))


def _proposed(members: Sequence[Member]) -> list[Domain]:
    """Hosts that the inventory leaves open, by the place that they report, where that is shared.

    It is shown and never acted on: a host must not join what others are by its word alone. One that shares a place with
    a named domain is none.
    """
    taken = {member.place for member in members if member.domain or member.unit}
    places: dict[Fabric, list[str]] = {}
    for member in members:
        place = None if member.domain or member.unit else member.place
        if place is not None and place not in taken:
            places.setdefault(place, []).append(member.host)
    return [Domain(at.name, tuple(hosts), True) for at, hosts in places.items() if len(hosts) > 1]


def _findings(domain: Domain, members: Sequence[Member], all_members: Sequence[Member]) -> Iterator[DomainFinding]:
    read = [member for member in members if member.is_read]
    lost = {member.host: "not read" for member in members if not member.is_read}
    if lost:
        yield DomainFinding(
            "nvlink_domain_incomplete",
            WARN,
            f"{len(read)} of {len(members)} declared hosts of an NVLink domain were read",
            f"repair the host, or remove {VARIABLE} from it",
            lost,
        )
    unset = {one.host: _places(one) for one in read if one.is_rack_scale and any(at.is_unset for at in one.fabrics)}
    if unset:
        yield DomainFinding("nvlink_domain_unset", FAIL, "a cluster UUID or clique of zero", _FABRIC, unset)
    yield from _places_differ(domain, [one for one in read if one.fabrics and one.host not in unset], all_members)
    yield from _versions_differ(read)
    yield from _without_service(read)


def _places_differ(domain: Domain, read: Sequence[Member], members: Sequence[Member]) -> Iterator[DomainFinding]:
    clusters = _others(read, lambda one: ", ".join(sorted({at.cluster for at in one.fabrics})), "cluster ")
    if clusters:
        yield DomainFinding(
            "nvlink_domain_cluster",
            FAIL,
            "hosts of one NVLink domain are in different clusters",
            f"correct {VARIABLE} in the inventory, or the cabling",
            clusters,
        )
    same = [one for one in read if one.host not in clusters]
    cliques = _others(same, lambda one: ", ".join(map(str, sorted({at.clique for at in one.fabrics}))), "clique ")
    if cliques:
        yield DomainFinding(
            "nvlink_domain_clique",
            FAIL,
            "hosts of one NVLink domain are in different cliques",
            f"give each partition its own {VARIABLE}, or correct the partitions on the NVLink switch trays",
            cliques,
        )
    if domain.is_proposed:
        return
    places = {one.place for one in same} - {None}
    strays = {one.host: "names no domain" for one in members if not one.domain and not one.unit and one.place in places}
    if strays:
        yield DomainFinding(
            "nvlink_domain_undeclared",
            WARN,
            "hosts that the inventory does not name are in the same clique",
            f"set {VARIABLE} for them",
            strays,
        )


def _versions_differ(read: Sequence[Member]) -> Iterator[DomainFinding]:
    rows: tuple[tuple[str, str, Callable[[Member], str]], ...] = (
        ("nvlink_domain_driver", "different driver versions", lambda one: one.driver),
        ("nvlink_domain_imex", "different versions of IMEX", lambda one: one.imex),
    )
    for row, symptom, version in rows:
        differing = _others([one for one in read if version(one)], version, "")
        if differing:
            what = "bring them to one version; run gpu.fleet.upgrade, which changes a domain as one unit"
            yield DomainFinding(row, FAIL, f"hosts of one NVLink domain have {symptom}", what, differing)


def _without_service(read: Sequence[Member]) -> Iterator[DomainFinding]:
    """IMEX runs on all of them, or on none, where Kubernetes starts it in pods: masked, or not installed."""
    known = [one for one in read if one.imex_unit]
    idle = {one.host: f"nvidia-imex.service is {one.imex_unit}" for one in known if one.imex_unit != "active"}
    if idle and not all(one.imex_unit in ("masked", "absent") for one in known):
        yield DomainFinding(
            "nvlink_domain_service",
            FAIL,
            "hosts of one NVLink domain without a running IMEX",
            "run gpu.fleet.nvidia_driver on all of them, with the same nvidia_driver_imex",
            idle,
        )

    split = {one.host: one.imex_domain for one in known if one.imex_unit == "active" and one.imex_domain}
    if split:
        yield DomainFinding(
            "nvlink_domain_state",
            FAIL,
            "IMEX does not reach all nodes of an NVLink domain",
            "compare nodes_config.cfg, the same on all of them, and see journalctl -u nvidia-imex.service there",
            split,
        )
    bare = {one.host: "no channel" for one in known if one.imex_unit == "active" and one.imex_channels == 0}
    if bare:
        yield DomainFinding(
            "nvlink_domain_channels",
            WARN,
            "IMEX runs without a device node of a channel, which jobs need",
            "set NVreg_CreateImexChannel0 in nvidia_driver_module_options, unless a scheduler makes them for its jobs",
            bare,
        )


def _state_of_domain(imex: Imex) -> str:
    """What IMEX knows of its domain, empty where it is up or could not be read."""
    nodes = [f"{host} {state}" for host, state in imex.nodes_not_ready.items()]
    is_up = imex.domain_status in (None, "UP")
    return "" if is_up else one_line(f"{imex.domain_status}: {_listed(nodes)}", 300)


def _others(members: Sequence[Member], value: Callable[[Member], str], label: str) -> dict[str, str]:
    """The hosts that differ from the most frequent value; all of them where none is in the majority."""
    counts = Counter(map(value, members))
    if len(counts) < 2:
        return {}
    (usual, number), *_rest = counts.most_common()
    is_majority = number * 2 > len(members)
    suffix = f", {number} of {len(members)} have {usual}" if is_majority else ""
    return {one.host: f"{label}{value(one)}{suffix}" for one in members if not is_majority or value(one) != usual}


def _places(member: Member) -> str:
    return ", ".join(dict.fromkeys(f"cluster {at.cluster}, clique {at.clique}" for at in member.fabrics))


def _version(value: str | None) -> str:
    return one_line(value or "", 40)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
