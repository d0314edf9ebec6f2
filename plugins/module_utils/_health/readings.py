# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readings that rows of the policy compare: from nvidia_smi_facts, and what follows from them.

Private to this collection. None stands for an unknown reading, an empty text for "does not differ".
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Collection, Mapping, Sequence

from .._nvidia_smi.gpu import SECTIONS, EccCounters
from .._nvidia_smi.remedies import SWITCHED_ELSEWHERE
from . import growth
from .network import READINGS as NETWORK

Facts = Mapping[str, Any]

# Six of ten readings a minute apart are too many for gpud; here that share of an hour.
_MOST_OF_AN_HOUR = 0.6 * growth.HOUR

# GPUs whose fans and power supply a data center does not choose, as their names show: for games, laptops and
# small computers nothing is compared over time, for workstations only the present state is reported.
_CONSUMER = re.compile(r"GeForce|GTX|\bGT \d|\bMX\d|Laptop|Max-Q|Mobile|Orin|Thor|Graphics Device", re.IGNORECASE)
_WORKSTATION = re.compile(r"Quadro|RTX(?!.*Server)|TITAN|NVS|\bT\d00|\bT1\d00|\bK\d+00|GB10|DGX Display", re.IGNORECASE)

# Boards, whose GPUs have as many NVLinks each. Cards have bridges to some of the others, or none.
_BOARD = re.compile(r"(?:SXM|HBM3|\bG?[BH]\d00\b|\bH20\b)(?!.*(?:PCIe|NVL))", re.IGNORECASE)
# NVLinks of the GPUs of a board that has always as many, and the GB/s of each, as nvidia-smi prints them. Of others the
# board decides: H800, A800 and H20 have had some of them taken away.
# https://docs.nvidia.com/health-validation/reference/checks/nvlink; of the A100 Oracle's health checks.
_NVLINKS = (("A100-SXM", 12, 25.0), ("H100 80GB HBM3", 18, 26.562), ("GB200", 18, 53.125), ("GB300", 18, 53.125))

DERIVED = (
    "problems",
    "uncorrectable_unrepaired",
    "uncorrectable_contained",
    "retired_pages_total",
    "pcie_lanes_missing",
    "pcie_slow_checks",
    "pcie_replays",
    "nvlinks_missing",
    "bridge_links_missing",
    "nvlinks_slow",
    "nvlink_error_hours",
    "nvlink_crc_errors",
    "slowdown_now",
    "slowdown_thermal_seconds",
    "slowdown_thermal_hours",
    "slowdown_power_brake_seconds",
    "slowdown_power_brake_hours",
    "degrees_above_slowdown",
    "persistence_mode_differs",
    "ecc_mode_differs",
    "mig_layout_differs",
    "vgpu_license",
    "test_failed",
    "host_bandwidth_gbps",
    "peer_bandwidth_gbps",
)
HOST = (
    "unavailable",
    "gpu_count_differs",
    "gpu_count_withheld",
    "gpus_passed_through",
    "gpus_excluded",
    "gpu_model_differs",
    "driver_version_differs",
    "driver_vulnerable",
    "kernel_log_unknown",
    "kernel_log_incomplete",
    "cdi_stale",
    "boot_service_failed",
    "boot_service_missed",
    "imex_inactive",
    "imex_unready",
    "mps_inactive",
    "mps_client_fault",
    "clock_unsynchronized",
    "cpus_offline",
    "gpu_unscheduled",
    "file_system_full",
    "file_system_read_only",
    "host_test_failed",
    "test_configuration",
    "test_warned",
    "test_unknown",
    "nccl_bandwidth_gbps",
    *NETWORK,
)


def _names() -> frozenset[str]:
    names = {name.name for section in SECTIONS.values() for name in fields(section)}
    counters = [name.name for name in fields(EccCounters)] + ["corrected_total", "uncorrected_total"]
    nested = {f"ecc_errors_{period}.{name}" for period in ("volatile", "aggregate") for name in counters}
    return frozenset((names - {"ecc_errors_volatile", "ecc_errors_aggregate"}) | nested | set(DERIVED) | set(HOST))


NAMES = _names()
"""All readings that a row may compare."""


