# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia_smi_facts: time to parse, calls of nvidia-smi per subset, and time against the bare `nvidia-smi -q -x`.

By default it uses a program that replays a recorded host with 8 H200, with its recorded timing. With `--real` it
measures this host's own GPUs, the module and the bare command one after the other.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import facts as smi_facts
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import pci as pci_bus
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.csv import BASIC_FIELDS, CAPABILITY_FIELDS
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi.xml import parse_document
from ansible_collections.gpu.fleet.plugins.modules import nvidia_smi_facts

from tests.benchmark.report import Table
from tests.unit.recordings.recording import load

H200X8 = load("h200x8-580.159.04")
ADDRESSES = [f"0000:00:{number:02x}.0" for number in range(6, 14)]
PARSE_GOAL_MS = 15
_OPTIONS: Mapping[str, Any] = nvidia_smi_facts.ARGUMENT_SPEC
DEFAULT: Sequence[str] = _OPTIONS["gather_subset"]["default"]
TIMED = {"min": ["min"], "default": DEFAULT, "all": ["all"]}
# Share of the time of the bare `nvidia-smi -q -x`.
GOALS = {"min": 0.2, "all": 0.7}
# Seconds per call on the recorded host; `-q -x` takes as long to start as -L, plus 90 ms for each GPU.
START = 0.130
PER_GPU = 0.090
SECONDS = {"-q -x": 0.850, "-L": START, "topo -m": 0.331, "nvlink -s": 0.200}
MIN_SECONDS = 0.150
# The recording is older than the options for errors and remote links, which take no longer.
REPLAYED_AS = {"nvlink -s -e -R": "nvlink -s"}
# Maximum number of calls by subset on a host with 8 GPUs: three for the document, and one each for compute capability
# with GSP mode, for NVLinks and for the topology. They run in parallel.
CALLS = {
    "min": 1,
    "!all,topology": 2,
    "ecc": 4,
    "!topology": 5,
    "all": 6,
}


def replay(directory: Path) -> Path:
    """Write an nvidia-smi that replays the recorded host's output with its delays."""
    document = H200X8.output("-q -x")
    blocks = {match[1]: match[0] for match in re.finditer(r'<gpu id="(.*?)">.*?</gpu>', document, re.DOTALL)}
    head = document[: document.index("<gpu id=")]
    cases = []
    for call, seconds in SECONDS.items():
        output = directory / f"{call.replace(' ', '')}.txt"
        output.write_text(H200X8.output(call))
        calls = [call, *(other for other, recorded in REPLAYED_AS.items() if recorded == call)]
        cases += [f'"{each}") sleep {seconds}; cat {output};;' for each in calls]
    names = [f"0000{address}".upper() for address in ADDRESSES]
    for size in range(1, len(names) + 1):
        for step in range(1, len(names) + 1):
            for start in range(len(names)):
                group = names[start::step][:size]
                part = directory / f"{'_'.join(group).replace(':', '')}.xml"
                if len(group) == size and not part.exists():
                    part.write_text(head + "\n".join(blocks[name] for name in group) + "\n</nvidia_smi_log>\n")
                    cases.append(f'"-q -x -i {",".join(group)}") sleep {START + PER_GPU * size:.3f}; cat {part};;')
    for name, fields in (("min", BASIC_FIELDS), ("capability", CAPABILITY_FIELDS)):
        (directory / f"{name}.csv").write_text(_rows(fields))
        cases.append(f"--query-gpu={','.join(fields)}\\ *) sleep {MIN_SECONDS}; cat {directory / name}.csv;;")
    program = directory / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$*" >>{directory / "calls"}\ncase "$*" in\n' + "\n".join(cases) + "\nesac\n")
    program.chmod(0o755)
    return program


def _rows(fields: Sequence[str]) -> str:
    """Output of a query, taken from the recorded query for all fields."""
    rows = (", ".join(row.get(name, "[N/A]") for name in fields) for row in H200X8.query_gpu())
    return re.sub(r" (MiB|W)\b", "", "\n".join(rows)) + "\n"


def median_seconds(action: Callable[[], object], rounds: int) -> float:
    """Median over `rounds` calls, in seconds, after one uncounted warm-up call."""
    action()
    times = []
    for _round in range(rounds):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def gather(executable: str, subsets: Sequence[str], explain: bool = False) -> Callable[[], Mapping[str, object]]:
    """The module's work with these parts."""
    request = smi_facts.FactsRequest(executable, smi_facts.chosen_subsets(subsets), explain=explain)
    return lambda: smi_facts.gather(request)


def parsing() -> Table:
    text = H200X8.output("-q -x")
    milliseconds = median_seconds(lambda: parse_document(text), 25) * 1000
    row = (len(text) // 1000, milliseconds, PARSE_GOAL_MS)
    return Table("Parse the document of 8 GPUs", ("document, kB", "ms", "goal"), (row,))


def calls(program: Path) -> Table:
    """Count the calls of each subset; the count does not depend on the machine."""
    rows, missed = [], []
    log = program.parent / "calls"
    for subset, allowed in CALLS.items():
        log.unlink(missing_ok=True)
        gather(str(program), subset.split(","))()
        made = len(log.read_text().splitlines())
        rows.append((subset, made, allowed))
        if made > allowed:
            missed.append(f"{subset}: {made} calls, {allowed} are enough")
    return Table("Calls for 8 GPUs", ("gather_subset", "calls", "goal"), tuple(rows), tuple(missed))


def times(executable: str, rounds: int) -> Table:
    """Time the module's work and the bare command on the same machine."""
    bare = median_seconds(lambda: subprocess.run([executable, "-q", "-x"], capture_output=True, check=True), rounds)
    rows: list[tuple[str | float | None, ...]] = [("nvidia-smi -q -x", bare, 1.0, None)]
    for name, subsets in TIMED.items():
        seconds = median_seconds(gather(executable, subsets), rounds)
        rows.append((name, seconds, seconds / bare, GOALS.get(name)))
    return Table("Seconds", ("gather_subset", "seconds", "of bare", "goal"), tuple(rows))


def sizes(executable: str) -> Table:
    """JSON of the facts, as Ansible caches them."""
    requests = {
        "default": gather(executable, DEFAULT),
        "min": gather(executable, ["min"]),
        "all": gather(executable, ["all"]),
        "all, explain": gather(executable, ["all"], explain=True),
    }
    rows = tuple((name, len(json.dumps(work())) / 1000) for name, work in requests.items())
    return Table("Size of the facts", ("gather_subset", "kB"), rows)


def tables(arguments: Namespace) -> Iterator[Table]:
    """The tables of the replay, or of this host's own GPUs."""
    yield parsing()
    if arguments.real:
        yield times("nvidia-smi", 15)
        yield sizes("nvidia-smi")
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for address in ADDRESSES:
            device = directory / "pci" / address
            device.mkdir(parents=True)
            for key, value in (("vendor", "0x10de"), ("class", "0x030200"), ("device", "0x2335"), ("numa_node", "-1")):
                (device / key).write_text(value)
        program = replay(directory)
        with mock.patch.object(pci_bus, "DEVICES", str(directory / "pci")):
            yield calls(program)
            yield times(str(program), 5)
            yield sizes(str(program))
