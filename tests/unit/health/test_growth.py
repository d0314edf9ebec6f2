# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readings that grow: what counts of them, for how long, and on which GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._health import growth
from ansible_collections.gpu.fleet.plugins.module_utils._health import history as histories
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Observed, evaluate
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import KernelLog
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.topology import parse_nvlinks

from tests.unit.health.test_outside_logs import host

# A whole hour.
START = 1_699_999_200.0
HOUR = 3600.0


def facts_with(**readings: Any) -> dict[str, Any]:
    """A host with one GPU."""
    facts = host(**readings)
    return {**facts, "gpus": facts["gpus"][:1]}


def checked(*checks: tuple[float, Mapping[str, Any]]) -> list[tuple[str, set[str]]]:
    """Verdict and rows of checks, each some seconds after START, of a GPU with some readings."""
    known, found = histories.History(), []
    for seconds, readings in checks:
        facts, now = facts_with(**readings), START + seconds
        report = evaluate(TABLE, Observed(facts, log=KernelLog("journal"), history=known, now=now))
        found.append((report.verdict(), {finding.row for finding in report.findings}))
        known = histories.parse(histories.render(histories.updated(known, histories.Check(now, facts))))
        assert all(len(gpu.hours) <= growth.MOST_HOURS for gpu in known.gpus.values())
    return found


def heat(seconds: float, reason: str = "hw_thermal") -> dict[str, Any]:
    return {f"slowdown_{reason}_us": int(seconds * 1e6)}


OK: tuple[str, set[str]] = ("ok", set())


# The share of the time since the last check was compared, which five minutes or a job's start decide.
@pytest.mark.parametrize("interval", [61, 300, 3600])
@pytest.mark.parametrize("reason", growth.REASONS)
def test_a_slowdown_of_a_moment_is_none(interval: int, reason: str) -> None:
    assert checked((0, heat(0, reason)), (interval, heat(min(interval, 80), reason))) == [OK, OK]


def test_heat_by_software_is_a_warning_for_however_long_it_lasts() -> None:
    checks = [(number * 300.0, heat(number * 300.0, "sw_thermal")) for number in range(100)]
    assert checked(*checks)[-1] == ("warn", {"thermal_slowdown"})


@pytest.mark.parametrize(
    ("reason", "row"), [("hw_thermal", "thermal_slowdown"), ("hw_power_brake", "power_brake_slowdown")]
)
@pytest.mark.parametrize("interval", [300, 1800, 3600, 14400])
def test_most_of_three_hours_in_a_row_is_a_failure(reason: str, row: str, interval: int) -> None:
    def checks(*seconds_of_hours: float) -> list[tuple[float, dict[str, Any]]]:
        found = []
        for elapsed in range(0, int(len(seconds_of_hours) * HOUR) + 1, interval):
            whole, rest = divmod(elapsed, HOUR)
            used = sum(seconds_of_hours[: int(whole)])
            used += rest / HOUR * seconds_of_hours[int(whole)] if rest else 0.0
            found.append((float(elapsed), heat(used, reason)))
        return found

    assert checked(*checks(*[2200.0] * 4))[-1] == ("fail", {row, f"{row}_long"})
    assert checked(*checks(*[2100.0] * 4))[-1] == ("warn", {row})


def test_a_power_brake_that_nobody_saw_for_36_hours() -> None:
    """Two GPUs of each of nine hosts after an event of the power supply: NVSentinel's issue 1666 on GitHub."""
    checks = [(number * 900.0, heat(number * 900.0, "hw_power_brake")) for number in range(36 * 4)]
    verdicts = [verdict for verdict, _rows in checked(*checks)]
    assert [verdict for verdict, _same in itertools.groupby(verdicts)] == ["ok", "warn", "fail"]
    assert verdicts.index("fail") == 3 * 4


def test_a_failure_ends_with_an_hour_that_was_better() -> None:
    rates = [2200.0] * 3 + [1000.0, 0.0, 0.0]
    used, checks = 0.0, [(0.0, heat(0.0))]
    for number, rate in enumerate(rates):
        for part in range(1, 13):
            used += rate / 12
            checks.append((number * HOUR + part * 300.0, heat(used)))
    verdicts = [verdict for verdict, _rows in checked(*checks)]
    assert [verdict for verdict, _same in itertools.groupby(verdicts)] == ["ok", "warn", "fail", "warn", "ok"]
    assert verdicts.index("fail") == 36


