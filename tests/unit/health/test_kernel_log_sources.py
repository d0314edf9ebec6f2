# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the kernel log is read, and when its content is unknown."""

from __future__ import annotations

import errno
import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._health.journal_entries import feed_for
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import _Lines, read_kernel_log

BOOT = 1_700_000_000
XID = "NVRM: Xid (PCI:0000:3b:00): 31, pid=12, name=python3, Ch 00000008"
JOURNAL = f"{BOOT}.100000 host1 kernel: Linux version 6.8\n{BOOT + 50}.000000 host1 kernel: {XID}\n"
DMESG = f"[    0.000000] Linux version 6.8\n[   50.000000] {XID}\n"
MISSING = CommandResult((), None, b"", b"", 0.0, start_error=errno.ENOENT)


def succeeded(text: str, rc: int = 0, errors: str = "") -> CommandResult:
    return CommandResult((), rc, text.encode(), errors.encode(), 0.0)


def programs(**results: CommandResult) -> Callable[[Sequence[str], float], CommandResult]:
    return lambda argv, _timeout: results.get(Path(argv[0]).name, MISSING)


@pytest.fixture(name="files")
def _files(tmp_path: Path) -> HostFiles:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "stat").write_text(f"cpu 1 2\nbtime {BOOT}\n")
    return HostFiles(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "results", "used"),
    [
        ("auto", {"journalctl": succeeded(JOURNAL), "dmesg": succeeded("")}, "journal"),
        ("auto", {"dmesg": succeeded(DMESG)}, "dmesg"),
        ("auto", {"journalctl": succeeded("-- No entries --\n"), "dmesg": succeeded(DMESG)}, "dmesg"),
        ("dmesg", {"journalctl": succeeded(JOURNAL), "dmesg": succeeded(DMESG)}, "dmesg"),
        ("journal", {"journalctl": succeeded(JOURNAL)}, "journal"),
    ],
)
def test_source(source: str, results: dict[str, CommandResult], used: str, files: HostFiles) -> None:
    log = read_kernel_log(source, 5.0, files, programs(**results))
    assert log.source == used
    assert [(event.code, event.time) for event in log.events] == [(31, BOOT + 50)]
    assert log.is_complete


@pytest.mark.parametrize(
    ("source", "results", "reason"),
    [
        ("auto", {}, "there is no journalctl; there is no dmesg"),
        ("journal", {"dmesg": succeeded(DMESG)}, "there is no journalctl"),
        ("journal", {"journalctl": succeeded("")}, "journalctl has no line of the kernel"),
        ("dmesg", {"dmesg": succeeded("", 1, "Operation not permitted")}, "dmesg failed: Operation not permitted"),
        ("dmesg", {"dmesg": CommandResult((), None, b"", b"", 5.0, timed_out=True)}, "dmesg takes too long"),
        ("none", {"journalctl": succeeded(JOURNAL)}, "it is not read (kernel_log: none)"),
        ("/var/log/kernel", {}, "/var/log/kernel cannot be read"),
    ],
)
def test_a_log_that_cannot_be_read_is_unknown_and_not_empty(
    source: str, results: dict[str, CommandResult], reason: str, files: HostFiles
) -> None:
    log = read_kernel_log(source, 5.0, files, programs(**results))
    assert (log.source, log.reason) == (None, reason)


@pytest.mark.parametrize("sign", ["run/.containerenv", ".dockerenv", "run/systemd/container"])
def test_a_container_does_not_read_the_log_of_the_host_that_runs_it(sign: str, files: HostFiles) -> None:
    path = Path(files.root, sign)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    log = read_kernel_log("auto", 5.0, files, programs(dmesg=succeeded(DMESG)))
    assert log.source is None
    assert "container" in (log.reason or "")


LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus."
USB = "usb 1-1: new high-speed USB device number {}"


def journal_of(*lines: tuple[float, str]) -> CommandResult:
    return succeeded("".join(f"{BOOT + time:.6f} host1 kernel: {text}\n" for time, text in lines))


def dmesg_of(*lines: tuple[float, str]) -> CommandResult:
    return succeeded("".join(f"[{time:12.6f}] {text}\n" for time, text in lines))


STORM = [(900.0 + number, XID) for number in range(50)]
# The host has logged these; the journal was rotated, and begins with the last ones.
LOGGED = [(0.0, "Linux version 6.8"), (50.0, LOST), *STORM, (1000.0, USB.format(1)), (1001.0, XID)]


