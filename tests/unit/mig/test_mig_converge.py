# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's work on the simulated nvidia-smi of every driver branch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gpu_simulator.state import store

from tests.unit.mig.mig_host import DRIVERS, SimulatedHost, names, reported

BALANCED = ["3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    """One driver of each simulated branch."""
    return str(request.param)


def test_second_run_changes_nothing_and_makes_two_calls(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb", driver=driver)
    first = host.run(profiles=["3g.40gb", "1g.10gb", "1g.10gb"])
    assert first.error is None and first.result["changed"] is True
    assert names(host.layout(0)) == names(host.layout(1)) == Counter({"3g.40gb": 1, "1g.10gb": 2})
    second = host.run(profiles={"1g.10gb": 2, "3g.40gb": 1})
    assert second.error is None and second.result["changed"] is False
    assert second.changes == [] and second.result["commands"] == []
    assert len(second.calls) <= 2
    assert [gpu["status"] for gpu in second.result["gpus"]] == ["unchanged", "unchanged"]
    assert all(row["uuid"] for gpu in second.result["gpus"] for row in gpu["instances"])


def test_uuids_and_ids_are_those_of_the_listing(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", driver=driver)
    for _run in range(3):
        run = host.run(profiles=["3g.20gb", "2g.10gb", "1g.5gb"])
        listed = host.call("-L")[0]
        shown = {(row["profile"], row["uuid"]) for row in run.result["gpus"][0]["instances"]}
        assert len(shown) == 3
        for profile, uuid in shown:
            line = next(line for line in listed.splitlines() if uuid in line)
            assert line.split()[:2] == ["MIG", profile]
        assert reported(run.result["gpus"][0]) == host.layout()


def test_one_of_seven_leaves_six_alone(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, *["h100_80gb"] * 8, driver=driver)
    before = host.run(profiles={"1g.10gb": 7})
    run = host.run(gpus=["3"], profiles={"1g.10gb": 6, "1g.10gb+me": 1})
    assert run.error is None
    gpu = run.result["gpus"][0]
    assert (len(gpu["kept"]), len(gpu["destroyed"]), len(gpu["created"])) == (6, 1, 1)
    uuids = {row["uuid"] for row in before.result["gpus"][3]["instances"]}
    assert {row["uuid"] for row in gpu["kept"]} < uuids
    assert gpu["created"][0]["gpu_instance_profile"] == "1g.10gb+me"
    # Two calls before and two after the change, which needs three: destroy both instances, create the new one.
    assert len(run.calls) == 7 and len(run.changes) == 3
    assert all(gpu["uuid"] in call for call in run.changes)


def test_adding_one_destroys_nothing(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, *["h200"] * 8, driver=driver)
    host.run(profiles={"1g.18gb": 6})
    run = host.run(gpus=["0"], profiles={"1g.18gb": 7})
    assert [word for call in run.changes for word in call if word.startswith("-")] == ["-i", "-cgi", "-C"]
    assert len(run.calls) == 5
    run = host.run(gpus=["0"], profiles={"1g.18gb": 5})
    assert run.error is None and len(run.calls) == 6


def test_check_mode_plans_and_changes_nothing(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200", driver=driver)
    host.run(profiles=BALANCED)
    before = host.snapshot()
    cached = (tmp_path / "run" / "mig.json").read_text()
    planned = host.run(check=True, profiles=["3g.71gb", "1g.18gb", "1g.18gb", "1g.18gb", "1g.18gb"])
    assert planned.changes == [] and host.state == before
    assert (tmp_path / "run" / "mig.json").read_text() == cached
    done = host.run(profiles=["3g.71gb", "1g.18gb", "1g.18gb", "1g.18gb", "1g.18gb"])
    for key in ("kept", "destroyed"):
        assert planned.result["gpus"][0][key] == done.result["gpus"][0][key]
    unknown = ("gpu_instance_id", "compute_instance_id", "uuid")
    assert [
        {**row, **dict.fromkeys(unknown)}
        for row in sorted(done.result["gpus"][0]["created"], key=lambda row: row["placement_start"])
    ] == planned.result["gpus"][0]["created"]
    assert planned.result["diff"] == done.result["diff"]
    assert planned.result["changed"] is done.result["changed"] is True


def test_diff_is_for_people(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["3g.71gb:4"])
    diff = host.run(profiles=["3g.71gb", "1c.2g.35gb:0", "1c.2g.35gb:0"], check=True).result["diff"]
    assert diff["before"].splitlines()[1:] == ["  slices 4-7: 3g.71gb"]
    assert diff["after"].splitlines()[1:] == ["  slices 0-1: 1c.2g.35gb + 1c.2g.35gb", "  slices 4-7: 3g.71gb"]
    assert diff["before"].splitlines()[0] == "GPU 0 (NVIDIA H200, 00000000:06:00.0): MIG enabled"


def test_result_has_the_same_keys_in_every_branch(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "t4", mig=False)
    runs = [
        host.run(gpus=["0"], check=True, profiles=BALANCED),
        host.run(gpus=["0"], profiles=BALANCED),
        host.run(gpus=["0"], profiles=BALANCED),
        host.run(gpus=["1"], profiles=BALANCED),
        host.run(skip=True, enabled=False),
        host.run(profiles=["8g.1gb"]),
    ]
    assert [run.error is None for run in runs] == [True, True, True, False, True, False]
    keys = {frozenset(run.result) for run in runs}
    always = {"changed", "gpus", "reset_required", "reboot_required", "layouts", "mig_parted", "commands", "diff"}
    assert keys == {frozenset(always)}
    gpus: list[dict[str, Any]] = [gpu for run in runs for gpu in run.result["gpus"]]
    assert len({frozenset(gpu) for gpu in gpus}) == 1
    assert len({frozenset(row) for gpu in gpus for key in ("instances", "kept", "created") for row in gpu[key]}) == 1


def test_explicit_starts(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", driver=driver)
    host.run(profiles=["1g.5gb:3", "1g.5gb:0", "3g.20gb:4"])
    assert host.layout() == Counter({("1g.5gb", 3, (1,)): 1, ("1g.5gb", 0, (1,)): 1, ("3g.20gb", 4, (3,)): 1})
    run = host.run(profiles=["1g.5gb:2", "1g.5gb", "3g.20gb"])
    assert len(run.result["gpus"][0]["kept"]) == 2
    assert ("1g.5gb", 2, (1,)) in host.layout()


def test_compute_instances(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver)
    steps: list[tuple[list[str], list[tuple[int, ...]]]] = [
        (["1c.3g.40gb"] * 3, [(1, 1, 1)]),
        (["1c.3g.40gb", "2c.3g.40gb"], [(2, 1)]),
        (["1c.3g.40gb", "2c.3g.40gb", "1c.3g.40gb"], [(2, 1), (1,)]),
        (["3g.40gb"], [(3,)]),
        (["2c.7g.80gb", "2c.7g.80gb", "3c.7g.80gb"], [(3, 2, 2)]),
        (["4c.7g.80gb", "3c.7g.80gb"], [(4, 3)]),
        (["1c.4g.40gb:0", "1c.4g.40gb:0", "2c.4g.40gb:0", "3g.40gb"], [(2, 1, 1), (3,)]),
    ]
    for profiles, desired in steps:
        run = host.run(profiles=profiles)
        assert run.error is None, run.error
        assert sorted(sizes for _name, _start, sizes in host.layout().elements()) == sorted(desired), profiles
        assert reported(run.result["gpus"][0]) == host.layout()
        again = host.run(profiles=profiles)
        assert again.changes == [] and again.result["changed"] is False
        assert again.result["gpus"][0]["instances"] == run.result["gpus"][0]["instances"]


def test_compute_instances_that_match_are_kept(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver)
    before = host.run(profiles=["1c.7g.80gb"] * 7)
    run = host.run(profiles=["1c.7g.80gb"] * 5 + ["2c.7g.80gb"])
    assert run.error is None
    kept = {row["uuid"] for row in run.result["gpus"][0]["kept"]}
    assert len(kept) == 5 and kept <= {row["uuid"] for row in before.result["gpus"][0]["instances"]}
    assert [sizes for _name, _start, sizes in host.layout()] == [(2, 1, 1, 1, 1, 1)]


def test_a_busy_compute_instance_stays(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    host.run(profiles=["1c.7g.80gb"] * 7)
    state = host.state
    compute = state["gpus"][0]["gpu_instances"][0]["compute_instances"]
    host.occupy(0, 0)
    busy = compute[0]["id"]
    run = host.run(profiles=["1c.7g.80gb"] * 4 + ["3c.7g.80gb"])
    assert run.error is None
    assert busy in {row["compute_instance_id"] for row in run.result["gpus"][0]["kept"]}


def test_half_made_instances_are_completed(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", driver=driver)
    host.run(profiles=["1g.10gb", "1g.10gb"])
    # Another process created a GPU instance and was killed before it created the compute instance.
    assert host.call("mig", "-i", "0", "-cgi", "9")[1] == 0
    run = host.run(profiles=["1g.10gb", "1g.10gb"])
    assert run.result["changed"] is True and names(host.layout()) == Counter({"1g.10gb": 2})
    assert host.call("mig", "-i", "0", "-cgi", "9")[1] == 0
    run = host.run(profiles=["1g.10gb", "1g.10gb", "3g.40gb"])
    assert run.error is None and [sizes for name, _start, sizes in host.layout() if name == "3g.40gb"] == [(3,)]
    assert not any("-cgi" in call or "-dgi" in call for call in run.changes)


@pytest.mark.parametrize("selector", ["1", "uuid", "00000000:07:00.0", "07:00.0", "NVIDIA H200*"])
def test_only_the_named_gpus_are_touched(tmp_path: Path, selector: str) -> None:
    host = SimulatedHost.make(tmp_path, "a100_80gb", "h200", "t4")
    uuids = [gpu["uuid"] for gpu in host.state["gpus"]]
    run = host.run(gpus=[uuids[1] if selector == "uuid" else selector], profiles=BALANCED)
    assert run.error is None
    assert host.layout(0) == Counter() and names(host.layout(1)) == Counter(BALANCED)
    assert all(uuids[1] in call and uuids[0] not in call for call in run.changes)


def test_different_layouts_in_one_call(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200", "a30", "t4")
    run = host.run(
        layouts=[
            {"gpus": ["0"], "enabled": True, "profiles": BALANCED},
            {"gpus": ["1"], "enabled": True, "profiles": {"1g.18gb": 7}},
            {"gpus": ["*A30"], "enabled": True, "profiles": ["2g.12gb"]},
        ]
    )
    assert run.error is None
    assert [sum(host.layout(index).values()) for index in range(4)] == [4, 7, 1, 0]
    both = [{"gpus": ["0"], "enabled": True, "profiles": BALANCED}, {"gpus": ["all"], "enabled": True, "profiles": []}]
    clash = host.run(layouts=both)
    assert clash.error is not None and "two entries" in clash.error and clash.changes == []


def test_gpu_without_mig_is_refused_or_skipped(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "t4")
    refused = host.run(profiles=BALANCED)
    assert refused.error is not None and "GPU 1 (Tesla T4" in refused.error and "on_unsupported" in refused.error
    assert refused.changes == []
    skipped = host.run(profiles=BALANCED, skip=True)
    assert [gpu["status"] for gpu in skipped.result["gpus"]] == ["changed", "skipped"]


def test_ordinary_user_is_reported_what_is_needed(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200", driver=driver)
    host.run(profiles=["1g.18gb"])
    before = host.snapshot()
    host.root_user = False
    refused = host.run(profiles=["1g.18gb", "1g.18gb"])
    assert refused.error is not None and "become: true" in refused.error and host.state == before


def test_no_driver(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    state = host.snapshot()
    host.restore({**state, "driver": {**state["driver"], "loaded": None}})
    run = host.run(profiles=["1g.18gb"])
    assert run.error is not None and "communicate with the NVIDIA driver" in run.error and "exit status 9" in run.error


@pytest.mark.parametrize(
    ("profiles", "reports"),
    [
        (["1g.17gb"], "did you mean '1g.18gb'"),
        (["3g.71gb", "3g.71gb", "1g.18gb"], "[2 x 3g.71gb]"),
        (["1g.18gb"] * 8, "maximum of 7"),
        (["1g.18gb+me"] * 2, "maximum of 1"),
        (["3g.71gb:0", "2g.35gb:2"], "overlaps"),
        (["3g.71gb:1"], "it starts at 0, 4"),
        (["1g.18gb:x"], "follows the colon"),
        (["1G.18GB"], "did you mean '1g.18gb'"),
        (["5c.7g.141gb"], "not a compute instance of 7g.141gb"),
        ("1g.18gb", "a list of profile names or a map"),
        ([7], "not 7"),
        ({"1g.18gb": -1}, "whole number from 0"),
    ],
)
def test_impossible_layouts_are_refused_before_anything_is_touched(tmp_path: Path, profiles: Any, reports: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200")
    host.run(profiles=BALANCED)
    before = host.snapshot()
    run = host.run(profiles=profiles)
    assert run.error is not None and reports in run.error
    assert run.changes == [] and host.state == before and run.result["changed"] is False


def test_media_engines_are_the_reason(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "rtx_pro_6000_blackwell")
    run = host.run(profiles=["1g.24gb+me.all", "1g.24gb"])
    assert run.error is not None and "media engines" in run.error
    assert host.run(profiles=["1g.24gb+me.all", "1g.24gb-me", "2g.48gb-me"]).error is None
    assert host.run(profiles=["1g.24gb+gfx", "1g.24gb+me", "2g.48gb+gfx"]).error is None


def test_a_busy_instance_is_kept_or_nothing_happens(tmp_path: Path, driver: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200", driver=driver)
    host.run(profiles={"1g.18gb": 7})
    host.occupy(0, 2)
    run = host.run(profiles={"1g.18gb": 1})
    assert run.error is None and host.layout() == Counter({("1g.18gb", 2, (1,)): 1})
    before = host.snapshot()
    refused = host.run(profiles=["3g.71gb:0"])
    assert refused.error is not None and refused.changes == [] and host.state == before
    for part in ("GPU 0 (NVIDIA H200", "1g.18gb:2", "GPU instance 9", "compute instance 0", "python3", "PID 4711"):
        assert part in refused.error
    # The driver refuses to destroy an instance in use, with force too.
    forced = host.run(profiles=["3g.71gb:0"], force=True)
    assert forced.error is not None and "In use by another client" in forced.error and forced.changes
    assert host.layout() == Counter({("1g.18gb", 2, (1,)): 1})


@pytest.mark.parametrize("start", [0, 4])
def test_a_running_job_decides_where_things_go(tmp_path: Path, start: int) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["3g.71gb:0", "3g.71gb:4"])
    host.occupy(0, start)
    run = host.run(profiles=["3g.71gb", "2g.35gb"], check=True)
    assert run.error is None
    assert [row["placement_start"] for row in run.result["gpus"][0]["kept"]] == [start]
    host.occupy(0, 4 - start)
    refused = host.run(profiles=["3g.71gb", "2g.35gb"], check=True)
    assert refused.error is not None and "instances that are in use would be destroyed" in refused.error


@pytest.mark.parametrize("health", ["inforom", "lost"])
def test_a_sick_gpu_next_to_the_named_one(tmp_path: Path, driver: str, health: str) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200", driver=driver)
    with store.transaction(str(tmp_path)) as state:
        state["gpus"][1]["health"] = health
    run = host.run(gpus=["0"], profiles=["1g.18gb"])
    if run.error is None:
        assert names(host.layout()) == Counter({"1g.18gb": 1})
    else:
        assert health == "lost" and "lost" in run.error and run.changes == []
    whole = host.run(profiles=["1g.18gb"])
    assert (whole.error is None) is (health == "inforom")
