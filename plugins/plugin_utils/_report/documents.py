# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as CSV and JSON, and the data of its page. Private to this collection."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from .model import Host, Report, gpus, name_of, status

CSV_COLUMNS = (
    "host",
    "status",
    "reason",
    "rack",
    "driver",
    "cuda",
    "gpu",
    "uuid",
    "serial",
    "pci_bus_id",
    "model",
    "verdict",
    "remedy",
    "memory_used_mib",
    "memory_total_mib",
    "power_draw_w",
    "power_limit_w",
    "temperature_c",
    "ecc_mode",
    "mig_mode",
    "ecc_aggregate_corrected",
    "ecc_aggregate_uncorrected",
    "remapped_rows_correctable",
    "remapped_rows_uncorrectable",
    "messages",
)
# A spreadsheet would take what begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def as_json(report: Report) -> str:
    """The whole report, one line of JSON for each host."""
    # asdict copies everything, which takes longer than all else for what the hosts have.
    head = json.dumps(asdict(replace(report, hosts=())) | {"hosts": None}, indent=1).removesuffix(
        ',\n "hosts": null\n}'
    )
    hosts = [json.dumps({field.name: getattr(host, field.name) for field in fields(host)}) for host in report.hosts]
    lines = ",\n".join(f"  {host}" for host in hosts)
    return f'{head},\n "hosts": [\n{lines}\n ]\n}}\n' if hosts else f'{head},\n "hosts": []\n}}\n'


def as_csv(report: Report) -> str:
    """A line for each GPU, and one for each host without."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for host in report.hosts:
        verdicts = {name_of(gpu): gpu for gpu in (host.health or {}).get("gpus", ())}
        for gpu in (*gpus(host), *(() if gpus(host) else (None,))):
            row = _csv_row(host, gpu, verdicts)
            writer.writerow([_cell(row.get(column)) for column in CSV_COLUMNS])
    return output.getvalue()


def _csv_row(host: Host, gpu: Mapping[str, Any] | None, verdicts: Mapping[str, Any]) -> dict[str, Any]:
    facts, name = host.facts or {}, name_of(gpu) if gpu else None
    findings = [item for item in (host.health or {}).get("findings", ()) if item["verdict"] != "ok"]
    messages = [item["message"] for item in findings if item["gpu"] in (name, None)]
    row = {
        "host": host.name,
        "status": status(host),
        "reason": host.reason,
        "rack": host.rack,
        "driver": facts.get("driver_version"),
        "cuda": facts.get("cuda_version"),
        "messages": "; ".join(messages),
    }
    if gpu is None or name is None:
        return row
    verdict = verdicts.get(name, {})
    return {
        **gpu,
        **row,
        "gpu": gpu["index"],
        "model": gpu["name"],
        "verdict": verdict.get("verdict"),
        "remedy": verdict.get("remedy"),
    }


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


# The page. What repeats is there once, and rows have no names: a thousand hosts with 8 GPUs are 3 MB.

HOST_COLUMNS = (
    "name", "status", "reason", "rack", "remedy", "driver", "kind", "cuda", "toolkit", "distribution", "kernel",
    "onBus", "topology", "reboots", "nics", "gpus", "findings",
)  # fmt: skip
GPU_COLUMNS = (
    "index", "model", "uuid", "serial", "bus", "error", "verdict", "remedy", "memory", "memoryTotal", "power",
    "powerLimit", "temperature", "utilization", "ecc", "mig", "corrected", "uncorrected", "remapped",
    "remappedUncorrectable", "links", "linksActive", "instances", "processes", "processCount",
)  # fmt: skip
INSTANCE_COLUMNS = ("id", "profile", "start", "size", "memory", "memoryTotal")
PROCESS_COLUMNS = ("pid", "name", "memory", "instance")
NIC_COLUMNS = ("names", "bus", "rdma", "speed", "up", "node")
FINDING_COLUMNS = ("row", "gpu", "verdict", "remedy", "message")


class _Strings:
    """Strings by number, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str | None) -> int | None:
        return None if text is None else self._numbers.setdefault(text, len(self._numbers))

    @property
    def all(self) -> list[str]:
        return list(self._numbers)


