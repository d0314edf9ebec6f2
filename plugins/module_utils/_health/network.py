# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the network between the GPUs of hosts. Pure functions, private to this collection.

A host has adapters for many purposes: for its GPUs, for storage, for management, and ports without a cable. A port is
compared only with its siblings, and is missed only where it has had a link, or where its card near a GPU has fewer
links than most of its kind.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Mapping, Sequence

from .._common.nics import ACTIVE, LINK_UP

MOST_PORTS = 64
MOST_LOSSES = 50
KEPT_SECONDS = 90 * 24 * 3600.0
_DAY = 24 * 3600.0
# What InfiniBand allows: a bit error rate of 10^-12 is about 120 symbol errors an hour.
_SYMBOL_ERRORS_PER_HOUR = 120
_FLAPS_PER_DAY = 2
# Slower ports are for management.
_SLOWEST_OF_GPUS_GB = 100.0
_SHORTEST_PERIOD_SECONDS = 60.0
_MOST_NAMED = 8

ETHERNET = "Ethernet"
LINK_DOWNED, CARRIER_DOWNS = "link_downed", "carrier_downs"
SYMBOL_ERRORS, INTEGRITY_ERRORS = "symbol_error", "local_link_integrity_errors"
COUNTERS = (LINK_DOWNED, CARRIER_DOWNS, SYMBOL_ERRORS, INTEGRITY_ERRORS)

READINGS = (
    "nic_count_differs",
    "nic_down",
    "nic_all_down",
    "nic_flapping",
    "nic_link_lost",
    "nic_slow",
    "nic_errors",
    "nic_nodes_missing",
    "gpudirect_impossible",
    "gpudirect_unknown",
    "peermem_unbuilt",
    "gpudirect_redirected",
)


