# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Xids and SXids are called, and what the text of some of them decides. Private to this collection.

Names and meanings of Xids come from NVIDIA's catalogue (Xid-Catalog.xlsx), of SXids from its Fabric Manager User
Guide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Iterator, Mapping, Sequence

from .kernel_log import Event

NAMES: Mapping[int, str] = {
    8: "GPU stopped processing",
    11: "Invalid or corrupted push buffer stream",
    13: "Graphics Engine Exception",
    16: "Display engine hung",
    18: "Bus mastering disabled in PCI Config Space",
    19: "Display Engine error",
    20: "Invalid or corrupted Mpeg push buffer",
    21: "Invalid or corrupted Motion Estimation push buffer",
    22: "Invalid or corrupted Video Processor push buffer",
    24: "GPU semaphore timeout",
    25: "Invalid or illegal push buffer stream",
    26: "Framebuffer timeout",
    27: "Video processor exception",
    28: "Video processor exception",
    29: "Video processor exception",
    30: "GPU semaphore access error",
    31: "GPU memory page fault",
    32: "Invalid or corrupted push buffer stream",
    37: "Driver firmware error",
    38: "Driver firmware error",
    39: "Copy Engine Exception",
    40: "Copy Engine Exception",
    41: "Copy Engine Exception",
    43: "GPU stopped processing",
    44: "Graphics Engine fault during context switch",
    45: "Preemptive cleanup, due to previous errors",
    46: "GPU stopped processing",
    48: "Double Bit ECC Error",
    54: "Auxiliary power is not connected to the GPU board",
    60: "Video processor exception",
    61: "Internal micro-controller breakpoint",
    62: "Internal micro-controller halt",
    63: "GPU memory remapping event",
    64: "GPU memory remapping failure",
    65: "Video processor exception",
    66: "Illegal access by driver",
    67: "Illegal access by driver",
    68: "NVDEC0 Exception",
    69: "Graphics Engine class error",
    70: "CE3: Unknown Error",
    71: "CE4: Unknown Error",
    72: "CE5: Unknown Error",
    73: "NVENC2 Error",
    74: "NVLink Error",
    75: "CE6: Unknown Error",
    76: "CE7: Unknown Error",
    77: "CE8: Unknown Error",
    78: "vGPU Start Error",
    79: "GPU has fallen off the bus",
    80: "Corrupted data sent to GPU",
    81: "VGA Subsystem Error",
    82: "NVJPG0 Error",
    83: "NVDEC1 Error",
    84: "NVDEC2 Error",
    85: "CE9: Unknown Error",
    86: "OFA Exception",
    88: "NVDEC3 Error",
    89: "NVDEC4 Error",
    92: "High single-bit ECC error rate",
    93: "Non-fatal violation of provisioned infoROM wear limit",
    94: "Contained memory error",
    95: "Uncontained memory error",
    96: "NVDEC5 Error",
    97: "NVDEC6 Error",
    98: "NVDEC7 Error",
    99: "NVJPG1 Error",
    100: "NVJPG2 Error",
    101: "NVJPG3 Error",
    102: "NVJPG4 Error",
    103: "NVJPG5 Error",
    104: "NVJPG6 Error",
    105: "NVJPG7 Error",
    106: "SMBPBI Test Message",
    107: "SMBPBI Test Message Silent",
    109: "Context Switch Timeout Error",
    110: "Security Fault Error",
    111: "Display Bundle Error Event",
    112: "Display Supervisor Error",
    113: "DP Link Training Error",
    114: "Display Pipeline Underflow Error",
    115: "Display Core Channel Error",
    116: "Display Window Channel Error",
    117: "Display Cursor Channel Error",
    118: "Display Pixel Pipeline Error",
    119: "GSP RPC Timeout",
    120: "GSP Error",
    121: "C2C Error",
    122: "SPI PMU RPC Read Failure",
    123: "SPI PMU RPC Write Failure",
    124: "SPI PMU RPC Erase Failure",
    125: "infoROM FS Failure",
    126: "CE10: Unknown Error",
    127: "CE11: Unknown Error",
    128: "CE12: Unknown Error",
    129: "CE13: Unknown Error",
    130: "CE14: Unknown Error",
    131: "CE15: Unknown Error",
    132: "CE16: Unknown Error",
    133: "CE17: Unknown Error",
    134: "CE18: Unknown Error",
    135: "CE19: Unknown Error",
    136: "Link Training Failed",
    137: "NVLink Privilege Error",
    139: "OFA1 Error",
    140: "ECC Unrecovered Error",
    141: "CUDA Fast Path Error",
    142: "NVENC3 Error",
    143: "GPU Initialization Error",
    144: "NVLink: SAW Error",
    145: "NVLink: RLW Error",
    146: "NVLink: TLW Error",
    147: "NVLink: TREX Error",
    148: "NVLink: NVLPW_CTRL Error",
    149: "NVLink: NETIR Error",
    150: "NVLink: MSE Error",
    151: "Key rotation Error",
    152: "DLA SMMU Error",
    153: "DLA timeout Error",
    154: "GPU Recovery Action Changed",
    155: "NVLink: SW Defined Error",
    156: "Resource Retirement Event",
    157: "Resource Retirement Failure",
    158: "GPU Fatal Timeout",
    159: "CHI Non-Data Error",
    160: "Channel Retirement Event",
    161: "Channel Retirement Failure",
    162: "Power Smoothing HW Circuitry capability reengaged",
    163: "Power Smoothing HW Circuitry capability disengaged",
    164: "Power Smoothing HW Circuitry low lifetime reached",
    165: "Power Smoothing HW Circuitry lifetime exhausted",
    166: "NVLink traffic before its encryption was configured",
    167: "PCIe fatal timeout",
    168: "Errors found in WPR (write protected region)",
    169: "Internal micro-controller halt",
    170: "NVLink interrupt with confidential computing",
    171: "Details of Xid 48: DRAM",
    172: "Details of Xid 48: SRAM",
    173: "C2C Fatal Error",
    185: "Sparing Event",
}

