# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Branches of NVIDIA's driver. Private to this collection.

Data only. A branch that is not in here is unknown, which is never a reason to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_LIFECYCLE = "supported-drivers-and-cuda-toolkit-versions.html"
_UNIX = Source("https://www.nvidia.com/en-us/drivers/unix/", "2026-11-21")
_EDITION_620 = Source(f"https://docs.nvidia.com/datacenter/tesla/drivers/620/{_LIFECYCLE}", "2026-11-24")
_EDITION_615 = Source(f"https://docs.nvidia.com/datacenter/tesla/drivers/615/{_LIFECYCLE}", "2026-11-24")
_EDITIONS = Source("https://docs.nvidia.com/datacenter/tesla/drivers/", "2026-11-23")


@dataclass(frozen=True)
class Branch:
    """A branch: the last month with updates, as `2026-06`, None where that is not known.

    `new_feature`: short-lived, and NVIDIA names no end. `forward_compatible`: packages cuda-compat-X-Y that were built
    from a newer branch work on it (https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html).
    """

    number: int
    end: str | None = None
    new_feature: bool = False
    forward_compatible: bool = False
    source: Source = _UNIX


BRANCHES = (
    Branch(340),
    Branch(346),
    Branch(352),
    Branch(367),
    Branch(384),
    Branch(387),
    Branch(390),
    Branch(396),
    Branch(410),
    Branch(418),
    Branch(430),
    Branch(440),
    Branch(450),
    Branch(455),
    Branch(460),
    Branch(465),
    Branch(470),
    Branch(495),
    Branch(510),
    Branch(515),
    Branch(520),
    Branch(525),
    Branch(530),
    Branch(535, end="2026-06", forward_compatible=True, source=_EDITION_615),
    Branch(545, new_feature=True, source=_EDITION_620),
    Branch(550, end="2025-06", source=_EDITIONS),
    Branch(555, new_feature=True, source=_EDITION_620),
    Branch(560, new_feature=True, source=_EDITION_620),
    Branch(565, new_feature=True, source=_EDITION_620),
    Branch(570, end="2026-02", forward_compatible=True, source=_EDITIONS),
    Branch(575, new_feature=True, source=_EDITION_620),
    Branch(580, end="2028-06", forward_compatible=True, source=_EDITION_620),
    Branch(590, new_feature=True, forward_compatible=True, source=_EDITION_620),
    Branch(595, end="2027-03", forward_compatible=True, source=_EDITION_620),
    Branch(610, end="2026-08", forward_compatible=True, source=_EDITION_615),
    Branch(615, new_feature=True, forward_compatible=True, source=_EDITION_620),
    Branch(620, end="2029-09", forward_compatible=True, source=_EDITION_620),
)

KNOWN_BRANCHES = frozenset(branch.number for branch in BRANCHES)
END_OF_LIFE = {branch.number: branch.end for branch in BRANCHES if branch.end is not None}
NEW_FEATURE_BRANCHES = frozenset(branch.number for branch in BRANCHES if branch.new_feature)
FORWARD_COMPATIBLE_BRANCHES = tuple(branch.number for branch in BRANCHES if branch.forward_compatible)

# The open modules: https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html
FIRST_OPEN_BRANCH = 515
FIRST_OPEN_BY_DEFAULT_BRANCH = 560
