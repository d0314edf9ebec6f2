# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exported state: applied again it changes nothing, and it restores what was destroyed in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.mig_layouts import mig_layouts
from ansible_collections.gpu.fleet.plugins.filter.mig_parted import mig_parted
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import Table
from gpu_simulator.state import catalogue, store

from tests.conftest import EFFORT
from tests.unit.mig.mig_host import SimulatedHost, mig_models, table_of

Facts = dict[str, Any]
Gather = Callable[[SimulatedHost], Facts]
RANDOM_LAYOUTS = 3 if EFFORT == "quick" else 12


@pytest.fixture
def gather(monkeypatch: pytest.MonkeyPatch) -> Gather:
    """The facts that nvidia_smi_facts gathers on a simulated host."""

    return lambda host: host.facts(monkeypatch, "mig")


def _export(host: SimulatedHost) -> dict[str, Any]:
    """Result of a run without changes, after a round trip through YAML."""
    run = host.run(check=True, skip=True)
    assert run.error is None and run.changes == []
    kept: dict[str, Any] = yaml.safe_load(yaml.safe_dump(run.result))
    return kept


def _divide(host: SimulatedHost, index: int, table: Table, chance: random.Random) -> None:
    """Random GPU instances at random placements: divided, undivided, or without a compute instance."""
    places = [(profile, start) for profile in table.profiles for start in profile.starts]
    chance.shuffle(places)
    if chance.random() < 0.7:
        # Most placements are those of one slice, which cannot be divided.
        places.sort(key=lambda place: place[0].slices not in (2, 3, 4))
    for profile, start in places:
        text, status = host.call("mig", "-i", str(index), "-cgi", f"{profile.profile_id}:{start}")
        if status == 0 and "Successfully created" in text and chance.random() < 0.8:
            instance = max(item["id"] for item in host.state["gpus"][index]["gpu_instances"] if item["start"] == start)
            for size in chance.choice(([], ["0"], ["0", "0"], ["0", "0", "0"], ["1", "0"])):
                host.call("mig", "-i", str(index), "-gi", str(instance), "-cci", size)
            # One compute instance for the whole, if there is none yet.
            host.call("mig", "-i", str(index), "-gi", str(instance), "-cci")
        if chance.random() < 0.1:
            break


def _check_round_trip(host: SimulatedHost, exported: dict[str, Any]) -> None:
    """Each form of the export requests the current state, as far as the form can express it."""
    before = host.state
    runs = [host.run(layouts=exported["layouts"], reset=True)] if exported["layouts"] else []
    runs += [host.run(**{**entry, "reset": True}) for entry in exported["layouts"]]
    for run in runs:
        assert run.error is None, run.error
        assert run.changes == [] and run.result["changed"] is False
    assert host.state == before
    # mig-parted's format has no GPU instances without compute instances.
    empty = [item for gpu in before["gpus"] for item in gpu["gpu_instances"] if not item["compute_instances"]]
    run = host.run(config=exported["mig_parted"], selected="current", reset=True, check=bool(empty))
    assert run.error is None, run.error
    assert run.result["changed"] is bool(empty)
    assert host.state == before
    destroyed = [row for gpu in run.result["gpus"] for row in gpu["destroyed"]]
    assert all(row["compute_instance_id"] is None for row in destroyed) and len(destroyed) == len(empty)
    assert [gpu["created"] for gpu in run.result["gpus"]] == [[]] * len(run.result["gpus"])


@pytest.mark.parametrize("model", mig_models())
def test_export_changes_nothing_and_restores(tmp_path: Path, gather: Gather, model: str) -> None:
    host = SimulatedHost.make(tmp_path, model, "t4", model)
    blank = host.snapshot()
    table = table_of(model, tmp_path)
    chance = random.Random(model)
    kinds = set()
    for _layout in range(RANDOM_LAYOUTS):
        host.restore(blank)
        _divide(host, 0, table, chance)
        _divide(host, 2, table, chance)
        exported = _export(host)
        facts = gather(host)
        assert (mig_layouts(facts), mig_parted(facts)) == (exported["layouts"], exported["mig_parted"])
        assert [gpu["profiles"] for gpu in exported["gpus"]] == [
            exported["layouts"][0]["profiles"],
            None,
            exported["layouts"][1]["profiles"],
        ]
        kinds |= {name[0] for entry in exported["layouts"] for name in entry["profiles"] if name[1] == "c"}
        _check_round_trip(host, exported)
        desired = [host.layout(index) for index in (0, 2)]
        host.restore(blank)
        run = host.run(layouts=exported["layouts"])
        assert run.error is None, run.error
        assert [host.layout(index) for index in (0, 2)] == desired
        assert _export(host)["layouts"] == exported["layouts"]
    assert kinds and (EFFORT == "quick" or {"0", "1"} <= kinds)


