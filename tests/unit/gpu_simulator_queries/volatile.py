# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The readings in recorded output that change from second to second."""

from __future__ import annotations

import re

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
VOLATILE_METRICS = ("pwr", "gtemp", "mtemp")


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
    if first.startswith("# gpu "):
        text = "\n".join(_mask_monitor(text.split("\n")))
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


def _mask_monitor(lines: list[str]) -> list[str]:
    titles = lines[0][1:].split()
    masked = lines[:2]
    for line in lines[2:]:
        cells = line.split()
        is_row = len(cells) == len(titles) and cells[0].isdigit()
        values = (
            [
                "*" if title in VOLATILE_METRICS and cell.isdigit() else cell
                for title, cell in zip(titles, cells, strict=True)
            ]
            if is_row
            else []
        )
        masked.append(" ".join(values) if is_row else line)
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
