# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints the fleet at the end of a run: a line for each host, and for each failed host a line with the reason."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_table
type: aggregate
short_description: A table of the GPU fleet at the end of a run
version_added: 0.1.0
author: gpu.fleet contributors (@gpu-fleet)
description:
  - Prints one line for each host of the run, with its GPUs, driver, CUDA, ECC, MIG, containers and health. After the
    table come what limits a driver, such as the end of life of its branch, and one line for each host that failed or
    could not be reached, with the reason.
  - It shows what the run itself read with P(gpu.fleet.nvidia_smi_facts#module), P(gpu.fleet.gpu_health#role) and the
    smoke test of P(gpu.fleet.nvidia_container_toolkit#role), and queries no host. A run that read no GPUs and had no
    failure prints no table.
requirements:
  - enabled by C(callbacks_enabled = gpu.fleet.fleet_table) in the section C([defaults]) of C(ansible.cfg)
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.plugins.callback import CallbackBase

_UNKNOWN = "-"
_NOT_APPLICABLE = "n/a"

_HEADER = ("host", "gpus", "driver", "cuda", "ecc", "mig", "containers", "health")


@dataclass
class HostRecord:
    """What a run reported about one host.

    facts: RETURN of nvidia_smi_facts, None when not read. health: the fact gpu_health_result, None when not set.
    containers: what containers saw, the fact nvidia_container_toolkit_seen, None when not set.
    reason: why the last failed task failed, one line. failed and unreachable: the host's final status.
    """

    facts: Mapping[str, Any] | None = None
    health: Mapping[str, Any] | None = None
    containers: Mapping[str, Any] | None = None
    reason: str = ""
    failed: bool = False
    unreachable: bool = False


def render(records: Mapping[str, HostRecord]) -> list[str]:
    """The lines to print for these records, by host name; none when there is nothing to report."""
    if not any(record.facts or record.failed or record.unreachable for record in records.values()):
        return []
    hosts = sorted(records.items(), key=lambda item: _natural(item[0]))
    rows = [_row(host, record) for host, record in hosts]
    reasons = [
        f"{host} {'is unreachable' if record.unreachable else 'failed'}: {record.reason.removeprefix(host + ': ')}"
        for host, record in hosts
        if record.failed or record.unreachable
    ]
    notes = [f"{host}: {note}" for host, record in hosts for note in (record.health or {}).get("notes") or []]
    return align([_HEADER, *rows]) + (["", *notes] if notes else []) + (["", *reasons] if reasons else [])


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns two spaces apart, each as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _natural(host: str) -> list[tuple[int, str]]:
    """Natural sort key: node2 before node10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", host)]


def _row(host: str, record: HostRecord) -> tuple[str, ...]:
    facts: Mapping[str, Any] = record.facts or {}
    gpus = facts.get("gpus") or []
    return (
        host,
        _gpus(facts),
        facts.get("driver_version") or _UNKNOWN,
        facts.get("cuda_version") or _UNKNOWN,
        _summary([_mode(gpu, "ecc_mode") for gpu in gpus]),
        _mig(gpus),
        _containers(record),
        _health(record),
    )


def _gpus(facts: Mapping[str, Any]) -> str:
    """GPU count by model, from nvidia-smi, or from the PCI bus when nvidia-smi gives none."""
    if facts.get("reason") == "no_gpu":
        return "none"
    if facts.get("gpus"):
        return _numbered(Counter(gpu.get("name") or "unknown" for gpu in facts["gpus"]))
    on_bus = len(facts.get("pci_gpus") or [])
    return f"{on_bus} on PCI" if on_bus else _UNKNOWN


def _summary(values: Sequence[str]) -> str:
    """Equal values once, different ones with their counts: `enabled`, or `7 x enabled, 1 x disabled`."""
    counts = Counter(values)
    return _numbered(counts) if len(counts) > 1 else next(iter(counts), _UNKNOWN)


def _numbered(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {value}" for value, count in counts.items())


def _mode(gpu: Mapping[str, Any], name: str) -> str:
    """Current mode of a GPU, with the pending one after the next reset or reboot where they differ."""
    current, pending = gpu.get(f"{name}_current"), gpu.get(f"{name}_pending")
    if current is None:
        return _NOT_APPLICABLE
    return str(current) if pending in (None, current) else f"{current} -> {pending}"


def _mig(gpus: Sequence[Mapping[str, Any]]) -> str:
    devices = sum(len(gpu.get("mig_devices") or []) for gpu in gpus)
    return _summary([_mode(gpu, "mig_mode") for gpu in gpus]) + (f" ({devices} devices)" if devices else "")


def _containers(record: HostRecord) -> str:
    for seen in ((record.health or {}).get("containers") or {}, record.containers or {}):
        if seen.get("gpus") is not None:
            devices = f" + {seen['mig_devices']} MIG" if seen.get("mig_devices") else ""
            return f"{seen['gpus']}{devices} ({seen['mode']})"
    return _UNKNOWN


def _health(record: HostRecord) -> str:
    if record.unreachable:
        return "unreachable"
    if record.failed:
        return "failed"
    if record.health is None:
        return _UNKNOWN
    return "ok" if record.health.get("ok") else "not ok"


def failure_reason(result: Mapping[str, Any]) -> str:
    """Why a task failed, in one line: Ansible's message, and what to do where Ansible does not state it."""
    items = result.get("results")
    failed = [item for item in items if isinstance(item, Mapping) and item.get("failed")] if items else []
    errors = [error for part in (result, *failed) for error in part.get("argument_errors") or []]
    if errors:
        return one_line("; ".join(errors)) + "; correct the variable in the inventory or with -e"
    if failed:
        return "; ".join(dict.fromkeys(map(failure_reason, failed)))
    message = [one_line(str(result[key])) for key in ("msg", "stderr") if result.get(key)]
    return ": ".join(message) or "the task reports no reason"


def unreachable_reason(result: Mapping[str, Any]) -> str:
    """Why a host could not be reached, in one line, with what to check."""
    message = one_line(str(result.get("msg") or "no connection"))
    return f"{message}; check that the host is up, and its address, user and key in the inventory"


def one_line(text: str) -> str:
    """The text with runs of whitespace as one space, without Ansible's opening words and the final full stop."""
    return " ".join(text.split()).removeprefix("Task failed: ").removeprefix("Action failed: ").rstrip(".")


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no types
    """Collects the records of the hosts during the run and prints them at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpu.fleet.fleet_table"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, HostRecord] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        record = self._record(result)
        facts = result.result.get("ansible_facts") or {}
        record.facts = facts.get("nvidia_smi", record.facts)
        record.health = facts.get("gpu_health_result", record.health)
        record.containers = facts.get("nvidia_container_toolkit_seen", record.containers)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._record(result).reason = failure_reason(result.result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._record(result).reason = unreachable_reason(result.result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        for host, record in self._records.items():
            summary = stats.summarize(host)
            record.failed, record.unreachable = summary["failures"] > 0, summary["unreachable"] > 0
        lines = render(self._records)
        if lines:
            self._display.display("\n" + "\n".join(lines))

    def _record(self, result: Any) -> HostRecord:
        return self._records.setdefault(result.host.get_name(), HostRecord())
