# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot program on 16 GPUs whose calls hang: two in a row end a kind of step, and MIG has its time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import Smi
from ansible_collections.gpu.fleet.plugins.module_utils._state import boot as boot_entry
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.module_utils._state.plan import StatePlan
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import PLAN_FILE

from tests.unit.faults import result
from tests.unit.state.state_host import DECLARED, StateHost, boot_without_program, in_this_process
from tests.unit.state.test_boot import Clock, _systemd, _timed

ALL = tuple(range(16))
AGAIN = "once nvidia-smi responds, run systemctl restart gpu-fleet-state.service"
Hang = Callable[[Sequence[str]], bool]


@dataclass
class Booted:
    """What a run has done: `hung` are the calls that hung, `seconds` what it took."""

    boot: boot_entry.Boot
    host: StateHost
    log: list[str]
    hung: list[list[str]]
    seconds: float

    @property
    def failed(self) -> list[int]:
        """The GPUs that are reported as failed."""
        found = (re.match(r"GPU (\d+) \(.*\): (settings|MIG) failed: ", line) for line in self.boot.failures)
        return [int(match[1]) for match in found if match]

    @property
    def left_out(self) -> list[list[int]]:
        """By kind of step, the GPUs that are reported as left out."""
        found = (
            re.match(r"(settings|MIG) not applied to (.*?): (nvidia-smi|the )", line) for line in self.boot.failures
        )
        return [[int(number) for number in re.findall(r"GPU (\d+) \(", match[2])] for match in found if match]

    def powered(self) -> list[int]:
        """The GPUs with the saved power limit."""
        return [place for place in ALL if self.host.gpu(place)["power_limit_w"] == 500]

    def divided(self) -> list[int]:
        """The GPUs with MIG mode and its instances."""
        return [
            place
            for place in ALL
            if self.host.gpu(place)["mig_mode"]["current"] and len(self.host.gpu(place)["gpu_instances"]) == 2
        ]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateHost]:
    """A host that has just booted, with a saved plan for 16 GPUs."""
    made = StateHost.with_gpus(tmp_path, *["h200"] * 16)
    with in_this_process(monkeypatch, made):
        assert made.state_run(reset="if_required", **DECLARED["h200"]).error is None
        boot_without_program(made)
        yield made


def _boot(host: StateHost, monkeypatch: pytest.MonkeyPatch, hangs: Hang, **changes: Any) -> Booted:
    plan: StatePlan = replace(state_plan.parse(host.path(PLAN_FILE).read_text()), **changes)
    clock, log, hung = Clock(), [], []
    boot = boot_entry.Boot(plan, lambda line, _priority: log.append(line), systemd=_systemd(host), clock=clock)

    def stop(words: Sequence[str], reply: Callable[[], CommandResult]) -> CommandResult:
        if not hangs(words):
            return reply()
        hung.append(list(words))
        return result(words, None, timed_out=True)

    with _timed(host, monkeypatch, clock):
        gpus = Smi("nvidia-smi").document().gpus
        began = clock.now
        host.intercept = stop
        boot.run(gpus)
        host.intercept = None
    return Booted(boot, host, log, hung, clock.now - began)


def _on(host: StateHost, word: str, *places: int) -> Hang:
    """Whether a call has this word and names one of these GPUs."""
    uuids = {host.gpu(place)["uuid"] for place in places}
    return lambda words: word in words and not uuids.isdisjoint(words)


