# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``topo``: connections of GPUs with each other and with the CPUs."""

from __future__ import annotations

from ..command_line import subcommand
from ..command_line.options import INVALID_ARGUMENT, MISUSE
from ..state import catalogue
from . import listing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Mapping

    from ..command_line.subcommand import Grammar
    from ..command_line.verbs import Call
    from ..state.shapes import Gpu, Reply

GRAMMAR: Grammar = {
    "matrix": ("-m", False),
    "matrix_pci": ("-mp", False),
    "matrix_nvme": ("-nvme", False),
    "id": ("-i", True),
    "cpu": ("-c", subcommand.NUMBER),
    "nearest_gpus": ("-n", subcommand.NUMBER),
    "gpu_path": ("-p", False),
    "p2pstatus": ("-p2p", True),
    "get-numa-id-of-nearby-cpu": ("-C", False),
    "get-numa-id-of-nearby-mem": ("-M", False),
    "gpu-numa-id": ("-gnid", False),
    "help": ("-h", False),
}

UNDERLINE, PLAIN = "\x1b[4m", "\x1b[0m"

PCI_LEGEND = (
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node\n"
    "  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)\n"
    "  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)\n"
    "  PIX  = Connection traversing at most a single PCIe bridge\n"
)
NVLINK_LEGEND = "  NV#  = Connection traversing a bonded set of # NVLinks\n"
P2P_LEGEND = (
    "  X    = Self\n"
    "  OK   = Status Ok\n"
    "  CNS  = Chipset not supported\n"
    "  GNS  = GPU not supported\n"
    "  TNS  = Topology not supported\n"
    "  NS   = Not supported\n"
    "  U    = Unknown\n"
)
PATHS = (
    "way of an single on-board PCIe switch",
    "way of a single PCIe switch",
    "way of potentially multiple PCIe switches",
    "the same PCIe host bridge",
    "way of an on-CPU interconnect between PCIe host bridges",
    "way of an SMP interconnect link between NUMA nodes",
)
"""Connection types, nearest first. All GPUs share a host bridge."""

SINGLE = "must be used in conjunction with the -i argument which must be a single identifier."
PAIR = "must be used in conjection with the -i argument which must be two GPU identifiers."
HOST_BRIDGE = 3
MATRICES = ("matrix", "matrix_pci", "matrix_nvme")


def topo(call: Call) -> Reply:
    """Handle ``topo``."""
    options = subcommand.parse(call.arguments, GRAMMAR)
    if not options or "help" in options:
        return listing.help_text("help-topo")
    refusal = subcommand.select(call, options)
    if refusal:
        return refusal
    text = ""
    for name, result in REPLIES.items():
        if name in options:
            found, status = result(call, options)
            text += found
            if status:
                return text, status
    if "id" in options and not set(options) & ABOUT_ID:
        return text + "The -i command line argument must be used in conjunction with -n or -p.\n\n", MISUSE
    return text + "".join(_matrix(call, name) for name in MATRICES if name in options), 0


def _links(gpu: Gpu, other: Gpu) -> int:
    """Count the NVLinks that connect two GPUs: all of them through switches, or the NVLinks of a bridge."""
    nvlink, others = (catalogue.load(each["model"]).get("nvlink") for each in (gpu, other))
    if not nvlink or not others or gpu["model"] != other["model"]:
        return 0
    return int(nvlink["links"]) if nvlink["switched"] else 0


