# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests that run a workload on idle GPUs: DCGM's diagnostics, nvbandwidth, NCCL, PyTorch. Private to this collection.

The outputs: `dcgmi diag -j` of DCGM 2 to 4, which has no stable schema; the text of nvbandwidth and of all_reduce_perf.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Iterator, Mapping, Sequence

from .._common.errors import ChangeError
from .._common.runner import CommandResult, find_executable
from .._common.trust import places
from . import pytorch
from .kernel_log_sources import Run
from .outcome import CONFIGURATION, FAILED, UNKNOWN, WARNED, Outcome
from .readings import Facts

DEFAULT_PYTHON = "python3"


@dataclass(frozen=True)
class Tool:
    """How a test is run, with the limit in seconds, and what it needs.

    In program and arguments `{gpus}` is the number of GPUs, `{uuids}` their UUIDs, `{python}` the Python for PyTorch.
    """

    program: str
    arguments: tuple[str, ...]
    seconds: float
    needs: str


_DCGM = "DCGM with its service nvidia-dcgm, which the role gpu.fleet.nvidia_dcgm installs"
TOOLS: Mapping[str, Tool] = {
    "dcgm_1": Tool("dcgmi", ("diag", "-r", "1", "-j"), 300.0, _DCGM),
    "dcgm_2": Tool("dcgmi", ("diag", "-r", "2", "-j"), 1200.0, _DCGM),
    "dcgm_3": Tool("dcgmi", ("diag", "-r", "3", "-j"), 7200.0, _DCGM),
    "nvbandwidth": Tool(
        "nvbandwidth",
        ("-t", "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce"),
        600.0,
        "nvbandwidth in PATH (https://github.com/NVIDIA/nvbandwidth)",
    ),
    "nccl": Tool(
        "all_reduce_perf",
        ("-b", "8G", "-e", "16G", "-f", "2", "-g", "{gpus}"),
        900.0,
        "all_reduce_perf of nccl-tests in PATH (https://github.com/NVIDIA/nccl-tests)",
    ),
    "pytorch": Tool(
        "{python}",
        (pytorch.PROGRAM, "--framework=pytorch", "--devices={uuids}", "--timeout=300"),
        # Two steps, each with that limit.
        660.0,
        f"{pytorch.PROGRAM}, which the role gpu_workload installs, and a Python with PyTorch (option pytorch_python)",
    ),
}
"""By name of the test."""


@dataclass(frozen=True)
class Measured:
    """Bandwidths in GB/s: between host and GPU and between GPUs by index of the GPU, of an all-reduce over all."""

    host: Mapping[int, float] = field(default_factory=dict)
    peer: Mapping[int, float] = field(default_factory=dict)
    bus: float | None = None


@dataclass(frozen=True)
class Diagnostics:
    """The outcomes of all tests but for those that passed, and what was measured."""

    outcomes: tuple[Outcome, ...] = ()
    measured: Measured = field(default_factory=Measured)
    evidence: Mapping[str, str] = field(default_factory=dict)
    """By test that had a result, what it ran and measured."""

    def readings(self, gpu: int | None) -> dict[str, Any]:
        """The readings of one GPU, or of the host, for rows of the policy."""
        messages: dict[str, list[str]] = {kind: [] for kind in (FAILED, CONFIGURATION, WARNED, UNKNOWN)}
        for outcome in self.outcomes:
            if outcome.gpu == gpu:
                messages[outcome.kind].append(outcome.text)
        failed, *others = ("; ".join(each) for each in messages.values())
        if gpu is not None:
            return {
                "test_failed": failed,
                "host_bandwidth_gbps": self.measured.host.get(gpu),
                "peer_bandwidth_gbps": self.measured.peer.get(gpu),
            }
        return {
            "host_test_failed": failed,
            **{f"test_{kind}": text for kind, text in zip((CONFIGURATION, WARNED, UNKNOWN), others)},
            "nccl_bandwidth_gbps": self.measured.bus,
        }


