# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The monitoring of GPUs: node_exporter and the health exporter on GPU hosts, alerts and targets on Prometheus.

Private to this collection. Pure, except that the exporter's program is a copy of this collection's own code.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...module_utils._common.drain_cap import Cap
from ...module_utils._health import announcement, export
from ...module_utils._health.metrics import HELD
from ...module_utils._health.policy import FAIL, REMEDIES, UNKNOWN, WARN, Row
from ...module_utils._health.run import policy_rows
from ...module_utils._state.service_files import COLLECTION, Source, sources
from .._planning.contract import Plan, RecordedHost, RolePlanner
from .._planning.platforms import platform_of
from .gpu_health.plan import check_refusals, converted, declared_refusals, path_refusals, rows_of

GPU_MONITORING = "gpu_monitoring"
INSTALL, REMOVE, WRITE = "install", "remove", "write"
"""Steps: the exporter is installed or removed, the files for Prometheus are written."""
_IGNORE, _ACCEPT = "gpu_health_ignore", "gpu_health_ignore_vulnerabilities"
"""Variables of the role gpu_health, of which the exporter's check is to find the same."""
_OPTIONS = ("expected", "policy", "kernel_log", "history")
"""Options of the module gpu_health that are variables of the role."""
_AUTO, _DEBIAN_PACKAGE = "auto", "prometheus-node-exporter"

PROGRAM = "/usr/lib/gpu-fleet-health"
OPTIONS = f"{PROGRAM}/options.json"
_INTERVALS = (10, 86_400)
"""Seconds between two checks: each takes some, and calls nvidia-smi."""
SERVICE, TIMER = "gpu-fleet-health.service", "gpu-fleet-health.timer"
_UNITS = "/etc/systemd/system"
_COLLECTION_ROOT = Path(__file__).resolve().parents[3]

SEVERITIES = {FAIL: "critical", WARN: "warning", UNKNOWN: "info"}
"""Severity by verdict; what is better is no alert."""
_DURATIONS = {FAIL: "0s", WARN: "15m", UNKNOWN: "1h"}
"""How long a finding has to hold: a warning is for the next occasion, an unknown reading may come again."""
_MISSED_CHECKS = 3
_DCGM_JOB = "gpu_fleet_dcgm"

_MAIN = f"""\
# Written by gpu.fleet.gpu_monitoring: checks the health of the GPUs; see the unit {SERVICE}.
import sys

from {export.__name__} import main

raise SystemExit(main(sys.argv[1:]))
"""

_SERVICE_TEXT = """\
# Written by gpu.fleet.gpu_monitoring; its next run overwrites changes. Put additions into a drop-in.
[Unit]
Description=Check the health of the GPUs and write it for node_exporter
Documentation=https://github.com/gpu-fleet/gpu.fleet/blob/main/docs/monitoring.md

[Service]
Type=oneshot
# Python would compile the program at each check.
CacheDirectory=gpu-fleet-health
CacheDirectoryMode=0700
ExecStart={python} -I -S -X pycache_prefix=/var/cache/gpu-fleet-health {program} {options}
TimeoutStartSec=300
Nice=10
NoNewPrivileges=yes
ProtectSystem=full
ProtectHome=yes
PrivateTmp=yes
# It uses no network. Not set: PrivateNetwork, in which /sys has no network interfaces to check.
IPAddressDeny=any
RestrictAddressFamilies=AF_UNIX
RuntimeDirectory=gpu-fleet-health
RuntimeDirectoryPreserve=yes
"""

_TIMER_TEXT = """\
# Written by gpu.fleet.gpu_monitoring; its next run overwrites changes. Put additions into a drop-in.
[Unit]
Description=Check the health of the GPUs regularly

[Timer]
OnBootSec=2min
OnUnitActiveSec={interval}s
AccuracySec=5s
RandomizedDelaySec=10s

[Install]
WantedBy=timers.target
"""


