# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose GPUs the way people name them. Private to this collection."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Sequence

from ._gpu import Gpu
from ._readings import bus_id

ALL = "all"


class SelectionError(Exception):
    """A selector that no GPU answers to; `selector` is it."""

    def __init__(self, selector: str, gpus: Sequence[Gpu]) -> None:
        known = "; ".join(f"{g.index} = {g.basics.uuid} = {g.basics.pci_bus_id} ({g.basics.name})" for g in gpus)
        super().__init__(f"no GPU matches {selector!r}; this host has: {known or 'none'}")
        self.selector = selector


def select(gpus: Sequence[Gpu], selectors: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs that any of `selectors` names, in the order of the host.

    A selector is `all`, an index (`0`), a UUID, a PCI bus id with or without its domain (`07:00.0`), or a product name
    with `*` and `?` (`NVIDIA A100*`), in any case of letters. Raises SelectionError for one that names none.
    """
    chosen: list[Gpu] = []
    for selector in selectors:
        matching = [gpu for gpu in gpus if matches(gpu, selector)]
        if not matching and selector.strip().lower() != ALL:
            raise SelectionError(selector, gpus)
        chosen += matching
    return tuple(gpu for gpu in gpus if gpu in chosen)


def matches(gpu: Gpu, selector: str) -> bool:
    """Whether `selector` names `gpu`."""
    wanted = selector.strip().lower()
    if wanted == ALL:
        return True
    if wanted.isdecimal():
        return gpu.index == int(wanted)
    try:
        return gpu.basics.pci_bus_id == bus_id(wanted)
    except ValueError:
        pass
    if wanted == (gpu.basics.uuid or "").lower():
        return True
    return fnmatchcase((gpu.basics.name or "").lower(), wanted)