def run_tests(names: Sequence[str], facts: Facts, run_program: Run, python: str = DEFAULT_PYTHON) -> Diagnostics:
    """Run the tests one after another, as far as they can be run now."""
    outcomes: list[Outcome] = []
    measured = Measured()
    evidence: dict[str, str] = {}
    for name in dict.fromkeys(names):
        blocker = why_not(name, facts)
        if blocker:
            outcomes.append(Outcome(UNKNOWN, f"{name} was not run: {blocker}"))
            continue
        argv = command(name, facts["gpus"], python)
        fault = _fault(name, argv[0])
        if fault:
            outcomes.append(Outcome(UNKNOWN, f"{name} was not run: {fault}"))
            continue
        result = run_program(argv, TOOLS[name].seconds)
        problem = _why_no_result(name, result)
        if problem:
            outcomes.append(Outcome(UNKNOWN, f"{name}: {problem}"))
            continue
        evidence[name] = _evidence(name, result.text)
        if name == "nvbandwidth":
            host, peer = nvbandwidth(result.text)
            measured = Measured(host, peer, measured.bus)
        elif name == "nccl":
            # Of fewer GPUs than a whole board it is no measure.
            bus, wrong = nccl(result.text)
            outcomes += [Outcome(FAILED, f"nccl: {wrong} values of the all-reduce are wrong")] if wrong else []
            measured = Measured(measured.host, measured.peer, bus if len(facts["gpus"]) == _BOARD else None)
        else:
            found = _pytorch(result.text, facts) if name == "pytorch" else dcgm(result.text)
            outcomes += (Outcome(each.kind, f"{name}: {each.text}", each.gpu) for each in found or ())
    listed = {gpu["index"] for gpu in facts["gpus"]}
    known = (each if each.gpu in listed else replace(each, gpu=None) for each in outcomes)
    return Diagnostics(tuple(known), measured, evidence)


def not_run(names: Sequence[str], reason: str) -> Diagnostics:
    """The outcome where none of the tests is run."""
    return Diagnostics(tuple(Outcome(UNKNOWN, f"{name} was not run: {reason}") for name in dict.fromkeys(names)))


_BOARD = 8


def command(name: str, gpus: Sequence[Mapping[str, Any]], python: str = DEFAULT_PYTHON) -> tuple[str, ...]:
    """The command of a test on a host with these GPUs."""
    tool = TOOLS[name]
    uuids = ",".join(str(gpu["uuid"]) for gpu in gpus if gpu.get("uuid"))
    program = find_executable(tool.program.format(python=python))
    return (program, *(word.format(gpus=len(gpus), uuids=uuids) for word in tool.arguments))


def _fault(name: str, program: str) -> str:
    """Why root must not run a program: others could change it. The Python with PyTorch is one that the site names."""
    if os.geteuid() != 0 or name == "pytorch" or not os.path.isabs(program):
        return ""
    try:
        return next((place.fault for place in places(program) if place.fault), "")
    except ChangeError as error:
        return str(error)


def why_not(name: str, facts: Facts) -> str:
    """Why a test cannot be run now; empty where it can: it would disturb the jobs of others, or fail."""
    gpus = facts["gpus"]
    if not facts["available"] or not gpus:
        return "no GPU can be read"
    for gpu in gpus:
        processes = gpu.get("processes")
        if processes is None:
            return f"the processes of GPU {gpu['index']} are unknown"
        if processes:
            names = ", ".join(f"{process['name']} (PID {process['pid']})" for process in processes[:3])
            return f"GPU {gpu['index']} is in use by {names}; run it when the jobs have ended"
    if any(gpu["mig_mode_current"] == "enabled" for gpu in gpus):
        return "it needs GPUs without MIG mode"
    if name == "nccl" and len(gpus) < 2:
        return "it needs two GPUs"
    return ""


def _why_no_result(name: str, result: CommandResult) -> str:
    """Why a run has no result that can be read; dcgmi and PyTorch's exit with an error also where a test failed."""
    tool = TOOLS[name]
    if result.start_error is not None:
        return f"it needs {tool.needs}"
    if result.timed_out:
        return f"it did not end within {tool.seconds:.0f} s"
    if name.startswith("dcgm"):
        readable = dcgm(result.text) is not None
    elif name == "nccl":
        readable = nccl(result.text)[0] is not None
    elif name == "pytorch":
        readable = pytorch.read_document(result.text) is not None
    else:
        readable = any(nvbandwidth(result.text))
    if readable and (result.rc == 0 or name.startswith("dcgm") or name == "pytorch"):
        return ""
    lines = f"{result.text}\n{result.error_text}".split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return f"no result ({result.ending}): {last[:200]}; it needs {tool.needs}"


def _evidence(name: str, text: str) -> str:
    """What a test with a result ran and measured, in one line."""
    if name == "nvbandwidth":
        pairs = zip(("with the host", "with other GPUs"), nvbandwidth(text))
        lowest = [f"{min(found.values())} GB/s {where}" for where, found in pairs if found]
        return f"lowest bandwidth {' and '.join(lowest)}"
    if name == "nccl":
        bus, wrong = nccl(text)
        return f"average bus bandwidth {bus} GB/s, {wrong} wrong values"
    if name == "pytorch":
        return pytorch.evidence(pytorch.read_document(text) or {})
    return f"{len(dcgm(text) or ())} results of {TOOLS[name].program} {' '.join(TOOLS[name].arguments)} did not pass"


def _pytorch(text: str, facts: Facts) -> tuple[Outcome, ...]:
    return pytorch.outcomes(pytorch.read_document(text) or {}, facts)


# DCGM

_PASSED = ("pass", "skip", "not run")
_SEVERITY_CONFIGURATION = 5


