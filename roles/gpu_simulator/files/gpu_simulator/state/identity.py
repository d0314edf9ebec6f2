# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identities derived from a seed: the same description always gives the same GPUs."""

from __future__ import annotations

import hashlib


def _hex(*parts: object) -> str:
    return hashlib.sha256("/".join(str(part) for part in parts).encode()).hexdigest()


def _uuid(digits: str, variant: str) -> str:
    return "-".join((digits[:8], digits[8:12], variant + digits[13:16], "8" + digits[17:20], digits[20:32]))


def gpu_uuid(seed: str, slot: int) -> str:
    """Return the UUID of the GPU in a slot: ``GPU-`` and a random-looking UUID."""
    return "GPU-" + _uuid(_hex(seed, "uuid", slot), "4")


def serial(seed: str, slot: int) -> str:
    """Return a serial number of 13 digits."""
    return "16" + str(int(_hex(seed, "serial", slot)[:12], 16))[:11].zfill(11)


def pdi(seed: str, slot: int) -> str:
    """Return the per-device identifier: 64 bits in hex."""
    return "0x" + _hex(seed, "pdi", slot)[:16]


def mig_uuid(uuid: str, gpu_instance_id: int, compute_instance_id: int) -> str:
    """Return the UUID of a MIG device: always the same for the same GPU and instances."""
    return "MIG-" + _uuid(_hex(uuid, gpu_instance_id, compute_instance_id), "5")
