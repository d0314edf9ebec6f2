# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of requests: profile names, layouts, and mig-parted's documents."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._mig.parted import parse_config
from ansible_collections.gpu.fleet.plugins.module_utils._mig.profiles import parse_name
from ansible_collections.gpu.fleet.plugins.module_utils._mig.request import group, parse_layout

from tests.unit.mig.mig_host import SimulatedHost, names, table_of

DOCUMENT = yaml.safe_load((Path(__file__).parent / "fixtures" / "mig-parted.yaml").read_text())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1g.5gb", (1, 1, 5, "")),
        ("3g.71gb", (3, 3, 71, "")),
        ("1c.3g.71gb", (1, 3, 71, "")),
        ("3c.3g.71gb", (3, 3, 71, "")),
        ("1g.10gb+me", (1, 1, 10, "+me")),
        ("1g.24gb-me", (1, 1, 24, "-me")),
        ("2g.48gb+me.all", (2, 2, 48, "+me.all")),
        ("4g.96gb+gfx", (4, 4, 96, "+gfx")),
        ("1c.2g.12gb+me", (1, 2, 12, "+me")),
    ],
)
def test_profile_names(text: str, parts: tuple[int, int, int, str]) -> None:
    name = parse_name(text)
    assert (name.compute, name.slices, name.gigabytes, name.attributes) == parts
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    ["", "1g", "1g.5", "g.5gb", "1g.5gb ", " 1g.5gb", "1G.5gb", "1c1g.5gb", "2c.1g.5gb", "3c.4g.20gb", "MIG 1g.5gb"],
)
def test_what_is_no_profile_name(text: str) -> None:
    with pytest.raises(ChangeError):
        parse_name(text)


def test_a_list_and_a_map_are_the_same() -> None:
    assert parse_layout({"1g.5gb": 2, "3g.20gb:4": 1, "2g.10gb": 0}) == parse_layout(["1g.5gb", "1g.5gb", "3g.20gb:4"])
    assert parse_layout({"1g.5gb": "2"}) == parse_layout(["1g.5gb"] * 2)
    assert parse_layout([]) == parse_layout({}) == ()


@pytest.mark.parametrize(
    ("layout", "ways"),
    [
        (["1c.3g.20gb"] * 3, [[(1, 1, 1)], [(1, 1), (1,)]]),
        (["1c.3g.20gb", "2c.3g.20gb"], [[(2, 1)], [(2,), (1,)]]),
        (["2c.3g.20gb"] * 2, [[(2,), (2,)]]),
        (["1c.3g.20gb:0", "1c.3g.20gb:4", "2c.3g.20gb:4"], [[(1,), (2, 1)]]),
        (["3g.20gb", "1c.3g.20gb"], [[(3,), (1,)]]),
    ],
)
def test_compute_instances_share_gpu_instances(layout: list[str], ways: list[list[tuple[int, ...]]]) -> None:
    found = group(parse_layout(layout), {"3g.20gb": 2})
    assert [[desired.compute for desired in way] for way in found] == ways


def test_each_way_to_share_comes_once() -> None:
    found = group(parse_layout(["1c.2g.10gb"] * 4), {"2g.10gb": 4})
    assert [[desired.compute for desired in way] for way in found] == [
        [(1, 1), (1, 1)], [(1, 1), (1,), (1,)], [(1,), (1,), (1,), (1,)]
    ]  # fmt: skip


def test_too_many_compute_instances_are_refused_at_once() -> None:
    with pytest.raises(ChangeError, match=r"1000 slices do not fit into 2 x 3g\.20gb"):
        group(parse_layout({"1c.3g.20gb": 1000}), {"3g.20gb": 2})
    with pytest.raises(ChangeError, match="it has 3"):
        group(parse_layout(["2c.3g.20gb:0", "2c.3g.20gb:0"]), {"3g.20gb": 2})


@pytest.mark.parametrize(
    ("model", "wrong", "right"),
    [("gb200", "1g.24gb", "1g.23gb"), ("gb200", "3g.95gb", "3g.93gb"), ("a100_80gb", "7g.79gb", "7g.80gb")],
)
def test_names_that_drifted_are_suggested(tmp_path: Path, model: str, wrong: str, right: str) -> None:
    with pytest.raises(ChangeError, match=f"did you mean '{right}'"):
        table_of(model, tmp_path).find(wrong)


NO_FILTERS: tuple[Any, ...] = ({}, False, True, 0, 7, 0.0, [1])
NO_COUNTS: tuple[Any, ...] = (False, 0, "", [])
_ENTRY: dict[str, Any] = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 2}}


def _config(**changes: Any) -> dict[str, Any]:
    entry = {**_ENTRY, **changes}
    return {"version": "v1", "mig-configs": {"only": [{k: v for k, v in entry.items() if v is not ...}]}}


