# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lost GPU at each place among up to 17: reading ends, names it, and has all others."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError, HostError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import client
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.client import RetryPolicy, Smi
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.gpu import Gpu
from ansible_collections.gpu.fleet.plugins.module_utils._state import boot
from ansible_collections.gpu.fleet.plugins.module_utils._state.plan import StatePlan

from tests.unit.nvidia_smi.facts_support import H200X8

HANDLE, PROBLEM = "no device handle", "problem with GPU"
"""What nvidia-smi prints about a lost GPU: the line of drivers up to 610, and that of 550 seen for an index."""
FORMS = (HANDLE, PROBLEM)
PLACES = [(count, place) for count in range(1, 18) for place in range(count)]


class TooManyCallsError(BaseException):
    """Reading does not end."""


@dataclass
class Nvidia:
    """An nvidia-smi of which `lost` GPUs fail every call that meets them."""

    count: int
    lost: Collection[int]
    form: str = HANDLE
    leaves_out: bool = False
    """Whether the document of all leaves a lost GPU out, next to the line about it."""
    most_calls: int = 150
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def bus_id(self, index: int) -> str:
        """The address of a GPU; they are numbered in the order of their addresses."""
        return f"00000000:{index + 6:02x}:00.0"

    def uuid(self, index: int) -> str:
        return f"GPU-00000000-0000-4000-8000-{index:012}"

    def smi(self, timeout: float = 60.0) -> Smi:
        return Smi("nvidia-smi", RetryPolicy(timeout, 0, 0), self.run, lambda _seconds: None)

    def run(self, commands: Sequence[Sequence[str]], timeout: float) -> list[CommandResult]:
        assert timeout > 0
        self.calls += [tuple(command[1:]) for command in commands]
        if len(self.calls) > self.most_calls:
            raise TooManyCallsError(self.calls[-20:])
        return [self._result(command) for command in commands]

    def _result(self, command: Sequence[str]) -> CommandResult:
        text, status = self._reply(list(command[1:]))
        return CommandResult(tuple(command), status, text.encode(), b"", 0.01)

    def _reply(self, words: list[str]) -> tuple[str, int]:
        names = words[words.index("-i") + 1].split(",") if "-i" in words else None
        by_index = names is not None and all(name.isdecimal() for name in names)
        if by_index and names is not None:
            (index,) = map(int, names)
            if index >= self.count:
                return ("No devices were found\n", 6) if self.form == HANDLE else self._lost(index)
            met = {index}
        elif names is None or self.form == PROBLEM:
            # A bus id or a UUID is compared with all GPUs.
            met = set(range(self.count))
        else:
            met = {place for place in range(self.count) if {self.bus_id(place).upper(), self.uuid(place)} & {*names}}
        lost = sorted(met & {*self.lost})
        if words[0] == "-L":
            there = range(lost[0] if lost else self.count)
            lines = [f"GPU {place}: NVIDIA H200 (UUID: {self.uuid(place)})\n" for place in there]
            text, status = self._lost(lost[0]) if lost else ("", 0)
            return "".join(lines) + text, status
        if lost and self.leaves_out and words == ["-q", "-x"]:
            return self._lost(lost[0])[0] + self.document(sorted(met - {*lost})), 15
        if lost:
            return self._lost(lost[0])
        if words[:2] == ["-q", "-x"]:
            return self.document(sorted(met)), 0
        return "", 0

    def _lost(self, index: int) -> tuple[str, int]:
        if self.form == PROBLEM:
            return f"Problem with GPU {index}: GPU is lost\n", 255
        reason = "GPU is lost.  Reboot the system to recover this GPU"
        return f"Unable to determine the device handle for GPU{index}: {reason}\n\n\n", 15

    def document(self, places: Sequence[int]) -> str:
        """The document of these GPUs, which counts all, as `-i` prints it."""
        gpus = "".join(
            f'<gpu id="{self.bus_id(place).upper()}"><product_name>NVIDIA H200</product_name>'
            f"<uuid>{self.uuid(place)}</uuid></gpu>"
            for place in places
        )
        return (
            '<?xml version="1.0" ?>\n<nvidia_smi_log><driver_version>550.163.01</driver_version>'
            f"<attached_gpus>{self.count}</attached_gpus>{gpus}</nvidia_smi_log>\n"
        )


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of the driver's GPUs, which is not there yet."""
    monkeypatch.setattr(pci_bus, "DRIVEN", str(tmp_path / "gpus"))
    monkeypatch.setattr(pci_bus, "DEVICES", str(tmp_path / "devices"))
    return tmp_path / "gpus"


