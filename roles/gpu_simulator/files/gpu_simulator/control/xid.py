# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Injection of Xid errors: their lines in the kernel log, and their effects on the GPU; SXid errors of NVSwitches.

The format of the lines was observed in logs of real hosts. The default recovery action of an Xid is modelled on
NVIDIA's catalogue of Xids.
"""

from __future__ import annotations

import os
import time

from ..state import branches, recovery

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Mapping, Sequence

    from ..state.shapes import Gpu, KernelLine, State

RECOVERY_ACTION_CHANGED = 154
UNKNOWN_PROCESS = "pid='<unknown>', name=<unknown>"
ERROR_PRIORITY = 3
LOG = "var/log/kern.log"
"""Where syslog keeps the kernel's messages on Debian and Ubuntu."""
BOOT_LOG = "run/gpu-simulator/kernel.log"
"""The lines since the boot, in place of a kernel log that a container does not have."""

_REGISTERS = "0x00000000 0x00000000 0x00000000 0x00000000 0x00000000"


class Xid:
    """One kind of Xid: its text, whether the driver names a process before it, and its recovery action."""

    def __init__(self, text: str, process: bool = True, action: int = recovery.NONE) -> None:
        self.text = text
        self.names_process = process
        self.action = action


KNOWN: Mapping[int, Xid] = {
    13: Xid("Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address"),
    31: Xid(
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
    ),
    32: Xid("Channel ID 00000018 intr 00008000"),
    43: Xid("Ch 00000008"),
    45: Xid("Ch 00000001"),
    48: Xid(
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x18f31d80 "
        "partition 16, subpartition 3."
    ),
    62: Xid(
        "323f0f30 0000c3d8 00000000 206dae68 206da022 206da190 206d85f6 206d8d86",
        process=False,
        action=recovery.GPU_RESET,
    ),
    63: Xid("Row Remapper: New row (0x0000000018f31d80) marked for remapping, reset gpu to activate."),
    69: Xid("Class Error: ChId 0008, Class 0000cbc0, Offset 00000184, Data ffffffff, ErrorCode 00000004"),
    74: Xid("NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"),
    79: Xid("GPU has fallen off the bus.", action=recovery.NODE_REBOOT),
    94: Xid("Contained: SM (0x1). RST: No, D-RST: No"),
    95: Xid("Uncontained: LTC TAG (0x2,0x1). RST: Yes, D-RST: No", action=recovery.GPU_RESET),
    109: Xid("Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005", action=recovery.GPU_RESET),
    119: Xid(
        "Timeout after 6s of waiting for RPC response from GPU{index} GSP! "
        "Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8).",
        action=recovery.GPU_RESET,
    ),
    120: Xid(
        "GSP task exception: load access page fault (cause:0xd) @ pc:0x13636b2",
        process=False,
        action=recovery.GPU_RESET,
    ),
    144: Xid(f"SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 {_REGISTERS})", process=False),
    145: Xid(f"RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 {_REGISTERS})", process=False),
    149: Xid(
        f"NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 {_REGISTERS})",
        process=False,
        action=recovery.DRAIN_AND_RESET,
    ),
    171: Xid("GDDR, Uncorrectable DRAM error in FBPA 3 subpartition 0 physAddr 0xe9b9107e0", process=False),
}
"""Codes with a known line of a real host; any other needs a text."""


class Origin:
    """Origin that an Xid names: a process (PID and name), a MIG GPU instance and its compute instance."""

    def __init__(
        self,
        process: tuple[int, str] | None = None,
        gpu_instance: int | None = None,
        compute_instance: int | None = None,
    ) -> None:
        self.process = process
        self.gpu_instance = gpu_instance
        self.compute_instance = compute_instance


def line(gpu: Gpu, index: int, code: int, text: str | None, origin: Origin) -> str:
    """Return the line of an Xid; the default text is a real host's, for codes in KNOWN."""
    known = KNOWN.get(code)
    message = KNOWN[code].text.format(index=index) if text is None else text
    place = "PCI:" + place_of(gpu)
    if origin.gpu_instance is not None:
        place += f" GPU-I:{origin.gpu_instance:02}"
    if origin.compute_instance is not None:
        place += f" GPU-CI:{origin.compute_instance:02}"
    by = "pid={}, name={}".format(*origin.process) if origin.process else UNKNOWN_PROCESS
    named = bool(origin.process) or known is None or known.names_process
    return f"NVRM: Xid ({place}): {code}, " + (f"{by}, " if named else "") + message


def place_of(gpu: Gpu) -> str:
    """Return a bus id in the kernel log's format: a domain of four digits, no function."""
    return gpu["bus_id"][4:].lower().rpartition(".")[0]


def action_line(gpu: Gpu, before: int, after: int, driver_version: str) -> str:
    """Return the line of Xid 154 about a change of the recovery action."""
    version = branches.parse(driver_version)
    old, new = (f"{number:#x} ({recovery.kernel_text(number, version)})" for number in (before, after))
    return (
        f"NVRM: Xid (PCI:{place_of(gpu)}): {RECOVERY_ACTION_CHANGED}, GPU recovery action changed from {old} to {new}"
    )


