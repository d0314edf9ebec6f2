# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sections of the report, each by hosts that show what it is about."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._report import sections
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.changes import changes
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.inputs import read_host
from ansible_collections.gpu.fleet.plugins.plugin_utils._report.model import (
    NOT_READ,
    READ,
    UNREACHABLE,
    Change,
    Host,
    Slice,
)

from tests.unit.report.fleets import bases, copied, fleet


def changed(host: Host, gpu: Mapping[str, Any] | None = None, **facts: Any) -> Host:
    """The host with other facts; `gpu` changes its first GPU."""
    made: dict[str, Any] = copy.deepcopy(dict(host.facts or {}))
    made.update(facts)
    made["gpus"][0].update(gpu or {})
    return Host(**{**vars(host), "facts": made})


def test_summary() -> None:
    found = sections.summary(fleet(5))
    assert (found.hosts, found.gpus, found.healthy_hosts) == (5, 11, 1)
    assert found.hosts_by_status == {"unreachable": 1, "not_read": 1, "fail": 1, "warn": 1, "ok": 1}
    assert (found.hosts_needing_action, found.gpus_needing_action) == (4, 2)
    assert found.hosts_by_remedy == {"reboot": 1, "reset_gpu": 1}
    assert 0 < found.memory_used_mib < found.memory_total_mib
    assert 0 < found.power_draw_w < found.power_limit_w


def test_actions_begin_with_hosts_that_were_not_read_and_then_with_the_worst() -> None:
    found = sections.actions(fleet(12))
    assert [(action.verdict, action.remedy, len(action.hosts)) for action in found] == [
        ("unreachable", "none", 1),
        ("not_read", "none", 1),
        ("fail", "reset_gpu", 7),
        ("warn", "reboot", 1),
    ]
    reset = found[2]
    assert (reset.row, reset.what_to_do) == ("recovery_reset", "reset the GPU")
    assert [host.host for host in reset.hosts] == ["dgx0", "dgx3", "dgx4", "dgx5", "dgx7", "dgx8", "dgx9"]
    assert "GPU 3" in reset.hosts[0].messages[0]


def test_inventory() -> None:
    found = sections.inventory(fleet(6))
    assert [(count.value, count.hosts, count.gpus) for count in found.models] == [
        ("NVIDIA H200", 2, 16),
        ("NVIDIA A100-SXM4-40GB", 1, 2),
        ("Tesla T4", 1, 1),
    ]
    assert found.drivers[0].hosts == 2
    assert found.container_toolkits[0].value == "none"


def test_deviations_from_the_majority_of_hosts_with_the_same_gpus() -> None:
    same = [copied("dgx", f"node{number}") for number in range(4)]
    other = changed(copied("dgx", "node10"), driver_version="550.163.01")
    found = sections.deviations([*same, other, copied("single", "t4")])
    assert [(item.aspect, item.basis, item.expected, item.found, item.hosts) for item in found] == [
        ("driver", "majority", "580.159.04", "550.163.01", ("node10",))
    ]
    assert (found[0].agreeing, found[0].compared, found[0].group) == (4, 5, "NVIDIA H200")


@pytest.mark.parametrize("number", [1, 2])
def test_there_is_no_majority(number: int) -> None:
    """Of two hosts neither is right, nor of two equal halves."""
    hosts = [copied("single", f"one{place}") for place in range(number)]
    hosts += [changed(copied("single", f"two{place}"), driver_version="580.1.1") for place in range(number)]
    assert sections.deviations(hosts) == ()


def test_deviations_from_the_declaration_come_before_the_majority() -> None:
    hosts = [copied("dgx", f"node{number}", declared={"driver_version": "610", "ecc": True}) for number in range(3)]
    right = changed(copied("dgx", "node3", declared={"driver_version": "610"}), driver_version="610.43.02")
    found = sections.deviations([*hosts, right])
    assert [(item.aspect, item.basis, item.expected, item.found, item.agreeing, item.compared) for item in found] == [
        ("driver", "declared", "610", "580.159.04", 1, 4)
    ]


def test_a_branch_is_not_a_prefix_of_another() -> None:
    host = changed(copied("single", "node", declared={"driver_version": "53"}))
    assert [item.expected for item in sections.deviations([host])] == ["53"]


def test_driver_branches_by_end_of_life() -> None:
    found = sections.branches([*fleet(5), changed(copied("single", "x"), driver_version="595.1.1")], "2026-11-22")
    assert [(branch.branch, branch.end_of_life, branch.state) for branch in found] == [
        (535, "2026-06", "ended"),
        (550, "2025-06", "ended"),
        (595, "2027-03", "ending"),
        (580, "2028-06", "supported"),
    ]


@pytest.mark.parametrize(
    ("draw", "limit", "budget", "state"),
    [
        (9_000.0, 11_000.0, 10.0, "limit_above_budget"),
        (10_500.0, 11_000.0, 10.0, "draw_above_budget"),
        (9_000.0, 10_000.0, 10.0, "ok"),
        (None, 10_000.0, 20.0, "ok"),
    ],
)
def test_power_of_a_rack(draw: float | None, limit: float, budget: float, state: str) -> None:
    readings = {"power_draw_w": draw, "power_limit_w": limit}
    host = changed(copied("single", "node", rack_power_budget_kw=budget), readings)
    (rack,) = sections.racks([host])
    assert (rack.rack, rack.state, rack.gpus_without_power) == ("rack0", state, int(draw is None))


def test_hosts_without_a_rack_have_no_budget() -> None:
    host = Host(**{**vars(copied("dgx", "node", rack_power_budget_kw=0.1)), "rack": None})
    assert [(rack.rack, rack.state) for rack in sections.racks([host])] == [(None, "ok")]


