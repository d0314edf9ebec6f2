# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of gpu_state: the forms of a layout, the plan as text, files, systemd."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common import gpu_clients
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd, Unit
from ansible_collections.gpu.fleet.plugins.module_utils._state import plan as state_plan
from ansible_collections.gpu.fleet.plugins.module_utils._state import service_files
from ansible_collections.gpu.fleet.plugins.module_utils._state.plan import (
    PlannedDevice,
    PlannedGpu,
    PlannedMig,
    StatePlan,
)
from ansible_collections.gpu.fleet.plugins.module_utils._state.request import parse_declaration
from ansible_collections.gpu.fleet.plugins.module_utils._state.service_files import FileStep, Service
from hypothesis import given
from hypothesis import strategies as some

from tests.unit.state.state_host import OPTIONS


def _layout(gpus: list[str], enabled: bool, profiles: Any) -> dict[str, Any]:
    return {"gpus": gpus, "enabled": enabled, "profiles": profiles}


SERVICE = Service("/usr/bin/python3")

FORMS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "list of profiles": (["1g.18gb", "3g.71gb:4"], [_layout(["all"], True, ["1g.18gb", "3g.71gb:4"])]),
    "counts": ({"1g.18gb": 7}, [_layout(["all"], True, {"1g.18gb": 7})]),
    "off": (False, [_layout(["all"], False, None)]),
    "off as a text": ("False", [_layout(["all"], False, None)]),
    "mode alone": (True, [_layout(["all"], True, None)]),
    "one layout": ({"profiles": []}, [_layout(["all"], True, [])]),
    "by GPU": (
        [{"gpus": ["0"], "profiles": ["1g.18gb"]}, {"gpus": "07:00.0", "enabled": False}, {"gpus": 2, "profiles": []}],
        [_layout(["0"], True, ["1g.18gb"]), _layout(["07:00.0"], False, None), _layout(["2"], True, [])],
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_named", [False, True])
def test_every_form_of_a_layout_is_understood_also_under_a_name(form: str, is_named: bool) -> None:
    value, layouts = FORMS[form]
    if is_named and isinstance(value, str):
        with pytest.raises(ChangeError, match="has to be a layout"):
            parse_declaration({**OPTIONS, "mig": "mine", "mig_layouts": {"mine": value}})
        return
    options = {"mig": "mine", "mig_layouts": {"mine": value}} if is_named else {"mig": value}
    declaration = parse_declaration({**OPTIONS, **options})
    assert declaration.mig == {"layouts": layouts} and not declaration.is_empty


def test_layouts_without_gpus_are_for_those_of_the_declaration() -> None:
    declaration = parse_declaration({**OPTIONS, "gpus": ["0", "1"], "mig": {"1g.18gb": 1}})
    assert declaration.mig == {"layouts": [_layout(["0", "1"], True, {"1g.18gb": 1})]}


def test_what_is_not_declared_is_nothing() -> None:
    assert parse_declaration(OPTIONS).is_empty
    assert parse_declaration({**OPTIONS, "mig": "", "power_limit_w": "", "gpu_clocks_mhz": None}).is_empty
    assert parse_declaration({**OPTIONS, "ecc": False}).ecc is False
    assert parse_declaration({**OPTIONS, "persistence_mode": False}).settings == {"persistence_mode": False}


_STRINGS = some.text(max_size=8)
_SETTINGS = some.fixed_dictionaries(
    {},
    optional={
        "persistence_mode": some.booleans(),
        "compute_mode": some.sampled_from(["default", "prohibited"]),
        "power_limit_w": some.sampled_from(["80%", "default"]) | some.integers(1, 1000).map(str),
        "gpu_clocks_mhz": some.integers(1, 3000) | some.just("1000-1500"),
    },
)
_PLANS = some.builds(
    StatePlan,
    executable=_STRINGS,
    timeout=some.floats(0.1, 1000),
    reset=some.booleans(),
    gpus=some.lists(
        some.builds(
            PlannedGpu,
            uuid=_STRINGS,
            pci_bus_id=some.none() | _STRINGS,
            name=some.none() | _STRINGS,
            ecc=some.none() | some.booleans(),
            settings=_SETTINGS,
            mig=some.none()
            | some.builds(
                PlannedMig,
                enabled=some.just(True),
                profiles=some.none()
                | some.lists(some.sampled_from(["1g.18gb:0", "3g.71gb", "1c.3g.71gb:4"])).map(tuple),
                devices=some.lists(some.builds(PlannedDevice, place=_STRINGS, uuid=some.none() | _STRINGS)).map(tuple),
            ),
        ),
        unique_by=lambda gpu: gpu.uuid,
    ).map(tuple),
)


@given(_PLANS)
def test_a_plan_comes_back_from_its_text(plan: StatePlan) -> None:
    assert state_plan.parse(state_plan.render(plan)) == plan


def test_files_are_written_as_a_whole_and_with_their_mode(tmp_path: Path) -> None:
    desired = service_files.desired_files("the plan", SERVICE)
    steps = service_files.plan_files(desired, str(tmp_path))
    assert {step.path for step in steps} == set(desired) and {step.before for step in steps} == {None}
    service_files.apply_files(steps, str(tmp_path))
    for path, text in desired.items():
        there = tmp_path / path.lstrip("/")
        assert there.read_text() == text
        assert there.stat().st_mode & 0o777 == (0o755 if path == service_files.COMMAND else 0o644)
    assert service_files.plan_files(desired, str(tmp_path)) == ()
    assert not list(tmp_path.rglob(".gpu-fleet-*"))


def test_a_directory_in_the_place_of_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / service_files.PLAN_FILE.lstrip("/")).mkdir(parents=True)
    step = FileStep(service_files.PLAN_FILE, None, "text")
    with pytest.raises(ChangeError, match=r"plan\.json cannot be changed: Is a directory"):
        service_files.apply_files((step,), str(tmp_path))