DEPRECATED = (
    1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28, 29, 30, 33, 34, 35, 36, 42,
    47, 49, 50, 51, 52, 53, 55, 56, 57, 58, 59, 65, 73, 81, 87, 90, 91, 111, 112, 113, 114, 115, 116, 117, 118,
    122, 123, 124, 125, 138,
)  # fmt: skip
"""Codes without a current meaning; before Ampere or with old drivers they may occur."""

APPLICATION = (
    8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94, 96,
    97, 98, 99, 100, 101, 102, 103, 104, 105, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 137, 139,
)  # fmt: skip
"""Codes that end an application and leave the GPU usable."""

FATAL_SXIDS = (
    10003, 11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12020, 12022, 12024, 12025, 12026, 12027, 12030,
    12031, 12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061,
    19063, 19064, 19066, 19067, 19069, 19070, 20034, 22003, 22011, 22012, 23001, 23002, 23003, 23004, 23005, 23006,
    23007, 23008, 23009, 23010, 23011, 23012, 23013, 23014, 23015, 23016, 23017, 24004, 24005, 24006, 24007,
)  # fmt: skip

NVLINK_5 = tuple(range(144, 151))
_SOLO, _LINK_ERROR = 45, 74


def name_of(code: int) -> str:
    """The name of an Xid, with its number."""
    name = NAMES.get(code)
    return f"Xid {code} ({name})" if name else f"Xid {code}"


@dataclass(frozen=True)
class Surroundings:
    """What decides about an Xid besides its text. `is_caused`: the same GPU has had another Xid. `architecture` is as
    nvidia-smi names it, in lower case, None where it does not."""

    is_caused: bool = False
    rows_are_known: bool = False
    has_fabric_manager: bool = False
    architecture: str | None = None
    driver_version: str | None = None


_OLD_ARCHITECTURES = ("fermi", "kepler", "maxwell", "pascal", "volta", "turing")


def qualifiers(event: Event, around: Surroundings) -> frozenset[str]:
    """What the text of an Xid decides, for `when` of a row."""
    return frozenset(_qualifiers(event, around))


