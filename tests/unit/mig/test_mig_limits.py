# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of a request: the top-level `gpus`, entries that match nothing, and the maximum number of instances."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import MOST_INSTANCES
from ansible_collections.gpu.fleet.plugins.module_utils._mig.rules import parse_rules
from ansible_collections.gpu.fleet.plugins.modules import mig_profile

from tests.unit import module_runs
from tests.unit.mig.mig_host import NOTHING, RunModule, SimulatedHost, names

SMALL = ["1g.18gb"]
MOST_BYTES = 16 * 1024 * 1024


def _warnings(result: dict[str, Any]) -> list[str]:
    return [warning["event"]["msg"] for warning in result.get("warnings", ())]


def _document(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"version": "v1", "mig-configs": {"only": list(entries)}}


def _entry(**fields: Any) -> dict[str, Any]:
    return {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.18gb": 2}, **fields}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"config": _document(_entry())},
        {"config": _document(_entry(devices=[1]), _entry(devices=[0]))},
        {"layouts": [{"gpus": ["all"], "profiles": {"1g.18gb": 2}}]},
        {"layouts": [{"gpus": ["1"], "profiles": []}, {"gpus": ["0"], "profiles": {"1g.18gb": 2}}]},
        {"layouts": [{"gpus": ["1"], "enabled": False}, {"gpus": ["0"], "profiles": {"1g.18gb": 2}}]},
    ],
)
def test_no_gpu_outside_gpus_is_touched_or_reported(
    tmp_path: Path,
    run_module: RunModule,
    options: dict[str, Any],
    check: bool,
) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200")
    host.run(gpus=["1"], profiles=["3g.71gb"])
    before = host.state["gpus"][1]
    result = run_module(host, check=check, gpus=["0"], **options)
    assert not result.get("failed"), result["msg"]
    assert [gpu["index"] for gpu in result["gpus"]] == [0] and result["changed"] is True
    assert host.state["gpus"][1] == before and not _warnings(result)
    assert names(host.layout(0)) == ({} if check else Counter({"1g.18gb": 2}))


def test_a_limit_that_leaves_nothing_is_a_warning(tmp_path: Path, run_module: RunModule) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200")
    for name, value in (
        ("config", _document(_entry(devices=[1]))),
        ("layouts", [{"gpus": ["1"], "profiles": SMALL}]),
    ):
        result = run_module(host, gpus=["0"], **{name: value})
        assert result["gpus"] == [] and result["changed"] is False
        assert _warnings(result) == [f"{name}: no entry is for a GPU that the top-level gpus names ('0')"]


@pytest.mark.parametrize("other", [{"enabled": True}, {"enabled": False}])
@pytest.mark.parametrize("name", ["config", "layouts"])
def test_options_without_a_meaning_are_refused_by_name(
    tmp_path: Path,
    run_module: RunModule,
    name: str,
    other: dict[str, Any],
) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["3g.71gb"])
    before = host.snapshot()
    value = _document(_entry()) if name == "config" else [{"profiles": SMALL}]
    result = run_module(host, **other, **{name: value})
    assert result["failed"] and f"enabled has no meaning together with {name}" in result["msg"] and host.state == before


def test_without_enabled_mig_is_enabled(tmp_path: Path, run_module: RunModule) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200", mig=False)
    for options in ({"gpus": ["0"]}, {"layouts": [{"gpus": ["1"], "enabled": None}]}):
        result = run_module(host, **options)
        assert not result.get("failed"), result["msg"]
        assert result["changed"] is True
    assert [gpu["mig_mode"]["current"] for gpu in host.state["gpus"]] == [True, True]


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        ({"layouts": []}, ["layouts is empty: it declares nothing for any GPU"]),
        (
            {"layouts": [{"gpus": ["*A100*", "9"], "profiles": SMALL}, {"gpus": [], "profiles": SMALL}]},
            [
                "layouts[0]: no GPU of this host matches '*A100*', '9'",
                "layouts[1]: gpus is empty: the entry is for no GPU",
            ],
        ),
        (
            {"config": _document(_entry(devices=[7]), _entry(), _entry(**{"device-filter": "0x20B010DE"}))},
            ["config: no GPU of this host matches only[0], only[2]"],
        ),
    ],
)
def test_entries_that_match_no_gpu_are_named(
    tmp_path: Path,
    run_module: RunModule,
    options: dict[str, Any],
    warnings: list[str],
) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    result = run_module(host, **options)
    assert not result.get("failed") and _warnings(result) == warnings
    assert result["changed"] is ("config" in options)


