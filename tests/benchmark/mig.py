# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of MIG layouts: nvidia-smi calls, instances kept, and planning time."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for _directory in (ROOT, ROOT / ".cache" / "collections", ROOT / "roles" / "gpu_simulator" / "files"):
    sys.path.insert(0, str(_directory))

from ansible_collections.gpu.fleet.plugins.module_utils._mig import plan as mig_plan
from ansible_collections.gpu.fleet.plugins.module_utils._mig.explain import layouts
from ansible_collections.gpu.fleet.plugins.module_utils._mig.layout import ComputeInstance, Instance, place
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import DesiredInstance

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


def changes(directory: Path) -> None:
    """Change one GPU of a host with eight A100; compare with mig-parted, which clears a GPU whose layout differs."""
    title = f"Change on 1 GPU of {GPUS} x A100 40GB"
    print(f"{title:<38} calls  goal  kept  destroyed  created   mig-parted keeps")
    for number, (title, old, new) in enumerate(CHANGES):
        host = SimulatedHost.make(directory / str(number), *["a100_40gb"] * GPUS)
        host.run(profiles=old)
        run = host.run(gpus=["0"], profiles=new)
        goal = GOALS.get(title)
        if run.error is not None:
            print(f"{title:<38} {len(run.calls):>5}     -  {names(host.layout()).total():>4}  refused untouched      0")
            continue
        gpu = run.result["gpus"][0]
        kept, destroyed, created = (len(gpu[key]) for key in ("kept", "destroyed", "created"))
        parted = len(old) if Counter(old) == Counter(new) else 0
        reported = f"{title:<38} {len(run.calls):>5}  {goal or '-':>4}"
        print(f"{reported}  {kept:>4}  {destroyed:>9}  {created:>7}   {parted:>4}")
        if goal is not None and len(run.calls) > goal:
            raise SystemExit(f"{title}: {len(run.calls)} calls, the goal is {goal}")


def _existing(table: Table, desired_instances: tuple[DesiredInstance, ...]) -> tuple[Instance, ...]:
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


def planning(directory: Path) -> None:
    """Plan random changes between all layouts of every GPU with MIG."""
    print("\nPlanning one GPU, ms             layouts   median    worst   (goal: worst under 50)")
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
        print(f"{model:<32} {len(valid):>7}  {median:>7.2f}  {worst:>7.2f}")


def main() -> None:
    """Print both tables."""
    with tempfile.TemporaryDirectory() as directory:
        changes(Path(directory))
        planning(Path(directory) / "tables")


if __name__ == "__main__":
    main()