def introduction(gpu: Gpu) -> str:
    """Return the line with which the driver names the GPU before its first Xid."""
    return "NVRM: GPU at PCI:{}: {}".format(place_of(gpu), gpu["uuid"])


def happen(gpu: Gpu, code: int) -> None:
    """Apply an Xid to the GPU: count memory errors, set a row remapping pending, or mark the GPU lost."""
    effect = EFFECTS.get(code)
    if effect:
        effect(gpu)


def _count_double_bit_error(gpu: Gpu) -> None:
    for life in ("volatile", "aggregate"):
        gpu["ecc_errors"][life]["dram_uncorrectable"] += 1


def _mark_row(gpu: Gpu) -> None:
    gpu["remapped_rows"]["uncorrectable"] += 1
    gpu["remapped_rows"]["pending"] = True


def _fail_to_remap(gpu: Gpu) -> None:
    gpu["remapped_rows"]["failure"] = True


def _lose(gpu: Gpu) -> None:
    gpu["health"] = "lost"


EFFECTS: Mapping[int, Callable[[Gpu], None]] = {
    48: _count_double_bit_error,
    63: _mark_row,
    64: _fail_to_remap,
    79: _lose,
}


# NVSwitches


class Sxid:
    """One kind of SXid: its text, and whether the driver states it to be fatal."""

    def __init__(self, text: str, is_fatal: bool = False) -> None:
        self.text = text
        self.is_fatal = is_fatal


KNOWN_SXIDS: Mapping[int, Sxid] = {
    12028: Sxid("egress non-posted PRIV error (First)"),
    20009: Sxid("RX Short Error Rate"),
    20034: Sxid("LTSSM Fault Up", is_fatal=True),
    22013: Sxid("Minion Link DLREQ interrupt"),
    24007: Sxid("sourcetrack timeout error (First)", is_fatal=True),
    28002: Sxid("Therm Warn Deactivated"),
    28006: Sxid("MC TS crumbstore MCTO"),
}
"""Codes with a known line of a real host; any other needs a text."""

_SWITCH_DATA = ", ".join(["0x00000000"] * 9)


def sxid_lines(code: int, text: str, is_fatal: bool | None, switch: int, link: int) -> list[str]:
    """Return the lines of an SXid; with ``is_fatal`` None it has one line, which states nothing about that."""
    begin = f"nvidia-nvswitch{switch}: SXid (PCI:0000:{0xC3 + switch:02x}:00.0): {code}, "
    if is_fatal is None:
        return [begin + text]
    return [
        begin + f"{'Fatal' if is_fatal else 'Non-fatal'}, Link {link:02} {text}",
        begin + f"Severity {int(is_fatal)} Engine instance {link:02} Sub-engine instance 00",
        begin + f"Data {{{_SWITCH_DATA}}}",
    ]


# The log


def log(state: State, lines: Sequence[str]) -> list[KernelLine]:
    """Add lines to the log of this boot; returns them with their times."""
    now, since_boot = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    new: list[KernelLine] = [{"time": now, "since_boot": since_boot, "text": text} for text in lines]
    state.setdefault("kernel_log", []).extend(new)
    return new


def append_to_file(root: str, new: Sequence[KernelLine]) -> None:
    """Write lines into syslog's file."""
    path = os.path.join(root, LOG)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in render(new, "syslog"))


def write_boot_log(root: str, state: State) -> None:
    """Write the lines since the boot as ``dmesg --time-format iso`` prints them, after that with which a log begins."""
    path = os.path.join(root, BOOT_LOG)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"Linux version {os.uname().release}\n")
        file.writelines(line + "\n" for line in render(state.get("kernel_log", []), "iso"))


def write_to_kernel(new: Sequence[KernelLine]) -> None:
    """Write lines into the kernel's real log, which ``dmesg`` and ``journalctl -k`` read; raises OSError."""
    for line in new:
        handle = os.open("/dev/kmsg", os.O_WRONLY)
        try:
            os.write(handle, "<{}>{}\n".format(ERROR_PRIORITY, line["text"]).encode())
        finally:
            os.close(handle)


FORMS = ("dmesg", "syslog", "iso", "kmsg")


def render(log_lines: Sequence[KernelLine], form: str) -> Iterator[str]:
    """Render lines as ``dmesg``, ``journalctl -k`` and kern.log, ``dmesg --time-format iso`` and /dev/kmsg do."""
    host = os.uname().nodename
    for number, line in enumerate(log_lines):
        text, at = line["text"], time.localtime(line["time"])
        seconds = line["since_boot"]
        if form == "dmesg":
            yield f"[{seconds:12.6f}] {text}"
        elif form == "kmsg":
            yield f"{ERROR_PRIORITY},{number},{int(seconds * 1e6)},-;{text}"
        elif form == "iso":
            fraction = "{:06.0f}".format(line["time"] % 1 * 1e6)[:6]
            zone = time.strftime("%z", at)
            yield time.strftime("%Y-%m-%dT%H:%M:%S", at) + f",{fraction}{zone[:3]}:{zone[3:]} {text}"
        else:
            yield time.strftime("%b %d %H:%M:%S", at) + f" {host} kernel: {text}"