@pytest.mark.parametrize("kept", [1, 2, 10, 51, 52])
# The clock was set, and the journal has the time at which it got a message.
@pytest.mark.parametrize("step", [0.0, 0.000_300, 3600.0, -500.0])
# What came between the end of one program and that of the next.
@pytest.mark.parametrize("newer", [(), ((1002.0, USB.format(2)),), ((1002.0, XID), (1003.0, USB.format(2)))])
def test_what_the_journal_has_lost_is_in_dmesg(
    kept: int, step: float, newer: tuple[tuple[float, str], ...], files: HostFiles
) -> None:
    results = {
        "journalctl": journal_of(*((max(time + step, 200.0), text) for time, text in LOGGED[-kept:])),
        "dmesg": dmesg_of(*LOGGED, *newer),
    }
    log = read_kernel_log("auto", 5.0, files, programs(**results))
    assert (log.source, log.is_complete, log.since) == ("journal and dmesg", True, BOOT)
    # Of one line nothing shows which of the same ones it is: the newer one counts as well, and is one.
    assert {event.code: event.count for event in log.events} == {79: 1, 31: 51 + (kept == 1 and len(newer) == 2)}
    assert [event.code for event in log.events] == [79, 31]
    assert log.events[0].time == BOOT + 50
    # One explicit source is that one.
    assert not read_kernel_log("journal", 5.0, files, programs(**results)).is_complete


def test_the_journal_has_lost_messages_in_the_middle_as_well(files: HostFiles) -> None:
    kept = [(900.0, XID), (1000.0, USB.format(3))]
    lost = [(0.0, "Linux version 6.8"), (50.0, LOST), (60.0, USB.format(1)), (950.0, USB.format(2))]
    results = {"journalctl": journal_of(*kept), "dmesg": dmesg_of(*sorted([*lost, *kept]))}
    log = read_kernel_log("auto", 5.0, files, programs(**results))
    assert (log.source, log.is_complete) == ("journal and dmesg", True)
    assert [(event.code, event.count) for event in log.events] == [(79, 1), (31, 1)]


def test_the_driver_has_named_the_gpu_before_the_journal_begins(files: HostFiles) -> None:
    uuid = "GPU-fa2d22b0-24c9-7fb4-013b-3f5e7bb83a7b"
    kept = [(900.0, XID)]
    results = {
        "journalctl": journal_of(*kept),
        "dmesg": dmesg_of((0.0, "Linux version 6.8"), (50.0, f"NVRM: GPU at PCI:0000:3b:00: {uuid}"), *kept),
    }
    assert {event.uuid for event in read_kernel_log("auto", 5.0, files, programs(**results)).events} == {uuid}


def test_neither_reaches_back_to_the_boot(files: HostFiles) -> None:
    results = {"journalctl": journal_of((900.0, XID)), "dmesg": dmesg_of((500.0, LOST), (900.0, XID))}
    log = read_kernel_log("auto", 5.0, files, programs(**results))
    assert (log.source, log.is_complete, log.since) == ("journal and dmesg", False, BOOT + 500)
    assert [event.code for event in log.events] == [79, 31]


@pytest.mark.parametrize(
    "dmesg", [MISSING, succeeded("", 1, "Operation not permitted"), dmesg_of((950.0, USB.format(1)))]
)
def test_dmesg_has_nothing_older(dmesg: CommandResult, files: HostFiles) -> None:
    results = {"journalctl": journal_of((900.0, XID), (950.0, USB.format(1))), "dmesg": dmesg}
    log = read_kernel_log("auto", 5.0, files, programs(**results))
    assert not log.is_complete
    assert [(event.code, event.count) for event in log.events] == [(31, 1)]


def test_a_journal_that_is_not_complete_in_a_container(files: HostFiles) -> None:
    Path(files.root, ".dockerenv").touch()
    results = {"journalctl": journal_of((900.0, XID)), "dmesg": dmesg_of(*LOGGED)}
    log = read_kernel_log("auto", 5.0, files, programs(**results))
    assert (log.source, [event.code for event in log.events]) == ("journal", [31])


def test_a_file(files: HostFiles) -> None:
    Path(files.root, "log").write_text(f"[   50.000000] {XID}\n")
    assert read_kernel_log("/log", 5.0, files, programs()).events[0].time == BOOT + 50


