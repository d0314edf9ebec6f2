# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ends a fault: for every row with a remedy, the fault, the remedy as it is carried out, and the verdict again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._health import observe
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Observed, evaluate
from ansible_collections.gpu.fleet.plugins.module_utils._health.history import GpuHistory, History
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log import parse
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import KernelLog
from ansible_collections.gpu.fleet.plugins.module_utils._health.policy import ENDS
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
from ansible_collections.gpu.fleet.plugins.plugin_utils._fleet.remedies import (
    FAILED,
    PERSON,
    REMEDY,
    STRONGER,
    Attempt,
    Finding,
    Options,
    Patient,
    treat,
)

from tests.unit.faults import result
from tests.unit.health.test_policy import CASES, HOUR, NOW, PLACE, Case, _healthy, observed, sxid, xid

__all__ = ["_healthy"]

BY_ID = {row.id: row for row in TABLE}
WITH_REMEDY = [row for row in TABLE if row.remedy not in ("none", "restart_application")]
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04"


def timed(line: str) -> str:
    """The line with a time since the boot, an hour before NOW."""
    return line if line.startswith("[") else f"[ 10.0] {line}"


def with_log(one: Observed, *lines: str) -> Observed:
    return replace(one, log=KernelLog("journal", parse([timed(line) for line in lines], NOW - HOUR)))


def verdict_of(one: Observed, row: str) -> str:
    found = [finding for finding in evaluate(TABLE, one).findings if finding.row == row]
    return found[0].verdict if found else "ok"


def usable(one: Observed, healthy: dict[str, Any]) -> Observed:
    """The host with GPUs that respond and ask for nothing."""
    return replace(one, facts={**one.facts, **{name: healthy[name] for name in ("gpus", "unhealthy", "pci_gpus")}})


def reset(one: Observed, gpus: list[str]) -> Observed:
    return replace(one, resets=dict.fromkeys(gpus, NOW - 60.0))


def boot(one: Observed, _lines: tuple[str, ...], healthy: dict[str, Any]) -> Observed:
    return usable(with_log(replace(one, boot="after")), healthy)


def load(one: Observed, lines: tuple[str, ...], healthy: dict[str, Any]) -> Observed:
    return usable(with_log(one, *lines, LOADED), healthy)


def reset_one(one: Observed, _lines: tuple[str, ...], healthy: dict[str, Any]) -> Observed:
    return reset(one, [healthy["gpus"][0]["uuid"]])


def reset_all(one: Observed, _lines: tuple[str, ...], healthy: dict[str, Any]) -> Observed:
    return reset(one, [gpu["uuid"] for gpu in healthy["gpus"]])


def restart_fabric_manager(one: Observed, _lines: tuple[str, ...], _healthy: dict[str, Any]) -> Observed:
    return replace(one, fabric_manager=NOW - 60.0)


def restart_imex(one: Observed, _lines: tuple[str, ...], healthy: dict[str, Any]) -> Observed:
    return usable(one, healthy)


def end_jobs(one: Observed, _lines: tuple[str, ...], healthy: dict[str, Any]) -> Observed:
    """The driver asks for nothing any more."""
    return usable(one, healthy)


# What each remedy of the playbook changes that a check can read.
CARRIED_OUT: dict[str, Callable[[Observed, tuple[str, ...], dict[str, Any]], Observed]] = {
    "drain": end_jobs,
    "drain_and_reset": reset_one,
    "reset_gpu": reset_one,
    "reset_fabric": reset_all,
    "restart_fabric_manager": restart_fabric_manager,
    "restart_imex": restart_imex,
    "configure": load,
    "update_software": load,
    "reboot": boot,
    "power_cycle": boot,
}
FROM_THE_LOG = [
    (row, case)
    for row in WITH_REMEDY
    if row.xids or row.sxids or row.events
    for case in CASES[row.id][:1]
    if not row.is_repetition
]


def test_every_row_with_a_remedy_names_what_ends_it() -> None:
    for row in WITH_REMEDY:
        assert row.ends, row.id
        assert set(row.ends) <= set(ENDS), row.id
    used = set(itertools.chain.from_iterable(row.ends for row in TABLE))
    assert used | {"replaced"} == set(ENDS)


def test_every_remedy_of_the_playbook_is_tested() -> None:
    assert set(CARRIED_OUT) == set(STRONGER)


@pytest.mark.parametrize(("row", "case"), FROM_THE_LOG, ids=[row.id for row, _case in FROM_THE_LOG])
def test_the_remedy_ends_the_fault(row: Any, case: Case, healthy: dict[str, Any]) -> None:
    """Each step of the ladder ends the fault, or the next step follows; a person ends it in any case."""
    sick = with_log(observed(healthy, case), *case.log)
    assert verdict_of(sick, row.id) == case.verdict
    remedy: str = case.remedy
    tried: list[str] = []
    while remedy in STRONGER:
        assert remedy not in tried
        tried.append(remedy)
        after = CARRIED_OUT[remedy](sick, case.log, healthy)
        if verdict_of(after, row.id) in ("ok", "info"):
            # The first step is enough, or the row has no business to name it.
            assert tried == [case.remedy]
            return
        remedy = STRONGER[remedy]
    repaired = replace(usable(sick, healthy), history=sick.history.repaired_at(NOW - 1.0))
    assert verdict_of(repaired, row.id) in ("ok", "info")
    assert not tried, f"{tried} in vain"