LAYOUTS: list[tuple[str, list[str]]] = [
    ("h200", ["1c.3g.71gb:4", "1c.3g.71gb:4", "1c.3g.71gb:4", "1g.18gb+me:0"]),
    ("h200", ["2c.3g.71gb:0", "1c.3g.71gb:0", "0c.3g.71gb:4"]),
    ("a100_40gb", ["0c.1g.5gb:0", "1g.5gb:3", "3g.20gb:4"]),
    ("rtx_pro_6000_blackwell", ["1g.24gb+me.all:6"]),
    ("rtx_pro_6000_blackwell", ["1g.24gb-me:0", "2g.48gb+gfx:6"]),
]


@pytest.mark.parametrize("driver", ["535.261.03", "580.159.04"])
@pytest.mark.parametrize(("model", "profiles"), LAYOUTS)
def test_declared_layout_is_exported_as_it_was_declared(
    tmp_path: Path, model: str, profiles: list[str], driver: str
) -> None:
    host = SimulatedHost.make(tmp_path, model, driver=driver, mig=False)
    run = host.run(profiles=profiles)
    assert run.error is None, run.error
    assert sorted(run.result["gpus"][0]["profiles"]) == sorted(profiles)
    _check_round_trip(host, _export(host))


def test_instances_without_compute_instance_are_kept_and_reported(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    for profiles, created, kept in (
        (["0c.3g.71gb:4", "1g.18gb:0"], {"3g.71gb", "1g.18gb"}, set()),
        (["0c.3g.71gb:4", "1g.18gb:1"], {"1g.18gb"}, {"3g.71gb"}),
        (["3g.71gb:4"], {"3g.71gb"}, set()),
        (["0c.3g.71gb"], set(), {"3g.71gb"}),
    ):
        for check in (True, False):
            run = host.run(profiles=profiles, check=check)
            assert run.error is None, run.error
            gpu = run.result["gpus"][0]
            assert {row["gpu_instance_profile"] for row in gpu["created"]} == created, (profiles, check)
            assert {row["gpu_instance_profile"] for row in gpu["kept"]} == kept, (profiles, check)
            if not check:
                there = sorted(map(str, gpu["instances"]))
                assert sorted(map(str, gpu["kept"] + gpu["created"])) == there, profiles
        assert host.run(profiles=profiles).changes == []
    assert host.layout() == {("3g.71gb", 4, ()): 1}


@pytest.mark.parametrize(
    ("modes", "enabled"),
    [((False, False), False), ((False, True), True), ((True, False), False), ((True, True), True)],
)
def test_pending_mode_is_the_exported_one(
    tmp_path: Path, gather: Gather, modes: tuple[bool, bool], enabled: bool
) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb", "t4", "a100_40gb", mig=False)
    with store.transaction(str(host.root)) as state:
        state["gpus"][0]["mig_mode"] = {"current": modes[0], "pending": modes[1]}
    exported = _export(host)
    facts = gather(host)
    assert (mig_layouts(facts), mig_parted(facts)) == (exported["layouts"], exported["mig_parted"])
    assert [entry["enabled"] for entry in exported["layouts"]] == [enabled, False]
    assert exported["mig_parted"]["mig-configs"]["current"][0] == {
        "devices": [0] if enabled else [0, 1, 2],
        "mig-enabled": enabled,
        "mig-devices": {},
    }
    run = host.run(layouts=exported["layouts"])
    assert run.error is None and run.changes == []
    assert host.run(config=exported["mig_parted"]).changes == []


def test_instances_of_a_gpu_whose_mode_is_to_go_off_are_not_given_up(tmp_path: Path, gather: Gather) -> None:
    host = SimulatedHost.make(tmp_path, "a100_40gb")
    host.run(profiles=["3g.20gb:4"])
    with store.transaction(str(host.root)) as state:
        state["gpus"][0]["mig_mode"] = {"current": True, "pending": False}
    exported = _export(host)
    assert exported["layouts"][0]["enabled"] is True and exported["layouts"][0]["profiles"] == ["3g.20gb:4"]
    assert mig_layouts(gather(host)) == exported["layouts"]
    run = host.run(layouts=exported["layouts"])
    assert run.error is None and len(run.result["gpus"][0]["kept"]) == 1


def test_document_has_like_gpus_in_one_entry_as_mig_parted_exports_them(tmp_path: Path, gather: Gather) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "t4", "h100_80gb", "h100_80gb")
    host.run(gpus=["0", "3"], profiles=["1c.3g.40gb", "2c.3g.40gb", "1g.10gb+me", "1g.10gb", "1g.10gb"])
    document = mig_parted(gather(host))
    assert document == {
        "version": "v1",
        "mig-configs": {
            "current": [
                {
                    "devices": [0, 3],
                    "mig-enabled": True,
                    "mig-devices": {"1c.3g.40gb": 1, "2c.3g.40gb": 1, "1g.10gb": 2, "1g.10gb+me": 1},
                },
                {"devices": [1], "mig-enabled": False, "mig-devices": {}},
                {"devices": [2], "mig-enabled": True, "mig-devices": {}},
            ]
        },
    }
    assert host.run(config=document).changes == []