def dcgm(text: str) -> tuple[Outcome, ...] | None:
    """What `dcgmi diag -j` reports that did not pass; None where the output has no results of tests."""
    document = _document(text)
    root = next((each for each in document.values() if isinstance(each, dict) and "test_categories" in each), None)
    if root is None:
        return None
    tests = [test for category in _dicts(root["test_categories"]) for test in _dicts(category.get("tests"))]
    results = [(str(test.get("name")), result) for test in tests for result in _results(test)]
    if not results:
        return None
    return tuple(outcome for name, result in results for outcome in _outcomes(name, result))


# Lines that an object may begin on: each that begins none costs as much as Python's deepest nesting.
_MOST_STARTS = 20


def _document(text: str) -> Mapping[str, Any]:
    """The JSON object in an output that may have other lines around it."""
    for found in islice(re.finditer(r"(?m)^[ \t]*{", text), _MOST_STARTS):
        try:
            document, _end = json.JSONDecoder().raw_decode(text, found.end() - 1)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            return document
    return {}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _results(test: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The results of a test; its summary where that is worse than all of them."""
    results = _dicts(test.get("results"))
    summary = test.get("test_summary")
    if isinstance(summary, dict) and all(map(_has_passed, results)) and not (results and _has_passed(summary)):
        results.append(summary)
    return results


def _has_passed(result: Mapping[str, Any]) -> bool:
    return str(result.get("status")).lower() in _PASSED


def _outcomes(name: str, result: Mapping[str, Any]) -> Iterator[Outcome]:
    if _has_passed(result):
        return
    warnings = [_warning(each) for each in _listed(result.get("warnings"))]
    status = str(result.get("status"))
    text = f"{name}: " + ("; ".join(text for text, _severity in warnings if text) or status)
    kind = {"fail": FAILED, "warn": WARNED}.get(status.lower(), UNKNOWN)
    if warnings and all(severity == _SEVERITY_CONFIGURATION for _text, severity in warnings) and kind != UNKNOWN:
        kind = CONFIGURATION
    for gpu in _gpus(result) or [None]:
        # What is configured wrongly, or only a warning, names its GPU in DCGM's text.
        yield Outcome(kind, text, gpu if kind == FAILED else None)


def _warning(warning: Any) -> tuple[str, Any]:
    if not isinstance(warning, dict):
        return str(warning), None
    return str(warning.get("warning") or ""), warning.get("error_severity")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _gpus(result: Mapping[str, Any]) -> list[int | None]:
    """The GPUs of a result: a number since DCGM 4, before that a text, also of several."""
    if "entity_id" in result and str(result.get("entity_group", "GPU")).upper() != "GPU":
        return []
    for key in ("entity_id", "gpu_id", "gpu_ids"):
        numbers = [int(number) for number in re.findall(r"\d+", str(result.get(key, "")))]
        if numbers:
            return list(numbers)
    return []


# nvbandwidth, NCCL

_TEST = re.compile(r"(?m)^Running (\w{1,80})\.?[ \t]*$")
_NUMBER = r"(?:[0-9]{1,9}\.[0-9]{1,9}|N/A)"
_ROW = re.compile(rf"(?m)^[ \t]*([0-9]{{1,4}})((?:[ \t]+{_NUMBER})+)[ \t]*$")


def nvbandwidth(text: str) -> tuple[dict[int, float], dict[int, float]]:
    """The lowest bandwidth of each GPU in GB/s, with the host and with other GPUs, from the matrices it prints."""
    host: dict[int, float] = {}
    peer: dict[int, float] = {}
    parts = _TEST.split(text)
    for name, body in zip(parts[1::2], parts[2::2]):
        between_gpus = name.startswith("device_to_device")
        into = peer if between_gpus else host
        for row, cells in _ROW.findall(body):
            for column, cell in enumerate(cells.split()):
                # Version 0.1 prints 0.00 for a GPU with itself, later ones N/A.
                if cell != "N/A" and not (between_gpus and column == int(row)):
                    # The rows of a copy between host and GPUs are the hosts.
                    gpu = int(row) if between_gpus else column
                    into[gpu] = min(into.get(gpu, float("inf")), float(cell))
    return host, peer


_BUS = re.compile(r"(?m)^# Avg bus bandwidth[ \t]*:[ \t]*([0-9]{1,9}(?:\.[0-9]{1,9})?)(?![0-9])")
_WRONG = re.compile(r"(?m)^# Out of bounds values[ \t]*:[ \t]*([0-9]{1,18})(?![0-9])")


def nccl(text: str) -> tuple[float | None, int]:
    """The average bus bandwidth in GB/s and the number of wrong values; None and 0 where it does not state both."""
    bus, wrong = _BUS.search(text), _WRONG.search(text)
    return (float(bus[1]), int(wrong[1])) if bus and wrong else (None, 0)
