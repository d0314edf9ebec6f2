# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet table: its layout, and the reasons that it states."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.callback.fleet_table import (
    HostRecord,
    align,
    failure_reason,
    render,
    unreachable_reason,
)


def _gpu(name: str | None = "NVIDIA H200", **readings: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ecc_mode_current": "enabled",
        "ecc_mode_pending": "enabled",
        "mig_mode_current": "disabled",
        "mig_mode_pending": "disabled",
        "mig_devices": [],
        **readings,
    }


def _record(gpus: list[dict[str, Any]], **fields: Any) -> HostRecord:
    facts = {"available": True, "reason": None, "driver_version": "580.159.04", "cuda_version": "13.0", "gpus": gpus}
    return HostRecord(facts=facts, **fields)


def _cells(record: HostRecord) -> dict[str, str]:
    """The table's only row, by column. Cells are two or more blanks apart and contain single blanks only."""
    header, row = (
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in render({"node1": record})[:2]
    )
    return dict(zip(header, row, strict=True))


def test_what_limits_a_driver_is_named_after_the_table() -> None:
    note = "driver branch 535 reached its end of life in June 2026"
    record = _record([_gpu()], health={**HEALTHY, "notes": [note]})
    printed = render({"node1": record, "node2": _record([_gpu()], health=HEALTHY)})
    assert printed[3:] == ["", f"node1: {note}"]


HEALTHY = {"ok": True, "reasons": [], "containers": {"gpus": 8, "mode": "cdi"}}
SICK = {**HEALTHY, "ok": False}


def test_whole_table() -> None:
    records = {
        "node10": _record([_gpu()] * 8, health=HEALTHY),
        "node2": _record(
            [_gpu("Tesla T4", mig_mode_current=None, mig_mode_pending=None)],
            health={"ok": True, "reasons": [], "containers": {"gpus": 1, "mode": "legacy"}},
        ),
        "lost": HostRecord(unreachable=True, reason="No route to host"),
        "full": HostRecord(failed=True, reason="no space left"),
        "sick": _record([_gpu()], health=SICK, failed=True, reason="sick: GPU 0 has fallen off the bus"),
    }
    assert render(records) == [
        "host    gpus             driver      cuda  ecc      mig       containers  health",
        "sick    1 x NVIDIA H200  580.159.04  13.0  enabled  disabled  8 (cdi)     unhealthy",
        "full    -                -           -     -        -         -           failed",
        "lost    -                -           -     -        -         -           unreachable",
        "node2   1 x Tesla T4     580.159.04  13.0  enabled  n/a       1 (legacy)  ok",
        "node10  8 x NVIDIA H200  580.159.04  13.0  enabled  disabled  8 (cdi)     ok",
        "",
        "sick is unhealthy: GPU 0 has fallen off the bus",
        "full failed: no space left",
        "lost is unreachable: No route to host",
    ]


@pytest.mark.parametrize(
    ("gpus", "column", "cell"),
    [
        ([_gpu("A"), _gpu("B"), _gpu("A")], "gpus", "2 x A, 1 x B"),
        ([_gpu(name=None)], "gpus", "1 x unknown"),
        ([_gpu(), _gpu(ecc_mode_current="disabled", ecc_mode_pending="disabled")], "ecc", "1 x enabled, 1 x disabled"),
        ([_gpu(ecc_mode_pending="disabled")], "ecc", "enabled -> disabled"),
        ([_gpu(ecc_mode_current=None, ecc_mode_pending=None)], "ecc", "n/a"),
        ([_gpu(mig_mode_pending="enabled")], "mig", "disabled -> enabled"),
        (
            [_gpu(mig_mode_current="enabled", mig_mode_pending="enabled", mig_devices=[{}, {}])] * 2,
            "mig",
            "enabled (4 devices)",
        ),
    ],
)
def test_cell_of_gpus(gpus: list[dict[str, Any]], column: str, cell: str) -> None:
    assert _cells(_record(gpus))[column] == cell


@pytest.mark.parametrize(
    ("facts", "cell"),
    [
        ({"available": False, "reason": "no_gpu", "gpus": [], "pci_gpus": []}, "no GPU"),
        ({"available": False, "reason": "no_driver", "gpus": [], "pci_gpus": [{}, {}]}, "2 on PCI"),
        ({"available": False, "reason": "timeout", "gpus": [], "pci_gpus": []}, "-"),
    ],
)
def test_gpus_of_a_host_without_nvidia_smi(facts: dict[str, Any], cell: str) -> None:
    assert _cells(HostRecord(facts=facts))["gpus"] == cell