@dataclass(frozen=True)
class Port:
    """A port of an RDMA device. `key` is its name in the history, `model` the PCI ids of its adapter, `functions` those
    of its card that have a network. `near` is whether it is below a PCI switch with a GPU, `enabled` whether its
    interface is. `had_link` is whether a counter shows that it has had a link since the driver was loaded."""

    key: str
    name: str
    place: str
    model: str = ""
    functions: int = 1
    link_layer: str = "InfiniBand"
    state: int | None = None
    physical_state: int | None = None
    physical_text: str = ""
    rate: float | None = None
    near: bool = False
    enabled: bool | None = None
    had_link: bool = False
    pcie_speed: float | None = None
    pcie_lanes: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    missing_nodes: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it can be used."""
        return self.state == ACTIVE

    @property
    def kind(self) -> tuple[str, str, int]:
        """What its siblings have in common."""
        return self.model, self.link_layer, self.functions

    @property
    def card(self) -> str:
        """The address of its card, without the function."""
        return self.place.rpartition(".")[0]

    @property
    def label(self) -> str:
        """Its name and address."""
        return f"{self.name} ({self.place})"


@dataclass(frozen=True)
class PortHistory:
    """A port at its last check. `active` is when it last had a link, with `rate` in Gbit/s; `losses` are the newest
    times at which it had lost its link since the check before, and how often."""

    name: str
    place: str
    model: str
    boot: str
    checked: float
    active: float
    rate: float
    counters: Mapping[str, int] = field(default_factory=dict)
    losses: tuple[tuple[float, int], ...] = ()


Known = Mapping[str, PortHistory]


def parsed(entries: Any) -> dict[str, PortHistory]:
    """The ports in the file of the history; raises ValueError, KeyError, TypeError or AttributeError."""
    return {
        str(key): PortHistory(
            name=str(entry["name"]),
            place=str(entry["place"]),
            model=str(entry["model"]),
            boot=str(entry["boot"]),
            checked=float(entry["checked"]),
            active=float(entry["active"]),
            rate=float(entry["rate"]),
            counters={name: int(entry["counters"][name]) for name in COUNTERS if name in entry["counters"]},
            losses=tuple((float(time), int(count)) for time, count in entry["losses"]),
        )
        for key, entry in list(entries.items())[:MOST_PORTS]
    }


def network_of_gpus(ports: Sequence[Port], known: Known, is_declared: bool = False) -> tuple[Port, ...]:
    """The ports that connect GPUs of hosts: those near GPUs where some are, and of these the kinds that have the
    highest rate. Below 100 Gbit/s it is no network of GPUs, unless their number is declared."""
    candidates = [port for port in ports if port.near] or list(ports)
    rates = {port.key: _rate(port, known) for port in candidates}
    highest = max(rates.values(), default=0.0)
    if highest <= 0 or (highest < _SLOWEST_OF_GPUS_GB and not is_declared):
        return ()
    kinds = {port.kind for port in candidates if rates[port.key] == highest}
    return tuple(port for port in candidates if port.kind in kinds)


def _rate(port: Port, known: Known) -> float:
    earlier = known.get(port.key)
    # A port without a link has a rate as well: the rate of its slowest mode.
    return max((port.rate or 0.0) if port.is_active else 0.0, earlier.rate if earlier else 0.0)


@dataclass(frozen=True)
class Before:
    """The earlier checks of a host, this boot, and the time."""

    known: Known = field(default_factory=dict)
    boot: str = ""
    now: float = 0.0


def judged(
    ports: Sequence[Port], before: Before, declared: int | None = None, gone: Sequence[PortHistory] = ()
) -> dict[str, str]:
    """The readings of all rows about ports: empty where all is well. `gone` are known ports that have no adapter any
    more."""
    network = network_of_gpus(ports, before.known, declared is not None)
    lost = _lost(network, before)
    return {
        "nic_count_differs": _count(network, declared, gone),
        "nic_down": "" if declared == _active(network) else _down(network, before),
        "nic_all_down": "" if declared is not None else _all_down(network, before),
        "nic_flapping": _named(
            (port, _losses(port, lost, before)) for port in network if _is_flapping(port, lost, before)
        ),
        "nic_link_lost": _named(
            (port, _losses(port, lost, before))
            for port in network
            if lost.get(port.key) and not _is_flapping(port, lost, before)
        ),
        "nic_slow": _slow(network),
        "nic_errors": _named((port, text) for port in network for text in _errors(port, before)),
        "nic_nodes_missing": _named(
            (port, f"has no {' and no '.join(port.missing_nodes)}")
            for port in network
            if port.is_active and port.missing_nodes
        ),
    }


def updated(ports: Sequence[Port], before: Before, is_declared: bool = False) -> dict[str, PortHistory]:
    """The history after a check: the ports of the GPUs' network that have had a link, the newest first to stay."""
    network = network_of_gpus(ports, before.known, is_declared)
    lost = _lost(network, before)
    found = {key: port for key, port in before.known.items() if before.now - port.active <= KEPT_SECONDS}
    for port in network:
        earlier = before.known.get(port.key)
        if not port.is_active and earlier is None:
            continue
        losses = earlier.losses if earlier else ()
        if lost.get(port.key):
            losses = (*losses, (before.now, lost[port.key]))
        found[port.key] = PortHistory(
            name=port.name,
            place=port.place,
            model=port.model,
            boot=before.boot,
            checked=before.now,
            active=before.now if port.is_active else earlier.active if earlier else before.now,
            rate=_history_rate(port, earlier),
            counters=dict(port.counters),
            losses=tuple(loss for loss in losses if before.now - loss[0] <= _DAY)[-MOST_LOSSES:],
        )
    newest = sorted(found, key=lambda key: found[key].checked)[-MOST_PORTS:]
    return {key: found[key] for key in newest}


def _history_rate(port: Port, earlier: PortHistory | None) -> float:
    """The rate of now: another cable may be slower for good."""
    return (port.rate or 0.0) if port.is_active else earlier.rate if earlier else 0.0


def _active(network: Iterable[Port]) -> int:
    return sum(port.is_active for port in network)


def _count(network: Sequence[Port], declared: int | None, gone: Sequence[PortHistory]) -> str:
    active = _active(network)
    if declared is None:
        return "; ".join(
            f"{port.name} ({port.place}) is gone or has lost its driver, but had a link at an earlier check; "
            "if it was removed on purpose, declare nic_count"
            for port in gone[:_MOST_NAMED]
        )
    if active >= declared:
        return ""
    without = [port.label for port in network if not port.is_active] + [f"{port.name} ({port.place})" for port in gone]
    names = f"; without one: {_some(without)}" if without else ""
    return f"{active} ports of the GPUs' network have a link, and {declared} are declared{names}"


def _down(network: Sequence[Port], before: Before) -> str:
    active = Counter(port.kind for port in network if port.is_active)
    lacking = _lacking_cards(network)
    messages = []
    for port in network:
        if port.is_active or port.state is None or not active[port.kind]:
            continue
        if not _had_link(port, before) and port.card not in lacking:
            continue
        if _is_taken_down(port):
            continue
        messages.append((port, f"{_state(port)}, and {active[port.kind]} of its siblings have a link"))
    return _named(messages)