# One line of the kernel in each form of dmesg, journalctl and syslog, without any event.
@pytest.mark.parametrize(
    "line",
    [
        "Linux version 6.8.0-52-generic",
        "[    0.000000] Command line: ro",
        "[    0.000000][    T0] Command line: ro",
        "[Tue Nov 14 22:13:20 2023] Command line: ro",
        "[Nov14 22:13] Command line: ro",
        "[  +0.000844] Command line: ro",
        "kern  :info  : [    0.000000] Command line: ro",
        "kern  :info  : Command line: ro",
        "<6>[    0.000000] Command line: ro",
        "6,1,0,-;Command line: ro",
        "2023-11-14T22:13:20,000000+00:00 Command line: ro",
        "2023-11-14T22:13:20+0000 host1 kernel: Command line: ro",
        "Nov 14 22:13:20 host1 kernel: Command line: ro",
        "1700000000.000000 host1 kernel: Command line: ro",
        "kernel: Command line: ro",
        # journalctl --output=short-delta
        "[    1.000000                ] host1 kernel: Command line: ro",
        "[    1.000000 <    0.000044 >] host1 kernel: Command line: ro",
        "[    1.000000 <    0.000044*>] host1 kernel: Command line: ro",
        "[<    0.000044>] Command line: ro",
        "[Tue Nov 14 22:13:20 2023 <    0.000044>] Command line: ro",
        "<6>1 2023-11-14T22:13:20.000000+00:00 host1 kernel - - - Command line: ro",
        "Tue Nov 14 22:13:20 2023 kern.info kernel: [    0.000000] Command line: ro",
        XID,
    ],
)
def test_a_line_of_the_kernel_and_others(line: str, files: HostFiles) -> None:
    others = "Nov 14 22:13:20 host1 sshd[12]: text\n" * 3
    Path(files.root, "log").write_text(f"{others}{line}\n{others}")
    assert read_kernel_log("/log", 5.0, files, programs()).source == "/log"


@pytest.mark.parametrize("stamp", ["[   50.000000                ]", "[   50.000000 <    0.000044 >]"])
def test_the_time_between_two_lines(stamp: str, files: HostFiles) -> None:
    Path(files.root, "log").write_text(f"{stamp} host1 kernel: {XID}\n")
    assert [event.time for event in read_kernel_log("/log", 5.0, files, programs()).events] == [BOOT + 50]


@pytest.mark.parametrize(
    "prefix", ["<11>", "<11>[   50.000000] ", "12,1,50000000,-;", "user  :err   : [   50.000000] "]
)
def test_what_a_program_has_put_into_the_log(prefix: str, files: HostFiles) -> None:
    Path(files.root, "log").write_text(f"<6>[    0.000000] Command line: ro\n{prefix}{XID}\n")
    assert read_kernel_log("/log", 5.0, files, programs()).events == ()


def test_a_log_whose_first_lines_were_dropped_is_not_complete(files: HostFiles) -> None:
    lines = f"[ 5000.000000] usb 1-1: new\n[ 5001.000000] {XID}\n"
    log = read_kernel_log("dmesg", 5.0, files, programs(dmesg=succeeded(lines)))
    assert (log.is_complete, log.since) == (False, BOOT + 5000)


def entry(message: str, transport: str = "kernel", **others: object) -> dict[str, object]:
    time = str((BOOT + 50) * 1_000_000)
    return {"__CURSOR": "s=1;i=2", "__REALTIME_TIMESTAMP": time, "_TRANSPORT": transport, "MESSAGE": message, **others}


def exported(fields: dict[str, object]) -> bytes:
    """As systemd's JOURNAL_EXPORT_FORMATS describes it."""
    parts = []
    for name, value in fields.items():
        data = str(value).encode()
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts) + b"\n"


def verbose(fields: dict[str, object]) -> bytes:
    """As output_verbose() of systemd's src/shared/logs-show.c writes it."""
    micros = int(str(fields["__REALTIME_TIMESTAMP"]))
    lines = [f"Tue 2023-11-14 22:14:10.000000 UTC [s=8f;i=2;b=3c;m=2faf080;t={micros:x};x=9a]"]
    for name, value in fields.items():
        if not name.startswith("__"):
            indent = "\n" + " " * (len(name) + 5)
            lines.append(f"    {name}={str(value).replace(chr(10), indent)}")
    return "\n".join(lines).encode() + b"\n"


