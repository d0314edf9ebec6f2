# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random walks of MIG requests on every simulated GPU with MIG: predicted, applied, read back, applied again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.torture.figures import FIGURES, IS_QUICK, Defects, chance, size
from tests.torture.requests import Request, Requests, instances, is_reached, mark, marks
from tests.unit.mig.mig_host import DRIVERS, SimulatedHost, is_change, mig_models, reported

STEPS = size(4, 20, 60)


def _plans(gpu: dict[str, Any]) -> dict[str, Any]:
    """The part of a GPU's report that check mode must predict: no IDs and UUIDs, which the driver assigns."""
    return {
        "status": gpu["status"],
        "kept": Counter(_place(row) for row in gpu["kept"]),
        "destroyed": Counter(_place(row) for row in gpu["destroyed"]),
        "created": Counter(_place(row) for row in gpu["created"]),
    }


def _place(row: dict[str, Any]) -> tuple[str, int]:
    return row["profile"], row["placement_start"]


def _step(host: SimulatedHost, request: Request, defects: Defects, where: str) -> None:
    mark(host)
    count = len(host.state["gpus"])
    before = [(instances(host, index), marks(host, index)) for index in range(count)]
    snapshot = host.snapshot()
    predicted = host.run(check=True, **request.options)
    defects.check(host.snapshot() == snapshot, f"{where}: check mode has changed something")
    run = host.run(**request.options)
    if not defects.check(run.error is None, f"{where}: {run.error}"):
        return
    defects.check(is_reached(host, request), f"{where}: reported success, but there is {host.layout()}")
    defects.check(predicted.error is None, f"{where}: check mode: {predicted.error}")
    defects.check(predicted.result["changed"] == run.result["changed"], f"{where}: check mode predicted otherwise")
    rows = {gpu["index"]: gpu for gpu in run.result["gpus"]}
    for gpu in predicted.result["gpus"]:
        same = _plans(gpu) == _plans(rows[gpu["index"]])
        # Without MIG mode no profiles can be listed, so placements are known only afterwards.
        is_known = snapshot["gpus"][gpu["index"]]["mig_mode"]["current"]
        defects.check(same or not is_known, f"{where}: predicted {_plans(gpu)}, it is {_plans(rows[gpu['index']])}")
    for index in range(count):
        had, numbers = before[index]
        there = marks(host, index)
        if index not in request.desired:
            defects.check(there == numbers, f"{where}: GPU {index} was not named, and has changed")
            continue
        defects.check(reported(rows[index]) == host.layout(index), f"{where}: the report of GPU {index} is wrong")
        for row in rows[index]["kept"]:
            place = row["gpu_instance_id"], row["compute_instance_id"]
            FIGURES["kept"] += 1
            is_same = numbers.get(place) is not None and there.get(place) == numbers[place]
            defects.check(is_same, f"{where}: {row} of GPU {index} is reported as kept, and is another one")
        desired = request.desired[index] or Counter()
        if request.kind == "less":
            survivors = set(numbers.values()) & set(there.values())
            instances_kept = sum(1 for place, number in there.items() if place[1] is None and number in survivors)
            defects.check(instances_kept == desired.total(), f"{where}: only {instances_kept} of {desired} were kept")
        if had == desired and request.kind != "placed":
            defects.check(there == numbers, f"{where}: GPU {index} had it already, and has changed")
    again = host.run(**request.options)
    is_idle = again.error is None and not again.result["changed"] and not any(map(is_change, again.calls))
    defects.check(is_idle, f"{where}: a second run: {again.error}, {again.changes}")


@pytest.mark.parametrize("model", mig_models())
def test_walks(tmp_path: Path, model: str) -> None:
    defects = Defects()
    drivers = DRIVERS[2:3] if IS_QUICK else DRIVERS
    for driver in drivers:
        luck = chance("walk", model, driver)
        host = SimulatedHost.make(tmp_path / driver, model, model, driver=driver)
        requests = Requests(model, driver, 2, luck)
        FIGURES["walks"] += 1
        for number in range(STEPS):
            request = requests.next()
            if request.kind == "less":
                request = requests.less(host)
            FIGURES["steps"] += 1
            _step(host, request, defects, f"{model}, driver {driver}, step {number}, {request}")
    defects.report()