def nics(*kinds: str) -> list[dict[str, Any]]:
    """Adapters: rdma, or a speed in Gbit/s, empty for one without a link."""
    return [
        {"rdma": kind == "rdma", "speed_gb_per_second": float(kind) if kind.isdigit() else None, "names": ["n"]}
        for kind in kinds
    ]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), (0, 0, None, "no_nic")),
        (("1", ""), (0, 0, None, "no_nic")),
        (("rdma",), (1, 1, 8.0, "too_few")),
        (("rdma", "rdma"), (2, 2, 4.0, "ok")),
        (("rdma",) * 3, (3, 3, 2.67, "ok")),
        (("rdma",) * 8, (8, 8, 1.0, "ample")),
        # RDMA counts where there is any.
        (("rdma", "100", "100", "100"), (4, 1, 8.0, "too_few")),
        (("100", "25"), (2, 0, 4.0, "ok")),
    ],
)
def test_gpus_for_each_adapter(kinds: tuple[str, ...], expected: tuple[int, int, float | None, str]) -> None:
    host = changed(copied("dgx", "node"), nics=nics(*kinds))
    (found,) = sections.networks([host])
    assert (found.nics, found.rdma_nics, found.gpus_per_nic, found.state) == expected


def test_mig_layouts() -> None:
    (found,) = sections.layouts([*fleet(6), copied("dgx", "another")])
    assert found.slices == (Slice("2g.35gb", 0, 2), Slice("1g.18gb", 2, 1), Slice("3g.71gb", 4, 4))
    assert (found.hosts, found.gpus, found.used_instances) == (3, 3, 3)


def test_error_history() -> None:
    found = sections.histories(fleet(3))
    assert [(item.host, item.index, item.remapped_rows_correctable) for item in found] == [
        ("dgx0", 0, 0),
        ("dgx0", 4, 2),
    ]
    assert [(xid.code, xid.count, xid.process) for xid in found[0].xids] == [(31, 1, "a")]
    first, second = (
        [(event.time[:10], event.kind, event.value, event.count) for event in item.events] for item in found
    )
    assert first == [
        ("2026-10-13", "verdict", "ok", 1),
        ("2026-11-12", "xid", "31", 1),
        ("2026-11-12", "verdict", "info", 1),
    ]
    assert second == [("2026-10-13", "verdict", "ok", 1), ("2026-11-12", "remapped_rows_correctable", None, 2)]


def test_nothing_has_changed() -> None:
    assert changes(fleet(5), fleet(5)) == ()


def test_changes() -> None:
    before = [copied("single", "same"), copied("single", "gone"), copied("pair", "node"), Host("lost", READ)]
    node = changed(copied("pair", "node"), {"uuid": "GPU-new"}, driver_version="580.1.1")
    worse = copied("single", "same")
    assert worse.facts
    worse = changed(worse, {"remapped_rows_uncorrectable": 1})
    found = changes(before, [worse, node, copied("single", "added"), Host("lost", UNREACHABLE, "no route")])
    old = bases()["pair"][0]["gpus"][0]["uuid"][:-8] + "00000000"
    assert found == (
        Change("status", "lost", None, "unknown", "unreachable"),
        Change("gpu", "node", old, "there", "not there"),
        Change("gpu", "node", "GPU-new", "not there", "there"),
        Change("host", "added", None, "not there", "there"),
        Change("host", "gone", None, "there", "not there"),
        Change(
            "errors",
            "same",
            worse.facts["gpus"][0]["uuid"] if worse.facts else None,
            "rows remapped after uncorrectable errors: 0",
            "rows remapped after uncorrectable errors: 1",
        ),
        Change("driver", "node", None, "550.163.01", "580.1.1"),
    )


FACTS: dict[str, Any] = {"host": bases()["single"][0], "changed": False}
HEALTH = bases()["single"][1]


@pytest.mark.parametrize(
    ("facts", "health", "state", "reason"),
    [
        (None, None, NOT_READ, "the task reports no reason"),
        ({"unreachable": True, "msg": "no\nroute"}, {"skipped": True}, UNREACHABLE, "no route"),
        ({"failed": False, "msg": "no python"}, {"msg": "no python"}, NOT_READ, "no python"),
        (FACTS, {"unreachable": True, "msg": "lost"}, UNREACHABLE, "lost"),
        (FACTS, {"msg": "policy: no"}, READ, "its health could not be judged: policy: no"),
        (FACTS, {**HEALTH, "changed": False, "failed_when_result": False}, READ, None),
    ],
)
def test_what_a_host_has_registered(facts: Any, health: Any, state: str, reason: str | None) -> None:
    host, refusals = read_host("node", facts, health, {})
    assert (host.state, host.reason, refusals) == (state, reason, [])
    assert host.health == (HEALTH if reason is None else None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_fleet_rack", ["a"]),
        ("gpu_fleet_rack_power_budget_kw", "much"),
        ("gpu_fleet_rack_power_budget_kw", 0),
        ("gpu_fleet_rack_power_budget_kw", float("nan")),
        ("gpu_health_expected", "8"),
    ],
)
def test_a_wrong_variable_is_named_and_left_out(name: str, value: Any) -> None:
    host, (refusal,) = read_host("node", FACTS, None, {name: value})
    assert refusal.startswith(f"node: {name} ")
    assert (host.rack, host.rack_power_budget_kw, host.declared) == (None, 20.0, {})


def test_a_rack_may_be_a_number() -> None:
    host, refusals = read_host("node", FACTS, None, {"gpu_fleet_rack": 7, "gpu_fleet_rack_power_budget_kw": 40})
    assert (host.rack, host.rack_power_budget_kw, refusals) == ("7", 40.0, [])