@pytest.mark.parametrize("row", [row for row in WITH_REMEDY if row.is_repetition], ids=lambda row: row.id)
def test_a_repaired_gpu_has_no_repetition(row: Any, healthy: dict[str, Any]) -> None:
    case = CASES[row.id][0]
    sick = observed(healthy, case)
    assert verdict_of(sick, row.id) == case.verdict
    assert verdict_of(replace(sick, history=replace(sick.history, repaired=NOW - 1.0)), row.id) == "ok"
    # By a clock that was ahead.
    assert verdict_of(replace(sick, history=replace(sick.history, repaired=NOW + 1.0)), row.id) == case.verdict
    assert verdict_of(replace(sick, now=NOW + row.hours * HOUR), row.id) == "ok"


@pytest.mark.parametrize("row", WITH_REMEDY, ids=lambda row: row.id)
def test_no_remedy_is_given_twice_for_nothing(row: Any) -> None:
    """The playbook's planner, for each row: what did not help is not tried again."""
    options = Options(on=(row.verdict,), limit=10, commands={"power_cycle": ["true"]})
    finding = Finding(row.id, row.verdict, row.remedy, "GPU-1", row.symptom)
    attempts: tuple[Attempt, ...] = ()
    seen: list[str] = []
    for number in range(10):
        patient = Patient("node1", row.verdict, (finding,), attempts, has_version=True)
        decision = treat([patient], options, "2026-05-04T09:00:00Z").decisions["node1"]
        if decision.action != REMEDY:
            break
        assert decision.remedy not in seen
        seen.append(decision.remedy)
        time = f"2026-05-04T08:0{number}:00Z"
        attempts = (*attempts, Attempt(decision.remedy, "run", time, ("GPU-1",), FAILED))
    assert decision.action == PERSON
    assert bool(seen) == (row.remedy in STRONGER)


# What proves more than one row


FATAL = sxid(24007, "Fatal, Link 1")
PARTITION = sxid(11004, "Non-fatal, Link 1")


@pytest.mark.parametrize(
    ("line", "fabric_manager", "verdict"),
    [
        (FATAL, 0.0, "fail"),
        (FATAL, NOW - 60.0, "fail"),
        (PARTITION, NOW - 60.0, "info"),
        # It was started before.
        (PARTITION, NOW - 2 * HOUR, "fail"),
    ],
)
def test_an_nvswitch_error(line: str, fabric_manager: float, verdict: str, healthy: dict[str, Any]) -> None:
    one = with_log(observed(healthy, Case("", "")), line)
    assert evaluate(TABLE, replace(one, fabric_manager=fabric_manager)).verdict() == verdict


def test_an_nvswitch_is_reset_with_all_gpus_and_not_with_some(healthy: dict[str, Any]) -> None:
    one = with_log(observed(healthy, Case("", "")), FATAL)
    uuids = [gpu["uuid"] for gpu in healthy["gpus"]]
    assert evaluate(TABLE, reset(one, uuids[:1])).verdict() == "fail"
    assert evaluate(TABLE, reset(one, uuids)).verdict() == "info"
    asks = [{**gpu, "recovery_action": "gpu_reset"} for gpu in one.facts["gpus"]]
    assert "sxid_fatal" in {
        finding.row
        for finding in evaluate(TABLE, replace(reset(one, uuids), facts={**one.facts, "gpus": asks})).findings
        if finding.verdict == "fail"
    }


DOWN, UP = (f"pcieport 0000:06:00.0: pciehp: Slot(4): Link {state}" for state in ("Down", "Up"))
# https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/drivers/pci/pcie/err.c
RECOVERED = "pcieport 0000:06:00.0: AER: device recovery successful"


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ((DOWN,), "fail"),
        ((DOWN, UP), "info"),
        ((DOWN, UP, DOWN), "fail"),
        ((DOWN, UP, DOWN, UP), "info"),
        ((UP,), "ok"),
        ((DOWN, UP.replace("06", "07")), "fail"),
        (("pcieport 0000:06:00.0: DPC: containment event, status:0x1f01 source:0x0000", RECOVERED), "info"),
    ],
)
def test_a_link_that_came_up_again(lines: tuple[str, ...], verdict: str, healthy: dict[str, Any]) -> None:
    assert evaluate(TABLE, with_log(observed(healthy, Case("", "")), *lines)).verdict() == verdict


# Removed channels

# A killed job on a board with NVSwitches: one GPU has the error, all have the cleanup.
FIRST, SECOND = "0000:06:00", "0000:07:00"


