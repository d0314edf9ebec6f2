# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's recovery action for a GPU: ``gpu_recovery_action``, and the same action in an Xid 154 line."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

    from .shapes import Gpu, Version

NONE, GPU_RESET, NODE_REBOOT, DRAIN_P2P, DRAIN_AND_RESET, RECOVER_IMEX_DOMAIN, BUS_RESET, SYSTEM_REBOOT = range(8)
"""NVML's numbers."""

SINCE: Mapping[int, int] = {
    NONE: 565,
    GPU_RESET: 565,
    NODE_REBOOT: 565,
    DRAIN_P2P: 565,
    DRAIN_AND_RESET: 570,
    RECOVER_IMEX_DOMAIN: 595,
    BUS_RESET: 615,
    SYSTEM_REBOOT: 615,
}
"""The first driver branch that knows an action."""

NAMES: Mapping[str, int] = {
    "none": NONE,
    "reset": GPU_RESET,
    "reboot": NODE_REBOOT,
    "drain_p2p": DRAIN_P2P,
    "drain_and_reset": DRAIN_AND_RESET,
    "recover_imex_domain": RECOVER_IMEX_DOMAIN,
    "bus_reset": BUS_RESET,
    "system_reboot": SYSTEM_REBOOT,
}
"""Names on the command line of ``gpu-simulator``."""

# Names in the document; the last three were not observed.
_NAMES = (
    "None",
    "Reset",
    "Reboot",
    "Drain P2P",
    "Drain and Reset",
    "Recover IMEX Domain",
    "Bus Reset",
    "System Reboot",
)
_KERNEL_NAMES = (
    "None",
    "GPU Reset Required",
    "Node Reboot Required",
    "Drain P2P",
    "Drain and Reset",
    "Recover IMEX Domain",
    "Bus Reset",
    "System Reboot",
)
_ENDED_BY_BOOT_ONLY = (NODE_REBOOT, SYSTEM_REBOOT, RECOVER_IMEX_DOMAIN)


def action(gpu: Gpu) -> int:
    """Return the action that a GPU needs: the one that was set, or a reset for a pending row remapping."""
    given = gpu.get("recovery_action", NONE)
    return GPU_RESET if given == NONE and gpu["remapped_rows"]["pending"] else given


def text(number: int) -> str:
    """Return an action as the document prints it."""
    return _NAMES[number]


def kernel_text(number: int, version: Version) -> str:
    """Return an action as a line of Xid 154 prints it; 615 names the kind of reset."""
    return "PF FLR" if number == GPU_RESET and version >= (615,) else _KERNEL_NAMES[number]


def after_reset(gpu: Gpu) -> None:
    """Clear an action that a GPU reset completes."""
    if gpu.get("recovery_action", NONE) not in _ENDED_BY_BOOT_ONLY:
        gpu["recovery_action"] = NONE