def _matrix(call: Call, kind: str) -> str:
    pci_only = kind != "matrix"
    gpus = [gpu for _unused, gpu in call.visible]
    host = call.state["host"]
    if kind == "matrix_nvme":
        rows = "".join(f"GPU{index}\t\n" for index, _unused in call.visible)
        return f"\t{UNDERLINE}{PLAIN}\n{rows}\nLegend:\n\n{PCI_LEGEND}"

    def cell(gpu: Gpu, other: Gpu) -> str:
        if gpu is other:
            return " X "
        links = 0 if pci_only else _links(gpu, other)
        return f"NV{links}" if links else "PHB"

    titles = [f"GPU{index}" for index, _unused in call.visible]
    lines = ["\t" + UNDERLINE + "\t".join([*titles, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + PLAIN]
    for title, gpu in zip(titles, gpus):
        cells = [cell(gpu, other) for other in gpus]
        lines.append("\t".join([title, *cells, host["cpu_affinity"], host["numa_affinity"], "", "N/A"]))
    legend = PCI_LEGEND if pci_only else PCI_LEGEND + NVLINK_LEGEND
    return "\n".join(lines) + f"\n\nLegend:\n\n{legend}"


def _p2p(call: Call, options: Mapping[str, str]) -> Reply:
    capability = options["p2pstatus"]
    if capability not in ("r", "w", "n", "a", "p"):
        return "Invalid p2p capability index specified at the command-line\n", INVALID_ARGUMENT

    def status(gpu: Gpu, other: Gpu) -> str:
        if gpu is other:
            return "X"
        return "OK" if _links(gpu, other) and capability != "p" else "NS"

    return _square(call, status), 0


def _square(call: Call, status: Callable[[Gpu, Gpu], str]) -> str:
    titles = "".join(f"GPU{index}\t" for index, _unused in call.visible)
    lines = [f" \t{UNDERLINE}{titles}{PLAIN}"]
    for index, gpu in call.visible:
        lines.append(f" GPU{index}\t" + "".join(status(gpu, other) + "\t" for _unused, other in call.visible))
    return "\n".join(lines) + f"\n\nLegend:\n\n{P2P_LEGEND}"


def _cpus(text: str) -> list[range]:
    """Parse a CPU list such as ``0-31,64-95``."""
    found = []
    for part in text.split(","):
        first, _unused, last = part.partition("-")
        found.append(range(int(first), int(last or first) + 1))
    return found


def _cpu(call: Call, options: Mapping[str, str]) -> Reply:
    text = options["cpu"]
    number = int(text) if text.isdigit() else -1
    if any(number in cpus for cpus in _cpus(call.state["host"]["cpu_affinity"])):
        indexes = ", ".join(str(index) for index, _unused in call.visible)
        return f"The GPUs that have an affinity with CPU {text} are:\n{indexes}\n\n", 0
    return f"No GPUs were found to have an affinity with CPU {text}.\n\n", 0


def _nearest(call: Call, options: Mapping[str, str]) -> Reply:
    text = options["nearest_gpus"]
    if not _single(call, options):
        return f"Nearest GPUs argument {SINGLE}\n\n", INVALID_ARGUMENT
    if not text.isdigit() or int(text) >= len(PATHS):
        return "Failed to display the nearest GPUs\n\n", MISUSE
    index = call.gpus[0][0]
    others = ", ".join(str(other) for other, _unused in call.visible if other != index)
    path = PATHS[int(text)]
    if int(text) >= HOST_BRIDGE and others:
        return f"Device {index} is connected by {path} to device(s): {others}\n\n", 0
    return f"Device {index} is not connected to other devices by {path}.\n\n", 0


def _path(call: Call, options: Mapping[str, str]) -> Reply:
    if "id" not in options or len(call.gpus) != 2:
        return f"Path command line flag {PAIR}\n\n", INVALID_ARGUMENT
    first, second = (index for index, _unused in call.gpus)
    return f"Device {first} is connected to device {second} by way of a PCIe host bridge.\n\n", 0


def _single(call: Call, options: Mapping[str, str]) -> bool:
    return "id" in options and len(call.gpus) == 1


def _of_one_gpu(what: str, text: str) -> Callable[[Call, Mapping[str, str]], Reply]:
    """Make the handler of an option about a single GPU."""

    def result(call: Call, options: Mapping[str, str]) -> Reply:
        if not _single(call, options):
            return f"{what} {SINGLE}\n\n", INVALID_ARGUMENT
        return text.format(call.state["host"]["numa_affinity"]), 0

    return result


REPLIES: Mapping[str, Callable[[Call, Mapping[str, str]], Reply]] = {
    "nearest_gpus": _nearest,
    "gpu_path": _path,
    "cpu": _cpu,
    "p2pstatus": _p2p,
    "get-numa-id-of-nearby-cpu": _of_one_gpu("NUMA ID of nearest CPU", "NUMA IDs of closest CPU: {}\n"),
    "get-numa-id-of-nearby-mem": _of_one_gpu("NUMA ID of nearest memory", "NUMA IDs of closest memory: {}\n"),
    "gpu-numa-id": _of_one_gpu("GPU NUMA ID command", "N/A\n"),
}
"""Handlers of the options other than matrices, in order of output."""

ABOUT_ID = frozenset(REPLIES) - {"cpu", "p2pstatus"}
"""Options that take ``-i``."""
