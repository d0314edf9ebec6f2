# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assign the requested layouts to the GPUs of a host. Private to this collection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from .._common.errors import ChangeError
from .._nvidia_smi import selection
from .._nvidia_smi.gpu import Gpu
from . import parted as mig_parted
from .request import Item, parse_layout
from .state import GpuState, Host

# Top-level options that entries of `layouts` and of a document define themselves.
_OF_ENTRIES = ("enabled", "profiles")


@dataclass(frozen=True)
class DesiredMig:
    """Desired state of one GPU; `items` None leaves the instances unchanged."""

    enabled: bool
    items: tuple[Item, ...] | None
    # A GPU without MIG is left out: as in mig-parted where it was not selected explicitly, and where no MIG is desired.
    optional: bool = False

    def agrees_with(self, other: DesiredMig) -> bool:
        """Whether both request the same, regardless of the order of items."""
        mine, theirs = (None if item.items is None else Counter(item.items) for item in (self, other))
        return self.enabled == other.enabled and mine == theirs


@dataclass(frozen=True)
class Rule:
    """A layout and the GPUs that it applies to."""

    selectors: tuple[str, ...]
    desired: DesiredMig


@dataclass(frozen=True)
class MigAssignment:
    """Each selected GPU with its desired state. `warnings` name the entries that match no GPU."""

    gpus: tuple[tuple[GpuState, DesiredMig], ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """The whole request: one layout, the entries of the list `layouts`, or the entries of a mig-parted document.

    `limit` has the selectors of the top-level `gpus`; no other GPU is affected. `mode_only`: only the modes of the
    request are used. `skips_unmatched`: a model in `limit` that the host does not have is left out.
    """

    limit: tuple[str, ...] = (selection.ALL,)
    rules: tuple[Rule, ...] = ()
    is_list: bool = False
    entries: tuple[mig_parted.PartedEntry, ...] | None = None
    mode_only: bool = False
    skips_unmatched: bool = False

    def assign(self, host: Host) -> MigAssignment:
        """Each selected GPU with its desired state; raises ChangeError."""
        gpus = [state.gpu for state in host.gpus]
        chosen, warnings = self._by_rules(gpus) if self.entries is None else self._by_entries(gpus, self.entries)
        meant = [(state, chosen[id(state.gpu)]) for state in host.gpus if id(state.gpu) in chosen]
        if self.mode_only:
            # MIG mode cannot be disabled while there are instances, so these have to be destroyed in any case.
            meant = [(state, replace(item, items=None) if item.enabled else item) for state, item in meant]
        return MigAssignment(tuple(meant), warnings)

    def _by_rules(self, gpus: Sequence[Gpu]) -> tuple[dict[int, DesiredMig], tuple[str, ...]]:
        entries = [rule.selectors for rule in self.rules] if self.is_list else None
        found = selection.choose(gpus, self.limit, entries, "layouts", self.skips_unmatched)
        chosen: dict[int, DesiredMig] = {}
        for rule, selected in zip(self.rules, found.gpus):
            for gpu in selected:
                if not chosen.setdefault(id(gpu), rule.desired).agrees_with(rule.desired):
                    raise ChangeError(f"{gpu.label} is in two entries of layouts that differ")
        return chosen, found.warnings

    def _by_entries(
        self, gpus: Sequence[Gpu], entries: Sequence[mig_parted.PartedEntry]
    ) -> tuple[dict[int, DesiredMig], tuple[str, ...]]:
        limited_to = selection.choose(gpus, self.limit, skips_unmatched=self.skips_unmatched)
        (within,) = limited_to.gpus
        chosen: dict[int, DesiredMig] = {}
        unmatched = []
        for entry in entries:
            matching = [gpu for gpu in gpus if _matches(entry, gpu)]
            if not matching:
                unmatched.append(entry.where)
            optional = entry.indexes is None or not entry.enabled
            chosen.update((id(gpu), DesiredMig(entry.enabled, entry.items, optional)) for gpu in matching)
        warnings = list(limited_to.warnings)
        warnings += [f"config: no GPU of this host matches {', '.join(unmatched)}"] if unmatched else []
        limited = {id(gpu): chosen[id(gpu)] for gpu in within if id(gpu) in chosen}
        if within and chosen and not limited:
            warnings.append(selection.outside("config", self.limit))
        return limited, tuple(warnings)


def parse_rules(options: Mapping[str, Any]) -> Rules:
    """Parse the module's options; raises ChangeError for impossible values and for options without effect."""
    skips = options.get("on_unsupported") == "skip"
    return replace(_parse(options), mode_only=bool(options["mode_only"]), skips_unmatched=skips)


def _parse(options: Mapping[str, Any]) -> Rules:
    limit = tuple(options["gpus"])
    for name in ("layouts", "config"):
        for other in _OF_ENTRIES:
            if options[name] is not None and options[other] is not None:
                raise ChangeError(
                    f"{other} has no meaning together with {name}, whose entries each have their own; leave {other} out"
                )
    if options["config"] is not None:
        return Rules(limit, entries=mig_parted.parse_config(options["config"], options["selected"]))
    if options["layouts"] is None:
        return Rules(limit, (Rule(limit, _desired(options)),))
    return Rules(
        limit, tuple(Rule(tuple(entry["gpus"]), _desired(entry)) for entry in options["layouts"]), is_list=True
    )


def _desired(options: Mapping[str, Any]) -> DesiredMig:
    # The default is set here, because only explicit values can be refused in combination with other options.
    enabled = options["enabled"] is None or bool(options["enabled"])
    items = None if options["profiles"] is None else parse_layout(options["profiles"])
    if not enabled and items:
        raise ChangeError("profiles need MIG mode: leave them out, or set enabled to true")
    return DesiredMig(enabled, () if not enabled else items, optional=not enabled)


def _matches(entry: mig_parted.PartedEntry, gpu: Gpu) -> bool:
    index = -1 if gpu.index is None else gpu.index
    return entry.matches(index, _number(gpu.hardware.pci_device_id), _number(gpu.hardware.pci_subsystem_id))


def _number(text: str | None) -> int | None:
    return None if text is None else int(text, 16)