def _qualifiers(event: Event, around: Surroundings) -> Iterator[str]:
    code = event.code
    if code == _SOLO:
        if around.is_caused or event.cause is not None:
            yield "caused"
        elif around.has_fabric_manager:
            yield "solo"
    elif code == _LINK_ERROR:
        yield _link_error(event.text)
    elif code in NVLINK_5:
        yield _nvlink_5(event, around.driver_version)
    elif code == 154 and event.action is not None:
        yield f"{event.action[0]:#x}"
    elif around.rows_are_known:
        yield "rows_are_known"
    if around.architecture in _OLD_ARCHITECTURES:
        yield "before_ampere"
    if event.is_fatal is not None:
        yield "stated_fatal" if event.is_fatal else "stated_nonfatal"


def meaning(event: Event) -> object:
    """What of an event's text decides; events that differ only in the rest mean the same."""
    if event.kind == "xid":
        if event.code == _LINK_ERROR:
            return _link_error(event.text)
        if event.code in NVLINK_5:
            return _nvlink_5(event, "570"), _nvlink_5(event, "580")
        if event.code == 13:
            return unit_of(event)
        return None
    return event.detail if event.kind in ("aer", "link_down", "uuid") else None


# Bits of the registers of an NVLink error, valid on Hopper: (register, bits, meaning), the most severe first.
_LINK_REGISTERS = (
    (4, (18,), "fabric"),
    (1, (8, 9, 12, 16, 17, 24, 28), "mechanics"),
    (1, (21, 22), "signal"),
    (1, (4, 5), "ecc"),
    (3, (0, 1, 2, 6), "ecc"),
)
_IGNORED_LINK_BITS = ((1, (0, 23, 30)), (5, (20, 23, 26, 29)))


def _link_error(text: str) -> str:
    """What the seven registers of Xid 74 decide: `fabric`, `mechanics`, `signal`, `ecc`, `harmless` or `other`."""
    found = re.search(r"\(((?:0x[0-9a-fA-F]{1,8}(?:, {0,2})?){5,7})\)", text)
    if not found:
        return "other"
    registers = [int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", found[1])]

    def left(number: int, bits: Iterable[int]) -> int:
        return registers[number - 1] & sum(1 << bit for bit in bits)

    for number, bits, meaning in _LINK_REGISTERS:
        if left(number, bits):
            return meaning
    harmless = [0] * len(registers)
    for number, ignored in _IGNORED_LINK_BITS:
        harmless[number - 1] = left(number, ignored)
    return "harmless" if any(registers) and harmless == registers else "other"


# Exceptions from the severity that the line states: unit, pattern of the first word (bit 31 first; - is any) with
# drivers before 575 and since, meaning.
_NVLINK_5_EXCEPTIONS = (
    ("NETIR_LINK", "------100110----------0111000110", "------100110-------------0010001", "intended"),
    ("NETIR_LINK", "------101000----------0111000110", "------101000-------------0010001", "intended"),
    ("RLW_RXPIPE", "------000000---------10011000010", "------000000------------10000110", "fatal"),
    ("RLW_REMAP", "-" * 32, "-" * 32, "application"),
    ("RLW_SRC_TRACK", "-" * 32, "-" * 32, "application"),
)


def _nvlink_5(event: Event, driver_version: str | None) -> str:
    """What a line of Xid 144 to 150 decides: `fatal`, `nonfatal`, `intended` or `application`."""
    found = re.search(r"\((0x[0-9a-fA-F]{1,8}) ", event.text)
    word = int(found[1], 16) if found else 0
    branch = (driver_version or "").partition(".")[0]
    is_new = not branch.isdigit() or int(branch) >= 575
    for unit, before, since, meaning in _NVLINK_5_EXCEPTIONS:
        applies = meaning != "application" or event.is_fatal is False
        if applies and unit in event.text and _matches(word, since if is_new else before):
            return meaning
    return "nonfatal" if event.is_fatal is False else "fatal"


def _matches(word: int, pattern: str) -> bool:
    return all(want in ("-", have) for want, have in zip(pattern, f"{word:032b}"))


def unit_of(event: Event) -> str:
    """The part of the GPU that an exception names, so that only the same one counts as a repetition."""
    found = re.search(r"GPC \d{1,4}, TPC \d{1,4}", event.text) if event.code == 13 else None
    return found[0] if found else ""


def bursts(times: Sequence[float], gap: float) -> int:
    """The number of groups of times that are at least `gap` seconds apart."""
    ordered = sorted(times)
    return sum(1 for place, time in enumerate(ordered) if place == 0 or time - ordered[place - 1] >= gap)