@pytest.mark.parametrize("options", [{"profiles": SMALL}, {"layouts": []}, {"config": _document(_entry())}])
def test_empty_gpus_is_an_error_that_names_it(
    tmp_path: Path,
    run_module: RunModule,
    options: dict[str, Any],
) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    result = run_module(host, gpus=[], **options)
    assert result["failed"] and result["msg"].startswith("gpus is empty: ")


@pytest.mark.parametrize(
    ("profiles", "reported"),
    [
        ({"1g.18gb": 100_000_000}, "the count of '1g.18gb' is at most 1024"),
        ({"1g.18gb": "1" + "0" * 5000}, "the count of '1g.18gb' is at most 1024"),
        ({"1g.18gb": "\uff13"}, "the count of '1g.18gb' is a whole number from 0"),
        ({"1g.18gb": 600, "2g.35gb": 600}, "at most 1024 profiles"),
        ({f"1g.{number}gb": 0 for number in range(5000)}, "at most 1024 profiles"),
        (["1g.18gb"] * 1_000_000, "at most 1024 profiles"),
        (["1g.18gb:" + "9" * 5000], "no GPU has so many memory slices"),
        (["1g.18gb:256"], "no GPU has so many memory slices"),
        (["1g.18gb:\uff10"], "follows the colon"),
        (["\uff11g.18gb"], "is not a MIG profile name"),
        (["1g." + "9" * 5000 + "gb"], "is not a MIG profile name"),
        (["0c.999999999g.1gb"], "is not a MIG profile name"),
        (["1g.18gb+" + "a" * 1_000_000], "is not a MIG profile name"),
        (["A" * 1_000_000], "is not a MIG profile name"),
        ("x" * 1_000_000, "a layout is a list"),
    ],
)
def test_what_no_gpu_can_hold_is_refused_before_it_is_expanded(profiles: Any, reported: str) -> None:
    requests: list[tuple[dict[str, Any], str]] = [
        ({"profiles": profiles}, reported),
        ({"layouts": [{"gpus": ["all"], "enabled": None, "profiles": profiles}]}, reported),
    ]
    if isinstance(profiles, dict) and all(isinstance(count, int) for count in profiles.values()):
        document = _document(_entry(**{"mig-devices": profiles}))
        requests.append(({"config": document}, f"mig-parted document: only\\[0\\]: .*{reported}"))
    for options, why in requests:
        tracemalloc.start()
        with pytest.raises(ChangeError, match=why) as caught:
            parse_rules({**NOTHING, **options})
        _now, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # Counts are not expanded: memory depends on the size of the request, not on the numbers in it.
        assert peak < MOST_BYTES and len(str(caught.value)) < 400


def test_the_most_that_can_be_asked_for_is_explained(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    for profiles in ({"1g.18gb": MOST_INSTANCES}, {"1c.3g.71gb": MOST_INSTANCES}, ["1g.18gb:0"] * MOST_INSTANCES):
        run = host.run(profiles=profiles)
        assert run.error is not None and "GPU 0" in run.error and len(run.error) < 2000


@pytest.mark.parametrize(
    ("other", "agrees"),
    [
        (["1g.18gb", "2g.35gb"], True),
        ({"1g.18gb": 1, "2g.35gb": 1}, True),
        (["2g.35gb", "1g.18gb:0"], False),
        (["2g.35gb", "2g.35gb"], False),
        ([], False),
    ],
)
def test_entries_that_ask_for_the_same_agree_in_any_order(tmp_path: Path, other: Any, agrees: bool) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    layouts = [{"gpus": ["all"], "enabled": None, "profiles": profiles} for profiles in (["2g.35gb", "1g.18gb"], other)]
    run = host.run(check=True, layouts=layouts)
    assert (run.error is None) == agrees
    assert agrees or "is in two entries of layouts that differ" in str(run.error)


def test_documented_suboptions_are_those_of_the_module() -> None:
    module_runs.check_options(yaml.safe_load(mig_profile.DOCUMENTATION)["options"], mig_profile.ARGUMENT_SPEC)