@pytest.mark.parametrize(
    ("fields", "containers", "health"),
    [
        ({}, "-", "-"),
        ({"health": HEALTHY}, "8 (cdi)", "ok"),
        ({"health": {"ok": True, "containers": {"gpus": None, "mode": None}}}, "-", "ok"),
        ({"health": {"ok": False, "containers": {"gpus": 0, "mode": "legacy"}}}, "0 (legacy)", "unhealthy"),
        ({"health": {"ok": True, "containers": {"gpus": 1, "mig_devices": 7, "mode": "cdi"}}}, "1 + 7 MIG (cdi)", "ok"),
        ({"containers": {"gpus": 2, "mig_devices": 0, "mode": "cdi"}}, "2 (cdi)", "-"),
        (
            {"health": {"containers": {"gpus": None}, "ok": True}, "containers": {"gpus": 2, "mode": "cdi"}},
            "2 (cdi)",
            "ok",
        ),
        ({"health": HEALTHY, "failed": True}, "8 (cdi)", "failed"),
        ({"health": SICK, "failed": True}, "8 (cdi)", "unhealthy"),
        ({"health": HEALTHY, "unreachable": True, "failed": True}, "8 (cdi)", "unreachable"),
    ],
)
def test_health_of_a_host(fields: dict[str, Any], containers: str, health: str) -> None:
    cells = _cells(_record([_gpu()], **fields))
    assert (cells["containers"], cells["health"]) == (containers, health)


def _finding(verdict: str, message: str, remedy: str = "none") -> dict[str, Any]:
    return {"row": "r", "gpu": None, "verdict": verdict, "remedy": remedy, "message": message, "source": "own"}


def _verdict(verdict: str, remedy: str = "none", *findings: dict[str, Any]) -> dict[str, Any]:
    return {"verdict": verdict, "remedy": remedy, "findings": [*findings, _finding("info", "rows were remapped")]}


@pytest.mark.parametrize(
    ("fields", "health", "line"),
    [
        ({"health": {**HEALTHY, **_verdict("ok")}}, "ok", None),
        ({"health": {**HEALTHY, **_verdict("info", "restart_application")}}, "info: restart_application", None),
        (
            {"health": {**SICK, "reasons": ["GPU 0 is lost"], **_verdict("fail", "reboot")}, "failed": True},
            "unhealthy: reboot",
            "node1 is unhealthy: GPU 0 is lost",
        ),
        (
            {"health": {**HEALTHY, **_verdict("warn", "configure", _finding("warn", "a stale CDI specification"))}},
            "warn: configure",
            "node1 needs attention: a stale CDI specification",
        ),
        (
            {"health": {**HEALTHY, **_verdict("unknown", "none", _finding("unknown", "no kernel log"))}},
            "unknown",
            "node1 cannot be judged: no kernel log",
        ),
        # A task failed before the role had its result; the module ran alone.
        (
            {"judged": _verdict("fail", "reset_gpu", _finding("fail", "GPU 0: Xid 95")), "failed": True, "reason": "x"},
            "unhealthy: reset_gpu",
            "node1 is unhealthy: GPU 0: Xid 95",
        ),
        (
            {"judged": _verdict("ok"), "failed": True, "reason": "no space left"},
            "failed",
            "node1 failed: no space left",
        ),
        (
            {"health": {**SICK, **_verdict("fail", "reboot")}, "unreachable": True, "reason": "timeout"},
            "unreachable",
            "node1 is unreachable: timeout",
        ),
    ],
)
def test_verdict_with_remedy(fields: dict[str, Any], health: str, line: str | None) -> None:
    record = _record([_gpu()], **fields)
    assert _cells(record)["health"] == health
    assert render({"node1": record})[2:] == ([] if line is None else ["", line])


def test_the_module_alone_fills_what_it_knows() -> None:
    judged = {**_verdict("ok"), "driver_version": "580.159.04", "gpus": [{"name": "NVIDIA H200"}, {"name": None}]}
    cells = _cells(HostRecord(judged=judged))
    assert (cells["gpus"], cells["driver"], cells["cuda"]) == ("1 x NVIDIA H200, 1 x unknown", "580.159.04", "-")
    assert (cells["ecc"], cells["containers"], cells["health"]) == ("-", "-", "ok")