_ANNOUNCEMENT = """\
#!{python} -ISB
# Written by gpu.fleet.gpu_monitoring: the last verdict about the GPUs; see docs/monitoring.md.
import sys

sys.path.insert(0, {program!r})
from {module} import main

raise SystemExit(main({audience!r}, {verdict!r}, {max_drained!r}))
"""


# The plan


@dataclass(frozen=True)
class Request:
    """What the variables of the role request.

    `package` has node_exporter, auto for the distribution's, empty for none; `interval` is in seconds;
    `health` are options of the module gpu_health for the check; `max_drained` is a number or a percentage of nodes.
    """

    is_present: bool
    package: str
    textfile: str
    interval: int
    python: str
    max_drained: Cap
    health: Mapping[str, Any]

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role; what gpu_health ignores is ignored by the check as well."""
        accepted = {"ignore_vulnerabilities": variables[_ACCEPT]} if _ACCEPT in variables else {}
        options = {name: variables[f"gpu_monitoring_{name}"] for name in _OPTIONS}
        return cls(
            is_present=variables["gpu_monitoring_state"] == "present",
            package=str(variables["gpu_monitoring_package"] or ""),
            textfile=str(variables["gpu_monitoring_textfile"]),
            # -e gives text, of which three would be another text.
            interval=int(variables["gpu_monitoring_interval"]),
            python=str(variables["gpu_monitoring_python"]),
            max_drained=Cap(str(variables[announcement.CAP]), announcement.CAP),
            health={**options, "ignore": variables.get(_IGNORE, []), **accepted},
        )

    @property
    def refusals(self) -> tuple[str, ...]:
        """What is wrong with the variables; nothing where the role is removed, which needs none of them."""
        if not self.is_present:
            return ()
        least, most = _INTERVALS
        interval = f"gpu_monitoring_interval is {self.interval}; it takes seconds from {least} to {most}"
        return (
            *filter(None, [self.max_drained.refusal]),
            *([] if least <= self.interval <= most else [interval]),
            *path_refusals("gpu_monitoring_textfile", self.textfile),
            *check_refusals(GPU_MONITORING, self.health),
        )


@dataclass(frozen=True)
class Host(RecordedHost):
    """What is known of the host; `packages` are those that are installed."""

    packages: Collection[str] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host with these facts."""
        record = (facts.get("gpu_fleet_managed") or {}).get(GPU_MONITORING) or {}
        return cls(platform=platform_of(facts), record=record, packages=facts.get("packages") or ())


def plan(request: Request, host: Host) -> Plan:
    """What is installed with which package manager, and the package that the role has, or will have, installed.

    Only that is removed later.
    """
    recorded = str(host.recorded.get("package") or "")
    of_platform = _DEBIAN_PACKAGE if host.manager == "apt" else ""
    package = of_platform if request.package == _AUTO else request.package
    is_missing = bool(package) and package not in host.packages
    return Plan(
        refusals=request.refusals,
        steps=(INSTALL if request.is_present else REMOVE,),
        tasks={
            "package": package,
            "installed_with": host.manager if is_missing else "",
            "own_package": package if is_missing or package == recorded else "",
            "recorded_package": recorded,
            "textfile": request.textfile,
            "interval": request.interval,
            "python": request.python,
            "max_drained": request.max_drained.text,
            "health": request.health,
        },
    )


def _planned(variables: Mapping[str, Any], facts: Mapping[str, Any], _given: Mapping[str, Any]) -> Plan:
    return plan(Request.read(variables), Host.of(facts))


