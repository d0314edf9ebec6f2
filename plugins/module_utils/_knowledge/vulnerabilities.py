# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known vulnerabilities of NVIDIA's driver, container toolkit and DCGM, by version. Private to this collection.

They come from NVIDIA's security bulletins (https://github.com/NVIDIA/product-security); the driver has its
rows of data center GPUs ("Tesla") on Linux. A branch without an entry is not in the bulletin's table: nothing is stated
about its versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, Mapping

from .source import Source

DRIVER, TOOLKIT, DCGM = "driver", "toolkit", "dcgm"


@dataclass(frozen=True)
class Bulletin:
    """What one bulletin has of a product: its number, the dates of its first and last publication, and of the index of
    bulletins that still had these (`read`); the first version of each branch without its vulnerabilities, `""` where
    the product has no branches; and their names with the branches that do not have one."""

    product: str
    number: str
    date: str
    updated: str
    read: str
    fixed_in: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]

    @property
    def source(self) -> Source:
        """Where NVIDIA has published it."""
        year = self.date.partition("-")[0]
        address = f"https://github.com/NVIDIA/product-security/blob/main/{year}/{self.number}/{self.number}.md"
        return Source(address, self.read)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version for comparisons: epoch and what follows a hyphen, tilde or plus do not count.

    Empty where it is no version.
    """
    release = version.rsplit(":", maxsplit=1)[-1]
    for mark in "-~+":
        release = release.partition(mark)[0]
    parts = release.split(".")
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        return ()
    return tuple(map(int, parts))


@dataclass(frozen=True)
class Known:
    """What is known against a version of a product: bulletins with their vulnerabilities, oldest first, and the first
    version of its branch without them."""

    found: tuple[tuple[Bulletin, tuple[str, ...]], ...] = ()
    fixed_in: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The vulnerabilities of all of them."""
        return tuple(name for found in self.found for name in found[1])

    @property
    def text(self) -> str:
        """The bulletins with the vulnerabilities; of many of one bulletin, the first ones and how many more."""
        return "; ".join(f"bulletin {one.number} of {one.date}: {_several(names)}" for one, names in self.found)


_MOST_NAMES = 4


def _several(names: tuple[str, ...]) -> str:
    if len(names) <= _MOST_NAMES + 1:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def known(product: str, version: str, branch: str = "", accepted: Collection[str] = ()) -> Known:
    """Vulnerabilities of a version, without the vulnerabilities and the bulletins that are `accepted`."""
    lacking = [
        (one, tuple(name for name, without in one.names.items() if branch not in without and name not in accepted))
        for one in BULLETINS
        if one.product == product
        and one.number not in accepted
        and branch in one.fixed_in
        and numbers(version) < numbers(one.fixed_in[branch])
    ]
    found = tuple((one, names) for one, names in lacking if names) if numbers(version) else ()
    return Known(found, max((one[0].fixed_in[branch] for one in found), key=numbers, default=""))


def acceptable() -> frozenset[str]:
    """What a site may accept: the names of vulnerabilities, and the numbers of bulletins for all of theirs."""
    return frozenset(name for one in BULLETINS for name in (one.number, *one.names))