def _all_down(network: Sequence[Port], before: Before) -> str:
    """The kinds of which no port has a link any more: the switch, the fabric's manager, or on purpose."""
    active = Counter(port.kind for port in network if port.is_active)
    down = [
        (port, _state(port))
        for port in network
        if port.state is not None and not active[port.kind] and _is_known(port, before) and not _is_taken_down(port)
    ]
    if not down:
        return ""
    purpose = (
        "no port of its kind has a link, but an earlier check found links; if that is on purpose, declare nic_count"
    )
    return f"{_named(down)}; {purpose}"


def _is_taken_down(port: Port) -> bool:
    """Whether its interface is: who takes that down takes the link down on purpose."""
    return port.link_layer == ETHERNET and port.enabled is False


def _lacking_cards(network: Sequence[Port]) -> set[str]:
    """Cards near GPUs with fewer links than most of their kind: their ports are missed though they never had one."""
    links: dict[tuple[str, str, int], dict[str, int]] = {}
    for port in network:
        if port.near:
            cards = links.setdefault(port.kind, {})
            cards[port.card] = cards.get(port.card, 0) + port.is_active
    found: set[str] = set()
    for cards in links.values():
        usual, count = Counter(cards.values()).most_common(1)[0]
        if count > 1 and count * 2 > len(cards):
            found.update(card for card, active in cards.items() if active < usual)
    return found


def _had_link(port: Port, before: Before) -> bool:
    return port.had_link or port.physical_state == LINK_UP or _is_known(port, before)


def _is_known(port: Port, before: Before) -> bool:
    """Whether it has had a link at an earlier check, or the adapter that was in its place."""
    if port.key in before.known:
        return True
    return any((known.place, known.name) == (port.place, port.name) for known in before.known.values())


def _state(port: Port) -> str:
    if port.physical_state == LINK_UP:
        return "has a link that no subnet manager has made active"
    # The kernel calls every port of Ethernet without a link disabled.
    shown = "" if port.link_layer == ETHERNET or not port.physical_text else f" ({port.physical_text})"
    return f"has no link{shown}"


def _lost(network: Sequence[Port], before: Before) -> dict[str, int]:
    """How often each port has lost its link since the last check; where all have, the switches were restarted."""
    found = {port.key: _grown_losses(port, before) for port in network}
    known = [key for key in found if key in before.known]
    if len(known) > 1 and all(found[key] for key in known):
        return {}
    return {key: count for key, count in found.items() if count}


def _grown_losses(port: Port, before: Before) -> int:
    # Carriers of InfiniBand are no links: an interface has a carrier when it has joined a multicast group.
    names = (LINK_DOWNED, CARRIER_DOWNS) if port.link_layer == ETHERNET else (LINK_DOWNED,)
    return max(_grown(port, before, name) for name in names)


def _grown(port: Port, before: Before, name: str) -> int:
    """By how much a counter has grown since the last check. It begins at zero with the boot and with the driver, so
    that it is not compared with one of another boot, nor with a higher one."""
    earlier = before.known.get(port.key)
    if earlier is None or earlier.boot != before.boot or name not in earlier.counters or name not in port.counters:
        return 0
    return max(0, port.counters[name] - earlier.counters[name])


def _day_of_losses(port: Port, lost: Mapping[str, int], before: Before) -> int:
    earlier = before.known.get(port.key)
    young = [count for time, count in earlier.losses if 0 <= before.now - time <= _DAY] if earlier else []
    return sum(young) + lost.get(port.key, 0)


def _is_flapping(port: Port, lost: Mapping[str, int], before: Before) -> bool:
    return _day_of_losses(port, lost, before) >= _FLAPS_PER_DAY


def _losses(port: Port, lost: Mapping[str, int], before: Before) -> str:
    count = _day_of_losses(port, lost, before)
    return f"lost its link {count} times within 24 hours" if count > 1 else "lost its link once since the last check"


_COMPARED: tuple[tuple[str, Callable[[Port], float | None]], ...] = (
    ("{:g} Gbit/s", lambda port: port.rate),
    ("PCIe with {:g} GT/s", lambda port: port.pcie_speed),
    ("{:g} PCIe lanes", lambda port: port.pcie_lanes),
)


def _slow(network: Sequence[Port]) -> str:
    messages = []
    for text, reading in _COMPARED:
        for kind in sorted({port.kind for port in network}):
            siblings = [(port, reading(port)) for port in network if port.kind == kind and port.is_active]
            known = [(port, value) for port, value in siblings if value is not None]
            counts = Counter(value for _port, value in known)
            usual = max(counts, key=lambda value: (counts[value], value), default=0.0)
            messages += [
                (port, f"has {text.format(value)}, and its siblings have {text.format(usual)}")
                for port, value in known
                # Of two, either may be as it was meant.
                if value < usual and counts[usual] > 1
            ]
    return _named(messages)