def test_of_many_hosts_those_with_a_warning_keep_their_lines() -> None:
    healthy = {f"node{number}": _record([_gpu()], health={**HEALTHY, **_verdict("ok")}) for number in range(198)}
    warned = {**HEALTHY, **_verdict("warn", "configure", _finding("warn", "a stale CDI specification"))}
    lines = render({**healthy, "cdi2": _record([_gpu()], health=warned), "cdi1": _record([_gpu()], health=warned)})
    assert [line.partition("  ")[0] for line in lines[:4]] == ["host", "cdi1", "cdi2", "198 hosts such as node0"]
    assert lines[4:] == ["", "2 hosts such as cdi1 needs attention: a stale CDI specification"]


def test_what_the_health_check_found_in_check_mode_is_stated() -> None:
    health = {**SICK, "reasons": ["GPU 0 is lost", "GPU 1 asks for a reset"]}
    assert render({"sick": _record([_gpu()], health=health)})[-1] == (
        "sick is unhealthy: GPU 0 is lost; GPU 1 asks for a reset"
    )


@pytest.mark.parametrize("fold_above", [0, 30, 200])
def test_many_healthy_hosts_with_the_same_readings_take_one_line(fold_above: int) -> None:
    note = "driver branch 535 reached its end of life in June 2026"
    records = {f"node{number}": _record([_gpu()] * 8, health=HEALTHY) for number in range(1, 198)}
    records["old1"] = records["old2"] = _record([_gpu()], health={**HEALTHY, "notes": [note]})
    records["sick"] = _record([_gpu()] * 8, health=SICK, failed=True, reason="GPU 0 is lost")
    lines = render(records, fold_above)
    names = [line.partition("  ")[0] for line in lines]
    assert names[:2] == ["host", "sick"]
    assert lines[-1] == "sick is unhealthy: GPU 0 is lost"
    if fold_above == 30:
        assert names[2:4] == ["197 hosts such as node1", "2 hosts such as old1"]
        assert lines[4:6] == ["", f"old1, old2: {note}"]
    else:
        assert names[2:201] == [f"node{number}" for number in range(1, 198)] + ["old1", "old2"]
        assert lines[202:-2] == ([f"old1, old2: {note}"] if fold_above else [f"old1: {note}", f"old2: {note}"])


@pytest.mark.parametrize(("number", "hosts"), [(1, "n0"), (3, "n0, n1, n2"), (9, "9 hosts such as n0")])
def test_a_note_stands_once_with_the_hosts_that_share_it(number: int, hosts: str) -> None:
    note = "the driver was installed by a runfile, not by this role; it is left as it is"
    records = {
        f"n{index}": HostRecord({"gpus": [_gpu()], "driver_version": f"535.{index}"}, HEALTHY, notes=[note])
        for index in range(number)
    }
    *table, empty, line = render(records)
    assert (empty, line) == ("", f"{hosts}: {note}"), "of several versions"
    assert [f"535.{index} (unmanaged)" in row for index, row in enumerate(table[1:])] == [True] * number


def test_a_reason_that_many_hosts_share_is_stated_once() -> None:
    records = {f"node{number}": HostRecord(failed=True, reason=f"node{number}: no space left") for number in range(40)}
    lines = render(records)
    assert len(lines) == 1 + 40 + 2, "each of them is in the table"
    assert lines[-1] == "40 hosts such as node0 failed: no space left"


def test_a_run_that_is_not_about_gpus_prints_nothing() -> None:
    assert render({}) == []
    assert render({"localhost": HostRecord()}) == []


