# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which version of DCGM each dcgm-exporter was tested with, and which of both NVIDIA's GPU Operator runs. Private."""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_TAGS = Source("https://github.com/NVIDIA/dcgm-exporter/tags", "2026-11-29")
_NOTES = Source("https://github.com/NVIDIA/dcgm-exporter/releases", "2026-11-29")


@dataclass(frozen=True)
class Pair:
    """A release of dcgm-exporter, and the versions of DCGM that it was tested with, which its tag or its notes have."""

    exporter: str
    dcgm: tuple[str, ...]
    source: Source = _TAGS


PAIRS = (
    Pair("4.9.0", ("4.7.0", "4.7.1"), _NOTES),
    Pair("4.8.4", ("4.6.1",), _NOTES),
    Pair("4.8.3", ("4.6.0",), _NOTES),
    Pair("4.8.2", ("4.5.3",)),
    Pair("4.8.1", ("4.5.2",)),
    Pair("4.8.0", ("4.5.1",)),
    Pair("4.7.1", ("4.4.2",)),
    Pair("4.7.0", ("4.4.2",)),
    Pair("4.6.0", ("4.4.1",)),
    Pair("4.5.2", ("4.4.1",)),
    Pair("4.5.0", ("4.4.0",)),
    Pair("4.4.0", ("4.3.1",)),
    Pair("4.2.0", ("4.2.3",)),
    Pair("4.1.3", ("4.2.3",)),
    Pair("4.1.1", ("4.2.3",)),
    Pair("4.1.0", ("4.2.0",)),
    Pair("4.0.4", ("4.1.1",)),
    Pair("4.0.3", ("4.1.1",)),
    Pair("4.0.1", ("4.0.0",)),
)
"""The newest first."""


@dataclass(frozen=True)
class Operator:
    """A release of NVIDIA's GPU Operator, and the DCGM and the dcgm-exporter of its chart."""

    version: str
    dcgm: str
    exporter: str
    source: Source


def _operator(version: str, dcgm: str, exporter: str, date: str) -> Operator:
    chart = f"https://github.com/NVIDIA/gpu-operator/blob/v{version}/deployments/gpu-operator/values.yaml"
    return Operator(version, dcgm, exporter, Source(chart, date))


OPERATORS = (
    _operator("26.7.0", "4.6.0", "4.8.3", "2026-08-20"),
    _operator("26.3.2", "4.5.2", "4.8.2", "2026-05-27"),
    _operator("26.3.0", "4.5.2", "4.8.0", "2026-03-18"),
    _operator("25.10.1", "4.4.2", "4.7.0", "2025-12-03"),
    _operator("25.10.0", "4.4.1", "4.6.0", "2025-10-22"),
    _operator("25.3.4", "4.3.1", "4.4.0", "2025-09-17"),
    _operator("25.3.0", "4.1.1", "4.0.4", "2025-03-26"),
)
"""The newest first. Its own DCGM is off by default, and the exporter is on, with an engine of its own."""


def tested_with(exporter: str) -> tuple[str, ...]:
    """The versions of DCGM that a whole version of the exporter was tested with, empty where that is not known."""
    return next((pair.dcgm for pair in PAIRS if pair.exporter == exporter), ())
