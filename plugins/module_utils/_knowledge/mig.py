# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The oldest drivers with MIG. Private to this collection. Data only; a GPU that is not in here is unknown."""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source

_GUIDE = Source("https://docs.nvidia.com/datacenter/tesla/mig-user-guide/", "2026-11-23")


@dataclass(frozen=True)
class MigMinimum:
    """The oldest driver with MIG on products, by device ids and by a pattern of product names."""

    driver: str
    device_ids: frozenset[int]
    name: str
    source: Source = _GUIDE


# The guide's "Deployment Considerations"; GPUs of Ampere and the H100 have MIG with every driver of branch 535 and
# newer. Device ids: https://pci-ids.ucw.cz/read/PC/10de
MIG_MINIMUMS = (
    MigMinimum("535.161.07", frozenset({0x230C, 0x232C}), r"\bH20\b"),
    MigMinimum("550.90.07", frozenset({0x2335, 0x233B}), r"\bH200\b"),
    MigMinimum("570.133.20", frozenset({0x2901, 0x2909, 0x2941}), r"\bG?B200\b"),
    MigMinimum("580.82.07", frozenset({0x3182}), r"\bB300\b"),
    # The guide (edition 620, read 2026-11-23) names the GB300 of the DGX Station only.
    MigMinimum("595.58.03", frozenset({0x31A1, 0x31C2, 0x31C3}), r"\bGB300\b"),
    MigMinimum("575.51.03", frozenset({0x2BB1, 0x2BB4, 0x2BB5}), r"\bRTX PRO 6000 Blackwell\b"),
    MigMinimum("575.57.08", frozenset({0x2BB3}), r"\bRTX PRO 5000(?: 72GB)? Blackwell(?! (?:Gen|Emb))\b"),
    MigMinimum("575.64", frozenset({0x2C31}), r"\bRTX PRO 4500 Blackwell\b"),
)
