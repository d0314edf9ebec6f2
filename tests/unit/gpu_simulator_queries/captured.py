# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Captured outputs of real hosts, and the readings in them that change from second to second."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

FIXTURES = Path(__file__).parent / "fixtures"


class Captured(NamedTuple):
    """One command that was run on a real host."""

    name: str
    status: int
    arguments: list[str]
    text: str


def commands(directory: str) -> list[Captured]:
    """Read a directory's index and outputs."""
    found = []
    for line in (FIXTURES / directory / "index.tsv").read_text().splitlines():
        name, status, _milliseconds, command = line.split("\t")
        output = FIXTURES / directory / f"{name}.out"
        words = shlex.split(command)
        arguments = words[words.index("nvidia-smi") + 1 :]
        found.append(Captured(name, int(status), arguments, output.read_text() if output.exists() else ""))
    return found


class Recorded(NamedTuple):
    """One command of a recording, and the user who ran it; status 124: it ran until it was terminated."""

    line: str
    user: str
    status: int
    text: str


def recording(name: str) -> list[Recorded]:
    """Read a recording: one file for many commands, in which each distinct output is stored once."""
    found = json.loads((FIXTURES / "recordings" / f"{name}.json").read_text())
    return [Recorded(line, user, status, found["texts"][text]) for line, user, status, text in found["commands"]]


def host(directory: str) -> dict[str, Any]:
    """Describe the simulated host for the captures of a directory."""
    gpus: list[dict[str, Any]] = [
        {
            "model": "h200",
            "uuid": f"GPU-5ee0000{index}-0000-4000-8000-00000000000{index}",
            "serial": f"165000000000{index}",
            "bus_id": f"00000000:00:{6 + index:02X}.0",
            "pdi": f"0x5eed00000000000{index}",
        }
        for index in range(int(directory[5]))
    ]
    boards = {
        "h200x1-580.159.04": ((8, "1"),),
        "h200x1-arguments-580.159.04": ((6, "0"),),
        "h200x2-arguments-580.159.04": ((6, "1"), (8, "0")),
        "h200x2-forms-580.159.04": ((5, "0"), (7, "2")),
        "h200x2-subcommands-580.159.04": ((6, "0"), (8, "0")),
        "h200x1-orders-580.159.04": ((5, "0"),),
    }
    for gpu, (module_id, replays) in zip(gpus, boards.get(directory, ()), strict=False):
        gpu["module_id"] = module_id
        gpu["overrides"] = {"board_part_number": "692-2G520-0282-000", "pci/replay_counter": replays}
    if directory in ("h200x2-subcommands-580.159.04", "h200x1-orders-580.159.04"):
        for gpu in gpus:
            del gpu["overrides"]["board_part_number"]
    if directory == "h200x2-arguments-580.159.04":
        gpus[1]["overrides"]["ecc_errors/aggregate/dram_correctable"] = "1149674"
        gpus[1]["overrides"]["remapped_rows/remapped_row_corr"] = "10"
    cpus = {1: "0-15", 2: "0-31", 8: "0-127"}
    return {"driver_version": "580.159.04", "cpu_affinity": cpus[len(gpus)], "gpus": gpus}


VOLATILE_LABELS = (
    "Timestamp",
    "GPU Current Temp",
    "GPU T.Limit Temp",
    "Memory Current Temp",
    "Average Power Draw",
    "Instantaneous Power Draw",
    "Tx Throughput",
    "Rx Throughput",
)
SAMPLES = ("Duration", "Number of Samples", "Max", "Min", "Avg")
VOLATILE_TAGS = (
    "timestamp",
    "gpu_temp",
    "gpu_temp_tlimit",
    "memory_temp",
    "average_power_draw",
    "instant_power_draw",
    "tx_util",
    "rx_util",
)
VOLATILE_COLUMNS = (
    "timestamp",
    "temperature.gpu",
    "temperature.gpu.tlimit",
    "temperature.memory",
    "power.draw [W]",
    "power.draw.average [W]",
    "power.draw.instant [W]",
    "clocks_event_reasons.active",
    "clocks.current.graphics [MHz]",
    "clocks.current.sm [MHz]",
)


def mask(text: str) -> str:
    """Replace the value of every volatile reading; a reading that is not available stays as it is."""
    first = text.split("\n", 1)[0]
    if first.startswith("<?xml"):
        tags = "|".join(VOLATILE_TAGS)
        return re.sub(rf"<({tags})>(?!N/A)[^<]*</", r"<\1>*</", text)
    if "NVSMI LOG" in text:
        return "\n".join(_mask_text(text.split("\n")))
    if "+----" in text and "NVIDIA-SMI" in text:
        lines = text.split("\n")
        cells = r"^(\| ...) +\d+C(.{11}) +\d+W( / .*\|) +\d+%"
        return "\n".join(["*", *(re.sub(cells, r"\1 *C\2 *W\3 *%", line) for line in lines[1:])])
    if any(column in VOLATILE_COLUMNS for column in first.split(", ")):
        return "\n".join(_mask_csv(text.split("\n")))
    text = re.sub(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", "*", text)
    text = re.sub(r"(Low Power Mode): \w+ \w+ State", r"\1: *", text)
    text = re.sub(r"(?m)^(    [A-Z0-9_]+): +\d+$", r"\1: *", text)
    text = re.sub(r"(?m)^(\t lane +\d+): \d+$", r"\1: *", text)
    if first.startswith("# gpu    pwr"):
        text = re.sub(r"(?m)^(    \d)( +\d+){3}", r"\1 *", text)
    return re.sub(r"(Raw [RT]x|Correction Count): \d+", r"\1: *", text)


def _mask_text(lines: list[str]) -> list[str]:
    masked = []
    in_samples = False
    for line in lines:
        label, colon, value = line.partition(": ")
        name = label.strip()
        if not colon:
            in_samples = line.rstrip().endswith("Samples")
        volatile = name in VOLATILE_LABELS or (in_samples and name in SAMPLES and value != "Not Found")
        masked.append(f"{label}: *" if colon and volatile and value != "N/A" else line)
    return masked


def _mask_csv(lines: list[str]) -> list[str]:
    header = lines[0].split(", ")
    masked = [lines[0]]
    for line in lines[1:]:
        cells = line.split(", ")
        masked.append(
            ", ".join("*" if name in VOLATILE_COLUMNS else cell for name, cell in zip(header, cells, strict=False))
        )
    return masked
