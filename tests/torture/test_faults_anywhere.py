# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every call of a run fails in every way: no false success, and no instance lost that was to be kept."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from gpu_simulator import cli
from gpu_simulator.state import store

from tests.torture.figures import FIGURES, IS_QUICK, Defects, chance, size
from tests.torture.requests import Request, Requests, is_reached, mark, marks
from tests.unit import faults
from tests.unit.faults import FaultInjector, ModuleKilledError, Reply, Way, error, result
from tests.unit.mig.mig_host import SimulatedHost, is_change, mig_models
from tests.unit.settings.settings_host import SettingsHost
from tests.unit.state.state_host import StateHost, in_this_process

DRIVER = "580.159.04"
SCENARIOS = size(1, 3, 8)
SAMPLE = size(10, 50, 100)
"""Number of lasting faults per scenario, and in a quick run also of single faults, which are otherwise all tried."""


def _mute(host: faults.Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
    del host
    reply()
    return result(arguments, 0, "")


def _is_listing(arguments: Sequence[str]) -> bool:
    return any(word in ("-lgi", "-lci", "-lgip", "-lgipp", "-lcip", "-q", "-L") for word in arguments)


@dataclass
class FalseReplies:
    """Faults that need randomness or the state at the start of the run."""

    luck: random.Random
    start: Any = None
    ways: dict[str, Way] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ways = {
            **faults.WAYS,
            "done without output": _mute,
            "no instances": error(6, "No GPU instances found: Not Found\n"),
            "no MIG": error(0, "No MIG-enabled devices found.\n"),
            "cut anywhere": self._cut,
            "a row is missing": self._without_a_row,
            "another GPU is missing": self._without_a_gpu,
            "as it was before the run": self._old,
        }

    def _cut(self, host: faults.Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
        message = reply()
        return result(arguments, message.rc, message.text[: self.luck.randrange(len(message.text) + 1)])

    def _without_a_row(self, host: faults.Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
        message = reply()
        lines = message.text.splitlines(keepends=True)
        rows = [number for number, line in enumerate(lines) if re.match(r"\|.*\d.*\||\s+MIG ", line)]
        if rows and _is_listing(arguments):
            del lines[self.luck.choice(rows)]
        text = "".join(lines)
        devices = list(re.finditer(r"<mig_device>.*?</mig_device>\s*", text, re.DOTALL))
        if devices:
            gone = self.luck.choice(devices)
            text = text[: gone.start()] + text[gone.end() :]
        return result(arguments, message.rc, text)

    def _without_a_gpu(self, host: faults.Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
        message = reply()
        found = list(re.finditer(r"\t<gpu id=.*?</gpu>\s*", message.text, re.DOTALL))
        text = message.text[: found[-1].start()] + message.text[found[-1].end() :] if found else message.text
        return result(arguments, message.rc, text)

    def _old(self, host: faults.Host, arguments: Sequence[str], reply: Reply) -> CommandResult:
        """Reads return the state before the run; changes are made."""
        message = reply()
        if not _is_listing(arguments):
            return message
        path = Path(store.state_path(str(host.root)))
        now = path.read_text()
        path.write_text(json.dumps(self.start))
        text, status = cli.reply(list(arguments), str(host.root), True)
        path.write_text(now)
        return result(arguments, status, text)


def _is_any(call: Sequence[str]) -> bool:
    return bool(call)


def _combinations(
    false_replies: FalseReplies, calls: int, luck: random.Random
) -> Iterator[tuple[str, int, bool, bool]]:
    once = [(way, number, False, False) for way in false_replies.ways for number in range(1, calls + 1)]
    lasting = [
        (way, number, True, only_changes)
        for way, number, _lasts, _only_changes in once
        for only_changes in (False, True)
        if not way.startswith("module")
    ]
    yield from luck.sample(once, SAMPLE) if IS_QUICK else once
    yield from luck.sample(lasting, SAMPLE)


@dataclass
class Trial:
    """One run that is repeated from the same state, each time with one failing call."""

    where: str
    host: SimulatedHost
    roll_back: Callable[[], None]
    run: Callable[[FaultInjector | None], Any]
    is_reached: Callable[[Any], bool]
    """Whether the state that a successful run reported is really there."""
    is_lost: Callable[[], str]
    false_replies: FalseReplies
    believed: frozenset[str] = frozenset()
    """Faults that no read can detect."""


def _try_all(trial: Trial, luck: random.Random, defects: Defects) -> None:
    trial.roll_back()
    undisturbed = trial.run(None)
    if not defects.check(undisturbed.error is None, f"{trial.where}: without a fault: {undisturbed.error}"):
        return
    calls = len(undisturbed.calls)
    for way, number, lasts, only_changes in _combinations(trial.false_replies, calls, luck):
        trial.roll_back()
        fault_injector = FaultInjector(
            trial.host, trial.false_replies.ways[way], number, lasts, is_change if only_changes else _is_any
        )
        where = f"{trial.where}, {way}, call {number}, lasts {lasts}, only changes {only_changes}"
        reported = None
        try:
            run = trial.run(fault_injector)
        except ModuleKilledError:
            pass
        except Exception as traceback:
            defects.check(False, f"{where}: a traceback: {traceback!r}")
        else:
            reported = run.error
            is_believed = way in trial.believed
            defects.check(
                reported is not None or is_believed or trial.is_reached(run), f"{where}: success, and it is not there"
            )
        if not fault_injector.struck:
            continue
        FIGURES["faults"] += 1
        FIGURES["reported"] += reported is not None
        lost = trial.is_lost()
        defects.check(not lost, f"{where}: lost {lost}; it reported {reported}")
        again = trial.run(None)
        defects.check(again.error is None, f"{where}: the next run: {again.error}")
        defects.check(again.error is not None or trial.is_reached(again), f"{where}: the next run did not reach it")


def _kept(host: SimulatedHost, request: Request) -> set[int]:
    """Numbers of all instances that a run without a fault keeps, including those on GPUs outside of the request."""
    before = {number for index in range(2) for number in marks(host, index).values() if number is not None}
    snapshot = host.snapshot()
    run = host.run(**request.options)
    after = {number for index in range(2) for number in marks(host, index).values()}
    host.restore(snapshot)
    return before & after if run.error is None else set()


@pytest.mark.parametrize("scenario", range(SCENARIOS))
def test_mig_profile(tmp_path: Path, scenario: int) -> None:
    defects, luck = Defects(), chance("faults of MIG", scenario)
    model = luck.choice(mig_models())
    host = SimulatedHost.make(tmp_path, model, model, driver=DRIVER)
    requests = Requests(model, DRIVER, 2, luck)
    while True:
        first, second = requests.next(), requests.next()
        if host.run(**first.options).error is None and host.run(check=True, **second.options).result["changed"]:
            break
    mark(host)
    start, kept = host.snapshot(), _kept(host, second)
    false_replies = FalseReplies(luck, copy.deepcopy(start))

    def is_lost() -> str:
        there = {number for index in range(2) for number in marks(host, index).values()}
        return f"instances {sorted(kept - there)}, there is {host.layout(0)}, {host.layout(1)}" if kept - there else ""

    def run(fault_injector: FaultInjector | None) -> Any:
        return host.run(fault_injector, **second.options)

    where = f"{model}, from {first}, {second}"
    _try_all(
        Trial(
            where, host, lambda: host.restore(start), run, lambda _run: is_reached(host, second), is_lost, false_replies
        ),
        luck,
        defects,
    )
    defects.report()


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("settings", {"power_limit_w": 300, "compute_mode": "prohibited", "accounting_mode": True}),
        (
            "settings",
            {"settings": [{"gpus": ["0"], "power_limit_w": "50%"}, {"gpus": ["1"], "persistence_mode": False}]},
        ),
        ("ecc", {"enabled": False}),
        ("ecc", {"enabled": False, "gpus": ["1"], "reset": "if_required"}),
    ],
)
def test_settings_and_ecc(tmp_path: Path, module: str, options: dict[str, Any]) -> None:
    defects, luck = Defects(), chance("faults of settings", module, sorted(options))
    host = SettingsHost.with_gpus(tmp_path, "a100_40gb", "a100_40gb", driver=DRIVER)
    start = host.checkpoint()
    work = host.settings if module == "settings" else host.ecc

    def present(_run: Any = None) -> list[Any]:
        return [(host.there(index), host.ecc_modes(index)[1]) for index in (0, 1)]

    desired = None if work(**options).error else present()

    def run(fault_injector: FaultInjector | None) -> Any:
        return work(fault_injector, **options)

    trial = Trial(
        f"{module} {options}",
        host,
        lambda: host.roll_back(start),
        run,
        lambda run: present(run) == desired,
        lambda: "",
        FalseReplies(luck, copy.deepcopy(start[0])),
    )
    _try_all(trial, luck, defects)
    defects.report()


@pytest.mark.parametrize(
    "options",
    [
        {"ecc": False, "persistence_mode": True, "power_limit_w": "300", "reset": "if_required"},
        {"mig": ["3g.40gb", "1g.10gb", "1g.10gb"], "persistence_mode": True, "reset": "if_required"},
    ],
)
def test_gpu_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    defects, luck = Defects(), chance("faults of the state", sorted(options))
    root = tmp_path / "host"
    root.mkdir()
    host = StateHost.with_gpus(root, "h100_80gb", "h100_80gb", driver=DRIVER)
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def roll_back() -> None:
        for path in [path for path in root.rglob("*") if path.is_file() or path.is_symlink()]:
            if path not in files:
                path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
        host.units.active.clear()
        host.units.enabled.clear()

    def present(run: Any = None) -> list[Any]:
        """The actual state; for a mode whose change is reported as pending a reboot, the pending value."""
        pending = run.result["pending"] if run is not None and run.result["reboot_required"] else ()
        return [
            (
                gpu["persistence_mode"],
                gpu["power_limit_w"],
                gpu["ecc_mode"]["pending" if gpu["uuid"] in pending else "current"],
                gpu["mig_mode"]["current"],
                host.layout(index),
            )
            for index, gpu in enumerate(host.state["gpus"])
        ]

    def run(fault_injector: FaultInjector | None) -> Any:
        return host.state_run(fault_injector, **options)

    with in_this_process(monkeypatch, host):
        desired = None if run(None).error else present()
        false_replies = FalseReplies(luck, json.loads(files[Path(store.state_path(str(root)))]))
        trial = Trial(
            f"gpu_state {options}", host, roll_back, run, lambda run: present(run) == desired, lambda: "", false_replies
        )
        _try_all(trial, luck, defects)
    defects.report()
