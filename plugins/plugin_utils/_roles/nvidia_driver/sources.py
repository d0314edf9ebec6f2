# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a driver comes from: one row for each value of nvidia_driver_source. Private to this collection. Data only."""

from __future__ import annotations

import re
from dataclasses import dataclass

DISTRIBUTION, LOCAL, RUNFILE = "distribution", "local_repository", "runfile"


@dataclass(frozen=True)
class Source:
    """A value of nvidia_driver_source.

    `repository` is the one of the role nvidia_repository that brings its packages, empty for none; `place` is what the
    URL of such a repository has, unless another one is given; `needs` are variables that have to be set with it.
    """

    name: str
    repository: str = ""
    place: re.Pattern[str] | None = None
    needs: str = ""


SOURCES = (
    Source("cuda_repository", "cuda", re.compile(r"/compute/cuda/repos/")),
    Source(DISTRIBUTION),
    Source("ppa", "graphics_drivers", re.compile(r"//ppa\.launchpad(?:content)?\.net/graphics-drivers/")),
    Source(
        LOCAL,
        "local",
        re.compile(r"/nvidia-driver-local-repo-"),
        needs="nvidia_driver_local_repository and nvidia_driver_local_repository_sha256",
    ),
    Source(
        RUNFILE,
        needs="nvidia_driver_runfile_url, or an exact nvidia_driver_version, and nvidia_driver_runfile_sha256",
    ),
)


def source_named(name: str) -> Source:
    """The row of a source; one without repository and needs for a name that is none."""
    return next((source for source in SOURCES if source.name == name), Source(name))


def source_at(url: str) -> str:
    """The source whose repositories have such a URL: the distribution's own unless it is another's."""
    return next((one.name for one in SOURCES if one.place and one.place.search(url)), DISTRIBUTION)