def show(directory: Path, nvidia: Nvidia) -> None:
    """Let the kernel show all GPUs."""
    for index in range(nvidia.count):
        (directory / nvidia.bus_id(index)[4:]).mkdir(parents=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_shown", [True, False], ids=["in the kernel", "in a container"])
def test_a_lost_gpu_at_each_place_costs_only_itself(form: str, is_shown: bool, driven: Path, tmp_path: Path) -> None:
    for count, place in PLACES:
        nvidia = Nvidia(count, {place}, form, most_calls=2 + 2 * 8 * math.ceil(count / 8))
        if is_shown:
            pci_bus.DRIVEN = str(tmp_path / f"{count}-{place}")
            show(Path(pci_bus.DRIVEN), nvidia)
        if count == 1:
            with pytest.raises(HostError, match="GPU is lost"):
                nvidia.smi().document()
            continue
        smi = nvidia.smi()
        document = smi.document()
        assert [gpu.index for gpu in document.gpus] == list(range(count))
        assert [gpu.index for gpu in document.gpus if gpu.error is not None] == [place]
        assert "GPU is lost" in (document.gpus[place].error or "")
        assert [gpu.basics.uuid for gpu in document.gpus if gpu.error is None] == [
            nvidia.uuid(index) for index in range(count) if index != place
        ]
        assert document.gpus[place].basics.pci_bus_id == (nvidia.bus_id(place) if is_shown else None)
        assert document.gpus[place].label == f"GPU {place}" + (f" ({nvidia.bus_id(place)})" if is_shown else "")
        # From now on no call for all GPUs is tried first, nor a list of the lost one.
        before = len(nvidia.calls)
        assert smi.document() == document
        assert all("-i" in call for call in nvidia.calls[before:])


@pytest.mark.parametrize("form", FORMS)
def test_several_lost_gpus(form: str, driven: Path) -> None:
    for lost in ({0, 1}, {0, 15}, {7, 8}, set(range(8)), set(range(15)), set(range(1, 16))):
        nvidia = Nvidia(16, lost, form)
        pci_bus.DRIVEN = f"{driven}-{min(lost)}-{max(lost)}-{len(lost)}"
        show(Path(pci_bus.DRIVEN), nvidia)
        gpus = nvidia.smi().document().gpus
        assert {gpu.index for gpu in gpus if gpu.error is not None} == lost and len(gpus) == 16
        assert [gpu.basics.pci_bus_id for gpu in gpus] == [nvidia.bus_id(index) for index in range(16)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2, 8, 16, 17])
@pytest.mark.parametrize("is_shown", [True, False])
def test_where_all_are_lost_reading_ends_with_an_error(form: str, count: int, is_shown: bool, driven: Path) -> None:
    nvidia = Nvidia(count, range(count), form, most_calls=30)
    if is_shown:
        show(driven, nvidia)
    with pytest.raises(HostError, match="GPU is lost"):
        nvidia.smi().document()


