# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse messages about single GPUs that nvidia-smi prints around any output. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .values import interpret, small

# Every address that fits is one for `values.bus_id`.
_ADDRESS = r"(?:[0-9a-f]{1,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_HANDLE = re.compile(
    r"(?:device handle for|problem with) gpu\s*"
    rf"(?:(?P<bus>{_ADDRESS})|(?P<index>\d+)(?::\s*(?P<bus_too>{_ADDRESS}))?)"
    r"\s*:\s*(?P<reason>.*\S)",
    re.IGNORECASE,
)
_INFOROM = re.compile(rf"infoROM is corrupted at gpu\s*(?P<bus>{_ADDRESS})", re.IGNORECASE)


@dataclass(frozen=True)
class FailedGpu:
    """A GPU that nvidia-smi reports as unreachable."""

    index: int | None
    pci_bus_id: str | None
    reason: str


def failed_gpus(text: str) -> tuple[FailedGpu, ...]:
    """GPUs in the lines "Unable to determine the device handle for GPU ...", in each of their forms, and "Problem with
    GPU ..."."""
    return tuple(
        FailedGpu(interpret(line["index"], small)[0], line["bus"] or line["bus_too"], line["reason"])
        for line in _HANDLE.finditer(text)
    )


def corrupted_inforoms(text: str) -> tuple[str, ...]:
    """PCI bus ids, as printed, in the lines "infoROM is corrupted at gpu ..."."""
    return tuple(line["bus"] for line in _INFOROM.finditer(text))
