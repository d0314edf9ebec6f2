# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the report of a fleet consists of. Its JSON has these fields. Private to this collection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._fleet.nvlink_domains import Domain

SCHEMA_VERSION = 1
READ, UNREACHABLE, NOT_READ = STATES = ("read", "unreachable", "not_read")
STATUSES = (UNREACHABLE, NOT_READ, "fail", "warn", "unknown", "info", "ok")
"""Of hosts, the worst first: that the host was not read, or its verdict."""


@dataclass(frozen=True)
class Host:
    """A host of the inventory with what was read on it; `reason` is why nothing was.

    `facts` are from report_facts, `health` is the result of gpu_health. `declared` is what the variable
    gpu_health_expected has, and `nvlink_domain` what gpu_fleet_nvlink_domain has.
    """

    name: str
    state: str
    reason: str | None = None
    rack: str | None = None
    rack_power_budget_kw: float = 20.0
    declared: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] | None = None
    health: Mapping[str, Any] | None = None
    nvlink_domain: str | None = None


@dataclass(frozen=True)
class Summary:
    """The fleet in numbers. By status, verdict and remedy: numbers of hosts or GPUs. Memory in MiB, power in W."""

    hosts: int
    gpus: int
    hosts_by_status: dict[str, int]
    gpus_by_verdict: dict[str, int]
    hosts_by_remedy: dict[str, int]
    healthy_hosts: int
    hosts_needing_action: int
    gpus_needing_action: int
    memory_used_mib: int
    memory_total_mib: int
    power_draw_w: float
    power_limit_w: float


@dataclass(frozen=True)
class ActionHost:
    """A host that needs an action, with the messages of its findings."""

    host: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class Action:
    """A symptom with its remedy and the hosts that have it."""

    verdict: str
    remedy: str
    what_to_do: str
    row: str
    symptom: str
    hosts: tuple[ActionHost, ...]


@dataclass(frozen=True)
class Count:
    """A model or a version, with the numbers of hosts and GPUs that have it."""

    value: str
    hosts: int
    gpus: int


@dataclass(frozen=True)
class Inventory:
    """What the fleet consists of, the most frequent first."""

    models: tuple[Count, ...]
    drivers: tuple[Count, ...]
    cuda_versions: tuple[Count, ...]
    container_toolkits: tuple[Count, ...]
    distributions: tuple[Count, ...]


@dataclass(frozen=True)
class Deviation:
    """Hosts that differ from what is declared, or from the majority of the hosts with the same GPU models.

    `basis` is `declared` or `majority`; `agreeing` of `compared` hosts have the expected value.
    """

    aspect: str
    group: str
    basis: str
    expected: str
    found: str
    agreeing: int
    compared: int
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Branch:
    """A driver branch. `end_of_life` is its last month with updates, as 2026-06; `state` is ended, ending (within half
    a year), supported, or unknown."""

    branch: int
    end_of_life: str | None
    state: str
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Reboot:
    """A host that waits for a reboot or the reset of a GPU."""

    host: str
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Rack:
    """The GPUs of a rack against its budget, in W; `gpus_without_power` have no reading of power.

    `state` is draw_above_budget, limit_above_budget (where all GPUs may draw what they are allowed to), or ok.
    """

    rack: str | None
    hosts: tuple[str, ...]
    gpus: int
    gpus_without_power: int
    power_draw_w: float
    power_limit_w: float
    budget_w: float
    state: str


@dataclass(frozen=True)
class Network:
    """GPUs of a host for each of its adapters of at least 10 Gbit/s, or with RDMA.

    `gpus_per_nic` is by RDMA adapters where there are any. `state` is no_nic, too_few (more than 4 GPUs for each),
    ok (2 to 4), or ample.
    """

    host: str
    gpus: int
    nics: int
    rdma_nics: int
    gpus_per_nic: float | None
    state: str


@dataclass(frozen=True)
class Slice:
    """A MIG GPU instance in a layout."""

    profile: str
    start: int
    size: int


@dataclass(frozen=True)
class Layout:
    """A MIG layout with the numbers of the hosts and GPUs that have it, and of its instances with a process."""

    model: str
    slices: tuple[Slice, ...]
    hosts: int
    gpus: int
    used_instances: int


@dataclass(frozen=True)
class XidEntry:
    """Xids of one code since the boot of the host."""

    code: int
    name: str | None
    count: int
    last_time: str | None
    process: str | None


@dataclass(frozen=True)
class HistoryEvent:
    """What the history of a host has about a GPU. `kind` is verdict, xid, or a kind of memory errors.

    `value` is the verdict since then or the code of the Xid; `count` is how many Xids there were on that day, or how
    many errors were new.
    """

    time: str
    kind: str
    value: str | None
    count: int


@dataclass(frozen=True)
class ErrorHistory:
    """A GPU with errors in its past. `events` are those in the history of its host, the oldest first."""

    host: str
    gpu: str
    index: int | None
    serial: str | None
    ecc_corrected: int
    ecc_uncorrected: int
    remapped_rows_correctable: int
    remapped_rows_uncorrectable: int
    xids: tuple[XidEntry, ...]
    events: tuple[HistoryEvent, ...]


@dataclass(frozen=True)
class Change:
    """A difference from the last report. `kind` is host, gpu, status, verdict, driver, cuda, errors or xid."""

    kind: str
    host: str
    gpu: str | None
    before: str
    after: str


@dataclass(frozen=True)
class Report:
    """The report. `previous_time` is the time of the report that `changes` compares with."""

    schema_version: int
    time: str
    summary: Summary
    actions: tuple[Action, ...]
    inventory: Inventory
    deviations: tuple[Deviation, ...]
    branches: tuple[Branch, ...]
    reboots: tuple[Reboot, ...]
    racks: tuple[Rack, ...]
    networks: tuple[Network, ...]
    nvlink_domains: tuple[Domain, ...]
    layouts: tuple[Layout, ...]
    histories: tuple[ErrorHistory, ...]
    previous_time: str | None
    changes: tuple[Change, ...]
    hosts: tuple[Host, ...]


def status(host: Host) -> str:
    """One of STATUSES."""
    if host.state != READ:
        return host.state
    return str(host.health["verdict"]) if host.health else "unknown"


def gpus(host: Host) -> list[Mapping[str, Any]]:
    """The GPUs of a host that nvidia-smi lists."""
    return list(host.facts["gpus"]) if host.facts else []


def name_of(gpu: Mapping[str, Any]) -> str:
    """The name of a GPU in findings and reports."""
    return str(gpu["uuid"] or gpu["pci_bus_id"] or f"index {gpu['index']}")