def cleanup(place: str, second: float, pid: int = 4711) -> str:
    return f"[{second:12.6f}] NVRM: Xid (PCI:{place}): 45, pid={pid}, name=python3, Ch 00000008"


FAULT = "[  100.100000] NVRM: Xid (PCI:0000:06:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault"
# https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/mm/oom_kill.c
KILLED = "[  100.100000] Memory cgroup out of memory: Killed process 99 (python3) total-vm:1kB, anon-rss:1kB"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((cleanup(FIRST, 100.2),), "xid_cleanup_alone"),
        ((FAULT, cleanup(FIRST, 100.2), cleanup(SECOND, 100.3, 4712)), "xid_cleanup"),
        # The cleanup of another process of the job comes first.
        ((cleanup(SECOND, 99.9, 4712), FAULT), "xid_cleanup"),
        # The same process, later.
        ((FAULT, cleanup(SECOND, 900.0)), "xid_cleanup"),
        ((FAULT, cleanup(SECOND, 900.0, 4712)), "xid_cleanup_alone"),
        ((KILLED, cleanup(SECOND, 101.0)), "xid_cleanup"),
        ((KILLED, cleanup(SECOND, 900.0)), "xid_cleanup_alone"),
        (("[  100.1] oom_reaper: Killed process 99 (python3)", cleanup(SECOND, 101.0)), "xid_cleanup_alone"),
        # One with a cause and one without, of one GPU.
        ((KILLED, cleanup(SECOND, 101.0), cleanup(SECOND, 900.0)), "xid_cleanup_alone"),
    ],
)
def test_a_removed_channel_has_a_cause(lines: tuple[str, ...], found: str, healthy: dict[str, Any]) -> None:
    one = replace(observed(healthy, Case("", "")), log=KernelLog("journal", parse(lines, NOW - HOUR)))
    cleanups = {finding.row for finding in evaluate(TABLE, one).findings if "cleanup" in finding.row}
    assert cleanups == {found}


def test_a_removed_channel_is_over_after_a_day(healthy: dict[str, Any]) -> None:
    one = with_log(observed(healthy, Case("", "")), xid(45, "Ch 00000001"))
    assert evaluate(TABLE, one).remedy() == "restart_fabric_manager"
    assert evaluate(TABLE, replace(one, fabric_manager=NOW - 60.0)).verdict() == "info"
    assert evaluate(TABLE, replace(one, now=NOW + 24 * HOUR)).verdict() == "info"


# A repair


def test_nothing_older_than_a_repair_counts(healthy: dict[str, Any]) -> None:
    uuid, place = (healthy["gpus"][0][name] for name in ("uuid", "pci_bus_id"))
    known = History(("NVIDIA H200",) * 3, {uuid: GpuHistory(pci_bus_id=place, counters={"nvlinks_active": 18})})
    links: dict[str, Any] = {"name": "NVIDIA H20", "nvlinks": []}
    one = replace(with_log(observed(healthy, Case("", "", links)), xid(95)), history=known)
    found = {finding.row for finding in evaluate(TABLE, one).findings if finding.verdict == "fail"}
    assert found == {"xid_reset", "gpu_count", "nvlink_inactive"}
    assert evaluate(TABLE, replace(one, history=known.repaired_at(NOW))).verdict() == "info"


def test_an_error_after_the_repair_counts(healthy: dict[str, Any]) -> None:
    one = with_log(observed(healthy, Case("", "")), xid(95))
    later = replace(one, history=History().repaired_at(NOW - 2 * HOUR))
    assert verdict_of(later, "xid_reset") == "fail"


# The start of the Fabric Manager


def show(**properties: str) -> Systemd:
    values = {"Id": observe.FABRIC_MANAGER, "LoadState": "loaded", "ActiveState": "active", **properties}
    text = "\n".join(f"{name}={value}" for name, value in values.items())
    return Systemd(run=lambda calls, _timeout: [result(calls[0], 0, text)], booted="/")


@pytest.mark.parametrize(
    ("properties", "started"),
    [
        # systemctl show of systemd 252 and 257.
        ({"ActiveEnterTimestampMonotonic": "60500000"}, NOW - HOUR + 60.5),
        ({"ActiveEnterTimestampMonotonic": "0"}, 0.0),
        ({"ActiveEnterTimestampMonotonic": "60500000", "ActiveState": "failed"}, 0.0),
        ({}, 0.0),
        # Since then the clock was set back.
        ({"ActiveEnterTimestampMonotonic": "99999000000"}, 0.0),
    ],
)
def test_the_start_of_the_fabric_manager(properties: dict[str, str], started: float) -> None:
    units = observe.units(show(**properties))
    assert observe.fabric_manager_started(units, NOW - HOUR, NOW) == started
    assert observe.fabric_manager_started(units, None, NOW) == 0.0


def test_places_are_those_of_the_cases() -> None:
    assert f"PCI:{FIRST}" == PLACE
