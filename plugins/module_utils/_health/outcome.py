# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a test on request found. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass

FAILED, CONFIGURATION, WARNED, UNKNOWN = "failed", "configuration", "warned", "unknown"


@dataclass(frozen=True)
class Outcome:
    """What a test found: `gpu` is the index of nvidia-smi, None for the whole host."""

    kind: str
    text: str
    gpu: int | None = None