@pytest.mark.parametrize(
    ("document", "reported"),
    [
        ({"mig-configs": {"a": []}}, "'version' is missing"),
        ({"version": "v2"}, "version 'v2' is unknown"),
        ({"version": "v1", "mig-configs": {}}, "has no entry"),
        ({"version": "v1"}, "it has none"),
        ({"version": "v1", "mig-configs": {"a": []}}, "at least one entry"),
        ({**_config(), "bogus": 1}, "unexpected field 'bogus'"),
        (_config(bogus=1), "unexpected field 'bogus'"),
        (_config(**{"devices": ...}), "'devices' is missing"),
        (_config(**{"mig-enabled": ...}), "'mig-enabled' is missing"),
        (_config(**{"mig-devices": ...}), "'mig-devices' is missing"),
        (_config(**{"mig-enabled": False}), "while mig-enabled is false"),
        (_config(**{"mig-enabled": "yes"}), "true or false"),
        (_config(devices="some"), "'all' or a list"),
        (_config(devices={}), "'all' or a list"),
        (_config(devices=["0"]), "'all' or a list"),
        (_config(**{"mig-devices": {"bogus": 2}}), "'bogus' is not a MIG profile name"),
        (_config(**{"mig-devices": {"1g.5gb": "2"}}), "whole numbers"),
        (_config(**{"mig-devices": {"1g.5gb": -1}}), "whole number"),
        (_config(**{"mig-devices": {"1g.5gb": 0}}), "all counts"),
        (_config(**{"mig-devices": {"1g.5gb:0": 1}}), "without a start"),
        *[(_config(**{"device-filter": value}), "device-filter is") for value in NO_FILTERS],
        *[
            (_config(**{"mig-enabled": False, "mig-devices": value}), "mig-devices has to be a mapping")
            for value in NO_COUNTS
        ],
        ([], "a mapping"),
    ],
)
def test_documents_that_mig_parted_refuses(document: Any, reported: str) -> None:
    with pytest.raises(ChangeError, match=reported):
        parse_config(document, None)


@pytest.mark.parametrize(
    "document",
    [
        _config(),
        _config(**{"device-filter": "MODEL"}),
        _config(**{"device-filter": ["MODEL1", "MODEL2"]}),
        _config(**{"mig-enabled": False, "mig-devices": ...}),
        _config(**{"mig-enabled": False, "mig-devices": {}}),
        _config(**{"mig-devices": {}}),
        _config(devices=[0, 1, 2, 3]),
    ],
)
def test_documents_that_mig_parted_takes(document: Any) -> None:
    (entry,) = parse_config(document, "only")
    assert entry.enabled is document["mig-configs"]["only"][0]["mig-enabled"]


HUGE = "x" * 50_000
MANY = list(range(20_000))
NESTED: list[Any] = []
for _level in range(5_000):
    NESTED = [NESTED]


@pytest.mark.parametrize(
    "value",
    [HUGE, [HUGE] * 3, {HUGE: HUGE}, MANY, NESTED, 10**5_000],
    ids=["text", "list", "mapping", "many", "nested", "number"],
)
def test_messages_are_short_whatever_the_document_has(value: Any) -> None:
    for document in (
        value,
        {**_config(), "version": value},
        {**_config(), HUGE: value},
        {"version": "v1", "mig-configs": value},
        {"version": "v1", "mig-configs": {f"{number}{HUGE}": [_ENTRY] for number in range(50)}},
        {"version": "v1", "mig-configs": {HUGE: value}},
        {"version": "v1", "mig-configs": {HUGE: [_ENTRY, value]}},
        _config(**{HUGE: value}),
        _config(devices={"of": value}),
        _config(**{"mig-enabled": value}),
        _config(**{"mig-devices": value}),
        _config(**{"mig-devices": {"1g.5gb": value}}),
        _config(**{"mig-devices": {HUGE: 1}}),
        _config(**{"device-filter": {HUGE: value}}),
    ):
        with pytest.raises(ChangeError) as raised:
            parse_config(document, None)
        assert len(str(raised.value)) < 2_500
    with pytest.raises(ChangeError) as raised:
        parse_config(_config(), HUGE)
    assert len(str(raised.value)) < 300


def test_selection_of_a_configuration() -> None:
    with pytest.raises(ChangeError, match="all-disabled, all-enabled"):
        parse_config(DOCUMENT, None)
    with pytest.raises(ChangeError, match="no configuration 'none'"):
        parse_config(DOCUMENT, "none")
    assert len(parse_config(DOCUMENT, "all-balanced")) == 2


@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ("0x233510DE", True),
        ("0x233510de", True),
        (["0x20B010DE", "0x233510DE"], True),
        ("0x233510DE:0x18BE10DE", True),
        ("0x233510DE:0x000010DE", False),
        ("0x20B010DE", False),
        ("H200", False),
        ([], True),
        ("", True),
        (str(0x233510DE), True),
    ],
)
def test_device_filters(filters: object, matches: bool) -> None:
    (entry,) = parse_config(_config(**{"device-filter": filters}), None)
    assert entry.matches(0, 0x233510DE, 0x18BE10DE) is matches


def test_a_document_on_a_mixed_host(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "a30", "t4")
    run = host.run(config=DOCUMENT, selected="all-balanced")
    assert run.error is None
    assert names(host.layout(0)) == Counter({"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2})
    assert names(host.layout(1)) == Counter({"2g.12gb": 1, "1g.6gb": 2})
    assert host.run(config=DOCUMENT, selected="all-balanced").changes == []
    disabled = host.run(config=DOCUMENT, selected="all-disabled")
    assert disabled.error is None and not host.layout(0) and not host.layout(1)
    assert [gpu["status"] for gpu in disabled.result["gpus"]] == ["changed", "changed", "skipped"]


def test_entries_by_index(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h200", "h200", "h200")
    run = host.run(config=DOCUMENT, selected="custom")
    assert run.error is None
    assert [gpu["index"] for gpu in run.result["gpus"]] == [0, 1]
    assert host.state["gpus"][0]["mig_mode"]["current"] is False
    assert sorted(sizes for _name, _start, sizes in host.layout(1)) == [(1,), (1, 1, 1)]
    wrong = SimulatedHost.make(tmp_path / "other", "h200", "t4").run(config=DOCUMENT, selected="custom")
    assert wrong.error is not None and "GPU 1 (Tesla T4" in wrong.error