def _errors(port: Port, before: Before) -> Iterable[str]:
    earlier = before.known.get(port.key)
    seconds = max(_SHORTEST_PERIOD_SECONDS, before.now - earlier.checked) if earlier else _SHORTEST_PERIOD_SECONDS
    symbols = _grown(port, before, SYMBOL_ERRORS)
    if symbols * 3600.0 / seconds > _SYMBOL_ERRORS_PER_HOUR:
        yield f"had {symbols} symbol errors in {seconds / 60:.0f} minutes"
    integrity = _grown(port, before, INTEGRITY_ERRORS)
    if integrity:
        yield f"had {integrity} local link integrity errors since the last check"


def _named(messages: Iterable[tuple[Port, str]]) -> str:
    return _some([f"{port.label} {text}" for port, text in messages], "; ")


def _some(messages: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(messages) - _MOST_NAMED} more" if len(messages) > _MOST_NAMED else ""
    return separator.join(messages[:_MOST_NAMED]) + more


# GPUDirect


_DMA_BUF_SINCE = (5, 12)


def serves_gpus(network: Sequence[Port], gpus: int, is_declared: bool) -> bool:
    """Whether a host's network is there for its GPUs, and not for the host alone, as the two ports of one card are: it
    is near GPUs, or has cards for at least every other one."""
    cards = {port.card for port in network}
    has_enough = len(cards) > 1 and len(network) * 2 >= gpus
    return bool(network) and (is_declared or has_enough or any(port.near for port in network))


def gpudirect(has_peer_module: bool, kind: str | None, release: str) -> tuple[str, str]:
    """Why adapters cannot reach the memory of GPUs, and why that is not known; both are empty where they can.

    `kind` of the driver's modules is open or proprietary; `release` is the kernel's. It needs nvidia_peermem,
    or DMA-BUF: a kernel from 5.12 on and the open modules.
    """
    if has_peer_module:
        return "", ""
    if kind is None:
        return "", "nvidia_peermem is not loaded, and the kind of the driver's kernel modules is not known"
    if kind != "open":
        return "nvidia_peermem is not loaded, and the proprietary kernel modules have no DMA-BUF", ""
    found = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", release)
    if found is None:
        return "", "nvidia_peermem is not loaded, and the version of the kernel is not known"
    if (int(found[1]), int(found[2])) >= _DMA_BUF_SINCE:
        return "", ""
    shown = re.sub(r"[^!-~]", "?", release[:64])
    if ".el" in release:
        # Red Hat takes parts of newer kernels into its own.
        return "", f"nvidia_peermem is not loaded, and whether kernel {shown} has DMA-BUF for adapters is not known"
    return (
        f"nvidia_peermem is not loaded, and kernel {shown} is older than 5.12, the first with DMA-BUF for adapters",
        "",
    )


def peermem_unbuilt(peermem: str, ofed: str) -> str:
    """That nvidia_peermem is older than what it serves: built before DOCA-OFED or MLNX_OFED was installed."""
    if peermem != "stub" or not ofed:
        return ""
    return (
        f"nvidia_peermem was built before DOCA-OFED {ofed} was installed, and does not load; build the modules of the "
        "driver again (`dkms build --force` and `dkms install --force` of nvidia), and load nvidia_peermem"
    )


_EXTENDED = 0x100
_ACS = 0x000D
_REDIRECTS = 0x04 | 0x08
_DIRECT_TRANSLATED = 0x40
_MOST_CAPABILITIES = 96


def acs_redirects(config: bytes) -> bool:
    """Whether a PCI bridge sends requests between devices below it through the root complex, by its configuration
    space: only root reads as far as the capability."""
    offset = _EXTENDED
    for _capability in range(_MOST_CAPABILITIES):
        if offset < _EXTENDED or offset + 8 > len(config):
            return False
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS:
            control = int.from_bytes(config[offset + 6 : offset + 8], "little")
            return bool(control & _REDIRECTS) and not control & _DIRECT_TRANSLATED
        offset = header >> 20
    return False


def bridges_between(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The bridges on the way between two devices below one PCI switch, by the directories of both in sysfs; none where
    they have no switch in common."""
    common = 0
    while common < min(len(first), len(second)) and first[common] == second[common]:
        common += 1
    return (*first[common:-1], *second[common:-1])


def with_names(ports: Sequence[Port]) -> tuple[Port, ...]:
    """The ports; where a device has several, their names have the number."""
    counts = Counter(port.name for port in ports)
    numbers = {port.key: port.key.rpartition("/")[2] for port in ports}
    return tuple(
        replace(port, name=f"{port.name} port {numbers[port.key]}") if counts[port.name] > 1 else port for port in ports
    )