@dataclass(frozen=True)
class DeclaredGpu:
    """What is declared for one GPU; None is not declared. `mig` are the profiles of its instances, () without MIG."""

    persistence_mode: bool | None = None
    ecc: bool | None = None
    mig: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Declared:
    """What is declared for a host. `gpus` has entries by UUID, `every` is for all others. `nic_count` is the number of
    ports of the GPUs' network that have a link."""

    gpu_count: int | None = None
    gpu_models: tuple[str, ...] = ()
    driver_version: str | None = None
    nic_count: int | None = None
    every: DeclaredGpu = field(default_factory=DeclaredGpu)
    gpus: Mapping[str, DeclaredGpu] = field(default_factory=dict)


@dataclass(frozen=True)
class Earlier:
    """What the history has of one GPU at the time `now`: the counters of the check at `checked`, the place where it was
    then, and what grew until then."""

    now: float = 0.0
    checked: float = 0.0
    pci_bus_id: str | None = None
    counters: Mapping[str, int | None] = field(default_factory=dict)
    hours: tuple[growth.Hour, ...] = ()


def gpu_readings(
    gpu: Facts, facts: Facts, declared: Declared, earlier: Earlier, slot_lanes: int | None = None
) -> dict[str, Any]:
    """All readings of one GPU of `facts`, the result of nvidia_smi_facts; `slot_lanes` is what its slot can have."""
    desired = declared.gpus.get(gpu["uuid"] or "", declared.every)
    flat = {name: value for name, value in gpu.items() if not isinstance(value, dict)}
    for period in ("ecc_errors_volatile", "ecc_errors_aggregate"):
        flat.update({f"{period}.{name}": value for name, value in (gpu.get(period) or {}).items()})
    counters = counters_of(gpu, earlier)
    hours = growth.after(earlier.hours, earlier.counters, counters, earlier.checked, earlier.now)
    return {
        **flat,
        "problems": problems(facts, gpu["uuid"] or gpu["pci_bus_id"]),
        **_uncorrectable(gpu),
        "retired_pages_total": _sum(gpu["retired_pages_single_bit_count"], gpu["retired_pages_double_bit_count"]),
        "pcie_lanes_missing": _pcie_lanes_missing(gpu, facts["gpus"], slot_lanes),
        "pcie_slow_checks": None if _CONSUMER.search(gpu["name"] or "") else counters[_SLOW_CHECKS],
        "pcie_replays": growth.most(hours, earlier.now, "pci_replay_count"),
        **_nvlinks(gpu, facts["gpus"], counters),
        "nvlink_error_hours": growth.in_a_row(hours, earlier.now, _LINK_ERRORS, 1.0),
        "nvlink_crc_errors": growth.most(hours, earlier.now, _CRC_ERRORS),
        **_slowdowns(gpu, hours, earlier.now),
        "persistence_mode_differs": _mode("persistence mode", gpu["persistence_mode"], desired.persistence_mode),
        "ecc_mode_differs": _mode("ECC", gpu["ecc_mode_current"], desired.ecc),
        "mig_layout_differs": _mig_layout(gpu, desired.mig),
        # A whole GPU has a licence for some features only, and computes without it.
        "vgpu_license": gpu["vgpu_license_status"] if gpu["virtualization_mode"] == "vgpu" else None,
    }


def problems(facts: Facts, name: str | None) -> tuple[str, ...]:
    """The codes of `unhealthy` that are about one GPU, or about the host."""
    return tuple(problem["code"] for problem in facts["unhealthy"] if problem["gpu"] == name)


def message_of(facts: Facts, name: str | None, code: str) -> str | None:
    """The message of a problem in `unhealthy`, without the GPU before it."""
    for problem in facts["unhealthy"]:
        if (problem["gpu"], problem["code"]) == (name, code):
            return str(problem["message"]).partition("): ")[2] or str(problem["message"])
    return None