def topologies(hosts: Sequence[Host]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """The different topologies by their JSON, in the order of their first host."""
    found: dict[str, Sequence[Mapping[str, Any]]] = {}
    for host in hosts:
        if host.facts and host.facts["topology"]:
            found.setdefault(json.dumps(host.facts["topology"]), host.facts["topology"])
    return found


def page_data(report: Report) -> dict[str, Any]:
    """What the page's program draws."""
    strings = _Strings()
    numbers = {text: number for number, text in enumerate(topologies(report.hosts))}
    hosts = [_host(host, strings, numbers) for host in report.hosts]
    return {
        "columns": {
            "host": HOST_COLUMNS,
            "gpu": GPU_COLUMNS,
            "instance": INSTANCE_COLUMNS,
            "process": PROCESS_COLUMNS,
            "nic": NIC_COLUMNS,
            "finding": FINDING_COLUMNS,
        },
        "strings": strings.all,
        "hosts": hosts,
    }


def _host(host: Host, strings: _Strings, numbers: Mapping[str, int]) -> list[Any]:
    facts, health = host.facts or {}, host.health or {}
    verdicts = {name_of(gpu): gpu for gpu in health.get("gpus", ())}
    indices = {name_of(gpu): place for place, gpu in enumerate(gpus(host))}
    system = facts.get("system", {})
    return [
        host.name,
        status(host),
        strings(host.reason),
        strings(host.rack),
        strings(health.get("remedy")),
        strings(facts.get("driver_version")),
        strings(facts.get("driver_kind")),
        strings(facts.get("cuda_version")),
        strings(facts.get("container_toolkit_version")),
        strings(system.get("distribution")),
        strings(system.get("kernel")),
        facts.get("pci_gpu_count", 0),
        numbers.get(json.dumps(facts.get("topology"))),
        [strings(reason) for reason in facts.get("reboot_reasons", ())],
        [
            [
                strings(" ".join(nic["names"])),
                strings(nic["pci_bus_id"]),
                int(nic["rdma"]),
                nic["speed_gb_per_second"],
                nic["up"],
                nic["numa_node"],
            ]
            for nic in facts.get("nics", ())
        ],
        [_gpu(gpu, verdicts.get(name_of(gpu), {}), strings) for gpu in gpus(host)],
        [
            [
                strings(finding["row"]),
                indices.get(finding["gpu"]),
                strings(finding["verdict"]),
                strings(finding["remedy"]),
                strings(finding["message"]),
            ]
            for finding in health.get("findings", ())
        ],
    ]


def _gpu(gpu: Mapping[str, Any], verdict: Mapping[str, Any], strings: _Strings) -> list[Any]:
    return [
        gpu["index"],
        strings(gpu["name"]),
        gpu["uuid"],
        gpu["serial"],
        strings(gpu["pci_bus_id"]),
        strings(gpu["error"]),
        strings(verdict.get("verdict")),
        strings(verdict.get("remedy")),
        gpu["memory_used_mib"],
        gpu["memory_total_mib"],
        gpu["power_draw_w"],
        gpu["power_limit_w"],
        gpu["temperature_c"],
        gpu["utilization_percent"],
        strings(gpu["ecc_mode"]),
        strings(gpu["mig_mode"]),
        gpu["ecc_aggregate_corrected"],
        gpu["ecc_aggregate_uncorrected"],
        gpu["remapped_rows_correctable"],
        gpu["remapped_rows_uncorrectable"],
        gpu["nvlinks"],
        gpu["nvlinks_active"],
        [
            [
                item["gpu_instance_id"],
                strings(item["profile"]),
                item["placement_start"],
                item["placement_size"],
                item["memory_used_mib"],
                item["memory_total_mib"],
            ]
            for item in gpu["instances"] or ()
        ],
        [
            [process["pid"], strings(process["name"]), process["memory_used_mib"], process["gpu_instance_id"]]
            for process in gpu["processes"]
        ],
        gpu["process_count"],
    ]


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside an element of HTML, and in JavaScript."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
