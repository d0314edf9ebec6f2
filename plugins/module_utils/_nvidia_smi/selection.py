# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Select GPUs by index, UUID, PCI bus id or product name. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Sequence

from .._common.bounds import shown
from .._common.errors import ChangeError
from .gpu import Gpu
from .remedies import unresponsive
from .values import bus_id

ALL = "all"
# NVML's own limit for the length of UUIDs and product names.
_LONGEST = 96


class SelectionError(Exception):
    """`selector` matches no GPU."""

    def __init__(self, selector: str, gpus: Sequence[Gpu]) -> None:
        known = "; ".join(
            f"{g.index} = {g.basics.uuid} = {g.basics.pci_bus_id} ({g.basics.name})"
            if g.basics.uuid is not None
            else f"{g.label}, which does not respond"
            for g in gpus
        )
        super().__init__(f"no GPU matches {shown(selector)}; this host has: {known or 'none'}")
        self.selector = selector


@dataclass(frozen=True)
class Chosen:
    """`gpus` has the GPUs of each entry, in host order; `warnings` name entries without a match."""

    gpus: tuple[tuple[Gpu, ...], ...]
    warnings: tuple[str, ...] = ()


def choose(
    gpus: Sequence[Gpu],
    limit: Sequence[str],
    entries: Sequence[Sequence[str]] | None = None,
    option: str = "",
    skips_unmatched: bool = False,
) -> Chosen:
    """The GPUs of each entry of the list `option`, never one outside `limit`, the selectors of the option gpus.

    `entries` has the selectors of each entry; None stands for a single entry with all of `limit`. Raises ChangeError
    for a host without GPUs, and for a `limit` that is empty or names a missing GPU. Entries without a match are only
    warnings, since the same list is often used for many hosts; with `skips_unmatched` a `limit` is as well, as far as
    it names GPUs by model.
    """
    if not gpus:
        raise ChangeError("no GPU is chosen: this host has no GPU that nvidia-smi shows")
    if not limit:
        # An empty list is often the result of a filter without a match, and never means all.
        raise ChangeError("gpus is empty: it names no GPU; leave it out for all GPUs of the host")
    warnings = []
    if skips_unmatched:
        models = [selector for selector in limit if _is_model(selector)]
        absent = _matched(gpus, models)[1]
        warnings += [f"gpus: no GPU of this host matches {', '.join(map(shown, absent))}"] if absent else []
        limit = [selector for selector in limit if selector not in absent]
    try:
        within = select(gpus, limit)
    except SelectionError as error:
        raise ChangeError(f"gpus: {error}") from error
    named = set(map(id, within))
    warnings += [
        f"left out: {unresponsive(gpu.label, gpu.error)}"
        for gpu in gpus
        if gpu.error is not None and id(gpu) not in named
    ]
    if entries is None:
        return Chosen((within,), tuple(warnings))
    matched = [_matched(gpus, selectors) for selectors in entries]
    allowed = set(map(id, within))
    chosen = tuple(tuple(gpu for gpu in found if id(gpu) in allowed) for found, _unmatched in matched)
    for place, (selectors, (_found, unmatched)) in enumerate(zip(entries, matched)):
        if not selectors:
            warnings.append(f"{option}[{place}]: gpus is empty: the entry is for no GPU")
        elif unmatched:
            warnings.append(f"{option}[{place}]: no GPU of this host matches {', '.join(map(shown, unmatched))}")
    if not entries:
        warnings.append(f"{option} is empty: it declares nothing for any GPU")
    elif within and any(found for found, _unmatched in matched) and not any(chosen):
        warnings.append(outside(option, limit))
    return Chosen(chosen, tuple(warnings))


def _is_model(selector: str) -> bool:
    """Whether a selector can only be a product name: neither `all` nor an index, UUID or PCI bus id."""
    text = selector.strip().lower()
    return text != ALL and not text.isdigit() and ":" not in text and not text.startswith(("gpu-", "mig-"))


def outside(option: str, limit: Sequence[str]) -> str:
    """The warning that everything in the list `option` is for GPUs outside `limit`."""
    return f"{option}: no entry is for a GPU that the top-level gpus names ({', '.join(map(shown, limit))})"


def select(gpus: Sequence[Gpu], selectors: Sequence[str]) -> tuple[Gpu, ...]:
    """The GPUs that match any of `selectors`, in host order.

    A selector is `all`, an index (`0`), a UUID, a PCI bus id with or without its domain (`07:00.0`), or a product name
    with `*` and `?` (`NVIDIA A100*`), case-insensitive. Raises SelectionError for one without a match.
    """
    found, unmatched = _matched(gpus, selectors)
    for selector in unmatched:
        if selector.strip().lower() != ALL:
            raise SelectionError(selector, gpus)
    return found


def matches(gpu: Gpu, selector: str) -> bool:
    """Whether `selector` matches `gpu`."""
    desired = selector.strip().lower()
    if desired == ALL:
        return True
    if desired.isascii() and desired.isdigit():
        return str(gpu.index) == (desired.lstrip("0") or "0")
    try:
        return gpu.basics.pci_bus_id == bus_id(desired)
    except ValueError:
        pass
    if not desired or len(desired) > _LONGEST:
        return False
    return desired == (gpu.basics.uuid or "").lower() or fnmatchcase((gpu.basics.name or "").lower(), desired)


def _matched(gpus: Sequence[Gpu], selectors: Sequence[str]) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs that match any of `selectors`, and the selectors without a match."""
    found: set[int] = set()
    unmatched = []
    for selector in dict.fromkeys(selectors):
        matching = {id(gpu) for gpu in gpus if matches(gpu, selector)}
        found |= matching
        if not matching:
            unmatched.append(selector)
    return tuple(gpu for gpu in gpus if id(gpu) in found), tuple(unmatched)
