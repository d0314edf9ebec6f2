# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of the kernel log, against lines of real logs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log import Event, parse, time_of

FIXTURE = Path(__file__).with_name("fixtures") / "kernel-log.txt"

# Events that are no faults: the fixture has them as `none`.
HARMLESS = frozenset(("driver_loaded", "firmware_missing"))

# Where the fixture's expectation is not what the line states, with the reason.
WRONG_EXPECTATIONS = {
    # The line names the device: `Request device [00:02.0]`.
    ("080", 0): "iommu - 00:02 -",
    # The driver's watchdog states that the GPU does not respond; the fixture is older than this event.
    ("073", 0): "watchdog - - -",
}


@dataclass
class Block:
    """One log excerpt with the expected reading of each line."""

    name: str
    lines: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)


def blocks() -> list[Block]:
    found: list[Block] = []
    for line in FIXTURE.read_text().splitlines():
        if line.startswith("@"):
            found.append(Block(line[1:4]))
        elif line.startswith("> "):
            found[-1].expected.append(line[2:])
        elif found and line:
            found[-1].lines.append(line)
    return found


BLOCKS = blocks()


def extra(event: Event) -> str:
    """The rest of an expectation, as far as the reader gives it."""
    if event.action:
        return f"{event.action[0]:#x} {event.action[1]}"
    if event.cause:
        return f"caused_by {event.cause}"
    if event.kind in ("xid", "uuid", "init_failed", "aer"):
        mig = [("GPU-I", event.gpu_instance), ("GPU-CI", event.compute_instance)]
        return " ".join(f"{name}:{number:02}" for name, number in mig if number is not None) or event.detail or "-"
    if event.kind == "sxid" and event.is_fatal is not None:
        return "Fatal" if event.is_fatal else "Non-fatal"
    return "-"


def reading(event: Event | None, like: str) -> str:
    """An event in the fixture's format; notes for people (`Severity 1`, `SOE HALT`) are taken from the expectation."""
    if event is None or event.kind in HARMLESS:
        return "none - - -"
    code = "-" if event.code is None else str(event.code)
    pci = event.pci or ("?" if event.kind == "xid" else "-")
    more = extra(event)
    expected_more = like.split(" ", 3)[3]
    if more == "-" and expected_more.split()[0] in ("block", "Severity", "Data", "SOE") and event.text:
        more = expected_more
    return f"{event.kind} {code} {pci} {more}"


@pytest.mark.parametrize("block", BLOCKS, ids=[block.name for block in BLOCKS])
def test_each_line_of_a_real_log(block: Block) -> None:
    events = {event.line: event for event in parse(block.lines)}
    for number, expected in enumerate(block.expected):
        right = WRONG_EXPECTATIONS.get((block.name, number), expected)
        assert reading(events.get(number), right) == right, block.lines[number]


def test_all_blocks_are_read() -> None:
    assert len(BLOCKS) == 92
    assert sum(len(block.lines) for block in BLOCKS) == sum(len(block.expected) for block in BLOCKS) == 252


ONE = "NVRM: Xid (PCI:0000:3b:00): 31, pid=12, name=python3, Ch 00000008"
XIDS = [
    (ONE, (31, 12, "python3", "Ch 00000008")),
    ("NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, Ch 1", (31, None, None, "Ch 1")),
    ("NVRM: Xid (PCI:0000:3b:00): 31, pid=<unknown>, name=<unknown>, Ch 1", (31, None, None, "Ch 1")),
    ("NVRM: Xid (PCI:0000:3b:00): 46, pid=1234", (46, 1234, None, "")),
    ("NVRM: Xid (PCI:0000:3b:00): 46", (46, None, None, "")),
    ("NVRM: Xid (PCI:0000:3b:00.0): 8, pid=5678, name=idle timeout", (8, 5678, "idle timeout", "")),
    ("NVRM: Xid (0000:3b:00): 13, 0003 00000000", (13, None, None, "0003 00000000")),
    ("NVRM: Xid (PCI:00000000:3b:00): 145, pid=1, name=ray::Worker.x, RLW", (145, 1, "ray::Worker.x", "RLW")),
    ("NVRM: Xid (PCI:0000:3b:00): 79 GPU has fallen off the bus.", (79, None, None, "GPU has fallen off the bus.")),
    # A process may have any name.
    ("NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=pid=2, Ch 1", (43, 1, "pid=2", "Ch 1")),
]


@pytest.mark.parametrize(("line", "expected"), XIDS)
def test_fields_of_an_xid(line: str, expected: tuple[int, int | None, str | None, str]) -> None:
    (event,) = parse([line])
    assert (event.code, event.pid, event.process, event.text) == expected