def test_columns_are_as_wide_as_their_longest_cell() -> None:
    assert align([("a", "long cell", "runs"), ("longer", "b", "7")]) == [
        "a       long cell  runs",
        "longer  b          7",
    ]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"msg": "Task failed: Action failed: no\n  space  left."}, "no space left"),
        (
            {"msg": "failed to validate", "stderr": "no such option: colour\n"},
            "failed to validate: no such option: colour",
        ),
        ({"msg": "", "stderr": "killed"}, "killed"),
        ({"msg": "rm: no such file", "stderr": "rm: no such file\n"}, "rm: no such file"),
        ({"msg": "Task failed: Module failed: no space left"}, "no space left"),
        (
            {
                "msg": "Task failed: Finalization of task args for 'ansible.builtin.set_fact' failed: Error while "
                "resolving value for 'plan': The filter plugin 'gpu.fleet.cuda_plan' failed: gpu.fleet.cuda_plan: no"
            },
            "gpu.fleet.cuda_plan: no",
        ),
        ({}, "the task reports no reason"),
        (
            {"censored": "the output has been hidden", "changed": False},
            "no_log of the task hides the reason, as it may have secrets",
        ),
        (
            {"censored": "hidden", "results": [{"censored": "hidden"}]},
            "no_log of the task hides the reason, as it may have secrets",
        ),
        (
            {"msg": "Validation of arguments failed:\nx", "argument_errors": ["value of a must be one of: b, got: c"]},
            "value of a must be one of: b, got: c; correct the variable in the inventory or with -e",
        ),
        (
            {
                "msg": "One or more items failed",
                "results": [{"msg": "fine"}, {"failed": True, "msg": "first"}, {"failed": True, "msg": "second"}],
            },
            "first; second",
        ),
        (
            {
                "msg": "One or more items failed",
                "results": [
                    {"msg": "fine", "changed": True},
                    {"msg": "first", "exception": "(traceback unavailable)"},
                    {"msg": "ignored", "exception": "(traceback unavailable)", "failed_when_result": False},
                ],
            },
            "first",
        ),
        (
            {"results": [{"failed": True, "argument_errors": ["a"]}, {"failed": True, "argument_errors": ["b", "c"]}]},
            "a; b; c; correct the variable in the inventory or with -e",
        ),
        ({"msg": "no dictionary", "results": ["a", "b"]}, "no dictionary"),
    ],
)
def test_reason_is_one_line(result: dict[str, Any], reason: str) -> None:
    assert failure_reason(result) == reason


def test_unreachable_host_states_what_to_look_at() -> None:
    message = unreachable_reason({"msg": "Task failed: Failed to connect:\nNo route to host", "unreachable": True})
    assert message == (
        "Failed to connect: No route to host; check that the host is up, and its address, user and key in the inventory"
    )


def test_a_module_that_judged_nothing_is_no_healthy_host() -> None:
    assert _cells(_record([_gpu()], judged={"failed": True, "msg": "no nvidia-smi"}))["health"] == "-"


def _hostile_records(hostile: Any) -> list[HostRecord]:
    """Records with another value at one place."""
    facts = {"driver_version": "580.159.04", "cuda_version": "13.0", "gpus": [_gpu()], "pci_gpus": []}
    judged = {"verdict": "warn", "remedy": "none", "findings": [{"verdict": "warn", "message": "hot"}]}
    return [
        *(HostRecord(facts={**facts, key: hostile}) for key in facts),
        *(HostRecord(facts={**facts, "gpus": [_gpu(**{key: hostile})]}) for key in _gpu()),
        *(HostRecord(facts=facts, health={**HEALTHY, key: hostile}) for key in (*HEALTHY, "notes")),
        *(HostRecord(facts=facts, judged={**judged, key: hostile}) for key in judged),
        *(HostRecord(facts=facts, judged={**judged, "findings": [{**judged["findings"][0], key: hostile}]})  # type: ignore[dict-item]
          for key in ("verdict", "message")),
        *(HostRecord(**{key: hostile}) for key in ("facts", "health", "judged", "containers", "notes")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "hostile",
    [
        None,
        True,
        7,
        2**64,
        "text",
        "\udc80",
        "a\x1b[2J\nb",
        "x" * 100_000,
        [],
        [None],
        [7],
        [["\udc80"]],
        {},
        {"a": [7]},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_one_host_returned_never_ends_the_table(hostile: Any) -> None:
    records = {f"host{number}": record for number, record in enumerate(_hostile_records(hostile))}
    lines = render({"honest": _record([_gpu()], health=HEALTHY), **records}, fold_above=0)
    assert lines[0].startswith("host")
    (honest,) = [line for line in lines if line.startswith("honest")]
    assert "NVIDIA H200" in honest
    rows = lines[1 : lines.index("")] if "" in lines else lines[1:]
    assert sorted(line.split()[0] for line in rows) == sorted(["honest", *records])
    assert all(line.isprintable() and len(line) < 5000 for line in lines)


def test_a_host_that_cannot_be_read_is_named() -> None:
    records = {
        "node1": HostRecord(facts={"gpus": [7]}),
        "node2": HostRecord(facts={"gpus": 7}, failed=True, reason="no"),
    }
    lines = render(records)
    assert [line.split()[-1] for line in lines[1:3]] == ["failed", "unreadable"]
    assert lines[-2] == "node2 failed: no"
    assert lines[-1] == (
        "node1 cannot be read: its result has another form than its modules document: gpus[0] is 7, not a "
        "dictionary; no module of this collection returns that: check who changed the host"
    )
