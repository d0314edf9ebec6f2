# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict on kernel logs of a million lines of one kind: CPU time of one process, and its memory at its peak."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.benchmark.measure import run
from tests.benchmark.report import Table
from tests.conftest import COLLECTIONS

LINES = 1_000_000
LONG_LINES = 5_000
SECONDS_GOAL, MIB_GOAL = 20, 300
_COLUMNS = ("a million lines of", "MB", "CPU s", "goal", "MiB", "goal, MiB")
_GPU = "PCI:0000:3b:00"
KINDS: Mapping[str, Callable[[int], str]] = {
    "other devices": lambda number: f"usb 1-1: new high-speed USB device number {number}",
    "other messages of the driver": lambda number: f"NVRM: GPU0 _kgspIsHeartbeatTimedOut: heartbeat {number}",
    "Xid 45": lambda number: f"NVRM: Xid ({_GPU}): 45, pid={number}, name=python3, Ch {number:08x}",
    "Xids of all codes": lambda number: (
        f"NVRM: Xid ({_GPU}): {number % 190}, pid={number}, name=python3, Ch {number:08x}"
    ),
    "Xids of GPUs that are not there": (
        lambda number: f"NVRM: Xid (PCI:{number % 65536:04x}:{number % 256:02x}:00): 79, GPU has fallen off the bus."
    ),
    "Xid 154 in turns": lambda number: (
        f"NVRM: Xid ({_GPU}): 154, GPU recovery action changed from 0x0 (None) to {number % 2:#x} (x)"
        if number % 2
        else f"NVRM: Xid ({_GPU}): 119, pid=1, name=a, Timeout after {number} s"
    ),
    "failed initializations": lambda number: f"NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x1a:{number})",
    "starts of the driver": lambda number: f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.183.01  {number}",
    "5,000 lines of 60 kB": lambda number: f"NVRM: Xid ({_GPU}): 31, pid={number}, name=" + "python3 [a] " * 5000,
    "5,000 lines of 60 kB of brackets": lambda number: "[" * 30_000 + "] " * 15_000,
    "NULs and no UTF-8": lambda number: "\0\udcff\udcfe" * 20 + f"NVRM: Xid ({_GPU}): 79, {number}",
    "Xids of different numbers": lambda number: f"NVRM: Xid ({_GPU}): {number}, pid={number}, name=python3",
    "UUIDs of different GPUs": (
        lambda number: f"NVRM: GPU at PCI:0000:{number % 256:02x}:00: GPU-00000000-0000-0000-0000-{number:012x}"
    ),
    "messages that begin and do not end": (
        lambda number: f"NVRM: The NVIDIA GPU 0000:{number % 256:02x}:00.0 (PCI ID: 10de:1db5)"
    ),
    "entries of the journal as JSON": lambda number: json.dumps(
        {
            "__REALTIME_TIMESTAMP": str(1_700_000_000_000_000 + number),
            "_TRANSPORT": "kernel",
            "MESSAGE": f"NVRM: Xid ({_GPU}): 45, pid={number}, name=python3, Ch {number:08x}",
            "_BOOT_ID": "0123456789abcdef0123456789abcdef",
            "_MACHINE_ID": "0123456789abcdef0123456789abcdef",
            "SYSLOG_IDENTIFIER": "kernel",
            "PRIORITY": "2",
        }
    ),
    "the firmware's own reports": (
        lambda number: (
            "{1}[Hardware Error]:  Error 0, type: corrected"
            if number % 2
            else f"{{1}}[Hardware Error]:   device_id: 0000:{number % 256:02x}:00.0"
        )
    ),
    "corrected PCIe errors": (
        lambda number: f"pcieport 0000:00:01.0: AER: Corrected error received: 0000:{number % 256:02x}:00.0"
    ),
}
_PROGRAM = """
import sys
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._health.evaluate import Observed, evaluate
from ansible_collections.gpu.fleet.plugins.module_utils._health.kernel_log_sources import read_kernel_log
from ansible_collections.gpu.fleet.plugins.module_utils._health.table import TABLE
facts = dict(available=True, reason=None, message=None, driver_version='580.159.04', gpus=[], pci_gpus=[], unhealthy=[])
log = read_kernel_log(sys.argv[1], 60.0, HostFiles())
assert log.source, log.reason
report = evaluate(TABLE, Observed(facts, log=log, now=1.8e9))
report.verdict()
"""


def _with_prefix(line: Callable[[int], str]) -> Callable[[int], str]:
    def written(number: int) -> str:
        text = line(number)
        return f"{text}\n" if text.startswith('{"') else f"{1_700_000_000 + number}.000001 host1 kernel: {text}\n"

    return written


def tables(_arguments: object = None) -> Iterator[Table]:
    """One table, a row for each kind of line."""
    rows, missed = [], []
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kernel.log"
        for name, line in KINDS.items():
            with path.open("w", encoding="utf-8", errors="surrogateescape") as log:
                log.writelines(map(_with_prefix(line), range(LONG_LINES if "60 kB" in name else LINES)))
            cost = run((sys.executable, "-c", _PROGRAM, path), environment)
            rows.append((name, path.stat().st_size / 1e6, cost.cpu_seconds, SECONDS_GOAL, cost.peak_mib, MIB_GOAL))
            if cost.peak_mib > MIB_GOAL:
                missed.append(f"a log of {name} takes {cost.peak_mib} MiB, more than {MIB_GOAL}")
    yield Table("A verdict on a long kernel log", _COLUMNS, tuple(rows), tuple(missed))