def test_a_counter_that_began_again_is_compared_at_the_next_check() -> None:
    checks = ((0, heat(5000)), (600, heat(590)), (1200, heat(1190)))
    assert checked(*checks) == [OK, OK, ("warn", {"thermal_slowdown"})]


def test_a_driver_without_counters_as_before_575() -> None:
    """What two checks see lasted in between, where they are not far apart."""
    hot = {"slowdown_hw_thermal_us": None, "slowdown_hw_thermal": True}
    cool = {**hot, "slowdown_hw_thermal": False}
    info, warning = ("info", {"slowdown_now"}), ("warn", {"slowdown_now", "thermal_slowdown"})
    assert checked((0, hot), (300, hot), (600, hot)) == [info, info, warning]
    assert checked((0, hot), (300, cool), (600, hot), (900, cool)) == [info, OK, info, OK]
    assert checked((0, hot), (3600, hot), (7200, hot)) == [info, info, info]


def test_a_clock_that_was_set_back() -> None:
    assert checked((7200, heat(0)), (0, heat(50)), (60, heat(80))) == [OK, OK, OK]


CONSUMER: tuple[str, ...] = (
    "NVIDIA GeForce RTX 3080",
    "GeForce GTX 1070",
    "NVIDIA RTX A2000 Laptop GPU",
    "Orin (nvgpu)",
)
CONSUMER += ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "NVIDIA GeForce RTX 4090 Laptop GPU")
WORKSTATION: tuple[str, ...] = (
    "Quadro RTX 6000",
    "NVIDIA RTX A6000",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA T1000",
    "NVIDIA GB10",
)
WORKSTATION += ("NVIDIA TITAN V", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition")
SERVER: tuple[str, ...] = (
    "NVIDIA A100 80GB PCIe",
    "NVIDIA H100 80GB HBM3",
    "Tesla T4",
    "NVIDIA A10G",
    "NVIDIA L40S",
    "NVIDIA B300 SXM6 AC",
)
SERVER += ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla K80", "Tesla P40", "NVIDIA GH200 480GB")


@pytest.mark.parametrize(
    ("name", "verdict"),
    [*((name, "ok") for name in CONSUMER), *((name, "info") for name in WORKSTATION), *((n, "fail") for n in SERVER)],
)
def test_games_laptops_and_workstations_may_be_warm(name: str, verdict: str) -> None:
    hot = {"name": name, "nvlinks": [], "slowdown_hw_thermal": True}
    checks = [(number * HOUR, {**hot, **heat(number * HOUR)}) for number in range(5)]
    assert checked(*checks)[-1][0] == verdict


# PCIe

BUSY = {"performance_state": "P0", "utilization_gpu_percent": 98.0, "pci_link_gen_max": 5}


def test_the_generation_of_pcie_counts_under_load() -> None:
    low, full = {**BUSY, "pci_link_gen_current": 1}, {**BUSY, "pci_link_gen_current": 5}
    idle = {**low, "utilization_gpu_percent": 0.0}
    found: tuple[str, set[str]] = ("warn", {"pcie_generation"})
    assert checked(*[(number * 300, low) for number in range(3)]) == [OK, OK, found]
    assert checked(*[(number * 300, idle) for number in range(9)]) == [OK] * 9
    # It is over when the busy GPU has it again, and not before it is busy.
    series = (low, low, low, idle, full, low)
    assert checked(*[(number * 300, each) for number, each in enumerate(series)])[3:] == [found, OK, OK]
    laptop = {**low, "name": "NVIDIA GeForce RTX 4090 Laptop GPU", "nvlinks": []}
    assert checked(*[(number * 300, laptop) for number in range(5)]) == [OK] * 5


# Eight a minute: DCGM_LIMIT_MAX_PCIREPLAY_RATE in https://github.com/NVIDIA/DCGM, dcgmlib/dcgm_gpu_hardware_limits.h.
@pytest.mark.parametrize("interval", [300, 1800, 3600])
def test_pcie_packets_that_are_sent_again(interval: int) -> None:
    for rate, verdict in ((7, "ok"), (9, "warn")):
        checks = [(elapsed, {"pci_replay_count": 150 + rate * elapsed // 60}) for elapsed in range(0, 7201, interval)]
        found = checked(*checks)
        assert found[0] == OK, "an H100 had 150 in its life"
        assert found[-1][0] == verdict
        later = checked(*checks, (4 * HOUR, checks[-1][1]), (5 * HOUR, checks[-1][1]), (6 * HOUR, checks[-1][1]))
        assert later[-1] == OK


@pytest.mark.parametrize(("slot", "verdict"), [(4, "ok"), (8, "warn"), (16, "warn"), (None, "warn")])
def test_the_slot_decides_before_the_siblings(slot: int | None, verdict: str) -> None:
    facts = host()
    gpu = facts["gpus"][0]
    gpu.update(pci_link_width_current=4, pci_link_width_max=16)
    slots = {} if slot is None else {gpu["pci_bus_id"]: slot}
    report = evaluate(TABLE, Observed(facts, log=KernelLog("journal"), slot_lanes=slots))
    assert report.verdict() == verdict


# NVLink

# Counters of Blackwell, all zero on a GB200: https://github.com/NVIDIA/dcgm-exporter/issues/581. The text is composed.
B300 = """GPU 0: NVIDIA B300 SXM6 AC (UUID: {uuid})
\t Link 0: 53.125 GB/s
\t Link 0: Malformed packet Errors: 0
\t Link 0: Symbol Errors: {symbols}
\t Link 0: Link recovery successful events: {recovered}
\t Link 0: Link recovery failed events: {failed}
\t Link 0: Effective BER: 15e-255
\t Link 0: FEC Errors - 0: {corrected}
"""
HOPPER = """GPU 0: NVIDIA H200 (UUID: {uuid})
\t Link 0: 26.562 GB/s
\t Link 0: Replay Errors: {replays}
\t Link 0: Recovery Errors: {recoveries}
\t Link 0: CRC Errors: {crc}
"""


def linked(text: str, **values: int) -> dict[str, Any]:
    uuid = facts_with()["gpus"][0]["uuid"]
    zero = dict.fromkeys(("symbols", "recovered", "failed", "corrected", "replays", "recoveries", "crc"), 0)
    (links,) = parse_nvlinks(text.format(uuid=uuid, **{**zero, **values})).values()
    name = "NVIDIA B300 SXM6 AC" if text is B300 else "NVIDIA H200"
    facts = [{**vars(link), "error_counters": dict(link.error_counters)} for link in links]
    return {"name": name, "nvlinks": facts}


@pytest.mark.parametrize(
    ("text", "name", "amount", "row"),
    [
        (HOPPER, "replays", 5, "nvlink_errors"),
        (HOPPER, "recoveries", 5, "nvlink_errors"),
        (B300, "failed", 5, "nvlink_errors"),
        # Three in 21 minutes, on the one link of 5,760 that was lost five days later; all others had none:
        # https://github.com/marin-community/marin/issues/9086.
        (B300, "recovered", 8, "nvlink_errors"),
        # What a code corrects is normal.
        (B300, "corrected", 10**10, None),
        (B300, "symbols", 100, None),
        # DCGM_LIMIT_MAX_NVLINK_CRC_ERROR: a hundred a second.
        (HOPPER, "crc", 90 * 3600, None),
        (HOPPER, "crc", 110 * 3600, "nvlink_crc"),
    ],
)
def test_errors_of_nvlinks_in_each_hour(text: str, name: str, amount: int, row: str | None) -> None:
    found = checked(*[(number * HOUR, linked(text, **{name: number * amount})) for number in range(5)])
    assert found[-1] == (("warn", {row}) if row else OK)


def test_errors_of_nvlinks_in_one_hour_are_over_with_it() -> None:
    checks = [(number * 300.0, linked(HOPPER, replays=40 if number > 6 else 0)) for number in range(60)]
    assert {verdict for verdict, _rows in checked(*checks)} == {"ok"}
    cleared = [linked(HOPPER, replays=errors) for errors in (900, 0, 0)]
    assert checked(*[(number * HOUR, each) for number, each in enumerate(cleared)]) == [OK] * 3
