# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known vulnerabilities of NVIDIA's driver and container toolkit, by version. Private to this collection.

Those of the driver are from the tables of data center GPUs ("Tesla", Linux) in NVIDIA's security bulletins, as NVIDIA
publishes them in https://github.com/NVIDIA/product-security, with the bulletins up to August 2026. A branch without an
entry is not in the bulletin's table: nothing is stated about its versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

from .source import Source

_TOOLKIT_NOTES = Source(
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/release-notes.html", "2026-11-22"
)


@dataclass(frozen=True)
class Bulletin:
    """One bulletin: its number, its date, the first version of each branch without its vulnerabilities, and their names
    with the branches that do not have one."""

    number: str
    date: str
    fixed_in: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]
    read: str = "2026-11-23"

    @property
    def source(self) -> Source:
        """Where NVIDIA has published it."""
        year = self.date.partition("-")[0]
        address = f"https://github.com/NVIDIA/product-security/blob/main/{year}/{self.number}/{self.number}.md"
        return Source(address, self.read)


def _everywhere(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names, ())


BULLETINS = (
    Bulletin(
        "5520",
        "2024-02-28",
        {"470": "470.239.06", "535": "535.161.07", "550": "550.54.14"},
        {"CVE-2022-42265": ("535", "550"), "CVE-2024-0074": (), "CVE-2024-0075": ("470",)},
    ),
    Bulletin(
        "5551",
        "2024-06-06",
        {"470": "470.256.02", "535": "535.183.01", "550": "550.90.07"},
        {"CVE-2024-0090": (), "CVE-2024-0091": ("470", "535"), "CVE-2024-0092": ()},
    ),
    Bulletin("5586", "2024-10-22", {"535": "535.216.01", "550": "550.127.05"}, _everywhere("CVE-2024-0126")),
    Bulletin(
        "5614",
        "2025-01-16",
        {"535": "535.230.02", "550": "550.144.03", "570": "570.86.15"},
        {
            **_everywhere("CVE-2024-0131", "CVE-2024-0147", "CVE-2024-0149", "CVE-2024-0150"),
            "CVE-2024-53869": ("535",),
        },
    ),
    Bulletin(
        "5630",
        "2025-04-24",
        {"535": "535.247.01", "550": "550.163.01", "570": "570.133.07", "575": "575.51.02"},
        _everywhere("CVE-2025-23244"),
    ),
    Bulletin(
        "5670",
        "2025-07-24",
        {"535": "535.261.03", "570": "570.172.08"},
        {"CVE-2025-23279": ("535",), "CVE-2025-23286": ("570",)},
    ),
    Bulletin(
        "5703",
        "2025-10-09",
        {"535": "535.274.02", "570": "570.195.03", "580": "580.95.05"},
        _everywhere(
            "CVE-2025-23280", "CVE-2025-23282", "CVE-2025-23300", "CVE-2025-23330", "CVE-2025-23332", "CVE-2025-23345"
        ),
    ),
    Bulletin(
        "5747",
        "2026-01-28",
        {"535": "535.288.01", "570": "570.211.01", "580": "580.126.09", "590": "590.48.01"},
        _everywhere("CVE-2025-33219", "CVE-2025-33220"),
    ),
    Bulletin(
        "5821",
        "2026-05-19",
        {"535": "535.309.01", "580": "580.159.03", "595": "595.71.05"},
        {
            **_everywhere("CVE-2025-33221", "CVE-2026-24182", "CVE-2026-24187", "CVE-2026-24190", "CVE-2026-24192"),
            "CVE-2026-24193": ("595",),
            **_everywhere("CVE-2026-24194", "CVE-2026-24196", "CVE-2026-24197"),
            "CVE-2026-24198": ("535",),
            **_everywhere("CVE-2026-24199"),
        },
    ),
)


@dataclass(frozen=True)
class ToolkitVulnerability:
    """An escape from a container to its host, and the first version of the toolkit without it."""

    name: str
    fixed_in: str
    source: Source = _TOOLKIT_NOTES


TOOLKIT = (
    ToolkitVulnerability("CVE-2024-0132", "1.16.2"),
    ToolkitVulnerability("CVE-2025-23359", "1.17.4"),
    ToolkitVulnerability("CVE-2025-23266", "1.17.8"),
)
FIXED_IN = {one.name: one.fixed_in for one in TOOLKIT}