def _prometheus(variables: Mapping[str, Any], _facts: Mapping[str, Any], given: Mapping[str, Any]) -> Plan:
    """The files for Prometheus and Grafana; none where they are removed. The dashboard is a file of the role."""
    unit = str(variables["gpu_monitoring_prometheus_unit"] or "")
    if variables["gpu_monitoring_state"] != "present":
        return Plan(steps=(REMOVE,), tasks={"files": {}, "unit": unit})
    policy, interval = variables["gpu_monitoring_policy"], int(variables["gpu_monitoring_interval"])
    refusals = tuple(declared_refusals(GPU_MONITORING, {"policy": policy}))
    if refusals:
        return Plan(refusals=refusals)
    directory, targets = variables["gpu_monitoring_prometheus_directory"], variables["gpu_monitoring_targets"]
    files = prometheus_files(directory, targets, interval, policy, variables["gpu_monitoring_dcgm_targets"])
    dashboards = variables["gpu_monitoring_dashboard_directory"]
    dashboard = {f"{dashboards}/gpu_fleet.json": given["dashboard"]} if dashboards else {}
    return Plan(steps=(WRITE,), tasks={"files": {**files, **dashboard}, "unit": unit})


PLANNER = RolePlanner(
    "gpu_monitoring",
    {"plan": _planned, "prometheus": _prometheus},
    others=(_IGNORE, _ACCEPT),
)


# On GPU hosts


def exporter_files(
    textfile: str,
    interval: int,
    python: str,
    health: Mapping[str, Any],
    *,
    max_drained: str,
    verdict: str = announcement.FILE,
) -> dict[str, dict[str, str]]:
    """The `files` and `programs` of the exporter, content by path. Raises ChangeError.

    `health` has options of the module gpu_health; `max_drained` is the cap of the programs, `verdict` what they read.
    """
    # The program has no types of its own.
    health = {**health, **{name: converted(name, health[name]) for name in ("expected", "policy")}}
    policy_rows(health["policy"], health.get("ignore", ()))
    written = {**health, "textfile": textfile, "verdict": verdict, "interval": interval}
    options = json.dumps(written, indent=2, sort_keys=True) + "\n"
    modules = {**sources(export.__name__, _source), **sources(announcement.__name__, _source)}
    program = {f"{PROGRAM}/{path}": text for path, text in modules.items()}
    service = _SERVICE_TEXT.format(python=python, program=PROGRAM, options=OPTIONS)
    programs = {
        f"{PROGRAM}/{audience}": _ANNOUNCEMENT.format(
            python=python,
            program=PROGRAM,
            module=announcement.__name__,
            audience=audience,
            verdict=verdict,
            max_drained=str(max_drained),
        )
        for audience in announcement.AUDIENCES
    }
    files = {
        **program,
        f"{PROGRAM}/__main__.py": _MAIN,
        OPTIONS: options,
        f"{_UNITS}/{SERVICE}": service,
        f"{_UNITS}/{TIMER}": _TIMER_TEXT.format(interval=interval),
    }
    return {"files": files, "programs": programs}


def _source(name: str) -> Source | None:
    """A module of this collection from its file: Ansible's importer on the controller returns no source."""
    if f"{COLLECTION}.plugins.".startswith(f"{name}."):
        return Source("", is_package=True)
    path = _COLLECTION_ROOT.joinpath(*name.removeprefix(f"{COLLECTION}.").split("."))
    if path.is_dir():
        return Source("", is_package=True)
    file = path.with_name(f"{path.name}.py")
    return Source(file.read_text(encoding="utf-8")) if file.is_file() else None


# On the host of Prometheus