def _sum(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _difference(larger: int | None, smaller: int | None) -> int | None:
    return None if larger is None or smaller is None else larger - smaller


def _pcie_lanes_missing(gpu: Facts, gpus: Sequence[Facts], slot_lanes: int | None) -> int | None:
    """Lanes that GPU and slot could have. A virtual machine sees no slot: there, that another GPU of the model has."""
    current: int | None = gpu["pci_link_width_current"]
    possible: int | None = gpu["pci_link_width_max"]
    if current is None or possible is None:
        return None
    others: list[int] = [other["pci_link_width_current"] or 0 for other in gpus if other["name"] == gpu["name"]]
    return max(0, min(possible, slot_lanes or max(others), 16) - current)


def _pcie_slow_checks(gpu: Facts, before: int) -> int:
    """At how many checks in a row a GPU under load had a lower generation of PCIe than GPU and slot can have. An idle
    one lowers it."""
    current, possible = gpu["pci_link_gen_current"], gpu["pci_link_gen_max"]
    is_busy = gpu["performance_state"] in ("P0", "P1", "P2") and (gpu["utilization_gpu_percent"] or 0) >= 50
    if not is_busy or current is None or possible is None:
        return before
    return before + 1 if current < possible else 0


def _uncorrectable(gpu: Facts) -> dict[str, int | None]:
    """Errors since the last reset: contained where the rows are fine and the driver asks for nothing."""
    count = gpu["ecc_errors_volatile"]["uncorrected_total"]
    rows_are_fine = gpu["remapped_rows_pending"] is False and gpu["remapped_rows_failure"] is False
    contained = rows_are_fine and gpu["recovery_action"] == "none"
    # Where the driver asks for an action, or a row waits, that is the finding.
    decided = gpu["recovery_action"] not in (None, "none") or gpu["remapped_rows_pending"] is True
    return {
        "uncorrectable_contained": count if contained or decided else None,
        "uncorrectable_unrepaired": None if contained or decided else count,
    }


def _nvlinks(gpu: Facts, gpus: Sequence[Facts], counters: Mapping[str, int | None]) -> dict[str, int | None]:
    """NVLinks that are down or slow, of a board and of a card with bridges; None where they cannot be seen."""
    missing = bridge = slow = None
    # nvidia-smi lists the links by UUID; with MIG no link is up.
    if gpu["uuid"] is not None and gpu["mig_mode_current"] != "enabled":
        most, speed = counters[_ACTIVE_LINKS] or 0, (counters[_LINK_SPEED] or 0) / 1000.0
        if _BOARD.search(gpu["name"] or ""):
            missing = _missing_of_board(gpu, gpus, most)
            slow = _slow_of_board(gpu, gpus)
        elif most:
            bridge = most - _active_links(gpu)
            # Drivers print the speed with other digits.
            slow = sum(each < 0.9 * speed for each in _link_speeds(gpu))
    return {"nvlinks_missing": missing, "bridge_links_missing": bridge, "nvlinks_slow": slow}


def _missing_of_board(gpu: Facts, gpus: Sequence[Facts], most: int) -> int | None:
    """The GPU of some boards has a known number. Any other has as many as others of its model on this host have, and as
    it had itself at an earlier check."""
    # Links that are down are listed. Where none is, they were not read.
    if not any(other["nvlinks"] for other in gpus):
        return None
    # Of a GPU that is passed through alone no link may be up.
    seen = any(map(_active_links, gpus))
    known = next((count for model, count, _speed in _NVLINKS if model in gpu["name"]), 0) if seen else 0
    like = max(_active_links(other) for other in gpus if other["name"] == gpu["name"])
    return max(known, like, most) - _active_links(gpu)


def _slow_of_board(gpu: Facts, gpus: Sequence[Facts]) -> int | None:
    """How many are slower than the links of the board, or than most of its model on this host."""
    like = Counter(speed for other in gpus if other["name"] == gpu["name"] for speed in _link_speeds(other))
    if not like:
        return None
    # Where as many have either speed, neither is slow.
    usual = max(like, key=lambda speed: (like[speed], -speed))
    known = next((speed for model, _count, speed in _NVLINKS if model in gpu["name"]), 0.0)
    return sum(speed < max(known, usual) for speed in _link_speeds(gpu))


def _link_speeds(gpu: Facts) -> list[float]:
    return [link["speed_gb_per_second"] for link in gpu["nvlinks"] if link.get("speed_gb_per_second")]


def _active_links(gpu: Facts) -> int:
    return sum(bool(link["active"]) for link in gpu["nvlinks"])


_ACTIVE_LINKS, _LINK_SPEED, _SLOW_CHECKS = "nvlinks_active", "nvlinks_mb_per_second", "pcie_slow_checks"
_LINK_ERRORS, _CRC_ERRORS = growth.COUNTS[1:]
# Packets that were sent again, and links that were trained again, up to Hopper; from Blackwell on, the latter alone.
# What a code corrects is no error.
_ERRORS_OF_LINKS = {
    _LINK_ERRORS: (
        *("replay_errors", "recovery_errors"),
        *("link_recovery_successful_events", "link_recovery_failed_events"),
    ),
    _CRC_ERRORS: ("crc_errors",),
}
# They begin at zero when the GPU is reset or the driver is loaded.
_SINCE_RESET = (
    "slowdown_sw_power_cap_us",
    "slowdown_sync_boost_us",
    *(f"{flag}_us" for flag in growth.FLAGS),
    "pci_replay_count",
    "ecc_errors_volatile.corrected_total",
    "ecc_errors_volatile.uncorrected_total",
)
KEPT_COUNTERS = (*_SINCE_RESET, *growth.FLAGS, _LINK_ERRORS, _CRC_ERRORS, _ACTIVE_LINKS, _LINK_SPEED, _SLOW_CHECKS)
"""What the history keeps of the last check."""


def counters_of(gpu: Facts, earlier: Earlier) -> dict[str, int | None]:
    """The counters of one GPU; number and speed of its active NVLinks are the highest that it has had in its place."""
    found: dict[str, int | None] = {}
    for name in (*_SINCE_RESET, *growth.FLAGS):
        outer, _dot, inner = name.partition(".")
        value = gpu.get(outer)
        found[name] = (value or {}).get(inner) if inner else value
    for name, kinds in _ERRORS_OF_LINKS.items():
        counts = [(link.get("error_counters") or {}).get(kind) for link in gpu.get("nvlinks") or () for kind in kinds]
        found[name] = _sum(*(None if count is None else int(count) for count in counts))
    before = earlier.counters if gpu["pci_bus_id"] == earlier.pci_bus_id else {}
    is_seen = gpu["uuid"] is not None and gpu["mig_mode_current"] != "enabled" and gpu.get("nvlinks")
    speeds = [round(1000 * speed) for speed in _link_speeds(gpu)] if is_seen else []
    return {
        **found,
        _ACTIVE_LINKS: _most(before.get(_ACTIVE_LINKS), _active_links(gpu) if is_seen else None),
        _LINK_SPEED: _most(before.get(_LINK_SPEED), max(speeds, default=None)),
        _SLOW_CHECKS: _pcie_slow_checks(gpu, before.get(_SLOW_CHECKS) or 0),
    }


def _most(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def began_again(before: Mapping[str, int | None], now: Mapping[str, int | None]) -> bool:
    """Whether a counter is lower than it was."""
    pairs = [(before.get(name), now.get(name)) for name in _SINCE_RESET]
    return any(old is not None and new is not None and new < old for old, new in pairs)


def has_fabric_manager(model: str | None, gpu: Facts | None = None, gpus: int = 0) -> bool:
    """Whether the host of a GPU has a Fabric Manager to restart. With `gpu`, whether NVSwitches connect it: the driver
    reports its fabric, or since it does so only from Hopper on, it is one of eight on a board."""
    name = model or ""
    if any(board in name for board in SWITCHED_ELSEWHERE):
        return False
    if gpu is None:
        return True
    return gpu.get("fabric_state") is not None or ("SXM" in name and gpus >= _ON_A_SWITCHED_BOARD)


_ON_A_SWITCHED_BOARD = 8


def _slowdowns(gpu: Facts, hours: Sequence[growth.Hour], now: float) -> dict[str, Any]:
    """Whether heat or the power brake lowers the clocks now, and for how long they did."""
    name = gpu["name"] or ""
    if _CONSUMER.search(name):
        return {}
    above = _difference(gpu["temperature_slowdown_tlimit_c"], gpu["temperature_gpu_tlimit_c"])
    found: dict[str, Any] = {"slowdown_now": _is_slowed_down(gpu), "degrees_above_slowdown": above}
    if not _WORKSTATION.search(name):
        software, heat, brake = growth.FLAGS
        found["slowdown_thermal_seconds"] = growth.most(hours, now, software, heat)
        found["slowdown_thermal_hours"] = growth.in_a_row(hours, now, heat, _MOST_OF_AN_HOUR)
        found["slowdown_power_brake_seconds"] = growth.most(hours, now, brake)
        found["slowdown_power_brake_hours"] = growth.in_a_row(hours, now, brake, _MOST_OF_AN_HOUR)
    return found


def _is_slowed_down(gpu: Facts) -> bool:
    """Older chips report heat and the power brake as hw_slowdown."""
    unexplained = gpu["slowdown_hw"] is True and gpu["slowdown_hw_thermal"] is None
    return unexplained or any(gpu[flag] is True for flag in growth.FLAGS)


def _mode(what: str, current: str | None, desired: bool | None) -> str:
    if desired is None or current is None or (current == "enabled") == desired:
        return ""
    return f"{what} is {current}, and {'enabled' if desired else 'disabled'} is declared"


def _mig_layout(gpu: Facts, desired: tuple[str, ...] | None) -> str:
    if desired is None:
        return ""
    found: list[str] = []
    if gpu["mig_mode_current"] == "enabled":
        # A GPU instance without a compute instance is no device.
        empty = [instance for instance in gpu["gpu_instances"] or () if not instance["compute_instances"]]
        found = [str(instance["profile"]) for instance in (*gpu["mig_devices"], *empty)]
    if Counter(found) == Counter(desired):
        return ""
    return f"MIG has {_listed(found)}, and {_listed(desired)} is declared"


def _listed(profiles: Sequence[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(profiles).items())) or "no instance"


def host_readings(
    facts: Facts,
    declared: Declared,
    recorded: Sequence[str],
    others: Mapping[str, str],
    places: Collection[str | None] = (),
) -> dict[str, Any]:
    """All readings of the host. `recorded` are the models that were there before, `places` the PCI bus ids of GPUs that
    have been there, `others` are read elsewhere."""
    found = [str(gpu["name"]) for gpu in facts["gpus"] if gpu["error"] is None]
    passed, excluded = ([gpu for gpu in facts["pci_gpus"] if gpu.get(kind)] for kind in ("passed_through", "excluded"))
    withheld = [gpu["pci_bus_id"] for gpu in (*passed, *excluded)]
    # A GPU that was withheld before is none of those that were recorded.
    known = sum(place in places for place in withheld)
    return {
        "problems": problems(facts, None),
        "unavailable": None if facts["available"] else _unavailable(facts),
        "gpu_count_differs": _count(found, declared, recorded, len(withheld), known),
        "gpu_count_withheld": _count_withheld(found, declared, len(withheld)),
        "gpus_passed_through": _passed_through(passed),
        "gpus_excluded": "" if declared.gpu_count == len(found) else _excluded(excluded),
        "gpu_model_differs": _models(found, declared.gpu_models),
        "driver_version_differs": _version(facts["driver_version"], declared.driver_version),
        **others,
    }


def _unavailable(facts: Facts) -> str:
    """The reason of nvidia_smi_facts; GPUs that are on the PCI bus are not absent."""
    return "gpus_unusable" if facts["reason"] == "no_gpu" and facts["pci_gpus"] else str(facts["reason"])


def _count(found: Sequence[str], declared: Declared, recorded: Sequence[str], withheld: int, known: int) -> str:
    """How the number of GPUs differs; those that were `withheld` on purpose, `known` of them, are no loss."""
    if declared.gpu_count is not None:
        if len(found) <= declared.gpu_count <= len(found) + withheld:
            return ""
        return f"{_responding(found)}, and {_declared(declared.gpu_count)}"
    if len(found) + known >= len(recorded):
        return ""
    return (
        f"{_responding(found)}, and at an earlier check there were {len(recorded)}; "
        "if they were removed on purpose, declare gpu_count"
    )


def _declared(count: int) -> str:
    return f"{count} {_are(count)} declared"


def _count_withheld(found: Sequence[str], declared: Declared, withheld: int) -> str:
    count = declared.gpu_count
    if count is None or not len(found) < count <= len(found) + withheld:
        return ""
    return f"{_responding(found)}, {withheld} {_are(withheld)} passed through or excluded, and {_declared(count)}"


def _passed_through(gpus: Sequence[Facts]) -> str:
    names = ", ".join(f"{gpu['pci_bus_id']} ({gpu['driver']})" for gpu in gpus)
    return f"{_gpus(len(gpus))} {_are(len(gpus))} passed through to virtual machines: {names}" if gpus else ""


def _excluded(gpus: Sequence[Facts]) -> str:
    names = ", ".join(str(gpu["pci_bus_id"]) for gpu in gpus)
    return f"the driver's parameters exclude {_gpus(len(gpus))}: {names}" if gpus else ""


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _responding(found: Sequence[str]) -> str:
    return "1 GPU responds" if len(found) == 1 else f"{len(found) or 'no'} GPUs respond"


def _models(found: Sequence[str], desired: Sequence[str]) -> str:
    others = sorted({name for name in found if not any(model.lower() in name.lower() for model in desired)})
    return f"{', '.join(others)}: only {', '.join(desired)} is declared" if desired and others else ""


def _version(found: str | None, desired: str | None) -> str:
    if not desired or found is None or found == desired or found.startswith(desired.rstrip(".") + "."):
        return ""
    return f"driver {found} is loaded, and {desired} is declared"