FORGED = exported(entry(XID)).decode()
ENTRIES = [
    entry("usb 1-1: Product: a\u2028[ 1.0] " + XID.replace("31", "79")),
    entry(XID.replace("31", "79"), "stdout"),
    entry("a\n" + FORGED.replace("31", "79"), "syslog", CODE_FUNC="\n" * 20),
    entry("x" * 300_000 + "\n" + XID.replace("31", "79")),
    entry("two\n" + XID.replace("31", "79")),
    # Written to /dev/kmsg by a program: https://github.com/NVIDIA/NVSentinel/issues/1417.
    entry(XID.replace("31", "79"), SYSLOG_FACILITY="1"),
    entry(XID, SYSLOG_FACILITY="0"),
]
VERBOSE_FORGED = entry("a\n" + verbose(entry(XID.replace("31", "79"))).decode() + "    _TRANSPORT=kernel\nb", "stdout")


@pytest.mark.parametrize("form", ["json", "export", "verbose"])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_entries_of_the_journal(form: str, size: int, files: HostFiles) -> None:
    """Only entries of the kernel count, whatever programs have written into theirs."""
    written = {
        "json": "".join(json.dumps(fields) + "\n" for fields in ENTRIES).encode(),
        "export": b"".join(map(exported, ENTRIES)),
        "verbose": b"".join(map(verbose, [*ENTRIES, VERBOSE_FORGED])),
    }[form]
    beginning = max(size, written.index(b"\n") + 1)
    parts = [written[:beginning], *(written[at : at + size] for at in range(beginning, len(written), size))]
    feed = feed_for(parts[0], (read := _Lines(BOOT)).feed)
    for part in parts:
        feed(part)
    assert [(event.code, event.time) for event in read.log("file", None).events] == [(31, BOOT + 50)]
    Path(files.root, "log").write_bytes(written)
    assert [event.code for event in read_kernel_log("/log", 5.0, files, programs()).events] == [31]


def test_a_message_that_is_no_text_is_a_list_of_its_bytes(files: HostFiles) -> None:
    fields = entry("")
    Path(files.root, "log").write_text(json.dumps({**fields, "MESSAGE": [*list(XID.encode()), 255]}) + "\n")
    assert [event.code for event in read_kernel_log("/log", 5.0, files, programs()).events] == [31]


NO_ENTRY, NO_LINE = "it has no entry of the kernel", "it has no line of the kernel"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(DMESG.encode()), "it is compressed (gzip)"),
        (b"LPKSHHRH\0\0", "it is a file of the journal itself; journalctl --file prints it"),
        (b'{\n\t"MESSAGE" : "a"\n}\n', "its form is not known; use --output=json or short-unix of journalctl"),
        (json.dumps(entry(XID, "stdout")).encode() + b"\n", "it has no entry of the kernel"),
        (b"__CURSOR=s=1\nMESSAGE=" + XID.encode() + b"\n\n", "it has no entry of the kernel"),
        (b"-- Logs begin at Tue 2023-11-14 22:13:20 UTC. --\n" + verbose(entry(XID, "stdout")), NO_ENTRY),
        # Files without one line of the kernel.
        (b"", NO_LINE),
        (b"\n\n", NO_LINE),
        (b"-- No entries --\n", NO_LINE),
        (b"{", NO_LINE),
        (b"\0" * 1000, NO_LINE),
        (DMESG.encode("utf-16"), NO_LINE),
        (b"Nov 14 22:14:10 host1 sshd[12]: Accepted publickey for root\n", NO_LINE),
        (b"2023-11-14T22:14:10+00:00 host1 systemd[1]: Started Session 1.\n", NO_LINE),
        (b"[2023-11-14 22:14:10] INFO server: kernel: " + XID.encode() + b"\n", NO_LINE),
        (b"Driver Version: 580.159.04\n" + b"text " * 50_000 + b"\n", NO_LINE),
        (b"data: " + json.dumps(entry(XID)).encode() + b"\n\n", NO_LINE),
        (b"    MESSAGE=" + XID.encode() + b"\n", NO_LINE),
    ],
)
def test_a_file_without_lines_of_the_kernel_is_unknown(content: bytes, reason: str, files: HostFiles) -> None:
    Path(files.root, "log").write_bytes(content)
    log = read_kernel_log("/log", 5.0, files, programs())
    assert (log.source, log.reason) == (None, f"/log cannot be read: {reason}")


@pytest.mark.parametrize("content", [b"__CURSOR=", b'{"a":' * 100_000, b'{"MESSAGE":' + b"9" * 10_000 + b"}\n"])
def test_a_file_of_anything_is_unknown(content: bytes, files: HostFiles) -> None:
    Path(files.root, "log").write_bytes(content)
    assert read_kernel_log("/log", 5.0, files, programs()).source is None
