# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the report and its page. Private to this collection."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import REMEDIES
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from . import pictures, sections
from .changes import changes
from .documents import embedded, page_data, topologies
from .model import SCHEMA_VERSION, Host, Network, Report

TEMPLATES = Path(__file__).resolve().parents[3] / "playbooks" / "templates"
# Pictures and rows that the page has without its program; JSON and CSV have all.
_MOST_TOPOLOGIES = 60
_MOST_ROWS = 200


def make(hosts: Sequence[Host], time: str, previous: Mapping[str, Any] | None = None) -> Report:
    """The report; `time` is in UTC as 2026-11-22T17:00:00Z, `previous` the JSON of the last report.

    Raises KeyError, TypeError or AttributeError where `previous` is no report of this schema version.
    """
    hosts = sorted(hosts, key=lambda host: sections.natural(host.name))
    known = None if previous is None else [Host(**host) for host in previous["hosts"]]
    return Report(
        schema_version=SCHEMA_VERSION,
        time=time,
        summary=sections.summary(hosts),
        actions=sections.actions(hosts),
        inventory=sections.inventory(hosts),
        deviations=sections.deviations(hosts),
        branches=sections.branches(hosts, time),
        reboots=sections.reboots(hosts),
        racks=sections.racks(hosts),
        networks=sections.networks(hosts),
        nvlink_domains=sections.nvlink_domains(hosts),
        layouts=sections.layouts(hosts),
        histories=sections.histories(hosts),
        previous_time=None if previous is None else previous["time"],
        changes=() if known is None else changes(known, hosts),
        hosts=tuple(hosts),
    )


def as_html(report: Report) -> str:
    """The page, one file that needs no network."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, program = ((TEMPLATES / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    drawn = list(topologies(report.hosts).values())[:_MOST_TOPOLOGIES]
    return environment.get_template("report.html.j2").render(
        report=report,
        remedies=REMEDIES,
        most_rows=_MOST_ROWS,
        style=Markup(style),
        program=Markup(program),
        # Only these count for a browser, whatever a host has in its names.
        style_hash=_hash(style),
        program_hash=_hash(program),
        data=Markup(embedded(page_data(report))),
        topologies=[pictures.topology(devices) for devices in drawn],
        layouts=[(layout, pictures.mig_layout(layout)) for layout in report.layouts],
        racks=[(rack, pictures.rack_power(rack)) for rack in report.racks],
        networks=_networks(report),
        histories=[
            (item, pictures.history(item.events, report.time) if item.events else "")
            for item in report.histories[:_MOST_ROWS]
        ],
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _networks(report: Report) -> list[tuple[Network, list[str]]]:
    """Hosts with the same numbers of GPUs and adapters together: the first, and the names of all."""
    found: dict[Network, list[str]] = {}
    for network in report.networks:
        found.setdefault(replace(network, host=""), []).append(network.host)
    return list(found.items())
