# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that a call sees, and those that ``-i`` selects."""

from __future__ import annotations

import os

from ..containers import capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

    from ..state.shapes import Gpu, State

    Selected = List[Tuple[int, Gpu]]


class UnparsableSelectorError(Exception):
    """``-i`` was given an empty string."""


def visible(state: State, root: str) -> Selected:
    """Number the GPUs whose device node exists: a container sees those it was given, counted from 0."""
    present = [gpu for gpu in state["gpus"] if os.path.exists(os.path.join(root, "dev/nvidia{}".format(gpu["minor"])))]
    present = [gpu for gpu in present if gpu["health"] not in ("missing", "passthrough")]
    return list(enumerate(capabilities.reachable(gpu, root) if gpu["gpu_instances"] else gpu for gpu in present))


def select(gpus: Selected, selector: str | None) -> Selected:
    """Select GPUs by a comma-separated list of indexes, UUIDs, serial numbers and bus ids, in the GPUs' order.

    Names that no GPU has are ignored; raises UnparsableSelectorError for an empty selector.
    """
    if selector is None:
        return gpus
    if not selector:
        raise UnparsableSelectorError
    desired = selector.split(",")
    return [(index, gpu) for index, gpu in gpus if any(_names(name, index, gpu) for name in desired)]


def _names(name: str, index: int, gpu: Gpu) -> bool:
    if name in (gpu["uuid"], gpu["serial"]):
        return True
    if ":" in name:
        return bus_parts(name) == bus_parts(gpu["bus_id"])
    try:
        return int(name, 16 if name.lower().startswith("0x") else 10) == index and not name.endswith((" ", "\n"))
    except ValueError:
        return False


def bus_parts(bus_id: str) -> tuple[int, int, int] | None:
    """Split ``[domain:]bus:device[.function]`` into numbers."""
    parts = bus_id.split(".", maxsplit=1)[0].split(":")
    try:
        numbers = [int(part, 16) for part in parts]
    except ValueError:
        return None
    if len(numbers) == 2:
        numbers.insert(0, 0)
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None
