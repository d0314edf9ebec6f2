# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Export the present MIG state as options or documents that reproduce it. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Sequence

from .parted import VERSION
from .profiles import compute_name

CONFIG = "current"
"""Name of the only configuration in an exported document, the same as in `nvidia-mig-parted export`."""


@dataclass(frozen=True)
class PresentInstance:
    """One GPU instance, with the slices of its compute instances in any order."""

    profile: str
    slices: int
    start: int
    compute: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its compute instances, largest first; one with `0c.` where there are none."""
        sizes = sorted(self.compute, reverse=True) or [0]
        return tuple(compute_name(self.profile, self.slices, size) for size in sizes)


@dataclass(frozen=True)
class PresentGpu:
    """One GPU; `selector` also identifies it after a reboot. `enabled` None: it has no MIG.

    A pending mode is exported as the present one, except for a GPU that still has instances while its mode is about to
    be disabled: instances can be requested only with MIG mode enabled.
    """

    selector: str
    index: int
    enabled: bool | None
    instances: tuple[PresentInstance, ...] = ()

    @property
    def profiles(self) -> list[str]:
        """The instances for the option `profiles`, each with its start."""
        ordered = sorted(self.instances, key=lambda item: item.start)
        return [f"{name}:{item.start}" for item in ordered for name in item.names]

    @property
    def devices(self) -> dict[str, int]:
        """The compute instances for mig-parted's `mig-devices`, which has neither starts nor empty instances."""
        ordered = sorted((item for item in self.instances if item.compute), key=lambda item: item.start)
        return dict(Counter(name for item in ordered for name in item.names))


def export_layouts(gpus: Sequence[PresentGpu]) -> list[dict[str, Any]]:
    """The option `layouts`: an entry for each GPU that has MIG."""
    return [
        {"gpus": [gpu.selector], "enabled": gpu.enabled, "profiles": gpu.profiles}
        for gpu in gpus
        if gpu.enabled is not None
    ]


def export_mig_parted(gpus: Sequence[PresentGpu]) -> dict[str, Any]:
    """A mig-parted document. As in its own export, GPUs without MIG are included and identical GPUs share an entry."""
    entries: list[dict[str, Any]] = []
    for gpu in gpus:
        state = {"mig-enabled": bool(gpu.enabled), "mig-devices": gpu.devices}
        for entry in entries:
            if state.items() <= entry.items():
                entry["devices"].append(gpu.index)
                break
        else:
            entries.append({"devices": [gpu.index], **state})
    return {"version": VERSION, "mig-configs": {CONFIG: entries}}
