# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of MIG layouts: nvidia-smi calls, instances kept, and planning time."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.gpu.fleet.plugins.module_utils._mig import plan as mig_plan
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.layout import ComputeInstance, Instance, place
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table as Profiles
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import DesiredInstance

from tests.benchmark.report import Cell, Table
from tests.unit.mig.mig_host import SimulatedHost, mig_models, names, table_of

GPUS = 8
CHANGES: list[tuple[str, list[str], list[str]]] = [
    ("the same", ["1g.5gb"] * 7, ["1g.5gb"] * 7),
    ("add one", ["1g.5gb"] * 6, ["1g.5gb"] * 7),
    ("remove one", ["1g.5gb"] * 7, ["1g.5gb"] * 6),
    ("one of seven becomes +me", ["1g.5gb"] * 7, ["1g.5gb"] * 6 + ["1g.5gb+me"]),
    ("7 x 1g to 5 x 1g + 2g", ["1g.5gb"] * 7, ["1g.5gb"] * 5 + ["2g.10gb"]),
    ("3g+2g+2x1g to 3g+4x1g", ["3g.20gb", "2g.10gb", *["1g.5gb"] * 2], ["3g.20gb", *["1g.5gb"] * 4]),
    ("2 x 3g to 4g + 3g", ["3g.20gb"] * 2, ["4g.20gb", "3g.20gb"]),
    ("impossible: 8 x 1g", ["1g.5gb"] * 7, ["1g.5gb"] * 8),
]
GOALS = {"the same": 2, "add one": 6, "remove one": 6}


def changes(directory: Path) -> Table:
    """Change one GPU of a host with eight A100; compare with mig-parted, which clears a GPU whose layout differs."""
    rows: list[tuple[Cell, ...]] = []
    missed = []
    for number, (title, old, new) in enumerate(CHANGES):
        host = SimulatedHost.make(directory / str(number), *["a100_40gb"] * GPUS)
        host.run(profiles=old)
        run = host.run(gpus=["0"], profiles=new)
        calls, goal = len(run.calls), GOALS.get(title)
        if run.error is not None:
            rows.append((f"{title}, refused", calls, goal, names(host.layout()).total(), 0, 0, 0))
            continue
        gpu = run.result["gpus"][0]
        kept, destroyed, created = (len(gpu[key]) for key in ("kept", "destroyed", "created"))
        parted = len(old) if Counter(old) == Counter(new) else 0
        rows.append((title, calls, goal, kept, destroyed, created, parted))
        if goal is not None and calls > goal:
            missed.append(f"{title}: {calls} calls, the goal is {goal}")
    columns = ("change", "calls", "goal", "kept", "destroyed", "created", "mig-parted keeps")
    return Table(f"mig_profile, 1 GPU of {GPUS} x A100 40GB", columns, tuple(rows), tuple(missed))


def _existing(table: Profiles, desired_instances: tuple[DesiredInstance, ...]) -> tuple[Instance, ...]:
    return tuple(
        Instance(
            number,
            target.desired.profile,
            target.profile.profile_id,
            target.desired.slices,
            target.start,
            target.profile.size,
            (ComputeInstance(0, target.desired.slices),),
        )
        for number, target in enumerate(place(table, (desired_instances,)) or ())
    )


def planning(directory: Path) -> Table:
    """Plan random changes between all layouts of every GPU with MIG."""
    rows = []
    for model in mig_models():
        table = table_of(model, directory)
        valid = [
            tuple(
                DesiredInstance(name, table.find(name).slices, (table.find(name).slices,)) for name in counts.elements()
            )
            for counts in layouts(table)
        ]
        chance = random.Random(1)
        seconds = []
        for desired_instances in valid:
            existing = _existing(table, desired_instances)
            desired = chance.choice(valid)
            start = time.perf_counter()
            mig_plan.plan(mig_plan.choose_places(table, existing, desired), existing)
            seconds.append(time.perf_counter() - start)
        seconds.sort()
        median, worst = seconds[len(seconds) // 2] * 1000, seconds[-1] * 1000
        rows.append((model, len(valid), median, worst))
    return Table("Planning one GPU, ms (goal: worst under 50)", ("GPU", "layouts", "median", "worst"), tuple(rows))


def tables(_arguments: object = None) -> Iterator[Table]:
    """Both tables."""
    with tempfile.TemporaryDirectory() as directory:
        yield changes(Path(directory))
        yield planning(Path(directory) / "tables")