def test_settings_that_hang_on_all_gpus_end_after_two_and_mig_is_applied(
    host: StateHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _boot(host, monkeypatch, lambda words: "-pl" in words)
    # Once for all at once, and once for each of two GPUs.
    assert len(run.hung) == 3
    assert run.failed == [0, 1] and run.left_out == [list(range(2, 16))]
    (line,) = (line for line in run.boot.failures if "not applied" in line)
    assert line.endswith(f"one after the other; {AGAIN}")
    assert "nvidia-smi did not respond for GPU 0 (NVIDIA H200, 00000000:06:00.0), GPU 1 (" in line
    assert f"FAILED: {line}" in run.log
    assert run.divided() == list(ALL) and run.powered() == []
    assert run.seconds < boot_entry.WORK_SECONDS - boot_entry._LEAST_SECONDS["MIG"]


def test_settings_that_hang_on_one_gpu_cost_that_gpu_alone(host: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _boot(host, monkeypatch, _on(host, "-pl", 5))
    assert len(run.hung) == 2, "its settings are not tried again after MIG"
    assert run.failed == [5] and run.left_out == []
    assert run.divided() == list(ALL) and run.powered() == [place for place in ALL if place != 5]


def test_two_gpus_that_hang_are_not_in_a_row_where_one_between_them_responds(
    host: StateHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _boot(host, monkeypatch, _on(host, "-pl", 5, 7))
    assert len(run.hung) == 3
    assert run.failed == [5, 7] and run.left_out == []
    assert run.divided() == list(ALL) and run.powered() == [place for place in ALL if place not in (5, 7)]


def test_the_last_two_gpus_leave_none_out(host: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _boot(host, monkeypatch, _on(host, "-pl", 14, 15))
    assert run.failed == [14, 15] and run.left_out == [] and run.powered() == list(range(14))


def test_a_refusal_is_no_hang(host: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = _on(host, "-pl", 3, 4)
    host_result = StateHost._result

    def refuse(self: StateHost, command: Sequence[str], intercept: Any = None) -> CommandResult:
        if refused(command):
            return result(command[1:], 255, "Unknown Error")
        return host_result(self, command, intercept)

    monkeypatch.setattr(StateHost, "_result", refuse)
    run = _boot(host, monkeypatch, lambda _words: False)
    assert run.failed[:2] == [3, 4] and run.left_out == [] and run.divided() == list(ALL)
    assert run.powered() == [place for place in ALL if place not in (3, 4)]


def test_mig_that_hangs_on_all_gpus_ends_after_two_and_settings_stay(
    host: StateHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _boot(host, monkeypatch, lambda words: "-mig" in words)
    assert len(run.hung) == 3 and run.failed == [0, 1] and run.left_out == [list(range(2, 16))]
    assert run.powered() == list(ALL) and run.divided() == []


def test_instances_that_hang_on_two_gpus_in_a_row_leave_out_the_rest(
    host: StateHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _boot(host, monkeypatch, _on(host, "-cgi", 3, 4))
    assert run.failed == [3, 4] and run.left_out == [list(range(5, 16))]
    assert run.divided() == [0, 1, 2] and run.powered() == list(ALL)


@pytest.mark.parametrize("from_then_on", ["the beginning", "the first change"])
def test_documents_that_hang_are_met_once(from_then_on: str, host: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = from_then_on == "the beginning"

    def hangs(words: Sequence[str]) -> bool:
        nonlocal changed
        changed = changed or "-pl" in words
        return changed and "-q" in words

    run = _boot(host, monkeypatch, hangs)
    # MIG reads the same document.
    (problem,) = run.boot.failures
    assert problem.startswith("settings failed on the whole host: ") and "did not respond" in problem
    # Once, and once more as any call that only reads.
    assert len(run.hung) == 2 and run.seconds < 3 * run.boot.plan.timeout


def test_a_long_timeout_leaves_mig_its_time(host: StateHost, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _boot(host, monkeypatch, lambda words: "-pl" in words, timeout=300.0)
    assert run.divided() == list(ALL)
    assert run.failed == [0] and run.left_out == [list(range(1, 16))], "two calls have taken all of the time"
    assert f"the earlier steps took 390 s, and the boot has to continue; {AGAIN}" in run.boot.failures[-1]
    assert run.seconds <= boot_entry.WORK_SECONDS
