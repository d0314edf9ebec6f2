# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Projects whose releases the collection follows, and the last release whose notes were read. Private. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source


@dataclass(frozen=True)
class Project:
    """A project on GitHub or PyPI, and the newest of its releases whose notes were read or which was tried.

    A release with more numbers than `newest` counts by as many: of 1.37, 1.37.4 is nothing new. `feed` is where its
    releases are listed: GitHub's `releases` or `tags`, or `pypi`. The defaults of roles follow it.
    """

    name: str
    newest: str
    source: Source
    feed: str = "releases"


_PAGES = {
    "releases": "https://github.com/{}/releases",
    "tags": "https://github.com/{}/tags",
    "pypi": "https://pypi.org/project/{}/",
}


def _read(name: str, newest: str, date: str, feed: str = "releases") -> Project:
    return Project(name, newest, Source(_PAGES[feed].format(name), date), feed)


PROJECTS = (
    _read("NVIDIA/nvidia-container-toolkit", "1.20.0", "2026-11-24"),
    _read("NVIDIA/k8s-device-plugin", "0.20.1", "2026-11-24"),
    _read("NVIDIA/dcgm-exporter", "4.9.0", "2026-11-24"),
    _read("NVIDIA/gpu-operator", "26.7.2", "2026-11-28"),
    _read("kubernetes-sigs/dra-driver-nvidia-gpu", "0.5.1", "2026-11-28"),
    _read("kubernetes/kubernetes", "1.37", "2026-11-28"),
    _read("moby/moby", "29.5", "2026-11-28"),
    _read("SchedMD/slurm", "26.05", "2026-11-28", "tags"),
    _read("ansible-core", "2.21", "2026-11-28", "pypi"),
)
