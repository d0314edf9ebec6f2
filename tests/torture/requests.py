# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random MIG requests, and simulated GPUs whose instances can be distinguished even if they look the same."""

from __future__ import annotations

import functools
import itertools
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.layout import place
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import DesiredInstance
from gpu_simulator.state import store

from tests.unit.mig.mig_host import SimulatedHost, slices_of, table_of

Instances = Counter[str]
"""Number of MIG devices by profile, at any placement: `3g.40gb`, or `1c.3g.40gb` for a part of one. A GPU instance
without compute instance counts as `empty 3g.40gb`.
"""


@dataclass(frozen=True)
class Request:
    """Options of one run, and the desired state by GPU index: instances, or None for MIG off."""

    kind: str
    options: dict[str, Any]
    desired: dict[int, Instances | None]

    def __str__(self) -> str:
        return f"{self.kind} {self.options}"


_number = itertools.count(1)


def mark(host: SimulatedHost) -> None:
    """Number all instances that have no number yet. The simulator ignores numbers, so a new instance has none."""
    with store.transaction(str(host.root)) as state:
        for gpu in state["gpus"]:
            for instance in gpu["gpu_instances"]:
                for item in (instance, *instance["compute_instances"]):
                    item.setdefault("mark", next(_number))  # type: ignore[misc]


def marks(host: SimulatedHost, index: int) -> dict[tuple[int, int | None], int | None]:
    """Numbers of one GPU's instances by (GPU instance ID, compute instance ID)."""
    found: dict[tuple[int, int | None], int | None] = {}
    for instance in host.state["gpus"][index]["gpu_instances"]:
        found[instance["id"], None] = instance.get("mark")
        for compute in instance["compute_instances"]:
            found[instance["id"], compute["id"]] = compute.get("mark")
    return found


def instances(host: SimulatedHost, index: int) -> Instances:
    """The instances that one GPU really has."""
    counted: Instances = Counter()
    for name, _start, sizes in host.layout(index).elements():
        slices = slices_of(name)
        counted.update([name if size == slices else f"{size}c.{name}" for size in sizes] or [f"empty {name}"])
    return counted


def is_reached(host: SimulatedHost, request: Request) -> bool:
    """Whether every GPU has the requested instances."""
    for index, desired in request.desired.items():
        mode = host.state["gpus"][index]["mig_mode"]["current"]
        if mode != (desired is not None) or instances(host, index) != (desired or Counter()):
            return False
    return True


@functools.cache
def table(model: str, driver: str) -> Table:
    """The profiles of a model."""
    with tempfile.TemporaryDirectory() as directory:
        return table_of(model, Path(directory), driver)


@functools.cache
def _layouts(model: str, driver: str) -> tuple[Counter[str], ...]:
    return tuple(layouts(table(model, driver)))


@dataclass
class Requests:
    """Generates random requests for a host with `count` GPUs of one model."""

    model: str
    driver: str
    count: int
    random: random.Random

    def next(self) -> Request:
        """A random request that the GPUs can satisfy."""
        kinds = ("profiles", "counts", "divided", "placed", "one", "layouts", "config", "less", "off")
        kind = self.random.choices(kinds, (4, 2, 3, 2, 3, 3, 2, 3, 1))[0]
        everywhere = range(self.count)
        if kind == "off":
            off = {"enabled": False, "reset": True}
            return Request(kind, off, dict.fromkeys(everywhere))
        if kind == "layouts":
            drawn = {index: self._layout() for index in everywhere}
            entries = [{"gpus": [str(index)], "enabled": True, "profiles": drawn[index][0]} for index in everywhere]
            return Request(kind, {"layouts": entries, "reset": True}, {i: drawn[i][1] for i in everywhere})
        if kind == "config":
            names = [self._names() for _index in everywhere]
            entries = [
                {"devices": [index], "mig-enabled": True, "mig-devices": dict(names[index])} for index in everywhere
            ]
            document = {"version": "v1", "mig-configs": {"requested": entries}}
            options = {"config": document, "selected": "requested", "reset": True}
            return Request(kind, options, {index: +names[index] for index in everywhere})
        chosen = [self.random.randrange(self.count)] if kind == "one" else list(everywhere)
        profiles, instances_of_each = self._layout(kind)
        options = {"gpus": [str(index) for index in chosen], "profiles": profiles, "reset": True}
        return Request(kind, options, dict.fromkeys(chosen, instances_of_each))

    def less(self, host: SimulatedHost) -> Request:
        """Request a random subset of the first GPU's instances."""
        there = [name for name in instances(host, 0).elements() if "c." not in name]
        rest = self.random.sample(there, self.random.randint(0, len(there)))
        return Request("less", {"gpus": ["0"], "profiles": rest, "reset": True}, {0: Counter(rest)})

    def _names(self) -> Counter[str]:
        return self.random.choice(_layouts(self.model, self.driver))

    def _layout(self, kind: str = "") -> tuple[Any, Instances]:
        kind = kind if kind in ("counts", "divided", "placed") else self.random.choice(("profiles", "divided"))
        names = self._names()
        known = table(self.model, self.driver)
        if kind == "counts":
            return dict(names), +names
        if kind == "placed":
            desired_instances = tuple(
                DesiredInstance(name, known.find(name).slices, (known.find(name).slices,)) for name in names.elements()
            )
            targets = place(known, (desired_instances,)) or ()
            return [f"{target.desired.profile}:{target.start}" for target in targets], +names
        profiles = list(names.elements())
        divisible = [name for name in names if known.find(name).slices in (2, 3, 4) and "+" not in name]
        if kind == "divided" and divisible:
            name = self.random.choice(divisible)
            sizes = {2: ((1, 1), (1,)), 3: ((1, 2), (1, 1, 1), (2,)), 4: ((2, 2), (1, 1, 2), (1,))}[
                known.find(name).slices
            ]
            division = self.random.choice(sizes)
            profiles.remove(name)
            profiles += [f"{size}c.{name}" for size in division]
        self.random.shuffle(profiles)
        return profiles, Counter(profiles)