@pytest.mark.parametrize("counted", ["", "<attached_gpus>1000000</attached_gpus>", "<attached_gpus>0</attached_gpus>"])
def test_no_reply_makes_reading_endless(counted: str, driven: Path) -> None:
    """An nvidia-smi that reports for each index that one more GPU is there, and lost."""
    calls: list[tuple[str, ...]] = []

    def reply(commands: Sequence[Sequence[str]], _timeout: float) -> list[CommandResult]:
        results = []
        for command in commands:
            calls.append(tuple(command[1:]))
            text, status = f"Problem with GPU {command[-1].strip('-x') or 1}: GPU is lost\n", 255
            if command[-1] == "0":
                text, status = Nvidia(1, ()).document([0]).replace("<attached_gpus>1</attached_gpus>", counted), 0
            results.append(CommandResult(tuple(command), status, text.encode(), b"", 0.01))
        return results

    for place in range(100):
        (driven / f"0000:{place + 6:02x}:00.0").mkdir(parents=True)
    gpus: Sequence[Gpu] = ()
    with contextlib.suppress(HostError):
        gpus = Smi("nvidia-smi", RetryPolicy(60, 0, 0), reply, lambda _seconds: None).document().gpus
    assert len(calls) <= 2 + 64 and len(gpus) <= 64


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("subset", ["min", "all"])
@pytest.mark.parametrize("is_shown", [True, False])
def test_facts_have_every_healthy_gpu(
    form: str, subset: str, is_shown: bool, driven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for count, place in PLACES[1:]:
        nvidia = Nvidia(count, {place}, form, most_calls=80)
        devices = [
            pci_bus.PciDevice(nvidia.bus_id(index), "0x2335", "0x030200", "nvidia", None) for index in range(count)
        ]
        monkeypatch.setattr(pci_bus, "nvidia_gpus", lambda found=devices if is_shown else []: tuple(found))
        monkeypatch.setattr(client, "run_all", nvidia.run)
        facts = smi_facts.gather(smi_facts.FactsRequest(subsets=smi_facts.chosen_subsets([subset])))
        assert facts["available"] and facts["gpu_count"] == count, (count, place)
        readable = {gpu["uuid"]: gpu["index"] for gpu in facts["gpus"] if gpu["error"] is None}
        assert readable == {nvidia.uuid(index): index for index in range(count) if index != place}, (count, place)
        assert [problem["code"] for problem in facts["unhealthy"]] == ["gpu_lost"], (count, place)
        if is_shown:
            assert facts["unhealthy"][0]["gpu"] == nvidia.bus_id(place)


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_document_that_leaves_the_lost_gpu_out_moves_no_index(
    place: int, driven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia = Nvidia(8, {place}, leaves_out=True)
    monkeypatch.setattr(client, "run_all", nvidia.run)
    monkeypatch.setattr(pci_bus, "nvidia_gpus", tuple)
    facts = smi_facts.gather(smi_facts.FactsRequest(subsets=smi_facts.chosen_subsets(["memory"])))
    expected = {nvidia.uuid(index): index for index in range(8) if index != place}
    assert {gpu["uuid"]: gpu["index"] for gpu in facts["gpus"] if gpu["error"] is None} == expected
    assert [problem["code"] for problem in facts["unhealthy"]] == ["gpu_lost"]
    gpus = nvidia.smi().document().gpus
    assert {gpu.basics.uuid: gpu.index for gpu in gpus if gpu.error is None} == expected


@pytest.mark.parametrize("form", FORMS)
def test_the_boot_program_waits_no_longer_than_it_may(form: str, driven: Path, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.touch(mode=0o755)
    plan = StatePlan(str(program), 60.0, False, 1800, (), ())
    for count in (2, 8, 16, 17):
        for place in (0, count // 2, count - 1):
            nvidia = Nvidia(count, {place}, form, most_calls=30)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(client, "run_all", nvidia.run)
                gpus = boot.wait_for_gpus(plan, sleep=lambda _seconds: None)
            assert [gpu.index for gpu in gpus if gpu.error is not None] == [place] and len(gpus) == count
        nvidia = Nvidia(count, range(count), form, most_calls=10_000)
        clock = map(float, range(0, 10_000, 100)).__next__
        with pytest.MonkeyPatch.context() as patch, pytest.raises(ChangeError, match="did not respond within 1800 s"):
            patch.setattr(client, "run_all", nvidia.run)
            boot.wait_for_gpus(plan, sleep=lambda _seconds: None, clock=clock)


def _changed(text: str, how: str) -> str:
    start = text.index("<gpu id=")
    end = text.index("</gpu>", start) + len("</gpu>")
    first = text[start:end]
    return {
        "one of eight": text[:end] + "</nvidia_smi_log>",
        "the first twice": text[:end] + first + text[end:],
        "the first twice, one missing": text[:end] + first + text[end : text.rindex("<gpu id=")] + "</nvidia_smi_log>",
        "counts seven": text.replace("<attached_gpus>8<", "<attached_gpus>7<"),
    }[how]


WRONG = {
    "one of eight": "counts 8 GPUs and describes 1",
    "the first twice": "describes GPU-.* more than once",
    "the first twice, one missing": "describes GPU-.* more than once",
    "counts seven": "counts 7 GPUs and describes 8",
}


@pytest.mark.parametrize("how", WRONG)
def test_a_document_that_contradicts_itself_is_a_problem_of_the_host(
    how: str, driven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = _changed(H200X8.output("-q -x"), how)

    def reply(commands: Sequence[Sequence[str]], _timeout: float) -> list[CommandResult]:
        return [
            CommandResult(tuple(words), 0, text.encode(), b"", 0.1)
            if words[1:3] == ("-q", "-x")
            else CommandResult(tuple(words), 2, b"not in this test", b"", 0.1)
            for words in commands
        ]

    monkeypatch.setattr(client, "run_all", reply)
    facts = smi_facts.gather(smi_facts.FactsRequest(subsets=smi_facts.chosen_subsets(["memory"])))
    (problem,) = (problem for problem in facts["unhealthy"] if problem["code"] == "broken_xml")
    assert problem["gpu"] is None
    with pytest.raises(HostError, match=WRONG[how]) as refused:
        Smi("nvidia-smi", RetryPolicy(60, 0, 0), reply, lambda _seconds: None).document()
    assert problem["message"].split("; ")[0] in str(refused.value)