def prometheus_files(
    directory: str,
    targets: Sequence[str],
    interval: int,
    policy: Sequence[Mapping[str, Any]],
    exporters: Sequence[str] = (),
) -> dict[str, str]:
    """Content of the files for Prometheus by path. Raises ChangeError for a policy that gpu_health would refuse.

    `exporters` are addresses of dcgm-exporter.
    """
    jobs: dict[str, list[dict[str, Any]]] = {"gpu_fleet": [{"targets": list(targets)}]}
    if exporters:
        # By the name of its host, so that the dashboard has both of a host.
        instances = {_host_of(target): target for target in targets}
        jobs[_DCGM_JOB] = [
            {"targets": [one], "labels": {"instance": instances.get(_host_of(one), one)}} for one in exporters
        ]
    discovered = {job: f"{directory}/{job}_targets.json" for job in jobs}
    scrape = {"scrape_configs": [{"job_name": job, "file_sd_configs": [{"files": [discovered[job]]}]} for job in jobs]}
    return {
        **{discovered[job]: json.dumps(groups, indent=2) + "\n" for job, groups in jobs.items()},
        f"{directory}/gpu_fleet_scrape.yml": _yaml(scrape),
        f"{directory}/gpu_fleet_rules.yml": _yaml(alert_rules(policy, interval)),
    }


def _host_of(address: str) -> str:
    return address.rpartition(":")[0] or address


def alert_rules(policy: Sequence[Mapping[str, Any]], interval: int) -> dict[str, Any]:
    """A group of alerts: for each row of the health policy that is no mere information, and about the checks."""
    rows = rows_of(policy)
    rules = [_row_rule(row) for row in rows if row.verdict in SEVERITIES]
    return {"groups": [{"name": "gpu_fleet", "rules": [*_check_rules(interval), *rules]}]}


def _row_rule(row: Row) -> dict[str, Any]:
    return {
        "alert": f"GpuFleet{_camel(row.id)}",
        "expr": f'gpu_fleet_health_finding{{row="{row.id}"}} == 1',
        "for": _DURATIONS[row.verdict],
        "labels": {"severity": SEVERITIES[row.verdict]},
        "annotations": {
            "summary": f"{{{{ $labels.instance }}}} {{{{ $labels.gpu }}}}: {row.symptom}",
            "remedy": REMEDIES[row.remedy],
            "description": f"The row {row.id} of the health policy holds; remedy {row.remedy}: {REMEDIES[row.remedy]}.",
        },
    }


def _check_rules(interval: int) -> list[dict[str, Any]]:
    late = _MISSED_CHECKS * interval
    return [
        {
            "alert": "GpuFleetHostDown",
            "expr": 'up{job="gpu_fleet"} == 0',
            "for": "5m",
            "labels": {"severity": "critical"},
            "annotations": {
                "summary": "{{ $labels.instance }}: node_exporter does not respond",
                "description": "The host is down, or its node_exporter cannot be reached.",
            },
        },
        {
            "alert": "GpuFleetHealthNotChecked",
            "expr": f'time() - gpu_fleet_health_time_seconds > {late} or up{{job="gpu_fleet"}} == 1 '
            "unless on (instance) gpu_fleet_health_time_seconds",
            "for": "5m",
            "labels": {"severity": "warning"},
            "annotations": {
                "summary": f"{{{{ $labels.instance }}}}: no check of the GPUs for {late} seconds",
                "description": f"See systemctl status {SERVICE} on the host.",
            },
        },
        {
            "alert": "GpuFleetDcgmExporterDown",
            "expr": f'up{{job="{_DCGM_JOB}"}} == 0',
            "for": "5m",
            "labels": {"severity": "warning"},
            "annotations": {
                "summary": "{{ $labels.instance }}: dcgm-exporter does not respond",
                "description": "See systemctl status nvidia-dcgm-exporter nvidia-dcgm on the host.",
            },
        },
        {
            "alert": "GpuFleetVerdictHeld",
            "expr": f"{HELD} == 1",
            "for": "0s",
            "labels": {"severity": "critical"},
            "annotations": {
                "summary": "{{ $labels.instance }}: verdict fail, and it stays in service in {{ $labels.scheduler }}",
                "description": "As many nodes as the cap allows are out of service by verdicts, or they could not be "
                "counted. Look for a common cause first, such as a driver or the check itself.",
            },
        },
    ]


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.replace("-", "_").split("_"))


def _yaml(data: Any) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return "# Written by gpu.fleet.gpu_monitoring; its next run overwrites changes.\n" + text
