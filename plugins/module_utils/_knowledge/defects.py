# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known defects of versions of NVIDIA's driver that an operator can avoid. Private to this collection.

Data only, for notes: no driver is refused for a defect. A version that is not in here is not free of defects.
"""

from __future__ import annotations

from dataclasses import dataclass

from .source import Source


@dataclass(frozen=True)
class Defect:
    """A defect of these versions on GPUs with one of these chips: what happens, and what to do."""

    versions: tuple[str, ...]
    chips: tuple[str, ...]
    what: str
    source: Source


DEFECTS = (
    # Which version has it no more is not stated there.
    Defect(
        ("570.133.20",),
        ("GB100",),
        "nvidia-smi hangs after 66 days and 12 hours without a reboot; set nvidia_driver_version to a newer one, or "
        "reboot the host before",
        Source("https://github.com/NVIDIA/open-gpu-kernel-modules/issues/971", "2026-11-28"),
    ),
)
