# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the GPU interconnect: `nvidia-smi topo -m` and `nvidia-smi nvlink`. Private to this collection."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from . import values as readings

# topo -m underlines its header even when the output is not a terminal.
_ANSI = r"\x1b\[[0-9;]*[A-Za-z]"
_DEVICE = r"[A-Za-z][A-Za-z0-9_.:-]*\d"
_NIC_LEGEND = r"(?m)^\s+(NIC\d+): (\S+)\s*$"
_AFFINITIES = {"CPU Affinity": "cpu_affinity", "NUMA Affinity": "numa_affinity", "GPU NUMA ID": "gpu_numa_id"}
_SELF = "X"
_NVLINK_GPU = r"GPU (\d+): .*\(UUID: ([^)\s]+)\)"
_NVLINK_LINK = r"\s+Link (\d+): (.+?)\s*$"
_SPEED = r"[0-9.]+ GB/s"
_REMOTE = r"Remote Device ([0-9A-Fa-f:]+\.[0-7]): Link (\d+)"
_COUNTER = r"([^:]+): (\S+)"
# A rate of bit errors, such as 1e-15.
_RATE = r"[0-9]{1,9}(?:\.[0-9]{1,20})?(?:[eE]-[0-9]{1,3})?"
# The other end of a link to a switch that is not visible in a virtual machine.
_NOWHERE = "ffffffff:ff:ff.0"


@dataclass(frozen=True)
class TopologyDevice:
    """One row of the matrix: `links` has the path class (NV18, PIX, SYS, ...) to each other device by label."""

    label: str
    name: str | None
    links: tuple[tuple[str, str], ...]
    cpu_affinity: str | None = None
    numa_affinity: str | None = None
    gpu_numa_id: str | None = None


@dataclass(frozen=True)
class NvLink:
    """One NVLink of a GPU; `speed_gb_per_second` is None while it is inactive.

    `active` is None where its state is not reported. `error_counters` are those that this chip has, by name.
    """

    link: int
    active: bool | None = None
    speed_gb_per_second: float | None = None
    remote_pci_bus_id: str | None = None
    remote_link: int | None = None
    error_counters: tuple[tuple[str, float | None], ...] = ()


def parse_topology(text: str) -> tuple[TopologyDevice, ...]:
    """Parse the matrix of `topo -m`, separated by tabs as in nvidia-smi's output, or by blanks as in documentation.

    Without a matrix (a driver that does not know the option) the result is empty.
    """
    lines = re.sub(_ANSI, "", text).splitlines()
    legend = dict(re.findall(_NIC_LEGEND, text))
    columns: list[str] = []
    affinities: list[str] = []
    devices = []
    for line in lines:
        cells = _cells(line)
        if not columns:
            labels = [cell for cell in cells if cell]
            columns = [label for label in labels if re.fullmatch(_DEVICE, label)]
            affinities = [_AFFINITIES[label] for label in labels if label in _AFFINITIES]
            if not columns or columns[0] != labels[0]:
                columns = []
            continue
        if not cells or not re.fullmatch(_DEVICE, cells[0]) or len(cells) <= len(columns):
            # The first line that is not a row ends the matrix.
            break
        label, links = cells[0], cells[1 : len(columns) + 1]
        rest = [cell for cell in cells[len(columns) + 1 :] if cell]
        devices.append(
            TopologyDevice(
                label=label,
                name=legend.get(label) or (None if label.startswith(("GPU", "NIC")) else label),
                links=tuple((to, path) for to, path in zip(columns, links) if path != _SELF),
                **{key: None if value == "N/A" else value for key, value in zip(affinities, rest)},
            )
        )
    return tuple(devices)


def _cells(line: str) -> list[str]:
    """Cells of one row; the header's first cell is empty."""
    if "\t" in line:
        return [cell.strip() for cell in line.rstrip().split("\t")]
    return re.split(r"\s{2,}", line.strip()) if line.strip() else []


def parse_nvlinks(text: str) -> dict[str, tuple[NvLink, ...]]:
    """Parse `nvlink` with any of `-s`, `-e` and `-R`, whose output comes one after the other for each GPU.

    Links by the GPU's UUID; other lines (all inactive, not supported) are left out.
    """
    links: dict[str, dict[int, NvLink]] = {}
    uuid: str | None = None
    for line in text.splitlines():
        gpu = re.match(_NVLINK_GPU, line)
        entry = re.match(_NVLINK_LINK, line)
        if gpu is not None:
            uuid = gpu[2]
            links[uuid] = {}
        elif entry is not None and uuid is not None:
            number, _reason = readings.interpret(entry[1], readings.small)
            if number is not None:
                links[uuid][number] = _with_fact(links[uuid].get(number, NvLink(number)), entry[2])
    return {key: tuple(value.values()) for key, value in links.items()}


def _with_fact(link: NvLink, text: str) -> NvLink:
    """`link` with the information of one line: its state, its other end, or one of its counters."""
    remote = re.fullmatch(_REMOTE, text)
    if remote is not None:
        address, number = (
            readings.interpret(text, kind)[0]
            for text, kind in ((remote[1], readings.bus_id), (remote[2], readings.small))
        )
        known = address not in (None, _NOWHERE)
        return replace(link, remote_pci_bus_id=address if known else None, remote_link=number if known else None)
    counter = re.fullmatch(_COUNTER, text)
    if counter is not None:
        value = (readings.enum(counter[1]), _number(counter[2]))
        return replace(link, error_counters=(*link.error_counters, value))
    speed = readings.interpret(text, readings.gb_per_second)[0] if re.fullmatch(_SPEED, text) else None
    if speed is not None:
        return replace(link, active=True, speed_gb_per_second=speed)
    return replace(link, active=False) if "inactive" in text.lower() else link


def _number(text: str) -> float | None:
    """A counter or a rate; None for other text."""
    value, _reason = readings.interpret(text, readings.count)
    return float(text) if value is None and not text.isdecimal() and re.fullmatch(_RATE, text) else value
