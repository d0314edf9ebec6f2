# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs of a host are to have which layout. Private to this collection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from . import _mig_parted, _selection
from ._errors import ChangeError
from ._mig_request import Item, parse_layout
from ._mig_state import GpuState, Host


@dataclass(frozen=True)
class Desired:
    """What one GPU is to be: `items` None leaves the instances as they are."""

    enabled: bool
    items: tuple[Item, ...] | None
    # A GPU without MIG that was not meant in particular is left out, as mig-parted does.
    optional: bool = False


@dataclass(frozen=True)
class Rule:
    """A layout and the GPUs that it is for."""

    selectors: tuple[str, ...]
    desired: Desired


@dataclass(frozen=True)
class Rules:
    """All that was asked for: rules of ours, or entries of a mig-parted document."""

    rules: tuple[Rule, ...] = ()
    entries: tuple[_mig_parted.Entry, ...] = ()

    def assign(self, host: Host) -> tuple[tuple[GpuState, Desired], ...]:
        """Each GPU that is meant, with what it is to be; raises ChangeError."""
        chosen = self._by_entries(host) if self.entries else self._by_rules(host)
        return tuple((gpu, chosen[gpu.identity]) for gpu in host.gpus if gpu.identity in chosen)

    def _by_rules(self, host: Host) -> dict[str, Desired]:
        chosen: dict[str, Desired] = {}
        states = {id(state.gpu): state for state in host.gpus}
        for rule in self.rules:
            try:
                selected = _selection.select([state.gpu for state in host.gpus], rule.selectors)
            except _selection.SelectionError as error:
                raise ChangeError(str(error)) from error
            if not selected:
                raise ChangeError("this host has no GPU that nvidia-smi shows")
            for gpu in selected:
                state = states[id(gpu)]
                if chosen.setdefault(state.identity, rule.desired) != rule.desired:
                    raise ChangeError(f"{state.label} is in two entries of layouts that differ")
        return chosen

    def _by_entries(self, host: Host) -> dict[str, Desired]:
        chosen: dict[str, Desired] = {}
        for entry in self.entries:
            for state in host.gpus:
                hardware = state.gpu.hardware
                if entry.matches(state.index, _number(hardware.pci_device_id), _number(hardware.pci_subsystem_id)):
                    optional = entry.indexes is None or not entry.enabled
                    chosen[state.identity] = Desired(entry.enabled, entry.items, optional)
        return chosen


def parse_rules(options: Mapping[str, Any]) -> Rules:
    """Read the module's options; raises ChangeError for what no GPU could have."""
    if options["config"] is not None:
        return Rules(entries=_mig_parted.parse_config(options["config"], options["selected"]))
    layouts = [options] if options["layouts"] is None else options["layouts"]
    return Rules(tuple(Rule(tuple(entry["gpus"]), _desired(entry["enabled"], entry["profiles"])) for entry in layouts))


def _desired(enabled: bool, profiles: object) -> Desired:
    items = None if profiles is None else parse_layout(profiles)
    if not enabled and items:
        raise ChangeError("profiles need MIG mode: leave them out, or set enabled to true")
    return Desired(enabled, () if not enabled else items)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text, 16)