@pytest.mark.parametrize(
    ("text", "is_fatal"),
    [("NETIR Fatal XC0", True), ("RLW Nonfatal XC0", False), ("Non-fatal, Link", False), ("", None)],
)
def test_severity_that_a_line_states(text: str, is_fatal: bool | None) -> None:
    assert parse([f"NVRM: Xid (PCI:0000:3b:00): 149, {text}"])[0].is_fatal is is_fatal


LOST = [
    ["NVRM: The NVIDIA GPU 0000:b3:00.0#012NVRM: (PCI ID: 10de:26b5) installed has#012NVRM: fallen off the bus and"],
    [
        "[ 1.0] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "[ 1.0] NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "[ 1.0] NVRM: fallen off the bus and is not responding to commands.",
    ],
    ["NVRM: GPU at 0000:b3:00.0 has fallen off the bus."],
    ["NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus."],
]


@pytest.mark.parametrize("lines", LOST)
def test_a_fall_off_the_bus_without_xid(lines: list[str]) -> None:
    (event,) = parse(lines)
    assert (event.kind, event.code, event.pci) == ("lost", 79, "0000:b3:00")


def test_a_gpu_that_this_driver_does_not_support_is_not_lost() -> None:
    lines = [
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:1db4)",
        "NVRM: installed in this system is not supported by open",
        "NVRM: The NVIDIA GPU 0000:b4:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]
    assert [(event.kind, event.pci) for event in parse(lines)] == [
        ("unsupported", "0000:b3:00"),
        ("lost", "0000:b4:00"),
    ]


def test_aer_names_the_device_in_error_and_not_the_port_that_reports_it() -> None:
    (event,) = parse(["pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:3b:00.0"])
    assert (event.pci, event.detail) == ("0000:3b:00", "fatal")


BOOT = 1_700_000_000.0
TIMES = [
    (f"1732281234.500000 host1 kernel: {ONE}", 1732281234.5),
    (f"[  100.250000] {ONE}", BOOT + 100.25),
    (f"May 10 22:25:01 host1 kernel: [  100.250000] {ONE}", BOOT + 100.25),
    (f"2024-01-15T03:00:00,500000+00:00 {ONE}", 1705287600.5),
    (f"kern: warning: [2024-01-15T03:00:00.500000000Z]: {ONE}", 1705287600.5),
    (f"2024-01-15T03:00:00-0400 host1 kernel: {ONE}", 1705302000.0),
    (f"2024-99-15T03:00:00+00:00 {ONE}", None),
    # No year.
    (f"May 10 22:25:01 host1 kernel: {ONE}", None),
    (ONE, None),
    # Months and days in the languages of the hosts.
    (f"11月 15 14:15:47 host1 kernel: {ONE}", None),
    (f"11월 15 14:15:47 host1 kernel: {ONE}", None),
    (f"september 15 14:15:47 host1 kernel: {ONE}", None),
    (f"[三 11月 15 14:15:47 2023] {ONE}", None),
    # journalctl --output=short-full, dmesg --color=always, dmesg --reltime where numbers have a comma.
    (f"Wed 2023-11-15 14:15:47 CET host1 kernel: {ONE}", None),
    (f"Wed 2023-11-15 14:15:47 UTC host1 kernel: {ONE}", 1700057747.0),
    (f"\x1b[32m[  100.250000] \x1b[0m\x1b[33mNVRM: \x1b[0m{ONE[6:]}", BOOT + 100.25),
    (f"[  +0,000012] {ONE}", None),
    (f"4,1234,100250000,-;{ONE}", BOOT + 100.25),
    (f"<4>1 2024-01-15T03:00:00.500000+00:00 host1 kernel - - -  {ONE}", 1705287600.5),
    # A counter that has overflowed.
    (f"[18446744073.709551] {ONE}", None),
    (f"[99999999999999999999.999999] {ONE}", None),
]


@pytest.mark.parametrize(("line", "time"), TIMES)
def test_time_of_an_event(line: str, time: float | None) -> None:
    assert parse([line], BOOT)[0].time == time


