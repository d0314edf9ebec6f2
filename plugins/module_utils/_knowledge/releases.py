# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects whose releases the collection follows, and the last release whose notes were read. Private. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source


@dataclass(frozen=True)
class Project:
    """A project on GitHub, and the newest of its releases whose notes were read."""

    name: str
    newest: str
    source: Source


def _read(name: str, newest: str, date: str) -> Project:
    return Project(name, newest, Source(f"https://github.com/{name}/releases", date))


PROJECTS = (
    _read("NVIDIA/nvidia-container-toolkit", "1.20.0", "2026-11-24"),
    _read("NVIDIA/k8s-device-plugin", "0.20.1", "2026-11-24"),
    _read("NVIDIA/dcgm-exporter", "4.9.0", "2026-11-24"),
)
