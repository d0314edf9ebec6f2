# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs of a host are to have which settings. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ._errors import ChangeError
from ._gpu import Gpu
from ._selection import SelectionError, select

# Readings of a GPU that does not have a thing; the other reasons are failures, which nobody wants to skip.
_NOT_THERE = frozenset(("absent", "not_available", "not_supported", "not_found", "deprecated", "empty"))


@dataclass(frozen=True)
class Entry:
    """GPUs and what is declared for them, by the name of the option; what is not declared is left out."""

    selectors: tuple[str, ...]
    wishes: Mapping[str, Any]


ADVICE = "name other GPUs in gpus, or set on_unsupported to skip"
"""What to do about a GPU that lacks what is declared."""


class UnsupportedError(ChangeError):
    """A GPU that does not have what is declared for it."""


def selectors(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The GPUs that an entry names; all where it has no such option."""
    return ("all",) if entry.get("gpus") is None else tuple(entry["gpus"])


def assign(gpus: Sequence[Gpu], entries: Sequence[Entry], option: str) -> tuple[tuple[Gpu, dict[str, Any]], ...]:
    """Each GPU that is meant with all that is declared for it, in the order of the host.

    Entries of the list `option` may overlap where they agree. Raises ChangeError.
    """
    chosen: dict[str, dict[str, Any]] = {}
    for entry in entries:
        try:
            selected = select(gpus, entry.selectors)
        except SelectionError as error:
            raise ChangeError(str(error)) from error
        if not selected:
            # An empty list is often a filter that found nothing, never a wish for all.
            why = "this host has no GPU that nvidia-smi shows" if entry.selectors else "gpus is empty"
            raise ChangeError(f"no GPU is chosen: {why}")
        for gpu in selected:
            wishes = chosen.setdefault(gpu.identity, {})
            for name, wish in entry.wishes.items():
                if wishes.setdefault(name, wish) != wish:
                    raise ChangeError(f"{gpu.label} is in two entries of {option} that differ in {name}")
    for gpu in gpus:
        if gpu.identity in chosen and gpu.error is not None:
            raise ChangeError(f"{gpu.label} does not answer: {gpu.error}")
    return tuple((gpu, chosen[gpu.identity]) for gpu in gpus if gpu.identity in chosen)


def find(gpus: Sequence[Gpu], identity: str) -> Gpu:
    """The GPU with this identity; raises ChangeError when it is gone."""
    for gpu in gpus:
        if gpu.identity == identity:
            if gpu.error is not None:
                raise ChangeError(f"{gpu.label} does not answer: {gpu.error}")
            return gpu
    raise ChangeError(f"GPU {identity} is not there any more")


def missing(gpu: Gpu, reading: str, what: str) -> ChangeError:
    """The error for a GPU without `reading`: it has no such thing, or the thing cannot be read."""
    reason = dict(gpu.unknown).get(reading, "not_available")
    said = reason.replace("_", " ")
    if reason in _NOT_THERE:
        return UnsupportedError(f"{gpu.label} has no {what} ({said})")
    return ChangeError(f"the {what} of {gpu.label} cannot be read ({said})")