def test_files_of_others_stay_when_the_service_goes(tmp_path: Path) -> None:
    desired = service_files.desired_files("the plan", SERVICE)
    service_files.apply_files(service_files.plan_files(desired, str(tmp_path)), str(tmp_path))
    other = tmp_path / "var/lib/gpu-fleet/managed/cuda.json"
    other.parent.mkdir()
    other.write_text("{}")
    service_files.apply_files(service_files.plan_files({}, str(tmp_path)), str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert not (tmp_path / "usr/lib/gpu-fleet").exists()


def _systemd(directory: Path, results: Sequence[tuple[int, str]]) -> tuple[Systemd, list[list[str]], list[float]]:
    calls: list[list[str]] = []
    sleeps: list[float] = []
    left = list(results)

    def run(commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        del timeout
        calls.extend(list(command) for command in commands)
        status, text = left.pop(0)
        return [CommandResult(tuple(commands[0]), status, text.encode(), b"", 0.01)]

    return Systemd(run, str(directory), sleeps.append), calls, sleeps


# Output of systemd 252; the second unit does not exist.
SHOWN = """\
Id=nvidia-dcgm.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=no
Result=success
StatusText=

Id=mine.service
LoadState=not-found
ActiveState=inactive
UnitFileState=
NeedDaemonReload=no
Result=success
StatusText=
"""


def test_units_are_read_and_those_that_are_not_there_left_out(tmp_path: Path) -> None:
    systemd, calls, _sleeps = _systemd(tmp_path, [(0, SHOWN)])
    units = systemd.show(("nvidia-dcgm.service", "mine.service"))
    assert list(units) == ["nvidia-dcgm.service"]
    assert units["nvidia-dcgm.service"].is_active and units["nvidia-dcgm.service"].enabled == "enabled"
    assert calls[0][0] == "systemctl" and calls[0][-2:] == ["nvidia-dcgm.service", "mine.service"]


def test_without_systemd_there_are_no_units_and_nobody_is_asked(tmp_path: Path) -> None:
    systemd, calls, _sleeps = _systemd(tmp_path / "none", [])
    assert systemd.show(("nvidia-dcgm.service",)) == {} and calls == [] and not systemd.is_running


def test_a_unit_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    starting = SHOWN.replace("ActiveState=active", "ActiveState=activating")
    systemd, calls, sleeps = _systemd(tmp_path, [(0, starting), (0, starting), (0, SHOWN)])
    systemd.settle("nvidia-dcgm.service", 60)
    assert len(calls) == 3 and len(sleeps) == 2
    systemd, calls, _sleeps = _systemd(tmp_path, [(0, starting)])
    systemd.settle("nvidia-dcgm.service", 0)
    assert len(calls) == 1


def test_what_systemctl_refuses_is_an_error_with_its_words(tmp_path: Path) -> None:
    systemd, _calls, _sleeps = _systemd(tmp_path, [(5, "Unit mine.service not loaded.")])
    with pytest.raises(ChangeError, match=r"systemctl stop mine.service failed: Unit mine.service not loaded\."):
        systemd.act("stop", "mine.service")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_clients_are_started_again_when_the_run_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    systemd, calls, _sleeps = _systemd(tmp_path, [(0, ""), (0, SHOWN), (0, ""), (0, SHOWN)])
    before = signal.getsignal(number)
    with pytest.raises(SystemExit), gpu_clients.stopped(systemd, [Unit("nvidia-dcgm.service", active="active")]):
        os.kill(os.getpid(), number)
        time.sleep(5)
    assert [calls[0][2:], calls[2][2:]] == [["stop", "nvidia-dcgm.service"], ["start", "nvidia-dcgm.service"]]
    assert signal.getsignal(number) == before


def test_given_clients_are_named_as_people_name_them_and_go_first() -> None:
    names = gpu_clients.clients(("mine", "other.socket", "with.dots", "nvidia-dcgm.service"))
    assert names[:4] == ("mine.service", "other.socket", "with.dots.service", "nvidia-dcgm.service")
    assert names[-1] == "nvidia-persistenced.service" and len(set(names)) == len(names)