def test_document_has_no_name_that_mig_parted_lacks(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    document = {
        "version": "v1",
        "mig-configs": {"x": [{"devices": "all", "mig-enabled": True, "mig-devices": {"0c.3g.71gb": 1}}]},
    }
    run = host.run(config=document)
    assert run.error is not None and "0c" in run.error and run.changes == []


def test_filters_take_facts_in_each_of_their_shapes(tmp_path: Path, gather: Gather) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["1g.18gb:3"])
    facts = gather(host)
    layouts = [{"gpus": [host.state["gpus"][0]["uuid"]], "enabled": True, "profiles": ["1g.18gb:3"]}]
    for data in (facts, facts["gpus"], {"nvidia_smi": facts}, {"ansible_facts": {"nvidia_smi": facts}}):
        assert mig_layouts(data) == layouts
    for reason in ("no_gpu", "passed_through", "excluded"):
        assert mig_layouts({"available": False, "reason": reason, "gpus": []}) == []


def _damaged(facts: Facts, **changes: Any) -> Facts:
    return {**facts, "gpus": [{**facts["gpus"][0], **changes}]}


# Damaged facts, and a part of the error message.
UNKNOWN: list[tuple[Callable[[Facts], Any], str]] = [
    (lambda facts: _damaged(facts, gpu_instances=None, unknown={"gpu_instances": "denied"}), "needs root"),
    (lambda facts: _damaged(facts, gpu_instances=None), "are not known"),
    (lambda facts: _damaged(facts, error="GPU is lost"), "GPU is lost"),
    (lambda facts: _damaged(facts, mig_capable=None), "whether it has MIG"),
    (lambda facts: _damaged(facts, mig_devices=[]), "contradict"),
    (lambda facts: _damaged(facts, gpu_instances=[]), "contradict"),
    (lambda facts: [{key: item for key, item in facts["gpus"][0].items() if key != "gpu_instances"}], "gather_subset"),
    (lambda facts: {"available": False, "reason": "not_loaded", "message": "not loaded", "gpus": []}, "not loaded"),
    (lambda facts: {}, "takes facts"),
    (lambda facts: "GPU", "takes facts"),
    (lambda facts: None, "takes facts"),
    (lambda facts: ["GPU 0"], "takes facts"),
]


@pytest.mark.parametrize("export", [mig_layouts, mig_parted])
@pytest.mark.parametrize(("damage", "reported"), UNKNOWN)
def test_unknown_state_is_not_exported(
    tmp_path: Path, gather: Gather, export: Callable[[Any], Any], damage: Callable[[Facts], Any], reported: str
) -> None:
    host = SimulatedHost.make(tmp_path, "h200")
    host.run(profiles=["1g.18gb:3"])
    with pytest.raises(AnsibleFilterError, match=reported) as raised:
        export(damage(gather(host)))
    assert str(raised.value).startswith(f"gpu.fleet.{export.__name__}: ")


def test_a_document_of_no_gpu_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="no GPU"):
        mig_parted({"available": False, "reason": "no_gpu", "gpus": []})


def test_models_without_mig_have_no_layouts(tmp_path: Path, gather: Gather) -> None:
    models = [model for model in catalogue.names() if model not in mig_models()]
    host = SimulatedHost.make(tmp_path, *models)
    exported = _export(host)
    assert exported["layouts"] == mig_layouts(gather(host)) == []
    _check_round_trip(host, exported)
