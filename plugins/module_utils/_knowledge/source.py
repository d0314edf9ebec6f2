# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a fact is from, and when it was read there. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """An address, and the date of the state in which it was read.

    It is the date of the source itself, where the source has one (a commit, a version), else the day of reading.
    """

    url: str
    read: str