# Forms of syslog daemons, and what they leave before the message. Lines of others with the same beginning:
FORMS = [
    # rsyslog, RSYSLOG_SyslogProtocol23Format and its file without a priority:
    # https://bugzilla.kernel.org/show_bug.cgi?id=216851
    "2022-12-26T07:44:45.000000+01:00 server02 kernel - - - ",
    "2022-12-26T07:44:45.000000+01:00 server02 kernel - - -  ",
    "<4>1 2022-12-26T07:44:45.000000+01:00 server02 kernel - - -  ",
    "<4>1 2022-12-26T07:44:45.000000+01:00 server02 kernel - - - [  100.250000] ",
    # The parts of RFC 5424, section 6.5: structured data, with a bracket that is escaped, and the mark of UTF-8.
    '<4>1 2003-10-11T22:14:15.003Z server02 kernel - ID47 [exampleSDID@32473 iut="3" a="b\\]c"][x@1 y="z"] \ufeff',
    "<4>1 2003-10-11T22:14:15.003Z server02 kernel 0 - - ",
    "<4>2022-12-26T07:44:45.000000+01:00 server02 kernel: ",
    "<4>Dec 26 07:44:45 server02 kernel: [  100.250000] ",
    # linux-dgwd: https://github.com/andikleen/mcelog/issues/74
    "2019-08-19T04:18:38.274652-04:00 linux-dgwd kernel: [ 261.273226] ",
    # BusyBox's syslogd, and OpenWrt's logread, which has no host.
    "Jan  1 00:00:27 (none) kern.warn kernel: [    4.100000] ",
    "Thu Jan  1 00:00:27 1970 kern.warn kernel: [    4.100000] ",
    # dmesg: --raw, --decode, --ctime, --reltime, --show-delta with each, --time-format; /dev/kmsg.
    "<4>[  100.250000] ",
    "kern  :warn  : [  100.250000] ",
    "kern  :warn  : 2023-11-14T22:13:20,000000+00:00 ",
    "[Tue Nov 14 22:13:20 2023] ",
    "[Tue Nov 14 22:13:20 2023 <    0.000044>] ",
    "[  100.250000 <    0.000044>] ",
    "[<    0.000044>] ",
    "[Nov14 22:13] ",
    "[  +0.000044] ",
    "4,1234,100250000,-;",
    "4,1234,100250000,-,caller=T1;",
]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_line(form: str) -> None:
    (event,) = parse([form + ONE], BOOT)
    assert (event.kind, event.code, event.process) == ("xid", 31, "python3")


@pytest.mark.parametrize(
    "form",
    [
        "<134>1 2022-12-26T07:44:45Z server02 kernel - - - ",
        "<4>1 2022-12-26T07:44:45Z server02 app - - - kernel - - - ",
        "<4>1 2022-12-26T07:44:45Z server02 app 12 kernel - - - ",
        "2022-12-26 07:44:45 worker kernel launch failed - ",
        "2022-12-26 07:44:45 worker kernel 5 failed - ",
        "Jan  1 00:00:27 server02 user.notice kernel: ",
        "Thu Jan  1 00:00:27 1970 user.notice kernel: ",
        "Thu Jan  1 00:00:27 1970 daemon.err kernel: ",
    ],
)
def test_what_another_program_has_logged(form: str) -> None:
    assert parse([form + ONE], BOOT) == ()


def test_time_since_boot_is_unknown_without_the_time_of_the_boot() -> None:
    assert time_of(f"[  100.250000] {ONE}") is None


IOMMU = [
    "iommu ivhd0: AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:3b:00.0 domain=0x0001 address=0x0 flags=0x0020]",
    "pci 0000:00:00.2: AMD-Vi: Event logged [INVALID_DEVICE_REQUEST device=0000:3b:00.0 pasid=0x00000 address=0x0]",
    "nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001c address=0xd0826240 flags=0x0020]",
    "DMAR: [DMA Read NO_PASID] Request device [0x3b:0x00.0] fault addr 0x7c592000 [fault reason 0x06]",
]


@pytest.mark.parametrize("line", IOMMU)
def test_the_device_of_a_fault_and_not_the_iommu(line: str) -> None:
    (event,) = parse([line])
    assert (event.kind, (event.pci or "")[-5:]) == ("iommu", "3b:00")


def test_what_the_driver_reports_while_it_is_loaded_is_of_this_load() -> None:
    begins = "nvidia-nvlink: Nvlink Core is being initialized, major device number 237"
    loaded = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  510.108.03  Thu Oct 20 05:10:45 UTC 2022"
    invalid = "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)"
    kinds = [event.kind for event in parse([invalid, begins, invalid, loaded, begins, loaded, loaded])]
    assert kinds == ["bar_invalid", "driver_loaded", "bar_invalid", "driver_loaded", "driver_loaded"]


def test_a_gpu_that_is_passed_to_a_virtual_machine_is_held_on_purpose() -> None:
    not_called = "NVRM: The NVIDIA probe routine was not called for 1 device(s)."
    for driver in ("vfio-pci", "nvgrace-gpu-vfio-pci", "nvidia_vgpu_vfio", "pci-stub", "pciback", "uio_pci_generic"):
        assert parse([f"NVRM: GPU 0000:3b:00.0 is already bound to {driver}.", not_called]) == ()
    (event,) = parse([not_called])
    assert event.kind == "conflict"


def test_other_lines_are_no_events() -> None:
    lines = [
        "",
        "usb 1-1: new device",
        "systemd[1]: Started Xid.",
        "NVRM: loaded",
        "Xid (PCI:0000:3b:00): 31, not NVRM",
    ]
    assert parse(lines) == ()
