# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cores and bandwidths of a GPU, from the tables. Private to this collection.

What the tables do not know is None.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from .._knowledge.gpus import CHIPS, Chip
from .._knowledge.specifications import MULTIPROCESSORS, PRODUCTS

_DEVICE_ID = re.compile(r"(?:0x|10de:)([0-9a-f]{4})(?:10de)?", re.IGNORECASE)


@dataclass(frozen=True)
class Cores:
    """Multiprocessors, cores and bandwidths of a whole GPU, whatever part of it MIG gives to an instance."""

    multiprocessors: int | None = None
    cuda_cores: int | None = None
    tensor_cores: int | None = None
    memory_bandwidth_gb_per_second: int | None = None
    nvlink_bandwidth_gb_per_second: float | None = None


def number_of_id(text: str) -> int:
    """The number in a PCI device id: `0x2335`, `10de:2335`, or nvidia-smi's `0x233510DE`; -1 for any other text."""
    match = _DEVICE_ID.fullmatch(text)
    return int(match[1], 16) if match else -1


def chip_of_id(text: str) -> Chip | None:
    """The chip with a PCI device id."""
    number = number_of_id(text)
    return next((chip for chip in CHIPS if chip.first_id <= number <= chip.last_id), None)


def cores_of(device: str, name: str = "") -> Cores:
    """The cores and bandwidths of a product by its PCI device id, or by its name where the id is not known."""
    number = number_of_id(device)
    product = next(
        (one for one in PRODUCTS if number in one.device_ids or (number < 0 and name in one.names)),
        None,
    )
    if product is None:
        return Cores()
    chip = chip_of_id(f"0x{min(product.device_ids):04x}")
    each = MULTIPROCESSORS.get(chip.compute_capability) if chip else None
    count, bandwidth = product.multiprocessors, product.bandwidth
    return Cores(
        count,
        count * each.cuda_cores if count and each else None,
        count * each.tensor_cores if count and each and each.tensor_cores is not None else None,
        bandwidth.memory if bandwidth else None,
        float(bandwidth.nvlink) if bandwidth and bandwidth.nvlink is not None else None,
    )


def specified(device: str, name: str) -> dict[str, Any]:
    """The same as facts of a GPU."""
    return asdict(cores_of(device, name))