# Written by `make facts-check ARGS=--write` out of NVIDIA's documents.
BULLETINS = (
    Bulletin(
        DRIVER,
        "5312",
        "2022-02-01",
        "2022-02-01",
        "2026-08-18",
        {"470": "470.103.01", "510": "510.47.03"},
        {
            "CVE-2022-21813": (),
            "CVE-2022-21814": (),
        },
    ),
    Bulletin(
        DCGM,
        "5328",
        "2022-03-17",
        "2022-03-17",
        "2026-08-18",
        {"": "2.3.4"},
        {
            "CVE-2022-21820": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5353",
        "2022-05-16",
        "2022-05-24",
        "2026-08-18",
        {"450": "450.191.01", "470": "470.129.06", "510": "510.73.08"},
        {
            "CVE-2022-28181": (),
            "CVE-2022-28183": ("450",),
            "CVE-2022-28184": ("450",),
            "CVE-2022-28185": (),
            "CVE-2022-28191": ("450",),
            "CVE-2022-28192": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5383",
        "2022-08-02",
        "2022-08-16",
        "2026-08-18",
        {"450": "450.203.03", "470": "470.141.03", "510": "510.85.02", "515": "515.65.01"},
        {
            "CVE-2022-31607": (),
            "CVE-2022-31608": (),
            "CVE-2022-31615": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5415",
        "2022-11-28",
        "2022-12-20",
        "2026-08-18",
        {"450": "450.216.04", "470": "470.161.03", "510": "510.108.03", "515": "515.86.01"},
        {
            "CVE-2022-34670": (),
            "CVE-2022-34673": ("450", "470", "510"),
            "CVE-2022-34674": (),
            "CVE-2022-34675": (),
            "CVE-2022-34677": (),
            "CVE-2022-34679": (),
            "CVE-2022-34680": (),
            "CVE-2022-34682": (),
            "CVE-2022-34684": ("450", "470"),
            "CVE-2022-42254": (),
            "CVE-2022-42255": ("450",),
            "CVE-2022-42256": (),
            "CVE-2022-42257": (),
            "CVE-2022-42258": (),
            "CVE-2022-42259": (),
            "CVE-2022-42260": ("515",),
            "CVE-2022-42261": ("515",),
            "CVE-2022-42262": ("515",),
            "CVE-2022-42263": (),
            "CVE-2022-42264": (),
            "CVE-2022-42265": ("450", "470", "510"),
        },
    ),
    Bulletin(
        DRIVER,
        "5452",
        "2023-03-30",
        "2023-03-30",
        "2026-08-18",
        {"450": "450.236.01", "470": "470.182.03", "515": "515.105.01", "525": "525.105.17"},
        {
            "CVE-2023-0180": (),
            "CVE-2023-0183": ("450", "470"),
            "CVE-2023-0184": (),
            "CVE-2023-0185": (),
            "CVE-2023-0187": ("450",),
            "CVE-2023-0188": (),
            "CVE-2023-0189": (),
            "CVE-2023-0190": (),
            "CVE-2023-0191": (),
            "CVE-2023-0194": (),
            "CVE-2023-0195": (),
            "CVE-2023-0198": (),
            "CVE-2023-0199": (),
        },
    ),
    Bulletin(
        DCGM,
        "5453",
        "2023-03-31",
        "2023-03-31",
        "2026-08-18",
        {"": "3.1.7"},
        {
            "CVE-2023-0208": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5468",
        "2023-06-26",
        "2023-06-26",
        "2026-08-18",
        {"450": "450.248.02", "470": "470.199.02", "525": "525.125.06", "535": "535.54.03"},
        {
            "CVE-2023-25515": (),
            "CVE-2023-25516": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5491",
        "2023-10-31",
        "2023-11-01",
        "2026-08-18",
        {"470": "470.223.02", "525": "525.147.05", "535": "535.129.03"},
        {
            "CVE-2023-31022": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5520",
        "2024-02-28",
        "2024-02-28",
        "2026-08-18",
        {"470": "470.239.06", "535": "535.161.07", "550": "550.54.14"},
        {
            "CVE-2022-42265": ("535", "550"),
            "CVE-2024-0074": (),
            "CVE-2024-0075": ("470",),
        },
    ),
    Bulletin(
        DRIVER,
        "5551",
        "2024-06-06",
        "2024-06-06",
        "2026-08-18",
        {"470": "470.256.02", "535": "535.183.01", "550": "550.90.07"},
        {
            "CVE-2024-0090": (),
            "CVE-2024-0091": ("470", "535"),
            "CVE-2024-0092": (),
        },
    ),
    Bulletin(
        TOOLKIT,
        "5582",
        "2024-09-25",
        "2024-09-25",
        "2026-08-18",
        {"": "1.16.2"},
        {
            "CVE-2024-0132": (),
            "CVE-2024-0133": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5586",
        "2024-10-22",
        "2024-12-05",
        "2026-08-18",
        {"535": "535.216.01", "550": "550.127.05"},
        {
            "CVE-2024-0126": (),
        },
    ),
    Bulletin(
        TOOLKIT,
        "5585",
        "2024-11-05",
        "2024-11-05",
        "2026-08-18",
        {"": "1.17"},
        {
            "CVE-2024-0134": (),
        },
    ),
    Bulletin(
        TOOLKIT,
        "5599",
        "2025-01-14",
        "2025-01-14",
        "2026-08-18",
        {"": "1.17.1"},
        {
            "CVE-2024-0135": (),
            "CVE-2024-0136": (),
            "CVE-2024-0137": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5614",
        "2025-01-16",
        "2025-01-30",
        "2026-08-18",
        {"535": "535.230.02", "550": "550.144.03", "570": "570.86.15"},
        {
            "CVE-2024-0131": (),
            "CVE-2024-0147": (),
            "CVE-2024-0149": (),
            "CVE-2024-0150": (),
            "CVE-2024-53869": ("535",),
        },
    ),
    Bulletin(
        TOOLKIT,
        "5616",
        "2025-02-11",
        "2025-02-11",
        "2026-08-18",
        {"": "1.17.4"},
        {
            "CVE-2025-23359": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5630",
        "2025-04-24",
        "2025-04-30",
        "2026-08-18",
        {"535": "535.247.01", "550": "550.163.01", "570": "570.133.07", "575": "575.51.02"},
        {
            "CVE-2025-23244": (),
        },
    ),
    Bulletin(
        TOOLKIT,
        "5659",
        "2025-07-15",
        "2025-08-12",
        "2026-08-18",
        {"": "1.17.8"},
        {
            "CVE-2025-23266": (),
            "CVE-2025-23267": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5670",
        "2025-07-24",
        "2025-07-24",
        "2026-08-18",
        {"535": "535.261.03", "570": "570.172.08"},
        {
            "CVE-2025-23279": ("535",),
            "CVE-2025-23286": ("570",),
        },
    ),
    Bulletin(
        DRIVER,
        "5703",
        "2025-10-09",
        "2025-10-09",
        "2026-08-18",
        {"535": "535.274.02", "570": "570.195.03", "580": "580.95.05"},
        {
            "CVE-2025-23280": (),
            "CVE-2025-23282": (),
            "CVE-2025-23300": (),
            "CVE-2025-23330": (),
            "CVE-2025-23332": (),
            "CVE-2025-23345": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5747",
        "2026-01-28",
        "2026-01-28",
        "2026-09-30",
        {"535": "535.288.01", "570": "570.211.01", "580": "580.126.09", "590": "590.48.01"},
        {
            "CVE-2025-33219": (),
            "CVE-2025-33220": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5821",
        "2026-05-19",
        "2026-05-21",
        "2026-09-30",
        {"535": "535.309.01", "580": "580.159.03", "595": "595.71.05"},
        {
            "CVE-2025-33221": (),
            "CVE-2026-24182": (),
            "CVE-2026-24187": (),
            "CVE-2026-24190": (),
            "CVE-2026-24192": (),
            "CVE-2026-24193": ("595",),
            "CVE-2026-24194": (),
            "CVE-2026-24196": (),
            "CVE-2026-24197": (),
            "CVE-2026-24198": ("535",),
            "CVE-2026-24199": (),
        },
    ),
    Bulletin(
        TOOLKIT,
        "5850",
        "2026-06-30",
        "2026-06-30",
        "2026-09-30",
        {"": "1.19.1"},
        {
            "CVE-2026-24260": (),
        },
    ),
    Bulletin(
        DCGM,
        "5857",
        "2026-07-28",
        "2026-07-28",
        "2026-09-30",
        {"": "4.5.3"},
        {
            "CVE-2026-47483": (),
        },
    ),
    Bulletin(
        DRIVER,
        "5861",
        "2026-09-30",
        "2026-09-30",
        "2026-09-30",
        {"580": "580.178.04", "595": "595.91.07", "610": "610.57.04", "615": "615.71.09"},
        {
            "CVE-2026-47489": (),
            "CVE-2026-47491": (),
            "CVE-2026-47492": (),
            "CVE-2026-47494": (),
            "CVE-2026-47500": (),
            "CVE-2026-47501": (),
            "CVE-2026-47502": (),
            "CVE-2026-47504": (),
            "CVE-2026-47507": (),
            "CVE-2026-47508": (),
            "CVE-2026-47509": (),
            "CVE-2026-47510": (),
            "CVE-2026-47511": (),
            "CVE-2026-47512": (),
            "CVE-2026-47513": (),
            "CVE-2026-47514": (),
            "CVE-2026-47515": (),
            "CVE-2026-47516": (),
            "CVE-2026-47517": (),
            "CVE-2026-47518": (),
            "CVE-2026-47522": (),
            "CVE-2026-47523": (),
            "CVE-2026-47524": (),
            "CVE-2026-47525": (),
            "CVE-2026-47526": (),
            "CVE-2026-47527": (),
            "CVE-2026-47528": (),
            "CVE-2026-47529": (),
            "CVE-2026-47530": (),
            "CVE-2026-47531": (),
            "CVE-2026-47532": (),
            "CVE-2026-47533": (),
            "CVE-2026-47534": (),
            "CVE-2026-47537": (),
            "CVE-2026-47538": (),
            "CVE-2026-47540": (),
            "CVE-2026-47542": (),
            "CVE-2026-47543": (),
            "CVE-2026-47545": (),
            "CVE-2026-47546": (),
            "CVE-2026-47547": (),
            "CVE-2026-47548": (),
            "CVE-2026-47549": ("580",),
            "CVE-2026-47551": (),
            "CVE-2026-47552": (),
            "CVE-2026-47553": (),
            "CVE-2026-47554": (),
            "CVE-2026-47555": (),
            "CVE-2026-47556": (),
            "CVE-2026-47557": (),
            "CVE-2026-47558": (),
            "CVE-2026-47559": (),
            "CVE-2026-47560": (),
            "CVE-2026-47561": (),
            "CVE-2026-47562": (),
            "CVE-2026-47563": (),
            "CVE-2026-47565": (),
            "CVE-2026-47566": (),
            "CVE-2026-47567": (),
            "CVE-2026-47568": (),
            "CVE-2026-47569": (),
            "CVE-2026-47572": (),
            "CVE-2026-47586": ("580",),
            "CVE-2026-47587": (),
            "CVE-2026-47588": (),
            "CVE-2026-47589": (),
            "CVE-2026-47590": (),
            "CVE-2026-47591": (),
            "CVE-2026-47592": (),
            "CVE-2026-47594": (),
            "CVE-2026-47595": (),
            "CVE-2026-47596": (),
            "CVE-2026-47597": (),
            "CVE-2026-47598": (),
            "CVE-2026-47599": (),
            "CVE-2026-47600": (),
            "CVE-2026-47601": (),
            "CVE-2026-47602": (),
            "CVE-2026-47603": (),
            "CVE-2026-47604": (),
        },
    ),
)
