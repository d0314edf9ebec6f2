# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assign declared settings to the GPUs of a host. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Collection, Mapping, Sequence

from .._common.errors import ChangeError
from .._nvidia_smi.gpu import Gpu
from .._nvidia_smi.remedies import unresponsive
from .._nvidia_smi.selection import choose

# Reasons that mean the GPU lacks the feature. Any other reason is a failed reading, which must not be skipped.
NOT_THERE = frozenset(("absent", "not_available", "not_supported", "not_found", "deprecated", "empty"))


@dataclass(frozen=True)
class DeclaredEntry:
    """Selectors and the options declared for the GPUs they match, by option name; undeclared options are left out."""

    selectors: tuple[str, ...]
    desired: Mapping[str, Any]


@dataclass(frozen=True)
class Declared:
    """All that a module's options declare. `limit` has the selectors of the top-level `gpus`; no other GPU is affected.

    `option` is the list option that the entries come from; None where the options themselves are the only entry. With
    `skips_unmatched` a model in `limit` that the host does not have is left out.
    """

    limit: tuple[str, ...]
    entries: tuple[DeclaredEntry, ...]
    option: str | None = None
    skips_unmatched: bool = False


@dataclass(frozen=True)
class Assignment:
    """Each selected GPU with everything declared for it, in host order.

    `warnings` name the entries that match no GPU, and lists without entries.
    """

    gpus: tuple[tuple[Gpu, dict[str, Any]], ...]
    warnings: tuple[str, ...] = ()


ADVICE = "name other GPUs in gpus, or set on_unsupported to skip"
"""Advice for a GPU that lacks a declared feature."""


class UnsupportedError(ChangeError):
    """A GPU does not support what is declared for it."""


def parse_declared(
    options: Mapping[str, Any], option: str, names: Collection[str], read: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> Declared:
    """Read a module's options: one declaration, or the list `option` of several; raises ChangeError.

    `names` are the options that declare a setting; `read` returns what one entry declares.
    """
    limit = _selectors(options)
    skips = options.get("on_unsupported") == "skip"
    if options.get(option) is None:
        return Declared(limit, (DeclaredEntry(limit, read(options)),), skips_unmatched=skips)
    misplaced = [name for name in names if options.get(name) is not None]
    if misplaced:
        raise ChangeError(
            f"{', '.join(misplaced)}: without a meaning together with {option}, where each entry declares its own; "
            f"move it into the entries of {option}"
        )
    entries = tuple(DeclaredEntry(_selectors(entry), read(entry)) for entry in options[option])
    return Declared(limit, entries, option, skips)


def _selectors(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """The selectors of an entry; `all` where it has no such option."""
    return ("all",) if entry.get("gpus") is None else tuple(map(str, entry["gpus"]))


def assign(gpus: Sequence[Gpu], declared: Declared) -> Assignment:
    """The selected GPUs. List entries may overlap where they agree. Raises ChangeError."""
    entries = None if declared.option is None else [entry.selectors for entry in declared.entries]
    found = choose(gpus, declared.limit, entries, declared.option or "", declared.skips_unmatched)
    chosen: dict[str, dict[str, Any]] = {}
    for entry, selected in zip(declared.entries, found.gpus):
        for gpu in selected:
            desired = chosen.setdefault(gpu.identity, {})
            for name, value in entry.desired.items():
                if desired.setdefault(name, value) != value:
                    raise ChangeError(f"{gpu.label} is in two entries of {declared.option} that differ in {name}")
    for gpu in gpus:
        if gpu.identity in chosen and gpu.error is not None:
            raise ChangeError(unresponsive(gpu.label, gpu.error))
    meant = tuple((gpu, chosen[gpu.identity]) for gpu in gpus if gpu.identity in chosen)
    return Assignment(meant, found.warnings)


def find(gpus: Sequence[Gpu], identity: str) -> Gpu:
    """The GPU with this identity; raises ChangeError when it is gone."""
    for gpu in gpus:
        if gpu.identity == identity:
            if gpu.error is not None:
                raise ChangeError(unresponsive(gpu.label, gpu.error))
            return gpu
    raise ChangeError(f"GPU {identity} is not there any more")


def missing(gpu: Gpu, reading: str, what: str) -> ChangeError:
    """The error for a GPU without `reading`: the feature is not there, or it cannot be read."""
    reason = dict(gpu.unknown).get(reading, "not_available")
    message = reason.replace("_", " ")
    if reason in NOT_THERE:
        return UnsupportedError(f"{gpu.label} has no {what} ({message})")
    return ChangeError(f"the {what} of {gpu.label} cannot be read ({message})")
