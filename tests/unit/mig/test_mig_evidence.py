# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contradictory or damaged output of single calls is detected, and costs no instance that existed before the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._mig import plan as mig_plan
from ansible_collections.gpu.fleet.plugins.module_utils._mig.layout import ComputeInstance, Instance
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import listing

from tests.unit.faults import Reply, result
from tests.unit.mig.mig_host import Layout, SimulatedHost, is_change, names

FIVE = ["2g.20gb:0", "1g.10gb:2", "1g.10gb:3", "2g.20gb:4", "1g.10gb:6"]
Fault = Callable[[str], str]


def _first_row_only(text: str) -> str:
    """Cut off after the frame below the first row, like a complete table with one row."""
    lines = text.splitlines(keepends=True)
    frames = [place for place, line in enumerate(lines) if line.startswith("+")]
    return "".join(lines[: frames[1] + 1]) if len(frames) > 2 else text[: len(text) // 2]


FAULTS: dict[str, Fault] = {
    "empty": lambda _text: "",
    "blank": lambda _text: "\n\n",
    "only a warning": lambda _text: "Warning: persistence mode is disabled on device 00000000:01:00.0.\n",
    "no MIG-enabled devices": lambda _text: "No MIG-enabled devices found.\n",
    "no instances": lambda _text: "No GPU instances found: Not Found\n",
    "cut off": lambda text: text[: len(text) * 2 // 3],
    "cut off after a row": _first_row_only,
    "without its MIG devices": lambda text: re.sub(r"(?m)^ +MIG .*\n", "", text),
}


class FalseReply:
    """Tampers with the output of the nth read (exit status 0); if `lasts`, also with that of all reads after it."""

    def __init__(self, fault: Fault, number: int, lasts: bool = False, suffix: Sequence[str] = ()) -> None:
        self.struck: list[str] | None = None
        self._fault, self._left, self._lasts, self._suffix = fault, number, lasts, list(suffix)

    def __call__(self, arguments: Sequence[str], reply: Reply) -> CommandResult:
        if is_change(arguments) or list(arguments[-len(self._suffix) :] if self._suffix else ()) != self._suffix:
            return reply()
        self._left -= 1
        if self._left == 0 or (self._left < 0 and self._lasts):
            self.struck = list(arguments)
            return result(arguments, 0, self._fault(reply().text))
        return reply()


CHANGES: dict[str, Any] = {
    "add": [*FIVE, "1g.10gb"],
    "remove": FIVE[:-1],
    "exchange": [*FIVE[:-1], "1g.10gb+me:6"],
    "divide": ["1c.2g.20gb:0", "1c.2g.20gb:0", *FIVE[1:]],
    "mode": None,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("change", CHANGES)
def test_no_read_that_lies_costs_an_instance(tmp_path: Path, change: str, fault: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb")
    assert host.run(gpus=["0"], profiles=FIVE).error is None
    start, before = host.snapshot(), host.layout()
    desired = names(before) if CHANGES[change] is None else None
    kept = before & _after(tmp_path, CHANGES[change])
    for lasts in (False, True):
        number = 0
        while True:
            number += 1
            host.restore(start)
            false_reply = FalseReply(FAULTS[fault], number, lasts)
            run = host.run(false_reply, gpus=["0"], profiles=CHANGES[change])
            if false_reply.struck is None:
                break
            there = host.layout()
            assert kept <= there, f"call {number} {false_reply.struck}: lost {kept - there}: {run.error}"
            if run.error is None:
                assert desired is None or names(there) == desired
            elif not lasts:
                assert there in (before, _after(tmp_path, CHANGES[change])), (
                    f"call {number} {false_reply.struck}: {run.error}"
                )
    assert number > 1


def _after(directory: Path, profiles: Any) -> Layout:
    """The layout after the same change without a fault."""
    host = SimulatedHost.make(directory / "reference", "h100_80gb")
    host.run(profiles=FIVE)
    host.run(profiles=profiles)
    return host.layout()


@pytest.mark.parametrize(
    ("suffix", "fault", "stories"),
    [
        (["mig", "-lgi"], "no instances", ("shows MIG devices in GPU instances", "prints 'No GPU instances found")),
        (["mig", "-lgi"], "no MIG-enabled devices", ("shows MIG devices", "prints 'No MIG-enabled devices found.'")),
        (["mig", "-lgi"], "cut off after a row", ("shows MIG devices in GPU instances", "lists GPU instances")),
        (["mig", "-lgi"], "empty", ("nvidia-smi mig -lgi: no output (exit status 0)",)),
        (["-q", "-x"], "empty", ("nvidia-smi -q -x: no output (exit status 0)",)),
    ],
)
def test_what_stays_contradictory_is_refused_with_both_stories(
    tmp_path: Path, suffix: list[str], fault: str, stories: tuple[str, ...]
) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    host.run(profiles=FIVE)
    before = host.snapshot()
    run = host.run(FalseReply(FAULTS[fault], 1, lasts=True, suffix=suffix), profiles=["7g.80gb"])
    assert run.error is not None and run.changes == [] and host.state == before
    for story in stories:
        assert story in run.error
    once = host.run(FalseReply(FAULTS[fault], 1, suffix=suffix), profiles=FIVE)
    assert once.error is None and once.result["changed"] is False


def test_a_gpu_without_instances_needs_two_witnesses(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    assert host.run(profiles=[]).result["gpus"][0]["instances"] == []
    run = host.run(
        FalseReply(FAULTS["no MIG-enabled devices"], 1, lasts=True, suffix=["mig", "-lgi"]), profiles=["1g.10gb"]
    )
    assert run.error is not None and "reports that MIG mode is enabled" in run.error and run.changes == []


def _renamed(*renames: tuple[str, str]) -> Callable[[Sequence[str], Reply], CommandResult]:
    """A driver whose instances have other names."""

    def intercept(arguments: Sequence[str], reply: Reply) -> CommandResult:
        message = reply()
        text = message.text
        for old, new in renames:
            # Keep the width, or the table's right border would move.
            text = re.sub(re.escape(old) + " " * max(0, len(new) - len(old)), new, text)
        return result(arguments, message.rc, text)

    return intercept


@pytest.mark.parametrize(("real", "odd"), [("2c.4g.40gb", "3c.4g.40gb"), ("4c.7g.80gb", "6c.7g.80gb")])
def test_instances_of_any_size_are_read(tmp_path: Path, real: str, odd: str) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb")
    assert host.run(gpus=["0"], profiles=[real]).error is None
    run = host.run(_renamed((real, odd)), gpus=["1"], profiles=["1g.10gb"])
    assert run.error is None, run.error
    run = host.run(_renamed((real, odd)), gpus=["0"], enabled=True)
    assert run.error is None and [row["profile"] for row in run.result["gpus"][0]["instances"]] == [odd]
    run = host.run(_renamed((real, odd)), gpus=["0"], profiles=["1g.10gb"])
    assert run.error is None and names(host.layout()) == {"1g.10gb": 1}


def test_a_row_that_is_not_understood_blocks_only_its_gpu(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb", "h100_80gb")
    assert host.run(gpus=["0"], profiles=["3g.40gb", "1g.10gb"]).error is None
    before = host.layout(0)

    def intercept(arguments: Sequence[str], reply: Reply) -> CommandResult:
        message = reply()
        is_list = arguments[-1] in ("-lgi", "-lci", "-lgip", "-lcip")
        return result(
            arguments, message.rc, message.text.replace("MIG 3g.40gb", "MIG @!?%#+:") if is_list else message.text
        )

    other = host.run(intercept, gpus=["1"], profiles=["1g.10gb"])
    assert other.error is None and names(host.layout(1)) == {"1g.10gb": 1}
    own = host.run(intercept, gpus=["0"], profiles=["1g.10gb"])
    assert own.error is not None and own.changes == [] and "not understood: 0  MIG @!?%#+:" in own.error
    assert host.layout(0) == before


def _reordered(arguments: Sequence[str], reply: Reply) -> CommandResult:
    """A driver that numbers MIG devices in reverse order of their IDs, both in -L and in -q -x."""
    message = reply()
    text = message.text
    if arguments[0] == "-L":
        gpu, *devices = text.splitlines()
        devices = [re.sub(r"Device +\d+:", f"Device  {place}:", line) for place, line in enumerate(devices[::-1])]
        text = "\n".join([gpu, *devices, ""])
    elif arguments[:2] == ["-q", "-x"]:
        count = text.count("<mig_device>")
        pattern = r"(<mig_device>\s*<index>)(\d+)(</index>)"
        text = re.sub(pattern, lambda m: f"{m[1]}{count - 1 - int(m[2])}{m[3]}", text)
    return result(arguments, message.rc, text)


def test_uuids_are_joined_by_index(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    plain = host.run(profiles=["1g.10gb"] * 4 + ["1c.3g.40gb"] * 3).result["gpus"][0]["instances"]
    assert len({row["uuid"] for row in plain}) == 7
    (tmp_path / "run" / "mig.json").unlink(missing_ok=True)
    for _run in range(2):
        run = host.run(_reordered, profiles=["1g.10gb"] * 4 + ["1c.3g.40gb"] * 3)
        assert run.error is None and run.changes == [] and run.result["gpus"][0]["instances"] == plain


def test_uuids_after_a_change_are_joined_by_index(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    assert host.run(_reordered, profiles=["1g.10gb"] * 2).error is None
    run = host.run(_reordered, profiles=["1g.10gb"] * 5)
    (tmp_path / "run" / "mig.json").unlink(missing_ok=True)
    truth = host.run(profiles=["1g.10gb"] * 5)
    assert truth.changes == [] and run.result["gpus"][0]["instances"] == truth.result["gpus"][0]["instances"]
    assert all(row["uuid"] for row in truth.result["gpus"][0]["instances"])


def test_a_completed_instance_is_reported_once(tmp_path: Path) -> None:
    host = SimulatedHost.make(tmp_path, "h100_80gb")
    host.run(profiles=["1g.10gb"])
    assert host.call("mig", "-i", "0", "-cgi", "9")[1] == 0
    for check in (True, False):
        gpu = host.run(check=check, profiles=["1g.10gb", "3g.40gb"]).result["gpus"][0]
        assert [row["profile"] for row in gpu["kept"]] == ["1g.10gb"] and gpu["destroyed"] == []
        assert [row["profile"] for row in gpu["created"]] == ["3g.40gb"]
    there = [*gpu["kept"], *gpu["created"]]
    assert sorted(there, key=str) == sorted(gpu["instances"], key=str)


def _instance(number: int, profile_id: int, start: int, size: int = 1, *computes: int) -> Instance:
    compute = tuple(ComputeInstance(place, slices) for place, slices in enumerate(computes or (1,)))
    return Instance(number, f"p{profile_id}", profile_id, 1, start, size, compute)


@pytest.mark.parametrize(
    ("before", "now", "touched", "left"),
    [
        # Instances that the run destroyed are restored, those that it created are removed.
        ([_instance(1, 19, 0)], [_instance(2, 14, 0, 2)], {(19, 0), (14, 0)}, {(19, 0)}),
        # An instance that the first read missed does not belong to the run.
        ([], [_instance(1, 19, 0), _instance(2, 19, 1)], {(19, 1)}, {(19, 0)}),
        # It stays, even where an instance of before the run was.
        ([_instance(1, 19, 0)], [_instance(2, 14, 0, 2)], {(19, 0)}, {(14, 0)}),
        ([_instance(1, 19, 0)], [_instance(1, 19, 0)], frozenset(), {(19, 0)}),
    ],
)
def test_restoring_removes_only_what_the_run_made(
    before: list[Instance], now: list[Instance], touched: frozenset[tuple[int, int]], left: set[tuple[int, int]]
) -> None:
    assert {item.place for item in mig_plan.to_restore(before, now, touched)} == left


def test_compute_instances_that_the_run_did_not_touch_stay() -> None:
    (item,) = mig_plan.to_restore([_instance(1, 9, 0, 4, 1)], [_instance(1, 9, 0, 4, 1, 1, 1)], frozenset())
    assert len(item.compute) == 3


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("3c.4g.40gb", (3, 4)),
        ("6c.7g.80gb", (6, 7)),
        ("1g.24gb+me.all", (1, 1)),
        ("1g.24gb-me", (1, 1)),
        ("4g.96gb+gfx", (4, 4)),
        ("1c.2g.12gb+me", (1, 2)),
        ("12g.100gb", (12, 12)),
        ("@!?", None),
        ("4g", None),
    ],
)
def test_sizes_by_listed_names(name: str, sizes: tuple[int, int] | None) -> None:
    assert listing.sizes_of(name) == sizes


@pytest.mark.parametrize("text", ["", "\n", "Warning: infoROM is corrupted at gpu 0000:3B:00.0\n"])
def test_nothing_printed_is_not_none(text: str) -> None:
    for read in (listing.list_gpu_instances, listing.list_compute_instances):
        with pytest.raises(listing.ListingError, match="neither the table"):
            read(text)
        assert read("No GPU instances found: Not Found\n").none == "No GPU instances found: Not Found"
