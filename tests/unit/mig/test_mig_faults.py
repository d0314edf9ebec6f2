# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call of a change fails in every way: the module reports the actual state.

The outcome may be the new layout, the old one, or an error that states exactly the current layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from gpu_simulator.state import nvml, store

from tests.conftest import EFFORT
from tests.unit import faults
from tests.unit.faults import (
    Change,
    Host,
    Reply,
    Way,
    error,
    fail_every_call,
    result,
)
from tests.unit.mig.mig_host import DRIVERS, Layout, Run, SimulatedHost, is_change, reported


def _partly(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    """Do the first of several operations, then fail."""
    shortened = list(arguments)
    for place, word in enumerate(shortened):
        if "," in word and shortened[place - 1] in ("-cgi", "-cci", "-gi", "-ci"):
            shortened[place] = word.split(",")[0]
            break
    else:
        if "-C" not in shortened:
            return error(255, "Unknown Error")(host, arguments, reply)
        # Create only the GPU instance, without its compute instance.
        shortened.remove("-C")
    text, _status = host.call(*shortened)
    return result(arguments, 255, text + "Failed: Unknown Error\n")


def _partly_in_silence(host: Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    message = _partly(host, arguments, reply)
    return result(arguments, 0, message.text.replace("Failed: Unknown Error\n", ""))


WAYS: dict[str, Way] = {
    **faults.WAYS,
    "no MIG": error(0, "No MIG-enabled devices found.\n"),
    "partial success": _partly,
    "partial success with exit 0": _partly_in_silence,
}
CHANGES: dict[str, tuple[Any, Any]] = {
    "one of seven": ({"1g.10gb": 7}, {"1g.10gb": 6, "1g.10gb+me": 1}),
    "add": ({"1g.10gb": 2}, ["1g.10gb", "1g.10gb", "3g.40gb", "2g.20gb"]),
    "remove": (["3g.40gb", "2g.20gb", "1g.10gb"], ["3g.40gb"]),
    "replace all": (["3g.40gb:0", "3g.40gb:4"], {"2g.20gb": 3, "1g.10gb": 1}),
    "divide": (["3g.40gb", "1g.10gb"], ["1c.3g.40gb", "2c.3g.40gb", "1g.10gb+me"]),
}
REACHED: dict[str, Counter[tuple[str, tuple[int, ...]]]] = {
    "one of seven": Counter({("1g.10gb", (1,)): 6, ("1g.10gb+me", (1,)): 1}),
    "add": Counter({("1g.10gb", (1,)): 2, ("3g.40gb", (3,)): 1, ("2g.20gb", (2,)): 1}),
    "remove": Counter({("3g.40gb", (3,)): 1}),
    "replace all": Counter({("2g.20gb", (2,)): 3, ("1g.10gb", (1,)): 1}),
    "divide": Counter({("3g.40gb", (2, 1)): 1, ("1g.10gb+me", (1,)): 1}),
}


def _judge(host: SimulatedHost, run: Run, old: Layout, new: str) -> str:
    """Check that the result matches the actual layout, and name the outcome."""
    there = host.layout()
    reached = Counter((name, sizes) for name, _start, sizes in there.elements()) == REACHED[new]
    reports = reported(run.result["gpus"][0]) if run.result["gpus"] else None
    if run.error is None:
        assert reached, f"reported success, but there is {there}"
        assert reports == there
        assert run.result["changed"] is True
        return "new layout"
    if there != old:
        assert run.result["changed"] is True
    if reports is not None and "cannot be read" not in run.error:
        assert reports == there, f"{run.error}: reported {reports}, there is {there}"
    return "old layout" if there == old else "reported" if reports == there else "could not be read"


# Each kind of change on one driver: the kinds of faults are the same on all.
@pytest.mark.parametrize(
    ("driver", "changes"),
    [(DRIVERS[0], ("add",)), (DRIVERS[2], ("one of seven",))]
    if EFFORT == "quick"
    else [(DRIVERS[0], ("add", "remove")), (DRIVERS[2], ("one of seven", "replace all", "divide"))],
)
def test_every_call_fails_in_every_way(
    tmp_path: Path, driver: str, changes: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def make(change: str, _way: str) -> Change:
        old, new = CHANGES[change]
        host = SimulatedHost.make(tmp_path / change, "h100_80gb", driver=driver)
        assert host.run(profiles=old).error is None
        start, before = host.snapshot(), host.layout()
        return Change(
            host,
            lambda *injector: host.run(*injector, profiles=new),
            lambda: host.restore(start),
            lambda run: _judge(host, run, before, change),
            lambda: None,
        )

    outcomes = fail_every_call(make, changes, WAYS, is_change)
    total = sum(outcomes.values())
    with capsys.disabled():
        spelled = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
        print(f"\ndriver {driver}: {total} combinations of change, call and fault: {spelled}")
    assert total > (100 if EFFORT == "quick" else 500)
    assert outcomes["new layout"] and outcomes["old layout"]


def test_the_driver_fails_in_every_operation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same with faults of the simulated driver: an operation fails once, or from then on."""
    outcomes: dict[str, int] = {}
    operations = (
        "create_gpu_instance",
        "create_compute_instance",
        "destroy_gpu_instance",
        "destroy_compute_instance",
    )
    for change in ("divide",) if EFFORT == "quick" else ("replace all", "divide"):
        old, new = CHANGES[change]
        host = SimulatedHost.make(tmp_path / change, "h100_80gb")
        assert host.run(profiles=old).error is None
        start, before = host.snapshot(), host.layout()
        for operation in operations:
            for code in sorted(nvml.MESSAGES):
                for times in (1, None):
                    for at in range(1, 9):
                        host.restore(start)
                        fault = {"id": 1, "kind": "driver", "operation": operation, "gpu": 0, "code": code, "verb": ""}
                        with store.transaction(str(host.root)) as state:
                            state["faults"] = [{**fault, "at": at, "times": times, "seen": 0}]
                        run = host.run(profiles=new)
                        with store.transaction(str(host.root)) as state:
                            struck = state["faults"][0]["seen"] >= at
                            state["faults"] = []
                        if not struck:
                            break
                        outcome = _judge(host, run, before, change)
                        outcomes[outcome] = outcomes.get(outcome, 0) + 1
                        again = host.run(profiles=new)
                        assert again.error is None, f"{operation} {code}: the next run: {again.error}"
    with capsys.disabled():
        spelled = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
        print(f"\ndriver operations: {sum(outcomes.values())} combinations: {spelled}")
    assert (
        sum(outcomes.values()) > (50 if EFFORT == "quick" else 200)
        and outcomes["new layout"]
        and outcomes["old layout"]
    )
